// Which entries to pin.
//
// Problem: a pinned entry saves the misses of its page and takes an entry from all others, so the best k are
// not the k that miss most. Idea: the pages that miss most are candidates; each round replays what is pinned
// so far with each candidate more, all in one pass, and keeps the best, until another saves little. Rejected:
// all sets of k (the eighth of eight alone would be thousands of replays); ranking by misses alone (blind to
// what a pin takes away). Greedy can miss a pair that only saves together; a round that finds none that saves
// ends the search.
#pragma once

#include <vector>

#include "advise/trial.h"

namespace tlbscope::advise {

// The best 1, 2 ... k, each with one more pin than the one before. k ends where a further pin would save less
// than 1 % of the cycles that the machine spends as it is, or at Options::most_pins.
[[nodiscard]] Result<std::vector<Trial>> best_pins(Laboratory& laboratory);

}  // namespace tlbscope::advise
