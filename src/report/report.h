// Ledgers as text, JSON and CSV. The three say the same numbers; docs of the JSON keys are in DESIGN's words:
// counts are plain numbers, times nanoseconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "recording/metadata.h"
#include "replay/ledger.h"

namespace tlbscope::report {

struct Replay {
    std::string recording;  // as the user named it
    recording::Metadata metadata;
    std::vector<replay::Ledger> ledgers;
    std::optional<double> elapsed;  // seconds the run took on the real machine
    std::optional<double> clock;    // hertz of that machine; the machine file's otherwise
};

// How much of a run's time its refills are.
struct Share {
    double fraction = 0;
    bool estimate = true;
    double clock = 0;       // hertz
    double run_cycles = 0;  // of the whole run, refills included
    double refill_seconds = 0;
};
[[nodiscard]] Share share_of(const replay::Ledger& ledger, const std::optional<double>& elapsed,
                             const std::optional<double>& clock);

[[nodiscard]] std::string as_text(const Replay& replay, bool color);
[[nodiscard]] std::string as_json(const Replay& replay);
[[nodiscard]] std::string as_csv(const Replay& replay);

}  // namespace tlbscope::report
