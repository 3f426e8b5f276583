#include "replay/engine.h"

#include <algorithm>
#include <limits>

#include "replay/notes.h"

namespace tlbscope::replay {

namespace {

constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

}  // namespace

std::optional<TlbEvent> removal_of(const recording::Event& event) {
    if (event.type != recording::EventType::kInvalidate) return std::nullopt;
    switch (static_cast<recording::Invalidation>(event.a)) {
        case recording::Invalidation::kTlbia:
        case recording::Invalidation::kTlbilAll:
            return TlbEvent{.what = TlbEvent::What::kInvalidateAll};
        case recording::Invalidation::kInvlpg:
        case recording::Invalidation::kTlbie:
        case recording::Invalidation::kTlbiel:
        case recording::Invalidation::kTlbilVa:
            if (event.b == 0) return std::nullopt;
            return TlbEvent{.what = TlbEvent::What::kInvalidatePage, .address = VirtAddr(event.b)};
        case recording::Invalidation::kMovToCr3:
        case recording::Invalidation::kInvpcid:
        case recording::Invalidation::kSlbia:
            break;
    }
    return std::nullopt;
}

Engine::Engine(const recording::Dictionary& dictionary, const recording::Metadata& metadata,
               std::vector<Plan> plans, std::vector<Observer*> observers)
    : dictionary_(&dictionary),
      plans_(std::move(plans)),
      observers_(std::move(observers)),
      kernel_base_(metadata.kernel_base),
      granularity_(metadata.granularity) {
    observers_.resize(plans_.size());
    for (const recording::Space& space : metadata.spaces) spaces_.add(space.id, space.pid);
    for (std::size_t i = 0; i < plans_.size(); ++i) {
        const PageShift shift = plans_[i].routes.touched();
        const std::uint32_t asids = std::min(plans_[i].machine.asids.count, addrspace::kMostAsids);
        auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& candidate) {
            return candidate.shift == shift && candidate.asids == asids;
        });
        if (group == groups_.end())
            group = groups_.insert(group, Group{.shift = shift, .asids = asids, .plans = {}});
        group->plans.push_back(i);
        group->in_order = group->in_order || plans_[i].in_order();
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
                                .mmus = {},
                                .next_event = std::vector<std::size_t>(group.plans.size(), 0)});
        for (const std::size_t plan : group.plans)
            fresh.groups.back().mmus.emplace_back(plans_[plan], id, observers_[plan]);
    }
    return fresh;
}

void Engine::ensure_space(Cpu& cpu) {
    if (!cpu.in_space) switch_space(cpu, SpaceId(0), executions_);
}

void Engine::switch_space(Cpu& cpu, SpaceId recorded, std::uint64_t execution) {
    cpu.in_space = true;
    cpu.recorded = recorded;
    cpu.space = spaces_.same_as(recorded);
    for (GroupState& group : cpu.groups) {
        const addrspace::Asids::Switch to = group.asids.switch_to(cpu.space);
        group.collector.set_tag(to.tag);
        group.tag = to.tag;
        if (to.drop || to.flush) group.collector.forget_last();
        for (Mmu& mmu : group.mmus)
            mmu.switch_space({.cpu = cpu.id, .space = cpu.space, .recorded = recorded, .to = to, .tlbs = {}},
                             execution);
    }
}

void Engine::apply(Cpu& cpu, std::size_t group, std::size_t member, const TlbEvent& event) {
    GroupState& state = cpu.groups[group];
    const Side side = event.address.value() >= kernel_base_ ? Side::kKernel : Side::kUser;
    state.collector.forget_last();
    const std::uint64_t key = state.collector.key(event.address.page(groups_[group].shift).value(), side);
    state.mmus[member].apply(event, key, cpu.recorded);
}

void Engine::happen(Cpu& cpu, const recording::Event& event) {
    if (event.type == recording::EventType::kSwitchSpace) {
        switch_space(cpu, SpaceId(static_cast<std::uint32_t>(event.a)), executions_ + event.position);
        return;
    }
    auto known = removal_of(event);
    if (!known) return;
    ensure_space(cpu);
    known->execution = executions_ + event.position;
    for (std::size_t group = 0; group < groups_.size(); ++group)
        for (std::size_t member = 0; member < groups_[group].plans.size(); ++member)
            apply(cpu, group, member, *known);
}

// Events that whoever replays gave, up to this many executions.
void Engine::inject(Cpu& cpu, std::uint64_t execution) {
    for (std::size_t group = 0; group < groups_.size(); ++group)
        for (std::size_t member = 0; member < groups_[group].plans.size(); ++member) {
            const auto& events = plans_[groups_[group].plans[member]].events;
            std::size_t& next = cpu.groups[group].next_event[member];
            for (; next < events.size() && events[next].execution <= execution; ++next) {
                ensure_space(cpu);
                apply(cpu, group, member, events[next]);
            }
        }
}

