// The memory that the QEMU plugin and the recorder share.
//
// Problem: the plugin runs inside a process that the guest can fork, exec out of, crash, kill, or whose
// descriptors it can close, and whose threads must not wait for compression. Idea: the plugin only fills
// buffers in shared memory; the recorder, another process, encodes and writes them. Whatever happens to the
// guest, the buffers stay, and the recorder finishes the file. Rejected: encoding in a thread of QEMU's
// process (dies with it, dies in forks, its descriptor is the guest's to close); a pipe (copies everything
// once more and blocks when the reader is slow).
//
// Everything here is plain data with a fixed layout. Synchronisation: a buffer's state word and futexes; no
// locks, so that a process killed anywhere leaves nothing locked.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "recording/raw.h"

namespace tlbscope::capture {

inline constexpr std::uint32_t kTransportVersion = 2;
inline constexpr std::uint32_t kMaxCpus = 4096;  // vCPUs; in user mode, threads alive at once
inline constexpr std::uint32_t kBufferCount = kMaxCpus + 64;
inline constexpr std::uint32_t kMostFull = 40;           // full buffers in flight before a vCPU waits
inline constexpr std::uint32_t kBufferBlocks = 16384;    // a buffer is handed over at this many blocks,
inline constexpr std::uint32_t kBufferAccesses = 65536;  // or this many accesses,
inline constexpr std::uint32_t kBufferEvents = 2048;     // or this many events;
// limits are looked at when a block begins, so that one block's accesses and events must fit behind them.
inline constexpr std::uint32_t kAccessSlack = 65536;
inline constexpr std::uint32_t kEventSlack = 2048;
inline constexpr std::uint32_t kTranslationRingBytes = 8U << 20;
inline constexpr std::uint32_t kChannelRingUnits = 1U << 20;
inline constexpr std::uint32_t kMapsBytes = 1U << 20;

// How a point of the run is named.
struct WindowPoint {
    enum class Kind : std::uint32_t { kNone, kMark, kAddress, kFromStartOfCode };
    Kind kind = Kind::kNone;
    std::uint32_t mark = 0;
    std::uint64_t address = 0;  // or distance from where the program's code starts
};

enum class BufferState : std::uint32_t { kFree, kFilling, kFull };

struct BufferHeader {
    std::atomic<BufferState> state;
    std::uint32_t cpu;
    std::uint64_t ticket;   // order of hand-over, over all CPUs
    std::uint64_t time_ns;  // CLOCK_MONOTONIC when filling began
    std::uint32_t blocks;
    std::uint32_t accesses;
    std::uint32_t events;
    std::uint32_t reserved;
};

// One vCPU's place in its buffer. Lives in shared memory so that the recorder can take what a killed QEMU
// left.
struct alignas(64) Vcpu {
    std::uint64_t* block_words;  // pointers of the plugin's process
    std::uint32_t* keys;
    std::uint64_t* addresses;
    std::uint32_t blocks;  // filled so far
    std::uint32_t accesses;
    std::atomic<std::uint32_t> limit;  // the next block from here on takes the slow path
    std::uint32_t begun;               // instructions of the current block that began; 0 when all did
    std::uint32_t events;
    std::uint32_t buffer;     // index, or kNoBuffer
    std::uint32_t in_window;  // what is in the buffer belongs to the recording
    std::uint32_t epoch;
};
inline constexpr std::uint32_t kNoBuffer = ~std::uint32_t{0};

enum class Phase : std::uint32_t {
    kWaiting,  // before the window
    kRecording,
    kStopped,  // behind the window
};

struct Control {
    std::uint32_t version;
    std::uint32_t isa;          // recording::Isa
    std::uint32_t system;       // whole machine: count instructions exactly, look for bindings and switches
    std::uint32_t start_armed;  // instrument everything from the start (0: from the kArm mark on)
    std::uint32_t references;   // record them; else only count invalidations and barriers
    WindowPoint from;
    WindowPoint to;
    std::uint64_t kernel_base;
    std::uint64_t switch_start;  // code of the kernel's context switch, [start, end); 0 when unknown
    std::uint64_t switch_end;
    // 44x: the kernel's functions that invalidate one page, [start, end), and everything; 0 when unknown.
    std::uint64_t flush_page_start;
    std::uint64_t flush_page_end;
    std::uint64_t flush_all;

