// Stepping through a run touch by touch: what an array held before and after, which entry went, and why.
//
// The arrays are the replay's, given one key at a time in the order of the program, so what a step shows is
// what the replay counted; beside each slot stands when it was loaded and last used. This walks every
// reference and is several times slower than a replay, but it can stop at the last touch asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/attribution.h"
#include "machine/machine.h"
#include "recording/recording.h"
#include "replay/cause.h"

namespace tlbscope::explain {

// Which touches to show.
struct Target {
    enum class What { kTouch, kAddress, kPage } what = What::kTouch;
    std::uint64_t value = 0;  // number of the touch, from 1; or an address
};
// "12" is a touch, "0x401000" an address, "page:0x401000" the page of an address. Errors are of the usage
// class.
[[nodiscard]] Result<Target> parse_target(const std::string& text);

struct StepOptions {
    Target target;
    std::size_t limit = 20;  // 0: all
    bool misses_only = false;
    unsigned threads = 1;
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// One reference on one page.
struct Touch {
    std::uint64_t number = 0;  // from 1, in the order of the replay
    CpuId cpu;
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
    Side side = Side::kUser;
    bool store = false;
    std::uint64_t bytes = 0;        // of the whole reference
    std::uint64_t address = 0;      // of the whole reference
    std::uint64_t page = 0;         // number
    std::uint32_t space = 0;        // kKernelSpace for the kernel's side
    SpaceId recorded;               // that runs
    std::uint64_t execution = 0;    // number of the block execution, from 1
    std::uint64_t instruction = 0;  // address of the instruction that made it
};

// What a way holds.
struct Held {
    Translation translation;
    std::uint64_t loaded = 0;  // by this touch
    std::uint64_t used = 0;    // last, by this touch
};

struct Step {
    Touch touch;
    Function function;  // of the instruction
    std::uint32_t set = 0;
    std::vector<std::optional<Held>> before, after;  // by way
    std::uint32_t way = 0;                           // that hit, or that was loaded
    std::optional<Cause> cause;                      // of a miss

    // Of a miss that was not the first look-up: how the entry was lost.
    struct Loss {
        std::uint64_t used = 0;      // last, by this touch
        bool invalidated = false;    // by a switch of space, before touch by.number; otherwise replaced
        Touch by;                    // the touch that replaced it
        Function function;           // that made the touch
        std::uint32_t to_space = 0;  // an invalidation's: the space switched to
    };
    std::optional<Loss> loss;
};

struct Steps {
    std::vector<Step> steps;
    bool more = false;          // the limit ended them
    std::uint64_t touches = 0;  // that the run has, as far as it was walked
};

[[nodiscard]] Result<Steps> step_through(const recording::Recording& recording,
                                         const machine::Machine& machine, const Naming& naming,
                                         const StepOptions& options);

}  // namespace tlbscope::explain
