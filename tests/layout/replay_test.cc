// Prediction is exact: the evaluator's count for any placement is that of the engine replaying the recording
// with the blocks moved there; and search finds the best order where all can be tried.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "layout/bound.h"
#include "layout/evaluate.h"
#include "layout/linker.h"
#include "layout/ordering.h"
#include "layout/places.h"
#include "layout/proof.h"
#include "layout/trace.h"
#include "support/traces.h"
#include "worlds.h"

namespace tlbscope::layout {
namespace {

using testing::image_of_sizes;

Order shuffled(machine::Random& random, std::uint32_t size) {
    Order order(size);
    std::iota(order.begin(), order.end(), 0U);
    for (std::uint32_t i = size; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
    order.resize(random.below(size + 1));
    return order;
}

struct World {
    recording::testing::TestFolder folder;
    Image image;
    std::optional<recording::Recording> recording;
    std::optional<Places> places;

    void load(const recording::testing::MadeRun& run) {
        recording::testing::write_run(run, folder.file("run.rec"));
        auto opened = recording::Recording::open(folder.file("run.rec"));
        ASSERT_TRUE(opened) << opened.error().message();
        recording.emplace(std::move(*opened));
        auto found = Places::find(*recording, image);
        ASSERT_TRUE(found) << found.error().message();
        places.emplace(std::move(*found));
    }
    [[nodiscard]] Trace trace(const machine::Machine& machine) const {
        auto made = trace_of(*recording, image, *places, machine, {});
        EXPECT_TRUE(made) << made.error().message();
        return std::move(*made);
    }
};

TEST(Prediction, EqualsFullReplayWithMovedAddresses) {
    const std::uint64_t seed = reference::seed();
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    machine::Random random(seed);
    std::size_t looped = 0;
    for (int round = 0; round < 120; ++round) {
        World world;
        std::vector<std::uint64_t> sizes(3 + random.below(20));
        for (auto& size : sizes) size = 20 + random.below(random.below(6) == 0 ? 9000 : 1500);
        world.image = image_of_sizes(sizes, {sizes.size() / 2});
        ASSERT_NO_FATAL_FAILURE(
            world.load(testing::random_run(random, world.image, 1 + random.below(2), 400)));
        const machine::Machine machine = reference::random_machine(random);
        const Trace trace = world.trace(machine);
        looped += trace.loops.size();
        Evaluator evaluator(trace, machine);
        for (const Linker linker : {Linker::kLld, Linker::kGold, Linker::kLinux}) {
            const Units units(world.image, linker);
            Placer placer(world.image, units, linker);
            const Placement placement =
                placer.placed(shuffled(random, static_cast<std::uint32_t>(units.size())));
            const auto proof =
                prove(*world.recording, world.image, *world.places, placement, machine, nullptr, {}, {});
            ASSERT_TRUE(proof) << proof.error().message();
            const Misses predicted = evaluator.misses(placement);
            ASSERT_EQ(predicted.total(), proof->after.ledger.misses.of(Kind::kInstruction))
                << "round " << round;
            ASSERT_EQ(predicted.image, proof->after.image_misses) << "round " << round;
            const Misses before = evaluator.misses(as_linked(world.image));
            ASSERT_EQ(before.total(), proof->before.ledger.misses.of(Kind::kInstruction));
            ASSERT_EQ(before.image, proof->before.image_misses);
        }
        // No order has fewer misses than the bound.
        EXPECT_LE(bound_of(trace, machine).misses(), evaluator.misses(as_linked(world.image)).total());
    }
    EXPECT_GT(looped, 100U) << "the runs have loops, and they are found";
}

TEST(Prediction, LoopsChangeNothing) {
    machine::Random random(reference::seed() + 1);
    for (int round = 0; round < 60; ++round) {
        World world;
        world.image = image_of_sizes({900, 2000, 5000, 300, 700, 4100});
        ASSERT_NO_FATAL_FAILURE(world.load(testing::random_run(random, world.image, 1, 600)));
        const machine::Machine machine = reference::random_machine(random);
        const Trace trace = world.trace(machine);
        Trace plain = trace;
        for (CpuTrace& cpu : plain.cpus) {
            std::vector<std::uint32_t> all;
            const auto expand = [&](auto& self, std::span<const std::uint32_t> elements) -> void {
                for (const std::uint32_t element : elements) {
                    if ((element & kLoop) == 0) {
                        all.push_back(element);
                        continue;
                    }
                    const Loop& loop = trace.loops[element & ~kLoop];
                    for (std::uint32_t pass = 0; pass < loop.passes; ++pass)
                        self(self, std::span(trace.bodies).subspan(loop.first, loop.length));
                }
            };
            expand(expand, cpu.elements);
            cpu.elements = all;
        }
        EXPECT_EQ(plain.cpus[0].elements.size(), trace.elements_before);
        EXPECT_EQ(Evaluator(trace, machine).misses(as_linked(world.image)),
                  Evaluator(plain, machine).misses(as_linked(world.image)));
    }
}

// Six functions of half a page and a TLB of two entries: all 720 orders are tried, and search finds the
// least.
TEST(Search, FindsTheBestOfAllOrders) {
    machine::Random random(reference::seed() + 2);
    for (int round = 0; round < 6; ++round) {
        World world;
        world.image = image_of_sizes({1800, 2300, 1900, 2100, 1700, 2400, 3000}, {6});
        std::vector<std::uint32_t> steps;
        for (int i = 0; i < 300; ++i) steps.push_back(random.below(random.below(2) == 0 ? 7 : 4));
        ASSERT_NO_FATAL_FAILURE(world.load(testing::run_of(world.image, steps)));
        const machine::Machine machine =
            reference::simple_machine({.entries = 2, .ways = 2, .replacement = machine::Replacement::kFifo});
        const Trace trace = world.trace(machine);
        const Units units(world.image, Linker::kLld);
        ASSERT_EQ(units.size(), 6U);
        Placer placer(world.image, units, Linker::kLld);
        Evaluator evaluator(trace, machine);
        Order order{0, 1, 2, 3, 4, 5};
        std::uint64_t least = ~std::uint64_t{0};
        do least = std::min(least, evaluator.misses(placer.placed(order)).total());
        while (std::next_permutation(order.begin(), order.end()));

        const Trace* traces[] = {&trace};
        const double weights[] = {1.0};
        const auto made = make_ordering(
            world.image, units, Linker::kLld, machine, traces, weights, {},
            {.methods = {Method::kSearch}, .seed = 1, .budget = 4'000'000, .threads = 1, .progress = {}});
        ASSERT_TRUE(made) << made.error().message();
        const std::uint64_t found = made->methods[made->chosen].trained[0].total();
        EXPECT_GE(found, least);
        EXPECT_LE(static_cast<double>(found), 1.03 * static_cast<double>(least)) << "round " << round;
        EXPECT_LE(made->bounds[0].misses(), least);
    }
}

TEST(Search, IsTheSameForAnyNumberOfThreads) {
    machine::Random random(reference::seed() + 3);
    World world;
    std::vector<std::uint64_t> sizes(30);
    for (auto& size : sizes) size = 100 + random.below(2000);
    world.image = image_of_sizes(sizes);
    ASSERT_NO_FATAL_FAILURE(world.load(testing::random_run(random, world.image, 1, 3000)));
    const machine::Machine machine =
        reference::simple_machine({.entries = 4, .ways = 4, .replacement = machine::Replacement::kLru});
    const Trace trace = world.trace(machine);
    const Units units(world.image, Linker::kLld);
    const Trace* traces[] = {&trace};
    const double weights[] = {1.0};
    std::vector<Order> orders;
    for (const unsigned threads : {1U, 3U}) {
        auto made = make_ordering(world.image, units, Linker::kLld, machine, traces, weights, {},
                                  {.methods = {Method::kSearch},
                                   .seed = 7,
                                   .budget = 2'000'000,
                                   .threads = threads,
                                   .progress = {}});
        ASSERT_TRUE(made);
        orders.push_back(made->methods[made->chosen].order);
    }
    EXPECT_EQ(orders[0], orders[1]);
}

TEST(Ordering, StoppedEarlyStillHasAnOrder) {
    World world;
    world.image = image_of_sizes({3000, 100, 3000, 100});
    ASSERT_NO_FATAL_FAILURE(world.load(testing::run_of(world.image, {0, 1, 2, 3, 1, 3, 1, 3})));
    const machine::Machine machine = reference::simple_machine({.entries = 2, .ways = 2});
    const Trace trace = world.trace(machine);
    const Units units(world.image, Linker::kLld);
    const Trace* traces[] = {&trace};
    const double weights[] = {1.0};
    const auto made = make_ordering(world.image, units, Linker::kLld, machine, traces, weights, {},
                                    {.methods = {Method::kSearch},
                                     .seed = 1,
                                     .budget = 1'000'000'000,
                                     .threads = 1,
                                     .progress = [](std::string_view, double) { return false; }});
    ASSERT_TRUE(made);
    EXPECT_TRUE(made->stopped);
    EXPECT_FALSE(made->methods.empty());
}

TEST(Ordering, NothingThatRanCanMove) {
    World world;
    world.image = image_of_sizes({500, 500}, {0, 1});
    ASSERT_NO_FATAL_FAILURE(world.load(testing::run_of(world.image, {0, 1})));
    const machine::Machine machine = reference::simple_machine({.entries = 2, .ways = 2});
    const Trace trace = world.trace(machine);
    const Units units(world.image, Linker::kLld);
    const Trace* traces[] = {&trace};
    const double weights[] = {1.0};
    const auto made = make_ordering(world.image, units, Linker::kLld, machine, traces, weights, {}, {});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message().find("-ffunction-sections"), std::string::npos);
}

}  // namespace
}  // namespace tlbscope::layout
