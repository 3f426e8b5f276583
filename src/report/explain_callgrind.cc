// Costs by instruction. Two sets of events add up to all misses each: by array, and by cause.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>

#include "report/explain_report.h"

namespace tlbscope::report {

namespace {

// Names are written once and then referred to by number, as the format allows.
class Numbered {
  public:
    std::string operator()(const std::string& name) {
        const auto [place, fresh] = numbers_.try_emplace(name, numbers_.size() + 1);
        return fresh ? fmt::format("({}) {}", place->second, one_line(name))
                     : fmt::format("({})", place->second);
    }
    static std::string one_line(std::string name) {
        for (char& c : name)
            if (c == '\n' || c == '\r') c = '?';
        return name;
    }

  private:
    std::unordered_map<std::string, std::size_t> numbers_;
};

std::string costs_of(const std::array<std::uint64_t, 2>& by_kind, const replay::CauseCounts& by_cause) {
    std::string text = fmt::format("{} {}", by_kind[0], by_kind[1]);
    for (const replay::Cause cause : replay::kCauses) text += fmt::format(" {}", by_cause[cause]);
    return text;
}

}  // namespace

std::string as_callgrind(const Explanation& explanation, std::span<const explain::CodeCost> costs,
                         const std::string& version) {
    std::array<std::uint64_t, 2> by_kind{};
    replay::CauseCounts by_cause;
    for (const explain::CodeCost& cost : costs) {
        for (std::size_t kind = 0; kind < by_kind.size(); ++kind) by_kind[kind] += cost.by_kind[kind];
        by_cause += cost.by_cause;
    }
    std::string out = fmt::format(
        "# callgrind format\nversion: 1\ncreator: tlbscope {}\ncmd: {}\npart: 1\n\n"
        "desc: Machine: {}\n",
        version, Numbered::one_line(fmt::format("{}", fmt::join(explanation.metadata.command, " "))),
        explanation.breakdown.ledger.machine.name);
    for (const std::string& filter : explanation.breakdown.filters)
        out += fmt::format("desc: Filter: {}\n", Numbered::one_line(filter));
    out += "\npositions: instr\nevents: Instruction Data";
    for (const replay::Cause cause : replay::kCauses) {
        std::string name(name_of(cause));
        name[0] = static_cast<char>(name[0] - 'a' + 'A');
        out += " " + name;
    }
    out += fmt::format("\nsummary: {}\n", costs_of(by_kind, by_cause));
    Numbered objects, files, functions;
    const explain::Function* last = nullptr;
    for (const explain::CodeCost& cost : costs) {
        if (last == nullptr || last->object != cost.function.object)
            out += fmt::format("\nob={}\n", objects(cost.function.object));
        if (last == nullptr || last->object != cost.function.object || last->name != cost.function.name)
            out += fmt::format("\nfl={}\nfn={}\n", files("???"), functions(cost.function.name));
        out += fmt::format("{:#x} {}\n", cost.address, costs_of(cost.by_kind, cost.by_cause));
        last = &cost.function;
    }
    out += fmt::format("\ntotals: {}\n", costs_of(by_kind, by_cause));
    return out;
}

}  // namespace tlbscope::report
