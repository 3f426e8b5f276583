// The workloads that come with it: lmbench's process latencies, which thread 2 measured, and what its claim
// about memory is about. All addresses are below 2 GiB, so that every format can hold them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "tables/events.h"

namespace tlbscope::tables {

struct Workload {
    std::string_view name;
    std::string_view title;
};
[[nodiscard]] std::span<const Workload> workloads();
// `rounds` repetitions, 0 for the workload's own number. Nothing when there is no such workload.
[[nodiscard]] std::optional<Events> make_workload(std::string_view name, std::uint64_t rounds);

}  // namespace tlbscope::tables
