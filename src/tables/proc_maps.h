// /proc/PID/maps and smaps as memory events: a process that maps what the file lists, and (smaps) has as many
// pages of each range as were resident.
#pragma once

#include <string_view>

#include "core/error.h"
#include "import_text/input.h"
#include "tables/events.h"

namespace tlbscope::tables {

// Whether a text begins like such a file.
[[nodiscard]] bool looks_like_maps(std::string_view first_lines);
// `most`: pages touched of each range of a maps file, which does not tell. Several files in one are several
// processes: one begins where addresses begin anew.
[[nodiscard]] Result<Events> read_maps(import::Lines& lines, std::uint64_t most);

}  // namespace tlbscope::tables
