// The recorder's half of the transport: takes full buffers in the order they were handed over, encodes them,
// and passes finished chunks to a thread that compresses and writes them, so that neither the guest nor the
// encoder waits for the disk.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "capture/guest/tasks.h"
#include "capture/transport.h"
#include "core/error.h"
#include "recording/encoder.h"
#include "recording/writer.h"

namespace tlbscope::capture {

// Compresses and writes chunks in the order they are given.
class Packer {
  public:
    explicit Packer(recording::Writer& writer);
    ~Packer();
    Packer(const Packer&) = delete;
    Packer& operator=(const Packer&) = delete;
    // Waits while many chunks are waiting; drops the chunk after a write error.
    void give(recording::EncodedChunk chunk);
    // Waits until everything is written; the first write error, if there was one.
    Result<void> finish();
    [[nodiscard]] bool failed();

  private:
    void run();
    recording::Writer& writer_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<recording::EncodedChunk> queue_;
    std::optional<Error> error_;
    bool closing_ = false;
    bool busy_ = false;
    std::thread thread_;
};

class Collector {
  public:
    // `most_references` ends the recording early; ~0 for no limit.
    Collector(Control& control, Packer& packer, recording::Granularity granularity,
              std::uint64_t most_references);

    // Takes what is there. Returns whether there was anything.
    bool poll();
    // After QEMU has ended: takes what it left in half-filled buffers as well, and closes the last chunks.
    void drain();

    [[nodiscard]] recording::Totals totals() const;
    [[nodiscard]] bool limit_reached() const { return limit_reached_; }
    [[nodiscard]] std::uint32_t cpus() const { return static_cast<std::uint32_t>(encoders_.size()); }
    // Tasks in the order of their space numbers; 0 where a space's task is unknown.
    [[nodiscard]] const std::vector<std::uint64_t>& space_tasks() const { return space_tasks_; }
    [[nodiscard]] const std::vector<CpuSwitches>& switches() const { return switches_; }
    // Executions of invalidating instructions and barriers, by recording::Invalidation and Barrier.
    [[nodiscard]] const std::array<std::uint64_t, 32>& invalidations() const { return invalidations_; }
    [[nodiscard]] const std::array<std::uint64_t, 4>& barriers() const { return barriers_; }
    [[nodiscard]] std::uint64_t malformed() const { return malformed_; }
    [[nodiscard]] const recording::DictionaryBuilder& dictionary() const { return dictionary_; }

  private:
    void take_translations();
    void take_buffer(const BufferHeader& header, std::uint32_t index);
    void encode(std::uint32_t cpu, recording::RawBuffer buffer);
    [[nodiscard]] std::size_t sound_prefix(const recording::RawBuffer& buffer) const;
    void name_spaces(std::uint32_t cpu, std::span<recording::RawEvent> events);
    recording::Encoder& encoder(std::uint32_t cpu);

    Control& control_;
    Packer& packer_;
    recording::Granularity granularity_;
    std::uint64_t references_left_;
    recording::DictionaryBuilder dictionary_;
    std::vector<std::unique_ptr<recording::Encoder>> encoders_;  // by CPU
    std::uint64_t next_ticket_ = 0;
    std::uint64_t first_time_ = 0;
    bool limit_reached_ = false;
    std::uint64_t malformed_ = 0;
    std::array<std::uint64_t, 32> invalidations_{};
    std::array<std::uint64_t, 4> barriers_{};
    std::vector<std::uint8_t> translation_;
    std::map<std::uint64_t, std::uint32_t> spaces_;  // task -> space
    std::vector<std::uint64_t> space_tasks_;
    std::vector<std::uint32_t> first_space_;  // by CPU: space before its first switch
    std::vector<bool> switched_;              // by CPU
    std::vector<CpuSwitches> switches_;       // by CPU
    std::vector<recording::RawEvent> events_;
};

}  // namespace tlbscope::capture
