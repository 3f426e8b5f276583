// The records a perf event leaves in its buffer, for the attributes guests/agent.c sets (perf_event_open(2),
// "MMAP layout"): sample_id_all with TID, TIME and CPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

enum class PerfType : std::uint8_t { kMap, kName, kFork, kExit, kSwitch, kLost };

struct PerfRecord {
    PerfType type = PerfType::kMap;
    std::uint64_t time = 0;  // nanoseconds of the guest
    std::uint32_t cpu = 0;
    std::uint32_t current_pid = 0;  // the task that ran when the record was made
    std::uint32_t current_tid = 0;
    std::uint32_t pid = 0;  // whom it is about; of a switch away from `current`, the next task
    std::uint32_t tid = 0;
    std::uint32_t parent_pid = 0;  // fork
    std::uint32_t parent_tid = 0;
    bool exec = false;        // a name that came by execve
    bool away = false;        // a switch: from `current` to `tid`; otherwise `current` comes in after `tid`
    std::uint64_t start = 0;  // map
    std::uint64_t length = 0;
    std::uint64_t file_offset = 0;
    std::uint32_t protection = 0;  // PROT_ bits
    std::uint32_t flags = 0;       // MAP_ bits
    std::string name;              // of a map or a program
    std::uint64_t lost = 0;
};

// The records of one CPU's buffer. An error when the bytes cannot be records; a record that is cut off at the
// end is one (the kernel writes whole records only). Kinds of records that are not listed above are skipped.
[[nodiscard]] Result<std::vector<PerfRecord>> parse_perf(std::span<const std::uint8_t> bytes,
                                                         bool big_endian = false);

}  // namespace tlbscope::capture
