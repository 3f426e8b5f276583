// Where the memory for page tables comes from: the one thing that a user of this library must supply. An
// emulator gives out pieces of the guest's memory, a kernel its page frames.
#pragma once

#include <cstddef>
#include <optional>

#include "core/types.h"

namespace tlbscope::pagetable {

class Frames {
  public:
    virtual ~Frames() = default;
    // A block of a power of two bytes, at most 64 KiB, aligned to its size; its contents may be anything, its
    // address is never 0. Nothing when there is no memory left.
    [[nodiscard]] virtual std::optional<PhysAddr> allocate(std::size_t bytes) = 0;
    // Takes back a block; false when it is not allocated or has another size, which a debug build does not
    // survive.
    virtual bool release(PhysAddr block, std::size_t bytes) = 0;
    // Where the bytes of an allocated block are; valid until it is released.
    [[nodiscard]] virtual std::byte* at(PhysAddr block) = 0;
};

}  // namespace tlbscope::pagetable
