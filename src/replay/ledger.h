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
#include "replay/refill.h"

namespace tlbscope::replay {

// What one TLB array saw, over all CPUs; by kind where a unified array serves both.
struct LevelCounts {
    std::string name;  // of the array in the machine
    bool instruction = false;
    bool data = false;
    std::uint32_t level = 1;
    std::vector<PageShift> pages;
    machine::TlbGeometry geometry;
    std::array<std::uint64_t, 2> lookups{};
    std::array<std::uint64_t, 2> misses{};
    std::array<std::uint64_t, 2> walks{};  // misses that no later level answered
    std::uint64_t hits = 0;
    std::uint64_t refills = 0;
    std::uint64_t loads = 0;   // of the refills, those that followed no miss
    std::uint64_t nested = 0;  // lookups by a handler's own loads, which are no references
    std::uint64_t nested_misses = 0;
    std::uint64_t pinned = 0;  // entries put in place before the run
    std::uint64_t evicted = 0;
    std::uint64_t dropped = 0;
    std::uint64_t resident = 0;  // entries in use at the end

    [[nodiscard]] std::uint64_t lookups_total() const { return lookups[0] + lookups[1]; }
    [[nodiscard]] std::uint64_t misses_total() const { return misses[0] + misses[1]; }
};

// A page that a mapping pinned.
struct Pin {
    std::string rule;
    std::string array;
    std::uint32_t cpu = 0;
    VirtAddr start;
    PageShift size;
    bool refused = false;            // no reserved entry was left
    std::string killed_by;           // empty: it lived
    std::uint64_t killed_at = 0;     // block executions before
    std::uint64_t misses_after = 0;  // in its range, once it was dead
};

// A rule of the mapping under which nothing was referenced.
struct UnusedRule {
    std::string text;
    bool own = false;     // the machine file's
    bool kernel = false;  // it names a part of the kernel's side
};

// What the recording itself says was referenced: the sums over its chunks.
struct RecordedTotals {
    std::uint64_t instructions = 0;  // fetches, repeated iterations included
    std::uint64_t accesses = 0;
};

struct Ledger {
    machine::Machine machine;
    std::string mapping;  // "4K": every page is a base page; "4K; kernel-linear=8M"
    std::vector<UnusedRule> unused_rules;
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
    std::vector<Pin> pins;
    // Where costs are derived: what the handler's paths, or walks, did; and the misses that got the fixed
    // cost because the page table's format has no such address.
    std::vector<PathTotals> refill_paths;
    std::uint64_t fixed_refills = 0;
    std::uint64_t table_bytes = 0;       // of page tables, at the end
    std::array<Cycles, 2> refill{};      // by kind: what the misses cost
    std::array<Cycles, 2> later_hits{};  // what hits in later levels added
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
    // Charges every miss what the machine says a miss costs: for counts that come from elsewhere.
    void charge_misses();
    // Misses and hits in later levels.
    [[nodiscard]] Cycles refill_cycles(Kind kind) const;
    [[nodiscard]] Cycles refill_cycles() const;

    // The identities of accounting. Whoever makes a ledger calls this; a violation is a bug or a damaged
    // recording, and the error names the identity.
    [[nodiscard]] Result<void> verify() const;
};

}  // namespace tlbscope::replay
