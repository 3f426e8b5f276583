// Levels, page sizes, pins and removals: the engine against the reference, and by hand where a manual says
// what happens.
#include "replay/mmu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <tuple>

#include "machine/machine_file.h"
#include "replay/engine.h"
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

std::string describe(const Machine& machine) {
    std::string text = "base " + std::to_string(machine.pages.base.value());
    for (const auto& tlb : machine.tlbs) {
        text += "\n" + tlb.name + " level " + std::to_string(tlb.level) + (tlb.instruction ? " I" : "") +
                (tlb.data ? " D" : "") + (tlb.inclusive ? " inclusive " : " ") +
                std::string(name_of(tlb.geometry.replacement)) + " " + std::to_string(tlb.geometry.entries) +
                "/" + std::to_string(tlb.geometry.ways) + " r" + std::to_string(tlb.geometry.reserved) +
                " pages";
        for (const PageShift size : tlb.pages) text += " " + std::to_string(size.value());
    }
    return text + "\n" + machine.mapping().text();
}

Result<std::vector<Ledger>> run(const Trace& trace, std::vector<Plan> plans) {
    Engine engine(trace.dictionary, trace.metadata, std::move(plans));
    for (const Executions& executions : trace.batches)
        if (auto done = engine.consume(executions.batch()); !done) return std::unexpected(done.error());
    return engine.finish(trace.metadata, trace.totals());
}

void compare(const Trace& trace, const std::vector<Machine>& machines, const std::vector<TlbEvent>& events) {
    std::vector<Plan> plans;
    for (const Machine& machine : machines) plans.push_back(make_plan(machine, {}, events).value());
    const auto ledgers = run(trace, std::move(plans));
    ASSERT_TRUE(ledgers) << ledgers.error().message();
    for (std::size_t m = 0; m < machines.size(); ++m) {
        SCOPED_TRACE(describe(machines[m]));
        reference::Replay slow(trace.dictionary, trace.metadata, machines[m], events);
        for (const Executions& executions : trace.batches) slow.consume(executions.batch());
        const Ledger& ledger = (*ledgers)[m];
        ASSERT_EQ(ledger.references, slow.references);
        ASSERT_EQ(ledger.lookups, slow.lookups);
        ASSERT_EQ(ledger.misses, slow.misses);
        Cycles later;
        for (std::size_t i = 0; i < ledger.levels.size(); ++i) {
            for (const std::size_t k : {0, 1}) {
                ASSERT_EQ(ledger.levels[i].lookups[k], slow.arrays[i].lookups[k]) << ledger.levels[i].name;
                ASSERT_EQ(ledger.levels[i].misses[k], slow.arrays[i].misses[k]) << ledger.levels[i].name;
                later =
                    later + machines[m].tlbs[i].hit * (slow.arrays[i].lookups[k] - slow.arrays[i].misses[k]);
            }
        }
        ASSERT_EQ(ledger.later_hits[0] + ledger.later_hits[1], later);
        std::map<std::tuple<std::uint32_t, std::size_t, std::uint64_t>, std::uint64_t> dead;
        for (const Pin& pin : ledger.pins) {
            std::size_t array = 0;
            while (machines[m].tlbs[array].name != pin.array) ++array;
            if (pin.misses_after > 0) dead[{pin.cpu, array, pin.start.value()}] += pin.misses_after;
        }
        ASSERT_EQ(dead, slow.dead_pins);
    }
}

TEST(Mmu, EqualsTheReferenceOnRandomMachinesAndRuns) {
    const std::uint64_t first = reference::seed();
    for (std::uint64_t seed = first; seed < first + 1200; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        machine::Random random(seed);
        const Trace trace = reference::random_trace(random);
        std::vector<Machine> machines;
        while (machines.size() < 1 + random.below(3)) {
            Machine machine = reference::general_machine(random);
            if (make_plan(machine, {}, {})) machines.push_back(std::move(machine));
        }
        std::vector<TlbEvent> events;
        if (random.below(2) == 0) events = reference::random_events(random, 300);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines, events));
    }
}

