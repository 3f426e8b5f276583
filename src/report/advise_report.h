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
    std::string command;  // "tlbscope replay dd.rec --machine mpc855t": what a remedy's options are added to
    advise::Advice advice;
    std::size_t rows = 15;  // of the table in text; 0: all
};

[[nodiscard]] std::string as_text(const Advised& advised, bool color);
[[nodiscard]] std::string as_json(const Advised& advised);
[[nodiscard]] std::string as_csv(const Advised& advised);

}  // namespace tlbscope::report
