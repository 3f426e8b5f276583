// The engine against the reference, through batches.
#include "replay/engine.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/reference_replay.h"
#include "support/traces.h"

namespace tlbscope::replay {
namespace {

using machine::Machine;
using machine::Replacement;
using recording::Slot;
using reference::add_block;
using reference::Executions;
using reference::Trace;

Result<std::vector<Ledger>> run(const Trace& trace, const std::vector<Machine>& machines) {
    Engine engine(trace.dictionary, trace.metadata, reference::plans_of(machines));
    for (const Executions& executions : trace.batches)
        if (auto done = engine.consume(executions.batch()); !done) return std::unexpected(done.error());
    return engine.finish(trace.metadata, trace.totals());
}

void compare(const Trace& trace, const std::vector<Machine>& machines) {
    const auto ledgers = run(trace, machines);
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    ASSERT_EQ(ledgers->size(), machines.size());
    for (std::size_t m = 0; m < machines.size(); ++m) {
        reference::Replay slow(trace.dictionary, trace.metadata, machines[m]);
        for (const Executions& executions : trace.batches) slow.consume(executions.batch());
        const Ledger& ledger = (*ledgers)[m];
        ASSERT_EQ(ledger.references, slow.references);
        ASSERT_EQ(ledger.lookups, slow.lookups);
        ASSERT_EQ(ledger.misses, slow.misses);
        for (const std::size_t side : {0, 1}) {
            ASSERT_EQ(ledger.instructions[side], slow.instructions[side]);
            ASSERT_EQ(ledger.iterations[side], slow.iterations[side]);
        }
    }
}

// Every trace of seven touches over four pages: block p is one instruction on page p that accesses the page
// after it, so instructions and data see the same trace shifted by one page. Two pages are the kernel's.
TEST(Engine, EqualsTheReferenceOnEveryTraceOfSevenTouches) {
    const std::uint64_t pages[] = {0x400000, 0x401000, 0xffff800000000000, 0xffff800000001000};
    std::vector<Machine> machines;
    for (const Replacement policy :
         {Replacement::kFifo, Replacement::kFifoDown, Replacement::kLru, Replacement::kRandom})
        for (const std::uint32_t ways : {3u, 1u})
            machines.push_back(reference::simple_machine(
                {.entries = 3, .ways = ways, .reserved = 0, .replacement = policy, .seed = 11}));
    for (unsigned code = 0; code < 1u << 14; ++code) {
        Trace trace;
        trace.metadata.kernel_base = 0xffff800000000000;
        for (const std::uint64_t page : pages)
            add_block(trace.dictionary, page + 8, {4}, {Slot{.size_log2 = 2}});
        Executions executions;
        for (unsigned touch = 0; touch < 7; ++touch) {
            const std::uint32_t page = code >> touch * 2 & 3;
            executions.blocks.push_back(page);
            executions.addresses.push_back(pages[(page + 1) % 4]);
        }
        trace.batches.push_back(executions);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines)) << "trace " << code;
    }
}

TEST(Engine, EqualsTheReferenceOnRandomRuns) {
    const std::uint64_t first = reference::seed();
    for (std::uint64_t seed = first; seed < first + 1500; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        machine::Random random(seed);
        const Trace trace = reference::random_trace(random);
        std::vector<Machine> machines;
        for (std::uint32_t m = 1 + random.below(4); m > 0; --m)
            machines.push_back(reference::random_machine(random));
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines));
    }
}

// A batch cut anywhere means the same.
TEST(Engine, DoesNotDependOnWhereBatchesAreCut) {
    machine::Random random(reference::seed());
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(reference::seed()));
    for (int repeat = 0; repeat < 100; ++repeat) {
        Trace whole;
        whole.metadata.kernel_base = 0xffff800000000000;
        for (std::uint64_t page = 0; page < 6; ++page)
            add_block(whole.dictionary, (page < 4 ? 0x400000 : 0xffff800000000000) + page * 4096 + 4090,
                      {3, 4, 5}, {Slot{.instruction = 1, .size_log2 = 3}}, page % 2 == 0);
        Executions all;
        for (int i = 0; i < 60; ++i) {
            all.blocks.push_back(random.below(6));
            all.addresses.push_back(0x400000 + random.below(40000));
        }
        Trace cut = whole;
        whole.batches.push_back(all);
        for (std::size_t at = 0; at < all.blocks.size();) {
            const std::size_t n = std::min<std::size_t>(random.below(9), all.blocks.size() - at);
            Executions part;
            const auto from = static_cast<std::ptrdiff_t>(at);
            const auto to = static_cast<std::ptrdiff_t>(at + n);
            part.blocks.assign(all.blocks.begin() + from, all.blocks.begin() + to);
            part.addresses.assign(all.addresses.begin() + from, all.addresses.begin() + to);
            cut.batches.push_back(part);
            at += n;
        }
        const Machine machine = reference::random_machine(random);
        const auto a = run(whole, {machine});
        const auto b = run(cut, {machine});
        ASSERT_TRUE(a && b);
        ASSERT_EQ(a->front().misses, b->front().misses);
        ASSERT_EQ(a->front().references, b->front().references);
        ASSERT_EQ(a->front().iterations, b->front().iterations);
    }
}