// Small arrays of each shape over every trace of six touches of five pages, code on one page and data on the
// next.
TEST(Mmu, EqualsTheReferenceOnEverySmallTrace) {
    std::vector<Machine> machines;
    for (const Replacement policy :
         {Replacement::kFifo, Replacement::kLru, Replacement::kTreePlru, Replacement::kNru})
        for (const bool unified : {false, true})
            for (const bool inclusive : {false, true}) {
                Machine machine = reference::simple_machine(
                    {.entries = 2, .ways = 2, .reserved = 0, .replacement = policy, .seed = 1});
                if (unified) {
                    machine.tlbs.pop_back();
                    machine.tlbs[0].data = true;
                }
                machine::TlbDescription second = machine.tlbs[0];
                second.name = "second";
                second.level = 2;
                second.instruction = second.data = true;
                second.geometry.entries = 3;
                second.geometry.ways = policy == Replacement::kTreePlru ? 1 : 3;
                second.inclusive = inclusive;
                machine.tlbs.push_back(second);
                machines.push_back(machine);
            }
    const std::uint64_t pages[] = {0x400000, 0x401000, 0x402000, 0xffff800000000000, 0xffff800000001000};
    std::vector<unsigned> symbols(6, 0);
    for (;;) {
        Trace trace;
        trace.metadata.kernel_base = 0xffff800000000000;
        for (const std::uint64_t page : pages)
            add_block(trace.dictionary, page + 8, {4}, {Slot{.size_log2 = 2}});
        Executions executions;
        for (const unsigned page : symbols) {
            executions.blocks.push_back(page);
            executions.addresses.push_back(pages[(page + 1) % 5]);
        }
        trace.batches.push_back(executions);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines, {}));
        unsigned at = 0;
        while (at < symbols.size() && ++symbols[at] == 5) symbols[at++] = 0;
        if (at == symbols.size()) break;
    }
}

// The shipped machines, with their own mappings: regions become ranges that the traces below use.
constexpr std::uint64_t kLinear = 0xffff800000000000;
constexpr std::uint64_t kText = 0xffffffff81000000;

std::vector<Machine> shipped_machines() {
    std::vector<Machine> machines;
    EXPECT_EQ(setenv("TLBSCOPE_MACHINES", MACHINES, 1), 0);
    for (const std::string& name : machine::machine_names()) {
        Machine machine = machine::load_machine(name).value();
        for (addrspace::MappingRule& rule : machine.rules) {
            if (rule.range)
                rule.range = addrspace::AddressRange{kLinear, kLinear + rule.size.bytes()};
            else if (rule.region == addrspace::Region::kKernelText)
                rule.range = addrspace::AddressRange{kText, kText + (1 << 28)};
            else if (rule.region == addrspace::Region::kKernelLinear)
                rule.range = addrspace::AddressRange{kLinear, kLinear + (std::uint64_t{1} << 40)};
            else
                rule.range = addrspace::AddressRange{kLinear + (std::uint64_t{1} << 41),
                                                     kLinear + (std::uint64_t{1} << 42)};
            rule.region.reset();
        }
        machines.push_back(std::move(machine));
    }
    return machines;
}

// The same shape with as many ways and sets at most.
Machine scaled_down(Machine machine, std::uint32_t ways, std::uint32_t sets) {
    for (machine::TlbDescription& tlb : machine.tlbs) {
        machine::TlbGeometry& geometry = tlb.geometry;
        const std::uint32_t kept = std::min(geometry.sets(), sets);
        geometry.ways = std::min(geometry.ways, ways);
        if (geometry.replacement == Replacement::kTreePlru) geometry.ways = std::bit_floor(geometry.ways);
        geometry.entries = geometry.ways * kept;
        geometry.reserved = std::min(geometry.reserved, geometry.ways - 1);
    }
    return machine;
}

