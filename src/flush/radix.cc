// POWER9 with radix tables: arch/powerpc/mm/tlb-radix.c of 4.14 and 4.15,
// arch/powerpc/mm/book3s64/radix_tlb.c since.
//
// A flush is local (tlbiel) when only this CPU is in the space's cpumask, else global (tlbie, a broadcast).
// The mask gains a CPU when it runs the space and, before the trimming of 2018, never loses one: a process
// that migrated once is global for good. A local PID flush takes a tlbiel for each of the TLB's 128 sets, a
// global one a single tlbie. Around them stand barriers: ptesync; tlbiel...; ptesync, or ptesync; tlbie...;
// eieio; tlbsync; ptesync.
//
// Before the series (4.14): flush_tlb_range flushes the PID, since generic code does not say which page size;
// a gather flushes its range up to 33 pages, each page between barriers of its own; freed tables set
// need_flush_all, so that the gather flushes the whole PID with its walk cache; a spurious fault and a fault
// that only adds rights flush their page everywhere [R: the latter was removed in 2018]. Patch 2 of the
// series moves the loop over pages into a helper and changes no count.
#include "flush/radix.h"

#include <algorithm>

namespace tlbscope::flush {

namespace {

std::uint64_t pages_of(std::uint64_t start, std::uint64_t end, std::uint64_t page) {
    return end > start ? (end - start + page - 1) / page : 0;
}

}  // namespace

void Radix::do_switch(std::uint32_t number, std::optional<SpaceId> space) {
    Cpu& at = cpu(number);
    if (!space) return;  // lazy: PIDR stays
    masks_[space->value()].add(number);
    at.loaded = space;
}

// exit_lazy_flush_tlb: the CPU leaves the mask, and no entry may stay behind since nobody will ask it again.
void Radix::exit_lazy(std::uint32_t number, SpaceId space, bool current) {
    if (!current) {
        Cpu& at = cpu(number);
        if (at.loaded == space) at.loaded.reset();  // init_mm
        masks_[space.value()].remove(number);
    }
    Operation operation{.scope = TlbScope::kPid, .walk_cache = true, .space = space, .reason = reason_};
    operation.cpus.add(number);
    issue(operation, TlbScope::kPid, rules_.pid_instructions);
    ++tally().local_barriers;
    tally().fences += 2;
}

// exit_flush_lazy_tlbs: all others in the mask are interrupted.
void Radix::exit_lazy_elsewhere(const Request& request) {
    CpuSet others = masks_[request.space.value()];
    others.remove(request.cpu);
    interrupt(others);
    others.for_each([&](std::size_t number) {
        const auto other = static_cast<std::uint32_t>(number);
        exit_lazy(other, request.space, cpu(other).running == request.space);
    });
}

bool Radix::tick(std::uint32_t number) {
    if (number >= clocks_.size()) clocks_.resize(number + 1);
    if (++clocks_[number] != rules_.trim_interval) return false;
    clocks_[number] = 0;
    return true;
}

// flush_type_needed; before it, mm_is_thread_local.
Radix::How Radix::how(const Request& request, bool whole) {
    CpuSet& mask = masks_[request.space.value()];
    const std::size_t active = mask.count();
    const bool alone = active == 1 && mask.has(request.cpu);
    if (!rules_.today) {
        // 4.14 flushes by tlbie when no CPU has run the space yet, too: it is not thread-local.
        return alone ? How::kLocal : How::kGlobal;
    }
    if (active == 0) return How::kNone;
    if (alone) {
        if (!request.current && tick(request.cpu)) {
            exit_lazy(request.cpu, request.space, false);
            return How::kNone;
        }
        return How::kLocal;
    }
    if (whole) return How::kGlobal;
    if (request.users <= 1 && request.current) {
        exit_lazy_elsewhere(request);
        return How::kLocal;
    }
    if (tick(request.cpu)) {
        exit_lazy_elsewhere(request);
        if (request.current) {
            // The kernel flushes locally although threads elsewhere may run the space: do_exit_flush_lazy_tlb
            // has flushed their PID on the way.
            return How::kLocal;
        }
        if (masks_[request.space.value()].has(request.cpu)) exit_lazy(request.cpu, request.space, false);
        return How::kNone;
    }
    return How::kGlobal;
}

CpuSet Radix::executing(How how, const Request& request) const {
    CpuSet cpus;
    if (how == How::kGlobal && rules_.no_tlbie) {
        const auto mask = masks_.find(request.space.value());
        if (mask != masks_.end()) return mask->second;
    }
    cpus.add(request.cpu);
    return cpus;
}

void Radix::barriers(How how, std::uint64_t pairs, const Request& request) {
    if (how == How::kGlobal && !rules_.no_tlbie) {
        tally().global_barriers += pairs;
        tally().fences += pairs * (2 + rules_.fixups);  // each fixup stands behind a ptesync
        tally().syncs += pairs;
        return;
    }
    const std::uint64_t cpus = executing(how, request).count();
    tally().local_barriers += pairs * cpus;
    tally().fences += pairs * cpus * 2;
}

// fixup_tlbie_va and its kin: POWER9 must repeat a tlbie of the same page (store queue erratum), and on some
// parts one of PID 0 too (ERAT erratum), by page after flush_tlb_page and by PID otherwise.
void Radix::fix_up(std::uint64_t times, TlbScope erat) {
    auto& counts = tally().global_instructions;
    if (rules_.fixups >= 1) counts[static_cast<std::size_t>(TlbScope::kPage)] += times;
    if (rules_.fixups >= 2) counts[static_cast<std::size_t>(erat)] += times;
}

void Radix::flush_pid(const Request& request, How how, bool walk_cache) {
    if (how == How::kNone) return;
    const bool global = how == How::kGlobal && !rules_.no_tlbie;
    // The text of patch 6 as posted is not at hand [R]. A CPU that leaves the mask must not keep a walk cache
    // either, or it walks freed tables when it comes back (tests/flush finds the way), so a flush that trims
    // is taken to be one of everything, as the one of 2018 is.
    const bool trims = rules_.reset_cpumask && global && request.users <= 1 && request.current;
    walk_cache = walk_cache || trims;
    Operation operation{.scope = TlbScope::kPid,
                        .global = global,
                        .walk_cache = walk_cache,
                        .space = request.space,
                        .start = 0,
                        .end = 0,
                        .cpus = executing(how, request),
                        .reason = request.reason};
    if (how == How::kGlobal && rules_.no_tlbie) {
        CpuSet others = operation.cpus;
        others.remove(request.cpu);
        interrupt(others);
    }
    issue(operation, TlbScope::kPid, global ? 1 : rules_.pid_instructions);
    if (global) fix_up(1, TlbScope::kPid);
    barriers(how, 1, request);
    if (trims) {
        CpuSet& mask = masks_[request.space.value()];
        mask.clear();
        mask.add(request.cpu);
    }
}

void Radix::flush_pages(const Request& request, How how, std::uint64_t start, std::uint64_t end,
                        bool walk_cache, bool batched, bool second) {
    if (how == How::kNone) return;
    const bool global = how == How::kGlobal && !rules_.no_tlbie;
    const std::uint64_t pages = pages_of(start, end, rules_.page_bytes);
    std::uint64_t instructions = pages;
    if (second) {
        const std::uint64_t first_huge = (start + rules_.huge_bytes - 1) / rules_.huge_bytes;
        const std::uint64_t last_huge = end / rules_.huge_bytes;
        if (last_huge > first_huge) instructions += last_huge - first_huge;
    }
    Operation operation{.scope = pages == 1 ? TlbScope::kPage : TlbScope::kRange,
                        .global = global,
                        .walk_cache = walk_cache,
                        .space = request.space,
                        .start = start,
                        .end = end,
                        .cpus = executing(how, request),
                        .reason = request.reason};
    if (how == How::kGlobal && rules_.no_tlbie) {
        CpuSet others = operation.cpus;
        others.remove(request.cpu);
        interrupt(others);
    }
    issue(operation, TlbScope::kPage, instructions, walk_cache ? 1 : 0);
    const std::uint64_t pairs = batched ? 1 : pages + (walk_cache ? 1 : 0);
    // _tlbie_va is followed by a page of PID 0, _tlbie_va_range by all of it, even for a range of one page.
    if (global) fix_up(pairs, request.kind == RequestKind::kPage ? TlbScope::kPage : TlbScope::kPid);
    barriers(how, pairs, request);
}

// [start, end) by pages up to the ceiling, else by PID.
void Radix::flush_range(const Request& request, std::uint64_t start, std::uint64_t end, bool second,
                        bool walk_cache) {
    const How way = how(request, request.whole);
    if (way == How::kNone) {
        ++tally().skipped;
        return;
    }
    const bool local_ceiling = way == How::kLocal && (rules_.local_ceiling || rules_.today);
    const std::uint64_t ceiling = local_ceiling ? rules_.local_ceiling_pages : rules_.ceiling;
    const std::uint64_t pages = pages_of(start, end, rules_.page_bytes);
    sizes_.add(pages, way == How::kGlobal, request.resident);
    if (pages > ceiling)
        flush_pid(request, way, walk_cache);
    else
        flush_pages(request, way, start, end, walk_cache, rules_.batch_barriers || rules_.today, second);
}

void Radix::flush_space_for_range(const Request& request, std::uint64_t start, std::uint64_t end) {
    const How way = how(request, false);
    sizes_.add(pages_of(start, end, rules_.page_bytes), way == How::kGlobal, request.resident);
    flush_pid(request, way, false);
}

void Radix::do_request(const Request& request) {
    const std::uint64_t page = rules_.page_bytes;
    switch (request.kind) {
        case RequestKind::kGather:
            // A gather for mprotect came with 5.19 (and so 6.1); older kernels flushed the range they were
            // asked to protect.
            if (request.reason == Reason::kProtect && !rules_.today) {
                if (request.wide_end <= request.wide_start) break;
                if (!rules_.range_flush)
                    flush_space_for_range(request, request.wide_start, request.wide_end);
                else
                    flush_range(request, request.wide_start, request.wide_end, true, false);
                return;
            }
            if (request.end <= request.start) break;
            if (request.whole) {
                // The teardown always flushes with RIC=2, which also drops the process table's entry.
                flush_pid(request, how(request, true), true);
                return;
            }
            if (request.freed_tables && !rules_.tables_by_range && !rules_.today) {
                const How way = how(request, false);
                sizes_.add(pages_of(request.start, request.end, page), way == How::kGlobal, request.resident);
                flush_pid(request, way, true);
                return;
            }
            flush_range(request, request.start, request.end, false, request.freed_tables);
            return;
        case RequestKind::kRange:
            if (request.end <= request.start) break;
            if (!rules_.range_flush && !rules_.today)
                flush_space_for_range(request, request.start, request.end);
            else
                flush_range(request, request.start, request.end, true, false);
            return;
        case RequestKind::kSpurious:
            if (rules_.today) break;
            if (rules_.local_spurious)
                flush_pages(request, How::kLocal, request.start, request.start + page, false, true, false);
            else
                flush_pages(request, how(request, false), request.start, request.start + page, false, true,
                            false);
            return;
        case RequestKind::kRelax:
            if (rules_.today) break;
            [[fallthrough]];
        case RequestKind::kPage: {
            const How way = how(request, false);
            if (way == How::kNone) break;
            flush_pages(request, way, request.start, request.start + page, false, true, false);
            return;
        }
        case RequestKind::kSpace:
            flush_pid(request, how(request, false), false);
            return;
        case RequestKind::kInstalled:
            return;
    }
    ++tally().skipped;
}

std::string Radix::state() const {
    std::string text = cpus_state();
    for (std::uint32_t space = 0; space < 16; ++space) {
        const auto mask = masks_.find(space);
        if (mask == masks_.end()) continue;
        text += "m" + std::to_string(space) + ":";
        mask->second.for_each([&](std::size_t number) { text += std::to_string(number) + ","; });
    }
    for (const std::uint32_t clock : clocks_) text += " c" + std::to_string(clock);
    return text;
}

}  // namespace tlbscope::flush
