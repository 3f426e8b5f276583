// A recording with the kernel's own events under flush policies, and with its references when it holds them
// all.
//
// Events have the kernel's times and references none, but both contain the flushes: the k-th invalidating
// instruction that a CPU ran is the k-th that its tracepoint reported. So the two streams are merged there:
// before an invalidating instruction goes by, everything the kernel told up to its report is replayed.
#pragma once

#include <functional>
#include <span>

#include "core/error.h"
#include "flush/observed.h"
#include "flush/replay.h"
#include "recording/recording.h"

namespace tlbscope::flush {

// `progress` is told chunks done and chunks in all.
[[nodiscard]] Result<void> replay_recording(
    const recording::Recording& recording, std::span<Replay* const> replays, Observed& observed,
    const std::function<void(std::uint64_t, std::uint64_t)>& progress);

}  // namespace tlbscope::flush
