// The proof by replay: the recording replayed with every piece of the image where the linker would put it, by
// the engine that replays everything else. Code moves through the dictionary: a block's address there is all
// the engine knows of it. Data move through the addresses of the accesses.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/names.h"
#include "explain/paths.h"
#include "layout/image.h"
#include "layout/linker.h"
#include "layout/places.h"
#include "machine/machine.h"
#include "recording/recording.h"
#include "replay/ledger.h"

namespace tlbscope::layout {

// The dictionary with the image's blocks where `placement` has them. Takes a pass over the recording where
// the image is a program of a whole machine: which space a block belongs to shows when it runs.
[[nodiscard]] Result<recording::Dictionary> moved_dictionary(const recording::Recording& recording,
                                                             const Image& image, const Places& places,
                                                             const Placement& placement, unsigned threads);

// One side of a proof.
struct PathCost {
    std::uint64_t misses = 0;      // of instruction fetches of its calls
    std::uint64_t pages = 0;       // code pages, summed over its calls
    std::uint64_t most_pages = 0;  // of one call
};

struct ProofSide {
    replay::Ledger ledger;
    std::uint64_t image_misses = 0;  // of the image's pages, of the kind that the order is for
    std::uint64_t image_pages = 0;   // of it, distinct
    std::vector<PathCost> paths;
};

struct Proof {
    ProofSide before;
    ProofSide after;
    std::vector<std::uint64_t> calls;  // by path
};

struct ProofOptions {
    unsigned threads = 1;
    std::function<bool(std::uint64_t, std::uint64_t)> progress;  // executions done, all; false: stop
};

// `names` are needed for paths only.
[[nodiscard]] Result<Proof> prove(const recording::Recording& recording, const Image& image,
                                  const Places& places, const Placement& placement,
                                  const machine::Machine& machine, const explain::Names* names,
                                  const std::vector<explain::Path>& paths, const ProofOptions& options);

}  // namespace tlbscope::layout
