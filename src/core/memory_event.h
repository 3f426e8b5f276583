// What happens to address spaces: the vocabulary that recordings, imported logs, the tables account and the
// flushes account share. A source fills in what it knows and leaves the rest at its default.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/types.h"

namespace tlbscope {

enum class MemoryEventKind : std::uint8_t {
    kMap = 1,      // [start, start + bytes) is mapped with `protection`; what was there is unmapped first
    kUnmap = 2,    // [start, start + bytes) is unmapped, wherever anything is mapped
    kProtect = 3,  // [start, start + bytes) gets `protection`
    kRemap =
        4,  // [old_start, old_start + old_bytes) moves to, or grows or shrinks into, [start, start + bytes)
    kBreak = 5,    // the heap's end becomes start + bytes
    kDiscard = 6,  // the pages of [start, start + bytes) are given up, the range stays mapped (MADV_DONTNEED)
    kFork = 7,     // process `process` begets `child`; a thread when `shares_space`
    kExec = 8,     // the process starts anew in an empty space
    kExit = 9,     // the thread ends; the space with it when it was the last
    kFault = 10,   // a page fault at `start`; `write` tells its access
    kSwitch = 11,  // CPU `cpu` runs `thread` of `process` from here on; process 0 is the idle task
};

[[nodiscard]] constexpr std::string_view name_of(MemoryEventKind kind) {
    constexpr std::string_view kNames[] = {"",        "map",  "unmap", "protect", "remap", "break",
                                           "discard", "fork", "exec",  "exit",    "fault", "switch"};
    return kNames[static_cast<std::size_t>(kind)];
}

// Bits of MemoryEvent::protection.
inline constexpr std::uint8_t kProtectRead = 1;
inline constexpr std::uint8_t kProtectWrite = 2;
inline constexpr std::uint8_t kProtectExecute = 4;

struct MemoryEvent {
    MemoryEventKind kind = MemoryEventKind::kMap;
    std::uint8_t protection = 0;
    bool shares_space = false;  // fork: a thread, or a vfork child until its exec
    bool write = false;         // fault
    bool spurious = false;      // fault: the translation was already good
    bool file = false;          // map: backed by a file
    std::uint32_t cpu = 0;
    std::uint32_t process = 0;  // thread group; its space is what the event changes
    std::uint32_t thread = 0;   // 0: unknown
    std::uint32_t child = 0;    // fork
    std::uint64_t time = 0;     // nanoseconds; 0: unknown
    VirtAddr start;
    std::uint64_t bytes = 0;
    VirtAddr old_start;  // remap
    std::uint64_t old_bytes = 0;
    std::uint64_t position = 0;  // line of the log, or ordinal in the recording, for messages

    friend bool operator==(const MemoryEvent&, const MemoryEvent&) = default;
};

}  // namespace tlbscope
