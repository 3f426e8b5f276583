// What the QEMU plugin hands over: one buffer of one CPU's blocks and accesses as they happened, unencoded.
// Plain data that lives in memory shared between two processes, so its layout is fixed.
#pragma once

#include <cstdint>
#include <span>

namespace tlbscope::recording {

// Low bits of an access key are QEMU's description of the access, the bits above the instruction's index.
inline constexpr int kKeyInfoBits = 18;

struct RawEvent {
    std::uint32_t position = 0;  // blocks that had begun in this buffer when it happened
    std::uint16_t type = 0;      // EventType, or kEarlyEnd
    std::uint16_t reserved = 0;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};

// RawEvent::type of an execution that a fault ended: block position-1 began `a` instructions; b is 1 when
// that number is exact, 0 when it is only what the accesses prove.
inline constexpr std::uint16_t kEarlyEnd = 0x100;
// RawEvent::type: the kernel is about to run the task whose task structure is at `a`.
inline constexpr std::uint16_t kSwitchTask = 0x101;

struct RawBuffer {
    std::span<const std::uint64_t> blocks;  // translation number, accesses made before it << 32
    std::span<const std::uint32_t>
        keys;  // per access: instruction << kKeyInfoBits | QEMU's access description
    std::span<const std::uint64_t> addresses;  // per access
    std::span<const RawEvent> events;          // by position
    std::uint64_t ticket = 0;                  // global order of the buffer
    std::uint64_t time_ns = 0;                 // host time of its start, from the start of the recording
};

// QEMU's 18-bit access description -> bits 0-3 size as a power of two, bit 4 store.
using AccessTable = std::span<const std::uint8_t, std::size_t{1} << kKeyInfoBits>;

}  // namespace tlbscope::recording
