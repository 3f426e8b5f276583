// x86 has no broadcast (before INVLPGB): a flush interrupts the CPUs that have the space loaded, each of
// which invalidates for itself.
//
// Every flush of a space raises its generation (tlb_gen), and every CPU remembers up to which generation its
// entries are good, per dynamic ASID (six of them). A CPU that is not interrupted, because it runs something
// else or is lazy, catches up when it next loads the space: with a full flush, since it has missed at least
// one. A CPU that is interrupted does the pages if it is exactly one generation behind, everything otherwise.
// A lazy CPU (idle or kernel thread, space still loaded) is interrupted only when tables were freed, since
// the hardware may walk them on its own; it then leaves the space.
//
// INVLPGB (2025): a space active on three CPUs or more gets an ASID that is the same everywhere, and is
// flushed by one instruction for up to so many pages (CPUID 8000_0008 EDX) and a TLBSYNC, with no interrupt.
// A CPU with a global ASID loaded needs no generation.
#include "flush/x86.h"

#include <algorithm>

namespace tlbscope::flush {

X86::Tlb& X86::tlb(std::uint32_t number) {
    if (number >= tlbs_.size()) tlbs_.resize(number + 1);
    Tlb& tlb = tlbs_[number];
    if (tlb.slots.empty()) tlb.slots.resize(std::max<std::uint32_t>(rules_.asids, 1));
    return tlb;
}

void X86::do_forget(SpaceId space) {
    spaces_.erase(space.value());
    for (Tlb& tlb : tlbs_) {
        for (Slot& slot : tlb.slots)
            if (slot.space == space) slot = {};
    }
}

// The full flush that a CPU owes when it loads a space again. It rides on the write to CR3 that loads it;
// counted as an instruction only when CR3 would not have been written.
void X86::catch_up(std::uint32_t number, Slot& slot, bool counted) {
    const Mm& mm = spaces_[slot.space->value()];
    if (slot.generation == mm.generation) return;
    slot.generation = mm.generation;
    Operation operation{.scope = TlbScope::kPid, .walk_cache = true, .space = *slot.space, .reason = reason_};
    operation.cpus.add(number);
    issue(operation, TlbScope::kPid, counted ? 1 : 0);
}

void X86::unload(std::uint32_t number) {
    Cpu& at = cpu(number);
    if (at.loaded) spaces_[at.loaded->value()].mask.remove(number);
    at.loaded.reset();
    tlb(number).lazy = false;
}

void X86::load(std::uint32_t number, SpaceId space) {
    unload(number);
    Cpu& at = cpu(number);
    Tlb& here = tlb(number);
    Mm& mm = spaces_[space.value()];
    mm.mask.add(number);
    at.loaded = space;
    if (rules_.broadcast && !mm.global_asid && mm.mask.count() >= rules_.broadcast_cpus)
        mm.global_asid = true;
    if (mm.global_asid) {
        // Flushes reach every CPU under a global ASID, loaded or not. Entries that this CPU still holds from
        // before, under a dynamic ASID, are never used again: that slot is given up.
        for (Slot& slot : here.slots)
            if (slot.space == space) {
                catch_up(number, slot, false);
                slot = {};
            }
        return;
    }
    // choose_new_asid
    for (std::uint32_t i = 0; i < here.slots.size() && rules_.asids > 0; ++i) {
        if (here.slots[i].space != space) continue;
        here.loaded = i;
        catch_up(number, here.slots[i], false);
        return;
    }
    if (here.next >= here.slots.size()) here.next = 0;
    here.loaded = here.next++;
    Slot& slot = here.slots[here.loaded];
    if (slot.space) {
        Operation operation{
            .scope = TlbScope::kPid, .walk_cache = true, .space = *slot.space, .reason = reason_};
        operation.cpus.add(number);
        issue(operation, TlbScope::kPid, 0);
    }
    slot.space = space;
    slot.generation = mm.generation;
}

void X86::do_switch(std::uint32_t number, std::optional<SpaceId> space) {
    const Cpu& at = cpu(number);
    Tlb& here = tlb(number);
    if (!space) {
        here.lazy = at.loaded.has_value();
        return;
    }
    if (at.loaded == space) {
        // switch_mm_irqs_off to the same mm: a lazy CPU looks at the generation, others were interrupted.
        if (here.lazy && !spaces_[space->value()].global_asid)
            catch_up(number, here.slots[here.loaded], true);
        here.lazy = false;
        return;
    }
    load(number, *space);
}

// flush_tlb_func on one CPU.
void X86::flush_here(std::uint32_t number, const Request& request, std::uint64_t generation, bool full) {
    Tlb& here = tlb(number);
    Slot& slot = here.slots[here.loaded];
    if (slot.space != request.space || slot.generation == generation) return;
    const bool pages = !full && slot.generation + 1 == generation;
    slot.generation = generation;
    const std::uint64_t count = (request.end - request.start + rules_.page_bytes - 1) / rules_.page_bytes;
    // INVLPG also empties the walk cache of the current ASID (SDM 4.10.4.1).
    Operation operation{.scope = !pages       ? TlbScope::kPid
                                 : count == 1 ? TlbScope::kPage
                                              : TlbScope::kRange,
                        .walk_cache = true,
                        .space = request.space,
                        .start = request.start,
                        .end = request.end,
                        .reason = request.reason};
    operation.cpus.add(number);
    issue(operation, pages ? TlbScope::kPage : TlbScope::kPid, pages ? count : 1);
}

void X86::broadcast(const Request& request, bool full) {
    const std::uint64_t count = (request.end - request.start + rules_.page_bytes - 1) / rules_.page_bytes;
    const std::uint64_t instructions =
        full ? 1 : (count + rules_.broadcast_pages - 1) / rules_.broadcast_pages;
    Operation operation{.scope = full         ? TlbScope::kPid
                                 : count == 1 ? TlbScope::kPage
                                              : TlbScope::kRange,
                        .global = true,
                        .walk_cache = true,
                        .space = request.space,
                        .start = request.start,
                        .end = request.end,
                        .reason = request.reason};
    operation.cpus.add(request.cpu);
    issue(operation, full ? TlbScope::kPid : count == 1 ? TlbScope::kPage : TlbScope::kRange, instructions);
    ++tally().global_barriers;
    ++tally().syncs;
}

void X86::do_request(const Request& request) {
    Request what = request;
    bool full = false;
    switch (request.kind) {
        case RequestKind::kGather:
            if (request.end <= request.start) {
                ++tally().skipped;
                return;
            }
            full = request.whole;
            break;
        case RequestKind::kRange:
            break;
        case RequestKind::kPage:
            what.end = what.start + rules_.page_bytes;
            break;
        case RequestKind::kSpace:
            full = true;
            break;
        case RequestKind::kRelax:     // the processor walks again by itself before it faults
        case RequestKind::kSpurious:  // flush_tlb_fix_spurious_fault does nothing
        case RequestKind::kInstalled:
            return;
    }
    const std::uint64_t pages = (what.end - what.start + rules_.page_bytes - 1) / rules_.page_bytes;
    Mm& mm = spaces_[request.space.value()];
    if (!full) sizes_.add(pages, mm.mask.count() > (mm.mask.has(request.cpu) ? 1U : 0U), request.resident);
    full = full || pages > rules_.ceiling;
    if (mm.global_asid) {
        broadcast(what, full);
        return;
    }
    const std::uint64_t generation = ++mm.generation;
    CpuSet others = mm.mask;
    others.remove(request.cpu);
    if (!request.freed_tables) {
        CpuSet busy;
        others.for_each([&](std::size_t number) {
            if (!tlb(static_cast<std::uint32_t>(number)).lazy) busy.add(number);
        });
        others = busy;
    }
    interrupt(others);
    const bool here = cpu(request.cpu).loaded == request.space;
    if (!here && others.empty()) ++tally().skipped;
    // flush_tlb_func of a CPU that has the space loaded lazily, as at a process's end: it goes to init_mm.
    if (here && tlb(request.cpu).lazy)
        unload(request.cpu);
    else if (here)
        flush_here(request.cpu, what, generation, full);
    others.for_each([&](std::size_t number) {
        const auto other = static_cast<std::uint32_t>(number);
        if (tlb(other).lazy)
            unload(other);  // to init_mm, and it catches up when it loads the space again
        else
            flush_here(other, what, generation, full);
    });
}

std::string X86::state() const {
    std::string text = cpus_state();
    for (const Tlb& here : tlbs_) {
        text += here.lazy ? " L" : " b";
        text += std::to_string(here.loaded) + "," + std::to_string(here.next);
        for (const Slot& slot : here.slots) {
            if (!slot.space) {
                text += "-";
                continue;
            }
            const auto mm = spaces_.find(slot.space->value());
            const std::uint64_t generation = mm == spaces_.end() ? 0 : mm->second.generation;
            text += ":" + std::to_string(slot.space->value()) + "+" +
                    std::to_string(std::min<std::uint64_t>(generation - slot.generation, 2));
        }
    }
    for (std::uint32_t space = 0; space < 16; ++space) {
        const auto mm = spaces_.find(space);
        if (mm == spaces_.end()) continue;
        text += mm->second.global_asid ? " G" : " d";
        mm->second.mask.for_each([&](std::size_t number) { text += std::to_string(number); });
    }
    return text;
}

}  // namespace tlbscope::flush
