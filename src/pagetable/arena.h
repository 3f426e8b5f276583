// Physical memory for page tables: blocks of a power of two, aligned to their size, in one stretch of host
// memory. A block that is released is the next one of its size to be given out, as in a kernel's per-CPU
// lists of pages.
//
// Every allocation and release is checked, in release builds too: releasing what is not allocated, or under
// another size, is an error of the caller and is reported by release().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/types.h"
#include "pagetable/frames.h"
#include "pagetable/walk.h"

namespace tlbscope::pagetable {

class Arena : public Frames, public Memory {
  public:
    // [base, base + bytes) of physical memory; base and bytes are multiples of 64 KiB, and base is not 0.
    // Host memory is reserved at once and used when written.
    Arena(PhysAddr base, std::uint64_t bytes);
    ~Arena() override;
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    std::optional<PhysAddr> allocate(std::size_t bytes) override;
    bool release(PhysAddr block, std::size_t bytes) override;
    std::byte* at(PhysAddr address) override { return host_ + (address.value() - base_); }

    bool load(PhysAddr from, void* into, unsigned bytes) const override;
    bool store(PhysAddr to, const void* from, unsigned bytes) override;

    [[nodiscard]] bool contains(PhysAddr address) const {
        return address.value() >= base_ && address.value() - base_ < bytes_;
    }
    // Whether a block of this size is allocated at exactly this address.
    [[nodiscard]] bool allocated(PhysAddr block, std::size_t bytes) const;
    [[nodiscard]] std::uint64_t blocks_in_use() const { return blocks_in_use_; }
    [[nodiscard]] std::uint64_t bytes_in_use() const { return bytes_in_use_; }

  private:
    static constexpr unsigned kUnitShift = 8;  // the smallest block: radix's 256-byte tables
    static constexpr unsigned kMostShift = 16;

    std::uint64_t base_;
    std::uint64_t bytes_;
    std::byte* host_ = nullptr;
    std::uint64_t fresh_ = 0;                          // [fresh_, bytes_) was never given out
    std::vector<std::uint64_t> free_[kMostShift + 1];  // offsets, by log2 of the size
    std::vector<std::uint8_t>
        state_;  // by unit: log2 of the size of the block that starts there and is in use, else 0
    std::uint64_t blocks_in_use_ = 0;
    std::uint64_t bytes_in_use_ = 0;
};

}  // namespace tlbscope::pagetable
