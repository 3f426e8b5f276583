#include "report/advise_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/numbers.h"
#include "core/text.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using advise::Advice;
using advise::Trial;

const char* name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }
const char* name(Mode mode) { return mode == Mode::kUser ? "user" : "kernel"; }
const char* name(Side side) { return side == Side::kUser ? "user" : "kernel"; }

std::uint64_t by_side(const replay::Counts& misses, Side side) {
    return misses.by_side(Kind::kInstruction, side) + misses.by_side(Kind::kData, side);
}

// "-98.7 %" of what was there before; "-100.0 %" only where nothing is left.
std::string change(std::uint64_t before, std::uint64_t after) {
    if (before == 0) return after == 0 ? "-" : "new";
    const double percent =
        (static_cast<double>(after) - static_cast<double>(before)) / static_cast<double>(before) * 100;
    if (after == 0 || percent > -99.95) return fmt::format("{:+.1f} %", percent == 0 ? 0.0 : percent);
    return fmt::format("{:+.2f} %", std::max(percent, -99.99));
}

std::string signed_number(std::int64_t value) {
    return (value < 0 ? "-" : "") +
           grouped(value < 0 ? -static_cast<std::uint64_t>(value) : static_cast<std::uint64_t>(value));
}

std::string loser_text(const advise::Loser& loser) {
    return fmt::format("{} in {}, {} mode: {} -> {}", loser.kind == Kind::kInstruction ? "fetches" : "data",
                       addrspace::name_of(loser.region), name(loser.mode), grouped(loser.before),
                       grouped(loser.after));
}

std::string taken_text(const advise::Costs& costs) {
    std::string text;
    for (const auto& taken : costs.taken)
        text += fmt::format("{}{} of tlb.{}", text.empty() ? "" : ", ", taken.entries, taken.array);
    return text;
}

// What a remedy costs, in a sentence or a few.
std::string cost_text(const Trial& trial) {
    const advise::Costs& costs = trial.costs;
    std::vector<std::string> parts;
    if (trial.remedy.hardware()) parts.emplace_back("another chip");
    if (!costs.taken.empty()) parts.push_back("entries that all others lose: " + taken_text(costs));
    if (costs.memory > 0) {
        parts.push_back(fmt::format(
            "at most {} of memory that the run did not touch{}", human_bytes(costs.memory),
            costs.outside_maps
                ? fmt::format(", {} of it outside the program's maps", human_bytes(*costs.outside_maps))
                : ""));
    } else if (!trial.remedy.hardware() && trial.remedy.family != advise::Family::kHandler) {
        parts.emplace_back("no memory");
    }
    if (costs.break_even)
        parts.push_back(
            fmt::format("a handler that tells page sizes apart: worth it while that adds less than {:.1f} "
                        "cycles to each miss left",
                        *costs.break_even));
    if (costs.losers.empty()) {
        parts.emplace_back("nothing misses more than before");
    } else {
        const std::size_t shown = std::min<std::size_t>(costs.losers.size(), 3);
        std::string text = "who misses more: ";
        for (std::size_t i = 0; i < shown; ++i) text += (i == 0 ? "" : ", ") + loser_text(costs.losers[i]);
        if (shown < costs.losers.size()) text += fmt::format(", {} others", costs.losers.size() - shown);
        parts.push_back(text);
    }
    return fmt::format("{}", fmt::join(parts, "; "));
}

class Text {
  public:
    explicit Text(bool color) : color_(color) {}

    void fact(const std::string& title, const std::string& text) {
        out_ += wrapped(text, "           ", 110, fmt::format("{:<11}", title));
    }
    void strong(const std::string& text) { out_ += (color_ ? "\033[1m" + text + "\033[0m" : text) + "\n"; }
    void line(const std::string& text) { out_ += text + "\n"; }
    void trial(const Advised& advised, const std::string& title, const Trial& trial) {
        const Trial& base = advised.advice.base;
        fact(title, trial.remedy.title);
        fact("  leaves",
             fmt::format("{} of {} misses ({}) and {} of {} cycles ({})", grouped(trial.misses.total()),
                         grouped(base.misses.total()), change(base.misses.total(), trial.misses.total()),
                         grouped(trial.cycles.value()), grouped(base.cycles.value()),
                         change(base.cycles.value(), trial.cycles.value())));
        std::string sides;
        for (const Side side : {Side::kKernel, Side::kUser}) {
            const std::uint64_t before = by_side(base.misses, side);
            const std::uint64_t after = by_side(trial.misses, side);
            if (before == 0 && after == 0) continue;
            sides += fmt::format("{}{} side {} -> {} ({})", sides.empty() ? "" : "; ", name(side),
                                 grouped(before), grouped(after), change(before, after));
        }
        if (!sides.empty()) fact("", sides);
        fact("  costs", cost_text(trial));
        // Not wrapped: it is to be copied.
        line("           " + command_of(advised, trial));
    }
    std::string take() { return std::move(out_); }

