#include "pagetable/arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace tlbscope::pagetable {

Arena::Arena(PhysAddr base, std::uint64_t bytes)
    : base_(base.value()), bytes_(bytes), state_(static_cast<std::size_t>(bytes >> kUnitShift), 0) {
    void* memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    host_ = static_cast<std::byte*>(memory);
}

Arena::~Arena() { ::munmap(host_, bytes_); }

std::optional<PhysAddr> Arena::allocate(std::size_t bytes) {
    const auto shift = std::max<unsigned>(static_cast<unsigned>(std::bit_width(bytes - 1)), kUnitShift);
    if (shift > kMostShift) return {};
    const std::uint64_t size = std::uint64_t{1} << shift;
    std::uint64_t offset = 0;
    if (!free_[shift].empty()) {
        offset = free_[shift].back();
        free_[shift].pop_back();
    } else {
        // What alignment skips serves smaller tables later.
        while ((fresh_ & (size - 1)) != 0) {
            const auto piece = static_cast<unsigned>(std::countr_zero(fresh_));
            free_[piece].push_back(fresh_);
            fresh_ += std::uint64_t{1} << piece;
        }
        if (bytes_ - fresh_ < size) return {};
        offset = fresh_;
        fresh_ += size;
    }
    state_[offset >> kUnitShift] = static_cast<std::uint8_t>(shift);
    ++blocks_in_use_;
    bytes_in_use_ += size;
    return PhysAddr(base_ + offset);
}

bool Arena::allocated(PhysAddr block, std::size_t bytes) const {
    const auto shift = std::max<unsigned>(static_cast<unsigned>(std::bit_width(bytes - 1)), kUnitShift);
    const std::uint64_t offset = block.value() - base_;
    return contains(block) && (offset & ((1U << kUnitShift) - 1)) == 0 &&
           state_[offset >> kUnitShift] == shift;
}

bool Arena::release(PhysAddr block, std::size_t bytes) {
    if (!allocated(block, bytes)) return false;
    const std::uint64_t offset = block.value() - base_;
    const unsigned shift = state_[offset >> kUnitShift];
    state_[offset >> kUnitShift] = 0;
    free_[shift].push_back(offset);
    --blocks_in_use_;
    bytes_in_use_ -= std::uint64_t{1} << shift;
    return true;
}

bool Arena::load(PhysAddr from, void* into, unsigned bytes) const {
    const std::uint64_t offset = from.value() - base_;
    if (offset >= bytes_ || bytes > bytes_ - offset) return false;
    std::memcpy(into, host_ + offset, bytes);
    return true;
}

bool Arena::store(PhysAddr to, const void* from, unsigned bytes) {
    const std::uint64_t offset = to.value() - base_;
    if (offset >= bytes_ || bytes > bytes_ - offset) return false;
    std::memcpy(host_ + offset, from, bytes);
    return true;
}

}  // namespace tlbscope::pagetable
