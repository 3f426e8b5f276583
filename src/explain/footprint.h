// The footprint of paths: how many distinct pages and cache lines a call needs, which functions it runs, and
// how few pages those would take.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/names.h"
#include "explain/paths.h"
#include "recording/recording.h"

namespace tlbscope::explain {

// Over the calls of a path.
struct Spread {
    std::uint64_t sum = 0;
    std::uint64_t least = ~std::uint64_t{0};
    std::uint64_t most = 0;
    void add(std::uint64_t value) {
        sum += value;
        least = value < least ? value : least;
        most = value > most ? value : most;
    }
    [[nodiscard]] double mean(std::uint64_t calls) const {
        return calls == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(calls);
    }
};

struct PageFootprint {
    PageShift shift;
    Spread code;
    Spread data;
    std::uint64_t fewest = 0;  // pages that the hot functions' bytes would fill
};

struct HotFunction {
    std::uint32_t function_id = 0;
    std::uint64_t calls = 0;  // of the path in which it ran
    std::uint64_t bytes = 0;
};

struct PathFootprint {
    std::string path;
    std::vector<std::string> functions_meant;  // full names; empty for marks
    std::uint64_t calls = 0;                   // whole ones
    std::uint64_t unfinished = 0;              // begun but not ended within the recording
    std::vector<PageFootprint> pages;          // by page size
    Spread code_lines;
    Spread data_lines;
    Spread functions;
    Spread fetches;                   // instructions fetched, repeated iterations included
    std::uint64_t functions_all = 0;  // distinct over all calls
    std::uint64_t hot_bytes = 0;
    std::vector<HotFunction> hot;   // by address order of id; run in at least half of the calls
    Apart apart;                    // summed
    std::uint64_t calls_apart = 0;  // calls that were interrupted or preempted
};

struct FootprintOptions {
    std::vector<PageShift> pages{PageShift(12), PageShift(14), PageShift(16)};
    unsigned line_shift = 6;
    unsigned threads = 1;
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

[[nodiscard]] Result<std::vector<PathFootprint>> footprint(const recording::Recording& recording,
                                                           const Names& names, const std::vector<Path>& paths,
                                                           const FootprintOptions& options);

}  // namespace tlbscope::explain
