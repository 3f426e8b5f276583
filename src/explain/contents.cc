// The call's first and last execution lie within batches, so this replay cuts batches there. It uses the
// parts of the engine (replay/engine.cc) for one machine, without its accounting, and stops at the call's
// end.
#include "explain/contents.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "addrspace/asids.h"
#include "addrspace/spaces.h"
#include "machine/tlb.h"
#include "replay/block_table.h"
#include "replay/counts.h"
#include "replay/pipeline.h"
#include "replay/touches.h"

namespace tlbscope::explain {

namespace {

using recording::Batch;
using recording::EventType;
using replay::kKinds;

// One CPU's TLBs, brought up to a place within a batch.
class Mmu {
  public:
    Mmu(const recording::Recording& recording, const machine::Machine& machine, CpuId cpu,
        std::shared_ptr<const replay::BlockTable> table, const addrspace::Spaces& spaces)
        : spaces_(spaces),
          collector_(recording.dictionary(), std::move(table), machine.pages.base,
                     recording.metadata().kernel_base),
          asids_(std::min(machine.asids.count, addrspace::kMostAsids)) {
        for (const Kind kind : kKinds)
            tlbs_[static_cast<std::size_t>(kind)] =
                machine::make_tlb(machine.tlb(kind).geometry,
                                  std::uint64_t{cpu.value()} * 2 + static_cast<std::uint64_t>(kind));
        switch_to(SpaceId(0));
    }

    void next_batch() {
        begin_ = access_ = 0;
        event_ = 0;
    }

    // Up to before this execution.
    Result<void> advance(const Batch& batch, std::uint32_t until) {
        while (true) {
            while (event_ < batch.events.size() && batch.events[event_].type != EventType::kSwitchSpace)
                ++event_;
            const std::uint64_t next = event_ < batch.events.size()
                                           ? std::min<std::uint64_t>(batch.events[event_].position, until)
                                           : until;
            const auto end = std::max(begin_, static_cast<std::uint32_t>(next));
            if (end > begin_) {
                auto access = collector_.collect(batch, begin_, end, access_, touches_);
                if (!access) return std::unexpected(access.error());
                look_up(Kind::kInstruction, touches_.fetches);
                look_up(Kind::kData, touches_.accesses);
                access_ = *access;
                begin_ = end;
            }
            if (event_ >= batch.events.size() || batch.events[event_].position > until) return {};
            switch_to(SpaceId(static_cast<std::uint32_t>(batch.events[event_].a)));
            ++event_;
        }
    }

    [[nodiscard]] std::vector<std::uint64_t> contents(Kind kind) const {
        const auto slots = tlbs_[static_cast<std::size_t>(kind)]->contents();
        return {slots.begin(), slots.end()};
    }
    [[nodiscard]] SpaceId owner(std::uint16_t tag) const {
        const auto space = owners_.find(tag);
        return space == owners_.end() ? SpaceId(0) : space->second;
    }

  private:
    void switch_to(SpaceId id) {
        const SpaceId space = spaces_.same_as(id);
        const addrspace::Asids::Switch to = asids_.switch_to(space);
        collector_.set_tag(to.tag);
        if (to.drop || to.flush) {
            collector_.forget_last();
            for (const auto& tlb : tlbs_) to.flush ? tlb->flush_all() : tlb->drop_tag(to.tag);
        }
        owners_[to.tag] = space;
    }
    void look_up(Kind kind, const replay::TouchList& list) {
        if (missed_.size() < list.count) missed_.resize(list.count);
        tlbs_[static_cast<std::size_t>(kind)]->run(list.valid(), missed_.data());
    }

    const addrspace::Spaces& spaces_;
    replay::TouchCollector collector_;
    addrspace::Asids asids_;
    std::array<std::unique_ptr<machine::Tlb>, 2> tlbs_;
    std::map<std::uint16_t, SpaceId> owners_;
    replay::Touches touches_;
    std::vector<std::uint32_t> missed_;
    std::uint32_t begin_ = 0;
    std::uint32_t access_ = 0;
    std::size_t event_ = 0;
};

class Watcher : public PathSink {
  public:
    Watcher(const recording::Recording& recording, const Names& names, const machine::Machine& machine,
            CallContents& result)
        : recording_(recording),
          names_(names),
          machine_(machine),
          result_(result),
          kernel_base_(recording.metadata().kernel_base),
          table_(std::make_shared<const replay::BlockTable>(recording.dictionary(), machine.pages.base,
                                                            kernel_base_)) {
        for (const recording::Space& space : recording.metadata().spaces) spaces_.add(space.id, space.pid);
    }

    Result<void> consume(const Batch& batch, PathTracker& tracker) {
        batch_ = &batch;
        Mmu& mmu = mmu_of(batch.cpu);
        mmu.next_batch();
        if (auto done = tracker.consume(batch, *this); !done || done_) return done;
        return mmu.advance(batch, static_cast<std::uint32_t>(batch.blocks.size()));
    }
    [[nodiscard]] bool done() const { return done_; }

    Result<void> begin(std::size_t, std::uint64_t call, CpuId cpu, std::uint32_t block,
                       std::uint32_t) override {
        if (done_ || call + 1 != result_.call) return {};
        Mmu& mmu = mmu_of(cpu);
        if (auto done = mmu.advance(*batch_, block); !done) return done;
        for (const Kind kind : kKinds) before_[static_cast<std::size_t>(kind)] = mmu.contents(kind);
        within_ = true;
        return {};
    }

