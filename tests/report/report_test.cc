// Reports compared with files, character by character. TLBSCOPE_UPDATE=1 writes the files anew; read the
// diff.
#include "report/report.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/files.h"
#include "support/traces.h"

namespace tlbscope::report {
namespace {

void golden(const std::string& name, const std::string& text) {
    const std::string path = std::string(GOLDEN) + "/" + name;
    if (std::getenv("TLBSCOPE_UPDATE") != nullptr) {
        ASSERT_TRUE(write_text(path, text));
    }
    const auto wanted = read_text(path);
    ASSERT_TRUE(wanted) << wanted.error().message();
    EXPECT_EQ(text, *wanted);
}

// The v2.6 run of the mail thread, with made-up references.
Replay dd() {
    Replay replay;
    replay.recording = "tlbscope.rec";
    replay.metadata.command = {"dd", "if=/dev/zero", "of=file", "bs=4k", "count=3840"};
    replay.metadata.target = "ppc";
    replay.metadata.system = true;
    replay::Ledger ledger;
    ledger.machine = reference::simple_machine({.entries = 32,
                                                .ways = 32,
                                                .reserved = 0,
                                                .replacement = machine::Replacement::kFifoDown,
                                                .seed = 1});
    ledger.machine.name = "mpc855t";
    ledger.machine.title = "Motorola MPC855T";
    ledger.mapping = "4K";
    ledger.misses.at(Kind::kInstruction, Mode::kUser, Side::kUser) = 142369;
    ledger.misses.at(Kind::kInstruction, Mode::kKernel, Side::kKernel) = 118288;
    ledger.misses.at(Kind::kData, Mode::kUser, Side::kUser) = 22916;
    ledger.misses.at(Kind::kData, Mode::kKernel, Side::kUser) = 200000;
    ledger.misses.at(Kind::kData, Mode::kKernel, Side::kKernel) = 207773;
    ledger.references.at(Kind::kInstruction, Mode::kUser, Side::kUser) = 5000000;
    ledger.references.at(Kind::kInstruction, Mode::kKernel, Side::kKernel) = 45000000;
    ledger.references.at(Kind::kData, Mode::kUser, Side::kUser) = 2000000;
    ledger.references.at(Kind::kData, Mode::kKernel, Side::kUser) = 4000000;
    ledger.references.at(Kind::kData, Mode::kKernel, Side::kKernel) = 14000000;
    ledger.lookups = ledger.references;
    ledger.lookups.at(Kind::kData, Mode::kKernel, Side::kKernel) += 1000;
    ledger.instructions = {5000000, 41000000};
    ledger.iterations = {0, 4000000};
    for (const Kind kind : replay::kKinds) {
        replay::LevelCounts level;
        level.name = ledger.machine.tlb(kind).name;
        const auto k = static_cast<std::size_t>(kind);
        level.instruction = kind == Kind::kInstruction;
        level.data = !level.instruction;
        level.pages = {PageShift(12)};
        level.geometry = ledger.machine.tlb(kind).geometry;
        level.lookups[k] = ledger.lookups.of(kind);
        level.misses[k] = level.walks[k] = level.refills = ledger.misses.of(kind);
        level.hits = level.lookups[k] - level.misses[k];
        level.resident = 32;
        level.evicted = level.refills - 32;
        ledger.levels.push_back(level);
    }
    ledger.charge_misses();
    ledger.recorded = {.instructions = 50000000, .accesses = 20000000};
    EXPECT_TRUE(ledger.verify()) << ledger.verify().error().message();
    ledger.notes = {"a note"};
    replay.ledgers.push_back(ledger);
    return replay;
}

TEST(Report, Text) { golden("dd.txt", as_text(dd(), false)); }
TEST(Report, Json) { golden("dd.json", as_json(dd())); }
TEST(Report, Csv) { golden("dd.csv", as_csv(dd())); }

TEST(Report, TextBeginsWithTheFourLinesOfTheMailThread) {
    const std::string text = as_text(dd(), false);
    EXPECT_TRUE(
        text.starts_with("I-TLB userspace misses: 142369\n"
                         "I-TLB kernel misses: 118288\n"
                         "D-TLB userspace misses: 222916\n"
                         "D-TLB kernel misses: 207773\n"));
}

TEST(Report, SeveralMachinesAreComparedFirst) {
    Replay replay = dd();
    replay.ledgers.push_back(replay.ledgers.front());
    replay.ledgers.back().machine.name = "other";
    replay.ledgers.back().machine.changes = {"tlb.data.entries=64", "refill.cycles=113"};
    replay.ledgers.back().machine.refill.cycles = Cycles(113);
    replay.elapsed = 4.241;
    replay.clock = 48e6;
    golden("two.txt", as_text(replay, false));
}

TEST(Report, PageGranularityDoesNotInventInstructions) {
    Replay replay = dd();
    replay.ledgers.front().granularity = recording::Granularity::kPage;
    replay.ledgers.front().instructions = replay.ledgers.front().iterations = {0, 0};
    golden("page.txt", as_text(replay, false));
    const auto json = nlohmann::json::parse(as_json(replay));
    EXPECT_TRUE(json["ledgers"][0]["instructions"]["user"].is_null());
    EXPECT_TRUE(json["ledgers"][0]["per_1000_instructions"]["misses"].is_null());
}

// The keys that others rely on.
TEST(Report, JsonKeysStay) {
    const auto json = nlohmann::json::parse(as_json(dd()));
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["recording"], "tlbscope.rec");
    const auto& ledger = json["ledgers"].at(0);
    for (const char* key : {"machine", "mapping", "references", "instructions", "misses", "by_mode", "levels",
                            "causes", "cycles", "pins", "notes"})
        EXPECT_TRUE(ledger.contains(key)) << key;
    EXPECT_EQ(ledger["misses"]["instruction"]["user"], 142369);
    EXPECT_EQ(ledger["misses"]["data"]["kernel"], 207773);
    EXPECT_EQ(ledger["references"]["data"]["user"], 6000000);
    EXPECT_EQ(ledger["instructions"]["kernel"], 41000000);
    EXPECT_EQ(ledger["by_mode"]["kernel"]["misses"]["data"]["user"], 200000);
    EXPECT_EQ(ledger["cycles"]["refill"], (142369 + 118288 + 222916 + 207773) * 23);
}

TEST(Report, SharesAreOfTheRun) {
    const Replay replay = dd();
    const auto refill = static_cast<double>(replay.ledgers[0].refill_cycles().value());
    const Share measured = share_of(replay.ledgers[0], 4.241, std::nullopt);
    EXPECT_FALSE(measured.estimate);
    EXPECT_DOUBLE_EQ(measured.fraction, refill / (4.241 * 48e6));
    const Share other = share_of(replay.ledgers[0], 2.0, 100e6);
    EXPECT_DOUBLE_EQ(other.fraction, refill / 200e6);
    const Share estimated = share_of(replay.ledgers[0], std::nullopt, std::nullopt);
    EXPECT_TRUE(estimated.estimate);
    EXPECT_DOUBLE_EQ(estimated.fraction, refill / (50e6 + refill));
}

}  // namespace
}  // namespace tlbscope::report
