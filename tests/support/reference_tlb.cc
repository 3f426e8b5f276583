#include "support/reference_tlb.h"

namespace tlbscope::reference {

Tlb::Tlb(const machine::TlbGeometry& geometry, std::uint64_t stream)
    : geometry_(geometry),
      sets_(geometry.sets(), Set(geometry.ways)),
      fifo_index_(geometry.sets(), 0),
      random_(machine::seed_of(geometry, stream)) {}

Tlb::Set& Tlb::set_of(const Translation& wanted) { return sets_[wanted.page % sets_.size()]; }

bool Tlb::look_up(const Translation& wanted) {
    Set& set = set_of(wanted);
    ++time_;
    for (auto& entry : set)
        if (entry && entry->translation == wanted) {
            entry->last_used = time_;
            return true;
        }
    set[victim(set, wanted.page % sets_.size())] = Entry{.translation = wanted, .last_used = time_};
    return false;
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
