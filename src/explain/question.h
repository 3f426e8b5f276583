// What `explain` can be asked: break the misses down by these dimensions, keep those that match these
// filters.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tlbscope::explain {

enum class Dimension : std::uint8_t {
    kMode,      // of the code that missed
    kKind,      // instruction or data
    kSide,      // of the page that was missed
    kRegion,    // of the address that was missed
    kFunction,  // that missed
    kObject,    // of that function: a file or [kernel]
    kPage,      // that was missed
    kSpace,     // of that page: a process, or the kernel
    kCause,
};
inline constexpr std::array kDimensions{Dimension::kMode,   Dimension::kKind,     Dimension::kSide,
                                        Dimension::kRegion, Dimension::kFunction, Dimension::kObject,
                                        Dimension::kPage,   Dimension::kSpace,    Dimension::kCause};
[[nodiscard]] std::string_view name_of(Dimension dimension);

// Misses whose value of `dimension` contains a match of `regex`.
struct Filter {
    Dimension dimension = Dimension::kFunction;
    std::string text;  // as asked for
    std::regex regex;
};

struct Question {
    std::vector<Dimension> by;
    std::vector<Filter> filters;
    std::size_t rows = 20;      // per level; 0: all
    bool instructions = false;  // keep the misses of each instruction apart, for code_costs()

    [[nodiscard]] bool needs(Dimension dimension) const;
};

// "kind,function,cause". Errors are of the usage class.
[[nodiscard]] Result<std::vector<Dimension>> parse_dimensions(const std::string& text);
// "function=^sys_". An ECMAScript regular expression.
[[nodiscard]] Result<Filter> parse_filter(const std::string& text);

}  // namespace tlbscope::explain
