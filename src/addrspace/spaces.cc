#include "addrspace/spaces.h"

namespace tlbscope::addrspace {

void Spaces::add(SpaceId id, std::uint32_t pid) {
    same_[id.value()] = pid == 0 ? id : by_pid_.try_emplace(pid, id).first->second;
}

SpaceId Spaces::same_as(SpaceId id) const {
    const auto known = same_.find(id.value());
    return known == same_.end() ? id : known->second;
}

}  // namespace tlbscope::addrspace
