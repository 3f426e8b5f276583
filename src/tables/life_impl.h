// tables/life.h is the one to include.
#pragma once

#include "tables/life.h"

namespace tlbscope::tables {

template <class SomeMeter>
class Life<SomeMeter>::Section {
  public:
    explicit Section(Life& life, bool teardown = false) : life_(life), teardown_(teardown) {
        if (life_.timed_) start_ = std::chrono::steady_clock::now();
    }
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    ~Section() {
        if (!life_.timed_) return;
        const auto spent = static_cast<std::uint64_t>(
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start_)
                .count());
        life_.times_.all += spent;
        if (teardown_) life_.times_.teardown += spent;
    }

  private:
    Life& life_;
    bool teardown_;
    std::chrono::steady_clock::time_point start_;
};

template <class SomeMeter>
std::string Life<SomeMeter>::mistake() const {
    if (!meter_.mistake().empty()) return meter_.mistake();
    if (cache_.counts().refused != 0)
        return "the allocator had no memory left or was given a table it did not know";
    if (processes_.empty() && meter_.tables() != 0)
        return std::to_string(meter_.tables()) + " tables were left after the last process ended";
    return {};
}

template <class SomeMeter>
PhysAddr Life<SomeMeter>::next_frame() {
    // Frames of data are only numbers: never written, so they may come round again.
    const std::uint64_t count = (std::uint64_t{1} << (format_.physical_bits - 1)) / page();
    return PhysAddr(frames_++ % count * page());
}

template <class SomeMeter>
pagetable::Flags Life<SomeMeter>::flags_of(std::uint8_t protection) const {
    pagetable::Flags flags = pagetable::kUser | pagetable::kAccessed;
    if ((protection & kProtectRead) != 0) flags |= pagetable::kRead;
    if ((protection & kProtectWrite) != 0) flags |= pagetable::kRead | pagetable::kWrite | pagetable::kDirty;
    if ((protection & kProtectExecute) != 0) flags |= pagetable::kExecute;
    return flags;
}

template <class SomeMeter>
std::shared_ptr<typename Life<SomeMeter>::Space> Life<SomeMeter>::new_space(const MemoryEvent& event) {
    const Section time(*this);
    auto tree = Tree::create(format_, cache_, meter_, strategy_.lazy_fork ? &shared_ : nullptr);
    if (!tree) {
        note("there is no memory for another root table", event);
        return nullptr;
    }
    ++processes_seen_;
    return std::make_shared<Space>(std::move(*tree));
}

// The space of the event's process, which begins with its first event when no fork told of it.
template <class SomeMeter>
typename Life<SomeMeter>::Space* Life<SomeMeter>::space_of(const MemoryEvent& event) {
    const auto known = processes_.find(event.process);
    if (known != processes_.end()) return known->second.get();
    if (ended_.contains(event.process)) {
        note("something happened in a process that has ended", event);
        return nullptr;
    }
    auto space = new_space(event);
    if (!space) return nullptr;
    space->members.insert(event.process);
    space->ids.insert(event.process);
    return (processes_[event.process] = std::move(space)).get();
}

template <class SomeMeter>
bool Life<SomeMeter>::sane(const MemoryEvent& event, std::uint64_t start, std::uint64_t bytes) {
    if (bytes == 0) {
        note("a range of no bytes", event);
        return false;
    }
    if (start + bytes < start || start + bytes > format_.user_end()) {
        note("a range beyond the end of the format's user addresses", event);
        return false;
    }
    return true;
}

// The pages of [start, end), which is unmapped, that no remaining area reaches into: areas end where the
// log's machine had pages, and this format's may be larger.
template <class SomeMeter>
std::pair<std::uint64_t, std::uint64_t> Life<SomeMeter>::whole_pages(const Space& space, std::uint64_t start,
                                                                     std::uint64_t end) const {
    std::uint64_t first = down(start);
    std::uint64_t last = up(end);
    if (space.areas.end_below(start) > first || space.areas.find(first)) first = up(start);
    const auto above = space.areas.start_above(end);
    if ((above && *above < last) || (last > end && space.areas.find(last - 1))) last = down(end);
    return {first, std::max(first, last)};
}

