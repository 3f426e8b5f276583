// Decoded debugger dumps as text and JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "explain/kallsyms.h"
#include "explain/mpc8xx_dump.h"
#include "explain/symbols.h"

namespace tlbscope::report {

struct Mpc8xxDecoded {
    std::string file;
    std::string second_file;  // empty when there is one dump
    explain::Mpc8xxDump dump;
    explain::Mpc8xxDump second;
    bool have_symbols = false;
    explain::SymbolTable symbols;
};

[[nodiscard]] std::string as_text(const Mpc8xxDecoded& decoded);
[[nodiscard]] std::string as_json(const Mpc8xxDecoded& decoded);

}  // namespace tlbscope::report
