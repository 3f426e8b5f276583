#include "recording/recording.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "recording/reader_state.h"
#include "recording/writer.h"

namespace tlbscope::recording {

namespace {

using format::ChunkKind;
using format::Cursor;

// Far above what a writer makes, far below what would hurt: a damaged length must not ask for the machine's
// memory.
constexpr std::uint64_t kMostStreamBytes = 256U << 20;
constexpr std::uint32_t kMostCpus = 4096;
constexpr std::uint64_t kMostChunkAccesses = 16U << 20;
constexpr std::size_t kChunkFixedBytes = 5 * 8 + 2 * 4;

// Mirrors DictionaryBuilder::take_new_entries().
Result<void> read_dictionary(Recording::State& state, const ChunkLocation& at) {
    auto raw = read_single(state, at);
    if (!raw) return std::unexpected(raw.error());
    const auto bad = [&] { return damaged(position(state, at.offset), "a dictionary chunk is malformed"); };
    Cursor in(*raw);
    const std::uint64_t count = in.get_varint();
    if (in.get_varint() != state.dictionary.size() || count > raw->size()) return bad();
    std::uint64_t address = 0;
    std::uint64_t base = 0;
    std::vector<Slot> shape;
    std::vector<std::uint8_t> lengths;
    std::vector<std::uint8_t> code;
    for (std::uint64_t n = 0; n < count && !in.failed(); ++n) {
        const auto flags = in.get<std::uint8_t>();
        std::uint64_t start = 0;
        if ((flags & 1) != 0) {
            const std::uint64_t back = in.get_varint();
            if (back == 0 || back > state.dictionary.size()) return bad();
            const Block& same = state.dictionary[static_cast<std::uint32_t>(state.dictionary.size() - back)];
            start = same.address.value();
            const auto same_lengths = state.dictionary.lengths(same);
            const auto same_code = state.dictionary.code(same);
            lengths.assign(same_lengths.begin(), same_lengths.end());
            code.assign(same_code.begin(), same_code.end());
        } else {
            address += format::unzigzag(in.get_varint());
            start = address;
            const std::uint64_t instructions = in.get_varint();
            if (instructions == 0 || instructions > 0x3fff) return bad();
            const auto lengths_part = in.take(instructions);
            std::uint64_t bytes = 0;
            for (const std::uint8_t length : lengths_part) {
                if (length == 0) return bad();
                bytes += length;
            }
            const auto code_part = in.take(bytes);
            lengths.assign(lengths_part.begin(), lengths_part.end());
            code.assign(code_part.begin(), code_part.end());
        }
        const std::uint64_t slots = in.get_varint();
        if (in.failed() || slots > 0xffff) return bad();
        shape.clear();
        std::uint16_t instruction = 0;
        for (std::uint64_t s = 0; s < slots && !in.failed(); ++s) {
            const std::uint64_t coded = in.get_varint();
            if (coded >> 5 >= lengths.size()) return bad();
            // What the CPU accesses by itself, to deliver an interrupt behind the block, QEMU reports of some
            // earlier instruction. Readers may rely on instructions that never go back.
            instruction = std::max(instruction, static_cast<std::uint16_t>(coded >> 5));
            shape.push_back({.instruction = instruction,
                             .size_log2 = static_cast<std::uint8_t>(coded & 0xf),
                             .store = (coded & 16) != 0});
            base += format::unzigzag(in.get_varint());
            state.bases.push_back(base);
        }
        if (in.failed()) return bad();
        state.dictionary.add(VirtAddr(start), lengths, code, shape, (flags & 2) != 0);
    }
    if (in.failed() || !in.at_end()) return bad();
    return {};
}

Result<ChunkInfo> read_chunk_info(const Recording::State& state, const ChunkLocation& at) {
    Cursor in(at.payload);
    ChunkInfo info;
    info.cpu = CpuId(at.header.cpu);
    info.number = at.header.number;
    info.executions = in.get<std::uint64_t>();
    info.accesses = in.get<std::uint64_t>();
    info.instructions = in.get<std::uint64_t>();
    info.first_ticket = in.get<std::uint64_t>();
    info.time_ns = in.get<std::uint64_t>();
    // Page touches cost no space each; only executions have a bound.
    const bool full = at.header.kind == ChunkKind::kExecutions;
    if (in.failed() ||
        (full && (info.executions > format::kChunkBlocks || info.accesses > kMostChunkAccesses)))
        return damaged(position(state, at.offset), "a chunk's counts make no sense");
    return info;
}

Result<void> check_file_header(const std::string& path, std::span<const std::uint8_t> bytes) {
    if (bytes.empty()) return fail(path, "the file is empty", "record again with 'tlbscope record'");
    if (bytes.size() < 8 ||
        !std::equal(std::begin(format::kMagic), std::end(format::kMagic), bytes.begin())) {
        if (std::equal(bytes.begin(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(8, bytes.size())),
                       std::begin(format::kMagic)))
            return fail(path, "the recording was cut short within its header", "record again");
        return fail(path + ":0", "this is not a tlbscope recording",
                    "make one with 'tlbscope record -- COMMAND'");
    }
    if (bytes.size() < format::kFileHeaderBytes)
        return fail(path, "the recording was cut short within its header", "record again");
    Cursor in(bytes.subspan(8));
    const auto version = in.get<std::uint32_t>();
    in.get<std::uint32_t>();
    if (in.get<std::uint64_t>() != format::hash(bytes.first(16)))
        return damaged(path + ":0", "the file header's checksum does not match");
    if (version > format::kVersion)
        return fail(path,
                    fmt::format("recording format version {} is newer than this tlbscope's {}", version,
                                format::kVersion),
                    "use a newer tlbscope");
    if (version != format::kVersion)
        return fail(path, fmt::format("recording format version {} is unknown", version), "record again");
    return {};
}

}  // namespace

std::string position(const Recording::State& state, std::uint64_t offset) {
    return fmt::format("{}:{}", state.path.string(), offset);
}

Result<std::vector<std::uint8_t>> read_single(const Recording::State& state, const ChunkLocation& at) {
    const std::string where = position(state, at.offset);
    if (format::hash(at.payload) != at.header.payload_hash)
        return damaged(where, "a chunk's checksum does not match");
    Cursor in(at.payload);
    const auto raw_bytes = in.get<std::uint64_t>();
    if (in.failed() || raw_bytes > kMostStreamBytes) return damaged(where, "a chunk's length makes no sense");
    std::vector<std::uint8_t> raw(raw_bytes);
    if (!format::decompress(at.payload.subspan(8), raw.data(), raw.size()))
        return damaged(where, "a chunk cannot be decompressed");
    return raw;
}

std::unexpected<Error> damaged(const std::string& where, const std::string& what) {
    return fail(where, what + ", so the file has changed since it was written",
                "record again or use a good copy");
}

// A replay of a long recording must not fill memory with the file: what has been decompressed can go. It
// comes back from the file should anyone ask again.
static void release_pages(std::span<const std::uint8_t> bytes) {
    constexpr std::uintptr_t kPageBytes = 4096;
    const auto start = (reinterpret_cast<std::uintptr_t>(bytes.data()) + kPageBytes - 1) & ~(kPageBytes - 1);
    const auto end = reinterpret_cast<std::uintptr_t>(bytes.data() + bytes.size()) & ~(kPageBytes - 1);
    if (start < end) ::madvise(reinterpret_cast<void*>(start), end - start, MADV_DONTNEED);
}

Result<void> read_streams(const Recording::State& state, std::size_t chunk, Streams& streams) {
    const ChunkLocation& at = state.locations[chunk];
    const std::string where = position(state, at.offset);
    if (format::hash(at.payload) != at.header.payload_hash)
        return damaged(where, "a chunk's checksum does not match");
    Cursor in(at.payload);
    in.take(kChunkFixedBytes - 8);
    streams.entries_needed = in.get<std::uint32_t>();
    const auto count = in.get<std::uint32_t>();
    if (in.failed() || count > 64 || at.payload.size() < kChunkFixedBytes + std::size_t{count} * 8)
        return damaged(where, "a chunk's stream table makes no sense");
    std::vector<std::uint32_t> frames(count);
    streams.raw.resize(std::max<std::size_t>(count, format::kStreamCount));
    streams.sizes.assign(streams.raw.size(), 0);
    for (std::uint32_t s = 0; s < count; ++s) {
        streams.sizes[s] = in.get<std::uint32_t>();
        frames[s] = in.get<std::uint32_t>();
        if (streams.sizes[s] > kMostStreamBytes) return damaged(where, "a stream's length makes no sense");
    }
    for (std::uint32_t s = 0; s < count; ++s) {
        const auto frame = in.take(frames[s]);
        if (in.failed()) return damaged(where, "a chunk's streams do not fit it");
        // Grown, never shrunk: the memory is used again for the next chunk.
        if (streams.raw[s].size() < streams.sizes[s] + kPadding)
            streams.raw[s].resize(streams.sizes[s] + kPadding);
        if (streams.sizes[s] != 0 && !format::decompress(frame, streams.raw[s].data(), streams.sizes[s]))
            return damaged(where, "a stream cannot be decompressed");
    }
    release_pages(at.payload);
    for (std::size_t s = count; s < streams.raw.size(); ++s)
        if (streams.raw[s].size() < kPadding) streams.raw[s].resize(kPadding);
    return {};
}

Result<Recording> Recording::open(const std::filesystem::path& path) {
    auto file = MappedFile::open(path);
    if (!file) {
        Error error = file.error();
        if (error.what.find("No such file") != std::string::npos)
            error.hint = "make one with 'tlbscope record -- COMMAND' or name another file";
        return std::unexpected(error);
    }
    auto state = std::make_unique<State>(State{.path = path, .file = std::move(*file)});
    const auto bytes = state->file.bytes();
    if (auto good = check_file_header(path.string(), bytes); !good) return std::unexpected(good.error());

    bool ended = false;
    bool have_metadata = false;
    std::vector<ChunkLocation> executions;
    for (std::size_t at = format::kFileHeaderBytes; at < bytes.size();) {
        const std::string where = position(*state, at);
        if (ended) return damaged(where, "there is something behind the recording's end");
        ChunkLocation chunk{.offset = at};
        if (bytes.size() - at < format::kChunkHeaderBytes) break;
        if (!format::parse_chunk_header(bytes.subspan(at), chunk.header))
            return damaged(where, "a chunk header's checksum does not match");
        at += format::kChunkHeaderBytes;
        if (bytes.size() - at < chunk.header.payload_bytes) break;
        chunk.payload = bytes.subspan(at, chunk.header.payload_bytes);
        at += chunk.header.payload_bytes;
        switch (chunk.header.kind) {
            case ChunkKind::kMetadata: {
                auto raw = read_single(*state, chunk);
                if (!raw) return std::unexpected(raw.error());
                auto metadata = metadata_from_json(std::string(raw->begin(), raw->end()), where);
                if (!metadata) return std::unexpected(metadata.error());
                state->metadata = std::move(*metadata);
                have_metadata = true;
                break;
            }
            case ChunkKind::kDictionary:
                if (auto read = read_dictionary(*state, chunk); !read) return std::unexpected(read.error());
                break;
            case ChunkKind::kExecutions:
            case ChunkKind::kTouches:
                executions.push_back(chunk);
                break;
            case ChunkKind::kKernelSymbols:
                state->kernel_symbols = chunk;
                break;
            case ChunkKind::kVdso:
                state->vdso = chunk;
                break;
            case ChunkKind::kKernelEvents:
                state->kernel_events.push_back(chunk);
                break;
            case ChunkKind::kEnd:
                ended = true;
                break;
            default:  // a kind that a later version added
                break;
        }
    }
    if (!have_metadata)
        return fail(path.string(), "the recording was cut short before anything was recorded",
                    "record again");
    if (!ended) state->damage = "cut short: the recorder was stopped before it could finish the file";
    const bool full = state->metadata.granularity == Granularity::kFull;
    const auto by_cpu = [](const ChunkLocation& a, const ChunkLocation& b) {
        return std::pair(a.header.cpu, a.header.number) < std::pair(b.header.cpu, b.header.number);
    };
    std::stable_sort(executions.begin(), executions.end(), by_cpu);
    std::stable_sort(state->kernel_events.begin(), state->kernel_events.end(), by_cpu);
    for (const ChunkLocation& chunk : state->kernel_events)
        if (chunk.header.cpu >= kMostCpus)
            return damaged(position(*state, chunk.offset), "a chunk's CPU makes no sense");
    for (const ChunkLocation& chunk : executions) {
        if ((chunk.header.kind == ChunkKind::kExecutions) != full)
            return damaged(position(*state, chunk.offset),
                           "a chunk is of another granularity than the recording");
        auto info = read_chunk_info(*state, chunk);
        if (!info) return std::unexpected(info.error());
        state->chunks.push_back(*info);
    }
    std::vector<std::size_t> order(executions.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return state->chunks[a].first_ticket < state->chunks[b].first_ticket;
    });
    std::vector<ChunkInfo> chunks;
    for (const std::size_t i : order) {
        chunks.push_back(state->chunks[i]);
        state->locations.push_back(executions[i]);
    }
    state->chunks = std::move(chunks);
    return Recording(std::move(state));
}

