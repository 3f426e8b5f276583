// Advice on runs made so that the best remedy, what it leaves and what it costs follow from their
// construction.
#include "advise/advise.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "machine/machine_file.h"
#include "made_recording.h"

namespace tlbscope::advise {
namespace {

using addrspace::Region;
using recording::testing::Execution;
using recording::testing::MadeRun;
using recording::testing::TestFolder;

constexpr std::uint64_t kCode = 0x400000;
constexpr std::uint64_t kHeap = 0x10000000;
constexpr std::uint64_t kLinear = 0xffff888000000000;
constexpr std::uint64_t kVmalloc = 0xffffc90000000000;
constexpr std::uint64_t kSmall = 4096;
constexpr std::uint64_t kLarge = 8 << 20;

// Eight entries each way, LRU, so that going round more pages than that misses every time.
std::string machine_text(const std::string& sizes) {
    return R"(name = "eight"
title = "eight entries"
source = "chosen"
address_bits = 64
[clock]
hertz = 1000000
cycles_per_instruction = 1.0
source = "chosen"
[pages]
sizes = )" +
           sizes +
           R"(
base = "4K"
source = "chosen"
[asid]
count = 16
source = "chosen"
[tlb.instruction]
entries = 8
ways = "full"
replacement = "lru"
source = "chosen"
[tlb.data]
entries = 8
ways = "full"
replacement = "lru"
source = "chosen"
[refill]
by = "software"
cycles = 10
source = "chosen"
)";
}

Region region_of(SpaceId, VirtAddr address) {
    if (address.value() >= kVmalloc) return Region::kKernelVmalloc;
    if (address.value() >= kLinear) return Region::kKernelLinear;
    return address.value() >= kHeap ? Region::kUserHeap : Region::kUserText;
}

// As the command makes machines: the file, rules, and a reserved entry for each pin.
Result<machine::Machine> make(const std::string& sizes, const Change& change) {
    std::vector<std::string> sets = change.sets;
    for (const char* array : {"instruction", "data"})
        if (!change.pins.empty())
            sets.push_back("tlb." + std::string(array) + ".reserved=" + std::to_string(change.pins.size()));
    auto machine = machine::parse_machine(machine_text(sizes), "eight.toml", sets);
    if (!machine) return machine;
    for (const bool pinned : {false, true})
        for (const std::string& text : pinned ? change.pins : change.maps) {
            auto rule = addrspace::parse_rule(text, pinned);
            if (!rule) return std::unexpected(rule.error());
            machine->rules.push_back(*rule);
        }
    return machine;
}

Options options(std::uint32_t most_pins, const std::string& sizes = R"(["4K", "64K", "8M"])") {
    return {.threads = 1,
            .make = [sizes](const Change& change) { return make(sizes, change); },
            .region_of = region_of,
            .events = {},
            .most_pins = most_pins,
            .pass = {},
            .progress = {}};
}

// One instruction that loads, over and over.
class Loads {
  public:
    Loads() {
        run_.blocks.push_back({.address = kCode, .lengths = {4}});
        run_.executions.resize(1);
        run_.events.resize(1);
    }
    void load(std::uint64_t address) {
        run_.executions[0].push_back(
            Execution{.translation = 0, .begun = 0, .accesses = {{.instruction = 0, .address = address}}});
    }
    // Round after round, a load from each of `count` places.
    void go_round(std::uint64_t start, std::uint64_t stride, std::uint64_t count, std::uint64_t rounds) {
        for (std::uint64_t round = 0; round < rounds; ++round)
            for (std::uint64_t i = 0; i < count; ++i) load(start + i * stride);
    }
    recording::Recording write() {
        recording::testing::write_run(run_, folder_.file("run.rec"));
        auto recording = recording::Recording::open(folder_.file("run.rec"));
        if (!recording) throw std::runtime_error(recording.error().message());
        return std::move(*recording);
    }

  private:
    TestFolder folder_;
    MadeRun run_;
};

Advice advice_of(Loads& run, const Options& how) {
    const auto recording = run.write();
    auto advice = advise(recording, how);
    if (!advice) throw std::runtime_error(advice.error().message());
    return std::move(*advice);
}

