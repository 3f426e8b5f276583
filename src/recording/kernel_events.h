// Events that the guest's kernel itself told while the command ran (`record --events`), as chunks of a
// recording: what happened to address spaces, what its flush code was asked, and what it did to the TLBs.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "core/error.h"
#include "core/memory_call.h"
#include "core/memory_event.h"
#include "core/tlb_operation.h"

namespace tlbscope::recording {

class Recording;

using KernelEvent = std::variant<MemoryEvent, MemoryCall, TlbOperation>;

[[nodiscard]] inline std::uint64_t time_of(const KernelEvent& event) {
    return std::visit([](const auto& e) { return e.time; }, event);
}

// Turns one CPU's events, given in order of time, into the payloads of chunks.
class KernelEventEncoder {
  public:
    void add(const KernelEvent& event);
    // Enough for a chunk.
    [[nodiscard]] bool full() const { return bytes_.size() >= kChunkBytes; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    // The payload, uncompressed; starts the next one.
    std::vector<std::uint8_t> take();

  private:
    static constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
    std::vector<std::uint8_t> bytes_;
    std::uint64_t count_ = 0;
    std::uint64_t time_ = 0;
};

// All CPUs' events merged by time; events of the same time by CPU. Holds one chunk per CPU in memory.
class KernelEventReader {
  public:
    explicit KernelEventReader(const Recording& recording);
    ~KernelEventReader();
    KernelEventReader(KernelEventReader&&) noexcept;
    KernelEventReader& operator=(KernelEventReader&&) noexcept;
    KernelEventReader(const KernelEventReader&) = delete;
    KernelEventReader& operator=(const KernelEventReader&) = delete;
    // The next event, with its cpu and its position (from 0) filled in; nothing at the end; an error when a
    // chunk is damaged.
    Result<std::optional<KernelEvent>> next();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

// How many events of which kind, in one pass.
struct KernelEventCounts {
    std::array<std::uint64_t, 16> memory{};         // by MemoryEventKind
    std::array<std::uint64_t, 16> calls{};          // by MemoryCallKind
    std::array<std::uint64_t, kTlbScopes> local{};  // TLB operations by TlbScope
    std::array<std::uint64_t, kTlbScopes> global{};
    std::uint64_t tlbie = 0;  // instructions that powerpc:tlbie reported
    std::uint64_t tlbiel = 0;
    std::array<std::uint64_t, 8> flush_reasons{};  // tlb:tlb_flush by reason
    std::uint64_t flushed_bytes = 0;               // named by tlb:tlb_flush, page by page
    std::uint64_t total = 0;
};
[[nodiscard]] Result<KernelEventCounts> count_kernel_events(const Recording& recording);

}  // namespace tlbscope::recording
