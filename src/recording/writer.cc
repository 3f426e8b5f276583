#include "recording/writer.h"

namespace tlbscope::recording {

namespace {
std::span<const std::uint8_t> bytes_of(const std::string& text) {
    return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
}  // namespace

Result<Writer> Writer::create(const std::filesystem::path& name, const Metadata& metadata) {
    auto file = OutputFile::create(name);
    if (!file) return std::unexpected(file.error());
    Writer writer(std::move(*file));
    if (auto done = writer.file_.write(format::file_header()); !done) return std::unexpected(done.error());
    if (auto done = writer.add_compressed(format::ChunkKind::kMetadata, bytes_of(to_json(metadata)), 3);
        !done)
        return std::unexpected(done.error());
    return writer;
}

Result<void> Writer::add_compressed(format::ChunkKind kind, std::span<const std::uint8_t> raw, int level,
                                    std::uint32_t cpu, std::uint32_t number) {
    std::vector<std::uint8_t> payload;
    format::put(payload, static_cast<std::uint64_t>(raw.size()));
    const auto frame = format::compress(raw, level);
    payload.insert(payload.end(), frame.begin(), frame.end());
    auto chunk = format::chunk_header({.kind = kind,
                                       .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                                       .cpu = cpu,
                                       .number = number,
                                       .payload_hash = format::hash(payload)});
    chunk.insert(chunk.end(), payload.begin(), payload.end());
    return file_.write(chunk);
}

Result<void> Writer::add_kernel_symbols(const std::string& text) {
    return add_compressed(format::ChunkKind::kKernelSymbols, bytes_of(text), 15);
}

Result<void> Writer::add_vdso(const std::string& image) {
    return add_compressed(format::ChunkKind::kVdso, bytes_of(image), 15);
}

Result<void> Writer::add_kernel_events(std::uint32_t cpu, std::uint32_t number,
                                       std::span<const std::uint8_t> payload) {
    return add_compressed(format::ChunkKind::kKernelEvents, payload, 3, cpu, number);
}

Result<void> Writer::finish(const Metadata& metadata) {
    if (auto done = add_compressed(format::ChunkKind::kMetadata, bytes_of(to_json(metadata)), 9); !done)
        return done;
    if (auto done = file_.write(
            format::chunk_header({.kind = format::ChunkKind::kEnd, .payload_hash = format::hash({})}));
        !done)
        return done;
    return file_.commit();
}

}  // namespace tlbscope::recording