const Trial& trial(const std::vector<Trial>& trials, const std::string& wanted) {
    const auto found = std::find_if(trials.begin(), trials.end(),
                                    [&](const Trial& one) { return one.remedy.change.options() == wanted; });
    if (found == trials.end()) throw std::runtime_error("no trial of " + wanted);
    return *found;
}

TEST(Advise, MapsTheLinearMapThatDominates) {
    Loads run;
    run.go_round(kLinear, kSmall, 64, 10);
    const Advice advice = advice_of(run, options(0));
    EXPECT_EQ(advice.base.misses.total(), 64 * 10 + 1);  // and the fetch
    ASSERT_TRUE(advice.first);
    const Trial& first = advice.trials[*advice.first];
    EXPECT_EQ(first.remedy.change.options(), "--map kernel-linear=8M");
    EXPECT_EQ(first.misses.total(), 2u);
    EXPECT_EQ(first.cycles.value(), 20u);
    EXPECT_EQ(first.costs.memory, 0u);  // the linear map is contiguous already
    EXPECT_TRUE(first.costs.losers.empty());
    EXPECT_DOUBLE_EQ(first.costs.break_even.value(), (641 * 10 - 20) / 2.0);
    EXPECT_EQ(trial(advice.trials, "--map kernel-linear=64K").misses.total(), 4u + 1);
}

TEST(Advise, PinsTheHotPageAndNoMore) {
    Loads run;
    for (int round = 0; round < 5; ++round) {
        run.go_round(kLinear + 7 * kLarge, kSmall, 512, 1);
        run.go_round(kLinear + 100 * kLarge, kLarge, 16, 1);
    }
    const Advice advice = advice_of(run, options(8));
    EXPECT_EQ(advice.base.misses.total(), (512u + 16) * 5 + 1);
    // Another pin would save 5 of 2641 misses.
    ASSERT_EQ(advice.pins.size(), 1u);
    EXPECT_EQ(advice.pins[0].remedy.change.options(), "--pin 0xffff888003800000:8M");
    EXPECT_EQ(advice.pins[0].misses.total(), 16u * 5 + 1);
    ASSERT_EQ(advice.pins[0].costs.taken.size(), 2u);
    EXPECT_EQ(advice.pins[0].costs.taken[1].array, "data");
    EXPECT_EQ(advice.pins[0].costs.taken[1].entries, 1u);
}

TEST(Advise, TellsWhoLosesToAPin) {
    Loads run;
    run.go_round(kVmalloc, kLarge, 8, 100);  // fits, but not into seven
    run.go_round(kLinear, kSmall, 512, 5);
    const Advice advice = advice_of(run, options(1));
    ASSERT_EQ(advice.pins.size(), 1u);
    EXPECT_EQ(advice.pins[0].misses.total(), 800u + 1);
    ASSERT_EQ(advice.pins[0].costs.losers.size(), 1u);
    const Loser& loser = advice.pins[0].costs.losers[0];
    EXPECT_EQ(loser.kind, Kind::kData);
    EXPECT_EQ(loser.mode, Mode::kUser);  // the code's
    EXPECT_EQ(loser.region, Region::kKernelVmalloc);
    EXPECT_EQ(loser.before, 8u);
    EXPECT_EQ(loser.after, 800u);
    // Not so when the region is mapped large: nothing is reserved.
    EXPECT_TRUE(trial(advice.trials, "--map kernel-linear=8M").costs.losers.empty());
}

TEST(Advise, PrefersThePagesThatLoseLessMemory) {
    Loads run;
    run.go_round(kHeap, kSmall, 12, 50);
    const Advice advice = advice_of(run, options(8));
    EXPECT_EQ(advice.base.misses.total(), 12u * 50 + 1);
    ASSERT_TRUE(advice.first);
    const Trial& first = advice.trials[*advice.first];
    EXPECT_EQ(first.remedy.change.options(), "--map user-heap=64K");
    EXPECT_EQ(first.misses.total(), 2u);
    EXPECT_EQ(first.costs.memory, 16u * 1024);
    EXPECT_EQ(trial(advice.trials, "--map user-heap=8M").costs.memory, kLarge - 48 * 1024);
    EXPECT_EQ(trial(advice.trials, "--set pages.base=64K").costs.memory, (16u + 60) * 1024);
    EXPECT_TRUE(advice.pins.empty());  // a program's pages are not pinned where programs come and go
    EXPECT_EQ(
        trial(advice.trials, "--set tlb.instruction.entries=16 --set tlb.data.entries=16").misses.total(),
        12u + 1);
    EXPECT_EQ(trial(advice.trials, "--set tlb.instruction.entries=16").misses, advice.base.misses);
}

