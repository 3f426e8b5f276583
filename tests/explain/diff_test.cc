// The arithmetic of the 2005 thread, done right: its own printed deltas were mis-subtracted.
#include "explain/diff.h"

#include <gtest/gtest.h>

namespace tlbscope::explain {
namespace {

constexpr const char* k24 =
    "real    0m3.440s\nI-TLB userspace misses: 2179\nI-TLB kernel misses: 1369\n"
    "D-TLB userspace misses: 180249\nD-TLB kernel misses: 167236\n";
constexpr const char* k26 =
    "real    0m4.241s\nI-TLB userspace misses: 142369\nI-TLB kernel misses: 118288\n"
    "D-TLB userspace misses: 222916\nD-TLB kernel misses: 207773\n";

TEST(Diff, TheThread) {
    const auto a = parse_counters(k24, "24");
    const auto b = parse_counters(k26, "26");
    ASSERT_TRUE(a && b);
    EXPECT_EQ(b->misses[0][0] - a->misses[0][0], 140190U);
    EXPECT_EQ(b->misses[0][1] - a->misses[0][1], 116919U);
    EXPECT_EQ(b->misses[1][0] - a->misses[1][0], 42667U);
    EXPECT_EQ(b->misses[1][1] - a->misses[1][1], 40537U);
    const auto cycles = [](const FourCounters& counters) {
        return static_cast<double>(counters.total() * 23);
    };
    const Slowdown first = slowdown(*a, *b, cycles(*a), cycles(*b), 48e6, 3.440, 4.241);
    EXPECT_EQ(first.misses, 340313);
    EXPECT_EQ(first.cycles, 7827199);
    EXPECT_NEAR(first.seconds, 0.163, 0.0005);
    EXPECT_NEAR(*first.share, 0.20, 0.005);
    EXPECT_NEAR(*first.cycles_per_miss_all, 113, 0.5);
    const Slowdown second = slowdown(*a, *b, cycles(*a), cycles(*b), 48e6, 3.366, 4.360);
    EXPECT_NEAR(*second.share, 0.16, 0.005);
}

TEST(Diff, NoSlowdownHasNoShare) {
    const FourCounters same;
    const Slowdown none = slowdown(same, same, 0, 0, 48e6, 1.0, 1.0);
    EXPECT_FALSE(none.share);
    EXPECT_FALSE(none.cycles_per_miss_all);
    EXPECT_FALSE(slowdown(same, same, 0, 0, 48e6, std::nullopt, 1.0).elapsed);
}

TEST(Diff, CountersMustBeThereOnce) {
    EXPECT_FALSE(parse_counters("I-TLB userspace misses: 1\n", "x"));
    EXPECT_FALSE(parse_counters(std::string(k24) + k26, "x"));
    const auto bad = parse_counters(
        "I-TLB userspace misses: many\nI-TLB kernel misses: 1\nD-TLB userspace misses: 1\nD-TLB kernel "
        "misses: 1\n",
        "x");
    ASSERT_FALSE(bad);
    EXPECT_EQ(bad.error().where, "x");
}

TEST(Diff, RowsMatchByNameAndTheLargestChangeComesFirst) {
    const std::map<RowName, KindCounts> a{{{"read", "[kernel]"}, {10, 0}}, {{"gone", "x"}, {3, 4}}};
    const std::map<RowName, KindCounts> b{{{"read", "[kernel]"}, {5, 7}}, {{"new", "x"}, {0, 100}}};
    const auto rows = changes(a, b);
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].name.name, "new");
    EXPECT_EQ(rows[0].delta(), 100);
    EXPECT_EQ(rows[1].name.name, "gone");
    EXPECT_EQ(rows[1].delta(), -7);
    EXPECT_EQ(rows[2].delta(), 2);
}

}  // namespace
}  // namespace tlbscope::explain
