// What a reader of a ledger must know to read it right, in sentences.
#pragma once

#include <string>
#include <vector>

#include "recording/metadata.h"
#include "replay/ledger.h"

namespace tlbscope::replay {

[[nodiscard]] std::vector<std::string> notes_of(const Ledger& ledger, const recording::Metadata& metadata);

}  // namespace tlbscope::replay
