// The text of `perf script`:
//
//     t 11313/11313   637.071454:          1 page-faults:           4a6270 [unknown] (/bin/t)
//     ffffffff81752b6a elf_load+0x28a ([kernel.kallsyms]) swapper     0 [000]   671.413370: tlb:tlb_flush:
//     pages:0 reason:flush on task switch (0) t 11620 [000]   671.413651: exceptions:page_fault_kernel:
//     address=0x4a6270 ip=elf_load error_code=0x2
//
// The comm may hold spaces; CPU, process and period are there or not, as -F says.
#pragma once

#include <string_view>

#include "import_tracepoints/tracepoints.h"

namespace tlbscope::import {

[[nodiscard]] bool looks_like_perf_script(std::string_view first_lines);

class PerfScriptReader {
  public:
    explicit PerfScriptReader(LogSink sink) : tracepoints_(std::move(sink)) {}
    void line(std::string_view text, std::uint64_t number);
    void finish() { tracepoints_.finish(); }

    [[nodiscard]] const Problems& problems() const { return tracepoints_.problems(); }
    [[nodiscard]] const Tracepoints& tracepoints() const { return tracepoints_; }
    [[nodiscard]] std::uint64_t lost() const { return lost_; }
    // Lines with a CPU; without any the events have none (`perf script -F +cpu`).
    [[nodiscard]] std::uint64_t with_cpu() const { return with_cpu_; }

  private:
    Tracepoints tracepoints_;
    std::uint64_t lost_ = 0;
    std::uint64_t with_cpu_ = 0;
};

}  // namespace tlbscope::import
