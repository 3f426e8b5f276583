#include "capture/guest/perf_records.h"

#include <gtest/gtest.h>

#include <random>

#include "perf_bytes.h"

namespace tlbscope::capture {
namespace {

PerfBytes sample(bool big_endian) {
    PerfBytes p(big_endian);
    p.now(1, 1, 100);
    p.fork(80, 80, 1);
    p.switch_to(80, 110);
    p.name(80, 80, "dd", true);
    p.map(80, 0x555555556000, 0xe000, 0x2000, 5, "/usr/bin/dd");
    p.unknown(6, 16);
    p.lost(3);
    p.exit(80, 1);
    return p;
}

TEST(PerfRecords, EveryKind) {
    for (const bool big_endian : {false, true}) {
        const auto records = parse_perf(sample(big_endian).bytes, big_endian);
        ASSERT_TRUE(records) << records.error().message();
        ASSERT_EQ(records->size(), 7U);
        const std::vector<PerfRecord>& r = *records;
        EXPECT_EQ(r[0].type, PerfType::kFork);
        EXPECT_EQ(r[0].pid, 80U);
        EXPECT_EQ(r[0].parent_pid, 1U);
        EXPECT_EQ(r[0].time, 100U);
        EXPECT_EQ(r[0].current_tid, 1U);
        EXPECT_TRUE(r[1].type == PerfType::kSwitch && r[1].away && r[1].tid == 80 && r[1].current_tid == 1);
        EXPECT_TRUE(r[2].type == PerfType::kSwitch && !r[2].away && r[2].tid == 1 && r[2].current_tid == 80);
        EXPECT_EQ(r[2].time, 110U);
        EXPECT_TRUE(r[3].type == PerfType::kName && r[3].exec && r[3].name == "dd" && r[3].pid == 80);
        EXPECT_EQ(r[4].type, PerfType::kMap);
        EXPECT_EQ(r[4].start, 0x555555556000U);
        EXPECT_EQ(r[4].length, 0xe000U);
        EXPECT_EQ(r[4].file_offset, 0x2000U);
        EXPECT_EQ(r[4].protection, 5U);
        EXPECT_EQ(r[4].name, "/usr/bin/dd");
        EXPECT_TRUE(r[5].type == PerfType::kLost && r[5].lost == 3);
        EXPECT_EQ(r[6].type, PerfType::kExit);
    }
}

// A buffer ends with a whole record; anything else is said, with the place.
TEST(PerfRecords, EveryPrefix) {
    const std::vector<std::uint8_t> bytes = sample(false).bytes;
    std::size_t whole = 0;
    for (std::size_t n = 0; n <= bytes.size(); ++n) {
        const auto records = parse_perf(std::span(bytes).first(n));
        whole += records.has_value();
        if (!records) EXPECT_TRUE(records.error().where.starts_with("guest's perf records:byte "));
    }
    EXPECT_EQ(whole, 9U);  // nothing, and after each of the eight records made above (one of an unknown kind)
}

TEST(PerfRecords, GarbageNeverCrashes) {
    const std::vector<std::uint8_t> bytes = sample(false).bytes;
    for (std::size_t at = 0; at < bytes.size(); ++at)
        for (int bit = 0; bit < 8; ++bit) {
            std::vector<std::uint8_t> damaged = bytes;
            damaged[at] = static_cast<std::uint8_t>(damaged[at] ^ 1 << bit);
            (void)parse_perf(damaged);
        }
    std::mt19937 random(19980101);
    for (int run = 0; run < 5000; ++run) {
        std::vector<std::uint8_t> garbage;
        for (int i = 0; i < 96; ++i)
            garbage.push_back(static_cast<std::uint8_t>(random() % 3 == 0 ? random() : random() % 48));
        garbage[7] = 0;
        (void)parse_perf(garbage);
    }
}

TEST(PerfRecords, TooShortForItsKind) {
    std::vector<std::uint8_t> bytes{10, 0, 0, 0, 0, 0, 40, 0};
    bytes.resize(40);
    const auto records = parse_perf(bytes);
    ASSERT_FALSE(records);
    EXPECT_EQ(records.error().what, "a record of type 10 is too short");
    const std::vector<std::uint8_t> empty_record(8, 0);
    EXPECT_FALSE(parse_perf(empty_record)) << "a record of no bytes must not be read for ever";
}

}  // namespace
}  // namespace tlbscope::capture
