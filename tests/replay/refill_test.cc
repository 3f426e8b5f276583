// Derived costs by hand: what a walk loads, what walk caches leave out, what a handler's path adds.
#include "replay/refill.h"

#include <gtest/gtest.h>

#include <deque>

#include "machine/machine_file.h"
#include "replay/engine.h"
#include "support/traces.h"

namespace tlbscope::replay {
namespace {

using machine::Machine;
using recording::Slot;
using reference::add_block;
using reference::Executions;
using reference::Trace;

// One user data access per address by code on one kernel page.
Trace accesses(const std::vector<std::uint64_t>& addresses) {
    Trace trace;
    trace.metadata.kernel_base = 0xc0000000;
    add_block(trace.dictionary, 0xc0001000, {4}, {Slot{.size_log2 = 2}});
    Executions executions;
    for (const std::uint64_t address : addresses) {
        executions.blocks.push_back(0);
        executions.addresses.push_back(address);
    }
    trace.batches.push_back(executions);
    return trace;
}

Ledger run(const Trace& trace, const Machine& machine) {
    Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}));
    for (const Executions& executions : trace.batches) EXPECT_TRUE(engine.consume(executions.batch()));
    const auto ledgers = engine.finish(trace.metadata, trace.totals());
    EXPECT_TRUE(ledgers) << ledgers.error().message();
    return (*ledgers)[0];
}

// One entry per array, so that each access of another page misses.
Machine one_entry() {
    Machine machine = reference::simple_machine(
        {.entries = 1, .ways = 1, .reserved = 0, .replacement = machine::Replacement::kFifo});
    machine.refill.derived = true;
    machine.data_cache = machine::CacheDescription{
        .bytes = 4096, .line = 64, .ways = 64, .hit = Cycles(4), .miss = Cycles(100)};
    return machine;
}

Machine x86(std::vector<Machine::Walk::Cached> caches) {
    Machine machine = one_entry();
    machine.walk = Machine::Walk{.format = "x86-64", .caches = std::move(caches), .cycles = Cycles(10)};
    return machine;
}

constexpr std::uint64_t kA = 0x400000, kB = 0x401000, kC = 0x600000;

TEST(Walks, LoadEveryLevelThroughTheCache) {
    const Ledger ledger = run(accesses({kA, kB, kC, kA}), x86({}));
    // A: four tables that nobody loaded. B: the same four entries' lines. C: a new lowest table; its upper
    // entry lies in A's line. A again: all there.
    EXPECT_EQ(ledger.refill[1], Cycles(10 + 400 + 10 + 16 + 10 + 112 + 10 + 16));
    ASSERT_EQ(ledger.refill_paths.size(), 1u);
    // The fetch of the kernel's page walked once as well, four new tables of its own.
    EXPECT_EQ(ledger.refill[0], Cycles(410));
    EXPECT_EQ(ledger.refill_paths[0].times, 5u);
    EXPECT_EQ(ledger.refill_paths[0].table_loads, 20u);
    EXPECT_EQ(ledger.refill_paths[0].table_misses, 9u);
}

TEST(Walks, RememberedUpperEntriesNeedNoLoad) {
    const Ledger ledger = run(accesses({kA, kB, kC, kA}), x86({{.level = "pmd", .entries = 2}}));
    // The kernel's page takes a walk-cache entry first; A's and C's then share the two with it, A's is used
    // last but one. B: one load, A's line. C: all four levels. A again: one load.
    EXPECT_EQ(ledger.refill[1], Cycles(410 + 14 + 122 + 14));
    const Ledger small = run(accesses({kA, kC, kA}), x86({{.level = "pmd", .entries = 1}}));
    EXPECT_EQ(small.refill[1], Cycles(410 + 122 + 26));
}

TEST(Walks, ALargePageEndsAtItsLevel) {
    Machine machine = x86({});
    machine.pages.sizes = {PageShift(12), PageShift(21)};
    for (auto& tlb : machine.tlbs) tlb.pages = machine.pages.sizes;
    machine.rules = {addrspace::parse_rule("user=2M", false).value()};
    const Ledger ledger = run(accesses({kA, kB, kC}), machine);
    // Three levels for A, none for B, which A's entry maps, three for C, of which all lines are there.
    EXPECT_EQ(ledger.refill[1], Cycles(310 + 22));
}

