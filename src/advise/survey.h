// What one machine's replay saw of pages and regions: which pages were touched, and which kind, mode and
// region its misses were of.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "addrspace/mapping.h"
#include "addrspace/regions.h"
#include "core/types.h"
#include "explain/causes.h"
#include "explain/flat_map.h"
#include "recording/metadata.h"
#include "replay/observer.h"

namespace tlbscope::advise {

// Regions by page, asked for once each. Not to be shared by threads.
class RegionCache {
  public:
    explicit RegionCache(addrspace::RegionOf region_of) : region_of_(std::move(region_of)) {}
    // `space` is the recording's, or explain::kKernelSpace for the kernel's side.
    addrspace::Region at(std::uint32_t space, std::uint64_t page, PageShift size);
    [[nodiscard]] const addrspace::RegionOf& region_of() const { return region_of_; }

  private:
    addrspace::RegionOf region_of_;
    explain::FlatMap<explain::Translation, std::uint8_t> known_;  // 0: not asked yet
};

class RegionMisses {
  public:
    [[nodiscard]] std::uint64_t& at(Kind kind, Mode mode, addrspace::Region region) {
        return counts_[index(kind, mode, region)];
    }
    [[nodiscard]] std::uint64_t at(Kind kind, Mode mode, addrspace::Region region) const {
        return counts_[index(kind, mode, region)];
    }
    [[nodiscard]] std::uint64_t of(addrspace::Region region) const;
    [[nodiscard]] std::uint64_t total() const;

  private:
    static std::size_t index(Kind kind, Mode mode, addrspace::Region region) {
        return (static_cast<std::size_t>(kind) * 2 + static_cast<std::size_t>(mode)) * addrspace::kRegions +
               static_cast<std::size_t>(region);
    }
    std::array<std::uint64_t, 4 * addrspace::kRegions> counts_{};
};

// Counts misses only: cheap enough for every remedy.
class MissSurvey : public replay::Observer {
  public:
    explicit MissSurvey(RegionCache& regions) : regions_(&regions) {}
    void looked_up(const replay::Lookups& lookups) override;
    void switching(const replay::SpaceSwitch&) override {}
    [[nodiscard]] const RegionMisses& misses() const { return misses_; }

  protected:
    virtual void missed(const replay::Miss&, std::uint32_t /*space*/, addrspace::Region) {}

  private:
    RegionCache* regions_;
    RegionMisses misses_;
    std::vector<replay::Miss> found_;
};

// A page that was touched, in the smallest size the machine uses.
struct TouchedPage {
    std::uint64_t address = 0;
    std::uint32_t space = 0;  // explain::kKernelSpace on the kernel's side
    addrspace::Region region = addrspace::Region::kUnknown;
    std::uint64_t misses = 0;
};

// The machine as it is: pages as well.
class Survey final : public MissSurvey {
  public:
    explicit Survey(RegionCache& regions) : MissSurvey(regions), regions_(&regions) {}
    void looked_up(const replay::Lookups& lookups) override;

    // By side, space and address. Call it once the replay is over.
    [[nodiscard]] std::vector<TouchedPage> pages() const;
    // A bit for each region that has misses.
    [[nodiscard]] std::uint32_t regions_missed() const;

  private:
    void missed(const replay::Miss& miss, std::uint32_t space, addrspace::Region region) override;

    RegionCache* regions_;
    PageShift shift_{12};
    explain::FlatMap<explain::Translation, std::uint64_t> pages_;  // misses + 1
};

}  // namespace tlbscope::advise
