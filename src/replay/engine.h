// Replays batches through machines. Each recorded CPU has TLBs and address-space identifiers of its own, so
// the order in which batches of different CPUs arrive does not matter; those of one CPU must come in program
// order.
//
// Machines that see the same touches (same smallest page, as many identifiers) share the work of making them.
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
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "recording/metadata.h"
#include "recording/recording.h"
#include "replay/ledger.h"
#include "replay/mmu.h"
#include "replay/observer.h"
#include "replay/plan.h"
#include "replay/touches.h"

namespace tlbscope::replay {

// Keeps the random choices of different CPUs' arrays apart; `array` is the array's place in the machine.
[[nodiscard]] constexpr std::uint64_t random_stream(CpuId cpu, std::size_t array) {
    return std::uint64_t{cpu.value()} * 2 + array;
}

// What a recorded invalidation removes; nothing where its operand is not known or it is of another kind.
[[nodiscard]] std::optional<TlbEvent> removal_of(const recording::Event& event);

class Engine {
  public:
    // The dictionary and the observers must outlive the engine, and the dictionary must not grow. `observers`
    // is empty or has one, or none (nullptr), for each plan.
    Engine(const recording::Dictionary& dictionary, const recording::Metadata& metadata,
           std::vector<Plan> plans, std::vector<Observer*> observers = {});

    Result<void> consume(const recording::Batch& batch);
    // Touches of a page-granularity recording.
    Result<void> consume(CpuId cpu, const recording::PageTouches& pages);

    // A verified ledger for each machine, in order. The recording's own totals are what the replay must have
    // seen.
    [[nodiscard]] Result<std::vector<Ledger>> finish(const recording::Metadata& metadata,
                                                     const RecordedTotals& totals) const;

  private:
    // Machines that see the same touches.
    struct Group {
        PageShift shift;
        std::uint32_t asids = 0;
        bool in_order = false;  // some of them need program order
        std::vector<std::size_t> plans;
    };
    struct GroupState {
        TouchCollector collector;
        addrspace::Asids asids;
        std::uint16_t tag = addrspace::kFirstUserTag;  // of the space that runs
        std::vector<Mmu> mmus;                         // of the group's plans
        std::vector<std::size_t> next_event;           // of each plan
    };
    struct Cpu {
        CpuId id;
        SpaceId space;     // that runs, as `spaces_` names it
        SpaceId recorded;  // the same as the recording names it
        std::vector<GroupState> groups;
        bool in_space = false;  // some space runs
    };

    Cpu& cpu(CpuId id);
    void switch_space(Cpu& cpu, SpaceId recorded, std::uint64_t execution);
    // Until the recording says otherwise a CPU runs the first space.
    void ensure_space(Cpu& cpu);
    Result<std::uint32_t> look_up(Cpu& cpu, const recording::Batch& batch, std::uint32_t begin,
                                  std::uint32_t end, std::uint32_t access);
    // What happens to the TLBs before execution `position` of the batch; returns whether anything did.
    void happen(Cpu& cpu, const recording::Event& event);
    void inject(Cpu& cpu, std::uint64_t execution);
    [[nodiscard]] std::uint64_t next_injected(const Cpu& cpu) const;
    void apply(Cpu& cpu, std::size_t group, std::size_t member, const TlbEvent& event);
    [[nodiscard]] Ledger ledger_of(std::size_t group, std::size_t member) const;

    const recording::Dictionary* dictionary_;
    std::vector<Plan> plans_;
    std::vector<Observer*> observers_;
    std::uint64_t kernel_base_;
    recording::Granularity granularity_;
    addrspace::Spaces spaces_;
    std::vector<Group> groups_;
    std::map<std::uint8_t, std::shared_ptr<const BlockTable>> tables_;  // by page shift
    std::map<std::uint32_t, Cpu> cpus_;
    Touches touches_;
    std::vector<Touch> in_order_;
    std::uint64_t executions_ = 0;     // of the batches before
    std::uint64_t invalidations_ = 0;  // whose operands nobody knows
    std::uint64_t gaps_ = 0;
};

}  // namespace tlbscope::replay
