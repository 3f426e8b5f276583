#include "capture/guest/places.h"

#include <gtest/gtest.h>

#include <random>

#include "perf_bytes.h"

namespace tlbscope::capture {
namespace {

// A made-up run of one CPU: which tid is switched to, in order.
std::vector<std::uint32_t> random_run(std::mt19937& random, std::size_t length, std::uint32_t tasks) {
    std::vector<std::uint32_t> tids;
    std::uint32_t current = 1;
    while (tids.size() < length) {
        std::uint32_t next = 1 + static_cast<std::uint32_t>(random() % tasks);
        if (random() % 3 == 0) next = current > 1 ? 1 : 2;
        if (next == current) continue;
        tids.push_back(current = next);
    }
    return tids;
}

std::vector<std::uint64_t> addresses_of(const std::vector<std::uint32_t>& tids) {
    std::vector<std::uint64_t> tasks;
    for (const std::uint32_t tid : tids) tasks.push_back(0xffff888000000000 + tid * 0x2a80ULL % 0x10001 * 64);
    return tasks;
}

TEST(Align, FindsTheOverlapWithoutMarks) {
    std::mt19937 random(855);
    for (int run = 0; run < 300; ++run) {
        const auto tids = random_run(random, 60 + random() % 400, 3 + random() % 20);
        // Either sequence may start and end earlier than the other.
        const std::size_t before = random() % 20;
        const std::size_t after = random() % 20;
        const std::vector<std::uint64_t> all = addresses_of(tids);
        const std::vector<std::uint32_t> told(tids.begin() + static_cast<std::ptrdiff_t>(before),
                                              tids.end() - static_cast<std::ptrdiff_t>(after));
        EXPECT_EQ(align(all, told, {}, 0, {}, 0), static_cast<std::ptrdiff_t>(before)) << run;
        const std::vector<std::uint64_t> seen(all.begin() + static_cast<std::ptrdiff_t>(before),
                                              all.end() - static_cast<std::ptrdiff_t>(after));
        EXPECT_EQ(align(seen, tids, {}, 0, {}, 0), -static_cast<std::ptrdiff_t>(before)) << run;
    }
}

TEST(Align, MarksDecideWhereNamesRepeat) {
    // Seen: init, command, other, command, other, command, init; told starts at the first command.
    const std::vector<std::uint64_t> seen{0xa0, 0xb0, 0xc0, 0xb0, 0xc0, 0xb0, 0xa0};
    const std::vector<std::uint32_t> told{80, 15, 80, 15, 80, 1};
    EXPECT_EQ(align(seen, told, 2, 80, 7, 1), 1);
    EXPECT_EQ(align(seen, told, 2, 80, {}, 1), 1);
    // The recorder's list may start at the mark itself: the first two switches were not seen.
    const std::vector<std::uint64_t> late{0xc0, 0xb0, 0xc0, 0xb0, 0xa0};
    EXPECT_EQ(align(late, told, 0, 80, 5, 1), -1);
}

TEST(Align, MemoryUsedAgainForANewTask) {
    std::mt19937 random(49);
    auto tids = random_run(random, 300, 6);
    auto seen = addresses_of(tids);
    for (std::size_t i = 150; i < tids.size(); ++i)
        if (tids[i] == 5) tids[i] = 105;  // same address, new task
    const std::vector<std::uint32_t> told(tids.begin() + 7, tids.end());
    EXPECT_EQ(align(seen, told, {}, 0, {}, 0), 7);
}

TEST(Align, RefusesWhatDoesNotFit) {
    EXPECT_EQ(align({}, {1}, {}, 0, {}, 0), std::nullopt);
    EXPECT_EQ(align({1}, {}, {}, 0, {}, 0), std::nullopt);
    EXPECT_EQ(align({0xa, 0xb, 0xc}, {1, 2, 3}, {}, 0, {}, 0), std::nullopt)
        << "no name twice: any place would do";
    std::mt19937 random(1);
    std::vector<std::uint64_t> seen;
    std::vector<std::uint32_t> told;
    for (int i = 0; i < 300; ++i) {
        seen.push_back(random() % 7);
        told.push_back(static_cast<std::uint32_t>(random() % 7));
    }
    // Random sequences agree at the edges only, by a few names.
    const auto shift = align(seen, told, {}, 0, {}, 0);
    EXPECT_TRUE(!shift || std::abs(*shift) > 285) << *shift;
}

TEST(Align, LongRunsAreQuick) {
    std::mt19937 random(3);
    const auto tids = random_run(random, 200000, 40);
    const auto seen = addresses_of(tids);
    const std::vector<std::uint32_t> told(tids.begin() + 777, tids.end() - 50000);
    EXPECT_EQ(align(seen, told, {}, 0, {}, 0), 777);
}

class PlacesTest : public ::testing::Test {
  protected:
    PlacesTest() {
        facts_.tasks =
            "1 1 100 init\n2 2 208040 kthreadd\n15 15 208040 rcu_preempt\n17 17 4208060 kworker/0:1 x y\n";
        facts_.pid = 80;
        perf_.now(1, 1, 10);
        perf_.fork(80, 80, 1);
        go(80, 20);
        begin_ = seen_.switches.size();
        perf_.name(80, 80, "sh", true);
        perf_.map(80, 0x1000, 0x3000, 0x5000, 5, "/bin/sh");
        perf_.map(80, 0x8000, 0x2000, 0, 3, "//anon");
    }
    // The kernel switches: perf says so, and the recorder sees it.
    void go(std::uint32_t tid, std::uint64_t time) {
        perf_.switch_to(tid, time);
        const std::uint64_t task = 0xffff888000000000 + tid * 0x1000;
        const auto id = ids_.emplace(task, static_cast<std::uint32_t>(ids_.size())).first->second;
        seen_.switches.push_back({task, SpaceId(id)});
    }
    GuestPlaces places(const std::map<std::string, std::filesystem::path>& files = {}) {
        facts_.perf[0] = perf_.bytes;
        seen_.begin = begin_;
        seen_.end = seen_.switches.size();
        return guest_places(facts_, {seen_}, files);
    }
    static std::string names(const GuestPlaces& places) {
        std::string text;
        for (const recording::Space& s : places.spaces)
            text += std::to_string(s.id.value()) + ":" + std::to_string(s.pid) + ":" + s.name + " ";
        return text;
    }
    static std::string maps(const GuestPlaces& places, std::uint32_t space) {
        std::string text;
        for (const recording::MappedRange& m : places.maps)
            if (m.space == SpaceId(space)) {
                char line[128];
                std::snprintf(line, sizeof line, "%llx-%llx %llx %s %s|",
                              static_cast<unsigned long long>(m.start.value()),
                              static_cast<unsigned long long>(m.end.value()),
                              static_cast<unsigned long long>(m.file_offset), m.protection.c_str(),
                              m.path.c_str());
                text += line;
            }
        return text;
    }

