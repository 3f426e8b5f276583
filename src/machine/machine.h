// A machine: one MMU as data. docs/machine-file.md describes the file it is read from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "addrspace/mapping.h"
#include "core/types.h"
#include "machine/cache.h"
#include "machine/flush_costs.h"
#include "machine/handler.h"
#include "machine/tlb.h"

namespace tlbscope::machine {

// One TLB array and what it serves.
struct TlbDescription {
    std::string name;  // "instruction", "data", "second"
    bool instruction = false;
    bool data = false;  // both: a unified array
    std::uint32_t level = 1;
    std::vector<PageShift> pages;  // sizes its entries can have, ascending
    TlbGeometry geometry;
    Cycles hit;              // what a hit here adds to one in the first level; 0 there
    bool inclusive = false;  // what it loses, the levels before lose as well
    std::string source;

    [[nodiscard]] bool serves(Kind kind) const { return kind == Kind::kInstruction ? instruction : data; }
};

// What the architecture says about removing entries.
struct InvalidationRules {
    bool page_matches_any_asid = false;  // by address, whatever identifier the entry carries
    bool page_kills_reserved = false;    // by address, reserved entries as well
    bool all_spares_reserved = true;
    bool all_spares_global = false;
    bool all_clears_index = true;           // FIFO arrays start anew
    bool reload_kills_overlapping = false;  // a reload removes older entries of other sizes in its range
    std::string source;
};

struct Machine {
    std::string name;
    std::string title;
    std::string source;
    std::uint32_t address_bits = 32;  // of a virtual address

    struct Clock {
        double hertz = 0;
        double cycles_per_instruction = 1;  // for estimates of a run's length, refills not counted
        std::string source;
    } clock;

    struct Pages {
        std::vector<PageShift> sizes;  // ascending
        PageShift base{12};            // size of every page that no mapping makes larger
        std::string source;
    } pages;

    struct AddressSpaces {
        std::uint32_t count = 0;  // identifiers; 0: every switch flushes the TLBs
        std::string source;
    } asids;

    struct Refill {
        std::string by;  // "software" or "hardware"
        Cycles cycles;   // per miss, when nothing is derived
        // The cost of each miss follows from a walk of real tables, through the caches below.
        bool derived = false;
        std::optional<Handler> handler;  // software: what runs
        std::string source;
    } refill;

    // What the hardware walks, and what it remembers of walks.
    struct Walk {
        std::string format;  // of the page table, as pagetable names it
        struct Cached {
            std::string level;  // whose entries are remembered
            std::uint32_t entries = 0;
        };
        std::vector<Cached> caches;
        Cycles cycles;  // of a walk, besides its loads
        std::string source;
    };
    std::optional<Walk> walk;
    std::optional<CacheDescription> data_cache;         // that table loads go through
    std::optional<CacheDescription> instruction_cache;  // that a handler runs from

    std::vector<addrspace::MappingRule> rules;  // the file's, then the command line's
    std::size_t own_rules = 0;                  // how many are the file's
    std::string rules_source;
    InvalidationRules invalidation;

    std::vector<TlbDescription> tlbs;  // by level

    FlushCosts flush;

    std::vector<std::string> changes;  // --set arguments, in order
    std::string file;                  // where it was read from

    // The first-level array that holds base pages of this kind; every machine has one.
    [[nodiscard]] const TlbDescription& tlb(Kind kind) const;
    [[nodiscard]] std::uint32_t levels() const;
    [[nodiscard]] addrspace::Mapping mapping() const { return {rules, pages.base}; }
    // "tlb.data.entries=64, tlb.data.ways=4", empty when the machine is as its file says.
    [[nodiscard]] std::string changes_text() const;
};

}  // namespace tlbscope::machine
