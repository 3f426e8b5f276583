// Function boundaries from .eh_frame, which survives stripping because unwinding needs it at run time.
// The format: Linux Standard Base 5.0, 10.6; DWARF 5, 6.4.1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tlbscope::explain {

struct UnwoundFunction {
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
};

// `section` is at `address`; `wide` is 64-bit. Entries in encodings that compilers do not use for code are
// left out; damage ends the list.
[[nodiscard]] std::vector<UnwoundFunction> unwound_functions(std::span<const std::uint8_t> section,
                                                             std::uint64_t address, bool wide);

}  // namespace tlbscope::explain
