// From a file to ledgers: any number of threads, both granularities, and what the batches say read one by
// one.
#include <gtest/gtest.h>

#include "made_recording.h"
#include "replay/replay.h"
#include "support/reference_replay.h"
#include "support/traces.h"

namespace tlbscope::replay {
namespace {

namespace made = recording::testing;
using recording::Granularity;
using recording::Recording;

void expect_equal(const Ledger& a, const Ledger& b) {
    EXPECT_EQ(a.references, b.references);
    EXPECT_EQ(a.lookups, b.lookups);
    EXPECT_EQ(a.misses, b.misses);
    EXPECT_EQ(a.space_switches, b.space_switches);
    EXPECT_EQ(a.notes, b.notes);
}

class FromFile : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, FromFile, testing::Range(std::uint64_t{1}, std::uint64_t{9}));

TEST_P(FromFile, EveryNumberOfThreadsGivesWhatTheReferenceGives) {
    const std::uint64_t seed = reference::seed() + GetParam();
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(reference::seed()));
    const made::MadeRun run = made::random_run(seed, 1 + seed % 3, 30, 3000);
    const made::TestFolder folder;
    made::write_run(run, folder.file("run.rec"));
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording) << recording.error().message();
    ASSERT_GT(recording->chunks().size(), 3u);
    machine::Random random(seed);
    const std::vector<machine::Machine> machines{reference::random_machine(random),
                                                 reference::random_machine(random),
                                                 reference::random_machine(random)};
    const auto one = replay(*recording, machines, {.threads = 1, .progress = {}});
    ASSERT_TRUE(one) << one.error().message();
    for (const unsigned threads : {2u, 3u, 4u, 9u}) {
        const auto several = replay(*recording, machines, {.threads = threads, .progress = {}});
        ASSERT_TRUE(several) << several.error().message();
        for (std::size_t m = 0; m < machines.size(); ++m) expect_equal((*one)[m], (*several)[m]);
    }
    for (std::size_t m = 0; m < machines.size(); ++m) {
        reference::Replay slow(recording->dictionary(), recording->metadata(), machines[m]);
        for (std::size_t chunk = 0; chunk < recording->chunks().size(); ++chunk) {
            recording::BatchReader reader(*recording, chunk);
            for (;;) {
                const auto batch = reader.next();
                ASSERT_TRUE(batch) << batch.error().message();
                if (!*batch) break;
                slow.consume(**batch);
            }
        }
        EXPECT_EQ((*one)[m].misses, slow.misses);
        EXPECT_EQ((*one)[m].references, slow.references);
        EXPECT_EQ((*one)[m].lookups, slow.lookups);
    }
}

// What page granularity loses is known: spaces, invalidations, and pages below 4 KiB. Everything else must
// come out the same.
TEST_P(FromFile, PagesGiveTheSameCounts) {
    const std::uint64_t seed = reference::seed() + GetParam();
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(reference::seed()));
    made::MadeRun run = made::random_run(seed, 1 + seed % 3, 30, 3000);
    for (auto& events : run.events)
        std::erase_if(events, [](const auto& event) {
            return event.second.type == recording::EventType::kSwitchSpace ||
                   event.second.type == recording::EventType::kInvalidate;
        });
    const made::TestFolder folder;
    made::write_run(run, folder.file("full.rec"));
    made::write_run(run, folder.file("page.rec"), Granularity::kPage);
    const auto full = Recording::open(folder.file("full.rec"));
    const auto page = Recording::open(folder.file("page.rec"));
    ASSERT_TRUE(full && page);
    machine::Random random(seed);
    const std::vector<machine::Machine> machines{reference::random_machine(random),
                                                 reference::random_machine(random)};
    const auto a = replay(*full, machines, {});
    const auto b = replay(*page, machines, {});
    ASSERT_TRUE(a) << a.error().message();
    ASSERT_TRUE(b) << b.error().message();
    for (std::size_t m = 0; m < machines.size(); ++m) {
        EXPECT_EQ((*a)[m].references, (*b)[m].references);
        if (machines[m].pages.base == PageShift(12)) {
            EXPECT_EQ((*a)[m].lookups, (*b)[m].lookups);
        }
        EXPECT_EQ((*a)[m].misses, (*b)[m].misses);
    }
}

TEST(FromFile, ProgressEndsAtTheEnd) {
    const made::MadeRun run = made::random_run(3, 2, 10, 2000);
    const made::TestFolder folder;
    made::write_run(run, folder.file("run.rec"));
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording);
    std::uint64_t done = 0;
    std::uint64_t total = 1;
    ASSERT_TRUE(replay(*recording, {reference::simple_machine({})},
                       {.threads = 2, .progress = [&](std::uint64_t d, std::uint64_t t) {
                            EXPECT_GT(d, done);
                            done = d;
                            total = t;
                        }}));
    EXPECT_EQ(done, total);
}

// Damage in the middle stops every number of threads with the same words, and none of them hangs.
TEST(FromFile, DamageIsReportedByEveryNumberOfThreads) {
    const made::MadeRun run = made::random_run(4, 2, 20, 4000);
    const made::TestFolder folder;
    made::write_run(run, folder.file("good.rec"));
    std::vector<std::uint8_t> bytes = made::file_bytes(folder.file("good.rec"));
    const std::size_t size = bytes.size();
    int reported = 0;
    for (std::size_t at = size / 3; at < size * 2 / 3; at += size / 40) {
        std::vector<std::uint8_t> flipped = bytes;
        flipped[at] ^= 0x10;
        made::put_file(folder.file("bad.rec"), flipped);
        const auto recording = Recording::open(folder.file("bad.rec"));
        if (!recording) continue;
        std::string words;
        for (const unsigned threads : {1u, 2u, 4u}) {
            const auto ledgers =
                replay(*recording, {reference::simple_machine({})}, {.threads = threads, .progress = {}});
            if (ledgers) continue;  // the flip hit a chunk that opening already left out
            if (words.empty()) words = ledgers.error().message();
            EXPECT_EQ(ledgers.error().message(), words);
            ++reported;
        }
    }
    EXPECT_GT(reported, 3);
}

}  // namespace
}  // namespace tlbscope::replay
