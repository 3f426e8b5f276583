// Debian packages fetched without installing them, of the host's architecture or a guest's.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

using Progress = std::function<void(const std::string&)>;

class Packages {
  public:
    // Of another architecture ("ppc64el"): apt gets package lists of its own in the cache folder, so that the
    // system's need not know that architecture. Fetches them when there are none. Empty: the host's.
    static Result<Packages> of(const std::string& architecture, const Progress& progress);

    // What the package depends on first; empty when apt does not know it.
    [[nodiscard]] Result<std::string> first_dependency(const std::string& package) const;
    // The package's file, downloaded into `folder`. `use` says in an error what it is for, `otherwise` what
    // else the user can do.
    [[nodiscard]] Result<std::filesystem::path> download(const std::string& package,
                                                         const std::filesystem::path& folder,
                                                         const std::string& use,
                                                         const std::string& otherwise) const;

  private:
    explicit Packages(std::vector<std::string> options) : options_(std::move(options)) {}
    std::vector<std::string> options_;
};

// Files of a package that fit the shell pattern ("./boot/vmlinux-*"), unpacked into `folder`; false when
// there is none.
[[nodiscard]] Result<bool> unpack(const std::filesystem::path& package, const std::string& pattern,
                                  const std::filesystem::path& folder);

}  // namespace tlbscope::capture
