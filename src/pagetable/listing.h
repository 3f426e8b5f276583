// Every mapping that a table holds, and everything in it that cannot be right. The memory may be anything: a
// table that was listed is not listed again at the same level, so the work is at most one look at each frame
// of the memory for each level, cycles or not.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "core/types.h"
#include "pagetable/format.h"
#include "pagetable/walk.h"

namespace tlbscope::pagetable {

// Pages in a row, virtually and physically, of one size and with the same flags.
struct Run {
    VirtAddr start;
    std::uint64_t bytes = 0;
    PhysAddr physical;
    PageShift size;
    Flags flags = 0;
    const char* odd = nullptr;  // what cannot be right about them, in words; static storage
};

// An entry that leads nowhere.
struct BadEntry {
    VirtAddr address;  // the first that it would translate
    std::uint8_t level = 0;
    PhysAddr entry_address;
    std::uint64_t raw = 0;
    const char* why = nullptr;  // static storage
};

struct Listing {
    std::vector<Run> runs;  // ascending
    std::vector<BadEntry> bad;
    std::uint64_t tables = 0;  // looked at
    std::uint64_t pages = 0;
    std::uint64_t not_present = 0;  // entries that are none but not zero: swapped out, or a software's own
    std::uint64_t repeated = 0;     // entries that point to a table which is listed already
    bool cut = false;               // there was more than `most` of runs or bad entries
};

struct ListingOptions {
    // Whether a page's frames are memory; empty: all are.
    std::function<bool(PhysAddr, std::uint64_t bytes)> contains;
    // The top bits of addresses, for a root that is the upper half's (arm64, radix).
    std::uint64_t address_base = 0;
    std::size_t most = 1'000'000;
};

[[nodiscard]] Listing list_all(const Format& format, const Memory& memory, PhysAddr root,
                               const ListingOptions& options);

}  // namespace tlbscope::pagetable
