#include "support/reference_tlb.h"

namespace tlbscope::reference {

Tlb::Tlb(const machine::TlbGeometry& geometry, std::uint64_t stream)
    : geometry_(geometry),
      sets_(geometry.sets(), Set(geometry.ways)),
      fifo_index_(geometry.sets(), 0),
      right_next_(geometry.sets()),
      random_(machine::seed_of(geometry, stream)) {}

Tlb::Set& Tlb::set_of(const Translation& wanted) { return sets_[wanted.page % sets_.size()]; }

bool Tlb::look_up(const Translation& wanted) {
    Set& set = set_of(wanted);
    ++time_;
    for (std::size_t way = 0; way < set.size(); ++way)
        if (set[way] && set[way]->translation == wanted) {
            use(wanted.page % sets_.size(), way);
            return true;
        }
    reload(wanted);
    return false;
}

void Tlb::reload(const Translation& wanted) {
    Set& set = set_of(wanted);
    const std::size_t number = wanted.page % sets_.size();
    const std::size_t way = victim(set, number);
    lost_ = set[way] ? std::optional(set[way]->translation) : std::nullopt;
    set[way] = Entry{.translation = wanted};
    use(number, way);
}

void Tlb::use(std::size_t set_number, std::size_t way) {
    Entry& entry = *sets_[set_number][way];
    entry.last_used = time_;
    entry.recently = true;
    // Every group of ways that this one is in points to its other half.
    std::size_t first = 0;
    for (std::size_t ways = geometry_.ways; ways > 1; ways /= 2) {
        const bool right = way >= first + ways / 2;
        right_next_[set_number][{first, ways}] = !right;
        if (right) first += ways / 2;
    }
}

bool Tlb::reserved(const Translation& wanted) const {
    for (const auto& set : sets_)
        for (std::size_t way = geometry_.ways - geometry_.reserved; way < geometry_.ways; ++way)
            if (set[way] && set[way]->translation == wanted) return true;
    return false;
}

bool Tlb::pin(const Translation& wanted) {
    for (std::size_t way = geometry_.ways - geometry_.reserved; way < geometry_.ways; ++way)
        if (!sets_[0][way]) {
            sets_[0][way] = Entry{.translation = wanted};
            return true;
        }
    return false;
}

void Tlb::load(const Translation& wanted) {
    ++time_;
    drop_if([&](const Translation& other, bool) { return other == wanted; });
    reload(wanted);
}

void Tlb::drop_if(const std::function<bool(const Translation&, bool)>& doomed) {
    for (Set& set : sets_)
        for (std::size_t way = 0; way < set.size(); ++way)
            if (set[way] && doomed(set[way]->translation, way >= geometry_.ways - geometry_.reserved))
                set[way].reset();
}

bool Tlb::holds(const Translation& wanted) const {
    for (const auto& set : sets_)
        for (const auto& entry : set)
            if (entry && entry->translation == wanted) return true;
    return false;
}

std::size_t Tlb::victim(Set& set, std::size_t set_number) {
    const std::size_t usable = geometry_.ways - geometry_.reserved;
    switch (geometry_.replacement) {
        case machine::Replacement::kFifo:
        case machine::Replacement::kFifoDown:
            return fifo_victim(set_number);
        case machine::Replacement::kLru:
            return lru_victim(set, usable);
        case machine::Replacement::kTreePlru:
            return tree_victim(set, set_number);
        case machine::Replacement::kNru:
            return nru_victim(set, usable);
        case machine::Replacement::kRandom:
            break;
    }
    return random_.below(static_cast<std::uint32_t>(usable));
}

// The index says which way is next, whether it is empty or not, and moves on by one.
std::size_t Tlb::fifo_victim(std::size_t set_number) {
    const std::size_t usable = geometry_.ways - geometry_.reserved;
    const std::size_t way = fifo_index_[set_number];
    const std::size_t step = geometry_.replacement == machine::Replacement::kFifo ? 1 : usable - 1;
    fifo_index_[set_number] = (way + step) % usable;
    return way;
}

// An empty way if there is one, else the way that has not been used for the longest time.
std::size_t Tlb::lru_victim(const Set& set, std::size_t usable) {
    std::size_t oldest = 0;
    for (std::size_t way = 0; way < usable; ++way) {
        if (!set[way]) return way;
        if (set[way]->last_used < set[oldest]->last_used) oldest = way;
    }
    return oldest;
}

// An empty way, else the first not used since all were last said to be unused.
std::size_t Tlb::nru_victim(Set& set, std::size_t usable) {
    for (std::size_t way = 0; way < usable; ++way)
        if (!set[way]) return way;
    for (std::size_t way = 0; way < usable; ++way)
        if (!set[way]->recently) return way;
    for (std::size_t way = 0; way < usable; ++way) set[way]->recently = false;
    return 0;
}

std::size_t Tlb::tree_victim(const Set& set, std::size_t set_number) {
    for (std::size_t way = 0; way < set.size(); ++way)
        if (!set[way]) return way;
    std::size_t first = 0;
    for (std::size_t ways = geometry_.ways; ways > 1; ways /= 2)
        if (right_next_[set_number][{first, ways}]) first += ways / 2;
    return first;
}

void Tlb::drop_space(std::uint32_t space) {
    for (Set& set : sets_)
        for (auto& entry : set)
            if (entry && !entry->translation.kernel && entry->translation.space == space) entry.reset();
}

void Tlb::flush_all() {
    for (Set& set : sets_)
        for (std::size_t way = 0; way < geometry_.ways - geometry_.reserved; ++way) set[way].reset();
    for (std::size_t& index : fifo_index_) index = 0;
}

}  // namespace tlbscope::reference
