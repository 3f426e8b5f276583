// Small made-up kernels: an image of pieces without a file, and recordings of runs through it and through
// user code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "layout/image.h"
#include "machine/random.h"
#include "made_recording.h"

namespace tlbscope::layout::testing {

inline constexpr std::uint64_t kImageStart = 0xffffffff81000000;

// Pieces of these sizes, one behind the other from kImageStart on at multiples of `align`, each a function fN
// in .text.fN; the pieces in `fixed` stay.
[[nodiscard]] Image image_of_sizes(const std::vector<std::uint64_t>& sizes,
                                   const std::vector<std::size_t>& fixed = {}, std::uint32_t align = 16);

// A run of `length` executions through random blocks of the pieces and of user code, with loops, early ends,
// switches of space and invalidations.
[[nodiscard]] recording::testing::MadeRun random_run(machine::Random& random, const Image& image,
                                                     std::size_t cpus, std::size_t length);

// A run that executes the whole of each piece named, in order.
[[nodiscard]] recording::testing::MadeRun run_of(const Image& image,
                                                 const std::vector<std::uint32_t>& pieces);

}  // namespace tlbscope::layout::testing