TEST(Advise, OffersHardwareWhereNothingElseHelps) {
    Loads run;
    run.go_round(kHeap, kSmall, 12, 50);
    const Advice advice = advice_of(run, options(8, R"(["4K"])"));
    ASSERT_TRUE(advice.first);
    EXPECT_TRUE(advice.trials[*advice.first].remedy.hardware());
    EXPECT_EQ(advice.trials[*advice.first].misses.total(), 13u);
    EXPECT_FALSE(advice.pair_helps);
}

TEST(Advise, SaysWhenNothingHelps) {
    Loads run;
    run.go_round(kHeap, kSmall, 1, 50);
    const Advice advice = advice_of(run, options(8, R"(["4K"])"));
    EXPECT_EQ(advice.base.misses.total(), 2u);
    EXPECT_FALSE(advice.first);
}

TEST(Advise, CombinesWhatSavesApart) {
    Loads run;
    for (int round = 0; round < 20; ++round) {
        run.go_round(kHeap, kSmall, 16, 1);
        run.go_round(kLinear, kSmall, 64, 1);
        run.go_round(kVmalloc, kSmall, 64, 1);
    }
    const Advice advice = advice_of(run, options(0));
    EXPECT_EQ(advice.base.misses.total(), 144u * 20 + 1);
    ASSERT_FALSE(advice.pairs.empty());
    ASSERT_TRUE(advice.pair_helps);
    const Trial& pair = advice.pairs.front();
    // All of the kernel in 8M pages takes two, and the heap in any larger ones one or three.
    EXPECT_LE(pair.misses.total(), 1u + 2 + 1);
    EXPECT_NE(pair.remedy.change.options().find("kernel=8M"), std::string::npos);
    for (const Trial& one : advice.trials)
        if (!one.remedy.hardware()) EXPECT_LT(pair.cycles, one.cycles) << one.remedy.title;
}

// What advice prints is what a replay with these options leaves, whatever the run.
TEST(Advise, EqualsASeparateReplay) {
    TestFolder folder;
    for (const std::uint64_t seed : {1, 2, 3}) {
        recording::testing::write_run(recording::testing::random_run(seed, 2, 40, 3000),
                                      folder.file("random.rec"));
        const auto recording = recording::Recording::open(folder.file("random.rec"));
        ASSERT_TRUE(recording) << recording.error().message();
        Options how = options(2);
        const auto advice = advise(*recording, how);
        ASSERT_TRUE(advice) << advice.error().message();
        how.threads = 3;
        const auto again = advise(*recording, how);
        ASSERT_TRUE(again) << again.error().message();
        ASSERT_EQ(advice->trials.size(), again->trials.size());
        ASSERT_GT(advice->trials.size(), 10u);
        std::vector<Trial> all = advice->trials;
        all.insert(all.end(), advice->pairs.begin(), advice->pairs.end());
        for (const Trial& one : all) {
            const auto machine = how.make(one.remedy.change);
            ASSERT_TRUE(machine) << machine.error().message();
            const auto ledgers = replay::replay(*recording, {*machine}, {.region_of = region_of});
            ASSERT_TRUE(ledgers) << ledgers.error().message();
            EXPECT_EQ(ledgers->front().misses, one.misses) << one.remedy.title;
            EXPECT_EQ(ledgers->front().refill_cycles(), one.cycles) << one.remedy.title;
        }
        for (std::size_t i = 0; i < advice->trials.size(); ++i) {
            EXPECT_EQ(advice->trials[i].remedy.title, again->trials[i].remedy.title);
            EXPECT_EQ(advice->trials[i].misses, again->trials[i].misses);
            EXPECT_EQ(advice->trials[i].costs.memory, again->trials[i].costs.memory);
        }
        EXPECT_TRUE(std::is_sorted(advice->trials.begin(), advice->trials.end(),
                                   [](const Trial& a, const Trial& b) { return a.cycles < b.cycles; }));
    }
}

}  // namespace
}  // namespace tlbscope::advise
