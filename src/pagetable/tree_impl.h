// The tree's everyday operations; pagetable/tree.h is the one to include.
#pragma once

#include "pagetable/tree.h"

namespace tlbscope::pagetable {

template <class Meter>
bool BasicTree<Meter>::table_empty(PhysAddr table, unsigned level) const {
    const Level& level_shape = shape(level);
    for (std::size_t index = 0; index < level_shape.entries(); ++index)
        if (peek({level, table, index}) != 0) return false;
    return true;
}

template <class Meter>
bool BasicTree<Meter>::subtree_empty(PhysAddr table, unsigned level) const {
    for (std::size_t index = 0; index < shape(level).entries(); ++index) {
        const std::uint64_t raw = peek({level, table, index});
        if (raw == 0) continue;
        const Entry entry = format_->decode(*format_, level, raw);
        if (entry.kind != EntryKind::kTable || !subtree_empty(entry.address, entry.next)) return false;
    }
    return true;
}

template <class Meter>
void BasicTree<Meter>::give_up_subtree(PhysAddr table, unsigned level) {
    if (!lowest_[level]) scan_table(level, table, shape(level).entries(), {});
    give_up(table, level);
}

template <class Meter>
Status BasicTree<Meter>::check_range(VirtAddr start, std::uint64_t bytes) const {
    const std::uint64_t mask = format_->base_page().bytes() - 1;
    if (((start.value() | bytes) & mask) != 0) return Status::kMisaligned;
    if (bytes == 0) return Status::kDone;
    const std::uint64_t last = start.value() + (bytes - 1);
    if (last < start.value() || !format_->canonical(start.value()) || !format_->canonical(last))
        return Status::kOutside;
    // Both in the same half: the bits above the root's index are the same.
    const unsigned top = shape(0).span_shift() - (format_->sign_extended ? 1 : 0);
    if (top < 64 && start.value() >> top != last >> top) return Status::kOutside;
    return Status::kDone;
}

template <class Meter>
Walk BasicTree<Meter>::lookup(VirtAddr address) const {
    struct View : Memory {
        Frames* frames = nullptr;
        bool load(PhysAddr at, void* into, unsigned bytes) const override {
            std::memcpy(into, frames->at(at), bytes);
            return true;
        }
        bool store(PhysAddr, const void*, unsigned) override { return false; }
    } view;
    view.frames = &cache_->frames();
    return walk(*format_, view, root_, address);
}

template <class Meter>
std::size_t BasicTree<Meter>::entry_addresses(VirtAddr address,
                                              std::array<PhysAddr, kMostSteps>& into) const {
    if (!format_->canonical(address.value())) return 0;
    Slot slot{0, root_, shape(0).index(address.value())};
    for (std::size_t count = 0;;) {
        into[count++] = address_of(slot);
        const Entry entry = format_->decode(*format_, slot.level, peek(slot));
        if (entry.kind != EntryKind::kTable) return count;
        slot = {entry.next, entry.address, shape(entry.next).index(address.value())};
    }
}

template <class Meter>
bool BasicTree<Meter>::straddles(std::uint64_t address, std::uint64_t start, std::uint64_t last) const {
    const Walk found = lookup(VirtAddr(address));
    if (found.outcome != Outcome::kMapped) return false;
    const std::uint64_t size = found.page().size.bytes();
    const std::uint64_t page = address & ~(size - 1);
    return page < start || page + (size - 1) > last;
}

// Makes the lowest table that `upper` points to this tree's own; false when there is no frame for the copy.
template <class Meter>
bool BasicTree<Meter>::own_table(const Slot& upper, Entry& entry, std::uint64_t raw) {
    if (shared_ == nullptr || !shared_->shared(entry.address)) return true;
    const std::optional<PhysAddr> copy = cache_->take(entry.next);
    if (!copy) return false;
    for (std::size_t index = 0; index < shape(entry.next).entries(); ++index) {
        const std::uint64_t page = load({entry.next, entry.address, index});
        if (page != 0) store({entry.next, *copy, index}, page, 0);
    }
    shared_->drop(entry.address);
    entry.address = *copy;
    store_cell(upper, cell_shift(upper.level, entry.next), format_->encode_table(*format_, entry.next, *copy),
               raw);
    return true;
}

template <class Meter>
Status BasicTree<Meter>::map(VirtAddr address, PhysAddr page, PageShift shift, Flags flags) {
    const PageSize* size = format_->size_of(shift);
    if (size == nullptr) return Status::kNoSuchSize;
    if (((address.value() | page.value()) & (shift.bytes() - 1)) != 0) return Status::kMisaligned;
    if (const Status range = check_range(address, shift.bytes()); range != Status::kDone) return range;
    if (page.value() >> format_->physical_bits != 0) return Status::kOutside;

    // Down to the table that holds the page, making those that are missing.
    const auto& path = path_[size->level];
    Slot slot{0, root_, shape(0).index(address.value())};
    for (std::size_t step = 1; slot.level != size->level; ++step) {
        const unsigned next = path[step];
        std::uint64_t raw = load(slot);
        Entry entry = format_->decode(*format_, slot.level, raw);
        if (entry.kind == EntryKind::kPage) return Status::kOccupied;
        const unsigned cell = cell_shift(slot.level, next);
        if (entry.kind != EntryKind::kTable || entry.next != next) {
            // Another kind of table may stand anywhere in the cell; it can go when it is empty.
            const std::size_t count = std::size_t{1} << (cell - shape(slot.level).shift);
            const std::size_t first = slot.index & ~(count - 1);
            for (std::size_t n = 0; n < count; ++n) {
                const Slot at{slot.level, slot.table, first + n};
                const Entry other = format_->decode(*format_, at.level, peek(at));
                if (other.kind == EntryKind::kPage) return Status::kOccupied;
                if (other.kind == EntryKind::kTable && !subtree_empty(other.address, other.next))
                    return Status::kMixed;
            }
            for (std::size_t n = 0; n < count; ++n) {
                const Slot at{slot.level, slot.table, first + n};
                const std::uint64_t old = load(at);
                const Entry other = format_->decode(*format_, at.level, old);
                if (other.kind != EntryKind::kTable) continue;
                store_cell(at, cell_shift(at.level, other.next), 0, old);
                give_up_subtree(other.address, other.next);
            }
            const std::optional<PhysAddr> table = cache_->take(next);
            if (!table) return Status::kNoFrame;
            entry = {.kind = EntryKind::kTable, .next = static_cast<std::uint8_t>(next), .address = *table};
            store_cell(slot, cell, format_->encode_table(*format_, next, *table), 0);
        } else if (lowest_[next] && !own_table(slot, entry, raw)) {
            return Status::kNoFrame;
        }
        slot = {next, entry.address, shape(next).index(address.value())};
    }

    const std::size_t copies = format_->copies(*size);
    for (std::size_t n = 0; n < copies; ++n) {
        const Slot at{slot.level, slot.table, slot.index + n};
        const Entry entry = format_->decode(*format_, at.level, n == 0 ? load(at) : peek(at));
        if (entry.kind == EntryKind::kPage) return Status::kOccupied;
        if (entry.kind == EntryKind::kTable && !subtree_empty(entry.address, entry.next))
            return Status::kOccupied;
    }
    const std::uint64_t raw = format_->encode_page(*format_, *size, page, flags);
    for (std::size_t n = 0; n < copies; ++n) {
        const Slot at{slot.level, slot.table, slot.index + n};
        const std::uint64_t old = peek(at);
        const Entry entry = format_->decode(*format_, at.level, old);
        if (entry.kind == EntryKind::kTable) {
            store_cell(at, cell_shift(at.level, entry.next), 0, old);
            give_up_subtree(entry.address, entry.next);
            store(at, raw, 0);
        } else {
            store(at, raw, old);
        }
    }
    return Status::kDone;
}

// Visits the pages of [start, last] below a table: visit(slot, address, raw, entry). `change`: the visitor
// writes, so shared tables become this tree's own first. False when there was no frame for that.
template <class Meter>
template <class Visit>
bool BasicTree<Meter>::each_slot(unsigned level, PhysAddr table, std::uint64_t start, std::uint64_t last,
                                 bool change, bool dying, Visit&& visit) {
    const unsigned shift = shape(level).shift;
    for (std::uint64_t address = start;;) {
        const Slot slot{level, table, shape(level).index(address)};
        const std::uint64_t raw = load(slot);
        unsigned covered = shift;
        if (raw != 0) {
            Entry entry = format_->decode(*format_, level, raw);
            if (entry.kind == EntryKind::kPage) {
                covered = entry.size.value();
                visit(slot, address & ~(entry.size.bytes() - 1), raw, entry);
            } else if (entry.kind == EntryKind::kTable) {
                covered = cell_shift(level, entry.next);
                const std::uint64_t cell_last = address | ((std::uint64_t{1} << covered) - 1);
                if (dying && lowest_[entry.next] && shared_ != nullptr && shared_->shared(entry.address)) {
                    shared_->drop(entry.address);
                    store_cell(slot, covered, 0, raw);
                } else {
                    if (change && lowest_[entry.next] && !own_table(slot, entry, raw)) return false;
                    if (!each_slot(entry.next, entry.address, address, cell_last < last ? cell_last : last,
                                   change, dying, visit))
                        return false;
                }
            }
        }
        const std::uint64_t covered_last = address | ((std::uint64_t{1} << covered) - 1);
        if (covered_last >= last) return true;
        address = covered_last + 1;
    }
}

template <class Meter>
Status BasicTree<Meter>::unmap(VirtAddr start, std::uint64_t bytes, std::uint64_t* removed, bool dying) {
    if (const Status range = check_range(start, bytes); range != Status::kDone || bytes == 0) return range;
    const std::uint64_t last = start.value() + (bytes - 1);
    if (straddles(start.value(), start.value(), last) || straddles(last, start.value(), last))
        return Status::kStraddles;
    const bool whole = each_slot(0, root_, start.value(), last, true, dying,
                                 [&](const Slot& slot, std::uint64_t, std::uint64_t raw, const Entry& entry) {
                                     const std::size_t copies =
                                         std::size_t{1} << (entry.size.value() - shape(slot.level).shift);
                                     const std::size_t first = slot.index & ~(copies - 1);
                                     for (std::size_t n = 0; n < copies; ++n)
                                         store({slot.level, slot.table, first + n}, 0, raw);
                                     if (removed != nullptr) ++*removed;
                                 });
    return whole ? Status::kDone : Status::kNoFrame;
}

template <class Meter>
Status BasicTree<Meter>::protect(VirtAddr start, std::uint64_t bytes, Flags flags, std::uint64_t* changed) {
    if (const Status range = check_range(start, bytes); range != Status::kDone || bytes == 0) return range;
    const std::uint64_t last = start.value() + (bytes - 1);
    if (straddles(start.value(), start.value(), last) || straddles(last, start.value(), last))
        return Status::kStraddles;
    constexpr Flags kKept = kAccessed | kDirty;
    const bool whole =
        each_slot(0, root_, start.value(), last, true, false,
                  [&](const Slot& slot, std::uint64_t, std::uint64_t raw, const Entry& entry) {
                      const PageSize& size = *format_->size_of(entry.size);
                      const auto wanted = static_cast<Flags>((flags & ~kKept) | (entry.flags & kKept));
                      const std::uint64_t next = format_->encode_page(*format_, size, entry.address, wanted);
                      if (changed != nullptr) ++*changed;
                      if (next == raw) return;
                      const std::size_t copies = format_->copies(size);
                      const std::size_t first = slot.index & ~(copies - 1);
                      for (std::size_t n = 0; n < copies; ++n)
                          store({slot.level, slot.table, first + n}, next, raw);
                  });
    return whole ? Status::kDone : Status::kNoFrame;
}

template <class Meter>
template <class Visit>
void BasicTree<Meter>::each_page(VirtAddr start, std::uint64_t bytes, Visit&& visit) {
    if (check_range(start, bytes) != Status::kDone || bytes == 0) return;
    each_slot(0, root_, start.value(), start.value() + (bytes - 1), false, false,
              [&](const Slot&, std::uint64_t page, std::uint64_t, const Entry& entry) {
                  visit(VirtAddr(page), entry);
              });
}

// Copies [start, last] below this tree's table into the child's table of the same level, both held at once as
// in Linux's copy_page_range(): no walk from the root for each page.
template <class Meter>
Status BasicTree<Meter>::copy_table(BasicTree& child, unsigned level, PhysAddr table, PhysAddr child_table,
                                    std::uint64_t start, std::uint64_t last, bool protect) {
    for (std::uint64_t address = start;;) {
        const Slot slot{level, table, shape(level).index(address)};
        std::uint64_t raw = load(slot);
        unsigned covered = shape(level).shift;
        Entry entry;
        if (raw != 0) entry = format_->decode(*format_, level, raw);
        if (entry.kind == EntryKind::kPage) {
            covered = entry.size.value();
            raw = protect ? take_write(slot, entry, raw) : raw;
            const std::size_t copies = std::size_t{1} << (covered - shape(level).shift);
            const std::size_t first = slot.index & ~(copies - 1);
            for (std::size_t n = 0; n < copies; ++n) {
                const Slot into{level, child_table, first + n};
                if (const std::uint64_t old = child.peek(into); old != 0) return Status::kOccupied;
                child.store(into, raw, 0);
            }
        } else if (entry.kind == EntryKind::kTable) {
            covered = cell_shift(level, entry.next);
            const std::uint64_t cell_last = address | ((std::uint64_t{1} << covered) - 1);
            const std::uint64_t part_last = cell_last < last ? cell_last : last;
            const Slot into{level, child_table, slot.index};
            const std::uint64_t old = child.load(into);
            const Entry present = old == 0 ? Entry{} : format_->decode(*format_, level, old);
            if (shared_ != nullptr && lowest_[entry.next]) {
                // Both see the same entries, so write permission goes from them where they are.
                if (protect)
                    each_slot(entry.next, entry.address, address, part_last, false, false,
                              [&](const Slot& at, std::uint64_t, std::uint64_t was, const Entry& page) {
                                  take_write(at, page, was);
                              });
                if (present.kind == EntryKind::kNone) {
                    child.store_cell(into, covered, raw, old);
                    shared_->add(entry.address);
                } else if (present.kind != EntryKind::kTable || present.address != entry.address) {
                    return Status::kOccupied;
                }
            } else {
                PhysAddr lower = present.address;
                if (present.kind == EntryKind::kNone) {
                    const std::optional<PhysAddr> made = cache_->take(entry.next);
                    if (!made) return Status::kNoFrame;
                    lower = *made;
                    child.store_cell(into, covered, format_->encode_table(*format_, entry.next, lower), old);
                } else if (present.kind != EntryKind::kTable || present.next != entry.next) {
                    return Status::kOccupied;
                }
                if (const Status done =
                        copy_table(child, entry.next, entry.address, lower, address, part_last, protect);
                    done != Status::kDone)
                    return done;
            }
        }
        const std::uint64_t covered_last = address | ((std::uint64_t{1} << covered) - 1);
        if (covered_last >= last) return Status::kDone;
        address = covered_last + 1;
    }
}

// Takes write permission from a page where it has any; the entry that stands there then.
template <class Meter>
std::uint64_t BasicTree<Meter>::take_write(const Slot& slot, const Entry& page, std::uint64_t raw) {
    if ((page.flags & kWrite) == 0) return raw;
    const PageSize& size = *format_->size_of(page.size);
    const std::uint64_t next =
        format_->encode_page(*format_, size, page.address, static_cast<Flags>(page.flags & ~kWrite));
    const std::size_t copies = format_->copies(size);
    const std::size_t first = slot.index & ~(copies - 1);
    for (std::size_t n = 0; n < copies; ++n) store({slot.level, slot.table, first + n}, next, raw);
    return next;
}

template <class Meter>
Status BasicTree<Meter>::copy_range(BasicTree& child, VirtAddr start, std::uint64_t bytes, bool protect) {
    if (const Status range = check_range(start, bytes); range != Status::kDone || bytes == 0) return range;
    return copy_table(child, 0, root_, child.root_, start.value(), start.value() + (bytes - 1), protect);
}

template <class Meter>
bool BasicTree<Meter>::bare() const {
    return table_empty(root_, 0);
}

}  // namespace tlbscope::pagetable
