#include "recording/format.h"

#include <xxhash.h>
#include <zstd.h>

#include <memory>

namespace tlbscope::recording::format {

std::uint64_t hash(std::span<const std::uint8_t> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

std::vector<std::uint8_t> file_header() {
    std::vector<std::uint8_t> out(kMagic, kMagic + sizeof kMagic);
    put(out, kVersion);
    put(out, std::uint32_t{0});
    put(out, hash(out));
    return out;
}

std::vector<std::uint8_t> chunk_header(const ChunkHeader& header) {
    std::vector<std::uint8_t> out;
    out.reserve(kChunkHeaderBytes);
    put(out, kChunkMagic);
    put(out, static_cast<std::uint16_t>(header.kind));
    put(out, std::uint16_t{0});
    put(out, header.payload_bytes);
    put(out, header.cpu);
    put(out, header.number);
    put(out, std::uint32_t{0});
    put(out, std::uint64_t{0});
    put(out, header.payload_hash);
    put(out, hash(out));
    return out;
}

bool parse_chunk_header(std::span<const std::uint8_t> bytes, ChunkHeader& header) {
    if (bytes.size() < kChunkHeaderBytes) return false;
    Cursor in(bytes.first(kChunkHeaderBytes));
    const auto magic = in.get<std::uint32_t>();
    header.kind = static_cast<ChunkKind>(in.get<std::uint16_t>());
    in.get<std::uint16_t>();
    header.payload_bytes = in.get<std::uint32_t>();
    header.cpu = in.get<std::uint32_t>();
    header.number = in.get<std::uint32_t>();
    in.get<std::uint32_t>();
    in.get<std::uint64_t>();
    header.payload_hash = in.get<std::uint64_t>();
    return magic == kChunkMagic && in.get<std::uint64_t>() == hash(bytes.first(kChunkHeaderBytes - 8));
}

namespace {
struct FreeCompressor {
    void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};
struct FreeDecompressor {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
}  // namespace

std::vector<std::uint8_t> compress(std::span<const std::uint8_t> raw, int level) {
    // A context costs more to make than a small stream costs to compress.
    thread_local std::unique_ptr<ZSTD_CCtx, FreeCompressor> context(ZSTD_createCCtx());
    std::vector<std::uint8_t> out(ZSTD_compressBound(raw.size()));
    const std::size_t n =
        ZSTD_compressCCtx(context.get(), out.data(), out.size(), raw.data(), raw.size(), level);
    out.resize(ZSTD_isError(n) != 0 ? 0 : n);
    return out;
}

bool decompress(std::span<const std::uint8_t> frame, std::uint8_t* raw, std::size_t raw_bytes) {
    thread_local std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context(ZSTD_createDCtx());
    return ZSTD_decompressDCtx(context.get(), raw, raw_bytes, frame.data(), frame.size()) == raw_bytes;
}

}  // namespace tlbscope::recording::format
