// arch/arm64/include/asm/tlbflush.h: dsb ishst; tlbi ...is; dsb ish. There is no cpumask: every flush is a
// broadcast, whoever has run the space.
//
// A range goes by page up to MAX_DVM_OPS pages (exclusive), else by ASID. With range operations it goes by
// RVAE1IS up to MAX_TLBI_RANGE_PAGES. TLBI VALE1IS, for pages whose tables stay, spares the walk cache;
// VAE1IS does not. The teardown of a whole space flushes its ASID when tables were freed. A dirty bit that
// was set in an entry flushes the page, for the stale read-only entry (ptep_set_access_flags). Not modelled:
// the roll-over of ASIDs (after 65,535 spaces), and the second TLBI of kernels that unmap themselves from
// user space.
#include <algorithm>

#include "flush/broadcast.h"

namespace tlbscope::flush {

std::uint64_t Arm64::range_instructions(std::uint64_t pages) {
    // __flush_tlb_range_op: num = ((pages >> (5 * scale + 1)) & 31) - 1, and (num + 1) << (5 * scale + 1)
    // pages.
    std::uint64_t count = pages & 1;
    for (int scale = 0; scale < 4; ++scale)
        if (((pages >> (5 * scale + 1)) & 31) != 0) ++count;
    return count;
}

void Arm64::do_switch(std::uint32_t number, std::optional<SpaceId> space) {
    if (space) cpu(number).loaded = space;
}

void Arm64::do_request(const Request& request) {
    std::uint64_t start = request.start;
    std::uint64_t end = request.end;
    bool full = false;
    switch (request.kind) {
        case RequestKind::kGather:
            full = request.whole;
            if (end <= start || (full && !request.freed_tables)) {
                ++tally().skipped;
                return;
            }
            break;
        case RequestKind::kRange:
            break;
        case RequestKind::kPage:
        case RequestKind::kRelax:
            end = start + rules_.page_bytes;
            break;
        case RequestKind::kSpace:
            full = true;
            break;
        case RequestKind::kSpurious:
        case RequestKind::kInstalled:
            return;
    }
    const std::uint64_t pages = (end - start + rules_.page_bytes - 1) / rules_.page_bytes;
    if (!full) sizes_.add(pages, true, request.resident);
    full = full || (rules_.range ? pages >= rules_.most_range_pages : pages >= rules_.most_operations);
    const bool by_range = rules_.range && pages > 1;
    Operation operation{.scope = full         ? TlbScope::kPid
                                 : pages == 1 ? TlbScope::kPage
                                              : TlbScope::kRange,
                        .global = true,
                        .walk_cache = full || request.freed_tables,
                        .space = request.space,
                        .start = start,
                        .end = end,
                        .reason = request.reason};
    operation.cpus.add(request.cpu);
    if (full)
        issue(operation, TlbScope::kPid, 1);
    else if (by_range)
        issue(operation, TlbScope::kRange, range_instructions(pages));
    else
        issue(operation, TlbScope::kPage, pages);
    ++tally().global_barriers;
    tally().fences += 2;
}

}  // namespace tlbscope::flush
