#include "capture/guest/archive.h"

#include <unistd.h>

#include <cerrno>
#include <limits>

#include <fmt/format.h>

#include "core/files.h"

namespace tlbscope::capture {

namespace {

constexpr int kMostLinks = 40;  // as the kernel's own limit, path_resolution(7)

std::string read_link(const std::string& path) {
    char target[4096];
    const ssize_t n = ::readlink(path.c_str(), target, sizeof target);
    return n < 0 ? std::string() : std::string(target, static_cast<std::size_t>(n));
}

std::string header(const std::string& name, std::size_t number, std::uint32_t mode, std::uint32_t time,
                   std::uint64_t size, std::uint32_t major, std::uint32_t minor) {
    // magic, inode, mode, uid, gid, links, mtime, size, device major and minor, node major and minor, name
    // size, check
    std::string text =
        fmt::format("070701{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}{:08X}",
                    number, mode, 0, 0, 1, time, size, 0, 0, major, minor, name.size() + 1, 0);
    text += name;
    text += '\0';
    while (text.size() % 4 != 0) text += '\0';
    return text;
}

std::uint64_t padded(std::uint64_t n) { return (n + 3) & ~std::uint64_t{3}; }

}  // namespace

// The part of the name after the last link is looked up again, since a link's target may hold links.
std::string Archive::place(const std::string& path, int depth) {
    const std::filesystem::path name = std::filesystem::path(path).lexically_normal();
    std::string done;
    for (auto part = name.begin(); part != name.end(); ++part) {
        if (*part == "/" || part->empty()) continue;
        const std::string next = done.empty() ? part->string() : done + "/" + part->string();
        if (std::next(part) == name.end()) return next;
        auto node = nodes_.find(next);
        if (node == nodes_.end()) {
            struct stat info{};
            const bool on_host = ::lstat(("/" + next).c_str(), &info) == 0;
            Node made;
            if (on_host && S_ISLNK(info.st_mode)) {
                made.mode = S_IFLNK | 0777;
                made.text = read_link("/" + next);
            } else {
                made.mode = S_IFDIR | (on_host && S_ISDIR(info.st_mode) ? info.st_mode & 01777 : 0755);
            }
            node = nodes_.emplace(next, std::move(made)).first;
        }
        if (S_ISLNK(node->second.mode) && depth < kMostLinks) {
            std::filesystem::path rest = node->second.text;
            if (rest.is_relative()) rest = ("/" + done) / rest;
            for (++part; part != name.end(); ++part) rest /= *part;
            return place(rest.string(), depth + 1);
        }
        done = next;
    }
    return done;
}

void Archive::add_folder(const std::string& path, std::uint32_t mode, int depth) {
    const std::string name = place(path);
    if (name.empty() || depth > kMostLinks) return;
    auto node = nodes_.find(name);
    if (struct stat info{};
        node == nodes_.end() && ::lstat(("/" + name).c_str(), &info) == 0 && S_ISLNK(info.st_mode))
        node = nodes_.emplace(name, Node{.mode = S_IFLNK | 0777, .text = read_link("/" + name)}).first;
    if (node == nodes_.end() || !S_ISLNK(node->second.mode)) {
        put(name, Node{.mode = S_IFDIR | mode});
        return;
    }
    std::filesystem::path target = node->second.text;
    if (target.is_relative()) target = std::filesystem::path("/" + name).parent_path() / target;
    add_folder(target.string(), mode, depth + 1);
}

void Archive::add_own_folder(const std::string& path, std::uint32_t mode) {
    const std::string name = place(path);
    if (const auto node = nodes_.find(name); node == nodes_.end() || !S_ISLNK(node->second.mode))
        put(name, Node{.mode = S_IFDIR | mode});
}

void Archive::add_text(const std::string& path, std::string text, std::uint32_t mode) {
    Node node{.mode = S_IFREG | mode};
    node.size = text.size();
    node.text = std::move(text);
    put(place(path), std::move(node));
}

void Archive::add_link(const std::string& path, const std::string& target) {
    put(place(path), Node{.mode = S_IFLNK | 0777, .text = target});
}

void Archive::add_character_device(const std::string& path, std::uint32_t major, std::uint32_t minor) {
    put(place(path), Node{.mode = S_IFCHR | 0666, .major = major, .minor = minor});
}

Result<void> Archive::add_file(const std::string& path, const std::filesystem::path& host) {
    struct stat info{};
    if (::stat(host.c_str(), &info) != 0) return system_error(host.string(), "cannot pack", errno);
    if (!S_ISREG(info.st_mode)) return fail(host.string(), "is not a file", "name a file");
    if (::access(host.c_str(), R_OK) != 0) return system_error(host.string(), "cannot pack", errno);
    if (info.st_size > std::numeric_limits<std::uint32_t>::max())
        return fail(host.string(), "is larger than 4 GiB, which an initramfs cannot hold", "leave it out");
    const std::string name = place(path);
    put(name, Node{.mode = S_IFREG | (info.st_mode & 07777),
                   .time = static_cast<std::uint32_t>(info.st_mtime),
                   .size = static_cast<std::uint64_t>(info.st_size),
                   .host = host});
    host_files_["/" + name] = host;
    return {};
}

Result<std::string> Archive::add_host(const std::filesystem::path& path) {
    std::filesystem::path at = path;
    for (int links = 0; links <= kMostLinks; ++links) {
        const std::string name = place(at.string());
        if (name.empty()) return std::string("/");
        const std::string full = "/" + name;
        struct stat info{};
        if (::lstat(full.c_str(), &info) != 0) return system_error(full, "cannot pack", errno);
        if (S_ISDIR(info.st_mode)) {
            add_folder(full, info.st_mode & 07777);
            return full;
        }
        if (S_ISREG(info.st_mode)) {
            if (auto done = add_file(full, full); !done) return std::unexpected(done.error());
            return full;
        }
        if (!S_ISLNK(info.st_mode)) return fail(full, "is neither a file nor a folder", "leave it out");
        const std::string target = read_link(full);
        add_link(full, target);
        at = std::filesystem::path(target).is_absolute() ? std::filesystem::path(target)
                                                         : std::filesystem::path(full).parent_path() / target;
    }
    return fail(path.string(), "too many symbolic links", "name the file itself");
}

bool Archive::has(const std::string& path) const {
    return nodes_.contains(path.starts_with('/') ? path.substr(1) : path);
}

std::uint64_t Archive::size() const {
    std::uint64_t bytes = 124;
    for (const auto& [name, node] : nodes_)
        bytes += padded(110 + name.size() + 1) + padded(S_ISLNK(node.mode) ? node.text.size() : node.size);
    return bytes;
}

Result<void> Archive::write(const std::filesystem::path& to) const {
    auto file = OutputFile::create(to);
    if (!file) return std::unexpected(file.error());
    const auto put_text = [&](const std::string& text) {
        return file->write({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
    };
    std::size_t number = 0;
    for (const auto& [name, node] : nodes_) {
        const std::uint64_t size = S_ISLNK(node.mode) ? node.text.size() : node.size;
        if (auto done = put_text(header(name, ++number, node.mode, node.time, size, node.major, node.minor));
            !done)
            return done;
        if (!node.host.empty() && size > 0) {
            const auto contents = MappedFile::open(node.host);
            if (!contents) return std::unexpected(contents.error());
            if (contents->bytes().size() != size)
                return fail(node.host.string(), "changed while it was packed", "try again");
            if (auto done = file->write(contents->bytes()); !done) return done;
        } else if (auto done = put_text(node.text); !done) {
            return done;
        }
        if (auto done = put_text(std::string(padded(size) - size, '\0')); !done) return done;
    }
    if (auto done = put_text(header("TRAILER!!!", 0, 0, 0, 0, 0, 0)); !done) return done;
    return file->commit();
}

}  // namespace tlbscope::capture
