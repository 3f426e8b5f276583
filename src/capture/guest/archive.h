// The root file system of a guest, put together in memory and written as the cpio archive ("newc") that the
// kernel unpacks (its Documentation/driver-api/early-userspace/buffer-format.rst). Written here rather than
// by the cpio tool, which would need a staged copy of every file and cannot make device nodes without root.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/error.h"

namespace tlbscope::capture {

class Archive {
  public:
    // Where the host has a link of this name, the link and the folder behind it.
    void add_folder(const std::string& path, std::uint32_t mode = 0755) { add_folder(path, mode, 0); }
    // The same whatever the host has.
    void add_own_folder(const std::string& path, std::uint32_t mode);
    void add_text(const std::string& path, std::string text, std::uint32_t mode);
    void add_link(const std::string& path, const std::string& target);
    void add_character_device(const std::string& path, std::uint32_t major, std::uint32_t minor);
    // `host` as the file `path`.
    Result<void> add_file(const std::string& path, const std::filesystem::path& host);
    // The host's file, link or folder (without its contents) under its own absolute name, with the links that
    // lead to it: what `path` names on the host it names in the guest. Returns the name behind all links.
    Result<std::string> add_host(const std::filesystem::path& path);

    [[nodiscard]] bool has(const std::string& path) const;
    // Whether the name leads to a file or link, through the archive's own links of its folders.
    [[nodiscard]] bool reaches(const std::string& path) { return has(place(path)); }
    // Files taken from the host, by their name in the guest.
    [[nodiscard]] const std::map<std::string, std::filesystem::path>& host_files() const {
        return host_files_;
    }
    // Bytes the archive will take.
    [[nodiscard]] std::uint64_t size() const;
    // The same contents give the same bytes.
    Result<void> write(const std::filesystem::path& to) const;

  private:
    struct Node {
        std::uint32_t mode = 0;  // as in stat
        std::uint32_t time = 0;
        std::uint32_t major = 0;
        std::uint32_t minor = 0;
        std::uint64_t size = 0;
        std::string text = {};  // contents, or a link's target
        std::filesystem::path host = {};
    };
    // The name of `path` after the links of its folders; makes the folders that are missing.
    std::string place(const std::string& path, int depth = 0);
    void add_folder(const std::string& path, std::uint32_t mode, int depth);
    void put(const std::string& path, Node node) { nodes_[path] = std::move(node); }

    std::map<std::string, Node> nodes_;  // by name without the leading slash
    std::map<std::string, std::filesystem::path> host_files_;
};

}  // namespace tlbscope::capture