TEST(Walks, AnAddressTheFormatCannotTranslateGetsTheFixedCost) {
    Machine machine = one_entry();
    machine.walk = Machine::Walk{.format = "sv39", .caches = {}, .cycles = Cycles(10)};
    const Ledger ledger = run(accesses({0x7fff00000000}), machine);
    EXPECT_EQ(ledger.fixed_refills, 1u);
    EXPECT_EQ(ledger.refill[1], machine.refill.cycles);
}

// Two pages whose lowest entries share a line, with and without the program's accesses in between.
TEST(Walks, TheProgramPushesLinesOut) {
    Machine machine = one_entry();
    machine.walk = Machine::Walk{.format = "x86-64", .caches = {}, .cycles = Cycles(0)};
    // One line in all.
    machine.data_cache =
        machine::CacheDescription{.bytes = 64, .line = 64, .ways = 1, .hit = Cycles(4), .miss = Cycles(100)};
    EXPECT_EQ(run(accesses({kA, kB}), machine).refill[1], Cycles(800));
    machine.data_cache->bytes = 64 * 8;
    machine.data_cache->ways = 8;
    EXPECT_EQ(run(accesses({kA, kB}), machine).refill[1], Cycles(416));
    machine.data_cache->sees_program = true;
    // Accesses within A before B: nine lines, so that none of the walk's eight is left.
    std::vector<std::uint64_t> addresses{kA};
    for (unsigned line = 1; line <= 9; ++line) addresses.push_back(kA + line * 64);
    addresses.push_back(kB);
    EXPECT_EQ(run(accesses(addresses), machine).refill[1], Cycles(800));
}

machine::Handler handler(const std::string& paths, const std::string& more = "") {
    const auto made = machine::parse_handler(
        "name = \"h\"\ntitle = \"h\"\nsource = \"made for this test\"\nformat = \"sparc64\"\nentry = 10\n"
        "exit = 5\n" +
            more + paths,
        "h.toml");
    EXPECT_TRUE(made) << made.error().message();
    return made.value_or(machine::Handler{});
}

TEST(Handlers, APathCostsItsInstructionsItsLoadsAndItsLines) {
    Machine machine = one_entry();
    machine.instruction_cache =
        machine::CacheDescription{.bytes = 1024, .line = 16, .ways = 1, .hit = Cycles(0), .miss = Cycles(7)};
    machine.refill.handler = handler(
        "[[path]]\nname = \"kernel\"\nside = \"kernel\"\ninstructions = 3\ntables = \"none\"\n"
        "[[path]]\nname = \"user\"\ninstructions = 20\ntables = \"all\"\nloads = 1\nstores = 1\nlines = 2\n"
        "address = \"0x100\"\n");
    const Ledger ledger = run(accesses({kA, kA + 0x2000}), machine);
    EXPECT_EQ(ledger.refill[0], Cycles(10 + 5 + 3));
    // First: three tables, the save area's line once missed and once hit, two lines of code. Then the
    // neighbour: the same lines.
    EXPECT_EQ(ledger.refill[1], Cycles((15 + 20 + 300 + 100 + 4 + 14) + (15 + 20 + 12 + 4 + 4)));
    ASSERT_EQ(ledger.refill_paths.size(), 2u);
    EXPECT_EQ(ledger.refill_paths[1].times, 2u);
    EXPECT_EQ(ledger.refill_paths[1].line_misses, 2u);
}

