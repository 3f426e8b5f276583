// Two accounts side by side, as text, JSON and CSV.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "explain/diff.h"
#include "report/report.h"

namespace tlbscope::report {

struct DiffSide {
    std::string label;  // how the user named it
    explain::FourCounters counters;
    double cycles = 0;                  // of all refills
    std::uint64_t cycles_per_miss = 0;  // 0: not the same for each
    std::optional<Replay> replay;       // with one ledger; none when counters were given
};

struct Diff {
    DiffSide a;
    DiffSide b;
    explain::Slowdown slowdown;
    std::optional<double> elapsed_a;
    std::optional<double> elapsed_b;
    std::optional<double> per;  // units of work
    // Only of replays.
    std::vector<explain::DiffRow> functions;
    std::vector<explain::DiffRow> regions;
    std::vector<explain::DiffRow> pages;
    std::size_t rows = 10;  // of each table in text; 0: all
    std::vector<std::string> notes;
};

[[nodiscard]] std::string as_text(const Diff& diff, bool color);
[[nodiscard]] std::string as_json(const Diff& diff);
[[nodiscard]] std::string as_csv(const Diff& diff);

}  // namespace tlbscope::report
