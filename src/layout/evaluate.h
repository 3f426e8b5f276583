// How many misses a placement of the pieces has: the trace replayed with their new addresses through the
// engine's own arrays (machine/tlb.h).
//
// A loop's passes end early when one had no miss. Then every page of the body is in the array and stays
// there, and with FIFO and random replacement, which hits do not change, and LRU, whose order after a pass is
// that of the last use of each page, the array after one more pass is the same as before it. So no later pass
// misses either.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layout/image.h"
#include "layout/trace.h"
#include "machine/machine.h"
#include "machine/tlb.h"

namespace tlbscope::layout {

struct Misses {
    std::uint64_t image = 0;  // of pages of the image
    std::uint64_t other = 0;
    std::uint64_t flushes = 0;
    [[nodiscard]] std::uint64_t total() const { return image + other; }
    friend bool operator==(const Misses&, const Misses&) = default;
};

class Evaluator {
  public:
    // The trace and the machine must outlive it.
    Evaluator(const Trace& trace, const machine::Machine& machine);

    // `starts`: the image's address of each piece. Time: that of the trace's elements, a few ns each.
    [[nodiscard]] Misses misses(std::span<const std::uint64_t> starts);
    // The same, and how often each visit missed, by the number of the visit, and how many distinct pages of
    // the image were touched.
    struct Detail {
        Misses misses;
        std::vector<std::uint32_t> by_visit;
        std::uint64_t image_pages = 0;
        std::uint64_t other_pages = 0;
    };
    [[nodiscard]] Detail detail(std::span<const std::uint64_t> starts);

    // Called for every page looked up, in order, with the visit it belongs to, when set; repeats of the page
    // before and the passes that are skipped are left out.
    std::function<void(std::uint32_t visit, bool missed)> on_looked_up;

  private:
    struct Target {
        std::uint64_t key = 0;   // of its first page, without a tag
        std::uint64_t user = 0;  // all ones where the tag belongs to it
        std::uint32_t pages = 1;
    };

    [[nodiscard]] bool mixed() const;  // pages of the image are of another size
    void place(std::span<const std::uint64_t> starts);
    void replay(std::span<const std::uint32_t> elements);
    void look_up();
    void apply(const Change& change);

    const Trace& trace_;
    machine::TlbGeometry geometry_;
    machine::InvalidationRules rules_;
    std::vector<Target> targets_;  // by visit
    std::unique_ptr<machine::Tlb> tlb_;
    std::uint64_t tag_ = 0;
    std::uint64_t last_ = machine::kNoKey;
    std::vector<std::uint64_t> keys_;
    std::vector<std::uint32_t> of_;  // visits of keys_
    std::size_t count_ = 0;
    std::vector<std::uint32_t> missed_;
    std::vector<std::uint32_t>* by_visit_ = nullptr;
    std::uint64_t all_missed_ = 0;
    Misses result_;
};

}  // namespace tlbscope::layout
