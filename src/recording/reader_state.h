// What an open recording holds; shared by the reader (recording.cc) and the decoder (batch_reader.cc) only.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/files.h"
#include "recording/format.h"
#include "recording/recording.h"

namespace tlbscope::recording {

struct ChunkLocation {
    std::uint64_t offset = 0;  // of the chunk's header in the file
    format::ChunkHeader header;
    std::span<const std::uint8_t> payload;
};

struct Recording::State {
    std::filesystem::path path;
    MappedFile file;
    Metadata metadata;
    Dictionary dictionary;
    std::vector<std::uint64_t>
        bases;  // per slot of the dictionary: the address a chunk's prediction starts from
    std::vector<ChunkInfo> chunks;
    std::vector<ChunkLocation> locations;  // as chunks
    std::optional<ChunkLocation> kernel_symbols;
    std::optional<ChunkLocation> vdso;
    std::vector<ChunkLocation> kernel_events;  // by CPU, in order
    std::string damage;
};

// "FILE:OFFSET", the position errors name.
[[nodiscard]] std::string position(const Recording::State& state, std::uint64_t offset);
// The error for bytes that are not what was written.
[[nodiscard]] std::unexpected<Error> damaged(const std::string& where, const std::string& what);
// A chunk that is a length and one zstd frame, decompressed.
Result<std::vector<std::uint8_t>> read_single(const Recording::State& state, const ChunkLocation& at);
// The streams of an executions or touches chunk, decompressed; each is followed by 8 readable bytes.
struct Streams {
    std::uint32_t entries_needed = 0;
    std::vector<std::vector<std::uint8_t>> raw;  // kPadding bytes longer than the stream
    std::vector<std::size_t> sizes;
};
inline constexpr std::size_t kPadding = 16;
Result<void> read_streams(const Recording::State& state, std::size_t chunk, Streams& streams);

}  // namespace tlbscope::recording
