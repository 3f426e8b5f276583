// The result of a replay: what was referenced, what missed, what it cost.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "machine/machine.h"
#include "recording/metadata.h"
#include "replay/cause.h"
#include "replay/counts.h"

namespace tlbscope::replay {

// What one TLB array saw, over all CPUs.
struct LevelCounts {
    std::string name;  // of the array in the machine
    Kind kind = Kind::kInstruction;
    std::uint32_t level = 1;
    machine::TlbGeometry geometry;
    std::uint64_t lookups = 0;
    std::uint64_t hits = 0;
    std::uint64_t misses = 0;
    std::uint64_t refills = 0;
    std::uint64_t evicted = 0;
    std::uint64_t dropped = 0;
    std::uint64_t resident = 0;  // entries in use at the end
};

// What the recording itself says was referenced: the sums over its chunks.
struct RecordedTotals {
    std::uint64_t instructions = 0;  // fetches, repeated iterations included
    std::uint64_t accesses = 0;
};

struct Ledger {
    machine::Machine machine;
    std::string mapping;  // "4K": every page is a base page
    recording::Granularity granularity = recording::Granularity::kFull;

    Counts references;
    RecordedTotals recorded;
    // By side: a repeated string instruction counts once, and its further iterations apart. Unknown at
    // granularity page, where both stay 0.
    std::array<std::uint64_t, 2> instructions{};
    std::array<std::uint64_t, 2> iterations{};
    Counts lookups;
    Counts misses;
    std::vector<LevelCounts> levels;
    // By kind, where the replay was asked for causes (explain/causes.h).
    std::optional<std::array<CauseCounts, 2>> causes;

    std::uint64_t space_switches = 0;
    std::uint64_t asid_reuses = 0;
    std::uint64_t invalidations_ignored = 0;  // executed by the guest, for its own MMU
    std::uint64_t gaps = 0;                   // places where the recording misses references
    std::uint64_t pages_missed = 0;           // all page numbers that missed, or-ed together
    std::vector<std::string> notes;

    [[nodiscard]] bool full() const { return granularity == recording::Granularity::kFull; }
    [[nodiscard]] std::uint64_t instructions_total() const { return instructions[0] + instructions[1]; }
    [[nodiscard]] Cycles refill_cycles(Kind kind) const;
    [[nodiscard]] Cycles refill_cycles() const;

    // The identities of accounting. Whoever makes a ledger calls this; a violation is a bug or a damaged
    // recording, and the error names the identity.
    [[nodiscard]] Result<void> verify() const;
};

}  // namespace tlbscope::replay
