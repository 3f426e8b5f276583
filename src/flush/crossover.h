// At how many pages a flush by page costs as much as a flush of the whole space: on this machine, for this
// workload, instead of somebody's magic number.
//
// A flush by page costs its barriers and an instruction a page. A flush of the space costs its barriers, its
// instructions, and later the refills of what it dropped needlessly. How much that is depends on the
// workload: at least nothing, at most the pages the space has in use or the TLB holds. Both ends are
// computed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "flush/request.h"
#include "machine/flush_costs.h"

namespace tlbscope::flush {

// One kind of flush: of this CPU, or of others as well.
struct Curve {
    bool others = false;
    // Time of a flush of n pages by page.
    [[nodiscard]] machine::Duration by_page(std::uint64_t pages) const;
    // Time of a flush of the space that drops `lost` translations somebody still wants.
    [[nodiscard]] machine::Duration by_space(double lost) const;
    // The largest number of pages for which by page is not dearer, and the same at the ends of the errors.
    struct Crossing {
        std::uint64_t pages = 0;
        std::uint64_t least = 0;
        std::uint64_t most = 0;
    };
    [[nodiscard]] Crossing crossing(double lost) const;

    machine::FlushCosts costs;
    std::vector<std::uint64_t> flushes;  // of the workload, by pages; the last of so many and more
    double lost_most = 0;                // mean of what the spaces had in use, up to what a TLB holds

    // Time of all the workload's flushes under a ceiling.
    [[nodiscard]] double total(std::uint64_t ceiling, double lost) const;
    // The ceiling with the least total; the smallest of equals.
    [[nodiscard]] std::uint64_t best_ceiling(double lost) const;
    [[nodiscard]] std::uint64_t kernel_ceiling() const;
};

// For flushes of this CPU, then of others too; those that the workload has none of are there all the same.
[[nodiscard]] std::vector<Curve> crossover(const FlushSizes& sizes, const machine::FlushCosts& costs);

}  // namespace tlbscope::flush
