#include "replay/engine.h"

#include <algorithm>

#include "core/numbers.h"
#include "replay/notes.h"

namespace tlbscope::replay {

Engine::Engine(const recording::Dictionary& dictionary, const recording::Metadata& metadata,
               std::vector<machine::Machine> machines, std::vector<Observer*> observers)
    : dictionary_(&dictionary),
      machines_(std::move(machines)),
      observers_(std::move(observers)),
      kernel_base_(metadata.kernel_base),
      granularity_(metadata.granularity) {
    observers_.resize(machines_.size());
    for (const recording::Space& space : metadata.spaces) spaces_.add(space.id, space.pid);
    for (std::size_t i = 0; i < machines_.size(); ++i) {
        const PageShift shift = machines_[i].pages.base;
        const std::uint32_t asids = std::min(machines_[i].asids.count, addrspace::kMostAsids);
        auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& candidate) {
            return candidate.shift == shift && candidate.asids == asids;
        });
        if (group == groups_.end())
            group = groups_.insert(group, Group{.shift = shift, .asids = asids, .machines = {}});
        group->machines.push_back(i);
        if (!tables_.contains(shift.value()))
            tables_.emplace(shift.value(),
                            std::make_shared<const BlockTable>(dictionary, shift, kernel_base_));
    }
}

Engine::Cpu& Engine::cpu(CpuId id) {
    if (const auto known = cpus_.find(id.value()); known != cpus_.end()) return known->second;
    Cpu& fresh = cpus_[id.value()];
    fresh.id = id;
    for (const Group& group : groups_) {
        fresh.groups.push_back({.collector = TouchCollector(*dictionary_, tables_.at(group.shift.value()),
                                                            group.shift, kernel_base_),
                                .asids = addrspace::Asids(group.asids),
                                .mmus = {}});
        for (const std::size_t machine : group.machines) {
            Mmu mmu;
            mmu.observer = observers_[machine];
            for (const Kind kind : kKinds)
                mmu.tlbs[static_cast<std::size_t>(kind)] =
                    machine::make_tlb(machines_[machine].tlb(kind).geometry, random_stream(id, kind));
            fresh.groups.back().mmus.push_back(std::move(mmu));
        }
    }
    return fresh;
}

void Engine::ensure_space(Cpu& cpu) {
    if (!cpu.in_space) switch_space(cpu, SpaceId(0));
}

void Engine::switch_space(Cpu& cpu, SpaceId recorded) {
    cpu.in_space = true;
    cpu.recorded = recorded;
    cpu.space = spaces_.same_as(recorded);
    for (GroupState& group : cpu.groups) {
        const addrspace::Asids::Switch to = group.asids.switch_to(cpu.space);
        group.collector.set_tag(to.tag);
        for (const Mmu& mmu : group.mmus)
            if (mmu.observer != nullptr)
                mmu.observer->switching({.cpu = cpu.id,
                                         .space = cpu.space,
                                         .recorded = recorded,
                                         .to = to,
                                         .tlbs = {mmu.tlbs[0].get(), mmu.tlbs[1].get()}});
        if (!to.drop && !to.flush) continue;
        group.collector.forget_last();
        for (Mmu& mmu : group.mmus)
            for (const auto& tlb : mmu.tlbs) {
                if (to.flush)
                    tlb->flush_all();
                else
                    tlb->drop_tag(to.tag);
            }
    }
}

Result<void> Engine::consume(const recording::Batch& batch) {
    Cpu& state = cpu(batch.cpu);
    const auto blocks = static_cast<std::uint32_t>(batch.blocks.size());
    std::uint32_t begin = 0;
    std::uint32_t access = 0;
    auto event = batch.events.begin();
    while (true) {
        // Up to the next change of space everything keeps its tag.
        while (event != batch.events.end() && event->type != recording::EventType::kSwitchSpace) {
            invalidations_ += event->type == recording::EventType::kInvalidate ? 1 : 0;
            gaps_ += event->type == recording::EventType::kUnrecorded ? 1 : 0;
            ++event;
        }
        const std::uint32_t end =
            event == batch.events.end()
                ? blocks
                : std::clamp(static_cast<std::uint32_t>(event->position), begin, blocks);
        if (end > begin) {
            ensure_space(state);
            std::uint32_t next = access;
            for (std::size_t group = 0; group < groups_.size(); ++group) {
                GroupState& members = state.groups[group];
                auto collected = members.collector.collect(batch, begin, end, access, touches_);
                if (!collected) return std::unexpected(collected.error());
                next = *collected;
                for (Mmu& mmu : members.mmus)
                    look_up(state, groups_[group], mmu, {.batch = &batch, .begin = begin, .end = end});
            }
            begin = end;
            access = next;
        }
        if (event == batch.events.end()) break;
        switch_space(state, SpaceId(static_cast<std::uint32_t>(event->a)));
        ++event;
    }
    executions_ += blocks;
    if (access != batch.addresses.size())
        return fail("", "a batch holds more addresses than its blocks make accesses",
                    "the recording is damaged or was written by another version");
    return {};
}

Result<void> Engine::consume(CpuId id, const recording::PageTouches& pages) {
    Cpu& state = cpu(id);
    ensure_space(state);
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        GroupState& members = state.groups[group];
        members.collector.collect(pages, touches_);
        for (Mmu& mmu : members.mmus) look_up(state, groups_[group], mmu, {});
    }
    executions_ += pages.touches.size();
    return {};
}

