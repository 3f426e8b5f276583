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
#include "replay/touches.h"

namespace tlbscope::replay {

class Engine {
  public:
    // The dictionary must outlive the engine and must not grow.
    Engine(const recording::Dictionary& dictionary, const recording::Metadata& metadata,
           std::vector<machine::Machine> machines);

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
        std::vector<GroupState> groups;
        bool in_space = false;  // some space runs
    };

    Cpu& cpu(CpuId id);
    void switch_space(Cpu& cpu, SpaceId space);
    // Until the recording says otherwise a CPU runs the first space.
    void ensure_space(Cpu& cpu);
    void look_up(Mmu& mmu, Kind kind, const TouchList& list, const std::vector<ModeRun>& modes);
    [[nodiscard]] Ledger ledger_of(std::size_t group, std::size_t member) const;

    const recording::Dictionary* dictionary_;
    std::vector<machine::Machine> machines_;
    std::uint64_t kernel_base_;
    recording::Granularity granularity_;
    addrspace::Spaces spaces_;
    std::vector<Group> groups_;
    std::map<std::uint8_t, std::shared_ptr<const BlockTable>> tables_;  // by page shift
    std::map<std::uint32_t, Cpu> cpus_;
    Touches touches_;
    std::vector<std::uint32_t> missed_;
    std::uint64_t invalidations_ = 0;
    std::uint64_t gaps_ = 0;
};

}  // namespace tlbscope::replay