  private:
    bool color_;
    std::string out_;
};

void table(Text& text, const Advice& advice, std::size_t most) {
    const std::size_t shown = most == 0 ? advice.trials.size() : std::min(most, advice.trials.size());
    std::size_t wide = 6;
    for (std::size_t i = 0; i < shown; ++i) wide = std::max(wide, advice.trials[i].remedy.title.size());
    text.line("");
    text.strong(fmt::format("{:<{}} {:>14} {:>8} {:>12} {:>9} {:>9} {:>9}  {}", "remedy", wide,
                            "cycles saved", "of all", "misses left", "kernel", "user", "memory",
                            "who misses more, most"));
    const Trial& base = advice.base;
    for (std::size_t i = 0; i < shown; ++i) {
        const Trial& trial = advice.trials[i];
        const std::int64_t saved = advice.saved(trial);
        const double share = base.cycles.value() == 0 ? 0
                                                      : static_cast<double>(saved) /
                                                            static_cast<double>(base.cycles.value()) * 100;
        const auto side = [&](Side of) {
            return change(by_side(base.misses, of), by_side(trial.misses, of));
        };
        const auto& losers = trial.costs.losers;
        std::string line =
            fmt::format("{:<{}} {:>14} {:>6.1f} % {:>11} {:>9} {:>9} {:>9}  {}", trial.remedy.title, wide,
                        signed_number(saved), share == 0 ? 0.0 : share, grouped(trial.misses.total()),
                        side(Side::kKernel), side(Side::kUser),
                        trial.costs.memory == 0 ? "-" : human_bytes(trial.costs.memory),
                        losers.empty() ? "-" : loser_text(losers.front()));
        text.line(line);
    }
    if (shown < advice.trials.size()) text.line(fmt::format("[{} others]", advice.trials.size() - shown));
}

void pins(Text& text, const Advised& advised) {
    const Advice& advice = advised.advice;
    if (advice.pins.empty()) return;
    text.line("");
    text.strong(fmt::format("{:<28} {:>14} {:>14} {:>12}", "pinned entries, the best", "cycles saved",
                            "by the last", "misses left"));
    std::uint64_t before = advice.base.cycles.value();
    for (const Trial& trial : advice.pins) {
        text.line(fmt::format("{:<3} + {:<22} {:>14} {:>14} {:>12}", trial.remedy.change.pins.size(),
                              trial.remedy.change.pins.back(), signed_number(advice.saved(trial)),
                              grouped(before - trial.cycles.value()), grouped(trial.misses.total())));
        before = trial.cycles.value();
    }
}

Json misses_json(const replay::Counts& misses) {
    Json json;
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) json[name(kind)][name(side)] = misses.by_side(kind, side);
    return json;
}

Json trial_json(const Advised& advised, const Trial& trial) {
    const Advice& advice = advised.advice;
    Json json{{"remedy", trial.remedy.title},          {"family", advise::name_of(trial.remedy.family)},
              {"hardware", trial.remedy.hardware()},   {"options", trial.remedy.change.options()},
              {"command", command_of(advised, trial)}, {"misses", misses_json(trial.misses)},
              {"total", trial.misses.total()},         {"cycles", trial.cycles.value()},
              {"cycles_saved", advice.saved(trial)}};
    Json costs;
    costs["entries"] = Json::array();
    for (const auto& taken : trial.costs.taken)
        costs["entries"].push_back({{"array", taken.array}, {"entries", taken.entries}});
    costs["memory_bytes_at_most"] = trial.costs.memory;
    costs["memory_outside_maps"] = trial.costs.outside_maps ? Json(*trial.costs.outside_maps) : Json(nullptr);
    costs["cycles_a_miss_may_grow"] = trial.costs.break_even ? Json(*trial.costs.break_even) : Json(nullptr);
    costs["losers"] = Json::array();
    for (const advise::Loser& loser : trial.costs.losers)
        costs["losers"].push_back({{"kind", name(loser.kind)},
                                   {"mode", name(loser.mode)},
                                   {"region", addrspace::name_of(loser.region)},
                                   {"before", loser.before},
                                   {"after", loser.after}});
    json["costs"] = std::move(costs);
    return json;
}

std::string quoted(const std::string& text) {
    return text.find_first_of(",\"") == std::string::npos ? text : "\"" + text + "\"";
}

}  // namespace

std::string command_of(const Advised& advised, const Trial& trial) {
    advise::Change change = trial.remedy.change;
    if (change.handler.empty()) change.handler = advised.handler;
    const std::string options = change.options();
    return advised.command + (options.empty() ? "" : " ") + options;
}

