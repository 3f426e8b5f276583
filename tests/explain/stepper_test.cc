// Steps of made recordings against the reference's misses, and against themselves: what a step shows must
// follow from its sets.
#include "explain/stepper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "made_recording.h"
#include "support/reference_replay.h"
#include "support/traces.h"

namespace tlbscope::explain {
namespace {

namespace made = recording::testing;
using recording::Recording;

Naming naming() {
    return {.function_at = [](SpaceId, VirtAddr) { return Name{.function = "f", .object = "o"}; },
            .region_of = [](SpaceId, VirtAddr) { return Region::kUnknown; }};
}

bool holds(const std::vector<std::optional<Held>>& ways, const Touch& touch) {
    return std::any_of(ways.begin(), ways.end(), [&](const std::optional<Held>& held) {
        return held && held->translation == Translation{.page = touch.page, .space = touch.space};
    });
}

void expect_consistent(const Step& step) {
    ASSERT_EQ(step.before.size(), step.after.size());
    ASSERT_LT(step.way, step.after.size());
    EXPECT_EQ(holds(step.before, step.touch), !step.cause.has_value());
    EXPECT_TRUE(holds(step.after, step.touch));
    for (std::size_t way = 0; way < step.before.size(); ++way) {
        const auto& before = step.before[way];
        const auto& after = step.after[way];
        if (way != step.way) {
            ASSERT_EQ(before.has_value(), after.has_value());
            if (before) {
                EXPECT_EQ(before->translation, after->translation);
                EXPECT_EQ(before->used, after->used);
            }
            continue;
        }
        ASSERT_TRUE(after);
        EXPECT_EQ(after->used, step.touch.number);
        if (step.cause) {
            EXPECT_EQ(after->loaded, step.touch.number);
        }
    }
    // Why it missed follows a loss, except the first time.
    if (step.cause) {
        EXPECT_EQ(step.loss.has_value(), *step.cause != Cause::kCompulsory);
        if (step.loss) {
            EXPECT_LT(step.loss->used, step.touch.number);
            EXPECT_LE(step.loss->by.number, step.touch.number);
            EXPECT_EQ(step.loss->invalidated, *step.cause == Cause::kInvalidated);
        }
    }
}

class Stepping : public testing::TestWithParam<std::uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, Stepping, testing::Range(std::uint64_t{1}, std::uint64_t{9}));

TEST_P(Stepping, ShowsTheMissesOfTheReference) {
    const std::uint64_t seed = reference::seed() + GetParam();
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(reference::seed()));
    const made::TestFolder folder;
    made::write_run(made::random_run(seed, 1 + seed % 3, 6, 60), folder.file("run.rec"));
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording) << recording.error().message();
    machine::Random random(seed);
    const machine::Machine machine = reference::random_machine(random);
    reference::Replay slow(recording->dictionary(), recording->metadata(), machine);
    for (std::size_t chunk = 0; chunk < recording->chunks().size(); ++chunk) {
        recording::BatchReader reader(*recording, chunk);
        for (auto batch = reader.next(); batch && *batch; batch = reader.next()) slow.consume(**batch);
    }
    ASSERT_FALSE(slow.log.empty());

    std::set<std::uint64_t> pages;
    for (const reference::MissRecord& miss : slow.log) pages.insert(miss.page);
    std::uint64_t touches = 0;
    for (const std::uint64_t page : pages) {
        StepOptions options{
            .target = {.what = Target::What::kPage, .value = page << machine.pages.base.value()}, .limit = 0};
        const auto all = step_through(*recording, machine, naming(), options);
        ASSERT_TRUE(all) << all.error().message();
        EXPECT_FALSE(all->more);
        EXPECT_EQ(all->touches, slow.touches);
        touches += all->steps.size();
        for (const Step& step : all->steps) ASSERT_NO_FATAL_FAILURE(expect_consistent(step));

        options.misses_only = true;
        options.threads = 3;
        const auto missed = step_through(*recording, machine, naming(), options);
        ASSERT_TRUE(missed);
        std::size_t next = 0;
        for (std::size_t i = 0; i < slow.log.size(); ++i) {
            const reference::MissRecord& miss = slow.log[i];
            if (miss.page != page) continue;
            ASSERT_LT(next, missed->steps.size());
            const Step& step = missed->steps[next++];
            EXPECT_EQ(step.touch.number, slow.log_touches[i]);
            EXPECT_EQ(step.touch.kind, miss.kind);
            EXPECT_EQ(step.touch.cpu.value(), miss.cpu);
            EXPECT_EQ(step.touch.side, miss.side);
            EXPECT_EQ(step.touch.instruction, miss.instruction);
            EXPECT_EQ(step.touch.execution, miss.execution + 1);
            EXPECT_EQ(step.cause, miss.cause);
            const auto one =
                step_through(*recording, machine, naming(),
                             {.target = {.what = Target::What::kTouch, .value = step.touch.number}});
            ASSERT_TRUE(one);
            ASSERT_EQ(one->steps.size(), 1u);
            EXPECT_EQ(one->steps[0].touch.address, step.touch.address);
        }
        EXPECT_EQ(next, missed->steps.size());
    }
    EXPECT_EQ(touches, slow.touches);
}

