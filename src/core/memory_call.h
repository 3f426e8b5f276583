// What a kernel's memory management was seen asking of its flush code, and where an operation passed by. From
// these a flush policy decides; what it decided is a TlbOperation.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/types.h"

namespace tlbscope {

enum class MemoryCallKind : std::uint8_t {
    kGather = 1,      // a finished gather flushes [start, end), or everything when `whole`
    kRange = 2,       // flush_tlb_range
    kPage = 3,        // flush_tlb_page; start only
    kHuge = 4,        // a range, or one mapping, of huge pages
    kSpace = 5,       // flush_tlb_mm
    kKernel = 6,      // flush_tlb_kernel_range; no space
    kEverything = 7,  // flush_tlb_all
    kUnmap = 8,       // unmap_region begins
    kProtect = 9,     // change_protection begins
    kExit = 10,       // exit_mmap begins: the space goes, and its number may come again
};

[[nodiscard]] constexpr std::string_view name_of(MemoryCallKind kind) {
    constexpr std::string_view kNames[] = {"",       "gather",     "range", "page",    "huge", "space",
                                           "kernel", "everything", "unmap", "protect", "exit"};
    return kNames[static_cast<std::size_t>(kind)];
}

struct MemoryCall {
    MemoryCallKind kind = MemoryCallKind::kGather;
    bool whole = false;           // gather: the space is being taken down (fullmm), or all of it is named
    bool freed_tables = false;    // gather, space: tables were taken out of the tree
    std::uint8_t page_shift = 0;  // of the pages named; 0: not told
    std::uint32_t cpu = 0;
    std::uint32_t process = 0;  // of the task that asked, which need not run in the space
    std::uint32_t thread = 0;
    std::uint64_t time = 0;   // nanoseconds
    std::uint64_t space = 0;  // address of the kernel's mm_struct: equal for equal spaces while they live
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t position = 0;  // ordinal in the recording
    friend bool operator==(const MemoryCall&, const MemoryCall&) = default;
};

}  // namespace tlbscope
