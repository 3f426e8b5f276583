// What to change so that a recorded run spends fewer cycles on translation: every remedy is tried by replay
// of the same recording, ranked, and combined with the best others.
//
// The search is bounded, and the same for any number of threads: one pass for the machine as it is, one for
// all single remedies, at most Options::most_pins for pins, one for pairs of the six best. Rejected: all
// subsets; a time limit unless the user asks for one, since the answer then depends on how busy the computer
// is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "advise/trial.h"
#include "core/error.h"
#include "recording/recording.h"
#include "replay/ledger.h"

namespace tlbscope::advise {

struct Advice {
    replay::Ledger ledger;  // of the machine as it is
    Trial base;
    std::vector<Trial> trials;         // by cycles left
    std::optional<std::size_t> first;  // of `trials`: what to do first; none when nothing saves a cycle
    std::vector<Trial> pins;           // the best 1, 2 ... k
    std::vector<Trial> pairs;          // by cycles left
    bool pair_helps = false;  // the first of them saves more than any single remedy without new hardware
    std::vector<Laboratory::Refusal> refusals;
    // The search was stopped before its end: the trials are those that were done, and at least so many
    // remedies were not tried. Which pins and pairs would have followed is not known.
    bool stopped = false;
    std::size_t untried = 0;
    std::uint32_t passes = 0;
    std::uint32_t replays = 0;

    [[nodiscard]] std::int64_t saved(const Trial& trial) const {
        return static_cast<std::int64_t>(base.cycles.value()) -
               static_cast<std::int64_t>(trial.cycles.value());
    }
};

[[nodiscard]] Result<Advice> advise(const recording::Recording& recording, const Options& options);

// Of remedies that take no other hardware and save at least 95 % of what the best of them saves, the one that
// loses the least memory, then the one that saves the most; if none saves anything, the best with hardware.
[[nodiscard]] std::optional<std::size_t> what_first(const Advice& advice);

}  // namespace tlbscope::advise
