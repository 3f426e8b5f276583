// The kernel a guest boots: the distribution's, downloaded once from its package, one built from its source,
// or a file of the user's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "capture/guest/architecture.h"
#include "capture/guest/packages.h"
#include "core/error.h"

namespace tlbscope::capture {

struct Kernel {
    std::filesystem::path path;
    std::string release;  // "6.1.0-57-cloud-amd64"; empty when the file does not say
    std::string hash;     // content_hash of the file
};

// `file` when given. Otherwise the newest one kept in the cache folder, else one installed in /boot, else it
// is downloaded with apt-get; the kernel of a ppc32 guest is one that scripts/build-ppc32-kernel has left in
// the cache. Two at once do no harm: each unpacks in a folder of its own and renames it into place.
[[nodiscard]] Result<Kernel> find_kernel(const std::optional<std::filesystem::path>& file,
                                         const Progress& progress,
                                         const Architecture& architecture = architectures().front());

}  // namespace tlbscope::capture
