// The causes of DESIGN and docs/causes.md, judged as their definitions read: remember every page ever looked
// up, ask both shadows always, and ask the array itself what an invalidation removes.
#pragma once

#include <optional>
#include <vector>

#include "replay/cause.h"
#include "support/reference_tlb.h"

namespace tlbscope::reference {

// Of one array's misses.
class Causes {
  public:
    explicit Causes(const machine::TlbGeometry& geometry);

    // Every touch, in order. `page` names its space by process, `wanted` by the identifier that the space has
    // now; `hit` is what the array itself did. Returns the cause of a miss.
    std::optional<replay::Cause> touch(const Translation& page, const Translation& wanted, bool hit);
    // Software loads the page's entry, which nobody looked up.
    void load(const Translation& page, const Translation& wanted);
    // `array` is about to drop an identifier's entries, or every entry.
    void drop_space(std::uint32_t identifier, const Tlb& array);
    void flush_all(const Tlb& array);
    // `array`, whose reserved ways are known by `reserved`, is about to lose the doomed.
    void drop_if(const std::function<bool(const Translation&, bool)>& doomed, const Tlb& array);

  private:
    struct Known {
        Translation page;
        std::optional<Translation> entry;  // what the array calls it; nothing once that was dropped
        bool removed = false;              // by an invalidation, since its last use
    };
    Known* find(const Translation& page);

    Tlb any_place_;      // LRU, fully associative
    Tlb same_geometry_;  // LRU
    std::vector<Known> known_;
};

}  // namespace tlbscope::reference
