// Why each miss happened. docs/causes.md has the definitions and an example of each.
//
// Every array has two shadows that look up the same keys and suffer the same invalidations: a fully
// associative LRU array with as many entries, and an LRU array of the same geometry. Shadows that would equal
// each other or the array itself are left out. What was looked up before, and what an invalidation removed,
// is kept per translation and asked only at misses: a translation that was never looked up, or was removed,
// cannot hit.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "explain/flat_map.h"
#include "machine/machine.h"
#include "machine/tlb.h"
#include "recording/recording.h"
#include "replay/cause.h"
#include "replay/observer.h"
#include "replay/replay.h"

namespace tlbscope::explain {

using replay::Cause;
using replay::CauseCounts;

inline constexpr std::uint32_t kKernelSpace = ~std::uint32_t{0};

// A page of a space, in the size of its entry. Kernel-side pages belong to kKernelSpace whoever runs.
struct Translation {
    std::uint64_t page = 0;
    std::uint32_t space = 0;
    std::uint8_t size = 0;  // as machine::size_of numbers it
    [[nodiscard]] std::uint64_t hash() const {
        return page ^ std::uint64_t{space} << 40 ^ std::uint64_t{size} << 36;
    }
    friend bool operator==(const Translation&, const Translation&) = default;
};

// The causes of one array's misses.
class ArrayCauses {
  public:
    // `alone`: nothing but its own reloads and the invalidations that shadows see change the array, so a
    // shadow of its own kind would equal it. Not so behind an inclusive level, or where software loads
    // entries. `loaded`: entries get there without a miss, so that what was never missed may have been looked
    // up.
    ArrayCauses(const machine::TlbGeometry& geometry, bool alone, bool loaded);

    // `keys` were looked up, and those at the indexes `missed` missed; user-side keys are of `space`. Writes
    // the misses' causes.
    void judge(std::span<const std::uint64_t> keys, std::span<const std::uint32_t> missed, SpaceId space,
               std::vector<Cause>& causes);
    // The array, which has these contents, is about to drop the entries with `tag`, which are those of
    // `owner`, or every entry, of which those on the user's side are `owner`'s.
    void drop_tag(std::uint16_t tag, SpaceId owner, std::span<const std::uint64_t> contents);
    void flush_all(SpaceId owner, std::span<const std::uint64_t> contents);
    void remove(const std::function<bool(std::uint64_t, bool)>& doomed,
                const std::unordered_map<std::uint16_t, SpaceId>& owners,
                std::span<const std::uint64_t> contents);

  private:
    struct History {
        bool looked_up = false;
        bool removed = false;  // by an invalidation, since its last use
    };
    // Whether a shadow missed at each of `missed`, in order.
    class Shadow {
      public:
        void make(const machine::TlbGeometry& geometry) { tlb_ = machine::make_tlb(geometry, 0); }
        [[nodiscard]] bool exists() const { return tlb_ != nullptr; }
        void look_up(std::span<const std::uint64_t> keys);
        [[nodiscard]] bool missed_at(std::uint32_t index);
        void drop_tag(std::uint16_t tag) {
            if (tlb_) tlb_->drop_tag(tag);
        }
        void flush_all() {
            if (tlb_) tlb_->flush_all();
        }
        void drop_if(const std::function<bool(std::uint64_t, bool)>& doomed) {
            if (tlb_) tlb_->drop_if(doomed);
        }

      private:
        std::unique_ptr<machine::Tlb> tlb_;
        std::vector<std::uint32_t> missed_;
        std::size_t count_ = 0;
        std::size_t next_ = 0;
    };

    machine::TlbGeometry geometry_;
    bool lru_;  // the array is an LRU array and nothing else
    bool loaded_;
    Shadow capacity_;  // fully associative LRU; none when the array is that itself
    Shadow conflict_;  // LRU of the same geometry; none when it would equal the array or the other shadow
    FlatMap<Translation, History> history_;
};

// The causes of one machine's misses, whatever the number of CPUs.
class MachineCauses {
  public:
    // `loads`: software loads entries without a miss (TlbEvent::What::kLoad).
    explicit MachineCauses(machine::Machine machine, bool loads = false);
    // Writes the causes of the misses at lookups.walked, which are those that count; the others are judged
    // too, as each array has a history of its own.
    void looked_up(const replay::Lookups& lookups, std::vector<Cause>& causes);
    void switching(const replay::SpaceSwitch& to);
    void removing(const replay::Removal& removal);
    [[nodiscard]] const std::array<CauseCounts, 2>& counts() const { return counts_; }

  private:
    struct Cpu {
        std::vector<std::unique_ptr<ArrayCauses>> arrays;   // of the machine
        std::unordered_map<std::uint16_t, SpaceId> owners;  // of the tags
    };
    Cpu& cpu(CpuId id);

    machine::Machine machine_;
    bool loaded_;
    bool alone_;
    std::map<std::uint32_t, Cpu> cpus_;
    std::array<CauseCounts, 2> counts_{};
    std::vector<Cause> judged_;
};

// A replay whose ledgers tell the causes of their misses.
[[nodiscard]] Result<std::vector<replay::Ledger>> replay_with_causes(
    const recording::Recording& recording, const std::vector<machine::Machine>& machines,
    const replay::Options& options);

}  // namespace tlbscope::explain
