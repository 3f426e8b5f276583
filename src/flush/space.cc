#include "flush/space.h"

#include <algorithm>
#include <utility>

namespace tlbscope::flush {

namespace {

std::uint64_t number_of(const std::pair<const std::uint64_t, Space::Table>& table) { return table.first; }
std::uint64_t number_of(std::uint64_t table) { return table; }

// Whether the table `number` of 2^up bytes has any of `lower`, tables of 2^down bytes, under it.
template <class Tables>
bool tables_below(const Tables& lower, std::uint64_t number, std::uint8_t up, std::uint8_t down) {
    const auto first = lower.lower_bound(number << (up - down));
    return first != lower.end() && number_of(*first) >> (up - down) == number;
}

}  // namespace

Geometry Geometry::of(PageShift page) {
    Geometry geometry{.page_shift = page.value()};
    if (page.value() == 14) {
        geometry.table_shift[0] = 25;
        geometry.table_shift[1] = 36;
        geometry.table_shift[2] = 47;
    }
    return geometry;
}

std::uint32_t Frames::allocate() {
    if (free_.empty()) {
        counts_.push_back(1);
        return static_cast<std::uint32_t>(counts_.size() - 1);
    }
    const std::uint32_t frame = free_.back();
    free_.pop_back();
    counts_[frame] = 1;
    return frame;
}

void Frames::drop(std::uint32_t frame) {
    if (frame != 0 && --counts_[frame] == 0) free_.push_back(frame);
}

Space::~Space() {
    for (const auto& [number, table] : tables_)
        for (const Entry entry : table.entries)
            if ((entry & kValid) != 0) frames_->drop(entry & kFrame);
}

void Space::split(std::uint64_t at) {
    auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return;
    auto range = std::prev(next);
    if (range->first == at || range->second.end <= at) return;
    Range tail = range->second;
    range->second.end = at;
    ranges_.emplace_hint(next, at, tail);
}

void Space::erase_ranges(std::uint64_t start, std::uint64_t end) {
    split(start);
    split(end);
    ranges_.erase(ranges_.lower_bound(start), ranges_.lower_bound(end));
}

std::uint64_t Space::touched_end(std::uint64_t start, const Range& range) const {
    if (range.protection == 0) return start;
    return range.end - start > kMostTouched ? start + geometry_.page_bytes() : range.end;
}

Space::Table& Space::table_of(std::uint64_t address) {
    auto [found, fresh] = tables_.try_emplace(address >> geometry_.table_shift[0]);
    if (fresh) {
        if (faults_)
            found->second.entries.resize(std::size_t{1} << (geometry_.table_shift[0] - geometry_.page_shift));
        for (int level = 0; level < 2; ++level)
            upper_[level].insert(address >> geometry_.table_shift[level + 1]);
    }
    return found->second;
}

void Space::map(std::uint64_t start, std::uint64_t end, std::uint8_t protection, bool file) {
    erase_ranges(start, end);
    const Range range{.end = end, .protection = protection, .file = file};
    ranges_[start] = range;
    if (faults_) return;
    for (std::uint64_t at = start, last = touched_end(start, range); at < last;
         at = ((at >> geometry_.table_shift[0]) + 1) << geometry_.table_shift[0])
        table_of(at);
    pages_ += (touched_end(start, range) - start) >> geometry_.page_shift;
}

void Space::remove_entries(std::uint64_t start, std::uint64_t end, Gather& gather) {
    if (!faults_) {
        split(start);
        split(end);
        const auto last = ranges_.lower_bound(end);
        for (auto range = ranges_.lower_bound(start); range != last; ++range) {
            const std::uint64_t pages =
                (touched_end(range->first, range->second) - range->first) >> geometry_.page_shift;
            gather.remove(range->first, pages);
            pages_ -= std::min(pages, pages_);
        }
        return;
    }
    const std::uint8_t shift = geometry_.table_shift[0];
    for (auto table = tables_.lower_bound(start >> shift);
         table != tables_.end() && (table->first << shift) < end; ++table) {
        if (table->second.valid == 0) continue;
        const std::uint64_t base = table->first << shift;
        auto& entries = table->second.entries;
        const std::uint64_t first = start > base ? (start - base) >> geometry_.page_shift : 0;
        const std::uint64_t last =
            std::min<std::uint64_t>(entries.size(), (end - base) >> geometry_.page_shift);
        for (std::uint64_t i = first; i < last;) {
            if ((entries[i] & kValid) == 0) {
                ++i;
                continue;
            }
            const std::uint64_t run = i;
            for (; i < last && (entries[i] & kValid) != 0; ++i) {
                frames_->drop(entries[i] & kFrame);
                entries[i] = 0;
            }
            table->second.valid -= static_cast<std::uint32_t>(i - run);
            pages_ -= i - run;
            gather.remove(base + (run << geometry_.page_shift), i - run);
        }
    }
}

bool Space::any_range(std::uint64_t start, std::uint64_t end) const {
    const auto next = ranges_.lower_bound(start);
    return (next != ranges_.end() && next->first < end) ||
           (next != ranges_.begin() && std::prev(next)->second.end > start);
}

bool Space::any_entry(std::uint64_t start, std::uint64_t end) const {
    const std::uint8_t shift = geometry_.table_shift[0];
    for (auto table = tables_.lower_bound(start >> shift);
         table != tables_.end() && (table->first << shift) < end; ++table) {
        if (table->second.valid == 0) continue;
        const std::uint64_t base = table->first << shift;
        const auto& entries = table->second.entries;
        const std::uint64_t first = start > base ? (start - base) >> geometry_.page_shift : 0;
        const std::uint64_t last =
            std::min<std::uint64_t>(entries.size(), (end - base) >> geometry_.page_shift);
        for (std::uint64_t i = first; i < last; ++i)
            if ((entries[i] & kValid) != 0) return true;
    }
    return false;
}

// free_pgtables: a table goes when what is unmapped reaches into it and nothing below or above keeps it: it
// must lie between the end of the range before (floor) and the start of the range after (ceiling).
void Space::remove_tables(std::uint64_t start, std::uint64_t end, std::uint64_t floor, std::uint64_t ceiling,
                          Gather& gather) {
    const auto inside = [&](std::uint64_t number, std::uint8_t shift) {
        const std::uint64_t base = number << shift;
        return base >= floor && base + (std::uint64_t{1} << shift) - 1 <= ceiling - 1;
    };
    const std::uint8_t shift = geometry_.table_shift[0];
    for (auto table = tables_.lower_bound(start >> shift);
         table != tables_.end() && (table->first << shift) < end;) {
        // A table with entries left serves a range that the input never showed.
        if (!inside(table->first, shift) || table->second.valid > 0) {
            ++table;
            continue;
        }
        gather.remove_table(table->first << shift);
        table = tables_.erase(table);
    }
    for (int level = 0; level < 2; ++level) {
        const std::uint8_t up = geometry_.table_shift[level + 1];
        for (auto table = upper_[level].lower_bound(start >> up);
             table != upper_[level].end() && (*table << up) < end;) {
            const bool used = level == 0 ? tables_below(tables_, *table, up, shift)
                                         : tables_below(upper_[0], *table, up, geometry_.table_shift[1]);
            if (!inside(*table, up) || used) {
                ++table;
                continue;
            }
            // The walk stands at the start of what is unmapped when it frees an upper table.
            gather.remove_table(std::max(*table << up, start & ~(geometry_.page_bytes() - 1)));
            table = upper_[level].erase(table);
        }
    }
}

void Space::unmap(std::uint64_t start, std::uint64_t end, Gather& gather) {
    // Where nothing is mapped the kernel does nothing, and walks no tables either.
    if (!any_range(start, end) && !any_entry(start, end)) return;
    remove_entries(start, end, gather);
    erase_ranges(start, end);
    if (!complete) return;  // neighbours may be there that the log never showed
    const auto next = ranges_.lower_bound(end);
    const std::uint64_t ceiling = next == ranges_.end() ? 0 : next->first;  // 0: the top, as in the kernel
    const std::uint64_t floor = next == ranges_.begin() ? 0 : std::prev(next)->second.end;
    remove_tables(start, end, floor, ceiling, gather);
}

void Space::discard(std::uint64_t start, std::uint64_t end, Gather& gather) {
    const std::uint64_t pages = pages_;
    remove_entries(start, end, gather);
    if (!faults_) pages_ = pages;  // they count as touched again
}

bool Space::protect(std::uint64_t start, std::uint64_t end, std::uint8_t protection, Gather& gather) {
    split(start);
    split(end);
    bool any = false;
    const auto last = ranges_.lower_bound(end);
    for (auto range = ranges_.lower_bound(start); range != last; ++range) {
        const std::uint8_t lost = range->second.protection & static_cast<std::uint8_t>(~protection);
        if (!faults_) {
            const std::uint64_t pages =
                (touched_end(range->first, range->second) - range->first) >> geometry_.page_shift;
            any = any || pages > 0;
            if (lost != 0) gather.restrict(range->first, pages);
        }
        range->second.protection = protection;
    }
    if (!faults_) return any;
    const std::uint8_t shift = geometry_.table_shift[0];
    for (auto table = tables_.lower_bound(start >> shift);
         table != tables_.end() && (table->first << shift) < end; ++table) {
        if (table->second.valid == 0) continue;
        const std::uint64_t base = table->first << shift;
        auto& entries = table->second.entries;
        const std::uint64_t first = start > base ? (start - base) >> geometry_.page_shift : 0;
        const std::uint64_t past =
            std::min<std::uint64_t>(entries.size(), (end - base) >> geometry_.page_shift);
        for (std::uint64_t i = first; i < past; ++i) {
            if ((entries[i] & kValid) == 0) continue;
            any = true;
            // Entries lose the right to be written; losing read or execute removes it from the entry as well.
            const bool loses =
                ((entries[i] & kWritable) != 0 && (protection & 2) == 0) || (protection & 5) == 0;
            if ((protection & 2) == 0) entries[i] &= ~kWritable;
            if (loses) gather.restrict(base + (i << geometry_.page_shift), 1);
        }
    }
    return any;
}

void Space::move(std::uint64_t old_start, std::uint64_t old_end, std::uint64_t start, std::uint64_t end,
                 const std::function<void(std::uint64_t, std::uint64_t)>& moved) {
    split(old_start);
    split(old_end);
    std::vector<std::pair<std::uint64_t, Range>> taken;
    for (auto range = ranges_.lower_bound(old_start); range != ranges_.end() && range->first < old_end;
         range = ranges_.erase(range))
        taken.emplace_back(range->first, range->second);
    const std::uint64_t bytes = std::min(old_end - old_start, end - start);
    std::uint64_t at = old_start;
    while (at < old_start + bytes) {
        const std::uint64_t stop =
            std::min(old_start + bytes, ((at >> geometry_.table_shift[0]) + 1) << geometry_.table_shift[0]);
        const auto found = tables_.find(at >> geometry_.table_shift[0]);
        bool any = !faults_ && !taken.empty();
        if (faults_ && found != tables_.end() && found->second.valid > 0) {
            for (std::uint64_t page = at; page < stop; page += geometry_.page_bytes()) {
                Entry& entry = found->second.entries[index_in_table(page)];
                if ((entry & kValid) == 0) continue;
                Table& to = table_of(page - old_start + start);
                to.entries[index_in_table(page - old_start + start)] = std::exchange(entry, 0);
                ++to.valid;
                --found->second.valid;
                any = true;
            }
        }
        if (any) moved(at, stop);
        at = stop;
    }
    Range range{.end = end, .protection = 3};
    if (!taken.empty()) {
        range.protection = taken.front().second.protection;
        range.file = taken.front().second.file;
        range.copied = taken.front().second.copied;
    }
    ranges_[start] = range;
    if (!faults_)
        for (std::uint64_t page = start, last = touched_end(start, range); page < last;
             page = ((page >> geometry_.table_shift[0]) + 1) << geometry_.table_shift[0])
            table_of(page);
}

void Space::clear(Gather& gather) {
    remove_entries(0, ~std::uint64_t{0} & ~(geometry_.page_bytes() - 1), gather);
    for (const auto& [number, table] : tables_) gather.remove_table(number << geometry_.table_shift[0]);
    tables_.clear();
    for (auto& level : upper_) level.clear();
    ranges_.clear();
    pages_ = 0;
}

Space::Fault Space::fault(std::uint64_t address, bool write) {
    if (!faults_) return Fault::kInstalled;
    auto next = ranges_.upper_bound(address);
    Range* range = nullptr;
    if (next != ranges_.begin() && std::prev(next)->second.end > address) range = &std::prev(next)->second;
    Table& table = table_of(address);
    Entry& entry = table.entries[index_in_table(address)];
    if ((entry & kValid) == 0) {
        ++table.valid;
        ++pages_;
        entry = kValid;
        if (write) {
            entry |= kWritable | frames_->allocate();
            if (range != nullptr) range->copied = true;
        }
        return Fault::kInstalled;
    }
    if (!write || (entry & kWritable) != 0) return Fault::kSpurious;
    const std::uint32_t frame = entry & kFrame;
    if (frame != 0 && frames_->count(frame) == 1) {
        entry |= kWritable;
        return Fault::kRelaxed;
    }
    frames_->drop(frame);
    entry = kValid | kWritable | frames_->allocate();
    if (range != nullptr) range->copied = true;
    return Fault::kCopied;
}

std::unique_ptr<Space> Space::fork() {
    auto child = std::make_unique<Space>(geometry_, *frames_, faults_);
    child->complete = complete;
    child->ranges_ = ranges_;
    child->heap_end_ = heap_end_;
    if (!faults_) {
        child->tables_ = tables_;
        for (int level = 0; level < 2; ++level) child->upper_[level] = upper_[level];
        child->pages_ = pages_;
        return child;
    }
    // The kernel copies the entries of ranges that have pages of their own, and leaves the rest to be faulted
    // in again (vma_needs_copy).
    const auto copied = [&](std::uint64_t address) {
        const auto next = ranges_.upper_bound(address);
        if (next == ranges_.begin() || std::prev(next)->second.end <= address) return true;
        return std::prev(next)->second.copied;
    };
    for (auto& [number, table] : tables_) {
        for (std::size_t i = 0; table.valid > 0 && i < table.entries.size(); ++i) {
            Entry& entry = table.entries[i];
            const std::uint64_t address =
                (number << geometry_.table_shift[0]) + (std::uint64_t{i} << geometry_.page_shift);
            if ((entry & kValid) == 0 || !copied(address)) continue;
            entry &= ~kWritable;
            if ((entry & kFrame) != 0) frames_->share(entry & kFrame);
            Table& to = child->table_of(address);
            to.entries[i] = entry;
            ++to.valid;
            ++child->pages_;
        }
    }
    return child;
}

}  // namespace tlbscope::flush