// sparc64: the lowest table is read through virtual memory, which takes an entry of the data TLB.
TEST(Handlers, ALoadThroughVirtualMemoryTakesAnEntry) {
    Machine machine = one_entry();
    for (auto& tlb : machine.tlbs) tlb.geometry.entries = tlb.geometry.ways = 2;
    machine.refill.handler = handler(
        "[[path]]\nname = \"nested\"\nnested = true\ninstructions = 20\ntables = \"all\"\n"
        "[[path]]\nname = \"kernel\"\nside = \"kernel\"\ninstructions = 3\ntables = \"none\"\n"
        "[[path]]\nname = \"page\"\ninstructions = 9\ntables = \"last\"\n",
        "virtual_table = \"0xfffffffe00000000\"\n");
    const Ledger ledger = run(accesses({kA, kA + 0x2000, kA}), machine);
    // Two entries, FIFO: A's table page and A fill them; the neighbour finds the table page and replaces it;
    // A still hits.
    EXPECT_EQ(ledger.misses.of(Kind::kData), 2u);
    const LevelCounts& data = ledger.levels[1];
    EXPECT_EQ(data.nested, 2u);
    EXPECT_EQ(data.nested_misses, 1u);
    // Nested: pgd and pmd, both new; then the page's own entry, new. The second: its line is there.
    EXPECT_EQ(ledger.refill[1], Cycles((15 + 20 + 200) + (15 + 9 + 100) + (15 + 9 + 4)));
}

TEST(Handlers, BadFilesAreRefusedWithLineAndRemedy) {
    const std::string head =
        "name = \"h\"\ntitle = \"h\"\nsource = \"s\"\nformat = \"sparc64\"\nentry = 10\nexit = 5\n";
    const std::string path = "[[path]]\nname = \"p\"\ninstructions = 3\ntables = \"none\"\n";
    const auto complaint = [](const std::string& text) {
        const auto made = machine::parse_handler(text, "h.toml");
        return made ? std::string("accepted") : made.error().message();
    };
    EXPECT_EQ(complaint(head + path), "accepted");
    EXPECT_EQ(complaint(head), "h.toml:1:1: the handler has no path; add one: [[path]]");
    EXPECT_EQ(complaint(head + "[[path]]\nname = \"p\"\ninstructons = 3\ntables = \"none\"\n"),
              "h.toml:9:1: unknown key path[1].instructons; did you mean path[1].instructions?");
    EXPECT_EQ(
        complaint(head + path + "side = \"kernel\"\n"),
        "h.toml:7:1: no path takes every miss that the others do not; leave kind, side, large and region out "
        "of the last one");
    EXPECT_EQ(complaint(head + "virtual_table = \"0x100\"\n" + path),
              "h.toml:8:1: a handler with a virtual table has no path for when its load misses; add one with "
              "nested "
              "= true");
    EXPECT_EQ(
        complaint("name = \"h\"\ntitle = \"h\"\nsource = \"s\"\nformat = \"sparc\"\nentry = 1\nexit = 1\n" +
                  path)
            .substr(0, 11),
        "h.toml:4:10");
}

TEST(Handlers, AllThatComeWithTlbscopeLoad) {
    unsigned count = 0;
    for (const std::string& name : machine::handler_names()) {
        const auto loaded = machine::load_handler(name);
        ASSERT_TRUE(loaded) << loaded.error().message();
        EXPECT_EQ(loaded->name, name);
        ++count;
    }
    EXPECT_GE(count, 9u);
}

// Against a list kept by hand: the most recent first.
TEST(Cache, EqualsAListOfLinesOnRandomAddresses) {
    machine::Random random(reference::seed());
    for (int repeat = 0; repeat < 200; ++repeat) {
        machine::CacheDescription description{
            .bytes = 0, .line = 16u << random.below(3), .ways = 1 + random.below(5)};
        const std::uint32_t sets = 1u << random.below(4);
        description.bytes = description.line * description.ways * sets;
        machine::Cache cache(description);
        std::vector<std::deque<std::pair<std::uint64_t, std::uint32_t>>> slow(sets);
        for (int touch = 0; touch < 400; ++touch) {
            const std::uint64_t address = random.below(2000);
            const std::uint32_t space = random.below(2);
            const std::pair line(address / description.line, space);
            auto& set = slow[line.first % sets];
            const auto found = std::find(set.begin(), set.end(), line);
            const bool hit = found != set.end();
            if (hit) set.erase(found);
            set.push_front(line);
            if (set.size() > description.ways) set.pop_back();
            ASSERT_EQ(cache.touch(address, space), hit);
        }
    }
}

}  // namespace
}  // namespace tlbscope::replay
