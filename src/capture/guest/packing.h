// The guest's file system: the command with everything it needs to start, the agent, and little else.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "capture/guest/architecture.h"
#include "capture/guest/archive.h"
#include "capture/guest/libraries.h"

namespace tlbscope::capture {

struct PackingOrder {
    std::vector<std::string> command;
    std::vector<std::filesystem::path> with;
    std::filesystem::path folder;  // the command's working folder, an empty one in the guest
    std::filesystem::path agent;
    const Architecture* architecture = &architectures().front();
    std::filesystem::path root = {};      // a folder whose contents lie at the guest's root; empty: none
    std::filesystem::path programs = {};  // our own programs of the guest's architecture; empty: none
    std::filesystem::path busybox = {};   // a static one of it; empty: none
    bool events = false;                  // the agent enables the kernel's tracing
};

struct Packing {
    Archive archive;
    std::vector<std::string> notes;  // libraries that were not found, for files that came by --with
};

// Where the command's program lies in the guest; nothing when neither the host, the root, our own programs
// nor busybox has it.
struct FoundProgram {
    std::filesystem::path host;  // the file
    std::string guest;           // its name there
    bool of_host = false;        // to be packed at its own place with what it needs from the host
};
[[nodiscard]] Result<FoundProgram> find_command(const PackingOrder& order);

[[nodiscard]] Result<Packing> pack(const PackingOrder& order, const LibraryFinder& libraries);

}  // namespace tlbscope::capture
