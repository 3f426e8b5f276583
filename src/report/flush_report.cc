#include "report/flush_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/text.h"

namespace tlbscope::report {

namespace {

using flush::Curve;
using flush::Observed;
using flush::Tally;
using machine::Duration;
using Json = nlohmann::ordered_json;

// Rows of cells under a head, every column as wide as it must be; the first to the left, the rest to the
// right.
class Table {
  public:
    explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
    void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
    [[nodiscard]] std::string text() const {
        std::vector<std::size_t> widths(rows_.front().size());
        for (const auto& row : rows_)
            for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
        std::string text;
        for (const auto& row : rows_) {
            std::string line;
            for (std::size_t i = 0; i < row.size(); ++i)
                line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                               : fmt::format("  {:>{}}", row[i], widths[i]);
            while (line.ends_with(' ')) line.pop_back();
            text += line + "\n";
        }
        return text;
    }

  private:
    std::vector<std::vector<std::string>> rows_;
};

// Nanoseconds with the unit that leaves one to three digits before the point.
std::string time_text(double nanoseconds) {
    if (nanoseconds == 0) return "0";
    if (nanoseconds < 1e3) return fmt::format("{:.0f} ns", nanoseconds);
    if (nanoseconds < 1e6) return fmt::format("{:.1f} us", nanoseconds / 1e3);
    if (nanoseconds < 1e9) return fmt::format("{:.1f} ms", nanoseconds / 1e6);
    return fmt::format("{:.2f} s", nanoseconds / 1e9);
}

std::string with_error(const Duration& duration) {
    return time_text(duration.nanoseconds) + " +- " + time_text(duration.error);
}

std::string share(double part, double whole) {
    return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

bool has_observed(const FlushReport& report) {
    return report.observed.tlbies > 0 || report.observed.tlb_flushes > 0;
}

std::string cost_table(const FlushReport& report) {
    Table table({"policy", "local", "global", "barriers", "IPIs", "interrupted", "live dropped", "refills",
                 "time", "cycles"});
    for (const FlushRow& row : report.rows) {
        const Tally total = row.account.total();
        const Duration time = flush::cost_of(total, row.costs).total();
        const auto known = [&](std::uint64_t n) {
            return report.references ? grouped(n) : std::string("unknown");
        };
        table.row({row.policy, grouped(total.instructions(false)), grouped(total.instructions(true)),
                   grouped(total.barriers()), grouped(total.ipis), grouped(total.interrupted),
                   known(total.live_dropped), known(total.refills), with_error(time),
                   grouped(static_cast<std::uint64_t>(std::llround(time.nanoseconds * row.hertz / 1e9)))});
    }
    return "instructions and cost (local, global: invalidating instructions; barriers: pairs)\n" +
           table.text();
}

std::string kind_table(const FlushReport& report) {
    std::string text;
    for (const bool global : {false, true}) {
        Table table({"policy", "page", "range", "pid", "all", "walk cache"});
        bool any = false;
        for (const FlushRow& row : report.rows) {
            const Tally total = row.account.total();
            const Tally::ByScope& counts = global ? total.global : total.local;
            std::vector<std::string> cells = {row.policy};
            for (const std::uint64_t n : counts) {
                cells.push_back(grouped(n));
                any = any || n > 0;
            }
            table.row(cells);
        }
        if (any)
            text += fmt::format("\n{} flushes, by what one of them covers\n{}", global ? "global" : "local",
                                table.text());
    }
    return text;
}

std::string reason_tables(const FlushReport& report) {
    std::string text;
    for (const FlushRow& row : report.rows) {
        Table table({"", "requests", "skipped", "local", "global", "barriers", "IPIs", "instructions",
                     "barriers", "interrupts", "refills", "share"});
        const double whole = flush::cost_of(row.account.total(), row.costs).total().nanoseconds;
        const auto line = [&](const std::string& name, const Tally& tally) {
            const flush::Cost cost = flush::cost_of(tally, row.costs);
            table.row({name, grouped(tally.requests), grouped(tally.skipped),
                       grouped(tally.instructions(false)), grouped(tally.instructions(true)),
                       grouped(tally.barriers()), grouped(tally.ipis),
                       time_text(cost.instructions.nanoseconds), time_text(cost.barriers.nanoseconds),
                       time_text(cost.interrupts.nanoseconds), time_text(cost.refills.nanoseconds),
                       share(cost.total().nanoseconds, whole)});
        };
        for (std::size_t reason = 0; reason < flush::kReasons; ++reason) {
            const Tally& tally = row.account.by_reason[reason];
            if (tally == Tally{}) continue;
            line(std::string(flush::name_of(static_cast<flush::Reason>(reason))), tally);
        }
        const Tally total = row.account.total();
        line("together", total);
        const flush::Cost cost = flush::cost_of(total, row.costs);
        text += fmt::format("\n{} by what asked for it: requests, then instructions, then time\n{}",
                            row.policy, table.text());
        text +=
            fmt::format("of its time: instructions {}, barriers {}, interrupts {}, refills {}\n",
                        share(cost.instructions.nanoseconds, whole), share(cost.barriers.nanoseconds, whole),
                        share(cost.interrupts.nanoseconds, whole),
                        report.references ? share(cost.refills.nanoseconds, whole) : "unknown");
    }
    return text;
}

std::string difference(std::uint64_t predicted, std::uint64_t observed) {
    if (observed == 0) return predicted == 0 ? "0.0 %" : "-";
    return fmt::format("{:+.1f} %",
                       100 * (static_cast<double>(predicted) / static_cast<double>(observed) - 1));
}

// A flush that rides on a switch is no flush that was asked for, and one that was sent to others is told
// again by those who do it.
std::string x86_comparison(const FlushReport& report) {
    std::vector<std::string> head = {"", "observed"};
    std::vector<std::string> pages = {"invlpg"};
    std::vector<std::string> whole = {"whole spaces"};
    const Observed& seen = report.observed;
    std::uint64_t seen_pages = 0;
    std::uint64_t seen_whole = 0;
    for (std::size_t reason = 0; reason <= Observed::kFlushReasons; ++reason)
        if (reason != Observed::kTaskSwitch && reason != Observed::kSentToOthers) {
            seen_pages += seen.pages[reason];
            seen_whole += seen.full_flushes[reason];
        }
    pages.push_back(grouped(seen_pages));
    whole.push_back(grouped(seen_whole));
    for (const FlushRow& row : report.rows) {
        if (row.family != "x86") continue;
        const Tally::ByScope counts = row.account.total().local_instructions;
        const std::uint64_t by_page = counts[static_cast<std::size_t>(TlbScope::kPage)];
        const std::uint64_t by_space = counts[static_cast<std::size_t>(TlbScope::kPid)];
        head.insert(head.end(), {row.policy, "off by"});
        pages.insert(pages.end(), {grouped(by_page), difference(by_page, seen_pages)});
        whole.insert(whole.end(), {grouped(by_space), difference(by_space, seen_whole)});
    }
    if (head.size() == 2) return {};
    Table table(head);
    table.row(pages);
    table.row(whole);
    return "\nof these, what was not part of a switch, beside what the policies predict\n" + table.text();
}

std::string observed_tables(const FlushReport& report) {
    if (!has_observed(report)) return {};
    std::string text;
    const Observed& seen = report.observed;
    if (seen.tlbies > 0) {
        std::vector<std::string> head = {"", "observed"};
        std::vector<const FlushRow*> radix;
        for (const FlushRow& row : report.rows)
            if (row.family == "radix") {
                radix.push_back(&row);
                head.push_back(row.policy);
                head.push_back("off by");
            }
        head.push_back("with PID 0");
        Table table(head);
        for (const bool global : {false, true}) {
            const Observed::ByScope& counts = global ? seen.global : seen.local;
            const Observed::ByScope& kernel = global ? seen.kernel_global : seen.kernel_local;
            std::uint64_t all_observed = 0;
            std::uint64_t all_kernel = 0;
            std::vector<std::uint64_t> all(radix.size());
            const char* name = global ? "tlbie" : "tlbiel";
            for (std::size_t scope = 0; scope < kTlbScopes; ++scope) {
                // PID 0 is the kernel's, and what an erratum of POWER9 has flushed behind each broadcast.
                const std::uint64_t observed = counts[scope] + kernel[scope];
                std::vector<std::string> cells = {
                    fmt::format("{} {}", name, name_of(static_cast<TlbScope>(scope))), grouped(observed)};
                all_observed += observed;
                all_kernel += kernel[scope];
                bool any = observed > 0;
                for (std::size_t i = 0; i < radix.size(); ++i) {
                    const Tally total = radix[i]->account.total();
                    const std::uint64_t n =
                        (global ? total.global_instructions : total.local_instructions)[scope];
                    all[i] += n;
                    any = any || n > 0;
                    cells.push_back(grouped(n));
                    cells.push_back(difference(n, observed));
                }
                cells.push_back(grouped(kernel[scope]));
                if (any) table.row(cells);
            }
            std::vector<std::string> cells = {fmt::format("{} together", name), grouped(all_observed)};
            for (const std::uint64_t n : all) {
                cells.push_back(grouped(n));
                cells.push_back(difference(n, all_observed));
            }
            cells.push_back(grouped(all_kernel));
            table.row(cells);
        }
        text += "\nobserved by powerpc:tlbie, one line an instruction, beside what the policies predict\n" +
                table.text();
    }
    if (seen.tlb_flushes > 0) {
        Table table({"reason", "flushes", "full", "pages of the others"});
        for (std::size_t reason = 0; reason <= Observed::kFlushReasons; ++reason)
            if (seen.flushes[reason] > 0)
                table.row({std::string(flush::flush_reason_name(reason)), grouped(seen.flushes[reason]),
                           grouped(seen.full_flushes[reason]), grouped(seen.pages[reason])});
        text += "\nobserved by tlb:tlb_flush\n" + table.text();
        text += x86_comparison(report);
    }
    return text;
}

std::string executed_table(const FlushReport& report) {
    if (report.executed.empty()) return {};
    Table table({"instruction", "executed"});
    for (const auto& [name, count] : report.executed) table.row({name, grouped(count)});
    return "\ncounted while they ran, whatever any tracepoint says\n" + table.text();
}

std::string crossing_text(const Curve::Crossing& crossing) {
    return crossing.least == crossing.most ? fmt::format("{} pages", grouped(crossing.pages))
                                           : fmt::format("{} pages ({} to {})", grouped(crossing.pages),
                                                         grouped(crossing.least), grouped(crossing.most));
}

constexpr std::uint64_t kCurvePages[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};

std::string crossover_text(const FlushReport& report) {
    std::string text;
    for (const FlushRow& row : report.rows) {
        const std::vector<Curve> curves = flush::crossover(row.sizes, row.costs);
        for (const Curve& curve : curves) {
            std::uint64_t count = 0;
            for (const std::uint64_t n : curve.flushes) count += n;
            if (count == 0 && curve.others) continue;
            text += fmt::format("\ncrossover of {} on {}, {}: {} flushes of a range in this workload\n",
                                row.policy, row.machine,
                                curve.others ? "other CPUs concerned" : "this CPU alone", grouped(count));
            Table table({"pages", "by page", "by space, nothing lost",
                         fmt::format("by space, {:.0f} lost", curve.lost_most), "flushes up to here"});
            std::uint64_t up_to = 0;
            std::uint64_t at = 0;
            for (const std::uint64_t pages : kCurvePages) {
                for (; at <= pages && at < curve.flushes.size(); ++at) up_to += curve.flushes[at];
                table.row({grouped(pages), with_error(curve.by_page(pages)), with_error(curve.by_space(0)),
                           with_error(curve.by_space(curve.lost_most)),
                           share(static_cast<double>(up_to), static_cast<double>(count))});
            }
            text += table.text();
            text += fmt::format(
                "  by page is not dearer up to {} if nothing is lost,\n  {} if every use of the "
                "space is\n",
                crossing_text(curve.crossing(0)), crossing_text(curve.crossing(curve.lost_most)));
            if (count > 0)
                text += fmt::format(
                    "  this workload's flushes: {} under the kernel's ceiling of {}, {} under {}, the best "
                    "one\n  (nothing lost; else {} under {}, {} under {})\n",
                    time_text(curve.total(curve.kernel_ceiling(), 0)), grouped(curve.kernel_ceiling()),
                    time_text(curve.total(curve.best_ceiling(0), 0)), grouped(curve.best_ceiling(0)),
                    time_text(curve.total(curve.kernel_ceiling(), curve.lost_most)),
                    grouped(curve.kernel_ceiling()),
                    time_text(curve.total(curve.best_ceiling(curve.lost_most), curve.lost_most)),
                    grouped(curve.best_ceiling(curve.lost_most)));
        }
    }
    return text;
}

Json by_scope(const Tally::ByScope& counts) {
    Json json;
    for (std::size_t scope = 0; scope < kTlbScopes; ++scope)
        json[std::string(name_of(static_cast<TlbScope>(scope)))] = counts[scope];
    return json;
}

Json duration(const Duration& d) { return {{"nanoseconds", d.nanoseconds}, {"error", d.error}}; }

Json json_of(const Tally& tally, const FlushRow& row, bool references) {
    const flush::Cost cost = flush::cost_of(tally, row.costs);
    const auto known = [&](std::uint64_t n) { return references ? Json(n) : Json(nullptr); };
    return {
        {"requests", tally.requests},
        {"skipped", tally.skipped},
        {"local", by_scope(tally.local)},
        {"global", by_scope(tally.global)},
        {"instructions", {{"local", tally.instructions(false)}, {"global", tally.instructions(true)}}},
        {"instructions_by_kind",
         {{"local", by_scope(tally.local_instructions)}, {"global", by_scope(tally.global_instructions)}}},
        {"barriers", tally.barriers()},
        {"barrier_instructions", {{"fences", tally.fences}, {"syncs", tally.syncs}}},
        {"ipis", tally.ipis},
        {"cpus_interrupted", tally.interrupted},
        {"live_dropped", known(tally.live_dropped)},
        {"refills", known(tally.refills)},
        {"cycles", std::llround(cost.total().nanoseconds * row.hertz / 1e9)},
        {"time",
         {{"total", duration(cost.total())},
          {"instructions", duration(cost.instructions)},
          {"barriers", duration(cost.barriers)},
          {"interrupts", duration(cost.interrupts)},
          {"refills", references ? duration(cost.refills) : Json(nullptr)}}}};
}

Json crossover_json(const FlushRow& row) {
    Json all = Json::array();
    for (const Curve& curve : flush::crossover(row.sizes, row.costs)) {
        Json points = Json::array();
        for (const std::uint64_t pages : kCurvePages)
            points.push_back({{"pages", pages},
                              {"by_page", duration(curve.by_page(pages))},
                              {"by_space", duration(curve.by_space(0))},
                              {"by_space_all_lost", duration(curve.by_space(curve.lost_most))}});
        const auto crossing = [&](double lost) -> Json {
            const Curve::Crossing c = curve.crossing(lost);
            return {{"pages", c.pages}, {"least", c.least}, {"most", c.most}};
        };
        Json flushes = Json::array();
        for (std::uint64_t pages = 0; pages < curve.flushes.size(); ++pages)
            if (curve.flushes[pages] > 0) flushes.push_back({pages, curve.flushes[pages]});
        all.push_back({{"others", curve.others},
                       {"lost", curve.lost_most},
                       {"crossing", crossing(0)},
                       {"crossing_all_lost", crossing(curve.lost_most)},
                       {"kernel_ceiling", curve.kernel_ceiling()},
                       {"best_ceiling", curve.best_ceiling(0)},
                       {"best_ceiling_all_lost", curve.best_ceiling(curve.lost_most)},
                       {"curve", points},
                       {"flushes", flushes}});
    }
    return all;
}

}  // namespace

std::string as_text(const FlushReport& report) {
    std::string text =
        cost_table(report) + kind_table(report) + observed_tables(report) + executed_table(report);
    if (report.by_reason) text += reason_tables(report);
    if (report.crossover) text += crossover_text(report);
    text += fmt::format(
        "\ninput        {} ({}): {} events, {} spaces, {} CPUs, {} copies on write, pages of {}\n",
        report.input, report.format, grouped(report.events), grouped(report.spaces), report.cpus,
        grouped(report.copies), size_name(report.page_bytes));
    std::vector<std::string> shown;
    for (const FlushRow& row : report.rows) {
        if (std::find(shown.begin(), shown.end(), row.machine) != shown.end()) continue;
        shown.push_back(row.machine);
        text += wrapped(row.costs.source, "             ", 100, fmt::format("{:<12} ", row.machine));
    }
    if (!report.notes.empty()) text += "\nnotes\n";
    for (const std::string& note : report.notes) text += wrapped(note, "    ", 100, "  - ");
    return text;
}

std::string as_json(const FlushReport& report) {
    Json json{{"schema", 1},
              {"input", report.input},
              {"format", report.format},
              {"page", report.page_bytes},
              {"events", report.events},
              {"spaces", report.spaces},
              {"cpus", report.cpus},
              {"copies_on_write", report.copies},
              {"policies", Json::array()}};
    for (const FlushRow& row : report.rows) {
        Json one{{"policy", row.policy}, {"machine", row.machine}};
        one.update(json_of(row.account.total(), row, report.references));
        one["reasons"] = Json::array();
        for (std::size_t reason = 0; reason < flush::kReasons; ++reason) {
            const Tally& tally = row.account.by_reason[reason];
            if (tally == Tally{}) continue;
            Json part{{"reason", flush::name_of(static_cast<flush::Reason>(reason))}};
            part.update(json_of(tally, row, report.references));
            one["reasons"].push_back(part);
        }
        if (report.crossover) one["crossover"] = crossover_json(row);
        one["source"] = row.costs.source;
        json["policies"].push_back(one);
    }
    if (has_observed(report)) {
        const Observed& seen = report.observed;
        json["observed"] = {{"tlbie",
                             {{"local", by_scope(seen.local)},
                              {"global", by_scope(seen.global)},
                              {"kernel_local", by_scope(seen.kernel_local)},
                              {"kernel_global", by_scope(seen.kernel_global)}}}};
        Json flushes = Json::array();
        for (std::size_t reason = 0; reason <= Observed::kFlushReasons; ++reason)
            if (seen.flushes[reason] > 0)
                flushes.push_back({{"reason", flush::flush_reason_name(reason)},
                                   {"flushes", seen.flushes[reason]},
                                   {"full", seen.full_flushes[reason]},
                                   {"pages", seen.pages[reason]}});
        json["observed"]["tlb_flush"] = flushes;
    }
    if (!report.executed.empty()) {
        for (const auto& [name, count] : report.executed) json["executed"][name] = count;
    }
    json["notes"] = report.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const FlushReport& report) {
    std::string text = "policy,machine,reason,quantity,value\n";
    for (const FlushRow& row : report.rows) {
        const auto rows = [&](std::string_view reason, const Tally& tally) {
            const auto one = [&](std::string_view quantity, auto value) {
                text += fmt::format("{},{},{},{},{}\n", row.policy, row.machine, reason, quantity, value);
            };
            one("requests", tally.requests);
            one("skipped", tally.skipped);
            for (std::size_t scope = 0; scope < kTlbScopes; ++scope) {
                const std::string_view name = name_of(static_cast<TlbScope>(scope));
                one(fmt::format("local_{}", name), tally.local[scope]);
                one(fmt::format("global_{}", name), tally.global[scope]);
                one(fmt::format("local_{}_instructions", name), tally.local_instructions[scope]);
                one(fmt::format("global_{}_instructions", name), tally.global_instructions[scope]);
            }
            one("local_instructions", tally.instructions(false));
            one("global_instructions", tally.instructions(true));
            one("barriers", tally.barriers());
            one("fences", tally.fences);
            one("syncs", tally.syncs);
            one("ipis", tally.ipis);
            one("cpus_interrupted", tally.interrupted);
            if (report.references) {
                one("live_dropped", tally.live_dropped);
                one("refills", tally.refills);
            }
            const Duration time = flush::cost_of(tally, row.costs).total();
            one("nanoseconds", time.nanoseconds);
            one("nanoseconds_error", time.error);
            one("cycles", std::llround(time.nanoseconds * row.hertz / 1e9));
        };
        rows("", row.account.total());
        for (std::size_t reason = 0; reason < flush::kReasons; ++reason)
            if (row.account.by_reason[reason] != Tally{})
                rows(flush::name_of(static_cast<flush::Reason>(reason)), row.account.by_reason[reason]);
    }
    return text;
}

}  // namespace tlbscope::report
