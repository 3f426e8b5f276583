#include "replay/ledger.h"

#include <fmt/format.h>

#include "machine/routes.h"

namespace tlbscope::replay {

namespace {

std::string_view name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }

// Collects the first identity that does not hold.
class Identities {
  public:
    void equal(std::uint64_t left, std::uint64_t right, const std::string& identity) {
        if (left != right) broken(identity, left, right);
    }
    void at_most(std::uint64_t left, std::uint64_t right, const std::string& identity) {
        if (left > right) broken(identity, left, right);
    }
    [[nodiscard]] const std::string& first() const { return first_; }

  private:
    void broken(const std::string& identity, std::uint64_t left, std::uint64_t right) {
        if (first_.empty()) first_ = fmt::format("{}: {} against {}", identity, left, right);
    }
    std::string first_;
};

}  // namespace

void Ledger::charge_misses() {
    for (const Kind kind : kKinds)
        refill[static_cast<std::size_t>(kind)] = machine.refill.cycles * misses.of(kind);
}

Cycles Ledger::refill_cycles(Kind kind) const {
    const auto k = static_cast<std::size_t>(kind);
    return refill[k] + later_hits[k];
}

Cycles Ledger::refill_cycles() const {
    return refill_cycles(Kind::kInstruction) + refill_cycles(Kind::kData);
}

Result<void> Ledger::verify() const {
    Identities check;
    // By kind: what the arrays of each level looked up, and which misses led to a refill.
    std::array<std::array<std::uint64_t, 2>, machine::kMostLevels + 1> looked_up{}, missed{};
    std::array<std::uint64_t, 2> walks{};
    for (const LevelCounts& level : levels) {
        for (const std::size_t k : {0, 1}) {
            check.at_most(level.walks[k], level.misses[k],
                          fmt::format("refills from tables are misses of tlb.{}", level.name));
            looked_up[level.level][k] += level.lookups[k];
            missed[level.level][k] += level.misses[k];
            walks[k] += level.walks[k];
        }
        check.equal(level.hits + level.misses_total(), level.lookups_total(),
                    fmt::format("hits + misses = lookups of tlb.{}", level.name));
        check.equal(level.refills, level.misses_total() + level.loads,
                    fmt::format("refills = misses of tlb.{}", level.name));
        check.equal(level.evicted + level.dropped + level.resident, level.refills + level.pinned,
                    fmt::format("entries replaced, dropped and left = refills of tlb.{}", level.name));
    }
    for (const Kind kind : kKinds) {
        const auto k = static_cast<std::size_t>(kind);
        check.equal(lookups.of(kind), looked_up[1][k],
                    fmt::format("{} lookups by mode and side = lookups of the first level", name(kind)));
        check.equal(misses.of(kind), walks[k],
                    fmt::format("{} misses by mode and side = misses of the last level", name(kind)));
        for (std::uint32_t level = 2; level <= machine::kMostLevels; ++level)
            check.at_most(looked_up[level][k], missed[1][k],
                          fmt::format("{} lookups of level {} are misses of the first", name(kind), level));
    }
    for (const Kind kind : kKinds)
        for (const Mode mode : kModes)
            for (const Side side : kSides) {
                check.at_most(misses.at(kind, mode, side), lookups.at(kind, mode, side),
                              fmt::format("{} misses are lookups, in every mode and side", name(kind)));
                check.at_most(references.at(kind, mode, side), lookups.at(kind, mode, side),
                              fmt::format("{} references are looked up, in every mode and side", name(kind)));
            }
    if (!refill_paths.empty()) {
        std::uint64_t cycles = machine.refill.cycles.value() * fixed_refills;
        std::uint64_t times = fixed_refills;
        std::uint64_t nested = 0;
        for (const PathTotals& path : refill_paths) {
            cycles += path.cycles;
            times += path.times;
        }
        for (const LevelCounts& level : levels) nested += level.nested_misses;
        check.equal(times, misses.total() + nested, "paths taken = misses and nested misses");
        check.equal(cycles, (refill[0] + refill[1]).value(), "cycles of the paths = cycles of the refills");
    }
    if (causes)
        for (const Kind kind : kKinds)
            check.equal((*causes)[static_cast<std::size_t>(kind)].total(), misses.of(kind),
                        fmt::format("{} misses by cause = {} misses", name(kind), name(kind)));
    check.equal(references.of(Kind::kInstruction), recorded.instructions,
                "instruction fetches replayed = those the recording counts");
    check.equal(references.of(Kind::kData), recorded.accesses,
                "data accesses replayed = those the recording counts");
    for (const Side side : kSides) {
        const auto i = static_cast<std::size_t>(side);
        if (full())
            check.equal(instructions[i] + iterations[i], references.by_side(Kind::kInstruction, side),
                        "instructions + repeated iterations = instruction fetches");
    }
    if (check.first().empty()) return {};
    return fail("", fmt::format("the accounts do not add up: {}", check.first()),
                "this is a bug in tlbscope; please report it with the recording");
}

}  // namespace tlbscope::replay
