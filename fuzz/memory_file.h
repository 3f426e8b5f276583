// Bytes under a file name, for code that opens files.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

namespace tlbscope::fuzz {

class MemoryFile {
  public:
    explicit MemoryFile(std::span<const std::uint8_t> bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
        if (fd_ < 0 || ::write(fd_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
            std::abort();
    }
    ~MemoryFile() { ::close(fd_); }
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

  private:
    int fd_;
};

}  // namespace tlbscope::fuzz
