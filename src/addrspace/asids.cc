#include "addrspace/asids.h"

#include <algorithm>

namespace tlbscope::addrspace {

Asids::Asids(std::uint32_t count) : count_(std::min(count, kMostAsids)) {}

Asids::Switch Asids::switch_to(SpaceId space) {
    if (running_ && space == current_)
        return {.tag = static_cast<std::uint16_t>(kFirstUserTag +
                                                  (count_ == 0 ? 0 : identifiers_.at(space.value())))};
    switches_ += running_ ? 1 : 0;
    const bool first = !running_;
    running_ = true;
    current_ = space;
    if (count_ == 0) return {.tag = kFirstUserTag, .drop = false, .flush = !first};
    if (const auto known = identifiers_.find(space.value()); known != identifiers_.end())
        return {.tag = static_cast<std::uint16_t>(kFirstUserTag + known->second)};

    const std::uint32_t identifier = next_;
    next_ = next_ + 1 == count_ ? 0 : next_ + 1;
    const bool taken = identifier < owners_.size();
    if (taken) {
        identifiers_.erase(owners_[identifier].value());
        owners_[identifier] = space;
        ++reuses_;
    } else {
        owners_.push_back(space);
    }
    identifiers_.emplace(space.value(), identifier);
    return {.tag = static_cast<std::uint16_t>(kFirstUserTag + identifier), .drop = taken};
}

}  // namespace tlbscope::addrspace
