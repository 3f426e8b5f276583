// A machine: one MMU as data. docs/machine-file.md describes the file it is read from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"
#include "machine/flush_costs.h"
#include "machine/tlb.h"

namespace tlbscope::machine {

// One TLB array and what it serves.
struct TlbDescription {
    std::string name;  // "instruction", "data"
    Kind kind = Kind::kInstruction;
    std::uint32_t level = 1;
    TlbGeometry geometry;
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
        Cycles cycles;   // per miss
        std::string source;
    } refill;

    std::vector<TlbDescription> tlbs;  // one for instructions, one for data

    FlushCosts flush;

    std::vector<std::string> changes;  // --set arguments, in order
    std::string file;                  // where it was read from

    [[nodiscard]] const TlbDescription& tlb(Kind kind) const;
    // "tlb.data.entries=64, tlb.data.ways=4", empty when the machine is as its file says.
    [[nodiscard]] std::string changes_text() const;
};

}  // namespace tlbscope::machine
