// The branches that a run took, as BOLT's profiles list them: counted from the executions, so that neither
// sampling nor a processor's branch records are needed.
#pragma once

#include <vector>

#include "core/error.h"
#include "layout/image.h"
#include "layout/order_file.h"
#include "layout/places.h"
#include "recording/recording.h"

namespace tlbscope::layout {

// Taken branches, calls and returns within the image, added to `branches` (by function and offset). One pass
// over the recording.
[[nodiscard]] Result<void> add_branches(const recording::Recording& recording, const Image& image,
                                        const Places& places, unsigned threads,
                                        std::vector<Branch>& branches);

// BOLT's name of a function: locals carry the number that tells them apart.
[[nodiscard]] std::string bolt_name(const Image& image, const Function& function);

}  // namespace tlbscope::layout