    void execution(std::size_t, std::uint64_t call, const Execution& execution) override {
        if (!within_ || call + 1 != result_.call) return;
        const recording::Block& block = recording_.dictionary()[execution.block];
        const Name name = names_.function_at(execution.space, block.address);
        const unsigned shift = machine_.pages.base.value();
        const auto add = [&](Kind kind, std::uint64_t address) {
            used_[static_cast<std::size_t>(kind)][address >> shift].insert(std::string(name.function));
        };
        add(Kind::kInstruction, block.address.value());
        add(Kind::kInstruction, block.address.value() + block.bytes - 1);
        for (const std::uint64_t address : execution.addresses) add(Kind::kData, address);
    }

    Result<void> end(std::size_t, std::uint64_t call, CpuId cpu, std::uint32_t block, std::uint32_t,
                     const Apart&) override {
        if (done_ || call + 1 != result_.call) return {};
        Mmu& mmu = mmu_of(cpu);
        if (auto done = mmu.advance(*batch_, block); !done) return done;
        for (const Kind kind : kKinds) {
            const auto k = static_cast<std::size_t>(kind);
            const std::vector<std::uint64_t>& before = before_[k];
            describe(mmu, kind, before, before, result_.before[k]);
            describe(mmu, kind, mmu.contents(kind), before, result_.after[k]);
        }
        done_ = true;
        within_ = false;
        return {};
    }

  private:
    Mmu& mmu_of(CpuId cpu) {
        auto& mmu = mmus_[cpu.value()];
        if (mmu == nullptr) mmu = std::make_unique<Mmu>(recording_, machine_, cpu, table_, spaces_);
        return *mmu;
    }

    void describe(const Mmu& mmu, Kind kind, const std::vector<std::uint64_t>& slots,
                  const std::vector<std::uint64_t>& before, std::vector<ContentsEntry>& entries) {
        for (std::size_t slot = 0; slot < slots.size(); ++slot) {
            if (slots[slot] == machine::kNoKey) continue;
            ContentsEntry entry;
            entry.slot = static_cast<std::uint32_t>(slot);
            entry.page = machine::page_of(slots[slot]);
            const bool kernel = machine::tag_of(slots[slot]) == addrspace::kGlobalTag;
            entry.side = kernel ? Side::kKernel : Side::kUser;
            entry.space = kernel ? SpaceId(0) : mmu.owner(machine::tag_of(slots[slot]));
            entry.fresh = std::find(before.begin(), before.end(), slots[slot]) == before.end();
            const VirtAddr address(entry.page << machine_.pages.base.value());
            entry.region = names_.region_of(entry.space, address);
            entry.object = names_.function_at(entry.space, address).object;
            const auto& used = used_[static_cast<std::size_t>(kind)];
            if (const auto names = used.find(entry.page); names != used.end())
                entry.functions.assign(names->second.begin(), names->second.end());
            else if (kind == Kind::kInstruction)
                entry.functions = ran_on(entry);
            entries.push_back(std::move(entry));
        }
    }

    // Functions on a page that ran at any time, in order of address.
    std::vector<std::string> ran_on(const ContentsEntry& entry) {
        if (by_page_.empty())
            for (const recording::Block& block : recording_.dictionary().blocks())
                by_page_.emplace(block.address.value() >> machine_.pages.base.value(), block.address);
        std::vector<std::string> found;
        std::set<VirtAddr> addresses;
        const auto [first, last] = by_page_.equal_range(entry.page);
        for (auto at = first; at != last; ++at) addresses.insert(at->second);
        for (const VirtAddr address : addresses) {
            const std::string name(names_.function_at(entry.space, address).function);
            if (std::find(found.begin(), found.end(), name) == found.end()) found.push_back(name);
        }
        return found;
    }

    const recording::Recording& recording_;
    const Names& names_;
    const machine::Machine& machine_;
    CallContents& result_;
    std::uint64_t kernel_base_;
    std::shared_ptr<const replay::BlockTable> table_;
    addrspace::Spaces spaces_;
    std::map<std::uint32_t, std::unique_ptr<Mmu>> mmus_;
    const Batch* batch_ = nullptr;
    std::array<std::vector<std::uint64_t>, 2> before_;
    std::array<std::map<std::uint64_t, std::set<std::string>>, 2> used_;  // by kind, by page
    std::multimap<std::uint64_t, VirtAddr> by_page_;
    bool within_ = false;
    bool done_ = false;
};

}  // namespace

Result<CallContents> contents_of_call(const recording::Recording& recording, const Names& names,
                                      const machine::Machine& machine, const Path& path, std::uint64_t call,
                                      std::uint64_t calls) {
    CallContents result;
    result.path = path.text;
    result.call = call;
    result.calls = calls;
    result.page = machine.pages.base;
    PathTracker tracker(recording, names, {path});
    Watcher watcher(recording, names, machine, result);
    // Decoded here and not ahead: it ends in the middle.
    for (std::size_t chunk = 0; chunk < recording.chunks().size() && !watcher.done(); ++chunk) {
        recording::BatchReader reader(recording, chunk);
        while (!watcher.done()) {
            auto batch = reader.next();
            if (!batch) return std::unexpected(batch.error());
            if (!*batch) break;
            if (auto done = watcher.consume(**batch, tracker); !done) return std::unexpected(done.error());
        }
    }
    if (!watcher.done())
        return fail(
            recording.path().string(), fmt::format("{} has no whole call {}", path.text, call),
            calls == 0 ? "name a path that ran" : fmt::format("give --call a number from 1 to {}", calls));
    return result;
}

}  // namespace tlbscope::explain
