// The word somebody probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tlbscope {

// The candidate with the fewest edits (insert, delete, replace, swap of neighbours) from `word`, the earlier
// one on a tie; empty when none is close enough to be a slip: more than a third of the letters, and at least
// two, differ.
[[nodiscard]] std::string nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tlbscope