// Counts that follow from the construction, without any model.
TEST(Engine, CountsAsDefined) {
    Trace trace;
    trace.metadata.kernel_base = 0xc0000000;
    // Three instructions, the second across a page's end: 3 fetches, 4 lookups, 2 pages.
    const std::uint32_t straddling = add_block(trace.dictionary, 0x1ffa, {4, 4, 4}, {});
    // A kernel copy to a user buffer: mode kernel, side user; 8 bytes across two pages: 1 access, 2 lookups.
    const std::uint32_t copy =
        add_block(trace.dictionary, 0xc0001000, {3}, {Slot{.size_log2 = 3, .store = true}});
    Executions executions;
    executions.blocks = {straddling, copy};
    executions.addresses = {0x5ffc};
    trace.batches.push_back(executions);
    const auto ledgers = run(trace, {reference::simple_machine({})});
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    const Ledger& ledger = ledgers->front();
    EXPECT_EQ(ledger.references.at(Kind::kInstruction, Mode::kUser, Side::kUser), 3u);
    EXPECT_EQ(ledger.lookups.at(Kind::kInstruction, Mode::kUser, Side::kUser), 4u);
    EXPECT_EQ(ledger.misses.at(Kind::kInstruction, Mode::kUser, Side::kUser), 2u);
    EXPECT_EQ(ledger.references.at(Kind::kData, Mode::kKernel, Side::kUser), 1u);
    EXPECT_EQ(ledger.lookups.at(Kind::kData, Mode::kKernel, Side::kUser), 2u);
    EXPECT_EQ(ledger.misses.at(Kind::kData, Mode::kKernel, Side::kUser), 2u);
    EXPECT_EQ(ledger.misses.total(), 5u);
    EXPECT_EQ(ledger.refill_cycles(), Cycles(115));
}

TEST(Engine, CountsARepeatedStringInstructionOnce) {
    Trace trace;
    // "mov; rep movs" and the block of one iteration that QEMU makes of it.
    const std::uint32_t first =
        add_block(trace.dictionary, 0x1000, {3, 2}, {Slot{.instruction = 1, .size_log2 = 3}});
    const std::uint32_t again = add_block(trace.dictionary, 0x1003, {2}, {Slot{.size_log2 = 3}}, true);
    Executions executions;
    executions.blocks = {first, again, again, again};
    executions.addresses = {0x8000, 0x8008, 0x8010, 0x8018};
    trace.batches.push_back(executions);
    // Reached by a jump from elsewhere, it is an instruction of its own.
    Executions jump;
    jump.blocks = {add_block(trace.dictionary, 0x2000, {2}, {}), again};
    jump.addresses = {0x8020};
    trace.batches.push_back(jump);
    const auto ledgers = run(trace, {reference::simple_machine({})});
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    EXPECT_EQ(ledgers->front().references.of(Kind::kInstruction), 7u);
    EXPECT_EQ(ledgers->front().instructions[0], 4u);
    EXPECT_EQ(ledgers->front().iterations[0], 3u);
}

// Two spaces use the same page number; the kernel's page is shared.
TEST(Engine, TellsSpacesApart) {
    Trace trace;
    trace.metadata.kernel_base = 0xc0000000;
    const std::uint32_t user = add_block(trace.dictionary, 0x1000, {4}, {});
    const std::uint32_t kernel = add_block(trace.dictionary, 0xc0000000, {4}, {});
    Executions executions;
    executions.blocks = {user, kernel, user, kernel, user, kernel, user};
    for (const auto& [position, space] : {std::pair{2u, 1u}, {4u, 0u}, {6u, 2u}})
        executions.events.push_back(
            {.position = position, .type = recording::EventType::kSwitchSpace, .a = space, .b = 0});
    trace.batches.push_back(executions);
    const auto misses = [&](std::uint32_t asids) {
        Machine machine = reference::simple_machine({});
        machine.asids.count = asids;
        return run(trace, {machine})->front().misses.of(Kind::kInstruction);
    };
    EXPECT_EQ(misses(16), 4u);  // kernel page, and the user page of three spaces
    EXPECT_EQ(misses(2), 4u);   // the third space takes the first's identifier, which is done
    EXPECT_EQ(misses(1), 5u);   // each switch drops user entries
    EXPECT_EQ(misses(0), 7u);   // each switch drops everything
    // 0 and 1 are the same process.
    for (const std::uint32_t id : {0u, 1u}) {
        recording::Space space;
        space.id = SpaceId(id);
        space.pid = 17;
        trace.metadata.spaces.push_back(space);
    }
    EXPECT_EQ(misses(16), 3u);
}