// Code and data over thousands of pages and tens of large ones, some of them hot, in several spaces.
Trace wide_trace(machine::Random& random, std::uint32_t executions) {
    Trace trace;
    trace.metadata.kernel_base = kLinear;
    const auto address = [&random]() -> std::uint64_t {
        static constexpr std::uint64_t kStarts[] = {0x400000, 0x7fff00000000, kLinear, kText,
                                                    kLinear + (std::uint64_t{1} << 41)};
        const std::uint64_t start = kStarts[random.below(5)];
        const std::uint64_t offset = random.below(20) == 0 ? 4094 : random.below(4000);
        switch (random.below(3)) {
            case 0:
                return start + random.below(8) * 4096ull + offset;
            case 1:
                return start + random.below(2000) * 4096ull + offset;
            default:
                return start + random.below(20) * (std::uint64_t{1} << 21) + offset;
        }
    };
    for (std::uint32_t space = 1; space <= 9; ++space)
        trace.metadata.spaces.push_back({.id = SpaceId(space), .pid = 100 + space, .name = "", .task = 0});
    for (int i = 0; i < 150; ++i)
        add_block(trace.dictionary, address(), {4, 4},
                  std::vector<Slot>(random.below(3), Slot{.instruction = 1, .size_log2 = 3}));
    while (executions > 0) {
        Executions batch;
        for (std::uint32_t n = std::min(executions, 1 + random.below(200)); n > 0; --n, --executions) {
            if (random.below(30) == 0)
                batch.events.push_back({.position = batch.blocks.size(),
                                        .type = recording::EventType::kSwitchSpace,
                                        .a = 1 + random.below(9),
                                        .b = 0});
            const std::uint32_t block = random.below(150);
            batch.blocks.push_back(block);
            for (std::size_t i = trace.dictionary.shape(trace.dictionary[block]).size(); i > 0; --i)
                batch.addresses.push_back(address());
        }
        trace.batches.push_back(std::move(batch));
    }
    return trace;
}

TEST(ShippedMachines, EqualTheReferenceOnRandomRuns) {
    const std::vector<Machine> machines = shipped_machines();
    ASSERT_GE(machines.size(), 17u);
    std::vector<Machine> small;
    for (const Machine& machine : machines) {
        SCOPED_TRACE(machine.name);
        small.push_back(scaled_down(machine, 3, 2));
        ASSERT_TRUE(make_plan(small.back(), {}, {}));
    }
    const std::uint64_t first = reference::seed();
    for (std::uint64_t seed = first; seed < first + 20; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        machine::Random random(seed);
        const Trace trace = reference::random_trace(random);
        const std::vector<TlbEvent> events = reference::random_events(random, 300);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines, events));
        ASSERT_NO_FATAL_FAILURE(compare(trace, small, events));
        ASSERT_NO_FATAL_FAILURE(compare(wide_trace(random, 200), small, events));
    }
    machine::Random random(first);
    ASSERT_NO_FATAL_FAILURE(compare(wide_trace(random, 1000), machines, {}));
}

// Two base pages of the user, two large pages of the linear map and one of the text, in arrays of at most two
// sets of two.
TEST(ShippedMachines, EqualTheReferenceOnEverySmallTrace) {
    std::vector<Machine> machines;
    for (const Machine& machine : shipped_machines()) machines.push_back(scaled_down(machine, 2, 2));
    const std::uint64_t pages[] = {0x400000, 0x420000, kLinear, kLinear + (1 << 22), kText};
    std::vector<unsigned> symbols(5, 0);
    for (;;) {
        Trace trace;
        trace.metadata.kernel_base = kLinear;
        for (const std::uint64_t page : pages)
            add_block(trace.dictionary, page + 8, {4}, {Slot{.size_log2 = 2}});
        Executions executions;
        for (const unsigned page : symbols) {
            executions.blocks.push_back(page);
            executions.addresses.push_back(pages[(page + 1) % 5]);
        }
        trace.batches.push_back(executions);
        ASSERT_NO_FATAL_FAILURE(compare(trace, machines, {}));
        unsigned at = 0;
        while (at < symbols.size() && ++symbols[at] == 5) symbols[at++] = 0;
        if (at == symbols.size()) break;
    }
}

// Pages that data accesses, one after the other.
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

Machine with_pin(std::uint32_t reserved) {
    Machine machine = machine::load_machine(MACHINES "/mpc855t.toml").value();
    for (auto& tlb : machine.tlbs) tlb.geometry.reserved = reserved;
    machine.rules.push_back(addrspace::parse_rule("0xc0000000:8M", true).value());
    return machine;
}

Ledger one(const Trace& trace, const Machine& machine, std::vector<TlbEvent> events = {}) {
    return run(trace,
               [&] {
                   std::vector<Plan> plans;
                   plans.push_back(make_plan(machine, {}, std::move(events)).value());
                   return plans;
               }())
        .value()[0];
}

