// ftrace's text (/sys/kernel/tracing/trace, trace_pipe) and trace-cmd report:
//
//       bash-1108    [000] d..31    73.951222: tlb_flush: pages:1 reason:local mm shootdown (3)
//       bash-1108    (   1108) [000] d..31    73.951222: sys_munmap(addr: 7f8a, len: 1000)
//       bash-1108  [000]    73.951222: sched_switch:         bash:1108 [120] S ==> swapper/0:0 [120]
//
// The flags are 4 or 5 columns or missing, a comm may hold anything, the process is there with record-tgid
// only.
#pragma once

#include <string_view>

#include "import_tracepoints/tracepoints.h"

namespace tlbscope::import {

// Whether some of a text's first lines are such lines.
[[nodiscard]] bool looks_like_ftrace(std::string_view first_lines);

class FtraceReader {
  public:
    explicit FtraceReader(LogSink sink) : tracepoints_(std::move(sink)) {}
    void line(std::string_view text, std::uint64_t number);
    void finish() { tracepoints_.finish(); }

    [[nodiscard]] const Problems& problems() const { return tracepoints_.problems(); }
    [[nodiscard]] const Tracepoints& tracepoints() const { return tracepoints_; }
    // Events that the kernel says it lost.
    [[nodiscard]] std::uint64_t lost() const { return lost_; }

  private:
    Tracepoints tracepoints_;
    std::uint64_t lost_ = 0;
};

}  // namespace tlbscope::import
