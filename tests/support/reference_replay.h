// Replays batches reference by reference through reference TLBs, the way DESIGN defines references and
// touches: arrays by level and page size, mappings, pins, inclusion, removals.
#pragma once

#include <deque>
#include <map>
#include <memory>

#include "machine/machine.h"
#include "recording/batch.h"
#include "recording/metadata.h"
#include "replay/counts.h"
#include "replay/plan.h"
#include "support/reference_causes.h"
#include "support/reference_tlb.h"

namespace tlbscope::reference {

// A miss and all that is said about it.
struct MissRecord {
    std::uint32_t cpu = 0;
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
    Side side = Side::kUser;
    std::uint32_t process = 0;  // of user pages
    std::uint64_t page = 0;
    std::uint64_t address = 0;      // of the reference's first byte on the page
    std::uint64_t instruction = 0;  // address of the one that made it
    std::uint64_t execution = 0;    // of all CPUs, from 0
    replay::Cause cause = replay::Cause::kCompulsory;
    friend bool operator==(const MissRecord&, const MissRecord&) = default;
};

// What one array saw, over all CPUs.
struct ArrayRecord {
    std::uint64_t lookups[2] = {0, 0};  // by kind
    std::uint64_t misses[2] = {0, 0};
    friend bool operator==(const ArrayRecord&, const ArrayRecord&) = default;
};

class Replay {
  public:
    Replay(const recording::Dictionary& dictionary, recording::Metadata metadata, machine::Machine machine,
           std::vector<replay::TlbEvent> events = {});
    void consume(const recording::Batch& batch);

    replay::Counts references;
    replay::Counts lookups;
    replay::Counts misses;
    std::uint64_t instructions[2] = {0, 0};
    std::uint64_t iterations[2] = {0, 0};
    std::vector<MissRecord> log;
    std::vector<std::uint64_t> log_touches;  // numbers of the touches in `log`, from 1
    std::uint64_t touches = 0;
    std::vector<ArrayRecord> arrays;
    // By (CPU, array, first address): misses in the range of a pin after it died.
    std::map<std::tuple<std::uint32_t, std::size_t, std::uint64_t>, std::uint64_t> dead_pins;

  private:
    struct Array {
        std::unique_ptr<Tlb> tlb;
        std::unique_ptr<Causes> causes;
        struct Pin {
            Translation translation;
            bool alive = true;
            bool refused = false;
        };
        std::vector<Pin> pins;
    };
    struct Cpu {
        std::vector<Array> arrays;
        std::uint32_t id = 0;
        std::uint32_t space = 0;       // the process that runs
        std::uint32_t identifier = 0;  // what its entries carry
        std::deque<std::pair<std::uint32_t, std::uint32_t>>
            owners;  // space and identifier, longest owner first
        bool started = false;
        bool in_space = false;
        std::uint64_t last_instruction = 0;
        bool any_instruction = false;
        std::size_t next_event = 0;
    };

    Cpu& cpu(CpuId id);
    [[nodiscard]] std::uint32_t process_of(std::uint64_t space) const;
    void switch_to(Cpu& cpu, std::uint32_t space);
    void happen(Cpu& cpu, const recording::Event& event);
    void happen(Cpu& cpu, const replay::TlbEvent& event);
    void remove(Cpu& cpu, const std::function<bool(const Translation&, bool)>& doomed);
    void check_pins(Cpu& cpu);
    Array::Pin* pin_of(Cpu& cpu, Kind kind, std::uint64_t address);
    void execute(Cpu& cpu, const recording::Batch& batch, std::size_t ordinal, std::size_t& address);
    void reference(Cpu& cpu, Kind kind, Mode mode, std::uint64_t address, std::uint64_t bytes,
                   std::uint64_t instruction);
    void touch(Cpu& cpu, Kind kind, Mode mode, std::uint64_t address, std::uint64_t instruction);
    // Which array of a level takes a page of this size, and as an entry of which; none: -1.
    [[nodiscard]] std::pair<int, unsigned> place(Kind kind, std::uint32_t level, unsigned page) const;
    [[nodiscard]] Translation entry(const Cpu& cpu, std::uint64_t address, unsigned shift, bool named) const;

    const recording::Dictionary* dictionary_;
    recording::Metadata metadata_;
    machine::Machine machine_;
    addrspace::Mapping mapping_;
    std::vector<replay::TlbEvent> events_;
    unsigned smallest_ = 12;  // size of any entry
    std::map<std::uint32_t, Cpu> cpus_;
    std::uint64_t executions_ = 0;
};

}  // namespace tlbscope::reference
