// The guest's file system: the command with everything it needs to start, the agent, and little else.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "capture/guest/archive.h"
#include "capture/guest/libraries.h"

namespace tlbscope::capture {

struct PackingOrder {
    std::vector<std::string> command;
    std::vector<std::filesystem::path> with;
    std::filesystem::path folder;  // the command's working folder, an empty one in the guest
    std::filesystem::path agent;
};

struct Packing {
    Archive archive;
    std::vector<std::string> notes;  // libraries that were not found, for files that came by --with
};

[[nodiscard]] Result<Packing> pack(const PackingOrder& order, const LibraryFinder& libraries);

}  // namespace tlbscope::capture
