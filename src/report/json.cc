#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/report.h"

namespace tlbscope::report {

namespace {

// Keys in the order they are written here: answers first.
using Json = nlohmann::ordered_json;
using replay::Counts;
using replay::Ledger;

const char* name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }
const char* name(Side side) { return side == Side::kUser ? "user" : "kernel"; }
const char* name(Mode mode) { return mode == Mode::kUser ? "user" : "kernel"; }

template <class Get>
Json by_kind_and_side(Get get) {
    Json json;
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) json[name(kind)][name(side)] = get(kind, side);
    return json;
}

Json by_side(const Counts& counts) {
    return by_kind_and_side([&](Kind kind, Side side) { return counts.by_side(kind, side); });
}

// What a page-granularity recording does not tell is null, not 0.
Json sides(const Ledger& ledger, const std::array<std::uint64_t, 2>& counts) {
    Json json;
    for (const Side side : replay::kSides)
        json[name(side)] = ledger.full() ? Json(counts[static_cast<std::size_t>(side)]) : Json(nullptr);
    return json;
}

Json rate(std::uint64_t misses, std::uint64_t instructions) {
    return instructions == 0 ? Json(nullptr)
                             : Json(static_cast<double>(misses) * 1000 / static_cast<double>(instructions));
}

const char* serves(const replay::LevelCounts& level) {
    return level.instruction && level.data ? "both" : level.instruction ? "instruction" : "data";
}

Json sizes(const std::vector<PageShift>& pages) {
    Json json = Json::array();
    for (const PageShift size : pages) json.push_back(size.bytes());
    return json;
}

Json as_json(const Ledger& ledger, const Replay& replay) {
    Json json;
    json["machine"] = ledger.machine.name;
    json["changes"] = ledger.machine.changes;
    json["mapping"] = ledger.mapping;
    json["granularity"] = ledger.full() ? "full" : "page";
    json["references"] = by_side(ledger.references);
    json["instructions"] = sides(ledger, ledger.instructions);
    json["iterations"] = sides(ledger, ledger.iterations);
    json["misses"] = by_side(ledger.misses);
    for (const Mode mode : replay::kModes) {
        Json& in_mode = json["by_mode"][name(mode)];
        in_mode["references"] =
            by_kind_and_side([&](Kind kind, Side side) { return ledger.references.at(kind, mode, side); });
        in_mode["misses"] =
            by_kind_and_side([&](Kind kind, Side side) { return ledger.misses.at(kind, mode, side); });
    }
    json["per_1000_instructions"] = {
        {"misses", ledger.full() ? rate(ledger.misses.total(), ledger.instructions_total()) : Json(nullptr)},
        {"misses_iterations_counted", rate(ledger.misses.total(), ledger.references.of(Kind::kInstruction))}};
    json["levels"] = Json::array();
    for (const replay::LevelCounts& level : ledger.levels)
        json["levels"].push_back({{"name", level.name},
                                  {"level", level.level},
                                  {"serves", serves(level)},
                                  {"pages", sizes(level.pages)},
                                  {"entries", level.geometry.entries},
                                  {"ways", level.geometry.ways},
                                  {"reserved", level.geometry.reserved},
                                  {"replacement", name_of(level.geometry.replacement)},
                                  {"lookups", level.lookups_total()},
                                  {"hits", level.hits},
                                  {"misses", level.misses_total()},
                                  {"walks", level.walks[0] + level.walks[1]},
                                  {"refills", level.refills},
                                  {"loads", level.loads},
                                  {"pinned", level.pinned},
                                  {"replaced", level.evicted},
                                  {"dropped", level.dropped}});
    json["causes"] = Json::object();
    if (ledger.causes)
        for (const replay::Cause cause : replay::kCauses) {
            const std::string word(name_of(cause));
            json["causes"][word] = (*ledger.causes)[0][cause] + (*ledger.causes)[1][cause];
            for (const Kind kind : replay::kKinds)
                json["causes_by_kind"][name(kind)][word] =
                    (*ledger.causes)[static_cast<std::size_t>(kind)][cause];
        }
    const Share share = share_of(ledger, replay.elapsed, replay.clock);
    json["cycles"] = {{"refill", ledger.refill_cycles().value()},
                      {"refill_instruction", ledger.refill_cycles(Kind::kInstruction).value()},
                      {"refill_data", ledger.refill_cycles(Kind::kData).value()},
                      {"walks", ledger.refill[0].value() + ledger.refill[1].value()},
                      {"later_hits", ledger.later_hits[0].value() + ledger.later_hits[1].value()},
                      {"per_miss", ledger.machine.refill.cycles.value()}};
    json["share"] = {{"of_run", share.fraction},
                     {"estimate", share.estimate},
                     {"clock_hertz", share.clock},
                     {"run_cycles", share.run_cycles},
                     {"refill_nanoseconds", share.refill_seconds * 1e9}};
    json["refill_paths"] = Json::array();
    for (const replay::PathTotals& path : ledger.refill_paths)
        json["refill_paths"].push_back({{"path", path.name},
                                        {"times", path.times},
                                        {"cycles", path.cycles},
                                        {"instructions", path.instructions},
                                        {"table_loads", path.table_loads},
                                        {"table_misses", path.table_misses},
                                        {"other_loads", path.other_loads},
                                        {"other_misses", path.other_misses},
                                        {"lines", path.lines},
                                        {"line_misses", path.line_misses}});
    if (ledger.machine.refill.derived) {
        json["cycles"]["derived"] = true;
        json["cycles"]["per_miss"] =
            ledger.misses.total() == 0
                ? Json(nullptr)
                : Json(static_cast<double>(ledger.refill[0].value() + ledger.refill[1].value()) /
                       static_cast<double>(ledger.misses.total()));
        json["fixed_refills"] = ledger.fixed_refills;
        json["table_bytes"] = ledger.table_bytes;
    }
    json["asid_reuses"] = ledger.asid_reuses;
    json["space_switches"] = ledger.space_switches;
    json["invalidations_ignored"] = ledger.invalidations_ignored;
    json["pins"] = Json::array();
    for (const replay::Pin& pin : ledger.pins)
        json["pins"].push_back({{"rule", pin.rule},
                                {"array", pin.array},
                                {"cpu", pin.cpu},
                                {"start", fmt::format("{:#x}", pin.start.value())},
                                {"bytes", pin.size.bytes()},
                                {"state", pin.refused             ? "refused"
                                          : pin.killed_by.empty() ? "alive"
                                                                  : "killed"},
                                {"killed_by", pin.killed_by},
                                {"killed_at", pin.killed_at},
                                {"misses_after", pin.misses_after}});
    json["notes"] = ledger.notes;
    return json;
}

}  // namespace

std::string as_json(const Replay& replay) {
    Json json{{"schema", 1}, {"recording", replay.recording}, {"ledgers", Json::array()}};
    for (const Ledger& ledger : replay.ledgers) json["ledgers"].push_back(as_json(ledger, replay));
    // Commands and paths of a recording are bytes, not necessarily UTF-8.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tlbscope::report
