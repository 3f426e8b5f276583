// The mapped areas of a space: which addresses may have pages, with which protection. What the kernel keeps
// as VMAs, reduced to what page tables depend on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/types.h"

namespace tlbscope::addrspace {

struct Area {
    std::uint64_t start = 0;
    std::uint64_t end = 0;  // one behind; never below start
    std::uint8_t protection = 0;
    bool file = false;
    friend bool operator==(const Area&, const Area&) = default;
};

// Areas never overlap. Neighbours that are alike stay apart, as they were mapped. Each operation is
// logarithmic in the areas plus linear in those that it touches.
class Areas {
  public:
    // Maps [start, end), which must not be empty, over whatever is there; what was there is returned.
    std::vector<Area> map(const Area& area);
    // The pieces that were mapped in [start, end), ascending; areas across an edge are cut there.
    std::vector<Area> unmap(std::uint64_t start, std::uint64_t end);
    // Gives what is mapped in [start, end) this protection; the pieces as they are now.
    std::vector<Area> protect(std::uint64_t start, std::uint64_t end, std::uint8_t protection);

    [[nodiscard]] std::optional<Area> find(std::uint64_t address) const;
    // The end of the last area below `address`, which lies in none; 0 when there is none.
    [[nodiscard]] std::uint64_t end_below(std::uint64_t address) const;
    // The start of the first area at or above `address`; nothing when there is none.
    [[nodiscard]] std::optional<std::uint64_t> start_above(std::uint64_t address) const;
    [[nodiscard]] std::vector<Area> all() const;
    [[nodiscard]] bool empty() const { return areas_.empty(); }
    [[nodiscard]] std::size_t size() const { return areas_.size(); }
    [[nodiscard]] std::uint64_t bytes() const;

  private:
    void cut(std::uint64_t at);
    std::map<std::uint64_t, Area> areas_;  // by start
};

}  // namespace tlbscope::addrspace
