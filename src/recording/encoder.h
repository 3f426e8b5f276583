// Turning raw buffers into chunks. One DictionaryBuilder for the whole recording, one encoder per CPU; the
// encoded chunk is then packed (compressed) wherever the caller likes, usually on another thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "recording/dictionary.h"
#include "recording/format.h"
#include "recording/metadata.h"
#include "recording/raw.h"
#include "recording/recording.h"

namespace tlbscope::recording {

// One block as QEMU translated it.
struct Translation {
    VirtAddr address;
    std::span<const std::uint8_t> lengths;  // bytes of each instruction
    std::span<const std::uint8_t> code;
    bool starts_with_repeat = false;
};

// Collects translations and gives each (translation, shape) its dictionary number. Entries never change once
// made.
class DictionaryBuilder {
  public:
    explicit DictionaryBuilder(AccessTable access_table) : access_table_(access_table) {}
    // Numbers count up from 0 in the order of the calls.
    std::uint32_t add_translation(const Translation& translation);
    [[nodiscard]] std::size_t translations() const { return translations_.size(); }

    static constexpr std::uint32_t kNone = ~std::uint32_t{0};
    struct Entry {
        std::uint32_t translation = 0;
        std::uint32_t first_key = 0;
        std::uint32_t key_count = 0;
        std::uint32_t next_variant = kNone;
    };
    // The entry of this translation whose shape is exactly these keys, or kNone. Looks at the most recently
    // used shape first.
    [[nodiscard]] std::uint32_t find(std::uint32_t translation, std::span<const std::uint32_t> keys);
    // An entry for this translation that an odd execution can refer to, or kNone before the first.
    [[nodiscard]] std::uint32_t any(std::uint32_t translation) const {
        return translations_[translation].current;
    }
    // Makes an entry with this shape; kNone when the translation has as many shapes as are useful.
    std::uint32_t make(std::uint32_t translation, std::span<const std::uint32_t> keys,
                       std::span<const std::uint64_t> addresses);

    [[nodiscard]] std::span<const Entry> entries() const { return entries_; }
    [[nodiscard]] std::span<const std::uint32_t> keys() const { return keys_; }  // of all entries' accesses
    [[nodiscard]] std::span<const std::uint64_t> bases() const { return bases_; }
    [[nodiscard]] std::uint16_t instructions(std::uint32_t translation) const {
        return translations_[translation].instructions;
    }
    [[nodiscard]] Translation translation(std::uint32_t number) const;
    // What an access key of this translation means. An access that no instruction of the block can have made
    // counts as its last one's: QEMU reports some of the words that an interrupt pushes between two blocks,
    // with the key of whatever ran before.
    [[nodiscard]] Slot slot(std::uint32_t translation, std::uint32_t key) const;

    // Payload streams of a dictionary chunk with the entries made since the last call; empty when there are
    // none.
    [[nodiscard]] std::vector<std::uint8_t> take_new_entries();

  private:
    struct Known {
        VirtAddr address;
        std::uint32_t first_length = 0;
        std::uint32_t first_code = 0;
        std::uint32_t code_bytes = 0;
        std::uint32_t current = kNone;   // most recently used entry
        std::uint32_t variants = kNone;  // first entry in the list of all
        std::uint16_t instructions = 0;
        std::uint8_t variant_count = 0;
        bool starts_with_repeat = false;
    };
    [[nodiscard]] bool matches(const Entry& entry, std::span<const std::uint32_t> keys) const;

    AccessTable access_table_;
    std::vector<Known> translations_;
    std::vector<std::uint8_t> lengths_;
    std::vector<std::uint8_t> code_;
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> keys_;
    std::vector<std::uint64_t> bases_;
    std::size_t written_ = 0;
};

struct EncodedChunk {
    format::ChunkKind kind = format::ChunkKind::kExecutions;
    ChunkInfo info;
    std::vector<std::uint8_t> dictionary;  // raw payload of the dictionary chunk to write before it
    std::uint32_t entries_needed = 0;      // dictionary entries that must be known to decode it
    std::vector<std::vector<std::uint8_t>> streams;
};

// Counts of what has been encoded so far.
struct Totals {
    std::uint64_t executions = 0;
    std::uint64_t instructions = 0;
    std::uint64_t accesses = 0;
    std::uint64_t early_ends = 0;
    std::uint64_t uncertain_instructions = 0;
    [[nodiscard]] std::uint64_t references() const { return instructions + accesses; }
};

// Encodes one CPU's buffers, in order.
class Encoder {
  public:
    static std::unique_ptr<Encoder> create(Granularity granularity, DictionaryBuilder& dictionary, CpuId cpu,
                                           std::uint64_t kernel_base);
    virtual ~Encoder() = default;
    // Takes the buffer's executions until `limit` more references have been taken (the execution that reaches
    // the limit is the last), and returns whether all fitted.
    virtual bool consume(const RawBuffer& buffer, std::uint64_t limit) = 0;
    // Whether it is time to take the chunk.
    [[nodiscard]] virtual bool full() const = 0;
    [[nodiscard]] virtual bool empty() const = 0;
    // The chunk so far; the encoder starts the next one.
    virtual EncodedChunk take() = 0;
    [[nodiscard]] const Totals& totals() const { return totals_; }

  protected:
    Totals totals_;
};

// The bytes of the chunk in the file, header included; the dictionary chunk, if any, comes first.
[[nodiscard]] std::vector<std::uint8_t> pack(const EncodedChunk& chunk, int compression_level);

}  // namespace tlbscope::recording