template <class SomeMeter>
void Life<SomeMeter>::unmap_pieces(Space& space, const std::vector<addrspace::Area>& gone) {
    if (gone.empty()) return;
    {
        const Section time(*this);
        for (const addrspace::Area& piece : gone) {
            const auto [first, last] = whole_pages(space, piece.start, piece.end);
            if (first < last) (void)space.tree.unmap(VirtAddr(first), last - first);
        }
    }
    if (!strategy_.range) return;
    const auto above = space.areas.start_above(gone.back().end);
    free_pieces(space, gone, up(space.areas.end_below(gone.front().start)), above ? down(*above) : 0);
}

// Linux's free_pgtables(): areas close to each other go in one sweep.
template <class SomeMeter>
void Life<SomeMeter>::free_pieces(Space& space, const std::vector<addrspace::Area>& gone, std::uint64_t floor,
                                  std::uint64_t ceiling) {
    const Section time(*this, true);
    const std::uint64_t lowest = std::uint64_t{1} << format_.levels[format_.sizes.front().level].span_shift();
    for (std::size_t n = 0; n < gone.size();) {
        const std::uint64_t start = down(gone[n].start);
        std::uint64_t end = up(gone[n].end);
        for (++n; n < gone.size() && gone[n].start <= end + lowest; ++n) end = up(gone[n].end);
        space.tree.free_range(start, end, floor, n < gone.size() ? down(gone[n].start) : ceiling);
    }
}

template <class SomeMeter>
void Life<SomeMeter>::map(Space& space, const MemoryEvent& event) {
    const std::uint64_t start = event.start.value();
    if (!sane(event, start, event.bytes)) return;
    // munmap of what is there first, as mmap with MAP_FIXED does; its neighbours are those without the new
    // area.
    const auto gone = space.areas.unmap(start, start + event.bytes);
    unmap_pieces(space, gone);
    space.areas.map(
        {.start = start, .end = start + event.bytes, .protection = event.protection, .file = event.file});
}

template <class SomeMeter>
void Life<SomeMeter>::remap(Space& space, const MemoryEvent& event) {
    const std::uint64_t from = event.old_start.value();
    const std::uint64_t to = event.start.value();
    if (!sane(event, from, event.old_bytes) || !sane(event, to, event.bytes)) return;
    const auto area = space.areas.find(from);
    if (!area) {
        note("a remap of what is not mapped", event);
        return;
    }
    MemoryEvent next = event;
    next.protection = area->protection;
    next.file = area->file;
    if (from == to) {
        if (event.bytes < event.old_bytes) {
            unmap_pieces(space, space.areas.unmap(to + event.bytes, from + event.old_bytes));
        } else {
            next.start = VirtAddr(from + event.old_bytes);
            next.bytes = event.bytes - event.old_bytes;
            if (next.bytes != 0) map(space, next);
        }
        return;
    }
    map(space, next);
    // The pages move with their frames, as move_page_tables() moves them.
    const std::uint64_t bytes = std::min(up(event.bytes), up(event.old_bytes));
    {
        const Section time(*this);
        std::vector<std::pair<std::uint64_t, pagetable::Entry>> pages;
        space.tree.each_page(VirtAddr(down(from)), bytes, [&](VirtAddr at, const pagetable::Entry& entry) {
            pages.emplace_back(at.value(), entry);
        });
        for (const auto& [at, entry] : pages) {
            (void)space.tree.unmap(VirtAddr(at), entry.size.bytes());
            (void)space.tree.map(VirtAddr(at - down(from) + down(to)), entry.address, entry.size,
                                 entry.flags);
        }
        if (!pages.empty()) space.highest = std::max(space.highest, down(to) + bytes);
    }
    unmap_pieces(space, space.areas.unmap(from, from + event.old_bytes));
}

template <class SomeMeter>
void Life<SomeMeter>::change_break(Space& space, const MemoryEvent& event) {
    const std::uint64_t end = event.start.value() + event.bytes;
    if (end > format_.user_end() || end < event.start.value()) {
        note("a range beyond the end of the format's user addresses", event);
        return;
    }
    if (space.heap == 0) {
        space.heap = event.start.value();
        space.heap_end = space.heap;
    }
    if (end > space.heap_end) {
        const std::uint64_t from = space.heap_end;
        // The break need not be at a page's edge; areas are.
        MemoryEvent grown = event;
        grown.start = VirtAddr(from);
        grown.bytes = end - from;
        grown.protection = kProtectRead | kProtectWrite;
        map(space, grown);
    } else if (end < space.heap_end && end >= space.heap) {
        unmap_pieces(space, space.areas.unmap(end, space.heap_end));
    }
    space.heap_end = end;
}