    // Written by the plugin.
    std::atomic<std::uint32_t> installed;          // qemu_plugin_install succeeded
    std::atomic<std::uint32_t> interface_version;  // that QEMU offers
    std::atomic<Phase> phase;
    std::atomic<std::uint32_t> epoch;     // counts phase changes
    std::atomic<std::uint32_t> exited;    // QEMU's exit handlers ran
    std::atomic<std::uint32_t> next_cpu;  // vCPUs seen: 1 + the largest index
    std::atomic<std::uint64_t> next_ticket;
    std::atomic<std::uint32_t> full;  // buffers handed over and not yet taken
    std::atomic<std::uint32_t> work;  // futex: counts hand-overs and ring writes
    std::atomic<std::uint32_t> room;  // futex: counts buffers and ring bytes freed
    std::atomic<std::uint32_t>
        begin_cpu;  // 1 + the vCPU that opened the window at kBegin; 0: it opened elsewhere
    std::atomic<std::uint32_t> end_cpu;  // 1 + the vCPU that closed it at kEnd
    std::atomic<std::uint32_t> ended;    // the command came to kEnd
    std::atomic<std::uint32_t> forks;
    std::atomic<std::uint32_t> execs;      // exec calls begun (one that fails counts too)
    std::atomic<std::uint32_t> lost_cpus;  // vCPUs beyond kMaxCpus
    std::atomic<std::uint64_t> lost_events;
    // Without references: executions by recording::Invalidation and Barrier.
    std::atomic<std::uint64_t> invalidations[32];
    std::atomic<std::uint64_t> barriers[4];
    std::atomic<std::uint32_t>
        tells_flushed_page;  // the kernel's flush_page has the load that tells its operand
    std::atomic<std::uint32_t> odd_access_descriptions;  // wider than recording::kKeyInfoBits
    std::atomic<std::uint32_t> refused;                  // the plugin cannot work here: Refusal
    std::atomic<std::uint64_t> start_code;  // user mode: where QEMU says the program's code begins
    std::atomic<std::uint64_t> guest_base;  // user mode: host address of guest address 0

    std::atomic<std::uint32_t> maps_bytes;  // user mode: of `maps`, at the program's end or exec

    // Written by the recorder.
    std::atomic<std::uint32_t> stop_requested;  // record nothing more

    // Single-producer byte ring of translations: {u64 address, u32 instructions, u32 flags, lengths, code},
    // each record padded to 8 bytes and preceded by its length in a u64. Producers are serialised by
    // translation_lock, a lock that only the plugin takes.
    std::atomic<std::uint32_t> translation_lock;
    std::atomic<std::uint64_t> translation_written;
    std::atomic<std::uint64_t> translation_read;
    std::atomic<std::uint64_t> channel_written;  // 16-bit units from the guest's agent
    std::atomic<std::uint64_t> channel_read;

    std::uint8_t access_table[std::size_t{1} << recording::kKeyInfoBits];  // recording::AccessTable
    Vcpu vcpus[kMaxCpus];
    BufferHeader buffers[kBufferCount];
    std::uint8_t translation_ring[kTranslationRingBytes];
    std::uint16_t channel_ring[kChannelRingUnits];
    char maps[kMapsBytes];  // /proc/self/maps of QEMU's process
};

struct BufferBody {
    std::uint64_t block_words[kBufferBlocks + 1];
    std::uint32_t keys[kBufferAccesses + kAccessSlack];
    std::uint64_t addresses[kBufferAccesses + kAccessSlack];
    recording::RawEvent events[kBufferEvents + kEventSlack];
};

enum class Refusal : std::uint32_t { kNone, kInterface, kTransport };

// The mapping: Control, then the buffers, each page-aligned. Sparse: only what is used takes memory.
inline constexpr std::size_t kPage = 4096;
constexpr std::size_t page_aligned(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }
inline constexpr std::size_t kBodiesOffset = page_aligned(sizeof(Control));
inline constexpr std::size_t kBodyStride = page_aligned(sizeof(BufferBody));
inline constexpr std::size_t kTransportBytes = kBodiesOffset + kBodyStride * kBufferCount;

inline BufferBody* body(Control* control, std::uint32_t buffer) {
    return reinterpret_cast<BufferBody*>(reinterpret_cast<std::uint8_t*>(control) + kBodiesOffset +
                                         kBodyStride * buffer);
}

// Waits until *word differs from `seen`, or about `milliseconds` have passed.
void futex_wait(std::atomic<std::uint32_t>* word, std::uint32_t seen, int milliseconds);
void futex_wake(std::atomic<std::uint32_t>* word);

}  // namespace tlbscope::capture