std::uint64_t Engine::next_injected(const Cpu& cpu) const {
    std::uint64_t next = kNever;
    for (std::size_t group = 0; group < groups_.size(); ++group)
        for (std::size_t member = 0; member < groups_[group].plans.size(); ++member) {
            const auto& events = plans_[groups_[group].plans[member]].events;
            const std::size_t at = cpu.groups[group].next_event[member];
            if (at < events.size()) next = std::min(next, events[at].execution);
        }
    return next;
}

Result<void> Engine::consume(const recording::Batch& batch) {
    Cpu& state = cpu(batch.cpu);
    const auto blocks = static_cast<std::uint32_t>(batch.blocks.size());
    std::uint32_t begin = 0;
    std::uint32_t access = 0;
    auto event = batch.events.begin();
    while (true) {
        // Up to the next removal of entries everything keeps its key.
        for (; event != batch.events.end(); ++event) {
            if (event->type == recording::EventType::kSwitchSpace || removal_of(*event)) break;
            invalidations_ += event->type == recording::EventType::kInvalidate ? 1 : 0;
            gaps_ += event->type == recording::EventType::kUnrecorded ? 1 : 0;
        }
        std::uint32_t end = event == batch.events.end()
                                ? blocks
                                : std::clamp(static_cast<std::uint32_t>(event->position), begin, blocks);
        const std::uint64_t injected = next_injected(state);
        const bool given = injected < executions_ + end || (injected == executions_ + end && end < blocks);
        if (given)
            end =
                injected <= executions_ + begin ? begin : static_cast<std::uint32_t>(injected - executions_);
        if (end > begin) {
            auto next = look_up(state, batch, begin, end, access);
            if (!next) return std::unexpected(next.error());
            begin = end;
            access = *next;
        }
        if (given) {
            inject(state, executions_ + end);
            continue;
        }
        if (event == batch.events.end()) break;
        happen(state, *event);
        ++event;
    }
    executions_ += blocks;
    if (access != batch.addresses.size())
        return fail("", "a batch holds more addresses than its blocks make accesses",
                    "the recording is damaged or was written by another version");
    return {};
}

Result<std::uint32_t> Engine::look_up(Cpu& cpu, const recording::Batch& batch, std::uint32_t begin,
                                      std::uint32_t end, std::uint32_t access) {
    ensure_space(cpu);
    std::uint32_t next = access;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        GroupState& members = cpu.groups[group];
        auto collected = members.collector.collect(batch, begin, end, access, touches_);
        if (!collected) return std::unexpected(collected.error());
        next = *collected;
        if (groups_[group].in_order)
            in_program_order(*dictionary_, members.collector, groups_[group].shift, kernel_base_, batch,
                             begin, end, touches_.first_access, in_order_);
        for (Mmu& mmu : members.mmus)
            mmu.look_up({.cpu = cpu.id,
                         .space = cpu.space,
                         .recorded = cpu.recorded,
                         .dictionary = dictionary_,
                         .batch = &batch,
                         .begin = begin,
                         .end = end,
                         .accesses_end = next,
                         .executions_before = executions_,
                         .kernel_base = kernel_base_,
                         .touches = &touches_,
                         .in_order = &in_order_});
    }
    return next;
}

Result<void> Engine::consume(CpuId id, const recording::PageTouches& pages) {
    for (const Group& group : groups_)
        if (group.in_order)
            return fail(
                "",
                "the recording keeps changes of page only, and this machine needs every reference in order",
                "record with --granularity full, or replay on a machine with split first-level TLBs");
    Cpu& state = cpu(id);
    ensure_space(state);
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        GroupState& members = state.groups[group];
        members.collector.collect(pages, touches_);
        for (Mmu& mmu : members.mmus)
            mmu.look_up({.cpu = state.id,
                         .space = state.space,
                         .recorded = state.recorded,
                         .dictionary = dictionary_,
                         .executions_before = executions_,
                         .kernel_base = kernel_base_,
                         .touches = &touches_});
    }
    executions_ += pages.touches.size();
    return {};
}

