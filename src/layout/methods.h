// The known ways to order functions, each from the same recording.
//
// All work on units (layout/linker.h) that were touched and can move; the others stay in the linker's order
// behind or before them. Calls come from the trace, so the heaviest caller is the real one, not an estimate.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/linker.h"
#include "layout/trace.h"

namespace tlbscope::layout {

using Order = std::vector<std::uint32_t>;  // units

struct Node {
    std::uint32_t unit = 0;
    std::uint64_t bytes = 0;
    double entries = 0;
    double references = 0;
    std::uint64_t first_seen = 0;  // rank, from 1
};

struct Edge {
    std::uint32_t from = 0;  // nodes
    std::uint32_t to = 0;
    std::uint32_t offset = 0;  // in `from`, of the call
    double count = 0;
};

// The array's bytes are divided by these.
inline constexpr std::array<std::uint64_t, 3> kPartShares{1, 2, 4};

struct Graph {
    std::vector<Node> nodes;  // touched units, by first touch
    std::vector<Edge> edges;  // by from and to
    // How often one was visited soon after the other, at the granularity of pages; both directions in one. By
    // a and b, a < b.
    std::vector<Edge> affinity;
    // The run in parts, each about as long as a share of the array's entries lasts (kPartShares): by share
    // and node the parts it was visited in, ascending.
    std::array<std::vector<std::vector<std::uint32_t>>, 3> parts;
};

// `weights`: of each trace, how much its counts matter. `reach`: bytes that the array's entries translate.
[[nodiscard]] Graph graph_of(const Image& image, const Units& units, std::span<const Trace* const> traces,
                             std::span<const double> weights, std::uint64_t reach);

// Hottest first by references per byte. [the oldest rule there is]
[[nodiscard]] Order by_density(const Graph& graph);
// In the order of their first touch, as for fast starts.
[[nodiscard]] Order by_first_touch(const Graph& graph);
// Pettis and Hansen, PLDI 1990: take the heaviest edge, join the two chains in the one of four orientations
// that puts the edge's ends closest; chains by density at the end.
[[nodiscard]] Order pettis_hansen(const Graph& graph);
// C3 (Ottoni and Maher, CGO 2017), called hfsort in BOLT and lld: functions by density, each cluster appended
// to that of its heaviest caller while the sum is at most `cap` bytes.
[[nodiscard]] Order c3(const Graph& graph, std::uint64_t cap);
// The objective of LLVM's cdsort: closeness of calls to their targets, and expected misses of a small cache
// of chains; greedy merging of the pair that gains most.
[[nodiscard]] Order cdsort(const Graph& graph);
// Balanced partitioning (Dhulipala and others, KDD 2016; for code: Lee and others, arXiv 2211.09285), but for
// parts of the run that are as long as the array's entries last rather than for page faults at the start:
// functions used in the same parts share pages. `share`: of kPartShares. Halves are split again until they
// are smaller than a page.
[[nodiscard]] Order partition(const Graph& graph, std::uint64_t page, std::size_t share);
// Temporal relations (Gloy and Smith, TOPLAS 1999) between functions that are visited within two pages' bytes
// of each other, clustered greedily into pages of `page` bytes; pages then follow each other by the relations
// between them.
[[nodiscard]] Order temporal(const Graph& graph, std::uint64_t page);

}  // namespace tlbscope::layout
