// Replays batches through machines. Each recorded CPU has TLBs and address-space identifiers of its own, so
// the order in which batches of different CPUs arrive does not matter; those of one CPU must come in program
// order.
//
// Machines that see the same keys (same base page, as many identifiers) share the work of making them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "addrspace/asids.h"
#include "addrspace/spaces.h"
#include "core/error.h"
#include "machine/machine.h"
#include "machine/tlb.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "recording/metadata.h"
#include "recording/recording.h"
#include "replay/ledger.h"
#include "replay/observer.h"
#include "replay/touches.h"

namespace tlbscope::replay {

// Keeps the random choices of the arrays of different CPUs and kinds apart.
[[nodiscard]] constexpr std::uint64_t random_stream(CpuId cpu, Kind kind) {
    return std::uint64_t{cpu.value()} * 2 + static_cast<std::uint64_t>(kind);
}

class Engine {
  public:
    // The dictionary and the observers must outlive the engine, and the dictionary must not grow. `observers`
    // is empty or has one, or none (nullptr), for each machine.
    Engine(const recording::Dictionary& dictionary, const recording::Metadata& metadata,
           std::vector<machine::Machine> machines, std::vector<Observer*> observers = {});

    Result<void> consume(const recording::Batch& batch);
    // Touches of a page-granularity recording.
    Result<void> consume(CpuId cpu, const recording::PageTouches& pages);

    // A verified ledger for each machine, in order. The recording's own totals are what the replay must have
    // seen.
    [[nodiscard]] Result<std::vector<Ledger>> finish(const recording::Metadata& metadata,
                                                     const RecordedTotals& totals) const;

  private:
    // One machine's TLBs on one CPU, with its misses.
    struct Mmu {
        std::array<std::unique_ptr<machine::Tlb>, 2> tlbs;  // by kind
        Counts misses;
        std::uint64_t pages_missed = 0;  // all page numbers that missed, or-ed together
        Observer* observer = nullptr;
    };
    // Machines that see the same keys.
    struct Group {
        PageShift shift;
        std::uint32_t asids = 0;
        std::vector<std::size_t> machines;
    };
    struct GroupState {
        TouchCollector collector;
        addrspace::Asids asids;
        std::vector<Mmu> mmus;  // of the group's machines
    };
    struct Cpu {
        CpuId id;
        SpaceId space;     // that runs, as `spaces_` names it
        SpaceId recorded;  // the same as the recording names it
        std::vector<GroupState> groups;
        bool in_space = false;  // some space runs
    };
    // Blocks [begin, end) of a batch; no batch at granularity page.
    struct Source {
        const recording::Batch* batch = nullptr;
        std::uint32_t begin = 0;
        std::uint32_t end = 0;
    };

    Cpu& cpu(CpuId id);
    void switch_space(Cpu& cpu, SpaceId recorded);
    // Until the recording says otherwise a CPU runs the first space.
    void ensure_space(Cpu& cpu);
    void look_up(const Cpu& cpu, const Group& group, Mmu& mmu, const Source& source);
    void look_up(Mmu& mmu, Kind kind, const TouchList& list, const std::vector<ModeRun>& modes);
    void tell(const Cpu& cpu, const Group& group, const Mmu& mmu, Kind kind, const Source& source) const;
    [[nodiscard]] Ledger ledger_of(std::size_t group, std::size_t member) const;

    const recording::Dictionary* dictionary_;
    std::vector<machine::Machine> machines_;
    std::vector<Observer*> observers_;
    std::uint64_t kernel_base_;
    recording::Granularity granularity_;
    addrspace::Spaces spaces_;
    std::vector<Group> groups_;
    std::map<std::uint8_t, std::shared_ptr<const BlockTable>> tables_;  // by page shift
    std::map<std::uint32_t, Cpu> cpus_;
    Touches touches_;
    std::vector<std::uint32_t> missed_;
    std::size_t missed_count_ = 0;  // of the last look-up
    std::uint64_t executions_ = 0;  // of the batches before
    std::uint64_t invalidations_ = 0;
    std::uint64_t gaps_ = 0;
};

}  // namespace tlbscope::replay
