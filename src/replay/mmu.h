// One machine's MMU on one CPU: looks up what a segment touched, level by level, and refills what all levels
// missed.
//
// Problem: hundreds of millions of lookups per second, few of which miss, against any number of arrays and
// page sizes, exactly. Idea: the first level's arrays of a split machine do not see each other, so each looks
// up its kind's list at one go (machine/tlb.h); only what they missed is put in program order and passed on,
// level after level, and what the last one misses is refilled in that order. Machines whose first level is
// unified, or that have several arrays per kind in use there, are given one list in program order instead
// (replay/program_order.h), and machines with an inclusive level are looked up touch by touch, as what the
// later level loses the earlier ones lose at once. Rejected: touch by touch for all (a third of the speed).
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "addrspace/asids.h"
#include "core/types.h"
#include "machine/tlb.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "replay/counts.h"
#include "replay/observer.h"
#include "replay/plan.h"
#include "replay/program_order.h"
#include "replay/refill.h"
#include "replay/touches.h"

namespace tlbscope::replay {

// Blocks [begin, end) of a batch in which no entry is removed from outside, and what they touched.
struct Segment {
    CpuId cpu;
    SpaceId space;     // that runs, as addrspace::Spaces names it
    SpaceId recorded;  // the same as the recording names it
    const recording::Dictionary* dictionary = nullptr;
    const recording::Batch* batch = nullptr;  // none at granularity page
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
    std::uint32_t accesses_end = 0;       // the first access of the batch that is not the segment's
    std::uint64_t executions_before = 0;  // of all CPUs, before the batch
    std::uint64_t kernel_base = 0;
    const Touches* touches = nullptr;
    const std::vector<Touch>* in_order = nullptr;  // for machines that need it
};

// A pinned page in one array.
struct PinState {
    const addrspace::MappingRule* rule = nullptr;
    std::uint32_t array = 0;
    std::uint64_t key = 0;
    VirtAddr start;
    enum class Life : std::uint8_t { kAlive, kRefused, kKilled } life = Life::kAlive;
    std::string killed_by;
    std::uint64_t killed_at = 0;  // block executions of all CPUs before
    std::uint64_t misses_after = 0;
};

// What one array of one CPU saw.
struct ArrayTotals {
    std::array<std::uint64_t, 2>
        lookups{};  // by kind; of first-level arrays in split machines the engine knows
    std::array<std::uint64_t, 2> misses{};
    std::array<std::uint64_t, 2> walks{};  // misses that no later level could answer
    std::uint64_t presented = 0;           // keys it was given; the other lookups repeat the one before
    std::uint64_t loads = 0;               // written without a miss
    std::uint64_t nested = 0;              // lookups that a handler's own loads made
    std::uint64_t nested_misses = 0;       // of these
};

class Mmu {
  public:
    // `plan` must outlive it.
    Mmu(const Plan& plan, CpuId cpu, Observer* observer);

    void look_up(const Segment& segment);

    // The CPU is about to run `to.space`; the arrays in `to` are filled in here.
    void switch_space(SpaceSwitch to, std::uint64_t execution);
    // `touched_key` is the key of the touched page at the event's address.
    void apply(const TlbEvent& event, std::uint64_t touched_key, SpaceId recorded);

    [[nodiscard]] const Counts& misses() const { return misses_; }
    [[nodiscard]] const std::vector<ArrayTotals>& arrays() const { return totals_; }
    [[nodiscard]] const machine::Tlb& tlb(std::size_t array) const { return *tlbs_[array]; }
    [[nodiscard]] const std::vector<PinState>& pins() const { return pins_; }
    // By rule of the mapping: whether it decided about any page that was looked up.
    [[nodiscard]] const std::vector<bool>& used_rules() const { return used_rules_; }
    // Nothing where the cost of a miss is fixed.
    [[nodiscard]] const Refill* derived() const { return refill_.get(); }
    [[nodiscard]] std::uint64_t pages_missed() const { return pages_missed_; }
    [[nodiscard]] const std::array<Cycles, 2>& refill_cycles() const { return refill_cycles_; }  // by kind
    // What hits in later levels added.
    [[nodiscard]] const std::array<Cycles, 2>& hit_cycles() const { return hit_cycles_; }

