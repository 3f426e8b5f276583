#include "explain/causes.h"

#include <algorithm>

#include "addrspace/asids.h"

namespace tlbscope::explain {

namespace {

Translation translation_of(std::uint64_t key, SpaceId space) {
    const bool kernel = machine::tag_of(key) == addrspace::kGlobalTag;
    return {.page = machine::page_of(key),
            .space = kernel ? kKernelSpace : space.value(),
            .size = static_cast<std::uint8_t>(machine::size_of(key))};
}

}  // namespace

void ArrayCauses::Shadow::look_up(std::span<const std::uint64_t> keys) {
    if (!tlb_) return;
    if (missed_.size() < keys.size()) missed_.resize(keys.size() + keys.size() / 2);
    count_ = tlb_->run(keys, missed_.data());
    next_ = 0;
}

// Asked with rising indexes.
bool ArrayCauses::Shadow::missed_at(std::uint32_t index) {
    while (next_ < count_ && missed_[next_] < index) ++next_;
    return next_ < count_ && missed_[next_] == index;
}

ArrayCauses::ArrayCauses(const machine::TlbGeometry& geometry, bool alone, bool loaded)
    : geometry_(geometry),
      lru_(alone && geometry.replacement == machine::Replacement::kLru),
      loaded_(loaded) {
    const bool full = geometry.sets() == 1;
    const bool lru = lru_;
    machine::TlbGeometry shadow = geometry;
    shadow.replacement = machine::Replacement::kLru;
    if (!full && !lru) conflict_.make(shadow);
    shadow.ways = shadow.entries;
    if (!full || !lru) capacity_.make(shadow);
}

void ArrayCauses::judge(std::span<const std::uint64_t> keys, std::span<const std::uint32_t> missed,
                        SpaceId space, std::vector<Cause>& causes) {
    capacity_.look_up(keys);
    conflict_.look_up(keys);
    causes.resize(missed.size());
    std::uint32_t hit = 0;
    const auto note_hits = [&](std::uint32_t until) {
        for (; loaded_ && hit < until; ++hit)
            history_[translation_of(keys[hit], space)] = {.looked_up = true, .removed = false};
    };
    for (std::size_t i = 0; i < missed.size(); ++i) {
        const std::uint32_t at = missed[i];
        note_hits(at);
        hit = at + 1;
        History& history = history_[translation_of(keys[at], space)];
        Cause cause = Cause::kReplacement;
        if (!history.looked_up)
            cause = Cause::kCompulsory;
        else if (history.removed)
            cause = Cause::kInvalidated;
        else if (!capacity_.exists() || capacity_.missed_at(at))
            cause = Cause::kCapacity;
        else if (conflict_.exists() ? conflict_.missed_at(at) : lru_)
            cause = Cause::kConflict;
        history = {.looked_up = true, .removed = false};
        causes[i] = cause;
    }
    note_hits(static_cast<std::uint32_t>(keys.size()));
}

void ArrayCauses::drop_tag(std::uint16_t tag, SpaceId owner, std::span<const std::uint64_t> contents) {
    for (const std::uint64_t key : contents)
        if (key != machine::kNoKey && machine::tag_of(key) == tag)
            history_[translation_of(key, owner)].removed = true;
    capacity_.drop_tag(tag);
    conflict_.drop_tag(tag);
}

void ArrayCauses::flush_all(SpaceId owner, std::span<const std::uint64_t> contents) {
    for (std::size_t slot = 0; slot < contents.size(); ++slot)
        if (contents[slot] != machine::kNoKey && slot % geometry_.ways < geometry_.usable())
            history_[translation_of(contents[slot], owner)].removed = true;
    capacity_.flush_all();
    conflict_.flush_all();
}

void ArrayCauses::remove(const std::function<bool(std::uint64_t, bool)>& doomed,
                         const std::unordered_map<std::uint16_t, SpaceId>& owners,
                         std::span<const std::uint64_t> contents) {
    for (std::size_t slot = 0; slot < contents.size(); ++slot) {
        const std::uint64_t key = contents[slot];
        if (key == machine::kNoKey || !doomed(key, slot % geometry_.ways >= geometry_.usable())) continue;
        const auto owner = owners.find(machine::tag_of(key));
        history_[translation_of(key, owner == owners.end() ? SpaceId(0) : owner->second)].removed = true;
    }
    capacity_.drop_if(doomed);
    conflict_.drop_if(doomed);
}

MachineCauses::MachineCauses(machine::Machine machine, bool loads)
    : machine_(std::move(machine)),
      loaded_(loads || std::any_of(machine_.rules.begin(), machine_.rules.end(),
                                   [](const addrspace::MappingRule& rule) { return rule.pinned; })),
      // A handler's own loads take entries that shadows do not see.
      alone_(
          !loaded_ && machine_.levels() == 1 &&
          !(machine_.refill.derived && machine_.refill.handler && machine_.refill.handler->virtual_table)) {}

MachineCauses::Cpu& MachineCauses::cpu(CpuId id) {
    Cpu& cpu = cpus_[id.value()];
    if (cpu.arrays.empty())
        for (const machine::TlbDescription& tlb : machine_.tlbs)
            cpu.arrays.push_back(std::make_unique<ArrayCauses>(tlb.geometry, alone_, loaded_));
    return cpu;
}

void MachineCauses::looked_up(const replay::Lookups& lookups, std::vector<Cause>& causes) {
    cpu(lookups.cpu).arrays[lookups.array]->judge(lookups.keys, lookups.missed, lookups.space, judged_);
    causes.clear();
    std::size_t judged = 0;
    for (const std::uint32_t at : lookups.walked) {
        while (lookups.missed[judged] != at) ++judged;
        causes.push_back(judged_[judged]);
        ++counts_[static_cast<std::size_t>(lookups.kind_of(at))][judged_[judged]];
    }
}

void MachineCauses::switching(const replay::SpaceSwitch& to) {
    Cpu& state = cpu(to.cpu);
    const auto owner = state.owners.find(to.to.tag);
    const SpaceId before = owner == state.owners.end() ? to.space : owner->second;
    for (std::size_t i = 0; i < state.arrays.size(); ++i) {
        if (to.to.flush)
            state.arrays[i]->flush_all(before, to.tlbs[i]->contents());
        else if (to.to.drop)
            state.arrays[i]->drop_tag(to.to.tag, before, to.tlbs[i]->contents());
    }
    state.owners[to.to.tag] = to.space;
}

void MachineCauses::removing(const replay::Removal& removal) {
    Cpu& state = cpu(removal.cpu);
    for (std::size_t i = 0; i < state.arrays.size(); ++i)
        if (!removal.array || i == *removal.array)
            state.arrays[i]->remove(removal.doomed, state.owners, removal.tlbs[i]->contents());
}

namespace {

class CauseObserver final : public replay::Observer {
  public:
    CauseObserver(const machine::Machine& machine, bool loads) : causes_(machine, loads) {}
    void looked_up(const replay::Lookups& lookups) override { causes_.looked_up(lookups, scratch_); }
    void switching(const replay::SpaceSwitch& to) override { causes_.switching(to); }
    void removing(const replay::Removal& removal) override { causes_.removing(removal); }
    [[nodiscard]] const std::array<CauseCounts, 2>& counts() const { return causes_.counts(); }

  private:
    MachineCauses causes_;
    std::vector<Cause> scratch_;
};

}  // namespace

Result<std::vector<replay::Ledger>> replay_with_causes(const recording::Recording& recording,
                                                       const std::vector<machine::Machine>& machines,
                                                       const replay::Options& options) {
    std::vector<std::unique_ptr<CauseObserver>> observers;
    replay::Options watched = options;
    watched.observers.clear();
    const bool loads = std::any_of(
        options.events.begin(), options.events.end(),
        [](const replay::TlbEvent& event) { return event.what == replay::TlbEvent::What::kLoad; });
    for (const machine::Machine& machine : machines) {
        observers.push_back(std::make_unique<CauseObserver>(machine, loads));
        watched.observers.push_back(observers.back().get());
    }
    auto ledgers = replay::replay(recording, machines, watched);
    if (!ledgers) return ledgers;
    for (std::size_t i = 0; i < machines.size(); ++i) {
        (*ledgers)[i].causes = observers[i]->counts();
        if (auto verified = (*ledgers)[i].verify(); !verified) return std::unexpected(verified.error());
    }
    return ledgers;
}

}  // namespace tlbscope::explain
