// Trace events as ftrace, trace-cmd and perf script print them, and how a log's format is told.
#include <gtest/gtest.h>

#include "import_ftrace/ftrace.h"
#include "import_log/log.h"
#include "import_perf_script/perf_script.h"

namespace tlbscope::import {
namespace {

struct Collected {
    std::vector<MemoryEvent> events;
    std::vector<TlbOperation> operations;
    LogSummary summary;
};

Collected read(const std::string& text) {
    Collected all;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(text.data());
    auto input = Input::of_bytes("log", {bytes, text.size()});
    EXPECT_TRUE(input.has_value());
    auto summary = read_log(std::move(*input),
                            {.event = [&](const MemoryEvent& e) { all.events.push_back(e); },
                             .operation = [&](const TlbOperation& o) { all.operations.push_back(o); }});
    EXPECT_TRUE(summary.has_value()) << summary.error().message();
    if (summary) all.summary = std::move(*summary);
    return all;
}

constexpr const char* kFtrace =
    "# tracer: nop\n"
    "#\n"
    "#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n"
    "              sh-1108    [000] d..31    73.951222: tlb_flush: pages:1 reason:local mm shootdown (3)\n"
    "              sh-1108    [001] .....    73.951300: sys_munmap(addr: 7f8ab12c4000, len: 1000)\n"
    "              sh-1108    [001] .....    73.951310: sys_munmap -> 0x0\n"
    "              sh-1108    [001] .....    73.951400: sys_mmap(addr: 0, len: 22000, prot: 3, flags: 22, "
    "fd: "
    "ffffffffffffffff, off: 0)\n"
    "              sh-1108    [001] .....    73.951401: sys_mmap -> 0x7f8ab0000000\n"
    "              sh-1108    [001] .....    73.951500: sys_mprotect(start: 7f8ab0000000, len: 1000, prot: "
    "1)\n"
    "              sh-1108    [001] .....    73.951501: sys_mprotect -> 0x0\n"
    "              sh-1108    [001] .....    73.951600: sys_munmap(addr: 0, len: 0)\n"
    "              sh-1108    [001] .....    73.951601: sys_munmap -> 0xffffffffffffffea\n"
    "              sh-1108    [001] d....    73.951700: page_fault_user: address=0x7f8ab0000010 "
    "ip=0x55d0 error_code=0x6\n"
    "              sh-1108    [001] d..2.    73.951800: sched_switch: prev_comm=sh prev_pid=1108 "
    "prev_prio=120 prev_state=S ==> next_comm=kworker/1:0 next_pid=22 next_prio=120\n"
    "              sh-1108    [001] .....    73.951900: task_newtask: pid=1109 comm=sh clone_flags=3d0f00 "
    "oom_score_adj=0\n"
    "              sh-1109    [001] .....    73.952000: tlbie: lpid=0, local=1, rb=0x7fff8a2d0000, "
    "rs=0xc00000000, ric=0x0, prs=0x1, r=0x1\n"
    "          <idle>-0       [000] .....    73.952100: p_any_name: (unmap_region+0x0/0x120) "
    "start=0x10000 end=0x30000\n"
    "CPU:1 [LOST 12 EVENTS]\n"
    "this is no trace line\n"
    "              sh-1108    [001] .....    73.953000: sys_enter: NR 11 (7f8ab12c4000, 1000, 0, 0, 0, 0)\n"
    "              sh-1109    [001] .....    73.954000: sched_process_exit: comm=sh pid=1109 prio=120\n";

TEST(Ftrace, EveryLineIsAnEventAProblemOrNothing) {
    const Collected all = read(kFtrace);
    EXPECT_EQ(all.summary.format, "ftrace");
    EXPECT_EQ(all.summary.lost, 12U);
    EXPECT_EQ(all.summary.failed_calls, 1U);
    ASSERT_EQ(all.operations.size(), 2U);
    EXPECT_EQ(all.operations[0].source, TlbOperation::Source::kTlbFlush);
    EXPECT_EQ(all.operations[0].reason, 3U);
    EXPECT_EQ(all.operations[0].scope, TlbScope::kPage);
    EXPECT_EQ(all.operations[0].time, 73'951'222'000U);
    EXPECT_EQ(all.operations[1].source, TlbOperation::Source::kTlbie);
    EXPECT_EQ(all.operations[1].hardware, 12U);
    EXPECT_EQ(all.operations[1].start, VirtAddr(0x7fff8a2d0000));

    std::vector<MemoryEventKind> kinds;
    for (const MemoryEvent& event : all.events) kinds.push_back(event.kind);
    EXPECT_EQ(kinds, (std::vector{MemoryEventKind::kUnmap, MemoryEventKind::kMap, MemoryEventKind::kProtect,
                                  MemoryEventKind::kFault, MemoryEventKind::kSwitch, MemoryEventKind::kFork,
                                  MemoryEventKind::kUnmap, MemoryEventKind::kExit}));
    EXPECT_EQ(all.events[0].start, VirtAddr(0x7f8ab12c4000));
    EXPECT_EQ(all.events[0].bytes, 0x1000U);
    EXPECT_EQ(all.events[0].cpu, 1U);
    EXPECT_EQ(all.events[0].process, 1108U);
    EXPECT_EQ(all.events[1].start, VirtAddr(0x7f8ab0000000));
    EXPECT_EQ(all.events[1].bytes, 0x22000U);
    EXPECT_EQ(all.events[1].protection, 3U);
    EXPECT_FALSE(all.events[1].file);
    EXPECT_EQ(all.events[2].protection, 1U);
    EXPECT_TRUE(all.events[3].write);
    EXPECT_EQ(all.events[4].process, 22U);
    // A thread: its events are its process's from there on.
    EXPECT_EQ(all.events[5].child, 1109U);
    EXPECT_TRUE(all.events[5].shares_space);
    EXPECT_EQ(all.events[6].bytes, 0x20000U);
    EXPECT_EQ(all.events[7].process, 1108U);
    EXPECT_EQ(all.events[7].thread, 1109U);

    ASSERT_EQ(all.summary.problems.reasons().size(), 2U);
    EXPECT_EQ(all.summary.problems.reasons()[0].text, "a line that is no trace event");
    EXPECT_EQ(all.summary.problems.reasons()[1].text,
              "system calls by number: record the events of the group syscalls instead");
}

TEST(Ftrace, TraceCmdReport) {
    const Collected all = read(
        "cpus=2\n"
        "            bash-1108  [000]    73.951222: sched_switch:         bash:1108 [120] S ==> my prog:44 "
        "[120]\n"
        "            bash-1108  [000]    73.951300: sys_enter_munmap:     addr: 0x7f8ab12c4000, len: 0x2000\n"
        "            bash-1108  [000]    73.951310: sys_exit_munmap:      0x0\n"
        "   a b-[7]  c-1109  ( 1100) [001] d...    74.000000: page_fault_kernel:    address=__clear_user "
        "ip=0x1 "
        "error_code=0x2\n");
    EXPECT_EQ(all.summary.format, "ftrace");
    ASSERT_EQ(all.events.size(), 2U);
    EXPECT_EQ(all.events[0].process, 44U);
    EXPECT_EQ(all.events[1].bytes, 0x2000U);
    ASSERT_EQ(all.summary.problems.reasons().size(), 1U);
    EXPECT_EQ(all.summary.problems.reasons()[0].text, "a page fault whose address is not a number");
}

TEST(PerfScript, PrefixesOfAllKinds) {
    const Collected all = read(
        " t 11313/11320   637.071454:          1 page-faults:           4a6270 [unknown] (/bin/t) "
        "ffffffff81752b6a elf_load+0x28a ([kernel.kallsyms])\n"
        "\tffffffff81752b6a elf_load+0x28a ([kernel.kallsyms])\n"
        "\n"
        " swapper     0 [001]   671.413370:                tlb:tlb_flush: pages:0 reason:flush on task "
        "switch "
        "(0)\n"
        " my prog 11620 [000]   671.413651: exceptions:page_fault_kernel: address=0x4a6270 ip=elf_load "
        "error_code=0x2\n"
        " t 11620 [001]   671.413700: syscalls:sys_enter_munmap: addr: 0x7f8ab12c4000, len: 0x00001000\n"
        " t 11620 [001]   671.413710: syscalls:sys_exit_munmap: 0x0\n"
        " t 11620 [001]   671.413720: powerpc:tlbie: lpid=0, local=0, rb=0x400, rs=0x500000000, ric=0x2, "
        "prs=0x1, r=0x1\n"
        " t 11332 638.247201: PERF_RECORD_MMAP2 11332/11332: [0x400000(0x1000) @ 0 fe:00 10953042 "
        "3099821906]: "
        "r--p /bin/t\n");
    EXPECT_EQ(all.summary.format, "perf script");
    ASSERT_EQ(all.events.size(), 3U);
    EXPECT_EQ(all.events[0].process, 11313U);
    EXPECT_EQ(all.events[0].thread, 11320U);
    EXPECT_EQ(all.events[0].start, VirtAddr(0x4a6270));
    EXPECT_EQ(all.events[1].process, 11620U);
    EXPECT_TRUE(all.events[1].write);
    EXPECT_EQ(all.events[2].kind, MemoryEventKind::kUnmap);
    ASSERT_EQ(all.operations.size(), 2U);
    EXPECT_EQ(all.operations[0].reason, 0U);
    EXPECT_EQ(all.operations[0].cpu, 1U);
    EXPECT_EQ(all.operations[1].scope, TlbScope::kPid);
    EXPECT_TRUE(all.operations[1].walk_cache);
    EXPECT_EQ(all.operations[1].hardware, 5U);
    EXPECT_EQ(all.summary.problems.total(), 0U);
}

TEST(Log, AnUnknownTextIsRefusedWithAHint) {
    const std::string text = "hello\nworld\n";
    auto input = Input::of_bytes("log", {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    const auto summary = read_log(std::move(*input), {});
    ASSERT_FALSE(summary.has_value());
    EXPECT_NE(summary.error().message().find("no line of it is known"), std::string::npos);
}

// Whatever a log is cut to, or has a byte changed to, it is read to its end.
TEST(Log, EveryPrefixAndEveryChangedByteIsRead) {
    const std::string whole = kFtrace;
    const auto try_it = [](const std::string& text) {
        auto input =
            Input::of_bytes("log", {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
        (void)read_log(std::move(*input), {});
    };
    for (std::size_t size = 0; size <= whole.size(); ++size) try_it(whole.substr(0, size));
    for (std::size_t at = 0; at < whole.size(); ++at) {
        std::string text = whole;
        text[at] = static_cast<char>(text[at] ^ 0x15);
        try_it(text);
    }
}

}  // namespace
}  // namespace tlbscope::import