Recording::Recording(std::unique_ptr<State> state) : state_(std::move(state)) {}
Recording::Recording(Recording&&) noexcept = default;
Recording& Recording::operator=(Recording&&) noexcept = default;
Recording::~Recording() = default;

const std::filesystem::path& Recording::path() const { return state_->path; }
const Metadata& Recording::metadata() const { return state_->metadata; }
const Dictionary& Recording::dictionary() const { return state_->dictionary; }
std::span<const ChunkInfo> Recording::chunks() const { return state_->chunks; }
bool Recording::whole() const { return state_->damage.empty(); }
const std::string& Recording::damage() const { return state_->damage; }
std::uint64_t Recording::file_bytes() const { return state_->file.bytes().size(); }

Result<void> Recording::verify() const {
    for (const ChunkLocation& at : state_->locations)
        if (format::hash(at.payload) != at.header.payload_hash)
            return damaged(position(*state_, at.offset), "a chunk's checksum does not match");
    return {};
}

namespace {

Result<std::string> text_of(const Recording::State& state, const std::optional<ChunkLocation>& at) {
    if (!at) return std::string();
    auto raw = read_single(state, *at);
    if (!raw) return std::unexpected(raw.error());
    return std::string(raw->begin(), raw->end());
}

}  // namespace

Result<std::string> Recording::kernel_symbols() const { return text_of(*state_, state_->kernel_symbols); }

