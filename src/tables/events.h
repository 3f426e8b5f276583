// Memory events made ready for a format: where a source does not tell which pages were touched, a rule does;
// and addresses that the format cannot hold are moved down.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/memory_event.h"
#include "pagetable/format.h"

namespace tlbscope::tables {

// A run of events and what must be said about it.
struct Events {
    std::string name;  // "fork+exit", or the file
    std::vector<MemoryEvent> events;
    std::vector<std::string> notes;
    std::uint32_t cpus = 1;
    bool imply =
        false;  // the source began in the middle: a fault outside every known range has a page of its own
    std::uint64_t rounds = 0;  // built-in workloads: repetitions, for figures per round
};

// Adds a fault for each of the first `most` pages of 4 KiB of every range that becomes mapped with some
// permission, heaps included. Sources that record faults have their own.
void populate(Events& events, std::uint64_t most);

// Moves addresses down, in order, when some are beyond the format's user half: pieces of 1 GiB (4 MiB where
// the half is smaller than 64 GiB) keep what is in them, and wide gaps between used pieces shrink. An error
// when even that does not fit.
[[nodiscard]] Result<void> fit(Events& events, const pagetable::Format& format);

}  // namespace tlbscope::tables