template <class SomeMeter>
void Life<SomeMeter>::fault(Space& space, const MemoryEvent& event) {
    const std::uint64_t address = event.start.value();
    if (address >= format_.user_end()) {
        note("a range beyond the end of the format's user addresses", event);
        return;
    }
    auto area = space.areas.find(address);
    if (!area && imply_) {
        // The page was there before its source began to tell.
        const std::uint64_t start = address & ~std::uint64_t{4095};
        area =
            addrspace::Area{.start = start, .end = start + 4096, .protection = kProtectRead | kProtectWrite};
        space.areas.map(*area);
        ++implied_;
    }
    if (!area) {
        note("a fault where nothing is mapped", event);
        return;
    }
    const VirtAddr at(down(address));
    const pagetable::Flags flags = flags_of(area->protection);
    const Section time(*this);
    const pagetable::Walk found = space.tree.lookup(at);
    if (found.outcome == pagetable::Outcome::kMapped) {
        // A write to a page that a fork protected: this space gets a copy of its own.
        if (!event.write || (found.page().flags & pagetable::kWrite) != 0 || (flags & pagetable::kWrite) == 0)
            return;
        const PageShift size = found.page().size;
        const VirtAddr start(address & ~(size.bytes() - 1));
        if (space.tree.unmap(start, size.bytes()) != pagetable::Status::kDone) return;
        (void)space.tree.map(start, next_frame(), size, flags);
        return;
    }
    if (const auto done = space.tree.map(at, next_frame(), format_.base_page(), flags);
        done != pagetable::Status::kDone) {
        note(done == pagetable::Status::kNoFrame ? "there is no memory for another table"
                                                 : "a page could not be mapped",
             event);
        return;
    }
    space.highest = std::max(space.highest, at.value() + page());
}

template <class SomeMeter>
void Life<SomeMeter>::fork(const MemoryEvent& event) {
    if (ended_.contains(event.process)) {
        note("a fork of a process that has ended", event);
        return;
    }
    if (event.child == 0) {
        note("a fork without a child", event);
        return;
    }
    if (processes_.contains(event.child)) {
        note("a fork whose child runs already", event);
        return;
    }
    Space* const parent = space_of(event);
    if (parent == nullptr) return;
    ended_.erase(event.child);
    if (event.shares_space) {
        parent->members.insert(event.child);
        parent->joined.insert(event.child);
        parent->ids.insert(event.child);
        processes_[event.child] = processes_[event.process];
        return;
    }
    const std::shared_ptr<Space> child = new_space(event);
    if (!child) return;
    child->members.insert(event.child);
    child->ids.insert(event.child);
    child->areas = parent->areas;
    child->heap = parent->heap;
    child->heap_end = parent->heap_end;
    child->highest = parent->highest;
    {
        const Section time(*this);
        std::uint64_t copied = 0;  // pages of two areas go with the first
        for (const addrspace::Area& area : parent->areas.all()) {
            const std::uint64_t start = std::max(down(area.start), copied);
            const std::uint64_t end = up(area.end);
            if (start >= end) continue;
            const bool protect = (area.protection & kProtectWrite) != 0;
            if (parent->tree.copy_range(child->tree, VirtAddr(start), end - start, protect) !=
                pagetable::Status::kDone)
                note("there is no memory for another table", event);
            copied = end;
        }
    }
    processes_[event.child] = child;
}

template <class SomeMeter>
void Life<SomeMeter>::exec(const MemoryEvent& event) {
    if (ended_.contains(event.process)) {
        note("an exec of a process that has ended", event);
        return;
    }
    // The other threads end with it; a vfork child only leaves its parent's space.
    const auto known = processes_.find(event.process);
    if (known != processes_.end())
        leave(event.process, event.process, !known->second->joined.contains(event.process));
    ended_.erase(event.process);
    (void)space_of(event);
}