Result<std::string> Recording::vdso() const { return text_of(*state_, state_->vdso); }

Result<PageTouches> Recording::touches(std::size_t chunk) const {
    const std::string where = position(*state_, state_->locations[chunk].offset);
    Streams streams;
    if (auto read = read_streams(*state_, chunk, streams); !read) return std::unexpected(read.error());
    const auto stream = [&](std::size_t s) {
        return std::span<const std::uint8_t>(streams.raw[s].data(), streams.sizes[s]);
    };
    PageTouches result;
    std::vector<std::uint64_t> pages;
    Cursor new_pages(stream(1));
    std::uint64_t page = 0;
    while (!new_pages.at_end() && !new_pages.failed()) {
        page += format::unzigzag(new_pages.get_varint());
        pages.push_back(page);
    }
    Cursor in(stream(0));
    result.touches.reserve(streams.sizes[0] / 4);
    while (!in.at_end() && !in.failed()) {
        const auto coded = in.get<std::uint32_t>();
        if (coded >> 2 >= pages.size()) return damaged(where, "a touch names a page that does not exist");
        result.touches.push_back({.page = pages[coded >> 2],
                                  .kind = (coded & 1) != 0 ? Kind::kData : Kind::kInstruction,
                                  .mode = (coded & 2) != 0 ? Mode::kKernel : Mode::kUser});
    }
    Cursor counts(stream(2));
    for (auto& n : result.references) n = counts.get<std::uint64_t>();
    for (auto& n : result.straddles) n = counts.get<std::uint64_t>();
    if (in.failed() || new_pages.failed() || counts.failed())
        return damaged(where, "a touches chunk is malformed");
    return result;
}

}  // namespace tlbscope::recording
