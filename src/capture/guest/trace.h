// The pages of the guest kernel's trace buffers, as guests/trace.c sends them, into events of the recording.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "capture/guest/report.h"
#include "core/error.h"
#include "recording/kernel_events.h"

namespace tlbscope::capture {

struct TraceFacts {
    bool has_begin = false;     // the marker at the command's start was found; without it nothing is told
    bool has_end = false;       // likewise at its end; without it everything after the start is
    std::uint64_t unknown = 0;  // events of kinds that nobody asked for
};

// Calls `visit` with the events between the markers, of one CPU after the other and of each CPU in order of
// time. An error when a page is not what a kernel writes.
[[nodiscard]] Result<TraceFacts> read_trace(
    const GuestFacts& facts, bool x86,
    const std::function<Result<void>(std::uint32_t cpu, const recording::KernelEvent&)>& visit);

}  // namespace tlbscope::capture