std::string stopped_text(const Advised& advised) {
    if (!advised.advice.stopped) return {};
    return fmt::format(
        "stopped by {}: at least {} {} not tried, and what is said here is the best of the rest",
        advised.stopped, grouped(advised.advice.untried),
        advised.advice.untried == 1 ? "remedy was" : "remedies were");
}

std::string as_text(const Advised& advised, bool color) {
    const Advice& advice = advised.advice;
    Text text(color);
    if (advice.first)
        text.trial(advised, "do first", advice.trials[*advice.first]);
    else
        text.fact("do first", advice.base.misses.total() == 0 ? "nothing: there are no misses"
                              : advice.stopped ? "unknown: nothing that was tried saves a cycle"
                                               : "nothing: no remedy tried here saves a cycle");
    if (advice.pair_helps) text.trial(advised, "best pair", advice.pairs.front());
    text.line("");
    text.fact("machine", fmt::format("{}: {}", advice.base.machine.name, advice.base.machine.title));
    text.fact("pages", advice.ledger.mapping);
    text.fact("recording",
              fmt::format("{}: {}", advised.recording, fmt::join(advised.metadata.command, " ")));
    text.fact(
        "as it is",
        fmt::format("{} misses, {} on the kernel's side and {} on the user's; {} cycles",
                    grouped(advice.base.misses.total()), grouped(by_side(advice.base.misses, Side::kKernel)),
                    grouped(by_side(advice.base.misses, Side::kUser)), grouped(advice.base.cycles.value())));
    text.fact("tried", fmt::format("{} replays in {} passes", advice.replays, advice.passes));
    table(text, advice, advised.rows);
    pins(text, advised);
    std::vector<std::string> notes = advice.ledger.notes;
    if (advice.stopped) notes.insert(notes.begin(), stopped_text(advised));
    std::map<std::string, std::string> refused;  // what was, by reason
    for (const auto& refusal : advice.refusals) {
        std::string& titles = refused[refusal.reason];
        titles += (titles.empty() ? "" : ", ") + refusal.title;
    }
    for (const auto& [reason, titles] : refused)
        notes.push_back(fmt::format("not tried: {}: {}", titles, reason));
    if (!notes.empty()) {
        text.line("");
        text.strong("notes");
    }
    std::string out = text.take();
    for (const std::string& note : notes) out += wrapped(note, "    ", 100, "  - ");
    return out;
}

std::string as_json(const Advised& advised) {
    const Advice& advice = advised.advice;
    const auto list = [&](const std::vector<Trial>& trials) {
        Json json = Json::array();
        for (const Trial& trial : trials) json.push_back(trial_json(advised, trial));
        return json;
    };
    Json json{{"schema", 1},
              {"recording", advised.recording},
              {"machine", advice.base.machine.name},
              {"mapping", advice.ledger.mapping},
              {"command", command_of(advised, advice.base)},
              {"misses", misses_json(advice.base.misses)},
              {"total", advice.base.misses.total()},
              {"cycles", advice.base.cycles.value()},
              {"first", advice.first ? trial_json(advised, advice.trials[*advice.first]) : Json(nullptr)},
              {"pair", advice.pair_helps ? trial_json(advised, advice.pairs.front()) : Json(nullptr)},
              {"remedies", list(advice.trials)},
              {"pins", list(advice.pins)},
              {"pairs", list(advice.pairs)}};
    json["refused"] = Json::array();
    for (const auto& refusal : advice.refusals)
        json["refused"].push_back({{"remedy", refusal.title}, {"reason", refusal.reason}});
    json["passes"] = advice.passes;
    json["replays"] = advice.replays;
    json["stopped"] = advice.stopped ? Json(stopped_text(advised)) : Json(nullptr);
    json["not_tried"] = advice.untried;
    json["notes"] = advice.ledger.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const Advised& advised) {
    const Advice& advice = advised.advice;
    std::string out =
        "what,remedy,family,options,instruction_user,instruction_kernel,data_user,data_kernel,misses,cycles,"
        "cycles_saved,memory_bytes_at_most\n";
    const auto row = [&](const char* what, const Trial& trial) {
        out += fmt::format("{},{},{},{}", what, quoted(trial.remedy.title),
                           trial.remedy.title.empty() ? "" : advise::name_of(trial.remedy.family),
                           quoted(trial.remedy.change.options()));
        for (const Kind kind : replay::kKinds)
            for (const Side side : replay::kSides)
                out += fmt::format(",{}", trial.misses.by_side(kind, side));
        out += fmt::format(",{},{},{},{}\n", trial.misses.total(), trial.cycles.value(), advice.saved(trial),
                           trial.costs.memory);
    };
    row("base", advice.base);
    for (const Trial& trial : advice.trials) row("remedy", trial);
    for (const Trial& trial : advice.pins) row("pins", trial);
    for (const Trial& trial : advice.pairs) row("pair", trial);
    return out;
}

}  // namespace tlbscope::report
