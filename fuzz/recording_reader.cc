// Whatever bytes a recording has, reading it ends: with its contents, or with an error.
//
// Checksums and compression would turn nearly every mutation into "damaged" at the first look. So the mutator
// works on what is inside: it takes the file apart, mutates the header of a chunk, its uncompressed payload
// or one stream of it, and puts everything together again with good checksums. One mutation in eight is of
// the plain bytes.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "memory_file.h"
#include "recording/format.h"
#include "recording/recording.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace {

namespace format = tlbscope::recording::format;
using tlbscope::Result;
using tlbscope::recording::Batch;
using tlbscope::recording::BatchReader;
using tlbscope::recording::OddExecution;
using tlbscope::recording::Recording;
using Bytes = std::vector<std::uint8_t>;

void require(bool condition) {
    if (!condition) std::abort();
}

// What replay relies on (recording/batch.h) and so does not check again.
void check(const Recording& recording, const Batch& batch) {
    require(batch.blocks.size() <= tlbscope::recording::kBatchBlocks);
    std::uint64_t accesses = 0;
    std::size_t next_odd = 0;
    for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
        require(batch.blocks[i] < recording.dictionary().size());
        const auto& block = recording.dictionary()[batch.blocks[i]];
        if (next_odd < batch.odd.size() && batch.odd[next_odd].ordinal == i) {
            const OddExecution& odd = batch.odd[next_odd++];
            require(odd.instructions >= 1 && odd.instructions <= block.instructions);
            require(std::size_t{odd.first_slot} + odd.slot_count <= batch.odd_slots.size());
            for (const auto& slot : batch.odd_slots.subspan(odd.first_slot, odd.slot_count))
                require(slot.instruction < block.instructions);
            accesses += odd.slot_count;
        } else {
            accesses += block.slot_count;
        }
    }
    require(next_odd == batch.odd.size());
    require(accesses == batch.addresses.size());
    std::uint64_t position = 0;
    for (const auto& event : batch.events) {
        require(event.position >= position && event.position <= batch.blocks.size());
        position = event.position;
    }
}

void read_all(const Recording& recording) {
    static_cast<void>(recording.kernel_symbols());
    static_cast<void>(recording.vdso());
    static_cast<void>(recording.verify());
    const bool full = recording.metadata().granularity == tlbscope::recording::Granularity::kFull;
    std::optional<BatchReader> reader;
    for (std::size_t chunk = 0; chunk < recording.chunks().size(); ++chunk) {
        if (!full) {
            static_cast<void>(recording.touches(chunk));
            continue;
        }
        if (reader)
            reader->restart(chunk);
        else
            reader.emplace(recording, chunk);
        std::uint64_t executions = 0;
        for (;;) {
            auto batch = reader->next();
            if (!batch) break;
            if (!*batch) {
                require(executions == recording.chunks()[chunk].executions);
                break;
            }
            check(recording, **batch);
            executions += (*batch)->blocks.size();
        }
    }
}

struct Chunk {
    format::ChunkHeader header;
    Bytes payload;
};

std::optional<std::vector<Chunk>> take_apart(std::span<const std::uint8_t> bytes) {
    if (bytes.size() < format::kFileHeaderBytes) return {};
    std::vector<Chunk> chunks;
    for (std::size_t at = format::kFileHeaderBytes; bytes.size() - at >= format::kChunkHeaderBytes;) {
        Chunk chunk;
        if (!format::parse_chunk_header(bytes.subspan(at), chunk.header)) break;
        at += format::kChunkHeaderBytes;
        const std::size_t size = std::min<std::size_t>(chunk.header.payload_bytes, bytes.size() - at);
        chunk.payload.assign(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                             bytes.begin() + static_cast<std::ptrdiff_t>(at + size));
        at += size;
        chunks.push_back(std::move(chunk));
    }
    if (chunks.empty()) return {};
    return chunks;
}

Bytes put_together(const std::vector<Chunk>& chunks) {
    Bytes out = format::file_header();
    for (const Chunk& chunk : chunks) {
        format::ChunkHeader header = chunk.header;
        header.payload_bytes = static_cast<std::uint32_t>(chunk.payload.size());
        header.payload_hash = format::hash(chunk.payload);
        const Bytes head = format::chunk_header(header);
        out.insert(out.end(), head.begin(), head.end());
        out.insert(out.end(), chunk.payload.begin(), chunk.payload.end());
    }
    return out;
}

