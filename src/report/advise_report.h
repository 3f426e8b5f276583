// Advice as text, JSON and CSV.
#pragma once

#include <cstddef>
#include <string>

#include "advise/advise.h"
#include "recording/metadata.h"

namespace tlbscope::report {

struct Advised {
    std::string recording;  // as the user named it
    recording::Metadata metadata;
    // "tlbscope replay dd.rec --machine mpc855t": what a remedy's options are added to, and so is the
    // handler, if any, unless the remedy is another.
    std::string command;
    std::string handler;
    advise::Advice advice;
    std::size_t rows = 15;  // of the table in text; 0: all
    std::string stopped;    // by what, "--max-time 5"; empty: the search came to its end
};

// The replay that shows what a remedy leaves; of Advice::base, the machine as it is.
[[nodiscard]] std::string command_of(const Advised& advised, const advise::Trial& trial);

// "stopped by --max-time 5: at least 12 remedies were not tried"; empty when nothing stopped the search.
[[nodiscard]] std::string stopped_text(const Advised& advised);
[[nodiscard]] std::string as_text(const Advised& advised, bool color);
[[nodiscard]] std::string as_json(const Advised& advised);
[[nodiscard]] std::string as_csv(const Advised& advised);

}  // namespace tlbscope::report
