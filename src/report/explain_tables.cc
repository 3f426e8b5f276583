// The same rows for programs: one per innermost row. A row that stands for the rest of its level has
// "[N others]" there and nothing below.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "report/explain_report.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using explain::Breakdown;
using explain::Dimension;
using explain::Row;

// Calls `visit` with the rows from the outermost to each innermost one.
void innermost(const std::vector<Row>& rows, std::vector<const Row*>& above,
               const std::function<void(const std::vector<const Row*>&)>& visit) {
    for (const Row& row : rows) {
        above.push_back(&row);
        if (row.rows.empty())
            visit(above);
        else
            innermost(row.rows, above, visit);
        above.pop_back();
    }
}

double share(std::uint64_t misses, const Breakdown& breakdown) {
    const std::uint64_t all = breakdown.ledger.misses.total();
    return all == 0 ? 0 : static_cast<double>(misses) / static_cast<double>(all);
}

std::uint64_t cycles(std::uint64_t misses, const Breakdown& breakdown) {
    return (breakdown.ledger.machine.refill.cycles * misses).value();
}

std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}

bool names_objects(const Breakdown& breakdown) {
    return std::find(breakdown.by.begin(), breakdown.by.end(), Dimension::kObject) != breakdown.by.end();
}

}  // namespace

std::string as_json(const Explanation& explanation) {
    const Breakdown& breakdown = explanation.breakdown;
    const replay::Ledger& ledger = breakdown.ledger;
    Json json{{"schema", 1},
              {"recording", explanation.recording},
              {"machine", ledger.machine.name},
              {"changes", ledger.machine.changes},
              {"mapping", ledger.mapping}};
    json["by"] = Json::array();
    for (const Dimension dimension : breakdown.by) json["by"].push_back(name_of(dimension));
    json["filters"] = breakdown.filters;
    json["rows"] = Json::array();
    std::vector<const Row*> above;
    innermost(breakdown.rows, above, [&](const std::vector<const Row*>& path) {
        Json row{{"keys", Json::object()}};
        for (std::size_t i = 0; i < path.size(); ++i) {
            row["keys"][std::string(name_of(breakdown.by[i]))] = path[i]->label;
            if (!path[i]->object.empty()) row["keys"]["object"] = path[i]->object;
        }
        const std::uint64_t misses = path.back()->misses;
        row["misses"] = misses;
        row["share"] = share(misses, breakdown);
        row["cycles"] = cycles(misses, breakdown);
        if (path.back()->others > 0) row["others"] = path.back()->others;
        json["rows"].push_back(std::move(row));
    });
    json["total"] = {{"misses", breakdown.matched},
                     {"share", share(breakdown.matched, breakdown)},
                     {"cycles", cycles(breakdown.matched, breakdown)},
                     {"all_misses", ledger.misses.total()}};
    for (const replay::Cause cause : replay::kCauses)
        json["causes"][std::string(name_of(cause))] = (*ledger.causes)[0][cause] + (*ledger.causes)[1][cause];
    json["notes"] = ledger.notes;
    // Names in programs are bytes, not necessarily UTF-8.
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const Explanation& explanation) {
    const Breakdown& breakdown = explanation.breakdown;
    std::string out;
    for (const Dimension dimension : breakdown.by) {
        out += fmt::format("{},", name_of(dimension));
        if (dimension == Dimension::kFunction && !names_objects(breakdown)) out += "object,";
    }
    out += "misses,share,cycles\n";
    std::vector<const Row*> above;
    innermost(breakdown.rows, above, [&](const std::vector<const Row*>& path) {
        for (std::size_t i = 0; i < breakdown.by.size(); ++i) {
            out += (i < path.size() ? quoted(path[i]->label) : "") + ",";
            if (breakdown.by[i] == Dimension::kFunction && !names_objects(breakdown))
                out += (i < path.size() ? quoted(path[i]->object) : "") + ",";
        }
        const std::uint64_t misses = path.back()->misses;
        out += fmt::format("{},{},{}\n", misses, share(misses, breakdown), cycles(misses, breakdown));
    });
    return out;
}

}  // namespace tlbscope::report
