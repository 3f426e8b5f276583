// Which recorded spaces are the same space. A recording numbers a space anew whenever it cannot tell that it
// has seen it before; two that belong to the same process are one.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "core/types.h"

namespace tlbscope::addrspace {

class Spaces {
  public:
    // `pid` 0: the process is unknown, and the space is its own.
    void add(SpaceId id, std::uint32_t pid);
    // The first space added for the same process; `id` itself when it was never added.
    [[nodiscard]] SpaceId same_as(SpaceId id) const;

  private:
    std::unordered_map<std::uint32_t, SpaceId> by_pid_;
    std::unordered_map<std::uint32_t, SpaceId> same_;  // by id
};

}  // namespace tlbscope::addrspace
