#include "explain/breakdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

namespace tlbscope::explain {

namespace {

// One value of a dimension: cells with the same number belong to the same row.
using Value = std::uint64_t;

class Words {
  public:
    Words(const Attribution& attribution, const recording::Metadata& metadata, PageShift shift)
        : functions_(attribution.functions()), shift_(shift), metadata_(metadata) {
        for (const Function& function : functions_)
            objects_.push_back(object_numbers_.try_emplace(function.object, objects_.size()).first->second);
        for (const auto& [object, number] : object_numbers_) object_names_.emplace(number, object);
    }

    [[nodiscard]] Value value(Dimension dimension, const Cell& cell) const {
        switch (dimension) {
            case Dimension::kMode:
                return static_cast<Value>(cell.mode);
            case Dimension::kKind:
                return static_cast<Value>(cell.kind);
            case Dimension::kSide:
                return static_cast<Value>(cell.side);
            case Dimension::kRegion:
                return static_cast<Value>(cell.region);
            case Dimension::kFunction:
                return cell.function;
            case Dimension::kObject:
                return objects_[cell.function];
            case Dimension::kPage:
                return cell.page;
            case Dimension::kSpace:
                return cell.space;
            case Dimension::kCause:
                break;
        }
        return static_cast<Value>(cell.cause);
    }

    [[nodiscard]] std::string label(Dimension dimension, Value value) const {
        switch (dimension) {
            case Dimension::kMode:
            case Dimension::kSide:
                return value == 0 ? "user" : "kernel";
            case Dimension::kKind:
                return value == 0 ? "instruction" : "data";
            case Dimension::kRegion:
                return std::string(name_of(static_cast<Region>(value)));
            case Dimension::kFunction:
                return functions_[value].name;
            case Dimension::kObject:
                return object_names_.at(value);
            case Dimension::kPage:
                return fmt::format("{:#010x}", value << shift_.value());
            case Dimension::kSpace:
                return space_label(metadata_, static_cast<std::uint32_t>(value));
            case Dimension::kCause:
                break;
        }
        return std::string(replay::name_of(static_cast<Cause>(value)));
    }

    [[nodiscard]] const Function& function(Value value) const { return functions_[value]; }

  private:
    const std::vector<Function>& functions_;
    PageShift shift_;
    const recording::Metadata& metadata_;
    std::vector<Value> objects_;  // by function
    std::map<std::string, Value> object_numbers_;
    std::unordered_map<Value, std::string> object_names_;
};

struct Counted {
    Cell cell;
    std::uint64_t misses = 0;
};

// The cells that pass every filter.
std::vector<Counted> matching(const Attribution& attribution, const Question& question, const Words& words) {
    std::vector<std::unordered_map<Value, bool>> known(question.filters.size());
    std::vector<Counted> cells;
    attribution.cells().for_each([&](const Cell& cell, std::uint64_t misses) {
        for (std::size_t f = 0; f < question.filters.size(); ++f) {
            const Filter& filter = question.filters[f];
            const Value value = words.value(filter.dimension, cell);
            const auto [place, fresh] = known[f].try_emplace(value, false);
            if (fresh) place->second = std::regex_search(words.label(filter.dimension, value), filter.regex);
            if (!place->second) return;
        }
        cells.push_back({.cell = cell, .misses = misses});
    });
    return cells;
}

class Tree {
  public:
    Tree(const Question& question, const Words& words) : question_(question), words_(words) {
        const auto at = [&](Dimension d) {
            return std::find(question.by.begin(), question.by.end(), d) - question.by.begin();
        };
        names_objects_ = at(Dimension::kFunction) < at(Dimension::kObject);
    }

    [[nodiscard]] std::vector<Row> rows(const std::vector<Counted>& cells, std::size_t level) const {
        std::vector<Row> rows;
        if (level == question_.by.size()) return rows;
        const Dimension dimension = question_.by[level];
        std::map<Value, std::vector<Counted>> groups;
        for (const Counted& counted : cells) groups[words_.value(dimension, counted.cell)].push_back(counted);
        for (const auto& [value, group] : groups) {
            Row row{.label = words_.label(dimension, value)};
            if (dimension == Dimension::kFunction && names_objects_)
                row.object = words_.function(value).object;
            for (const Counted& counted : group) row.misses += counted.misses;
            rows.push_back(std::move(row));
        }
        // Groups of rows that will be shown are broken down further; the values are in the order of `rows`.
        std::vector<std::size_t> order(rows.size());
        for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
            if (rows[a].misses != rows[b].misses) return rows[a].misses > rows[b].misses;
            return std::tie(rows[a].label, rows[a].object) < std::tie(rows[b].label, rows[b].object);
        });
        std::vector<const std::vector<Counted>*> members;
        members.reserve(groups.size());
        for (const auto& [value, group] : groups) members.push_back(&group);
        const std::size_t shown = question_.rows == 0 ? order.size() : std::min(question_.rows, order.size());
        std::vector<Row> sorted;
        for (std::size_t i = 0; i < shown; ++i) {
            sorted.push_back(std::move(rows[order[i]]));
            sorted.back().rows = this->rows(*members[order[i]], level + 1);
        }
        if (shown == order.size()) return sorted;
        Row others{.label = fmt::format("[{} others]", order.size() - shown), .others = order.size() - shown};
        for (std::size_t i = shown; i < order.size(); ++i) others.misses += rows[order[i]].misses;
        sorted.push_back(std::move(others));
        return sorted;
    }

