// The bytes of a recording. docs/recording-format.md is the specification; this file is its constants and the
// small readers and writers that every part of the format shares.
//
// The idea: a recording is a sequence of self-checking chunks. Executions are predicted: the next block from
// the block before it, each access's address from the previous execution of the same access. Only what the
// prediction gets wrong costs more than a bit or two, and zstd takes what is left. A chunk's predictors start
// afresh, so chunks decode independently. Rejected: varints of every address (6 times the bytes), and leaving
// prediction to zstd (a third larger, and slower than predicting).
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace tlbscope::recording::format {

inline constexpr std::uint8_t kMagic[8] = {0x89, 'T', 'L', 'B', 'R', 'E', 'C', '\n'};
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kChunkMagic = 0x4b4e4843;  // "CHNK"

// Fixed sizes, little-endian throughout.
inline constexpr std::size_t kFileHeaderBytes = 24;  // magic, version, reserved, XXH3 of the first 16 bytes
inline constexpr std::size_t kChunkHeaderBytes = 48;

enum class ChunkKind : std::uint16_t {
    kMetadata = 1,       // JSON, zstd; the last one counts
    kDictionary = 2,     // entries that later executions refer to
    kExecutions = 3,     // granularity full
    kTouches = 4,        // granularity page
    kKernelSymbols = 5,  // text of /proc/kallsyms, zstd
    kEnd = 6,            // nothing follows; a file without it was cut short
    kVdso = 7,           // ELF image of the guest's vDSO, zstd
    kKernelEvents = 8,   // what the guest's kernel told of its memory management, one CPU's, zstd
};

struct ChunkHeader {
    ChunkKind kind = ChunkKind::kEnd;
    std::uint32_t payload_bytes = 0;
    std::uint32_t cpu = 0;
    std::uint32_t number = 0;
    std::uint64_t payload_hash = 0;
};

// Streams of an executions chunk, in file order. Each is compressed by itself.
enum Stream : std::size_t {
    kBlockCodes,  // 2 bits a block: 0, 1 = predicted successor; 2 = number in 16 bits; 3 = number in 32 bits
    kBlockIds16,
    kBlockIds32,
    kHitBits,      // 1 bit an access: 1 = the address is the slot's last plus its stride
    kMissClasses,  // 2 bits a miss: 0 = same difference as the miss before, 1, 2, 3 = difference in 1, 3, 8
                   // bytes
    kMiss1,
    kMiss3,
    kMiss8,
    kOdd,     // executions unlike their shape, varints
    kEvents,  // varints
    kStreamCount
};

inline constexpr std::size_t kChunkBlocks = std::size_t{1} << 20;  // most executions one chunk holds

[[nodiscard]] inline std::uint64_t zigzag(std::uint64_t difference) {
    return difference << 1 ^ (0 - (difference >> 63));
}
[[nodiscard]] inline std::uint64_t unzigzag(std::uint64_t coded) { return coded >> 1 ^ (0 - (coded & 1)); }

template <class T>
void put(std::vector<std::uint8_t>& out, T value) {
    const auto at = out.size();
    out.resize(at + sizeof(T));
    std::memcpy(out.data() + at, &value, sizeof(T));
}

inline void put_varint(std::vector<std::uint8_t>& out, std::uint64_t value) {
    while (value >= 0x80) {
        out.push_back(static_cast<std::uint8_t>(value | 0x80));
        value >>= 7;
    }
    out.push_back(static_cast<std::uint8_t>(value));
}

// Reads from a span and remembers having run off its end, so that a parser checks once and never reads
// outside.
class Cursor {
  public:
    explicit Cursor(std::span<const std::uint8_t> bytes) : bytes_(bytes) {}

    template <class T>
    T get() {
        T value{};
        if (bytes_.size() - at_ < sizeof(T)) {
            failed_ = true;
            return value;
        }
        std::memcpy(&value, bytes_.data() + at_, sizeof(T));
        at_ += sizeof(T);
        return value;
    }
    std::uint64_t get_varint() {
        std::uint64_t value = 0;
        for (int shift = 0; shift < 64; shift += 7) {
            if (at_ >= bytes_.size()) break;
            const std::uint8_t byte = bytes_[at_++];
            value |= std::uint64_t{byte & 0x7fU} << shift;
            if (byte < 0x80) return value;
        }
        failed_ = true;
        return 0;
    }
    std::span<const std::uint8_t> take(std::uint64_t count) {
        if (bytes_.size() - at_ < count) {
            failed_ = true;
            return {};
        }
        const auto part = bytes_.subspan(at_, count);
        at_ += count;
        return part;
    }
    [[nodiscard]] bool failed() const { return failed_; }
    [[nodiscard]] bool at_end() const { return at_ == bytes_.size(); }

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_ = 0;
    bool failed_ = false;
};

[[nodiscard]] std::vector<std::uint8_t> file_header();
[[nodiscard]] std::vector<std::uint8_t> chunk_header(const ChunkHeader& header);
// False when the bytes are no intact chunk header.
[[nodiscard]] bool parse_chunk_header(std::span<const std::uint8_t> bytes, ChunkHeader& header);
[[nodiscard]] std::uint64_t hash(std::span<const std::uint8_t> bytes);

// zstd frames. `level` as zstd counts it. decompress() fails (returns false) unless the frame holds exactly
// raw_bytes.
[[nodiscard]] std::vector<std::uint8_t> compress(std::span<const std::uint8_t> raw, int level);
[[nodiscard]] bool decompress(std::span<const std::uint8_t> frame, std::uint8_t* raw, std::size_t raw_bytes);

}  // namespace tlbscope::recording::format
