// What changed between two runs, or between two machines that replay one run.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "explain/miss_totals.h"
#include "replay/counts.h"
#include "replay/ledger.h"

namespace tlbscope::explain {

struct DiffRow {
    RowName name;
    KindCounts a{};
    KindCounts b{};
    [[nodiscard]] std::int64_t delta() const {
        return static_cast<std::int64_t>(b[0] + b[1]) - static_cast<std::int64_t>(a[0] + a[1]);
    }
};

// All rows of both, those that changed most first; then by name.
[[nodiscard]] std::vector<DiffRow> changes(const std::map<RowName, KindCounts>& a,
                                           const std::map<RowName, KindCounts>& b);

// The four counters of /proc/tlbmiss, by kind and side.
struct FourCounters {
    std::array<std::array<std::uint64_t, 2>, 2> misses{};  // [kind][side]
    [[nodiscard]] std::uint64_t total() const {
        return misses[0][0] + misses[0][1] + misses[1][0] + misses[1][1];
    }
};
[[nodiscard]] FourCounters four_counters(const replay::Ledger& ledger);
// From text that holds each of the four lines once ("I-TLB userspace misses: 142369"), among anything else.
[[nodiscard]] Result<FourCounters> parse_counters(std::string_view text, const std::string& file);

// How much of a slowdown the further misses explain.
struct Slowdown {
    std::int64_t misses = 0;  // b - a
    double cycles = 0;        // b's refill cycles - a's
    double clock = 0;         // hertz
    double seconds = 0;       // of those cycles
    // With both elapsed times:
    std::optional<double> elapsed;              // b - a
    std::optional<double> share;                // seconds / elapsed; nothing when there is no slowdown
    std::optional<double> cycles_per_miss_all;  // that misses would have to cost to explain all of it
};
[[nodiscard]] Slowdown slowdown(const FourCounters& a, const FourCounters& b, double cycles_a,
                                double cycles_b, double clock, const std::optional<double>& elapsed_a,
                                const std::optional<double>& elapsed_b);

}  // namespace tlbscope::explain
