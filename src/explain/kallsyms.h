// The kernel's functions from /proc/kallsyms: a line is address, type, name and, of a module's symbol, the
// module in brackets. It has no sizes, so a function reaches to the next symbol of any type in the same
// section; outside the kernel's text and the modules nothing has a name.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "addrspace/regions.h"
#include "explain/symbols.h"

namespace tlbscope::explain {

using addrspace::AddressRange;

struct KernelSymbols {
    std::vector<Symbol> kernel;
    struct Module {
        std::string name;  // without brackets
        std::vector<Symbol> symbols;
    };
    std::vector<Module> modules;  // by name
    AddressRange image;           // _text to _end: code and data of the kernel itself
    std::size_t unreadable_lines = 0;
    bool hidden = false;  // every address is 0: kptr_restrict, or not read as root
};

// Also reads System.map, which has the same lines.
[[nodiscard]] KernelSymbols parse_kallsyms(std::string_view text);

}  // namespace tlbscope::explain