  private:
    const Question& question_;
    const Words& words_;
    bool names_objects_ = false;
};

std::unexpected<Error> unbalanced(const std::string& identity, std::uint64_t left, std::uint64_t right) {
    return fail("", fmt::format("the accounts do not add up: {}: {} against {}", identity, left, right),
                "this is a bug in tlbscope; please report it with the recording");
}

std::uint64_t sum(const std::vector<Row>& rows) {
    std::uint64_t misses = 0;
    for (const Row& row : rows) misses += row.misses;
    return misses;
}

Result<void> check(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
        if (row.rows.empty()) continue;
        if (sum(row.rows) != row.misses)
            return unbalanced("rows below " + row.label + " = its misses", sum(row.rows), row.misses);
        if (auto below = check(row.rows); !below) return below;
    }
    return {};
}

}  // namespace

std::string space_label(const recording::Metadata& metadata, std::uint32_t space) {
    if (space == kKernelSpace) return "kernel";
    for (const recording::Space& known : metadata.spaces) {
        if (known.id.value() != space || known.name.empty()) continue;
        // A program recorded by itself has the host's process id, which says nothing and is another every
        // time.
        return known.pid == 0 || !metadata.system ? known.name
                                                  : fmt::format("{} ({})", known.name, known.pid);
    }
    return fmt::format("space {}", space);
}

Result<Breakdown> break_down(const Attribution& attribution, const Question& question,
                             const recording::Metadata& metadata, replay::Ledger ledger) {
    for (const Kind kind : replay::kKinds)
        for (const Mode mode : replay::kModes)
            for (const Side side : replay::kSides)
                if (attribution.misses().at(kind, mode, side) != ledger.misses.at(kind, mode, side))
                    return unbalanced(
                        "misses attributed = misses of the ledger, in every kind, mode and side",
                        attribution.misses().at(kind, mode, side), ledger.misses.at(kind, mode, side));
    ledger.causes = attribution.causes();
    if (auto verified = ledger.verify(); !verified) return std::unexpected(verified.error());

    const Words words(attribution, metadata, attribution.shift());
    const std::vector<Counted> cells = matching(attribution, question, words);
    Breakdown breakdown{.by = question.by,
                        .filters = {},
                        .matched = 0,
                        .rows = Tree(question, words).rows(cells, 0),
                        .ledger = std::move(ledger)};
    for (const Filter& filter : question.filters) breakdown.filters.push_back(filter.text);
    for (const Counted& counted : cells) breakdown.matched += counted.misses;
    if (question.filters.empty() && breakdown.matched != breakdown.ledger.misses.total())
        return unbalanced("misses of all cells = misses of the ledger", breakdown.matched,
                          breakdown.ledger.misses.total());
    if (!question.by.empty() && sum(breakdown.rows) != breakdown.matched)
        return unbalanced("rows = misses that match", sum(breakdown.rows), breakdown.matched);
    if (auto balanced = check(breakdown.rows); !balanced) return std::unexpected(balanced.error());
    return breakdown;
}

std::vector<CodeCost> code_costs(const Attribution& attribution, const Question& question,
                                 const recording::Metadata& metadata, PageShift shift) {
    const Words words(attribution, metadata, shift);
    using Place = std::tuple<std::string, std::string, std::uint64_t>;
    std::map<Place, CodeCost> costs;
    for (const Counted& counted : matching(attribution, question, words)) {
        const Function& function = attribution.functions()[counted.cell.function];
        CodeCost& cost = costs[{function.object, function.name, counted.cell.instruction}];
        cost.function = function;
        cost.address = counted.cell.instruction;
        cost.by_kind[static_cast<std::size_t>(counted.cell.kind)] += counted.misses;
        cost.by_cause[counted.cell.cause] += counted.misses;
    }
    std::vector<CodeCost> list;
    list.reserve(costs.size());
    for (auto& [place, cost] : costs) list.push_back(std::move(cost));
    return list;
}

}  // namespace tlbscope::explain
