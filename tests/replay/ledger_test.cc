// Each identity of accounting, broken on purpose, is named.
#include "replay/ledger.h"

#include <gtest/gtest.h>

#include <functional>

#include "replay/notes.h"
#include "support/traces.h"

namespace tlbscope::replay {
namespace {

Ledger good() {
    Ledger ledger;
    ledger.machine = reference::simple_machine({});
    ledger.mapping = "4K";
    ledger.references.at(Kind::kInstruction, Mode::kUser, Side::kUser) = 90;
    ledger.references.at(Kind::kInstruction, Mode::kKernel, Side::kKernel) = 10;
    ledger.references.at(Kind::kData, Mode::kKernel, Side::kUser) = 40;
    ledger.lookups = ledger.references;
    ledger.lookups.at(Kind::kData, Mode::kKernel, Side::kUser) = 42;
    ledger.misses.at(Kind::kInstruction, Mode::kUser, Side::kUser) = 5;
    ledger.misses.at(Kind::kData, Mode::kKernel, Side::kUser) = 7;
    ledger.instructions = {80, 10};
    ledger.iterations = {10, 0};
    ledger.recorded = {.instructions = 100, .accesses = 40};
    for (const Kind kind : kKinds) {
        LevelCounts level;
        level.name = ledger.machine.tlb(kind).name;
        const auto k = static_cast<std::size_t>(kind);
        level.lookups[k] = ledger.lookups.of(kind);
        level.misses[k] = level.walks[k] = level.refills = ledger.misses.of(kind);
        level.hits = level.lookups[k] - level.misses[k];
        level.resident = level.refills - 2;
        level.evicted = 1;
        level.dropped = 1;
        ledger.levels.push_back(level);
    }
    return ledger;
}

TEST(Ledger, AcceptsWhatAddsUp) {
    const auto verified = good().verify();
    EXPECT_TRUE(verified) << verified.error().message();
}

TEST(Ledger, NamesEachBrokenIdentity) {
    const std::vector<std::pair<std::function<void(Ledger&)>, std::string>> cases{
        {[](Ledger& l) { ++l.levels[0].hits; },
         "hits + misses = lookups of tlb.instruction: 101 against 100"},
        {[](Ledger& l) { ++l.levels[1].refills; }, "refills = misses of tlb.data: 8 against 7"},
        {[](Ledger& l) { ++l.levels[1].walks[0]; },
         "refills from tables are misses of tlb.data: 1 against 0"},
        {[](Ledger& l) { l.levels.push_back({.name = "second", .level = 2, .lookups = {0, 9}, .hits = 9}); },
         "data lookups of level 2 are misses of the first: 9 against 7"},
        {[](Ledger& l) { --l.levels[1].resident; },
         "entries replaced, dropped and left = refills of tlb.data: 6 against 7"},
        {[](Ledger& l) { ++l.lookups.at(Kind::kData, Mode::kUser, Side::kKernel); },
         "data lookups by mode and side = lookups of the first level: 43 against 42"},
        {[](Ledger& l) { --l.misses.at(Kind::kInstruction, Mode::kUser, Side::kUser); },
         "instruction misses by mode and side = misses of the last level: 4 against 5"},
        {[](Ledger& l) {
             --l.misses.at(Kind::kData, Mode::kKernel, Side::kUser);
             ++l.misses.at(Kind::kData, Mode::kUser, Side::kUser);
         },
         "data misses are lookups, in every mode and side: 1 against 0"},
        {[](Ledger& l) { l.references.at(Kind::kData, Mode::kKernel, Side::kUser) = 43; },
         "data references are looked up, in every mode and side: 43 against 42"},
        {[](Ledger& l) { l.recorded.accesses = 41; },
         "data accesses replayed = those the recording counts: 40 against 41"},
        {[](Ledger& l) { l.iterations[1] = 1; },
         "instructions + repeated iterations = instruction fetches: 11 against 10"},
    };
    for (const auto& [damage, wanted] : cases) {
        Ledger ledger = good();
        damage(ledger);
        const auto verified = ledger.verify();
        ASSERT_FALSE(verified) << wanted;
        EXPECT_EQ(verified.error().what, "the accounts do not add up: " + wanted);
    }
}

// The mail thread's own numbers, with its subtractions done right: 340,313 more misses at 23 cycles are
// 7,827,199 cycles, 16.3 % of a second at 48 MHz.
TEST(Ledger, TurnsMissesIntoCycles) {
    const std::uint64_t v24[] = {2179, 1369, 180249, 167236};
    const std::uint64_t v26[] = {142369, 118288, 222916, 207773};
    Ledger more = good();
    more.misses = {};
    std::size_t i = 0;
    for (const Kind kind : kKinds)
        for (const Side side : kSides) {
            more.misses.at(kind, Mode::kKernel, side) = v26[i] - v24[i];
            ++i;
        }
    more.charge_misses();
    EXPECT_EQ(more.misses.total(), 340313u);
    EXPECT_EQ(more.refill_cycles(), Cycles(7827199));
    EXPECT_EQ(more.refill_cycles(Kind::kInstruction), Cycles(5913507));
}

TEST(Notes, SayWhatAReaderMustKnow) {
    Ledger ledger = good();
    ledger.machine.name = "m";
    ledger.machine.address_bits = 32;
    recording::Metadata metadata;
    metadata.target = "x86_64";
    ledger.pages_missed = 0xfffff;
    EXPECT_TRUE(notes_of(ledger, metadata).empty());
    ledger.pages_missed = 0x100000;  // page number of address 2^32
    ledger.invalidations_ignored = 1234;
    ledger.asid_reuses = 3;
    ledger.machine.asids.count = 2;
    metadata.not_recorded = {"a forked child"};
    metadata.early_ends = 5;
    metadata.uncertain_instructions = 9;
    const std::vector<std::string> notes = notes_of(ledger, metadata);
    ASSERT_EQ(notes.size(), 5u);
    EXPECT_EQ(notes[0],
              "m has 32-bit addresses and the recording uses more (x86_64): page numbers are kept whole, and "
              "a refill "
              "costs a fixed 23 cycles");
    EXPECT_EQ(notes[1],
              "address spaces took an identifier from another 3 times (the machine has 2), which dropped 2 "
              "entries");
    EXPECT_EQ(notes[2], "1,234 invalidations that the guest ran for its own MMU (x86_64) are not replayed");
    EXPECT_EQ(notes[3], "faults ended 5 executions midway; at most 9 instructions are counted wrongly");
    EXPECT_EQ(notes[4], "not recorded: a forked child");
}

}  // namespace
}  // namespace tlbscope::replay
