#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <cerrno>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>

namespace tlbscope {

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error(path.string(), "cannot open", errno);
    struct stat info{};
    if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
        const int code = S_ISDIR(info.st_mode) ? EISDIR : errno;
        ::close(fd);
        return system_error(path.string(), "cannot read", code);
    }
    if (info.st_size == 0) {
        ::close(fd);
        return MappedFile(nullptr, 0);
    }
    const auto size = static_cast<std::size_t>(info.st_size);
    void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
    const int code = errno;
    ::close(fd);
    if (data == MAP_FAILED) return system_error(path.string(), "cannot map", code);
    return MappedFile(static_cast<const std::uint8_t*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) ::munmap(const_cast<std::uint8_t*>(data_), size_);
}

Result<OutputFile> OutputFile::create(const std::filesystem::path& name) {
    std::error_code ignored;
    if (std::filesystem::is_directory(name, ignored))
        return system_error(name.string(), "cannot write", EISDIR);
    // The finished file takes the name's place: a device would be gone.
    if (std::filesystem::exists(name, ignored) && !std::filesystem::is_regular_file(name, ignored))
        return fail(name.string(), "it is no ordinary file, so no file can take its place",
                    "name another file");
    OutputFile file(name, -1);
    const std::string partial = file.partial_name().string();
    file.fd_ = ::open(partial.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file.fd_ < 0) return system_error(partial, "cannot create", errno);
    if (::flock(file.fd_, LOCK_EX | LOCK_NB) != 0) {
        ::close(std::exchange(file.fd_, -1));
        return fail(partial, "another tlbscope is writing this file",
                    "wait for it or choose another name with -o");
    }
    // Between the two calls another may have finished the very file that was opened and put it in place.
    struct stat opened{};
    struct stat named{};
    if (::fstat(file.fd_, &opened) != 0 || ::stat(partial.c_str(), &named) != 0 ||
        opened.st_ino != named.st_ino || opened.st_dev != named.st_dev) {
        ::close(std::exchange(file.fd_, -1));
        return fail(partial, "another tlbscope has just written this file",
                    "try again, or choose another name with -o");
    }
    if (::ftruncate(file.fd_, 0) != 0) return system_error(partial, "cannot truncate", errno);
    return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : name_(std::move(other.name_)),
      fd_(std::exchange(other.fd_, -1)),
      written_(other.written_),
      keep_(other.keep_) {}

OutputFile::~OutputFile() {
    if (fd_ < 0) return;
    if (!keep_) ::unlink(partial_name().c_str());
    ::close(fd_);
}

std::filesystem::path OutputFile::partial_name() const {
    std::filesystem::path partial = name_;
    partial += ".partial";
    return partial;
}

Result<void> OutputFile::write(std::span<const std::uint8_t> bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return system_error(partial_name().string(), "cannot write", errno);
        written_ += static_cast<std::uint64_t>(n);
        bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return {};
}

Result<void> OutputFile::commit() {
    if (::rename(partial_name().c_str(), name_.c_str()) != 0)
        return system_error(name_.string(), "cannot put the finished file in place", errno);
    ::close(std::exchange(fd_, -1));
    return {};
}

Result<std::string> read_text(const std::filesystem::path& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return system_error(path.string(), "cannot open", errno);
    std::string text;
    char buffer[65536];
    for (;;) {
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            const int code = errno;
            ::close(fd);
            return system_error(path.string(), "cannot read", code);
        }
        if (n == 0) break;
        text.append(buffer, static_cast<std::size_t>(n));
    }
    ::close(fd);
    return text;
}

Result<void> write_text(const std::filesystem::path& path, const std::string& text) {
    auto file = OutputFile::create(path);
    if (!file) return std::unexpected(file.error());
    if (auto done = file->write({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()}); !done)
        return done;
    return file->commit();
}

std::string content_hash(std::span<const std::uint8_t> bytes) {
    return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

Result<std::filesystem::path> cache_folder() {
    std::filesystem::path base;
    if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
        base = xdg;
    else if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
        base = std::filesystem::path(home) / ".cache";
    else
        return fail("", "neither XDG_CACHE_HOME nor HOME is set",
                    "set one, so that kernels can be kept between runs");
    base /= "tlbscope";
    std::error_code code;
    std::filesystem::create_directories(base, code);
    if (code) return system_error(base.string(), "cannot create", code.value());
    return base;
}

}  // namespace tlbscope
