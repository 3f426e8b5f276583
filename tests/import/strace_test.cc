// Logs as strace writes them, in each of its ways to say who called and when.
#include "import_strace/strace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

namespace tlbscope::import {
namespace {

StraceLog read(const std::string& text) {
    std::vector<std::uint8_t> bytes(text.begin(), text.end());
    Lines lines(Input::of_bytes("log", bytes).value());
    auto log = read_strace(lines);
    EXPECT_TRUE(log.has_value()) << log.error().message();
    return log ? std::move(*log) : StraceLog{};
}

// "kind process/thread what", one line each.
std::string events(const StraceLog& log) {
    std::string text;
    for (const MemoryEvent& e : log.events) {
        text += fmt::format("{} {}/{}", name_of(e.kind), e.process, e.thread);
        switch (e.kind) {
            case MemoryEventKind::kFork:
                text += fmt::format(" {}{}", e.child, e.shares_space ? " shares" : "");
                break;
            case MemoryEventKind::kExec:
            case MemoryEventKind::kExit:
                break;
            case MemoryEventKind::kRemap:
                text += fmt::format(" {:#x}+{:#x}", e.old_start.value(), e.old_bytes);
                [[fallthrough]];
            default:
                text += fmt::format(" {:#x}+{:#x}", e.start.value(), e.bytes);
        }
        if (e.kind == MemoryEventKind::kMap || e.kind == MemoryEventKind::kProtect)
            text += fmt::format(" {}{}", e.protection, e.file ? " file" : "");
        text += "\n";
    }
    return text;
}

TEST(Strace, OneProcess) {
    const StraceLog log = read(
        "execve(\"/bin/true\", [\"true\"], 0x7ffd /* 20 vars */) = 0\n"
        "brk(NULL)                               = 0x55555555f000\n"
        "mmap(NULL, 8192, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7ffff7fc1000\n"
        "openat(AT_FDCWD, \"/etc/ld.so.cache\", O_RDONLY|O_CLOEXEC) = 3\n"
        "mmap(NULL, 19307, PROT_READ|PROT_EXEC, MAP_PRIVATE, 3</etc/a, b>, 0) = 0x7ffff7fbc000 <0.000012>\n"
        "mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = -1 ENOMEM (Cannot allocate memory)\n"
        "mprotect(0x7ffff7fc1000, 4096, PROT_READ) = 0\n"
        "mremap(0x7ffff7fc1000, 8192, 16384, MREMAP_MAYMOVE) = 0x7ffff7f00000\n"
        "madvise(0x7ffff7f00000, 4096, MADV_DONTNEED) = 0\n"
        "madvise(0x7ffff7f00000, 4096, MADV_WILLNEED) = 0\n"
        "brk(0x555555580000)                     = 0x555555580000\n"
        "write(1, \"munmap(0x1, 2) = 0\\n\", 19) = 19\n"
        "munmap(0x7ffff7fbc000, 19307)           = 0\n"
        "exit_group(0)                           = ?\n"
        "+++ exited with 0 +++\n");
    EXPECT_EQ(events(log),
              "exec 1/1\n"
              "break 1/1 0x55555555f000+0x0\n"
              "map 1/1 0x7ffff7fc1000+0x2000 3\n"
              "map 1/1 0x7ffff7fbc000+0x4b6b 5 file\n"
              "protect 1/1 0x7ffff7fc1000+0x1000 1\n"
              "remap 1/1 0x7ffff7fc1000+0x2000 0x7ffff7f00000+0x4000\n"
              "discard 1/1 0x7ffff7f00000+0x1000\n"
              "break 1/1 0x55555555f000+0x21000\n"
              "unmap 1/1 0x7ffff7fbc000+0x4b6b\n"
              "exit 1/1\n");
    EXPECT_EQ(log.other_calls, 3U);
    EXPECT_EQ(log.failed_calls, 1U);
    EXPECT_EQ(log.problems.total(), 0U);
    EXPECT_EQ(log.events[3].position, 5U);
}

// A child's lines before its fork has returned wait for it, whether the parent has a name or not.
TEST(Strace, UnfinishedForks) {
    const std::string wanted =
        "fork 10/10 11\n"
        "map 11/11 0x1000+0x1000 1\n"
        "exec 11/11\n"
        "exit 11/11\n"
        "exit 10/10\n";
    EXPECT_EQ(events(read("10 clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|SIGCHLD, "
                          "child_tidptr=0x7f1) <unfinished ...>\n"
                          "11 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANON <unfinished ...>\n"
                          "10 <... clone resumed>) = 11\n"
                          "11 <... mmap resumed>UMOUS, -1, 0) = 0x1000\n"
                          "11 execve(\"/x\", [\"x\"], NULL) = 0\n"
                          "11 +++ exited with 0 +++\n"
                          "10 --- SIGCHLD {si_signo=SIGCHLD} ---\n"
                          "10 exit_group(0 <unfinished ...>\n"
                          "10 +++ exited with 0 +++\n")),
              wanted);
    const std::string unnamed =
        "fork 1/1 11\n"
        "map 11/11 0x1000+0x1000 1\n"
        "unmap 1/1 0x2000+0x1000\n"
        "exit 11/11\n"
        "unmap 1/1 0x3000+0x1000\n"
        "exit 1/1\n";
    EXPECT_EQ(
        events(read("clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>\n"
                    "strace: Process 11 attached\n"
                    "[pid    11] mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x1000\n"
                    "[pid    10] <... clone resumed>) = 11\n"
                    "[pid    10] munmap(0x2000, 4096) = 0\n"
                    "[pid    11] +++ killed by SIGKILL +++\n"
                    "munmap(0x3000, 4096) = 0\n"
                    "+++ exited with 0 +++\n")),
        unnamed);
    EXPECT_EQ(events(read("clone(child_stack=NULL, flags=SIGCHLDstrace: Process 11 attached\n"
                          ", child_tidptr=0x7) = 11\n"
                          "[pid    10] exit_group(0 <unfinished ...>\n"
                          "[pid    10] <... exit_group resumed>) = ?\n")),
              "fork 1/1 11\nexit 1/1\n");
    EXPECT_EQ(events(read("clone(child_stack=NULL, flags=SIGCHLD) = 11\n"
                          "[pid    10] munmap(0x2000, 4096) = 0\n"
                          "[pid    11] munmap(0x2000, 4096) = 0\n")),
              "fork 1/1 11\nunmap 1/1 0x2000+0x1000\nunmap 11/11 0x2000+0x1000\n");
}

TEST(Strace, ThreadsAndVfork) {
    EXPECT_EQ(events(read("10 clone3({flags=CLONE_VM|CLONE_FS|CLONE_THREAD, child_tid=0x7}, 88 => "
                          "{parent_tid=[11]}, 88) = 11\n"
                          "11 munmap(0x2000, 4096) = 0\n"
                          "10 vfork( <unfinished ...>\n"
                          "12 execve(\"/x\", [\"x\"], NULL <unfinished ...>\n"
                          "10 <... vfork resumed>) = 12\n"
                          "12 <... execve resumed>) = 0\n"
                          "12 munmap(0x2000, 4096) = 0\n"
                          "11 exit(0) = ?\n"
                          "11 +++ exited with 0 +++\n"
                          "10 exit_group(0) = ?\n"
                          "12 +++ exited with 1 +++\n")),
              "fork 10/10 11 shares\n"
              "unmap 10/11 0x2000+0x1000\n"
              "fork 10/10 12 shares\n"
              "exec 12/12\n"
              "unmap 12/12 0x2000+0x1000\n"
              "exit 10/11\n"
              "exit 10/10\n"
              "exit 12/12\n");
}

TEST(Strace, Times) {
    const auto time = [](const std::string& line) {
        return read(line + " munmap(0x1000, 4096) = 0 <0.000003>\n").events.at(0).time;
    };
    EXPECT_EQ(time("17 1700000000.123456"), 1700000000123456000U);
    EXPECT_EQ(time("17 01:02:03.000004"), 3723000004000U);
    EXPECT_EQ(time("17 01:02:03"), 3723000000000U);
    EXPECT_EQ(time("1700000000.5"), 1700000000500000000U);
    EXPECT_EQ(time("17      0.000250"), 250000U);
    EXPECT_EQ(time("[pid 17<cc1>] 01:02:03"), 3723000000000U);
    const StraceLog log =
        read("     0.000100 munmap(0x1000, 4096) = 0\n     0.000200 munmap(0x1000, 4096) = 0\n");
    EXPECT_EQ(log.events.at(1).time, 300000U);
}

TEST(Strace, CountsWhatItCannotUse) {
    const StraceLog log = read(
        "17 munmap(0x1000, 4096) = 0\n"
        "hello\n"
        "17 munmap(here, there) = 0\n"
        "17 <... mmap resumed>) = 0x1\n"
        "17 shmat(3, NULL, 0) = 0x7f0000000000\n"
        "17 mmap(NULL, 4096, PROT_READ <unfinished ...>\n"
        "hello again\n");
    EXPECT_EQ(log.events.size(), 1U);
    EXPECT_EQ(log.problems.total(), 6U);
    EXPECT_EQ(
        log.problems.notes("log"),
        (std::vector<std::string>{
            "log: 2 lines left out: not a line that strace writes (first in line 2)",
            "log: 1 line left out: arguments that are not those of munmap (first in line 3)",
            "log: 1 line left out: the rest of a call whose beginning is not in the log (first in line 4)",
            "log: 1 line left out: shmat maps a segment whose size the log does not tell (first in line 5)",
            "log: 1 line left out: a call that never returned (first in line 0)"}));
    std::vector<std::uint8_t> nothing{'h', 'i', '\n'};
    Lines lines(Input::of_bytes("log", nothing).value());
    EXPECT_FALSE(read_strace(lines).has_value());
    EXPECT_TRUE(looks_like_strace("brk(NULL)      = 0x5\nbrk(NULL) = 0x5\n"));
    EXPECT_FALSE(looks_like_strace("00400000-00401000 r-xp 00000000 08:01 17   /bin/x (deleted)\n"));
}

// Every prefix of a log, cut anywhere, is read without an accident.
TEST(Strace, EveryPrefix) {
    const std::string text =
        "10 clone3({flags=CLONE_VM|CLONE_THREAD, x=\"a\\\"b)\"}, 88) = 11\n"
        "11 mmap(NULL, 4096, PROT_READ, MAP_PRIVATE|MAP_ANON <unfinished ...>\n"
        "12 +++ superseded by execve in pid 11 +++\n"
        "11 <... mmap resumed>UMOUS, -1, 0) = 0x1000 <0.1>\n"
        "[pid 13<x>] 12:00:00.5 brk(NULL) = 0x1000\n"
        "+++ exited with 0 +++\n";
    for (std::size_t size = 0; size <= text.size(); ++size) {
        StraceReader reader([](const MemoryEvent&) {});
        std::istringstream lines(text.substr(0, size));
        std::string line;
        std::uint64_t number = 0;
        while (std::getline(lines, line)) reader.line(line, ++number);
        reader.finish();
    }
}

}  // namespace
}  // namespace tlbscope::import
