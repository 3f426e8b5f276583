// Reading anywhere in a file that may be larger than memory, or no real file (/proc/kcore).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "core/error.h"

namespace tlbscope::image {

class File {
  public:
    static Result<File> open(const std::string& name);
    File(File&& other) noexcept;
    File& operator=(File&&) = delete;
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File();
    // Exactly these bytes, or false.
    [[nodiscard]] bool read(std::uint64_t at, std::span<std::uint8_t> into) const;
    [[nodiscard]] std::uint64_t size() const { return size_; }  // 0 when the system does not tell
    [[nodiscard]] const std::string& name() const { return name_; }

  private:
    File(std::string name, int fd, std::uint64_t size) : name_(std::move(name)), fd_(fd), size_(size) {}
    std::string name_;
    int fd_;
    std::uint64_t size_;
};

// A number of `bytes` bytes at the start of some bytes.
[[nodiscard]] inline std::uint64_t number(std::span<const std::uint8_t> at, unsigned bytes, bool big_endian) {
    std::uint64_t value = 0;
    for (unsigned n = 0; n < bytes; ++n) value = value << 8 | at[big_endian ? n : bytes - 1 - n];
    return value;
}

}  // namespace tlbscope::image
