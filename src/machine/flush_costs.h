// What flushing costs on a machine: the [flush] section of its file. Numbers come from different people's
// measurements, so each has an error, and a cost computed from them has one too.
#pragma once

#include <cstdint>
#include <string>

namespace tlbscope::machine {

class TomlTable;

// A time with its error, in nanoseconds.
struct Duration {
    double nanoseconds = 0;
    double error = 0;
};

struct FlushCosts {
    // Whose kernel code flushes: radix, x86, arm64, riscv. Empty: the machine file has no [flush] section.
    std::string family;
    std::uint64_t ceiling = 33;          // pages that are flushed one by one at most
    std::uint64_t local_ceiling = 33;    // the same when this CPU alone is concerned (radix)
    std::uint64_t pid_instructions = 1;  // that a local flush of a whole space takes (radix: sets of the TLB)
    std::uint64_t fixups = 0;            // instructions that errata add to each global flush (radix)
    std::uint64_t pages_at_once = 1;     // most pages one global instruction names (INVLPGB)
    std::uint64_t entries = 0;  // translations that a CPU holds, all levels: what a flush can drop at most

    Duration local;           // one instruction that names a page, for this CPU
    Duration local_pid;       // one that names a space
    Duration global;          // one that names anything, for every CPU
    Duration local_barrier;   // the pair around local ones
    Duration global_barrier;  // the pair around global ones
    Duration interrupt;       // a round of interrupts, to who waits for it
    Duration interrupted;     // each CPU that is interrupted
    Duration refill;          // a translation that has to be fetched again
    std::string source;
};

// Reads the table "flush" of a machine file, if there is one; complaints go to the document.
[[nodiscard]] FlushCosts read_flush_costs(TomlTable& root);

}  // namespace tlbscope::machine
