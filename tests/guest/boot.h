// Boots real guests with the listening plugin (channel_plugin.c) and reads what comes home.
#pragma once

#include <string>
#include <vector>

#include "capture/guest/failure.h"
#include "capture/guest/guest.h"
#include "capture/guest/report.h"
#include "capture/guest/tasks.h"

namespace tlbscope::capture {

struct Boot {
    std::string error;    // the guest could not be prepared, or its report could not be read
    std::string channel;  // the units as they came
    std::string marks;    // what the plugin counted at each mark
    std::string console;
    GuestFacts facts;
    GuestState state;
    std::vector<CpuSwitches> switches;
    std::map<std::string, std::filesystem::path> host_files;
    Kernel kernel;
    double seconds = 0;
};

[[nodiscard]] Boot boot(const GuestRequest& request);

}  // namespace tlbscope::capture
