// Which page size maps what: rules that the machine file or the command line gives, the last that matches
// wins, and pins before all others.
//
//     kernel-linear=8M            the region in 8M pages
//     user=64K                    all of the user's side
//     0xff000000-0xff080000=512K  a range of addresses, the end not included
//     kernel-text:8M              pinned: 8M entries that no reload replaces
//
// A large page serves the addresses of its rule only: where a region ends inside one, the rest of that page
// is mapped as its own rule says. What a real kernel would lose to rounding there is told by `advise`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "addrspace/regions.h"
#include "core/error.h"
#include "core/types.h"

namespace tlbscope::addrspace {

struct MappingRule {
    std::string what;  // as it was written: a region, "user", "kernel", "all", or a range
    // One of these says what it covers.
    std::optional<Region> region;
    std::optional<Side> side;           // of "user" and "kernel"
    std::optional<AddressRange> range;  // none of the three: everything
    PageShift size;
    bool pinned = false;

    [[nodiscard]] bool covers(Region where, Side of, std::uint64_t address) const;
    // Only the address and its side matter.
    [[nodiscard]] bool needs_region() const { return region.has_value(); }
    [[nodiscard]] std::string text() const;  // "kernel-linear=8M", "kernel-text:8M"
    friend bool operator==(const MappingRule&, const MappingRule&) = default;
};

// "kernel-linear=8M"; a pin when `pinned`, "kernel-text:8M". The error says what is wrong and what to write.
[[nodiscard]] Result<MappingRule> parse_rule(const std::string& text, bool pinned);

using RegionOf = std::function<Region(SpaceId recorded, VirtAddr address)>;

class Mapping {
  public:
    Mapping() = default;
    Mapping(std::vector<MappingRule> rules, PageShift base) : rules_(std::move(rules)), base_(base) {}

    struct Answer {
        PageShift size;
        const MappingRule* pin = nullptr;   // the rule that pins the page
        const MappingRule* rule = nullptr;  // that decided; none: the base page
    };
    // What maps `address`. `pins` false: as if there were no pins.
    [[nodiscard]] Answer at(SpaceId recorded, VirtAddr address, Side side, const RegionOf& region_of,
                            bool pins) const;

    [[nodiscard]] const std::vector<MappingRule>& rules() const { return rules_; }
    [[nodiscard]] PageShift base() const { return base_; }
    [[nodiscard]] bool plain() const { return rules_.empty(); }
    [[nodiscard]] bool needs_regions() const;
    // "4K", "4K; kernel-linear=8M, kernel-text:8M pinned".
    [[nodiscard]] std::string text() const;

  private:
    std::vector<MappingRule> rules_;
    PageShift base_{12};
};

}  // namespace tlbscope::addrspace
