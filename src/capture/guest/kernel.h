// The kernel a guest boots: the distribution's, downloaded once from its package, or a file of the user's.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "core/error.h"

namespace tlbscope::capture {

struct Kernel {
    std::filesystem::path path;
    std::string release;  // "6.1.0-57-cloud-amd64"; empty when the file does not say
    std::string hash;     // content_hash of the file
};

using Progress = std::function<void(const std::string&)>;

// `file` when given. Otherwise the newest one kept in the cache folder, else one installed in /boot, else it
// is downloaded with apt-get. Two at once do no harm: each unpacks in a folder of its own and renames it into
// place.
[[nodiscard]] Result<Kernel> find_kernel(const std::optional<std::filesystem::path>& file,
                                         const Progress& progress);

}  // namespace tlbscope::capture