void Engine::look_up(const Cpu& cpu, const Group& group, Mmu& mmu, const Source& source) {
    for (const Kind kind : kKinds) {
        look_up(mmu, kind, kind == Kind::kInstruction ? touches_.fetches : touches_.accesses, touches_.modes);
        if (mmu.observer != nullptr) tell(cpu, group, mmu, kind, source);
    }
}

void Engine::tell(const Cpu& cpu, const Group& group, const Mmu& mmu, Kind kind, const Source& source) const {
    const TouchList& list = kind == Kind::kInstruction ? touches_.fetches : touches_.accesses;
    mmu.observer->looked_up({.cpu = cpu.id,
                             .kind = kind,
                             .shift = group.shift,
                             .keys = list.valid(),
                             .missed = std::span(missed_).first(missed_count_),
                             .ordinals = std::span(list.ordinals).first(list.count),
                             .modes = touches_.modes,
                             .space = cpu.space,
                             .recorded = cpu.recorded,
                             .dictionary = dictionary_,
                             .batch = source.batch,
                             .first_access = touches_.first_access,
                             .begin = source.begin,
                             .end = source.end,
                             .executions_before = executions_,
                             .kernel_base = kernel_base_});
}

void Engine::look_up(Mmu& mmu, Kind kind, const TouchList& list, const std::vector<ModeRun>& modes) {
    if (missed_.size() < list.count) missed_.resize(list.count + list.count / 2);
    const std::size_t missed = mmu.tlbs[static_cast<std::size_t>(kind)]->run(list.valid(), missed_.data());
    missed_count_ = missed;
    std::size_t run = 0;
    for (std::size_t i = 0; i < missed; ++i) {
        const std::uint32_t at = missed_[i];
        const std::uint64_t key = list.keys[at];
        const std::uint32_t ordinal = list.ordinals[at];
        while (run + 1 < modes.size() &&
               ordinal >=
                   (kind == Kind::kInstruction ? modes[run + 1].first_block : modes[run + 1].first_access))
            ++run;
        const Side side = machine::tag_of(key) == addrspace::kGlobalTag ? Side::kKernel : Side::kUser;
        ++mmu.misses.at(kind, modes[run].mode, side);
        mmu.pages_missed |= machine::page_of(key);
    }
}

Ledger Engine::ledger_of(std::size_t group, std::size_t member) const {
    Ledger ledger;
    ledger.machine = machines_[groups_[group].machines[member]];
    ledger.mapping = size_name(ledger.machine.pages.base.bytes());
    ledger.granularity = granularity_;
    ledger.invalidations_ignored = invalidations_;
    ledger.gaps = gaps_;
    for (const Kind kind : kKinds) {
        const machine::TlbDescription& tlb = ledger.machine.tlb(kind);
        LevelCounts level;
        level.name = tlb.name;
        level.kind = kind;
        level.level = tlb.level;
        level.geometry = tlb.geometry;
        ledger.levels.push_back(level);
    }
    for (const auto& [id, cpu] : cpus_) {
        const GroupState& state = cpu.groups[group];
        const Mmu& mmu = state.mmus[member];
        const Collected& seen = state.collector.collected();
        ledger.references += seen.references;
        ledger.lookups += seen.lookups;
        ledger.misses += mmu.misses;
        ledger.space_switches += state.asids.switches();
        ledger.asid_reuses += state.asids.reuses();
        ledger.pages_missed |= mmu.pages_missed;
        for (const Side side : kSides) {
            const auto i = static_cast<std::size_t>(side);
            ledger.iterations[i] += seen.iterations[i];
        }
        for (LevelCounts& level : ledger.levels) {
            const auto kind = static_cast<std::size_t>(level.kind);
            const machine::Tlb& tlb = *mmu.tlbs[kind];
            const std::uint64_t repeats = seen.lookups.of(level.kind) - seen.presented[kind];
            level.lookups += repeats + seen.presented[kind];
            level.hits += repeats + tlb.counts().found;
            level.misses += mmu.misses.of(level.kind);
            level.refills += tlb.counts().refills;
            level.evicted += tlb.counts().evicted;
            level.dropped += tlb.counts().dropped;
            level.resident += tlb.resident();
        }
    }
    for (const Side side : kSides) {
        const auto i = static_cast<std::size_t>(side);
        if (ledger.full())
            ledger.instructions[i] =
                ledger.references.by_side(Kind::kInstruction, side) - ledger.iterations[i];
    }
    return ledger;
}

Result<std::vector<Ledger>> Engine::finish(const recording::Metadata& metadata,
                                           const RecordedTotals& totals) const {
    std::vector<Ledger> ledgers(machines_.size());
    for (std::size_t group = 0; group < groups_.size(); ++group)
        for (std::size_t member = 0; member < groups_[group].machines.size(); ++member) {
            Ledger ledger = ledger_of(group, member);
            ledger.recorded = totals;
            if (auto verified = ledger.verify(); !verified) return std::unexpected(verified.error());
            ledger.notes = notes_of(ledger, metadata);
            ledgers[groups_[group].machines[member]] = std::move(ledger);
        }
    return ledgers;
}

}  // namespace tlbscope::replay