  private:
    // Keys that one array is given, with the touches they come from.
    struct Lane {
        std::vector<std::uint64_t> keys;
        std::vector<std::uint32_t> from;  // indexes into pending_ as the level found it
        std::vector<std::uint32_t> missed;
        std::vector<std::uint64_t> touched;
        std::vector<std::uint32_t> ordinals;
        std::vector<std::uint16_t> instructions;
        std::vector<Kind> kinds;
        std::vector<std::uint32_t> ids;
        void add(std::uint64_t key, const Touch& touch, std::uint32_t id, bool miss);
        void clear();
    };
    // How a touched page is mapped, by kind.
    struct Remembered {
        std::uint64_t key = machine::kNoKey;
        const addrspace::MappingRule* pin = nullptr;
        std::array<const machine::Routes::Route*, 2> pinned{};  // while the pin holds
        std::array<const machine::Routes::Route*, 2> routes{};
        PageShift page;  // without pins
    };

    void simple(const Segment& segment);
    void split(const Segment& segment);
    void ordered(const Segment& segment);
    void one_by_one(const Segment& segment);
    void merge_missed(const Segment& segment);
    void place(const Segment& segment, Touch& touch, std::uint32_t& block) const;
    void later_levels(const Segment& segment, std::uint32_t level);
    void refill(const Segment& segment);
    void refill(const Segment& segment, const Touch& touch, std::uint32_t id);
    [[nodiscard]] PageShift page_of(std::uint64_t touched_key, SpaceId recorded);
    void load_entry(const Segment& segment, const Touch& touch, PageShift page);
    void lose(std::uint32_t array, std::uint64_t key);
    void count(std::uint32_t array, Kind kind, std::uint64_t lookups, bool missed);

    [[nodiscard]] Lookups lookups_of(const Segment& segment) const;
    void tell(const Segment& segment);
    void tell_list(const Segment& segment, Kind kind, const TouchList& list,
                   std::span<const std::uint64_t> keys, std::span<const std::uint32_t> missed,
                   std::span<const std::uint32_t> walked) const;

    [[nodiscard]] VirtAddr address_of(std::uint64_t touched_key) const;
    [[nodiscard]] std::uint64_t rekey(std::uint64_t touched_key, std::uint8_t size) const;
    const Remembered& mapped(std::uint64_t touched_key, SpaceId recorded);
    // Which array is asked for the page at this level, and with which key.
    std::optional<machine::Routes::Stop> stop(Kind kind, std::uint64_t touched_key, std::uint32_t level,
                                              SpaceId recorded, std::uint64_t& key);
    bool pinned(const addrspace::MappingRule& rule, std::uint32_t array, std::uint64_t key);
    void place_pins(std::uint64_t touched_key, SpaceId recorded);
    void check_pins(const std::string& event, std::uint64_t execution);
    [[nodiscard]] bool overlaps(std::uint64_t key, VirtAddr start, PageShift size) const;
    [[nodiscard]] std::vector<const machine::Tlb*> tlbs() const;
    void remove(const std::function<bool(std::uint64_t, bool)>& doomed,
                std::optional<std::uint32_t> array = {});
    void load(const TlbEvent& event, std::uint64_t touched_key, SpaceId recorded);

    const Plan* plan_;
    Observer* observer_;
    CpuId cpu_;
    bool plain_ = false;  // the plan's simple()
    bool same_keys_ = false;
    bool in_order_ = false;
    bool one_by_one_ = false;
    std::unique_ptr<Refill> refill_;                   // where costs are derived
    std::vector<std::unique_ptr<machine::Tlb>> tlbs_;  // by array of the machine
    std::array<std::uint32_t, 2> first_{};             // split machines: the array of each kind
    std::vector<ArrayTotals> totals_;
    std::vector<PinState> pins_;
    Counts misses_;
    std::uint64_t pages_missed_ = 0;
    std::array<Cycles, 2> refill_cycles_{};
    std::array<Cycles, 2> hit_cycles_{};
    std::vector<Remembered> remembered_;
    std::vector<bool> used_rules_;

    // Working memory. A touch's id is its place in the first list of a segment that is in program order.
    std::array<std::vector<std::uint32_t>, 2> missed_;      // by kind: indexes into its list
    std::array<std::vector<std::uint32_t>, 2> missed_ids_;  // the ids of these
    std::array<std::vector<Touch>, 2> missed_touches_;
    std::array<std::vector<std::uint64_t>, 2> keys_;  // by kind, where touched keys are not entries' keys
    std::vector<Touch> pending_;                      // what the levels so far missed
    std::vector<std::uint32_t> pending_ids_;
    std::vector<Lane> lanes_;  // by array
    std::vector<std::uint8_t> flags_;
    std::vector<std::uint8_t> walked_;  // by id
    std::vector<std::uint32_t> walked_at_;
};

}  // namespace tlbscope::replay
