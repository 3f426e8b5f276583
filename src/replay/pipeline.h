// Batches of a recording in replay order, decoded ahead by other threads.
//
// Chunks decode independently and replay in order, so decoder d takes chunks d, d + D, d + 2D ... and keeps a
// ring of decoded batches; the consumer empties the ring of the chunk whose turn it is. A ring holds a fixed
// number of batches, so memory does not grow with the recording.
#pragma once

#include <functional>

#include "core/error.h"
#include "recording/batch.h"
#include "recording/recording.h"

namespace tlbscope::replay {

// Calls `consume` with every batch of every chunk, on the calling thread, in order; `chunk_done` after each
// chunk. `decoders` 0 decodes on the calling thread. Stops at the first error.
Result<void> for_each_batch(const recording::Recording& recording, unsigned decoders,
                            const std::function<Result<void>(const recording::Batch&)>& consume,
                            const std::function<void(std::size_t chunk)>& chunk_done);

}  // namespace tlbscope::replay
