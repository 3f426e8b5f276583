#include "replay/ledger.h"

#include <fmt/format.h>

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

Cycles Ledger::refill_cycles(Kind kind) const { return machine.refill.cycles * misses.of(kind); }

Cycles Ledger::refill_cycles() const {
    return refill_cycles(Kind::kInstruction) + refill_cycles(Kind::kData);
}

Result<void> Ledger::verify() const {
    Identities check;
    for (const LevelCounts& level : levels) {
        check.equal(level.hits + level.misses, level.lookups,
                    fmt::format("hits + misses = lookups of tlb.{}", level.name));
        check.equal(level.refills, level.misses, fmt::format("refills = misses of tlb.{}", level.name));
        check.equal(level.evicted + level.dropped + level.resident, level.refills,
                    fmt::format("entries replaced, dropped and left = refills of tlb.{}", level.name));
        if (level.level != 1) continue;
        check.equal(
            lookups.of(level.kind), level.lookups,
            fmt::format("{} lookups by mode and side = lookups of tlb.{}", name(level.kind), level.name));
        check.equal(
            misses.of(level.kind), level.misses,
            fmt::format("{} misses by mode and side = misses of tlb.{}", name(level.kind), level.name));
    }
    for (const Kind kind : kKinds)
        for (const Mode mode : kModes)
            for (const Side side : kSides) {
                check.at_most(misses.at(kind, mode, side), lookups.at(kind, mode, side),
                              fmt::format("{} misses are lookups, in every mode and side", name(kind)));
                check.at_most(references.at(kind, mode, side), lookups.at(kind, mode, side),
                              fmt::format("{} references are looked up, in every mode and side", name(kind)));
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
