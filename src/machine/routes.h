// Which array holds a page of some size, at each level, and as an entry of which size.
//
// An array takes a page in the largest of its sizes that is not larger than the page: a 1G page whose array
// has only 2M entries takes several of those, as processors do that split large pages. The smallest size that
// any entry has is the size at which touches are told apart; it is number 0 of the sizes that keys carry.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.h"
#include "machine/machine.h"

namespace tlbscope::machine {

inline constexpr std::uint32_t kMostLevels = 3;

class Routes {
  public:
    // Refuses a machine that has no first-level array for one of its pages, or two, or more sizes of entries
    // in use than kMostSizes. Where it happened is "tlb.NAME" or empty.
    static Result<Routes> of(const Machine& machine);

    struct Stop {
        std::uint32_t array = 0;  // index into Machine::tlbs
        std::uint8_t size = 0;    // index into sizes()
    };
    // One level each; a page that no array of a level takes skips it.
    using Route = std::array<std::optional<Stop>, kMostLevels>;

    // Of a page that the mapping made this large.
    [[nodiscard]] const Route& route(Kind kind, PageShift page) const;
    [[nodiscard]] const std::vector<PageShift>& sizes() const { return sizes_; }  // of entries, ascending
    [[nodiscard]] PageShift touched() const { return sizes_.front(); }
    // One array per kind at the first level is in use, and it serves no other kind.
    [[nodiscard]] bool split() const { return split_; }
    // One size, one level: what an array misses is refilled, whatever the order.
    [[nodiscard]] bool simple() const { return simple_; }
    [[nodiscard]] std::uint32_t levels() const { return levels_; }

  private:
    struct Page {
        PageShift size;
        std::array<Route, 2> routes;  // by kind
    };
    std::vector<Page> pages_;
    std::vector<PageShift> sizes_;
    std::uint32_t levels_ = 1;
    bool split_ = true;
    bool simple_ = true;
};

}  // namespace tlbscope::machine
