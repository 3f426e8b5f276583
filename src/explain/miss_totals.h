// Misses of one replay added up by function, by region and by page, under names that mean the same in another
// recording.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "core/types.h"
#include "explain/names.h"
#include "recording/recording.h"
#include "replay/observer.h"

namespace tlbscope::explain {

// Misses by kind.
using KindCounts = std::array<std::uint64_t, 2>;

// What rows of two runs are matched by: a function's name and its file's (without the folder, which differs
// between machines); a region's name; a page's address and space.
struct RowName {
    std::string name;
    std::string object;
    friend auto operator<=>(const RowName&, const RowName&) = default;
};

class MissTotals final : public replay::Observer {
  public:
    MissTotals(const recording::Recording& recording, const Names& names)
        : recording_(recording), names_(names) {}

    void looked_up(const replay::Lookups& lookups) override;
    void switching(const replay::SpaceSwitch&) override {}

    // The code that missed.
    [[nodiscard]] std::map<RowName, KindCounts> by_function() const;
    // What was missed.
    [[nodiscard]] std::map<RowName, KindCounts> by_region() const;
    [[nodiscard]] std::map<RowName, KindCounts> by_page() const;

  private:
    struct PageKey {
        std::uint64_t page = 0;
        std::uint32_t space = 0;  // recorded; 0 for the kernel's side
        friend bool operator==(const PageKey&, const PageKey&) = default;
    };
    struct PageHash {
        std::size_t operator()(const PageKey& key) const {
            return (key.page ^ std::uint64_t{key.space} << 40) * 0x9e3779b97f4a7c15ULL;
        }
    };

    const recording::Recording& recording_;
    const Names& names_;
    std::unordered_map<std::uint32_t, KindCounts> functions_;  // by id
    std::map<std::string, KindCounts> unknown_;                // unknown functions by object
    std::unordered_map<PageKey, KindCounts, PageHash> pages_;
    PageShift shift_{12};
    std::vector<replay::Miss> misses_;
};

}  // namespace tlbscope::explain
