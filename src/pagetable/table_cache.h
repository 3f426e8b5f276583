// Caches of freed tables. A page table is freed when every entry in it is none, and that is just what a new
// table must be: keep the freed ones and neither the allocator nor the clearing is needed (David Miller's
// trick in thread 2). A list per CPU needs no lock; its link stands in the table's first word, which taking
// the table clears again.
//
// Policies, as kernels had them:
//   none       every table comes from the allocator, is cleared, and goes back there
//   linux22    two lists per CPU, one of root tables and one of all others of a size (sparc64's pmd shares
//   the pte's
//              list); they only grow
//   linux24    a list for each level and CPU; when a CPU holds more than `high` tables, trim() frees from
//   each in turn
//              until it holds `low` (pgt_cache_water, 25 and 50)
//   quicklist  the lists of include/linux/quicklist.h (2007), one for each size here; trim() frees at most
//   `most_trimmed`
//              of what exceeds the larger of `low` and a 16th of the free frames [values R]. Tables of other
//              memory nodes would go back to the allocator at once; this models one node.
//
// trim() is called where kernels called check_pgt_cache(): when a space has been torn down, and when a CPU is
// idle.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "pagetable/format.h"
#include "pagetable/frames.h"

namespace tlbscope::pagetable {

enum class CachePolicy : std::uint8_t { kNone, kLinux22, kLinux24, kQuicklist };

struct CacheOptions {
    CachePolicy policy = CachePolicy::kNone;
    std::uint32_t cpus = 1;
    std::uint32_t low = 25;
    std::uint32_t high = 50;
    std::uint32_t most_trimmed = 16;
    std::uint64_t free_frames =
        0;  // quicklist: what the allocator has left, in frames; the caller may change it
};

struct CacheCounts {
    std::uint64_t allocated = 0;   // tables from the allocator
    std::uint64_t zeroed = 0;      // of these, cleared: all of them
    std::uint64_t from_cache = 0;  // tables from a list
    std::uint64_t to_cache = 0;    // tables put on a list
    std::uint64_t freed = 0;       // tables given back to the allocator, trimmed ones included
    std::uint64_t trimmed = 0;     // of these, by trim() or drain()
    std::uint64_t refused = 0;     // times the allocator had nothing or did not know what it was given
    friend bool operator==(const CacheCounts&, const CacheCounts&) = default;
};

// A meter sees every access to a table's bytes as it happens; what none of its functions does costs nothing.
struct Unmetered {
    // `entries` entries were read with one load of `bytes`.
    static constexpr void load(PhysAddr, unsigned /*bytes*/, unsigned /*entries*/) {}
    // An entry was written; `none` says whether it was none before and is now.
    static constexpr void store(PhysAddr, unsigned /*bytes*/, bool /*was_none*/, bool /*is_none*/) {}
    // A whole new table was cleared.
    static constexpr void clear(PhysAddr, std::size_t /*bytes*/) {}
    // The first word of a cached table was read or written as a link.
    static constexpr void link(PhysAddr, bool /*written*/) {}
    // A tree has got a table or given one up.
    static constexpr void took(PhysAddr, std::size_t /*bytes*/) {}
    static constexpr void gave(PhysAddr, std::size_t /*bytes*/) {}
};

template <class Meter = Unmetered>
class BasicTableCache {
  public:
    BasicTableCache(const Format& format, Frames& frames, const CacheOptions& options, Meter* meter)
        : frames_(&frames),
          meter_(meter),
          options_(options),
          lists_per_cpu_(format.levels.size()),
          heads_(options.cpus * lists_per_cpu_) {
        // Which list a level's tables are on: an index of a level.
        for (std::size_t level = 0; level < format.levels.size(); ++level) {
            bytes_.push_back(format.levels[level].table_bytes());
            std::size_t list = level;
            for (std::size_t earlier = 0; earlier < level && options.policy != CachePolicy::kLinux24;
                 ++earlier) {
                const bool both_kinds = options.policy == CachePolicy::kQuicklist || earlier != 0;
                if (bytes_[earlier] == bytes_[level] && both_kinds) {
                    list = lists_[earlier];
                    break;
                }
            }
            lists_.push_back(list);
        }
    }
    BasicTableCache(const BasicTableCache&) = delete;
    BasicTableCache& operator=(const BasicTableCache&) = delete;
    ~BasicTableCache() { drain(); }

    // The CPU that takes and gives from here on.
    void run_on(std::uint32_t cpu) { cpu_ = cpu < options_.cpus ? cpu : cpu % options_.cpus; }

