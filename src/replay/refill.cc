#include "replay/refill.h"

#include <algorithm>
#include <cmath>

#include "addrspace/asids.h"
#include "pagetable/tree_impl.h"
#include "replay/mmu.h"

namespace tlbscope::replay {

namespace {

// Tables lie from here up: below 1 GiB, so that 32-bit formats and virtual table addresses (8xx of Linux 2.4)
// can name them.
constexpr PhysAddr kTables{0x1000000};
constexpr std::uint64_t kTablesBytes = 0x2f000000;
constexpr std::uint32_t kKernelTree = ~std::uint32_t{0};
// Lines of physical memory, as against the program's virtual addresses of some tag.
constexpr std::uint32_t kPhysical = 0;
// Where a handler's save area is taken to lie: a line away from the tables.
constexpr std::uint64_t kSaveArea = 0x400;

const pagetable::Format& format_of(const Plan& plan) {
    const auto& machine = plan.machine;
    // The machine's reader made sure that there is one.
    return **pagetable::find_format(machine.refill.handler ? machine.refill.handler->format
                                                           : machine.walk->format);
}

}  // namespace

PathTotals& PathTotals::operator+=(const PathTotals& other) {
    name = other.name;
    times += other.times;
    cycles += other.cycles;
    instructions += other.instructions;
    table_loads += other.table_loads;
    table_misses += other.table_misses;
    other_loads += other.other_loads;
    other_misses += other.other_misses;
    lines += other.lines;
    line_misses += other.line_misses;
    return *this;
}

Refill::Refill(const Plan& plan)
    : plan_(&plan),
      handler_(plan.machine.refill.handler ? &*plan.machine.refill.handler : nullptr),
      format_(&format_of(plan)),
      arena_(kTables, kTablesBytes),
      tables_(*format_, arena_, {}, &meter_),
      data_(*plan.machine.data_cache) {
    if (plan.machine.instruction_cache) code_.emplace(*plan.machine.instruction_cache);
    if (handler_ != nullptr) {
        for (const machine::HandlerPath& path : handler_->paths) totals_.push_back({.name = path.name});
        return;
    }
    totals_.push_back({.name = "walk"});
    walk_caches_.resize(format_->levels.size());
    for (const auto& cached : plan.machine.walk->caches)
        for (std::size_t level = 0; level < format_->levels.size(); ++level)
            if (format_->levels[level].name == cached.level)
                walk_caches_[level] = machine::make_tlb({.entries = cached.entries,
                                                         .ways = cached.entries,
                                                         .replacement = machine::Replacement::kLru},
                                                        0);
}

Refill::~Refill() {
    // The tables' memory goes with the arena, whatever they hold.
    for (auto& [space, tree] : trees_) tree->release();
}

void Refill::enter(const Segment& segment) {
    segment_ = &segment;
    seen_blocks_ = segment.begin;
    seen_accesses_ = segment.batch == nullptr ? 0 : segment.touches->first_access[segment.begin];
}

void Refill::leave() {
    if (segment_->batch != nullptr) see_program(segment_->end);
    segment_ = nullptr;
}

// The program's references up to `block`, for caches that they push lines out of. Within a block the order of
// fetches and accesses is not kept: the block's lines, then its data.
void Refill::see_program(std::uint32_t block) {
    const Segment& segment = *segment_;
    const bool data = plan_->machine.data_cache->sees_program;
    const bool code = code_ && plan_->machine.instruction_cache->sees_program;
    if (segment.batch == nullptr || (!data && !code)) return;
    const std::uint32_t running = 1u + addrspace::kFirstUserTag;
    if (code) {
        const std::uint64_t line = plan_->machine.instruction_cache->line;
        for (; seen_blocks_ < block; ++seen_blocks_) {
            const recording::Block& entry = (*segment.dictionary)[segment.batch->blocks[seen_blocks_]];
            const std::uint64_t start = entry.address.value();
            const std::uint64_t last = entry.instructions == 0 ? start : entry.last_instruction().value();
            for (std::uint64_t at = start & ~(line - 1); at <= last; at += line)
                code_->touch(at, start >= segment.kernel_base ? 1u : running + segment.space.value());
        }
    }
    if (!data) return;
    const auto& first = segment.touches->first_access;
    const std::uint32_t until = block < segment.end ? first[block] : segment.accesses_end;
    for (; seen_accesses_ < until; ++seen_accesses_) {
        const std::uint64_t address = segment.batch->addresses[seen_accesses_];
        data_.touch(address, address >= segment.kernel_base ? 1u : running + segment.space.value());
    }
}

VirtAddr Refill::address_of(const Touch& touch) const {
    return VirtAddr(machine::page_of(touch.key) << plan_->routes.touched().value());
}

// The entries a walk of the page reads. The first walk of a page maps it, as its page fault did.
const Refill::Entries* Refill::entries_of(const Touch& touch, PageShift page, SpaceId space) {
    const std::uint32_t owner =
        machine::tag_of(touch.key) == addrspace::kGlobalTag ? kKernelTree : space.value();
    const std::uint64_t number = address_of(touch).value() >> page.value();
    auto& of_owner = known_[owner];
    const std::uint64_t key = number << 6 | page.value();
    const auto known = of_owner.find(key);
    if (known != of_owner.end()) return known->second.count == 0 ? nullptr : &known->second;
    const auto fresh = of_owner.emplace(key, made(touch, page, SpaceId(owner))).first;
    return fresh->second.count == 0 ? nullptr : &fresh->second;
}

Refill::Entries Refill::made(const Touch& touch, PageShift page, SpaceId owner) {
    Entries entries;
    const VirtAddr address = address_of(touch);
    const pagetable::PageSize* size = nullptr;
    for (const pagetable::PageSize& candidate : format_->sizes)
        if (candidate.shift <= page || size == nullptr) size = &candidate;
    if (!format_->canonical(address.value())) return entries;
    auto& tree = trees_[owner.value()];
    if (!tree) {
        auto created = Tree::create(*format_, tables_, meter_);
        if (!created) {
            trees_.erase(owner.value());
            return entries;
        }
        tree = std::make_unique<Tree>(std::move(*created));
    }
    if (tree->lookup(address).outcome != pagetable::Outcome::kMapped) {
        const std::uint64_t mask = ~(size->shift.bytes() - 1);
        const unsigned bits = std::min<unsigned>(format_->physical_bits, 30);
        const PhysAddr frame(address.value() & ((std::uint64_t{1} << bits) - 1) & mask);
        const pagetable::Flags flags = pagetable::kRead | pagetable::kWrite | pagetable::kExecute |
                                       pagetable::kAccessed | pagetable::kDirty |
                                       (owner.value() == kKernelTree ? pagetable::kGlobal : pagetable::kUser);
        if (tree->map(VirtAddr(address.value() & mask), frame, size->shift, flags) !=
            pagetable::Status::kDone)
            return entries;
    }
    const pagetable::Walk walk = tree->lookup(address);
    for (const pagetable::Step& step : walk.steps()) {
        entries.at[entries.count] = step.entry_address;
        entries.level[entries.count++] = step.level;
    }
    return entries;
}

std::optional<VirtAddr> Refill::virtual_entry(const Touch& touch, PageShift page) const {
    if (handler_ == nullptr || !handler_->virtual_table) return {};
    const Side side = machine::tag_of(touch.key) == addrspace::kGlobalTag ? Side::kKernel : Side::kUser;
    const addrspace::Region region = handler_->needs_regions() && plan_->region_of && segment_ != nullptr
                                         ? plan_->region_of(segment_->recorded, address_of(touch))
                                         : addrspace::Region::kUnknown;
    if (handler_->path(touch.kind, side, page > plan_->mapping.base(), region).tables !=
        machine::TableLoads::kLast)
        return {};
    if (!format_->canonical(address_of(touch).value())) return {};
    const std::uint64_t number = address_of(touch).value() >> format_->base_page().value();
    return VirtAddr(*handler_->virtual_table + number * format_->levels.back().entry_bytes);
}

std::uint64_t Refill::load_tables(const Entries& entries, std::size_t first, std::size_t last,
                                  PathTotals& totals) {
    const machine::CacheDescription& cache = *plan_->machine.data_cache;
    std::uint64_t cycles = 0;
    for (std::size_t step = first; step < last; ++step) {
        const bool hit = data_.touch(entries.at[step].value(), kPhysical);
        ++totals.table_loads;
        totals.table_misses += hit ? 0 : 1;
        cycles += (hit ? cache.hit : cache.miss).value();
    }
    return cycles;
}

std::uint64_t Refill::run(const machine::HandlerPath& path, std::size_t number, const Entries& entries,
                          std::size_t first, std::size_t last) {
    const machine::Machine& machine = plan_->machine;
    PathTotals& totals = totals_[number];
    std::uint64_t cycles = handler_->entry.value() + handler_->exit.value();
    cycles +=
        static_cast<std::uint64_t>(std::llround(path.instructions * machine.clock.cycles_per_instruction));
    totals.instructions += path.instructions;
    cycles += load_tables(entries, first, last, totals);
    for (std::uint32_t n = 0; n < path.loads + path.stores; ++n) {
        const bool hit = data_.touch(kSaveArea + n % std::max(path.stores, 1u) * 4, kPhysical);
        ++totals.other_loads;
        totals.other_misses += hit ? 0 : 1;
        cycles += (hit ? machine.data_cache->hit : machine.data_cache->miss).value();
    }
    for (std::uint32_t n = 0; code_ && n < path.lines; ++n) {
        const std::uint64_t line = path.address + n * machine.instruction_cache->line;
        const bool hit = code_->touch(line, kPhysical);
        ++totals.lines;
        totals.line_misses += hit ? 0 : 1;
        cycles += (hit ? machine.instruction_cache->hit : machine.instruction_cache->miss).value();
    }
    ++totals.times;
    totals.cycles += cycles;
    return cycles;
}

Cycles Refill::cost(const Touch& touch, PageShift page, SpaceId space) {
    see_program(touch.block);
    const Entries* entries = entries_of(touch, page, space);
    if (entries == nullptr) {
        ++fixed_;
        return plan_->machine.refill.cycles;
    }
    if (handler_ == nullptr) return hardware(touch, *entries);
    const Side side = machine::tag_of(touch.key) == addrspace::kGlobalTag ? Side::kKernel : Side::kUser;
    const addrspace::Region region = handler_->needs_regions() && plan_->region_of
                                         ? plan_->region_of(segment_->recorded, address_of(touch))
                                         : addrspace::Region::kUnknown;
    const machine::HandlerPath& path = handler_->path(touch.kind, side, page > plan_->mapping.base(), region);
    const std::size_t first = path.tables == machine::TableLoads::kAll    ? 0
                              : path.tables == machine::TableLoads::kLast ? entries->count - 1u
                                                                          : entries->count;
    return Cycles(
        run(path, static_cast<std::size_t>(&path - handler_->paths.data()), *entries, first, entries->count));
}

Cycles Refill::nested_cost(const Touch& touch, PageShift page, SpaceId space) {
    const Entries* entries = entries_of(touch, page, space);
    if (entries == nullptr) return {};
    const machine::HandlerPath& path = *handler_->nested();
    return Cycles(run(path, static_cast<std::size_t>(&path - handler_->paths.data()), *entries, 0,
                      entries->count - 1u));
}

Cycles Refill::hardware(const Touch& touch, const Entries& entries) {
    const auto key_of = [&](std::size_t step) {
        const unsigned shift = format_->levels[entries.level[step]].shift;
        const std::uint64_t page = address_of(touch).value() >> shift;
        return machine::key_of(page & ((std::uint64_t{1} << machine::kTagShift) - 1),
                               machine::tag_of(touch.key));
    };
    // Upper entries that are remembered need no load, nor do those above them.
    std::size_t first = 0;
    std::uint32_t missed = 0;
    for (std::size_t step = entries.count - 1u; step-- > 0;) {
        machine::Tlb* cache = walk_caches_[entries.level[step]].get();
        const std::uint64_t key = key_of(step);
        if (cache == nullptr || !cache->holds(key)) continue;
        cache->run({&key, 1}, &missed);
        first = step + 1;
        break;
    }
    PathTotals& totals = totals_[0];
    const std::uint64_t cycles =
        plan_->machine.walk->cycles.value() + load_tables(entries, first, entries.count, totals);
    for (std::size_t step = first; step + 1 < entries.count; ++step) {
        const std::uint64_t key = key_of(step);
        if (machine::Tlb* cache = walk_caches_[entries.level[step]].get(); cache != nullptr)
            cache->run({&key, 1}, &missed);
    }
    ++totals.times;
    totals.cycles += cycles;
    return Cycles(cycles);
}

void Refill::flush() {
    for (const auto& cache : walk_caches_)
        if (cache) cache->flush_all();
}

}  // namespace tlbscope::replay
