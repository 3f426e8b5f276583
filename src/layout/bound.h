// Fewest misses that any order of the image's pieces can have: what is left to gain is at most the distance
// to this.
//
// Each of these holds for every placement and every replacement policy of an array with N entries; the
// largest counts.
// - Every page is missed once. The touched bytes of the image fill at least so many pages.
// - In any part of the run in which P distinct pages are touched at least P - N of them miss. Parts that do
// not overlap
//   add up. The image's pages in a part are at least the bytes touched in it (of each piece the longest
//   visit, which leaves some out), divided by a page. Parts are cut where that count reaches a multiple of N;
//   several multiples are tried.
#pragma once

#include <cstdint>

#include "layout/image.h"
#include "layout/trace.h"
#include "machine/machine.h"

namespace tlbscope::layout {

struct Bound {
    std::uint64_t compulsory = 0;
    std::uint64_t windows = 0;
    [[nodiscard]] std::uint64_t misses() const { return compulsory > windows ? compulsory : windows; }
};

// Time: that of a few replays of the trace.
[[nodiscard]] Bound bound_of(const Trace& trace, const machine::Machine& machine);

}  // namespace tlbscope::layout
