// Options about the image that an order is for, and what is worked out from them; for order and prove.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "layout/image.h"
#include "layout/linker.h"
#include "recording/recording.h"

namespace tlbscope::cli {

struct ImageChoice {
    std::string image;
    std::string map;
    std::vector<std::string> objects;
    bool data = false;
};

// Adds --image, --map, --objects and --data.
void add_image_options(CLI::App& app, const std::shared_ptr<ImageChoice>& choice);

// The image asked for, or by default the program that the recording ran, or its kernel.
[[nodiscard]] Result<layout::Image> image_of(const recording::Recording& recording, const ImageChoice& choice,
                                             layout::Linker linker);

// Ctrl-C sets a flag instead of ending the program, while this lives.
class StopOnInterrupt {
  public:
    StopOnInterrupt();
    ~StopOnInterrupt();
    StopOnInterrupt(const StopOnInterrupt&) = delete;
    StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
    [[nodiscard]] static bool asked();
};

// What the page size of this kernel's text really is, where it is known not to be the machine's base page.
[[nodiscard]] std::optional<PageShift> text_page_of(const layout::Image& image);

}  // namespace tlbscope::cli
