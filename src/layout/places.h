// Where the image lay in the run: from an address of a space to an address of the image's file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "layout/image.h"
#include "recording/recording.h"

namespace tlbscope::layout {

class Places {
  public:
    // An error when the recording ran another build of the image (the build-ids differ) or none at all.
    static Result<Places> find(const recording::Recording& recording, const Image& image);

    // Address in memory - address in the image's file, of a space that maps it; for a kernel of every space.
    [[nodiscard]] std::optional<std::uint64_t> bias(SpaceId space) const;
    [[nodiscard]] bool kernel() const { return kernel_; }
    // Lowest and highest address of the image's segments, before relocation.
    [[nodiscard]] std::uint64_t low() const { return low_; }
    [[nodiscard]] std::uint64_t high() const { return high_; }
    [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

  private:
    bool kernel_ = false;
    std::uint64_t kernel_bias_ = 0;
    std::map<SpaceId, std::uint64_t> biases_;
    std::uint64_t low_ = 0;
    std::uint64_t high_ = 0;
    std::vector<std::string> notes_;
};

// The program that a user-mode recording ran, as its maps name it; nothing when it has none.
[[nodiscard]] std::optional<std::string> program_of(const recording::Metadata& metadata);

}  // namespace tlbscope::layout
