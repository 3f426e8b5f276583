// Every miss's cause, place and code against the reference: all small worlds, then random ones.
#include "explain/causes.h"

#include <gtest/gtest.h>

#include "miss_log.h"

namespace tlbscope::explain {
namespace {

using machine::Machine;
using machine::Replacement;
using machine::TlbGeometry;
using recording::Slot;
using reference::add_block;
using reference::Executions;
using reference::Trace;

// `sorted`: arrays that serve one kind together tell of its misses one array after the other.
void compare(const Trace& trace, const std::vector<Machine>& machines,
             const std::vector<replay::TlbEvent>& events = {}, bool sorted = false) {
    std::vector<std::unique_ptr<MissLog>> logs;
    std::vector<replay::Observer*> observers;
    for (const Machine& machine : machines) {
        logs.push_back(std::make_unique<MissLog>(machine, trace.dictionary, !events.empty()));
        observers.push_back(logs.back().get());
    }
    std::vector<replay::Plan> plans = reference::plans_of(machines);
    for (replay::Plan& plan : plans) plan.events = events;
    replay::Engine engine(trace.dictionary, trace.metadata, std::move(plans), observers);
    for (const Executions& executions : trace.batches) ASSERT_TRUE(engine.consume(executions.batch()));
    const auto ledgers = engine.finish(trace.metadata, trace.totals());
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    for (std::size_t m = 0; m < machines.size(); ++m) {
        reference::Replay slow(trace.dictionary, trace.metadata, machines[m], events);
        for (const Executions& executions : trace.batches) slow.consume(executions.batch());
        for (const Kind kind : replay::kKinds) {
            const auto i = static_cast<std::size_t>(kind);
            auto wanted = of_kind(slow.log, kind);
            if (sorted) {
                const auto before = [](const reference::MissRecord& a, const reference::MissRecord& b) {
                    return std::tie(a.execution, a.instruction, a.address, a.page, a.cause) <
                           std::tie(b.execution, b.instruction, b.address, b.page, b.cause);
                };
                std::sort(wanted.begin(), wanted.end(), before);
                std::sort(logs[m]->log[i].begin(), logs[m]->log[i].end(), before);
            }
            ASSERT_EQ(logs[m]->log[i], wanted) << "machine " << m << "\nengine\n"
                                               << text_of(logs[m]->log[i]) << "reference\n"
                                               << text_of(wanted);
            replay::Ledger ledger = (*ledgers)[m];
            ledger.causes = logs[m]->causes();
            ASSERT_TRUE(ledger.verify()) << ledger.verify().error().message();
        }
    }
}

constexpr std::uint64_t kPages[] = {0x400000, 0x401000, 0x402000, 0xffff800000000000};

// Touches of the pages by number, and 4 for a switch between two processes. Block p is an instruction on page
// p that accesses the page after it. The fourth page is the kernel's.
Trace world(const std::vector<unsigned>& symbols) {
    Trace trace;
    trace.metadata.kernel_base = kPages[3];
    for (const std::uint64_t page : kPages)
        add_block(trace.dictionary, page + 8, {4}, {Slot{.size_log2 = 2}});
    Executions executions;
    std::uint64_t space = 0;
    for (const unsigned symbol : symbols) {
        if (symbol == 4) {
            space ^= 1;
            recording::Event event;
            event.position = executions.blocks.size();
            event.type = recording::EventType::kSwitchSpace;
            event.a = space;
            executions.events.push_back(event);
            continue;
        }
        executions.blocks.push_back(symbol);
        executions.addresses.push_back(kPages[(symbol + 1) % 4]);
    }
    trace.batches.push_back(std::move(executions));
    return trace;
}

std::vector<Machine> small_machines(Replacement policy, const std::vector<std::uint32_t>& identifiers) {
    std::vector<Machine> machines;
    for (const std::uint32_t asids : identifiers)
        for (const auto& [entries, ways] : {std::pair{3u, 3u}, {4u, 2u}, {3u, 1u}, {4u, 4u}}) {
            machines.push_back(reference::simple_machine(
                {.entries = entries, .ways = ways, .reserved = 0, .replacement = policy, .seed = 11}));
            machines.back().asids.count = asids;
        }
    return machines;
}

class SmallWorlds : public testing::TestWithParam<Replacement> {};
INSTANTIATE_TEST_SUITE_P(Policies, SmallWorlds,
                         testing::Values(Replacement::kFifo, Replacement::kFifoDown, Replacement::kLru,
                                         Replacement::kNru, Replacement::kRandom),
                         [](const auto& policy) {
                             std::string name(machine::name_of(policy.param));
                             std::erase(name, '-');
                             return name;
                         });

void every_trace(unsigned alphabet, unsigned length, const std::vector<Machine>& machines) {
    std::vector<unsigned> symbols(length, 0);
    for (;;) {
        ASSERT_NO_FATAL_FAILURE(compare(world(symbols), machines)) << testing::PrintToString(symbols);
        unsigned at = 0;
        while (at < length && ++symbols[at] == alphabet) symbols[at++] = 0;
        if (at == length) return;
    }
}

TEST_P(SmallWorlds, EveryTraceOfSevenTouches) { every_trace(4, 7, small_machines(GetParam(), {2})); }

// Without identifiers, with one, and with two that are never taken away.
TEST_P(SmallWorlds, EveryTraceOfSixTouchesAndSwitches) {
    every_trace(5, 6, small_machines(GetParam(), {0, 1, 2}));
}

// Straddling, odd executions, several CPUs, many processes on few identifiers, reserved entries.
TEST(Causes, EqualTheReferenceOnRandomRuns) {
    const std::uint64_t first = reference::seed();
    for (std::uint64_t seed = first; seed < first + 1000; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        machine::Random random(seed);
        const Trace trace = reference::random_trace(random);
        std::vector<Machine> machines;
        for (std::uint32_t m = 1 + random.below(4); m > 0; --m)
            machines.push_back(reference::random_machine(random));
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines));
    }
}