Ledger Engine::ledger_of(std::size_t group, std::size_t member) const {
    const Plan& plan = plans_[groups_[group].plans[member]];
    Ledger ledger;
    ledger.machine = plan.machine;
    ledger.mapping = plan.mapping.text();
    ledger.granularity = granularity_;
    ledger.invalidations_ignored = invalidations_;
    ledger.gaps = gaps_;
    for (const machine::TlbDescription& tlb : plan.machine.tlbs)
        ledger.levels.push_back({.name = tlb.name,
                                 .instruction = tlb.instruction,
                                 .data = tlb.data,
                                 .level = tlb.level,
                                 .pages = tlb.pages,
                                 .geometry = tlb.geometry});
    std::vector<bool> used(plan.mapping.rules().size());
    for (const auto& [id, cpu] : cpus_) {
        const GroupState& state = cpu.groups[group];
        const Mmu& mmu = state.mmus[member];
        for (std::size_t rule = 0; rule < used.size(); ++rule)
            used[rule] = used[rule] || mmu.used_rules()[rule];
        const Collected& seen = state.collector.collected();
        ledger.references += seen.references;
        ledger.lookups += seen.lookups;
        ledger.misses += mmu.misses();
        ledger.space_switches += state.asids.switches();
        ledger.asid_reuses += state.asids.reuses();
        ledger.pages_missed |= mmu.pages_missed();
        for (const Side side : kSides) {
            const auto i = static_cast<std::size_t>(side);
            ledger.iterations[i] += seen.iterations[i];
        }
        for (const Kind kind : kKinds) {
            const auto k = static_cast<std::size_t>(kind);
            ledger.refill[k] = ledger.refill[k] + mmu.refill_cycles()[k];
            ledger.later_hits[k] = ledger.later_hits[k] + mmu.hit_cycles()[k];
        }
        for (std::size_t array = 0; array < ledger.levels.size(); ++array) {
            LevelCounts& level = ledger.levels[array];
            ArrayTotals totals = mmu.arrays()[array];
            // Lists leave repeats out: the collector knows how many lookups they stand for.
            if (!plan.in_order() && level.level == 1)
                for (const Kind kind : kKinds)
                    if (plan.routes.route(kind, plan.mapping.base())[0]->array == array)
                        totals.lookups[static_cast<std::size_t>(kind)] = seen.lookups.of(kind);
            const machine::Tlb& tlb = mmu.tlb(array);
            level.hits += totals.lookups[0] + totals.lookups[1] - totals.presented + tlb.counts().found -
                          (totals.nested - totals.nested_misses);
            level.nested += totals.nested;
            level.nested_misses += totals.nested_misses;
            for (const std::size_t k : {0, 1}) {
                level.lookups[k] += totals.lookups[k];
                level.misses[k] += totals.misses[k];
                level.walks[k] += totals.walks[k];
            }
            level.loads += totals.loads + totals.nested_misses;
            level.refills += tlb.counts().refills;
            level.pinned += tlb.counts().pinned;
            level.evicted += tlb.counts().evicted;
            level.dropped += tlb.counts().dropped;
            level.resident += tlb.resident();
        }
        if (const Refill* derived = mmu.derived(); derived != nullptr) {
            ledger.refill_paths.resize(derived->totals().size());
            for (std::size_t path = 0; path < ledger.refill_paths.size(); ++path)
                ledger.refill_paths[path] += derived->totals()[path];
            ledger.fixed_refills += derived->fixed();
            ledger.table_bytes += derived->tables_bytes();
        }
        for (const PinState& pin : mmu.pins())
            ledger.pins.push_back({.rule = pin.rule->text(),
                                   .array = plan.machine.tlbs[pin.array].name,
                                   .cpu = id,
                                   .start = pin.start,
                                   .size = plan.routes.sizes()[machine::size_of(pin.key)],
                                   .refused = pin.life == PinState::Life::kRefused,
                                   .killed_by = pin.killed_by,
                                   .killed_at = pin.killed_at,
                                   .misses_after = pin.misses_after});
    }
    for (std::size_t i = 0; i < used.size(); ++i) {
        const addrspace::MappingRule& rule = plan.mapping.rules()[i];
        if (used[i]) continue;
        ledger.unused_rules.push_back(
            {.text = rule.text(),
             .own = i < plan.machine.own_rules,
             .kernel =
                 rule.side == Side::kKernel || (rule.region && *rule.region > addrspace::Region::kUserMmap)});
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
    std::vector<Ledger> ledgers(plans_.size());
    for (std::size_t group = 0; group < groups_.size(); ++group)
        for (std::size_t member = 0; member < groups_[group].plans.size(); ++member) {
            Ledger ledger = ledger_of(group, member);
            ledger.recorded = totals;
            if (auto verified = ledger.verify(); !verified) return std::unexpected(verified.error());
            ledger.notes = notes_of(ledger, metadata);
            ledgers[groups_[group].plans[member]] = std::move(ledger);
        }
    return ledgers;
}

}  // namespace tlbscope::replay
