// A world small enough to try everything that can happen in it: a few CPUs, spaces and pages, one table per
// space. Each CPU has a TLB that holds every translation it ever used or, being free to speculate, might have
// fetched, and a walk cache. A flusher is safe if no order of events leaves a CPU able to use what was taken
// away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "flush/flusher.h"

namespace tlbscope::flush {

struct WorldSize {
    std::uint32_t cpus = 2;
    std::uint32_t spaces = 1;
    std::uint32_t pages = 2;    // per space, all under one table
    std::uint32_t threads = 1;  // per space: on how many CPUs it can run at once
    bool speculation = true;    // an idle CPU may fetch translations of the space it still has loaded
};

struct Step {
    enum class What : std::uint8_t { kRun, kIdle, kTouch, kSpeculate, kMap, kUnmap, kRestrict, kReplace };
    What what = What::kRun;
    std::uint32_t cpu = 0;
    std::uint32_t space = 0;
    std::uint32_t page = 0;
    [[nodiscard]] std::string text() const;
};

struct Search {
    std::vector<Step> counterexample;  // shortest; empty: safe
    std::string complaint;
    std::uint64_t states = 0;
    bool complete = false;  // every reachable state was visited
    [[nodiscard]] std::string text() const;
};

// Breadth first, so that what is found is shortest. Stops after `most_states`.
[[nodiscard]] Search explore(const Flusher& start, const WorldSize& size,
                             std::uint64_t most_states = 3'000'000);

}  // namespace tlbscope::flush
