// Reading a recording: open it once, then decode chunks independently, on as many threads as wanted.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "recording/metadata.h"

namespace tlbscope::recording {

// One chunk of one CPU's stream.
struct ChunkInfo {
    CpuId cpu;
    std::uint32_t number = 0;        // position in the CPU's stream, from 0
    std::uint64_t executions = 0;    // block executions (granularity full)
    std::uint64_t accesses = 0;      // data accesses
    std::uint64_t instructions = 0;  // instruction fetches, repeated iterations included
    std::uint64_t first_ticket = 0;  // global order of the chunk's start
    std::uint64_t time_ns = 0;       // host time when the chunk began, from the start of the recording
};

// A touch of a page-granularity recording (`record --granularity page`): the first of a run of references to
// a page.
struct PageTouch {
    std::uint64_t page = 0;  // Vpn for 4 KiB pages
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
};

// A chunk of such a recording. Counts are indexed by kind * 4 + mode * 2 + side.
struct PageTouches {
    std::vector<PageTouch> touches;  // in program order
    std::array<std::uint64_t, 8> references{};
    std::array<std::uint64_t, 8> straddles{};  // further pages that straddling references touched
};

class Recording;

// Decodes the executions of one chunk, batch by batch.
class BatchReader {
  public:
    BatchReader(const Recording& recording, std::size_t chunk);
    ~BatchReader();
    BatchReader(BatchReader&&) noexcept;
    BatchReader& operator=(BatchReader&&) noexcept;
    BatchReader(const BatchReader&) = delete;
    BatchReader& operator=(const BatchReader&) = delete;
    // Moves on to another chunk of the same recording and keeps the working memory.
    void restart(std::size_t chunk);
    // The next batch, valid until the following call; nothing at the chunk's end; an error when the chunk is
    // damaged.
    Result<std::optional<Batch>> next();

  private:
    struct State;
    std::unique_ptr<State> state_;
};

class Recording {
  public:
    struct State;  // of the reader; nobody else's business
    // Reads everything but the executions: checks the header, indexes the chunks, loads the dictionary. A
    // file cut short opens with whole() false and holds what its whole chunks hold.
    static Result<Recording> open(const std::filesystem::path& path);
    Recording(Recording&&) noexcept;
    Recording& operator=(Recording&&) noexcept;
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;
    ~Recording();

    [[nodiscard]] const std::filesystem::path& path() const;
    [[nodiscard]] const Metadata& metadata() const;
    [[nodiscard]] const Dictionary& dictionary() const;
    // Chunks in replay order: by ticket, so that each CPU's chunks are in order.
    [[nodiscard]] std::span<const ChunkInfo> chunks() const;
    // The page touches of a chunk of a page-granularity recording, in program order.
    [[nodiscard]] Result<PageTouches> touches(std::size_t chunk) const;
    [[nodiscard]] bool whole() const;
    // Why it is not whole, in words; empty when it is.
    [[nodiscard]] const std::string& damage() const;
    [[nodiscard]] std::uint64_t file_bytes() const;
    // Checks every chunk against its checksum; open() checks only those it reads. Linear in the file's size.
    [[nodiscard]] Result<void> verify() const;
    // Kernel symbols as the guest printed them (/proc/kallsyms), empty when there are none.
    [[nodiscard]] Result<std::string> kernel_symbols() const;
    // The ELF image that the guest's kernel maps as [vdso], empty when there is none.
    [[nodiscard]] Result<std::string> vdso() const;

    // For the readers of this stage: KernelEventReader (kernel_events.h).
    [[nodiscard]] const State& state() const { return *state_; }

  private:
    friend class BatchReader;
    explicit Recording(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace tlbscope::recording
