// arch/riscv/mm/tlbflush.c and context.c. A flush of at most 64 pages goes by page (sfence.vma with an
// address), a larger one by ASID or everything. It is local when only this hart is in the space's mask; else
// the firmware (SBI remote fence) or an IPI makes every hart of the mask do it. Without an ASID allocator,
// the usual case on hardware with no ASID bits, each switch flushes everything and takes the hart out of the
// mask of the space it leaves. A new entry is followed by a local sfence.vma of its page (update_mmu_cache):
// harts may have cached that there was none.
#include "flush/broadcast.h"

namespace tlbscope::flush {

void Riscv::do_switch(std::uint32_t number, std::optional<SpaceId> space) {
    Cpu& at = cpu(number);
    if (!space || at.loaded == space) return;
    if (!rules_.asids && at.loaded) {
        masks_[at.loaded->value()].remove(number);
        Operation operation{
            .scope = TlbScope::kAll, .walk_cache = true, .space = *at.loaded, .reason = reason_};
        operation.cpus.add(number);
        issue(operation, TlbScope::kAll, 1);
    }
    masks_[space->value()].add(number);
    at.loaded = space;
}

void Riscv::do_request(const Request& request) {
    std::uint64_t start = request.start;
    std::uint64_t end = request.end;
    bool full = false;
    bool only_here = false;
    switch (request.kind) {
        case RequestKind::kGather:
            full = request.whole;
            if (end <= start) {
                ++tally().skipped;
                return;
            }
            break;
        case RequestKind::kRange:
            break;
        case RequestKind::kPage:
            end = start + rules_.page_bytes;
            break;
        case RequestKind::kRelax:
        case RequestKind::kSpurious:
        case RequestKind::kInstalled:
            end = start + rules_.page_bytes;
            only_here = true;
            break;
        case RequestKind::kSpace:
            full = true;
            break;
    }
    CpuSet mask = masks_[request.space.value()];
    if (only_here) {
        mask.clear();
        mask.add(request.cpu);
    }
    if (mask.empty()) {
        ++tally().skipped;
        return;
    }
    const std::uint64_t pages = (end - start + rules_.page_bytes - 1) / rules_.page_bytes;
    CpuSet others = mask;
    others.remove(request.cpu);
    if (!full && !only_here) sizes_.add(pages, !others.empty(), request.resident);
    full = full || pages > rules_.ceiling;
    interrupt(others);
    // sfence.vma with an address orders the walk of leaf entries only; a freed table needs the whole ASID,
    // which the kernel gets by freeing tables after a grace period and flushing here [R]: modelled as
    // reaching the walk cache.
    const Operation operation{.scope = full         ? TlbScope::kPid
                                       : pages == 1 ? TlbScope::kPage
                                                    : TlbScope::kRange,
                              .walk_cache = full || request.freed_tables,
                              .space = request.space,
                              .start = start,
                              .end = end,
                              .cpus = mask,
                              .reason = request.reason};
    issue(operation, full ? TlbScope::kPid : TlbScope::kPage, full ? 1 : pages);
}

std::string Riscv::state() const {
    std::string text = cpus_state();
    for (std::uint32_t space = 0; space < 16; ++space) {
        const auto mask = masks_.find(space);
        if (mask == masks_.end()) continue;
        text += "m";
        mask->second.for_each([&](std::size_t number) { text += std::to_string(number); });
    }
    return text;
}

}  // namespace tlbscope::flush
