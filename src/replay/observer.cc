#include "replay/observer.h"

#include <algorithm>

namespace tlbscope::replay {

namespace {

// Straight-line code meets each page of a side once, so in a list of fetches alone the first instruction with
// a byte there, from `begin` on, is the one whose fetch looked it up.
void locate_fetch(const Lookups& lookups, std::size_t begin, Miss& miss) {
    const recording::Block& block = (*lookups.dictionary)[miss.block];
    const auto lengths = lookups.dictionary->lengths(block);
    const unsigned shift = lookups.shift.value();
    const auto is_it = [&](std::uint64_t at) {
        return at >> shift == miss.page && (at >= lookups.kernel_base) == (miss.side == Side::kKernel);
    };
    std::uint64_t address = block.address.value();
    for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::uint64_t last = address + lengths[i] - (lengths[i] == 0 ? 0 : 1);
        const std::uint64_t further = last >> shift
                                                  << shift;  // where the next page begins, if it reaches that
        if (i >= begin && (is_it(address) || (last >> shift != address >> shift && is_it(further)))) {
            miss.instruction = static_cast<std::uint16_t>(i);
            miss.address = is_it(address) ? address : further;
            return;
        }
        address += lengths[i];
    }
}

void locate_access(const Lookups& lookups, std::uint32_t at, std::uint32_t access, Miss& miss) {
    const recording::Batch& batch = *lookups.batch;
    const std::uint64_t address = batch.addresses[access];
    miss.address =
        address >> lookups.shift.value() == miss.page ? address : miss.page << lookups.shift.value();
    const std::uint32_t offset = access - lookups.first_access[at];
    const auto odd = std::lower_bound(batch.odd.begin(), batch.odd.end(), at,
                                      [](const recording::OddExecution& execution, std::uint32_t wanted) {
                                          return execution.ordinal < wanted;
                                      });
    miss.instruction = odd != batch.odd.end() && odd->ordinal == at
                           ? batch.odd_slots[odd->first_slot + offset].instruction
                           : lookups.dictionary->shape((*lookups.dictionary)[miss.block])[offset].instruction;
}

}  // namespace

void locate(const Lookups& lookups, std::vector<Miss>& misses) {
    misses.resize(lookups.walked.size());
    std::size_t run = 0;
    std::uint32_t at = lookups.begin;
    for (std::size_t i = 0; i < misses.size(); ++i) {
        const std::uint32_t index = lookups.walked[i];
        const std::uint64_t key = lookups.touched[index];
        const std::uint32_t ordinal = lookups.ordinals[index];
        const bool fetch = lookups.kind_of(index) == Kind::kInstruction;
        while (run + 1 < lookups.modes.size() &&
               ordinal >= (fetch ? lookups.modes[run + 1].first_block : lookups.modes[run + 1].first_access))
            ++run;
        Miss& miss = misses[i];
        miss = {.kind = lookups.kind_of(index),
                .mode = lookups.modes[run].mode,
                .side = machine::tag_of(key) == addrspace::kGlobalTag ? Side::kKernel : Side::kUser,
                .page = machine::page_of(key)};
        miss.address = miss.page << lookups.shift.value();
        miss.position = lookups.executions_before + ordinal;
        if (lookups.batch == nullptr) continue;
        if (fetch) {
            at = ordinal;
        } else {
            // The last block that starts at or before this access is the one that makes it.
            const auto first = lookups.first_access.begin();
            at = static_cast<std::uint32_t>(std::upper_bound(first + at, first + lookups.end, ordinal) -
                                            first - 1);
        }
        miss.block = lookups.batch->blocks[at];
        miss.position = lookups.executions_before + at;
        if (fetch)
            locate_fetch(lookups, lookups.instructions.empty() ? 0 : lookups.instructions[index], miss);
        else
            locate_access(lookups, at, ordinal, miss);
        // A larger entry's page is named by where it starts.
        const PageShift size = lookups.sizes[machine::size_of(lookups.keys[index])];
        miss.page = miss.page >> (size.value() - lookups.shift.value())
                                     << (size.value() - lookups.shift.value());
    }
}

}  // namespace tlbscope::replay
