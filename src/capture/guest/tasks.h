// Who ran: the recorder sees the addresses of the tasks a kernel switches to, the guest's perf event the
// numbers and names of the same tasks, in the same order. Laid side by side, each address gets its name.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/guest/perf_records.h"
#include "capture/guest/report.h"
#include "core/types.h"

namespace tlbscope::capture {

// One switch as the recorder saw it: the kernel's address of the task switched to, and the space it gave that
// task.
struct TaskSwitch {
    std::uint64_t task = 0;
    SpaceId space;
};

// All switches of one CPU that were seen, in order. They may start before the command does and end after it.
struct CpuSwitches {
    std::uint32_t cpu = 0;
    std::vector<TaskSwitch> switches;
    std::optional<std::size_t> begin;  // how many of them came before kBegin, on the CPU that executed it
    std::optional<std::size_t> end;    // likewise kEnd
};

struct TaskIdentity {
    std::uint32_t pid = 0;
    std::uint32_t tid = 0;
    std::string name;
    bool kernel_thread = false;
    friend bool operator==(const TaskIdentity&, const TaskIdentity&) = default;
};

// The tasks of the guest by tid: those that existed before and those that perf saw start. A tid that was used
// twice keeps its last use.
[[nodiscard]] std::map<std::uint32_t, TaskIdentity> tasks_by_tid(const GuestFacts& facts,
                                                                 const std::vector<PerfRecord>& records);

// Which of `seen` (task addresses) goes with the first of `told` (tids): told[j] is the task seen[j +
// result]. `command` and `init` are the tids that must run at the marks. Nothing when the two do not fit.
[[nodiscard]] std::optional<std::ptrdiff_t> align(const std::vector<std::uint64_t>& seen,
                                                  const std::vector<std::uint32_t>& told,
                                                  std::optional<std::size_t> begin, std::uint32_t command,
                                                  std::optional<std::size_t> end, std::uint32_t init);

// For each space, the tids that its switches are about, with how many of each.
using SpaceVotes = std::map<SpaceId, std::map<std::uint32_t, std::uint64_t>>;
// Adds a note for each CPU whose switches could not be named.
[[nodiscard]] SpaceVotes match_switches(const std::vector<CpuSwitches>& cpus,
                                        const std::map<std::uint32_t, std::vector<PerfRecord>>& records,
                                        std::uint32_t command, std::vector<std::string>& notes);

}  // namespace tlbscope::capture
