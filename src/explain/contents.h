// What a machine's TLBs hold before and after one call of a path, and what the call brought in.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/names.h"
#include "explain/paths.h"
#include "machine/machine.h"
#include "recording/recording.h"

namespace tlbscope::explain {

struct ContentsEntry {
    std::uint32_t slot = 0;
    std::uint64_t page = 0;  // page number of the machine's base page
    Side side = Side::kUser;
    SpaceId space;       // of a user page
    bool fresh = false;  // not there before the call
    Region region = Region::kUnknown;
    std::string object;
    // Instruction TLB: functions on the page that ran in the call, else that ran at all. Data TLB: functions
    // that accessed it in the call.
    std::vector<std::string> functions;
};

struct CallContents {
    std::string path;
    std::uint64_t call = 0;  // from 1
    std::uint64_t calls = 0;
    PageShift page;
    // By kind.
    std::array<std::vector<ContentsEntry>, 2> before;
    std::array<std::vector<ContentsEntry>, 2> after;
};

// `call` counts from 1; a page-granularity recording has no paths.
[[nodiscard]] Result<CallContents> contents_of_call(const recording::Recording& recording, const Names& names,
                                                    const machine::Machine& machine, const Path& path,
                                                    std::uint64_t call, std::uint64_t calls);

}  // namespace tlbscope::explain
