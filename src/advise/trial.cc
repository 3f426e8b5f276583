#include "advise/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

namespace tlbscope::advise {

namespace {

using addrspace::Region;
using explain::kKernelSpace;

bool takes_memory(Region region) {
    return region != Region::kKernelLinear && region != Region::kKernelText && region != Region::kKernelIo;
}

// Bytes of [start, end) that the space's maps cover; maps do not overlap.
std::uint64_t mapped(const recording::Metadata& metadata, std::uint32_t space, std::uint64_t start,
                     std::uint64_t end) {
    std::uint64_t bytes = 0;
    for (const recording::MappedRange& map : metadata.maps) {
        if (map.space.value() != space) continue;
        const std::uint64_t from = std::max(start, map.start.value());
        const std::uint64_t to = std::min(end, map.end.value());
        if (from < to) bytes += to - from;
    }
    return std::min(bytes, end - start);
}

std::vector<Loser> losers(const RegionMisses& before, const RegionMisses& after) {
    std::vector<Loser> losers;
    for (const Kind kind : replay::kKinds)
        for (const Mode mode : replay::kModes)
            for (std::size_t i = 0; i < addrspace::kRegions; ++i) {
                const Loser loser{.kind = kind,
                                  .mode = mode,
                                  .region = static_cast<Region>(i),
                                  .before = before.at(kind, mode, static_cast<Region>(i)),
                                  .after = after.at(kind, mode, static_cast<Region>(i))};
                if (loser.after > loser.before) losers.push_back(loser);
            }
    std::stable_sort(losers.begin(), losers.end(),
                     [](const Loser& a, const Loser& b) { return a.after - a.before > b.after - b.before; });
    return losers;
}

Trial trial_of(Remedy remedy, const replay::Ledger& ledger, const RegionMisses& by_region) {
    return {.remedy = std::move(remedy),
            .machine = ledger.machine,
            .misses = ledger.misses,
            .by_region = by_region,
            .cycles = ledger.refill_cycles(),
            .costs = {}};
}

}  // namespace

Result<std::vector<replay::Ledger>> Laboratory::replay(const std::vector<machine::Machine>& machines,
                                                       std::vector<replay::Observer*> observers,
                                                       const std::string& what) {
    if (options_.pass) options_.pass(what);
    auto ledgers = replay::replay(recording_, machines,
                                  {.threads = options_.threads,
                                   .progress = options_.progress,
                                   .stop = [this] { return ask_to_stop(); },
                                   .observers = std::move(observers),
                                   .region_of = options_.region_of,
                                   .events = options_.events});
    if (ledgers) {
        ++passes_;
        replays_ += static_cast<std::uint32_t>(machines.size());
    }
    return ledgers;
}

bool Laboratory::ask_to_stop() const {
    if (options_.interrupted && options_.interrupted()) return true;
    return base_ && options_.enough && options_.enough();
}

Result<void> Laboratory::measure_base() {
    auto machine = options_.make({});
    if (!machine) return std::unexpected(machine.error());
    survey_.emplace(regions_);
    auto ledgers = replay({*machine}, {&*survey_}, "the machine as it is");
    if (!ledgers) return std::unexpected(ledgers.error());
    ledger_ = std::move(ledgers->front());
    if (survey_->misses().total() != ledger_->misses.total())
        return fail(recording_.path().string(),
                    fmt::format("the accounts do not add up: {} misses by region, {} in the ledger",
                                survey_->misses().total(), ledger_->misses.total()),
                    "this is a bug in tlbscope; please report it with the recording");
    base_ = trial_of({}, *ledger_, survey_->misses());
    pages_ = survey_->pages();
    base_memory_ = memory(*machine);
    return {};
}

Result<std::vector<Trial>> Laboratory::attempt(const std::vector<Remedy>& remedies, const std::string& what) {
    std::vector<Trial> trials;
    std::vector<machine::Machine> machines;
    std::vector<const Remedy*> possible;
    for (const Remedy& remedy : remedies) {
        auto machine = options_.make(remedy.change);
        if (machine) {
            machines.push_back(std::move(*machine));
            possible.push_back(&remedy);
        } else {
            // Pins of other pages fail for the same reason.
            if (std::none_of(refusals_.begin(), refusals_.end(),
                             [&](const Refusal& other) { return other.title == remedy.title; }))
                refusals_.push_back({remedy.title, machine.error().what});
        }
    }
    for (std::size_t at = 0; at < machines.size();) {
        const std::size_t end = at + std::min(options_.at_once, machines.size() - at);
        if (!stopped_) {
            auto done = try_some({machines.begin() + static_cast<std::ptrdiff_t>(at),
                                  machines.begin() + static_cast<std::ptrdiff_t>(end)},
                                 std::span(possible).subspan(at, end - at), what, trials);
            if (!done && done.error().error_class != ErrorClass::kInterrupted)
                return std::unexpected(done.error());
            stopped_ = !done;
        }
        if (stopped_) untried_ += end - at;
        at = end;
    }
    return trials;
}

Result<void> Laboratory::try_some(const std::vector<machine::Machine>& machines,
                                  std::span<const Remedy* const> remedies, const std::string& what,
                                  std::vector<Trial>& trials) {
    std::vector<MissSurvey> surveys(machines.size(), MissSurvey(regions_));
    std::vector<replay::Observer*> observers;
    for (MissSurvey& survey : surveys) observers.push_back(&survey);
    auto ledgers = replay(machines, std::move(observers), what);
    if (!ledgers) return std::unexpected(ledgers.error());
    for (std::size_t i = 0; i < machines.size(); ++i) {
        if (surveys[i].misses().total() != (*ledgers)[i].misses.total())
            return fail(
                recording_.path().string(),
                fmt::format("the accounts of \"{}\" do not add up: {} misses by region, {} in the "
                            "ledger",
                            remedies[i]->title, surveys[i].misses().total(), (*ledgers)[i].misses.total()),
                "this is a bug in tlbscope; please report it with the recording");
        Trial trial = trial_of(*remedies[i], (*ledgers)[i], surveys[i].misses());
        trial.costs = costs_of(trial);
        trials.push_back(std::move(trial));
    }
    return {};
}

Laboratory::Memory Laboratory::memory(const machine::Machine& machine) const {
    const addrspace::Mapping mapping = machine.mapping();
    std::set<std::tuple<std::uint32_t, std::uint64_t, std::uint8_t>> pages;
    const addrspace::RegionOf& region_of = regions_.region_of();
    for (const TouchedPage& page : pages_) {
        if (!takes_memory(page.region)) continue;
        const bool kernel = page.space == kKernelSpace;
        const PageShift size = mapping
                                   .at(SpaceId(kernel ? 0 : page.space), VirtAddr(page.address),
                                       kernel ? Side::kKernel : Side::kUser, region_of, true)
                                   .size;
        pages.insert({page.space, page.address >> size.value(), size.value()});
    }
    Memory memory;
    for (const auto& [space, number, shift] : pages) {
        const std::uint64_t size = std::uint64_t{1} << shift;
        memory.bytes += size;
        if (space == kKernelSpace) continue;
        const std::uint64_t start = number << shift;
        memory.outside += size - mapped(recording_.metadata(), space, start, start + size);
    }
    return memory;
}

Costs Laboratory::costs_of(const Trial& trial) {
    Costs costs;
    for (std::size_t i = 0; i < trial.machine.tlbs.size(); ++i) {
        const machine::TlbDescription& tlb = trial.machine.tlbs[i];
        const std::uint32_t before = base_->machine.tlbs[i].geometry.reserved;
        if (tlb.geometry.reserved > before) costs.taken.push_back({tlb.name, tlb.geometry.reserved - before});
    }
    const Memory after = memory(trial.machine);
    if (after.bytes > base_memory_.bytes) {
        costs.memory = after.bytes - base_memory_.bytes;
        if (!recording_.metadata().maps.empty() && after.outside >= base_memory_.outside)
            costs.outside_maps = std::min(after.outside - base_memory_.outside, costs.memory);
    }
    const std::uint64_t left = trial.misses.total();
    if (!trial.remedy.change.maps.empty() && trial.machine.refill.by == "software" &&
        base_->cycles > trial.cycles && left > 0)
        costs.break_even =
            static_cast<double>(base_->cycles.value() - trial.cycles.value()) / static_cast<double>(left);
    costs.losers = losers(base_->by_region, trial.by_region);
    return costs;
}

}  // namespace tlbscope::advise