// `member` leaves the space of `process`, or `all` members do; the last one tears it down.
template <class SomeMeter>
void Life<SomeMeter>::leave(std::uint32_t process, std::uint32_t member, bool all) {
    const auto known = processes_.find(process);
    if (known == processes_.end()) return;
    const std::shared_ptr<Space> space = known->second;
    space->members.erase(member);
    if (all) space->members.clear();
    if (!space->members.empty()) {
        // A first thread that ends leaves its process to the others.
        if (space->joined.erase(member) != 0) {
            space->ids.erase(member);
            processes_.erase(member);
            ended_[member] = true;
        }
        return;
    }
    for (const std::uint32_t id : space->ids) {
        processes_.erase(id);
        ended_[id] = true;
    }
    tear_down(*space);
}

// exit_mmap(): the pages of every area, then the tables.
template <class SomeMeter>
void Life<SomeMeter>::tear_down(Space& space) {
    const std::vector<addrspace::Area> areas = space.areas.all();
    space.areas = {};
    {
        const Section time(*this);
        for (const addrspace::Area& area : areas)
            (void)space.tree.unmap(VirtAddr(down(area.start)), up(area.end) - down(area.start), nullptr,
                                   true);
    }
    if (strategy_.range) free_pieces(space, areas, 0, 0);
    const Section time(*this, true);
    if (!strategy_.range) {
        pagetable::Scan how = strategy_.scan;
        how.only_32_bit = how.only_32_bit && space.highest <= std::uint64_t{1} << 32;
        space.tree.scan(how);
    }
    space.tree.release();
    cache_.trim();
}

template <class SomeMeter>
void Life<SomeMeter>::apply(const MemoryEvent& event) {
    cache_.run_on(event.cpu);
    const std::uint64_t before = meter_.bytes();
    Space* changed = nullptr;
    switch (event.kind) {
        case MemoryEventKind::kFork:
            fork(event);
            if (const auto child = processes_.find(event.child);
                child != processes_.end() && !event.shares_space)
                changed = child->second.get();
            break;
        case MemoryEventKind::kExec:
            exec(event);
            break;
        case MemoryEventKind::kExit:
            if (const auto known = processes_.find(event.process); known != processes_.end())
                leave(event.process,
                      known->second->members.contains(event.thread) ? event.thread : event.process,
                      event.thread == 0);
            else
                note(ended_.contains(event.process) ? "an exit of a process that has ended"
                                                    : "an exit of a process that nothing else is known of",
                     event);
            break;
        case MemoryEventKind::kSwitch:
            break;
        default:
            changed = space_of(event);
            if (changed == nullptr) break;
            switch (event.kind) {
                case MemoryEventKind::kMap:
                    map(*changed, event);
                    break;
                case MemoryEventKind::kUnmap:
                    if (sane(event, event.start.value(), event.bytes)) {
                        const auto gone =
                            changed->areas.unmap(event.start.value(), event.start.value() + event.bytes);
                        if (gone.empty()) note("an unmap of nothing", event);
                        unmap_pieces(*changed, gone);
                    }
                    break;
                case MemoryEventKind::kProtect:
                    if (sane(event, event.start.value(), event.bytes)) {
                        const std::uint64_t end = event.start.value() + event.bytes;
                        const auto pieces =
                            changed->areas.protect(event.start.value(), end, event.protection);
                        if (pieces.empty()) note("a protect of nothing", event);
                        const Section time(*this);
                        for (const addrspace::Area& piece : pieces)
                            (void)changed->tree.protect(VirtAddr(down(piece.start)),
                                                        up(piece.end) - down(piece.start),
                                                        flags_of(event.protection));
                    }
                    break;
                case MemoryEventKind::kDiscard:
                    if (sane(event, event.start.value(), event.bytes)) {
                        const Section time(*this);
                        const std::uint64_t first = up(event.start.value());
                        const std::uint64_t last = down(event.start.value() + event.bytes);
                        if (first < last) (void)changed->tree.unmap(VirtAddr(first), last - first);
                    }
                    break;
                case MemoryEventKind::kRemap:
                    remap(*changed, event);
                    break;
                case MemoryEventKind::kBreak:
                    change_break(*changed, event);
                    break;
                case MemoryEventKind::kFault:
                    fault(*changed, event);
                    break;
                default:
                    break;
            }
    }
    if (changed != nullptr) {
        changed->table_bytes += meter_.bytes() - before;
        most_of_a_process_ = std::max(most_of_a_process_, changed->table_bytes);
    }
    peak_ = std::max(peak_, arena_.bytes_in_use());
}

}  // namespace tlbscope::tables
