#include "image/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace tlbscope::image {

Result<File> File::open(const std::string& name) {
    const int fd = ::open(name.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error(name, "cannot open", errno);
    struct stat info{};
    if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
        const int code = S_ISDIR(info.st_mode) ? EISDIR : errno;
        ::close(fd);
        return system_error(name, "cannot read", code);
    }
    return File(name, fd, static_cast<std::uint64_t>(info.st_size));
}

File::File(File&& other) noexcept
    : name_(std::move(other.name_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

File::~File() {
    if (fd_ >= 0) ::close(fd_);
}

bool File::read(std::uint64_t at, std::span<std::uint8_t> into) const {
    if (at > (std::uint64_t{1} << 62)) return false;
    while (!into.empty()) {
        const ssize_t n = ::pread(fd_, into.data(), into.size(), static_cast<off_t>(at));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += static_cast<std::uint64_t>(n);
        into = into.subspan(static_cast<std::size_t>(n));
    }
    return true;
}

}  // namespace tlbscope::image
