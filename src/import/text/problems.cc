#include "import_text/problems.h"

#include <fmt/format.h>

#include "core/numbers.h"

namespace tlbscope::import {

void Problems::add(std::string_view reason, std::uint64_t line) {
    for (Reason& known : reasons_) {
        if (known.text != reason) continue;
        ++known.count;
        return;
    }
    reasons_.push_back({.text = std::string(reason), .count = 1, .first_line = line});
}

std::uint64_t Problems::total() const {
    std::uint64_t total = 0;
    for (const Reason& reason : reasons_) total += reason.count;
    return total;
}

std::vector<std::string> Problems::notes(std::string_view name) const {
    std::vector<std::string> lines;
    for (const Reason& reason : reasons_)
        lines.push_back(fmt::format("{}: {} left out: {} (first in line {})", name,
                                    reason.count == 1 ? "1 line" : grouped(reason.count) + " lines",
                                    reason.text, reason.first_line));
    return lines;
}

}  // namespace tlbscope::import
