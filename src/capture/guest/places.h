// Spaces and maps of a recording, from what the guest reports.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "capture/guest/report.h"
#include "capture/guest/tasks.h"
#include "recording/metadata.h"

namespace tlbscope::capture {

struct GuestPlaces {
    std::vector<recording::Space> spaces;      // one for each space of the switches, by id
    std::vector<recording::MappedRange> maps;  // by space and address
    std::vector<std::string> notes;            // what is missing, one sentence each
};

// A kernel thread's space bears its name in brackets and has no maps. Tasks of one process have its pid in
// common, and its maps each. Where a mapping replaced another, the last one counts; an execve drops all
// before it.
[[nodiscard]] GuestPlaces guest_places(const GuestFacts& facts, const std::vector<CpuSwitches>& switches,
                                       const std::map<std::string, std::filesystem::path>& host_files);

}  // namespace tlbscope::capture
