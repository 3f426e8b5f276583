// Files that a reader can trust: whole-file reads, and output that appears under its name only when it is
// complete.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "core/error.h"

namespace tlbscope {

// A file mapped read-only. Valid while the object lives.
class MappedFile {
  public:
    static Result<MappedFile> open(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;
    ~MappedFile();
    [[nodiscard]] std::span<const std::uint8_t> bytes() const { return {data_, size_}; }

  private:
    MappedFile(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}
    const std::uint8_t* data_ = nullptr;
    std::size_t size_ = 0;
};

// Output under construction: it is written as NAME.partial, locked against a second writer, and renamed to
// NAME by commit(). Without commit() the earlier NAME, if any, stays as it was and NAME.partial is removed,
// unless keep() asked for it to stay.
class OutputFile {
  public:
    static Result<OutputFile> create(const std::filesystem::path& name);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&&) = delete;
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;
    ~OutputFile();

    Result<void> write(std::span<const std::uint8_t> bytes);
    Result<void> commit();
    void keep() { keep_ = true; }
    [[nodiscard]] std::uint64_t written() const { return written_; }
    [[nodiscard]] std::filesystem::path partial_name() const;

  private:
    OutputFile(std::filesystem::path name, int fd) : name_(std::move(name)), fd_(fd) {}
    std::filesystem::path name_;
    int fd_ = -1;
    std::uint64_t written_ = 0;
    bool keep_ = false;
};

[[nodiscard]] Result<std::string> read_text(const std::filesystem::path& path);
// Writes the whole text or leaves the earlier file as it was.
Result<void> write_text(const std::filesystem::path& path, const std::string& text);

// Hash of some bytes as 16 hex digits (XXH3, 64 bits): names cache entries, not a defence against an
// attacker.
[[nodiscard]] std::string content_hash(std::span<const std::uint8_t> bytes);

// The folder for things worth keeping between runs: $XDG_CACHE_HOME/tlbscope or ~/.cache/tlbscope, created on
// demand.
[[nodiscard]] Result<std::filesystem::path> cache_folder();

}  // namespace tlbscope
