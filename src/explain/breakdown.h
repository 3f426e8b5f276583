// The answer to a Question: rows within rows, whose misses add up to their parents' and to the ledger's.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/attribution.h"
#include "explain/question.h"
#include "recording/metadata.h"
#include "replay/ledger.h"

namespace tlbscope::explain {

struct Row {
    std::string label;
    std::string object;        // of a function, when the question does not name objects above it
    std::uint64_t misses = 0;  // the sum over `rows`, where there are any
    std::size_t others = 0;    // rows that this one stands for: the rest of its level
    std::vector<Row> rows;     // by misses, most first; then by label
};

struct Breakdown {
    std::vector<Dimension> by;
    std::vector<std::string> filters;  // as asked for
    std::uint64_t matched = 0;         // misses that pass the filters: the sum over `rows`
    std::vector<Row> rows;
    replay::Ledger ledger;  // with causes
};

// "kernel", "dd (1234)", "space 3".
[[nodiscard]] std::string space_label(const recording::Metadata& metadata, std::uint32_t space);

// The ledger must be the same replay's. An Error when the misses attributed are not the ledger's.
[[nodiscard]] Result<Breakdown> break_down(const Attribution& attribution, const Question& question,
                                           const recording::Metadata& metadata, replay::Ledger ledger);

// The misses of an instruction, for a Question with `instructions`.
struct CodeCost {
    Function function;
    std::uint64_t address = 0;
    std::array<std::uint64_t, 2> by_kind{};
    CauseCounts by_cause;
};
// By object, function and address; misses that the filters leave out are not in it.
[[nodiscard]] std::vector<CodeCost> code_costs(const Attribution& attribution, const Question& question,
                                               const recording::Metadata& metadata, PageShift shift);

}  // namespace tlbscope::explain
