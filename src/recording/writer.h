// Writing a recording: chunks go in as they are finished, the end chunk says that all of them are there.
#pragma once

#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/files.h"
#include "recording/encoder.h"
#include "recording/metadata.h"

namespace tlbscope::recording {

class Writer {
  public:
    // Creates NAME.partial; NAME appears with finish().
    static Result<Writer> create(const std::filesystem::path& name, const Metadata& metadata);
    // `packed` as pack() returns it.
    Result<void> add(std::span<const std::uint8_t> packed) { return file_.write(packed); }
    Result<void> add_kernel_symbols(const std::string& text);
    Result<void> add_vdso(const std::string& image);
    // A payload of KernelEventEncoder, the number-th of its CPU.
    Result<void> add_kernel_events(std::uint32_t cpu, std::uint32_t number,
                                   std::span<const std::uint8_t> payload);
    // Writes the final metadata and the end chunk, and gives the file its name.
    Result<void> finish(const Metadata& metadata);
    // Leaves NAME.partial behind, readable up to its last whole chunk.
    void keep_partial() { file_.keep(); }
    [[nodiscard]] std::uint64_t bytes() const { return file_.written(); }
    [[nodiscard]] std::filesystem::path partial_name() const { return file_.partial_name(); }

  private:
    explicit Writer(OutputFile file) : file_(std::move(file)) {}
    Result<void> add_compressed(format::ChunkKind kind, std::span<const std::uint8_t> raw, int level,
                                std::uint32_t cpu = 0, std::uint32_t number = 0);
    OutputFile file_;
};

[[nodiscard]] std::string to_json(const Metadata& metadata);
[[nodiscard]] Result<Metadata> metadata_from_json(const std::string& text, const std::string& where);

}  // namespace tlbscope::recording
