// What `explain` found, as text, JSON, CSV, and for KCachegrind.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "explain/breakdown.h"
#include "explain/stepper.h"
#include "recording/metadata.h"

namespace tlbscope::report {

struct Explanation {
    std::string recording;  // as the user named it
    recording::Metadata metadata;
    explain::Breakdown breakdown;
};

[[nodiscard]] std::string as_text(const Explanation& explanation, bool color);
// One object per innermost row; the misses of all add up to the total.
[[nodiscard]] std::string as_json(const Explanation& explanation);
[[nodiscard]] std::string as_csv(const Explanation& explanation);

// The profile format that KCachegrind and callgrind_annotate read (valgrind manual, "Callgrind Format
// Specification").
[[nodiscard]] std::string as_callgrind(const Explanation& explanation,
                                       std::span<const explain::CodeCost> costs, const std::string& version);

struct Stepping {
    std::string recording;  // as the user named it
    recording::Metadata metadata;
    machine::Machine machine;
    explain::Steps steps;
};

[[nodiscard]] std::string as_text(const Stepping& stepping, bool color);
[[nodiscard]] std::string as_json(const Stepping& stepping);

}  // namespace tlbscope::report
