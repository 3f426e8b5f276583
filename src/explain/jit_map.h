// Functions that a just-in-time compiler made, from the map it writes for perf: /tmp/perf-PID.map, lines of
// start and size in hexadecimal and the name (Linux, tools/perf/Documentation/jit-interface.txt).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "explain/symbols.h"

namespace tlbscope::explain {

struct JitMap {
    std::vector<Symbol> symbols;
    std::size_t unreadable_lines = 0;
    std::size_t first_unreadable = 0;  // line number
};

// Code moves and is replaced, so of two entries that overlap the later line counts: the earlier one keeps
// what the later does not cover.
[[nodiscard]] JitMap parse_jit_map(std::string_view text);

}  // namespace tlbscope::explain
