// Touches of fetches and accesses in the one order in which the program made them: what a unified array, or
// levels that include each other, must be given. Slower than the two lists of replay/touches.h, since every
// access lies between two fetches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/types.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "replay/touches.h"

namespace tlbscope::replay {

struct Touch {
    std::uint64_t key = 0;      // of the touched page, in pages of the smallest size in use
    std::uint32_t ordinal = 0;  // fetches: block within the batch; accesses: address within the batch
    std::uint32_t block = 0;    // within the batch
    std::uint16_t instruction = 0;
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
    std::uint32_t lookups = 1;  // it stands for: itself and repeats right behind it
};

// Blocks [begin, end) of a batch whose first accesses are known. `collector` gives the keys.
void in_program_order(const recording::Dictionary& dictionary, const TouchCollector& collector,
                      PageShift shift, std::uint64_t kernel_base, const recording::Batch& batch,
                      std::uint32_t begin, std::uint32_t end, const std::vector<std::uint32_t>& first_access,
                      std::vector<Touch>& touches);

}  // namespace tlbscope::replay
