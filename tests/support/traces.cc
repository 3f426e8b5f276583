#include "support/traces.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

namespace tlbscope::reference {

using recording::Slot;

namespace {

constexpr std::uint64_t kKernelBase = 0xffff800000000000;

// Addresses close to each other and to page ends, so that small TLBs see hits, misses and straddling.
std::uint64_t random_address(machine::Random& random, std::uint64_t kernel_base) {
    static constexpr std::uint64_t kRegions[] = {0x400000, 0x7ffff0000000, kKernelBase, 0xffffffff81000000};
    std::uint64_t region = kRegions[random.below(4)];
    if (random.below(50) == 0) region = random.below(2) == 0 ? 0 : kernel_base - 0x1000;
    const std::uint64_t page = random.below(2) == 0 ? random.below(6) : random.below(60);
    const std::uint64_t offset = random.below(3) == 0 ? 4096 - random.below(20) : random.below(4096);
    return region + page * 4096 + offset;
}

std::vector<Slot> random_shape(machine::Random& random, std::uint32_t instructions) {
    std::vector<Slot> shape;
    for (std::uint32_t i = 0; i < instructions; ++i)
        for (std::uint32_t n = random.below(5) / 2; n > 0; --n)
            shape.push_back(
                {.instruction = static_cast<std::uint16_t>(i),
                 .size_log2 = static_cast<std::uint8_t>(random.below(random.below(20) == 0 ? 15 : 5)),
                 .store = random.below(2) == 0});
    return shape;
}

void random_dictionary(machine::Random& random, Trace& trace) {
    const std::uint32_t count = 1 + random.below(40);
    for (std::uint32_t b = 0; b < count; ++b) {
        std::vector<std::uint8_t> lengths(1 + random.below(random.below(10) == 0 ? 400 : 8));
        for (auto& length : lengths) length = static_cast<std::uint8_t>(1 + random.below(15));
        // Some blocks begin at another's last instruction, as iterations of a repeated one do.
        if (b > 0 && random.below(4) == 0) {
            const auto& earlier = trace.dictionary[random.below(b)];
            const std::vector<std::uint8_t> one(1, earlier.last_length);
            add_block(trace.dictionary, earlier.last_instruction().value(), one, random_shape(random, 1),
                      true);
            continue;
        }
        add_block(trace.dictionary, random_address(random, trace.metadata.kernel_base), lengths,
                  random_shape(random, static_cast<std::uint32_t>(lengths.size())), random.below(6) == 0);
    }
}

void random_execution(machine::Random& random, const Trace& trace, Executions& executions) {
    const std::uint32_t id = random.below(static_cast<std::uint32_t>(trace.dictionary.size()));
    const recording::Block& block = trace.dictionary[id];
    // Loops, so that runs of the same block appear.
    for (std::uint32_t times = 1 + random.below(random.below(5) == 0 ? 6 : 1); times > 0; --times) {
        std::size_t accesses = block.slot_count;
        if (random.below(12) == 0) {
            const auto begun = static_cast<std::uint16_t>(
                random.below(2) == 0 ? block.instructions : random.below(block.instructions + 1u));
            const std::vector<Slot> made = begun == 0 ? std::vector<Slot>{} : random_shape(random, begun);
            executions.odd.push_back({.ordinal = static_cast<std::uint32_t>(executions.blocks.size()),
                                      .instructions = begun,
                                      .slot_count = static_cast<std::uint16_t>(made.size()),
                                      .first_slot = static_cast<std::uint32_t>(executions.odd_slots.size())});
            executions.odd_slots.insert(executions.odd_slots.end(), made.begin(), made.end());
            accesses = made.size();
        }
        executions.blocks.push_back(id);
        std::uint64_t near = random_address(random, trace.metadata.kernel_base);
        for (std::size_t i = 0; i < accesses; ++i) {
            if (random.below(3) == 0) near = random_address(random, trace.metadata.kernel_base);
            executions.addresses.push_back(near + random.below(16));
        }
    }
}

}  // namespace

replay::RecordedTotals Trace::totals() const {
    replay::RecordedTotals totals;
    for (const Executions& executions : batches) {
        totals.accesses += executions.addresses.size();
        auto odd = executions.odd.begin();
        for (std::size_t i = 0; i < executions.blocks.size(); ++i) {
            if (odd != executions.odd.end() && odd->ordinal == i)
                totals.instructions += odd++->instructions;
            else
                totals.instructions += dictionary[executions.blocks[i]].instructions;
        }
    }
    return totals;
}

std::uint32_t add_block(recording::Dictionary& dictionary, std::uint64_t address,
                        const std::vector<std::uint8_t>& lengths, const std::vector<Slot>& shape,
                        bool repeat) {
    std::size_t bytes = 0;
    for (const std::uint8_t length : lengths) bytes += length;
    return dictionary.add(VirtAddr(address), lengths, std::vector<std::uint8_t>(bytes, 0x90), shape, repeat);
}

Trace random_trace(machine::Random& random) {
    Trace trace;
    // A user-mode recording has no kernel's side; sometimes the base is no multiple of the larger page sizes.
    switch (random.below(4)) {
        case 0:
            break;
        case 1:
            trace.metadata.kernel_base = kKernelBase + 0x5000;
            break;
        default:
            trace.metadata.kernel_base = kKernelBase;
            break;
    }
    const std::uint32_t spaces = 1 + random.below(8);
    for (std::uint32_t s = 0; s < spaces; ++s)
        if (random.below(5) != 0) {
            recording::Space space;
            space.id = SpaceId(s);
            space.pid = random.below(6);
            trace.metadata.spaces.push_back(space);
        }
    random_dictionary(random, trace);
    const std::uint32_t cpus = 1 + random.below(3);
    const std::uint32_t batches = 1 + random.below(6);
    for (std::uint32_t b = 0; b < batches; ++b) {
        Executions executions;
        executions.cpu = CpuId(random.below(cpus));
        for (std::uint32_t n = random.below(80); n > 0; --n) random_execution(random, trace, executions);
        const auto blocks = static_cast<std::uint32_t>(executions.blocks.size());
        static constexpr recording::EventType kTypes[] = {
            recording::EventType::kSwitchSpace, recording::EventType::kSwitchSpace,
            recording::EventType::kInvalidate, recording::EventType::kMark};
        for (std::uint32_t n = random.below(6); n > 0; --n) {
            recording::Event event;
            event.position = random.below(blocks + 1);
            event.type = kTypes[random.below(4)];
            event.a = random.below(spaces);
            if (event.type == recording::EventType::kInvalidate) {
                static constexpr recording::Invalidation kWhat[] = {
                    recording::Invalidation::kTlbie, recording::Invalidation::kInvlpg,
                    recording::Invalidation::kTlbia, recording::Invalidation::kMovToCr3};
                event.a = static_cast<std::uint64_t>(kWhat[random.below(4)]);
                if (random.below(3) != 0) event.b = random_address(random, trace.metadata.kernel_base);
            }
            executions.events.push_back(event);
        }
        std::stable_sort(executions.events.begin(), executions.events.end(),
                         [](const auto& a, const auto& b2) { return a.position < b2.position; });
        trace.batches.push_back(std::move(executions));
    }
    return trace;
}

namespace {

machine::TlbGeometry random_geometry(machine::Random& random) {
    machine::TlbGeometry g;
    g.ways = 1 + random.below(random.below(2) == 0 ? 3 : 10);
    const std::uint32_t sets = random.below(2) == 0 ? 1 : 1 + random.below(4);
    g.replacement = static_cast<machine::Replacement>(random.below(6));
    if (g.replacement == machine::Replacement::kTreePlru) g.ways = std::bit_ceil(g.ways);
    g.entries = g.ways * sets;
    if (sets == 1 && g.replacement != machine::Replacement::kTreePlru && random.below(2) == 0)
        g.reserved = random.below(g.entries);
    g.seed = random.below(1000);
    return g;
}

// Arrays of one level that together take every size for every kind, or for some when `partial`.
void random_level(machine::Random& random, std::uint32_t level, const std::vector<PageShift>& sizes,
                  bool partial, machine::Machine& machine) {
    const bool unified = random.below(3) == 0;
    for (const int kind : unified ? std::vector{2} : std::vector{0, 1}) {
        std::size_t first = partial && random.below(3) == 0 ? 1 : 0;
        while (first < sizes.size()) {
            const std::size_t last =
                random.below(2) == 0
                    ? sizes.size()
                    : first + 1 + random.below(static_cast<std::uint32_t>(sizes.size() - first));
            machine::TlbDescription tlb;
            tlb.name = "array" + std::to_string(machine.tlbs.size());
            tlb.level = level;
            tlb.instruction = kind != 1;
            tlb.data = kind != 0;
            for (std::size_t i = first; i < last; ++i)
                if (i == 0 || random.below(4) != 0) tlb.pages.push_back(sizes[i]);
            tlb.geometry = random_geometry(random);
            tlb.hit = Cycles(level == 1 ? 0 : random.below(9));
            tlb.inclusive = level > 1 && random.below(3) == 0;
            if (!tlb.pages.empty()) machine.tlbs.push_back(tlb);
            first = last;
        }
    }
}

addrspace::MappingRule random_rule(machine::Random& random, const std::vector<PageShift>& sizes) {
    static constexpr std::uint64_t kStarts[] = {0x400000, 0x7ffff0000000, kKernelBase, 0xffffffff81000000};
    addrspace::MappingRule rule;
    rule.what = "random";
    rule.size = sizes[random.below(static_cast<std::uint32_t>(sizes.size()))];
    rule.pinned = random.below(3) == 0;
    switch (random.below(3)) {
        case 0:
            rule.side = random.below(2) == 0 ? Side::kUser : Side::kKernel;
            break;
        default: {
            const std::uint64_t start = kStarts[random.below(4)] + random.below(20) * 4096ull;
            rule.range = addrspace::AddressRange{start, start + (1 + random.below(30)) * 4096ull};
            // Part of a page pinned and part of it mapped in the same size is no mapping software makes.
            constexpr std::uint64_t kLargest = 1 << 19;
            if (rule.pinned)
                rule.range = addrspace::AddressRange{start & ~(kLargest - 1), (start | (kLargest - 1)) + 1};
            break;
        }
    }
    return rule;
}

}  // namespace

machine::Machine general_machine(machine::Random& random) {
    machine::Machine machine = simple_machine({});
    machine.tlbs.clear();
    const std::vector<PageShift> sizes{PageShift(12), PageShift(14), PageShift(16), PageShift(19)};
    machine.pages.sizes = sizes;
    machine.pages.base = sizes[random.below(2)];
    const std::uint32_t levels = 1 + random.below(3);
    for (std::uint32_t level = 1; level <= levels; ++level)
        random_level(random, level, sizes, level > 1, machine);
    for (std::uint32_t n = random.below(5); n > 0; --n) machine.rules.push_back(random_rule(random, sizes));
    machine.asids.count = random.below(6);
    machine::InvalidationRules& rules = machine.invalidation;
    rules.page_matches_any_asid = random.below(2) == 0;
    rules.page_kills_reserved = random.below(2) == 0;
    rules.all_spares_reserved = random.below(2) == 0;
    rules.all_spares_global = random.below(2) == 0;
    rules.all_clears_index = random.below(2) == 0;
    rules.reload_kills_overlapping = random.below(2) == 0;
    return machine;
}

std::vector<replay::TlbEvent> random_events(machine::Random& random, std::uint64_t executions) {
    std::vector<replay::TlbEvent> events(random.below(8));
    for (replay::TlbEvent& event : events) {
        event.what = static_cast<replay::TlbEvent::What>(random.below(3));
        event.address = VirtAddr(random_address(random, kKernelBase));
        event.execution = random.below(static_cast<std::uint32_t>(executions + 5));
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const auto& a, const auto& b) { return a.execution < b.execution; });
    return events;
}