// A space that never runs takes no identifier.
TEST(Engine, ASwitchBeforeTheFirstBlockIsWhereTheCpuStarts) {
    Trace trace;
    add_block(trace.dictionary, 0x1000, {4}, {});
    Executions executions;
    executions.blocks = {0, 0, 0};
    for (const auto& [position, space] : {std::pair{0u, 1u}, {1u, 2u}, {2u, 1u}})
        executions.events.push_back(
            {.position = position, .type = recording::EventType::kSwitchSpace, .a = space, .b = 0});
    trace.batches.push_back(executions);
    Machine machine = reference::simple_machine({});
    machine.asids.count = 2;
    const auto ledgers = run(trace, {machine});
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    EXPECT_EQ(ledgers->front().misses.total(), 2u);
    EXPECT_EQ(ledgers->front().asid_reuses, 0u);
    EXPECT_EQ(ledgers->front().space_switches, 2u);
}

TEST(Engine, PagesGiveWhatReferencesGive) {
    machine::Random random(reference::seed());
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(reference::seed()));
    for (int repeat = 0; repeat < 50; ++repeat) {
        Trace trace;
        trace.metadata.kernel_base = 0xffff800000000000;
        for (std::uint64_t page = 0; page < 12; ++page)
            add_block(trace.dictionary, (page < 6 ? 0x400000 : 0xffff800000000000) + page * 4096, {4},
                      {Slot{.size_log2 = 0}});
        Executions executions;
        recording::PageTouches pages;
        for (int i = 0; i < 400; ++i) {
            const std::uint32_t block = random.below(12);
            const std::uint64_t address = 0x700000 + random.below(50) * 4096;
            const Mode mode = block < 6 ? Mode::kUser : Mode::kKernel;
            executions.blocks.push_back(block);
            executions.addresses.push_back(address);
            pages.touches.push_back({.page = trace.dictionary[block].address.value() >> 12,
                                     .kind = Kind::kInstruction,
                                     .mode = mode});
            pages.touches.push_back({.page = address >> 12, .kind = Kind::kData, .mode = mode});
            const auto in_mode = static_cast<std::size_t>(mode) * 2;
            ++pages.references[in_mode + static_cast<std::size_t>(mode)];
            ++pages.references[4 + in_mode];
        }
        trace.batches.push_back(executions);
        const Machine machine = reference::random_machine(random);
        const auto full = run(trace, {machine});
        ASSERT_TRUE(full) << full.error().message();
        trace.metadata.granularity = recording::Granularity::kPage;
        Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}));
        ASSERT_TRUE(engine.consume(CpuId(0), pages));
        const auto paged = engine.finish(trace.metadata, trace.totals());
        ASSERT_TRUE(paged) << paged.error().message();
        EXPECT_EQ(paged->front().misses, full->front().misses);
        EXPECT_EQ(paged->front().references, full->front().references);
    }
}

TEST(Engine, RefusesABatchWithTooFewOrTooManyAddresses) {
    Trace trace;
    add_block(trace.dictionary, 0x1000, {4}, {Slot{.size_log2 = 3}});
    Executions executions;
    executions.blocks = {0, 0};
    executions.addresses = {0x8000};
    trace.batches = {executions};
    EXPECT_EQ(run(trace, {reference::simple_machine({})}).error().what,
              "a batch holds 1 addresses for 2 accesses");
    executions.addresses = {0x8000, 0x8000, 0x8000};
    trace.batches = {executions};
    EXPECT_EQ(run(trace, {reference::simple_machine({})}).error().what,
              "a batch holds more addresses than its blocks make accesses");
}

TEST(Engine, RefusesTotalsThatTheRecordingDoesNotHold) {
    Trace trace;
    add_block(trace.dictionary, 0x1000, {4, 4}, {});
    Executions executions;
    executions.blocks = {0};
    trace.batches = {executions};
    Engine engine(trace.dictionary, trace.metadata, reference::plans_of({reference::simple_machine({})}));
    ASSERT_TRUE(engine.consume(executions.batch()));
    EXPECT_EQ(
        engine.finish(trace.metadata, {.instructions = 3, .accesses = 0}).error().what,
        "the accounts do not add up: instruction fetches replayed = those the recording counts: 2 against 3");
}

}  // namespace
}  // namespace tlbscope::replay
