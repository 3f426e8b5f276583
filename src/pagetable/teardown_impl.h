// Giving up tables: the two families of thread 2 and of what came of it. pagetable/tree.h is the one to
// include.
//
// scan() is free_page_tables() of Linux 2.2: every entry of every upper table is read, to find out that
// nearly all are none. Its two remedies in the thread: only the entries of the 32-bit space, for a 32-bit
// process; and two entries a load.
//
// free_range() is free_pgd_range() of 2.6.12 (Hugh Dickins, e0da382c92626): tables go when their range is
// unmapped, so that nothing is left to look for at the end. The rules are exact there, and so are they here:
// the start is rounded down to what the lowest table covers and, if that reaches below the floor, up instead;
// the ceiling is rounded down; a lowest table goes with its entry; an upper table goes when what it covers
// lies between floor and ceiling.
#pragma once

#include "pagetable/tree.h"

namespace tlbscope::pagetable {

template <class Meter>
void BasicTree<Meter>::scan(const Scan& how) {
    std::size_t entries = format_->user_root_entries;
    if (how.only_32_bit) {
        const unsigned shift = shape(0).shift;
        entries = std::min<std::size_t>(entries, shift >= 32 ? 1 : std::size_t{1} << (32 - shift));
    }
    scan_table(0, root_, entries, how);
}

// One entry that was read and is not none.
template <class Meter>
void BasicTree<Meter>::scan_slot(const Slot& slot, std::uint64_t raw, const Scan& how) {
    const Entry entry = format_->decode(*format_, slot.level, raw);
    assert(entry.kind == EntryKind::kTable && "unmap all pages before their tables go");
    if (entry.kind != EntryKind::kTable) return;
    if (!lowest_[entry.next]) {
        std::size_t entries = shape(entry.next).entries();
        // Below the first entry of a level that reaches beyond 4 GiB only part of the table is the 32-bit
        // space.
        const unsigned shift = shape(entry.next).shift;
        if (how.only_32_bit && shift + shape(entry.next).bits > 32)
            entries = shift >= 32 ? 1 : std::size_t{1} << (32 - shift);
        scan_table(entry.next, entry.address, entries, how);
    }
    store_cell(slot, cell_shift(slot.level, entry.next), 0, raw);
    give_up(entry.address, entry.next);
}

template <class Meter>
void BasicTree<Meter>::scan_table(unsigned level, PhysAddr table, std::size_t entries, const Scan& how) {
    const unsigned size = shape(level).entry_bytes;
    const std::byte* const bytes = cache_->frames().at(table);
    std::size_t index = 0;
    if (how.pairs) {
        for (; index + 2 <= entries; index += 2) {
            meter_->load(PhysAddr(table.value() + index * size), 2 * size, 2);
            std::uint64_t words[2] = {0, 0};
            std::memcpy(words, bytes + index * size, 8);
            if (size == 8) std::memcpy(words + 1, bytes + index * size + 8, 8);
            if ((words[0] | words[1]) == 0) continue;
            for (std::size_t each = index; each < index + 2; ++each)
                if (const std::uint64_t raw = peek({level, table, each}); raw != 0)
                    scan_slot({level, table, each}, raw, how);
        }
    }
    for (; index < entries; ++index) {
        meter_->load(PhysAddr(table.value() + index * size), size, 1);
        std::uint64_t word = 0;
        std::memcpy(&word, bytes + index * size, size == 8 ? 8 : 4);
        if (word == 0) continue;
        scan_slot({level, table, index}, load_entry(bytes + index * size, size, format_->big_endian), how);
    }
}

template <class Meter>
void BasicTree<Meter>::free_range(std::uint64_t start, std::uint64_t end, std::uint64_t floor,
                                  std::uint64_t ceiling) {
    // What one table of base pages covers: Linux's PMD_SIZE.
    const unsigned lowest = format_->sizes.front().level;
    const std::uint64_t size = std::uint64_t{1} << shape(lowest).span_shift();
    const std::uint64_t mask = ~(size - 1);
    start &= mask;
    if (start < floor) {
        start += size;
        if (start == 0) return;
    }
    if (ceiling != 0) {
        ceiling &= mask;
        if (ceiling == 0) return;
    }
    if (end - 1 > ceiling - 1) end -= size;
    if (start > end - 1) return;
    free_tables(0, root_, start, end, floor, ceiling);
}

template <class Meter>
void BasicTree<Meter>::free_tables(unsigned level, PhysAddr table, std::uint64_t start, std::uint64_t end,
                                   std::uint64_t floor, std::uint64_t ceiling) {
    const std::uint64_t last = end - 1;
    for (std::uint64_t address = start;;) {
        const Slot slot{level, table, shape(level).index(address)};
        const std::uint64_t raw = load(slot);
        unsigned covered = shape(level).shift;
        if (raw != 0) {
            const Entry entry = format_->decode(*format_, level, raw);
            if (entry.kind == EntryKind::kTable) {
                covered = cell_shift(level, entry.next);
                const std::uint64_t cell = std::uint64_t{1} << covered;
                const std::uint64_t first = address & ~(cell - 1);
                const std::uint64_t cell_last = first + (cell - 1);
                bool goes = true;
                if (!lowest_[entry.next] || covered > shape(format_->sizes.front().level).span_shift()) {
                    if (!lowest_[entry.next])
                        free_tables(entry.next, entry.address, address,
                                    (cell_last < last ? cell_last : last) + 1, floor, ceiling);
                    const std::uint64_t upper = ceiling & ~(cell - 1);
                    goes = first >= floor && (ceiling == 0 || (upper != 0 && cell_last <= upper - 1));
                }
                if (goes) {
                    store_cell(slot, covered, 0, raw);
                    give_up(entry.address, entry.next);
                }
            }
        }
        const std::uint64_t covered_last = address | ((std::uint64_t{1} << covered) - 1);
        if (covered_last >= last) return;
        address = covered_last + 1;
    }
}

}  // namespace tlbscope::pagetable