std::vector<replay::Plan> plans_of(const std::vector<machine::Machine>& machines) {
    std::vector<replay::Plan> plans;
    for (const machine::Machine& machine : machines)
        plans.push_back(replay::make_plan(machine, {}, {}).value());
    return plans;
}

machine::Machine simple_machine(const machine::TlbGeometry& geometry) {
    machine::Machine machine;
    machine.name = "test";
    machine.title = "a machine for tests";
    machine.address_bits = 64;
    machine.clock.hertz = 48e6;
    machine.asids.count = 16;
    machine.refill.by = "software";
    machine.refill.cycles = Cycles(23);
    machine.pages.base = PageShift(12);
    machine.pages.sizes = {PageShift(12)};
    for (const Kind kind : replay::kKinds) {
        machine::TlbDescription tlb;
        tlb.name = kind == Kind::kInstruction ? "instruction" : "data";
        tlb.instruction = kind == Kind::kInstruction;
        tlb.data = !tlb.instruction;
        tlb.pages = {PageShift(12)};
        tlb.geometry = geometry;
        machine.tlbs.push_back(tlb);
    }
    return machine;
}

machine::Machine random_machine(machine::Random& random) {
    machine::Machine machine = simple_machine({});
    for (machine::TlbDescription& tlb : machine.tlbs) {
        machine::TlbGeometry& g = tlb.geometry;
        g.ways = 1 + random.below(random.below(2) == 0 ? 4 : 48);
        const std::uint32_t sets = random.below(2) == 0 ? 1 : 1 + random.below(7);
        g.entries = g.ways * sets;
        g.reserved = sets == 1 && random.below(4) == 0 ? random.below(g.entries) : 0;
        g.replacement = static_cast<machine::Replacement>(random.below(6));
        // A tree has a power of two of ways and none reserved.
        if (g.replacement == machine::Replacement::kTreePlru) {
            g.ways = std::bit_ceil(g.ways);
            g.entries = g.ways * sets;
            g.reserved = 0;
        }
        g.seed = random.below(1000);
    }
    machine.pages.base = PageShift(static_cast<std::uint8_t>(12 + random.below(3) * 2));
    machine.pages.sizes = {machine.pages.base};
    for (machine::TlbDescription& tlb : machine.tlbs) tlb.pages = machine.pages.sizes;
    machine.asids.count = random.below(6);
    return machine;
}

std::uint64_t seed() {
    const char* asked = std::getenv("TLBSCOPE_SEED");
    return asked == nullptr ? 20050422 : std::strtoull(asked, nullptr, 0);
}

}  // namespace tlbscope::reference
