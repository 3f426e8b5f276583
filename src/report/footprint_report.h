// Footprints of paths, and TLB contents around a call, as text, JSON and CSV.
#pragma once

#include <string>
#include <vector>

#include "explain/contents.h"
#include "explain/footprint.h"
#include "explain/names.h"

namespace tlbscope::report {

struct Footprints {
    std::string recording;
    std::vector<explain::PathFootprint> paths;
    std::vector<explain::CallContents> contents;  // with --contents, one per path
    std::string machine;                          // of the contents
    std::uint64_t line_bytes = 64;
    bool knows_interrupts = true;
    const explain::Names* names = nullptr;
};

[[nodiscard]] std::string as_text(const Footprints& footprints, bool color);
[[nodiscard]] std::string as_json(const Footprints& footprints);
[[nodiscard]] std::string as_csv(const Footprints& footprints);

}  // namespace tlbscope::report
