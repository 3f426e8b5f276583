#include "advise/survey.h"

#include <algorithm>
#include <numeric>

#include "addrspace/asids.h"
#include "machine/tlb.h"
#include "replay/counts.h"

namespace tlbscope::advise {

using addrspace::Region;
using explain::kKernelSpace;

Region RegionCache::at(std::uint32_t space, std::uint64_t page, PageShift size) {
    std::uint8_t& known = known_[{.page = page, .space = space, .size = size.value()}];
    if (known == 0) {
        const Region region = region_of_ ? region_of_(SpaceId(space == kKernelSpace ? 0 : space),
                                                      VirtAddr(page << size.value()))
                                         : Region::kUnknown;
        known = static_cast<std::uint8_t>(static_cast<unsigned>(region) + 1);
    }
    return static_cast<Region>(known - 1);
}

std::uint64_t RegionMisses::of(Region region) const {
    std::uint64_t sum = 0;
    for (const Kind kind : replay::kKinds)
        for (const Mode mode : replay::kModes) sum += at(kind, mode, region);
    return sum;
}

std::uint64_t RegionMisses::total() const {
    return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

void MissSurvey::looked_up(const replay::Lookups& lookups) {
    if (lookups.walked.empty()) return;
    replay::locate(lookups, found_);
    for (const replay::Miss& miss : found_) {
        const std::uint32_t space = miss.side == Side::kKernel ? kKernelSpace : lookups.recorded.value();
        const Region region = regions_->at(space, miss.page, lookups.shift);
        ++misses_.at(miss.kind, miss.mode, region);
        missed(miss, space, region);
    }
}

void Survey::looked_up(const replay::Lookups& lookups) {
    shift_ = lookups.shift;
    std::uint64_t last = machine::kNoKey;
    for (const std::uint64_t key : lookups.touched) {
        if (key == last) continue;
        last = key;
        const bool kernel = machine::tag_of(key) == addrspace::kGlobalTag;
        std::uint64_t& known = pages_[{.page = machine::page_of(key),
                                       .space = kernel ? kKernelSpace : lookups.recorded.value()}];
        if (known == 0) known = 1;
    }
    MissSurvey::looked_up(lookups);
}

void Survey::missed(const replay::Miss& miss, std::uint32_t space, Region) {
    ++pages_[{.page = miss.page, .space = space}];
}

std::vector<TouchedPage> Survey::pages() const {
    std::vector<TouchedPage> pages;
    pages.reserve(pages_.size());
    pages_.for_each([&](const explain::Translation& at, std::uint64_t known) {
        pages.push_back({.address = at.page << shift_.value(),
                         .space = at.space,
                         .region = regions_->at(at.space, at.page, shift_),
                         .misses = known - 1});
    });
    std::sort(pages.begin(), pages.end(), [](const TouchedPage& a, const TouchedPage& b) {
        return a.space != b.space ? a.space < b.space : a.address < b.address;
    });
    return pages;
}

std::uint32_t Survey::regions_missed() const {
    std::uint32_t regions = 0;
    for (std::size_t i = 0; i < addrspace::kRegions; ++i)
        if (misses().of(static_cast<Region>(i)) > 0) regions |= 1u << i;
    return regions;
}

}  // namespace tlbscope::advise