// MPC801 UM 11.8.3: tlbie compares addresses only and takes reserved entries as well.
TEST(Pins, AnInvalidationInsideThePinKillsIt) {
    const Trace trace = accesses({0xc0000000, 0xc0100000, 0xc0200000, 0xc0300000, 0xc0400000});
    const Ledger alive = one(trace, with_pin(1));
    EXPECT_EQ(alive.misses.total(), 0u);
    ASSERT_EQ(alive.pins.size(), 2u);
    EXPECT_EQ(alive.pins[0].killed_by, "");

    const TlbEvent tlbie{.address = VirtAddr(0xc0765000), .execution = 3};
    const Ledger killed = one(trace, with_pin(1), {tlbie});
    EXPECT_EQ(killed.misses.of(Kind::kData), 2u);
    EXPECT_EQ(killed.misses.of(Kind::kInstruction), 1u);
    for (const Pin& pin : killed.pins) {
        EXPECT_EQ(pin.killed_by, "an invalidation of 0xc0765000");
        EXPECT_EQ(pin.killed_at, 3u);
        EXPECT_EQ(pin.misses_after, pin.array == "data" ? 2u : 1u);
    }
    // Of another range: nothing happens.
    EXPECT_EQ(one(trace, with_pin(1), {{.address = VirtAddr(0xc0800000), .execution = 3}}).misses.total(),
              0u);
}

// MPC801 UM 11.2: a reload kills what it overlaps.
TEST(Pins, AReloadInsideThePinKillsItInTheDataArrayOnly) {
    const Trace trace = accesses({0xc0000000, 0xc0100000, 0xc0200000, 0xc0100000});
    const TlbEvent load{.what = TlbEvent::What::kLoad, .address = VirtAddr(0xc0100123), .execution = 2};
    const Ledger killed = one(trace, with_pin(1), {load});
    EXPECT_EQ(killed.misses.of(Kind::kInstruction), 0u);
    EXPECT_EQ(killed.misses.of(Kind::kData), 1u);  // 0xc0200000; the page that was loaded hits
    for (const Pin& pin : killed.pins)
        EXPECT_EQ(pin.killed_by, pin.array == "data" ? "a reload of the page at 0xc0100123" : "");
}

TEST(Pins, TlbiaSparesThem) {
    const Trace trace = accesses({0xc0000000, 0xc0100000});
    EXPECT_EQ(
        one(trace, with_pin(1), {{.what = TlbEvent::What::kInvalidateAll, .execution = 1}}).misses.total(),
        0u);
}

TEST(Pins, WithoutAReservedEntryThereIsNone) {
    const Ledger ledger = one(accesses({0xc0000000, 0xc0100000}), with_pin(0));
    EXPECT_EQ(ledger.misses.of(Kind::kData), 2u);
    ASSERT_EQ(ledger.pins.size(), 2u);
    EXPECT_TRUE(ledger.pins[0].refused);
}

TEST(Mapping, LargePagesTakeOneEntry) {
    Machine machine = machine::load_machine(MACHINES "/mpc855t.toml").value();
    machine.rules.push_back(addrspace::parse_rule("kernel=8M", false).value());
    const Ledger ledger =
        one(accesses({0xc0000000, 0xc0100000, 0xc0800000, 0x10000000, 0x10001000, 0xc07fffff}), machine);
    EXPECT_EQ(ledger.misses.by_side(Kind::kData, Side::kKernel), 2u);
    EXPECT_EQ(ledger.misses.by_side(Kind::kData, Side::kUser), 2u);
    EXPECT_EQ(ledger.mapping, "4K; kernel=8M");
}

TEST(Mapping, APageLargerThanTheArraysEntriesTakesSeveral) {
    Machine machine =
        reference::simple_machine({.entries = 8, .ways = 8, .reserved = 0, .replacement = Replacement::kLru});
    machine.pages.sizes = {PageShift(12), PageShift(21), PageShift(30)};
    for (auto& tlb : machine.tlbs) tlb.pages = {PageShift(12), PageShift(21)};
    machine.rules.push_back(addrspace::parse_rule("kernel=1G", false).value());
    EXPECT_EQ(one(accesses({0xc0000000, 0xc0100000, 0xc0200000, 0xc0300000}), machine).misses.of(Kind::kData),
              2u);
}

}  // namespace
}  // namespace tlbscope::replay
