// What a recording says, decoded: a few thousand block executions at a time, in program order of one CPU.
// This is the interface between the file format and everything that replays; neither knows the other.
#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"
#include "recording/dictionary.h"

namespace tlbscope::recording {

// Something that happened between block executions (or within the one before it).
enum class EventType : std::uint8_t {
    kMark = 1,         // a: the mark's number
    kSwitchSpace = 2,  // a: SpaceId that user-side addresses belong to from here on; b: what identified it
    kInvalidate = 3,   // a: Invalidation; b: operand where known
    kBarrier = 4,      // a: Barrier
    kBinding = 5,      // a: virtual address of a 4 KiB page; b: its physical address, from here on
    kTicket = 6,  // a: global order: nothing before it on this CPU happened after a larger ticket elsewhere
    kSystemCall = 7,  // a: number; b: first argument (user-mode recordings)
    kUnrecorded = 8,  // a: why references are missing from here (Gap)
};

// Translation-invalidating instructions seen executing; the operand is unknown on QEMU's plugin interface 1.
enum class Invalidation : std::uint8_t {
    kInvlpg = 1,
    kMovToCr3 = 2,
    kInvpcid = 3,
    kTlbie = 16,
    kTlbiel = 17,
    kSlbia = 18,
    kTlbia = 19,
    // PowerPC 44x invalidates by writing entries; these are executions of the kernel's functions that do it.
    kTlbilVa = 20,   // tlbsx, then one tlbwe; the operand is an address in the page, 0 when unknown
    kTlbilAll = 21,  // entries 0 to the high-water mark, whatever their PID
};

enum class Barrier : std::uint8_t { kPtesync = 1, kTlbsync = 2 };

struct Event {
    std::uint64_t position = 0;  // it happened after this many block executions of the batch had begun
    EventType type = EventType::kMark;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    friend bool operator==(const Event&, const Event&) = default;
};

// An execution that differs from its block's shape: other accesses, or fewer instructions because a fault
// ended it.
struct OddExecution {
    std::uint32_t ordinal = 0;       // index into Batch::blocks
    std::uint16_t instructions = 0;  // instructions that began; the block's own number unless it ended early
    std::uint16_t slot_count = 0;    // accesses it did make
    std::uint32_t first_slot = 0;    // into Batch::odd_slots
};

struct Batch {
    CpuId cpu;
    std::span<const std::uint32_t> blocks;     // dictionary numbers, in program order
    std::span<const std::uint64_t> addresses;  // of all accesses of these executions, in program order
    std::span<const OddExecution> odd;         // by ordinal; every other execution makes its shape's accesses
    std::span<const Slot> odd_slots;
    std::span<const Event> events;  // by position
};

// Most executions one batch holds: the block numbers and addresses of a batch stay in the second-level cache.
inline constexpr std::size_t kBatchBlocks = 4096;

}  // namespace tlbscope::recording