TEST(Stepping, CodeWithoutAnObjectIsOfAnUnknownOne) {
    const made::TestFolder folder;
    made::write_run(made::random_run(1, 1, 6, 60), folder.file("run.rec"));
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording);
    Naming nowhere = naming();
    nowhere.function_at = [](SpaceId, VirtAddr) { return Name{}; };
    const auto steps =
        step_through(*recording, reference::simple_machine({}), nowhere, {.target = {.value = 1}});
    ASSERT_TRUE(steps);
    ASSERT_EQ(steps->steps.size(), 1u);
    EXPECT_EQ(steps->steps[0].function.name, kUnknown);
    EXPECT_EQ(steps->steps[0].function.object, kUnknown);
}

TEST(Stepping, StopsAtTheLimit) {
    const made::TestFolder folder;
    made::write_run(made::random_run(1, 1, 6, 60), folder.file("run.rec"));
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording);
    const machine::Machine machine = reference::simple_machine({});
    const auto first = step_through(*recording, machine, naming(), {.target = {.value = 1}});
    ASSERT_TRUE(first);
    ASSERT_EQ(first->steps.size(), 1u);
    const auto some = step_through(
        *recording, machine, naming(),
        {.target = {.what = Target::What::kPage, .value = first->steps[0].touch.address}, .limit = 2});
    ASSERT_TRUE(some);
    EXPECT_EQ(some->steps.size(), 2u);
    EXPECT_TRUE(some->more);
}

TEST(Stepping, PageGranularityHasNoTouches) {
    const made::TestFolder folder;
    made::write_run(made::random_run(1, 1, 6, 60), folder.file("run.rec"), recording::Granularity::kPage);
    const auto recording = Recording::open(folder.file("run.rec"));
    ASSERT_TRUE(recording);
    const machine::Machine machine = reference::simple_machine({});
    EXPECT_FALSE(step_through(*recording, machine, naming(), {.target = {.value = 1}}));
}

TEST(Stepping, TargetsAreTouchesAddressesAndPages) {
    EXPECT_EQ(parse_target("12")->value, 12u);
    EXPECT_EQ(parse_target("0x12")->what, Target::What::kAddress);
    EXPECT_EQ(parse_target("0xffffffff81000000")->value, 0xffffffff81000000u);
    EXPECT_EQ(parse_target("page:0x12000")->what, Target::What::kPage);
    EXPECT_EQ(parse_target("page:12000")->value, 0x12000u);
    for (const char* wrong : {"", "0", "0x", "-1", "12k", "page:", "page:x", "0x1ffffffffffffffff"})
        EXPECT_FALSE(parse_target(wrong)) << wrong;
}

}  // namespace
}  // namespace tlbscope::explain