    // A table of this level with every entry none; nothing when the allocator has none left. Constant time,
    // or linear in the table when it has to be cleared.
    std::optional<PhysAddr> take(unsigned level) {
        Head& head = head_of(cpu_, level);
        if (head.count != 0) {
            const PhysAddr table(head.first);
            std::byte* bytes = frames_->at(table);
            std::memcpy(&head.first, bytes, sizeof head.first);
            --head.count;
            std::memset(bytes, 0, sizeof head.first);
            meter_->link(table, false);
            meter_->link(table, true);
            assert(all_none(bytes, bytes_[level]) &&
                   "a cached table must be handed out with every entry none");
            ++counts_.from_cache;
            meter_->took(table, bytes_[level]);
            return table;
        }
        const std::optional<PhysAddr> table = frames_->allocate(bytes_[level]);
        if (!table) {
            ++counts_.refused;
            return table;
        }
        ++counts_.allocated;
        ++counts_.zeroed;
        std::memset(frames_->at(*table), 0, bytes_[level]);
        meter_->clear(*table, bytes_[level]);
        meter_->took(*table, bytes_[level]);
        return table;
    }

    // A table that a tree no longer needs, with every entry none.
    void give(PhysAddr table, unsigned level) {
        meter_->gave(table, bytes_[level]);
        if (options_.policy == CachePolicy::kNone || bytes_[level] < sizeof(std::uint64_t)) {
            free(table, level);
            return;
        }
        Head& head = head_of(cpu_, level);
        std::memcpy(frames_->at(table), &head.first, sizeof head.first);
        meter_->link(table, true);
        head.first = table.value();
        ++head.count;
        ++counts_.to_cache;
    }

    // What kernels call check_pgt_cache(), for the CPU that runs.
    void trim() {
        if (options_.policy == CachePolicy::kLinux24) {
            if (held(cpu_) <= options_.high) return;
            while (held(cpu_) > options_.low)
                for (std::size_t level = 0; level < lists_.size(); ++level)
                    if (lists_[level] == level) drop_one(cpu_, level);
        } else if (options_.policy == CachePolicy::kQuicklist) {
            const std::uint64_t keep = std::max<std::uint64_t>(options_.low, options_.free_frames / 16);
            for (std::size_t level = 0; level < lists_.size(); ++level) {
                if (lists_[level] != level) continue;
                const std::uint64_t count = head_of(cpu_, level).count;
                if (count <= options_.low || count <= keep) continue;
                for (std::uint64_t n = std::min<std::uint64_t>(count - keep, options_.most_trimmed); n != 0;
                     --n)
                    drop_one(cpu_, level);
            }
        }
    }

    // Frees every cached table of every CPU.
    void drain() {
        for (std::uint32_t cpu = 0; cpu < options_.cpus; ++cpu)
            for (std::size_t level = 0; level < lists_.size(); ++level)
                while (head_of(cpu, level).count != 0) drop_one(cpu, level);
    }

    // Tables on the lists of a CPU.
    [[nodiscard]] std::uint64_t held(std::uint32_t cpu) const {
        std::uint64_t tables = 0;
        for (std::size_t list = 0; list < lists_per_cpu_; ++list)
            tables += heads_[cpu * lists_per_cpu_ + list].count;
        return tables;
    }
    [[nodiscard]] std::uint64_t bytes_held() const {
        std::uint64_t bytes = 0;
        for (std::size_t at = 0; at < heads_.size(); ++at)
            bytes += heads_[at].count * bytes_[at % lists_per_cpu_];
        return bytes;
    }
    [[nodiscard]] const CacheCounts& counts() const { return counts_; }
    [[nodiscard]] CacheOptions& options() { return options_; }
    [[nodiscard]] Frames& frames() { return *frames_; }

  private:
    struct Head {
        std::uint64_t first = 0;  // physical address of the table put there last
        std::uint64_t count = 0;
    };
    Head& head_of(std::uint32_t cpu, std::size_t level) {
        return heads_[cpu * lists_per_cpu_ + lists_[level]];
    }

    static bool all_none(const std::byte* bytes, std::size_t size) {
        return std::all_of(bytes, bytes + size, [](std::byte b) { return b == std::byte{0}; });
    }
    void free(PhysAddr table, unsigned level) {
        ++counts_.freed;
        const bool known = frames_->release(table, bytes_[level]);
        assert(known && "a table was freed that is not allocated");
        if (!known) ++counts_.refused;
    }
    void drop_one(std::uint32_t cpu, std::size_t level) {
        Head& head = head_of(cpu, level);
        if (head.count == 0) return;
        const PhysAddr table(head.first);
        std::memcpy(&head.first, frames_->at(table), sizeof head.first);
        meter_->link(table, false);
        --head.count;
        ++counts_.trimmed;
        free(table, static_cast<unsigned>(level));
    }

    Frames* frames_;
    Meter* meter_;
    CacheOptions options_;
    std::uint32_t cpu_ = 0;
    std::size_t lists_per_cpu_;
    std::vector<std::size_t> bytes_;  // of a level's tables
    std::vector<std::size_t> lists_;  // by level: the first level that shares the list
    std::vector<Head> heads_;         // by CPU, then list
    CacheCounts counts_;
};

}  // namespace tlbscope::pagetable
