// Batches for tests: hand-made ones, and random ones from a seed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "machine/machine.h"
#include "machine/random.h"
#include "recording/batch.h"
#include "recording/metadata.h"
#include "replay/ledger.h"
#include "replay/plan.h"

namespace tlbscope::reference {

// A batch that owns its contents.
struct Executions {
    CpuId cpu;
    std::vector<std::uint32_t> blocks;
    std::vector<std::uint64_t> addresses;
    std::vector<recording::OddExecution> odd;
    std::vector<recording::Slot> odd_slots;
    std::vector<recording::Event> events;

    [[nodiscard]] recording::Batch batch() const {
        return {.cpu = cpu,
                .blocks = blocks,
                .addresses = addresses,
                .odd = odd,
                .odd_slots = odd_slots,
                .events = events};
    }
};

struct Trace {
    recording::Dictionary dictionary;
    recording::Metadata metadata;
    std::vector<Executions> batches;
    [[nodiscard]] replay::RecordedTotals totals() const;
};

// A run with all that can happen in one: straddling, odd executions, spaces, several CPUs, both sides,
// repeats.
[[nodiscard]] Trace random_trace(machine::Random& random);
// A machine with random geometries, policies, page size and identifiers.
[[nodiscard]] machine::Machine random_machine(machine::Random& random);
// A machine with up to three levels, unified and split arrays, several page sizes, mapped, pinned, inclusive.
[[nodiscard]] machine::Machine general_machine(machine::Random& random);
// Removals and loads within a run of this many executions.
[[nodiscard]] std::vector<replay::TlbEvent> random_events(machine::Random& random, std::uint64_t executions);
[[nodiscard]] std::vector<replay::Plan> plans_of(const std::vector<machine::Machine>& machines);
// The same arrays for instructions and data.
[[nodiscard]] machine::Machine simple_machine(const machine::TlbGeometry& geometry);

// Adds a block of instructions with these lengths and accesses; its bytes do not matter.
std::uint32_t add_block(recording::Dictionary& dictionary, std::uint64_t address,
                        const std::vector<std::uint8_t>& lengths, const std::vector<recording::Slot>& shape,
                        bool repeat = false);

// $TLBSCOPE_SEED or a fixed one; tests print it when they fail.
[[nodiscard]] std::uint64_t seed();

}  // namespace tlbscope::reference
