#include "addrspace/areas.h"

#include <iterator>

namespace tlbscope::addrspace {

// Makes `at` an edge of every area.
void Areas::cut(std::uint64_t at) {
    auto area = areas_.upper_bound(at);
    if (area == areas_.begin()) return;
    --area;
    if (area->first == at || area->second.end <= at) return;
    Area upper = area->second;
    upper.start = at;
    area->second.end = at;
    areas_.emplace(at, upper);
}

std::vector<Area> Areas::unmap(std::uint64_t start, std::uint64_t end) {
    cut(start);
    cut(end);
    std::vector<Area> gone;
    const auto first = areas_.lower_bound(start);
    const auto last = areas_.lower_bound(end);
    for (auto area = first; area != last; ++area) gone.push_back(area->second);
    areas_.erase(first, last);
    return gone;
}

std::vector<Area> Areas::map(const Area& area) {
    std::vector<Area> gone = unmap(area.start, area.end);
    areas_[area.start] = area;
    return gone;
}

std::vector<Area> Areas::protect(std::uint64_t start, std::uint64_t end, std::uint8_t protection) {
    cut(start);
    cut(end);
    std::vector<Area> changed;
    for (auto area = areas_.lower_bound(start); area != areas_.end() && area->first < end; ++area) {
        area->second.protection = protection;
        changed.push_back(area->second);
    }
    return changed;
}

std::optional<Area> Areas::find(std::uint64_t address) const {
    auto area = areas_.upper_bound(address);
    if (area == areas_.begin()) return {};
    --area;
    if (area->second.end <= address) return {};
    return area->second;
}

std::uint64_t Areas::end_below(std::uint64_t address) const {
    const auto area = areas_.lower_bound(address);
    return area == areas_.begin() ? 0 : std::prev(area)->second.end;
}

std::optional<std::uint64_t> Areas::start_above(std::uint64_t address) const {
    const auto area = areas_.lower_bound(address);
    if (area == areas_.end()) return {};
    return area->first;
}

std::vector<Area> Areas::all() const {
    std::vector<Area> areas;
    areas.reserve(areas_.size());
    for (const auto& [start, area] : areas_) areas.push_back(area);
    return areas;
}

std::uint64_t Areas::bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [start, area] : areas_) bytes += area.end - area.start;
    return bytes;
}

}  // namespace tlbscope::addrspace
