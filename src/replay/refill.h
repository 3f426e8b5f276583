// What one miss costs when that is derived: the page's real table entries are loaded through a small cache,
// by hardware that remembers upper entries or by a software handler that also runs instructions.
//
// Problem: a cost per miss is the number everybody quotes and nobody can check; thread 1's 23 cycles leave
// the handler out. Idea: keep page tables for the recorded spaces, filled as pages are first missed, so that
// a walk has real addresses: neighbouring pages share lines of entries, and far ones do not. What the caches
// then hold follows from the misses alone, or with sees_program from every reference in between. Rejected: a
// fixed fraction of loads that miss, which is the number that was to be found.
//
// What is made up: the frames of the pages themselves, as only the tables' addresses matter; and upper
// entries of the kernel's half are in a tree of their own, where x86 copies the topmost level into every
// space.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "machine/cache.h"
#include "machine/tlb.h"
#include "pagetable/arena.h"
#include "pagetable/tree.h"
#include "replay/plan.h"
#include "replay/program_order.h"

namespace tlbscope::replay {

struct Segment;

// What a path of the handler, or the hardware's walk, did.
struct PathTotals {
    std::string name;
    std::uint64_t times = 0;
    std::uint64_t cycles = 0;
    std::uint64_t instructions = 0;
    std::uint64_t table_loads = 0;
    std::uint64_t table_misses = 0;  // of these, in the data cache
    std::uint64_t other_loads = 0;   // saved registers, loads and stores
    std::uint64_t other_misses = 0;
    std::uint64_t lines = 0;  // instruction-cache lines run through
    std::uint64_t line_misses = 0;
    PathTotals& operator+=(const PathTotals& other);
    friend bool operator==(const PathTotals&, const PathTotals&) = default;
};

class Refill {
  public:
    // `plan.machine.refill.derived` holds; the plan must outlive it.
    explicit Refill(const Plan& plan);
    ~Refill();

    // The references of the segment from here on; each touch given to cost() must lie in it, in order.
    void enter(const Segment& segment);
    void leave();

    // The cycles of refilling `touch`, whose page has this size. `space` owns it; `tag` is its space's tag.
    [[nodiscard]] Cycles cost(const Touch& touch, PageShift page, SpaceId space);
    // The load of an entry through virtual memory missed: what its handler costs.
    [[nodiscard]] Cycles nested_cost(const Touch& touch, PageShift page, SpaceId space);
    // Where the handler loads the entry that maps `touch` through virtual memory; nothing when it does not.
    [[nodiscard]] std::optional<VirtAddr> virtual_entry(const Touch& touch, PageShift page) const;
    // Upper entries are forgotten, as after a flush.
    void flush();

    [[nodiscard]] const std::vector<PathTotals>& totals() const { return totals_; }
    // Misses at addresses that the format cannot translate: charged the fixed cost.
    [[nodiscard]] std::uint64_t fixed() const { return fixed_; }
    [[nodiscard]] std::uint64_t tables_bytes() const { return arena_.bytes_in_use(); }

  private:
    struct Entries {
        std::array<PhysAddr, pagetable::kMostSteps> at;
        std::array<std::uint8_t, pagetable::kMostSteps> level{};
        std::uint8_t count = 0;
    };
    using Tree = pagetable::BasicTree<pagetable::Unmetered>;
    using Cache = pagetable::BasicTableCache<pagetable::Unmetered>;

    const Entries* entries_of(const Touch& touch, PageShift page, SpaceId space);
    [[nodiscard]] Entries made(const Touch& touch, PageShift page, SpaceId space);
    void see_program(std::uint32_t block);
    std::uint64_t load_tables(const Entries& entries, std::size_t first, std::size_t last,
                              PathTotals& totals);
    std::uint64_t run(const machine::HandlerPath& path, std::size_t number, const Entries& entries,
                      std::size_t first, std::size_t last);
    Cycles hardware(const Touch& touch, const Entries& entries);
    [[nodiscard]] VirtAddr address_of(const Touch& touch) const;

    const Plan* plan_;
    const machine::Handler* handler_ = nullptr;
    const pagetable::Format* format_ = nullptr;
    pagetable::Arena arena_;
    pagetable::Unmetered meter_;
    Cache tables_;
    std::unordered_map<std::uint32_t, std::unique_ptr<Tree>> trees_;  // by space
    // By space, then by page and size.
    std::unordered_map<std::uint32_t, std::unordered_map<std::uint64_t, Entries>> known_;
    machine::Cache data_;
    std::optional<machine::Cache> code_;
    std::vector<std::unique_ptr<machine::Tlb>> walk_caches_;  // by level of the format; none: nullptr
    std::vector<PathTotals> totals_;                          // of the handler's paths, or of the walk
    std::uint64_t fixed_ = 0;

    const Segment* segment_ = nullptr;
    std::uint32_t seen_blocks_ = 0;
    std::uint32_t seen_accesses_ = 0;
};

}  // namespace tlbscope::replay