    GuestFacts facts_;
    PerfBytes perf_;
    CpuSwitches seen_;
    std::map<std::uint64_t, std::uint32_t> ids_;
    std::size_t begin_ = 0;
};

TEST_F(PlacesTest, NamesPidsAndMaps) {
    go(15, 30);
    go(17, 31);
    go(80, 32);
    go(0, 33);
    go(80, 34);
    go(1, 40);
    const GuestPlaces p = places();
    EXPECT_TRUE(p.notes.empty());
    EXPECT_EQ(names(p), "0:80:sh 1:15:[rcu_preempt] 2:17:[kworker/0:1 x y] 3:0:[swapper] 4:1:init ");
    EXPECT_EQ(p.spaces[0].task, 0xffff888000000000 + 80 * 0x1000);
    EXPECT_EQ(maps(p, 0), "1000-4000 5000 r-xp /bin/sh|8000-a000 0 rw-p [anon]|");
    EXPECT_EQ(maps(p, 1), "");
}

TEST_F(PlacesTest, ForkCopiesMapsExecDropsThemAndTheLastMappingCounts) {
    perf_.fork(81, 81, 80);
    perf_.fork(82, 82, 80);
    perf_.map(80, 0x2000, 0x1000, 0x9000, 1, "/lib/over");  // in the middle of /bin/sh
    go(81, 30);
    perf_.now(81, 81, 31);
    perf_.name(81, 81, "cat", true);
    perf_.map(81, 0x1000, 0x1000, 0, 5, "/bin/cat");
    go(82, 40);
    go(80, 45);
    go(1, 50);
    const GuestPlaces p = places();
    EXPECT_EQ(names(p), "0:80:sh 1:81:cat 2:82:sh 3:1:init ");
    EXPECT_EQ(maps(p, 0),
              "1000-2000 5000 r-xp /bin/sh|2000-3000 9000 r--p /lib/over|3000-4000 7000 r-xp /bin/sh|"
              "8000-a000 0 rw-p [anon]|");
    EXPECT_EQ(maps(p, 1), "1000-2000 0 r-xp /bin/cat|");
    EXPECT_EQ(maps(p, 2), "1000-4000 5000 r-xp /bin/sh|8000-a000 0 rw-p [anon]|");
}

TEST_F(PlacesTest, ThreadsShareTheProcess) {
    perf_.fork(80, 85, 80);
    go(85, 30);
    go(80, 31);
    go(1, 32);
    const GuestPlaces p = places();
    EXPECT_EQ(names(p), "0:80:sh 1:80:sh 2:1:init ");
    EXPECT_EQ(maps(p, 0), maps(p, 1));
    EXPECT_NE(maps(p, 1), "");
}

TEST_F(PlacesTest, MemoryUsedAgainBearsBothNames) {
    perf_.fork(81, 81, 80);
    go(81, 30);
    perf_.name(81, 81, "cat", true);
    go(80, 31);
    perf_.fork(82, 82, 80);
    // The task structure of 81 serves 82.
    perf_.switch_to(82, 40);
    seen_.switches.push_back(seen_.switches[1]);
    perf_.name(82, 82, "wc", true);
    go(80, 41);
    perf_.switch_to(82, 42);
    seen_.switches.push_back(seen_.switches[1]);
    go(80, 43);
    go(1, 44);
    EXPECT_EQ(names(places()), "0:80:sh 1:82:wc, cat 2:1:init ");
}

TEST_F(PlacesTest, BuildIdsComeFromTheHostsFiles) {
    go(1, 30);
    const GuestPlaces p = places({{"/bin/sh", std::filesystem::canonical("/bin/sh")}});
    ASSERT_FALSE(p.maps.empty());
    EXPECT_EQ(p.maps[0].build_id.size(), 40U);
    EXPECT_EQ(p.maps[1].build_id, "");
}

TEST_F(PlacesTest, WhatIsMissingIsNamed) {
    go(1, 30);
    perf_.bytes.resize(perf_.bytes.size() - 3);
    facts_.perf_lost = 12;
    const GuestPlaces p = places();
    ASSERT_EQ(p.notes.size(), 2U);
    EXPECT_TRUE(p.notes[0].starts_with("guest's perf records:byte "));
    EXPECT_EQ(
        p.notes[1],
        "the guest lost 12 records of mappings and switches: later programs are without names and maps");
    EXPECT_EQ(names(p), "0:0: 1:0: ");
}

}  // namespace
}  // namespace tlbscope::capture
