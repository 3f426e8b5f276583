// A recording as memory events: each space's tables from its maps and from the pages that its references
// touched, in the order of the first touch.
#pragma once

#include "core/error.h"
#include "recording/recording.h"
#include "tables/events.h"

namespace tlbscope::tables {

[[nodiscard]] Result<Events> recorded_events(const recording::Recording& recording);

}  // namespace tlbscope::tables
