#include "core/nearest.h"

#include <algorithm>
#include <vector>

namespace tlbscope {

namespace {
// Optimal string alignment distance: edits with swaps of neighbours, no letter edited twice.
std::size_t distance(std::string_view a, std::string_view b) {
    std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
    for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
    for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i)
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t replaced = d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, replaced});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
        }
    return d[a.size()][b.size()];
}
}  // namespace

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
    const std::string* best = nullptr;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t edits = distance(word, candidate);
        // A short word two edits away shares too little to be a slip.
        if (edits < best_distance && edits < std::max(word.size(), candidate.size())) {
            best = &candidate;
            best_distance = edits;
        }
    }
    return best == nullptr ? std::string{} : *best;
}

}  // namespace tlbscope
