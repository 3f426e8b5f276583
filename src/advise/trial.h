// A remedy that was tried: what a replay with it left, and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "advise/remedies.h"
#include "advise/survey.h"
#include "core/error.h"
#include "machine/machine.h"
#include "recording/recording.h"
#include "replay/counts.h"
#include "replay/plan.h"
#include "replay/replay.h"

namespace tlbscope::advise {

// Misses of one kind, made in one mode, of one region.
struct Loser {
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
    addrspace::Region region = addrspace::Region::kUnknown;
    std::uint64_t before = 0;
    std::uint64_t after = 0;
};

struct Costs {
    struct Taken {
        std::string array;
        std::uint32_t entries = 0;
    };
    std::vector<Taken> taken;  // entries that others lose to pins
    // Bytes of memory in larger pages that the run did not touch. An upper bound: it may have had use for
    // some after all. Nothing is lost in kernel-linear and kernel-text, whose memory is contiguous already,
    // nor in kernel-io, which is none.
    std::uint64_t memory = 0;
    // Of these, bytes that belong to no mapping of the program either, where the recording has the maps.
    std::optional<std::uint64_t> outside_maps;
    // Where a software handler must tell page sizes apart: cycles by which that may lengthen each miss that
    // is left before nothing is saved.
    std::optional<double> break_even;
    std::vector<Loser> losers;  // the largest first
};

struct Trial {
    Remedy remedy;
    machine::Machine machine;  // with the remedy
    replay::Counts misses;
    RegionMisses by_region;
    Cycles cycles;  // refills and hits in later levels
    Costs costs;
};

// The machine with a change, as `replay` would make it from these options.
using MakeMachine = std::function<Result<machine::Machine>(const Change&)>;

struct Options {
    unsigned threads = 1;
    MakeMachine make;
    addrspace::RegionOf region_of;
    std::vector<replay::TlbEvent> events;
    std::uint32_t most_pins = 8;
    // A pass over the recording begins; may be empty.
    std::function<void(const std::string& what)> pass;
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;  // within a pass; may be empty
    // Asked now and then once the machine as it is has been measured: yes ends the search with what has been
    // tried. May be empty.
    std::function<bool()> enough;
    // Asked all along: yes gives up, even the first pass. May be empty.
    std::function<bool()> interrupted;
    // Remedies in one pass. Fewer let `enough` find more of them done, and cost as many decodings more.
    std::size_t at_once = ~std::size_t{0};
};

// Replays the recording, as often as it is asked, through machines with remedies.
class Laboratory {
  public:
    Laboratory(const recording::Recording& recording, const Options& options)
        : recording_(recording), options_(options), regions_(options.region_of) {}

    // The machine without a remedy. Call it first.
    Result<void> measure_base();
    [[nodiscard]] const Trial& base() const { return *base_; }
    [[nodiscard]] const replay::Ledger& base_ledger() const { return *ledger_; }
    [[nodiscard]] const Survey& survey() const { return *survey_; }
    [[nodiscard]] const std::vector<TouchedPage>& pages() const { return pages_; }
    [[nodiscard]] const recording::Metadata& metadata() const { return recording_.metadata(); }
    [[nodiscard]] const Options& options() const { return options_; }

    // All of them in one pass, or as many at once as the options say. A remedy that no such machine can be
    // made with is left out and its reason kept; once the search is stopped those not yet tried are counted.
    Result<std::vector<Trial>> attempt(const std::vector<Remedy>& remedies, const std::string& what);

    struct Refusal {
        std::string title;
        std::string reason;
    };
    [[nodiscard]] const std::vector<Refusal>& refusals() const { return refusals_; }
    // Whether Options::enough or Options::interrupted has said yes, and how many remedies were not tried
    // then.
    [[nodiscard]] bool stopped() const { return stopped_; }
    [[nodiscard]] std::size_t untried() const { return untried_; }
    [[nodiscard]] std::uint32_t passes() const { return passes_; }
    [[nodiscard]] std::uint32_t replays() const { return replays_; }

  private:
    Result<std::vector<replay::Ledger>> replay(const std::vector<machine::Machine>& machines,
                                               std::vector<replay::Observer*> observers,
                                               const std::string& what);
    // One pass; machines and the remedies they are made with, in the same order.
    Result<void> try_some(const std::vector<machine::Machine>& machines,
                          std::span<const Remedy* const> remedies, const std::string& what,
                          std::vector<Trial>& trials);
    [[nodiscard]] bool ask_to_stop() const;
    [[nodiscard]] Costs costs_of(const Trial& trial);
    // Bytes of memory in pages that hold a touched one, where that takes memory; and how many of them the
    // program maps.
    struct Memory {
        std::uint64_t bytes = 0;
        std::uint64_t outside = 0;  // of user pages
    };
    [[nodiscard]] Memory memory(const machine::Machine& machine) const;

    const recording::Recording& recording_;
    const Options& options_;
    RegionCache regions_;
    std::optional<Trial> base_;
    std::optional<replay::Ledger> ledger_;
    std::optional<Survey> survey_;
    std::vector<TouchedPage> pages_;
    Memory base_memory_;
    std::vector<Refusal> refusals_;
    bool stopped_ = false;
    std::size_t untried_ = 0;
    std::uint32_t passes_ = 0;
    std::uint32_t replays_ = 0;
};

}  // namespace tlbscope::advise