// Several levels, sizes and arrays, pins, and removals by software.
TEST(Causes, EqualTheReferenceOnRandomGeneralMachines) {
    const std::uint64_t first = reference::seed();
    for (std::uint64_t seed = first; seed < first + 1200; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        machine::Random random(seed);
        const Trace trace = reference::random_trace(random);
        std::vector<Machine> machines;
        while (machines.empty()) {
            Machine machine = reference::general_machine(random);
            if (replay::make_plan(machine, {}, {})) machines.push_back(std::move(machine));
        }
        const auto events = reference::random_events(random, 300);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines, events, true)) << machines[0].mapping().text();
    }
}

std::vector<Cause> causes_of(const TlbGeometry& geometry, std::uint32_t asids,
                             const std::vector<unsigned>& symbols) {
    Machine machine = reference::simple_machine(geometry);
    machine.asids.count = asids;
    const Trace trace = world(symbols);
    MissLog log(machine, trace.dictionary);
    replay::Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}), {&log});
    for (const Executions& executions : trace.batches) EXPECT_TRUE(engine.consume(executions.batch()));
    std::vector<Cause> causes;
    for (const reference::MissRecord& record : log.log[0]) causes.push_back(record.cause);
    return causes;
}

using enum replay::Cause;

// By hand, without any model: the examples of docs/causes.md.
TEST(Causes, TheExamplesOfTheDocumentation) {
    const TlbGeometry fifo2{.entries = 2, .ways = 2, .reserved = 0, .replacement = Replacement::kFifo};
    const TlbGeometry lru2{.entries = 2, .ways = 2, .reserved = 0, .replacement = Replacement::kLru};
    const TlbGeometry direct2{.entries = 2, .ways = 1, .reserved = 0, .replacement = Replacement::kLru};
    using List = std::vector<Cause>;
    EXPECT_EQ(causes_of(lru2, 2, {0, 1, 0}), (List{kCompulsory, kCompulsory}));
    // A B C A: A was the oldest of three.
    EXPECT_EQ(causes_of(lru2, 2, {0, 1, 2, 0}), (List{kCompulsory, kCompulsory, kCompulsory, kCapacity}));
    // A C A, both in set 0 of two.
    EXPECT_EQ(causes_of(direct2, 2, {0, 2, 0}), (List{kCompulsory, kCompulsory, kConflict}));
    // A B A C A: FIFO took A for C although it was just used.
    EXPECT_EQ(causes_of(fifo2, 2, {0, 1, 0, 2, 0}),
              (List{kCompulsory, kCompulsory, kCompulsory, kReplacement}));
    // A, to the other process and back, A.
    EXPECT_EQ(causes_of(lru2, 0, {0, 4, 4, 0}), (List{kCompulsory, kInvalidated}));
    EXPECT_EQ(causes_of(lru2, 1, {0, 4, 4, 0}), (List{kCompulsory, kInvalidated}));
    EXPECT_EQ(causes_of(lru2, 2, {0, 4, 4, 0}), (List{kCompulsory}));
    // The same page number of another process is another page.
    EXPECT_EQ(causes_of(lru2, 1, {0, 4, 0}), (List{kCompulsory, kCompulsory}));
    // The kernel's page survives where there are identifiers, and only there.
    EXPECT_EQ(causes_of(lru2, 1, {3, 4, 3}), (List{kCompulsory}));
    EXPECT_EQ(causes_of(lru2, 0, {3, 4, 3}), (List{kCompulsory, kInvalidated}));
    // A was replaced before the switch could remove it.
    EXPECT_EQ(causes_of(lru2, 1, {0, 1, 2, 4, 4, 0}),
              (List{kCompulsory, kCompulsory, kCompulsory, kCapacity}));
}

TEST(Causes, AnObserverDoesNotChangeTheReplay) {
    machine::Random random(reference::seed());
    const Trace trace = reference::random_trace(random);
    const Machine machine = reference::random_machine(random);
    MissLog log(machine, trace.dictionary);
    replay::Engine watched(trace.dictionary, trace.metadata, reference::plans_of({machine, machine}),
                           {nullptr, &log});
    for (const Executions& executions : trace.batches) ASSERT_TRUE(watched.consume(executions.batch()));
    const auto ledgers = watched.finish(trace.metadata, trace.totals());
    ASSERT_TRUE(ledgers);
    EXPECT_EQ((*ledgers)[0].misses, (*ledgers)[1].misses);
    EXPECT_EQ((*ledgers)[1].misses.total(), log.log[0].size() + log.log[1].size());
}

}  // namespace
}  // namespace tlbscope::explain
