#include "explain/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace tlbscope::explain {

std::vector<DiffRow> changes(const std::map<RowName, KindCounts>& a, const std::map<RowName, KindCounts>& b) {
    std::map<RowName, DiffRow> rows;
    for (const auto& [name, counts] : a) rows[name].a = counts;
    for (const auto& [name, counts] : b) rows[name].b = counts;
    std::vector<DiffRow> list;
    for (auto& [name, row] : rows) {
        row.name = name;
        list.push_back(std::move(row));
    }
    std::stable_sort(list.begin(), list.end(), [](const DiffRow& x, const DiffRow& y) {
        return std::abs(x.delta()) > std::abs(y.delta());
    });
    return list;
}

FourCounters four_counters(const replay::Ledger& ledger) {
    FourCounters counters;
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides)
            counters.misses[static_cast<std::size_t>(kind)][static_cast<std::size_t>(side)] =
                ledger.misses.by_side(kind, side);
    return counters;
}

Result<FourCounters> parse_counters(std::string_view text, const std::string& file) {
    FourCounters counters;
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const std::string label = fmt::format("{}-TLB {} misses:", kind == Kind::kInstruction ? "I" : "D",
                                                  side == Side::kUser ? "userspace" : "kernel");
            const std::size_t at = text.find(label);
            if (at == std::string_view::npos)
                return fail(file, fmt::format("there is no line `{} N` in it", label),
                            "give the four lines of /proc/tlbmiss, or of tlbscope replay");
            if (text.find(label, at + 1) != std::string_view::npos)
                return fail(file, fmt::format("`{}` is in it more than once", label),
                            "give one file for each of the two runs");
            std::string_view digits = text.substr(at + label.size());
            digits.remove_prefix(std::min(digits.find_first_not_of(" \t"), digits.size()));
            std::uint64_t& value =
                counters.misses[static_cast<std::size_t>(kind)][static_cast<std::size_t>(side)];
            const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
            if (error != std::errc{})
                return fail(file, fmt::format("there is no number after `{}`", label),
                            "give the four lines of /proc/tlbmiss, or of tlbscope replay");
        }
    return counters;
}

Slowdown slowdown(const FourCounters& a, const FourCounters& b, double cycles_a, double cycles_b,
                  double clock, const std::optional<double>& elapsed_a,
                  const std::optional<double>& elapsed_b) {
    Slowdown result;
    result.misses = static_cast<std::int64_t>(b.total()) - static_cast<std::int64_t>(a.total());
    result.cycles = cycles_b - cycles_a;
    result.clock = clock;
    result.seconds = result.cycles / clock;
    if (elapsed_a && elapsed_b) {
        result.elapsed = *elapsed_b - *elapsed_a;
        if (*result.elapsed != 0) result.share = result.seconds / *result.elapsed;
        if (result.misses != 0)
            result.cycles_per_miss_all = *result.elapsed * clock / static_cast<double>(result.misses);
    }
    return result;
}

}  // namespace tlbscope::explain