void mutate_bytes(Bytes& bytes) {
    const std::size_t size = bytes.size();
    bytes.resize(size + 64);
    bytes.resize(LLVMFuzzerMutate(bytes.data(), size, bytes.size()));
}

constexpr std::uint64_t kMostRaw = 1U << 20;

// {u64 raw bytes, frame}
void mutate_single(Bytes& payload) {
    if (payload.size() < 8) return mutate_bytes(payload);
    std::uint64_t size = 0;
    std::memcpy(&size, payload.data(), 8);
    if (size > kMostRaw) return mutate_bytes(payload);
    Bytes raw(size);
    if (!format::decompress(std::span(payload).subspan(8), raw.data(), raw.size()))
        return mutate_bytes(payload);
    mutate_bytes(raw);
    payload.clear();
    format::put<std::uint64_t>(payload, raw.size());
    const Bytes frame = format::compress(raw, 1);
    payload.insert(payload.end(), frame.begin(), frame.end());
}

// {fixed numbers, u32 entries needed, u32 streams, {u32 raw, u32 frame bytes} each, frames}
void mutate_streams(Bytes& payload, std::minstd_rand& random) {
    constexpr std::size_t kFixed = 5 * 8 + 2 * 4;
    format::Cursor in(payload);
    const auto fixed = in.take(kFixed);
    if (in.failed()) return mutate_bytes(payload);
    std::uint32_t count = 0;
    std::memcpy(&count, fixed.data() + kFixed - 4, 4);
    if (count == 0 || count > 64) return mutate_bytes(payload);
    Bytes head(fixed.begin(), fixed.end());
    std::vector<std::pair<std::uint32_t, std::uint32_t>> sizes(count);
    for (auto& [raw, frame] : sizes) {
        raw = in.get<std::uint32_t>();
        frame = in.get<std::uint32_t>();
    }
    std::vector<Bytes> streams(count);
    for (std::size_t i = 0; i < count; ++i) {
        const auto frame = in.take(sizes[i].second);
        if (in.failed() || sizes[i].first > kMostRaw) return mutate_bytes(payload);
        streams[i].resize(sizes[i].first);
        if (!streams[i].empty() && !format::decompress(frame, streams[i].data(), streams[i].size()))
            return mutate_bytes(payload);
    }
    const std::size_t chosen = random() % (count + 1);
    if (chosen == count)
        head.resize(LLVMFuzzerMutate(head.data(), head.size() - 4, head.size() - 4));
    else
        mutate_bytes(streams[chosen]);
    head.resize(kFixed);
    std::memcpy(head.data() + kFixed - 4, &count, 4);
    payload = head;
    Bytes frames;
    for (const Bytes& stream : streams) {
        const Bytes frame = stream.empty() ? Bytes() : format::compress(stream, 1);
        format::put(payload, static_cast<std::uint32_t>(stream.size()));
        format::put(payload, static_cast<std::uint32_t>(frame.size()));
        frames.insert(frames.end(), frame.begin(), frame.end());
    }
    payload.insert(payload.end(), frames.begin(), frames.end());
}

void mutate_chunk(std::vector<Chunk>& chunks, std::minstd_rand& random) {
    const std::size_t at = random() % chunks.size();
    switch (random() % 12) {
        case 0:
            chunks.push_back(chunks[at]);
            return;
        case 1:
            chunks.erase(chunks.begin() + static_cast<std::ptrdiff_t>(at));
            return;
        case 2:
            std::swap(chunks[at], chunks[random() % chunks.size()]);
            return;
        case 3:
            chunks[at].header.cpu = static_cast<std::uint32_t>(random() % 4);
            chunks[at].header.number = static_cast<std::uint32_t>(random() % 4);
            return;
        case 4:
            chunks[at].header.kind = static_cast<format::ChunkKind>(random() % 8);
            return;
        default:
            break;
    }
    const format::ChunkKind kind = chunks[at].header.kind;
    if (kind == format::ChunkKind::kExecutions || kind == format::ChunkKind::kTouches)
        mutate_streams(chunks[at].payload, random);
    else
        mutate_single(chunks[at].payload);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    std::minstd_rand random(seed);
    auto chunks = take_apart({data, size});
    if (!chunks || random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
    mutate_chunk(*chunks, random);
    const Bytes out = put_together(*chunks);
    if (out.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
    std::copy(out.begin(), out.end(), data);
    return out.size();
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const tlbscope::fuzz::MemoryFile file({data, size});
    if (const auto recording = Recording::open(file.path()); recording) read_all(*recording);
    return 0;
}
