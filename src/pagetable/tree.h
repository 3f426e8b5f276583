// A page table that lives: it maps, unmaps and protects pages of every size its format has, in tables that
// lie in the caller's frames exactly as the hardware would read them.
//
//     Arena frames(PhysAddr(0x100000), 16 << 20);
//     Unmetered meter;
//     TableCache cache(kX86, frames, {.policy = CachePolicy::kLinux24}, &meter);
//     auto tree = Tree::create(kX86, cache, meter);
//     tree->map(VirtAddr(0x400000), PhysAddr(0x1234000), PageShift(12), kRead | kUser);
//     tree->unmap(VirtAddr(0x400000), 4096);
//     tree->free_range(0x400000, 0x401000, 0, 0);   // or tree->scan({}) at the end
//     tree->release();
//
// The tree keeps nothing beside the tables: no counts of entries, no shadow. What an operation costs is
// therefore what it reads and writes, which a Meter (pagetable/table_cache.h) sees; Unmetered costs nothing.
//
// When tables are given up is the caller's choice, since that is what the tables account compares: unmap()
// leaves tables in place; free_range() gives up those that no neighbour needs, and scan() all of them. map()
// replaces an empty table that stands where a larger page goes.
//
// Tables may be shared by two trees (a fork that copies lazily): SharedTables counts who uses them, and
// whoever changes one gets its own copy first.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/types.h"
#include "pagetable/format.h"
#include "pagetable/frames.h"
#include "pagetable/table_cache.h"
#include "pagetable/walk.h"

namespace tlbscope::pagetable {

enum class Status : std::uint8_t {
    kDone,
    kNoSuchSize,  // the format has no pages of this size
    kMisaligned,  // an address or a length is no multiple of the page size
    kOutside,   // beyond the format's virtual or physical addresses, or across the hole between their halves
    kOccupied,  // something is mapped there
    kMixed,  // pages of another kind of table are mapped near, and one upper entry leads to both (8xx 512K);
             // also said when such a page is in the way itself
    kStraddles,  // a larger page lies across the range's edge
    kNoFrame,    // the allocator has no memory left
};
[[nodiscard]] constexpr std::string_view name_of(Status status) {
    constexpr std::string_view kNames[] = {"done",
                                           "no such page size",
                                           "misaligned",
                                           "outside the space",
                                           "occupied",
                                           "pages of another size near",
                                           "a page straddles the range",
                                           "no frame left"};
    return kNames[static_cast<std::size_t>(status)];
}

// How many trees use a table, for those used by more than one.
class SharedTables {
  public:
    [[nodiscard]] bool empty() const { return extra_.empty(); }
    [[nodiscard]] bool shared(PhysAddr table) const {
        return !extra_.empty() && extra_.contains(table.value());
    }
    void add(PhysAddr table) { ++extra_[table.value()]; }
    // One user less; the table must be shared.
    void drop(PhysAddr table) {
        const auto at = extra_.find(table.value());
        assert(at != extra_.end());
        if (--at->second == 0) extra_.erase(at);
    }

  private:
    std::unordered_map<std::uint64_t, std::uint32_t> extra_;  // users beyond the first
};

// How scan() looks for tables to give up.
struct Scan {
    bool only_32_bit = false;  // entries for addresses from 4 GiB up are known to be none
    bool pairs = false;        // read two entries with one load
};

template <class Meter = Unmetered>
class BasicTree {
  public:
    using Cache = BasicTableCache<Meter>;

    // An empty tree; nothing when there is no frame for its root. Format, cache and meter must outlive it,
    // and so must `shared` when trees share tables.
    static std::optional<BasicTree> create(const Format& format, Cache& cache, Meter& meter,
                                           SharedTables* shared = nullptr) {
        const std::optional<PhysAddr> root = cache.take(0);
        if (!root) return {};
        return BasicTree(format, cache, meter, shared, *root);
    }
    BasicTree(BasicTree&& other) noexcept
        : format_(other.format_),
          cache_(other.cache_),
          meter_(other.meter_),
          shared_(other.shared_),
          root_(std::exchange(other.root_, PhysAddr(0))),
          path_(other.path_),
          lowest_(other.lowest_) {}
    BasicTree& operator=(BasicTree&&) = delete;
    BasicTree(const BasicTree&) = delete;
    BasicTree& operator=(const BasicTree&) = delete;
    ~BasicTree() { assert(root_.value() == 0 && "release() the tree before it goes"); }

    [[nodiscard]] const Format& format() const { return *format_; }
    [[nodiscard]] PhysAddr root() const { return root_; }

    // Maps one page. Nothing may be mapped in its range; whatever fails leaves all pages as they were.
    Status map(VirtAddr address, PhysAddr page, PageShift shift, Flags flags);
    // Unmaps every page in [start, start + bytes), which may have holes. `removed` counts pages. `dying`: the
    // whole space goes, so a table shared with another tree is let go without a look at it.
    Status unmap(VirtAddr start, std::uint64_t bytes, std::uint64_t* removed = nullptr, bool dying = false);
    // Gives every page in the range these flags; accessed and dirty stay as they are.
    Status protect(VirtAddr start, std::uint64_t bytes, Flags flags, std::uint64_t* changed = nullptr);
    // What the hardware would find; unmetered.
    [[nodiscard]] Walk lookup(VirtAddr address) const;
    // The physical addresses of the entries that a walk of `address` reads; unmetered.
    std::size_t entry_addresses(VirtAddr address, std::array<PhysAddr, kMostSteps>& into) const;
    // Calls visit(VirtAddr page, const Entry& entry) for every page in the range, ascending.
    template <class Visit>
    void each_page(VirtAddr start, std::uint64_t bytes, Visit&& visit);
    // Maps every page of [start, start + bytes) into `child` as well, with write permission taken from both
    // trees when `protect`. With SharedTables, lowest tables are shared whole instead of copied. Nothing is
    // mapped there in the child yet; what fails midway leaves a part copied.
    Status copy_range(BasicTree& child, VirtAddr start, std::uint64_t bytes, bool protect);

    // Gives up the tables of [start, end) that hold nothing but unmapped entries, by the rules of Linux's
    // free_pgd_range(): the range itself is unmapped already, the neighbours below and above end at `floor`
    // and begin at `ceiling`, and a table goes when nothing from floor to ceiling can need it. 0 is the
    // bottom for floor and the top for end and ceiling.
    void free_range(std::uint64_t start, std::uint64_t end, std::uint64_t floor, std::uint64_t ceiling);
    // Gives up every table below the root by reading every entry of every upper table. All pages are
    // unmapped.
    void scan(const Scan& how);
    // Gives up the root; all other tables are gone already.
    void release() { cache_->give(std::exchange(root_, PhysAddr(0)), 0); }

    // Whether the tree has no table but its root; reads the root, unmetered.
    [[nodiscard]] bool bare() const;

  private:
    // A place in a table.
    struct Slot {
        unsigned level = 0;
        PhysAddr table;
        std::size_t index = 0;
    };

    BasicTree(const Format& format, Cache& cache, Meter& meter, SharedTables* shared, PhysAddr root)
        : format_(&format), cache_(&cache), meter_(&meter), shared_(shared), root_(root) {
        for (std::size_t level = 0; level < format.levels.size(); ++level) {
            std::size_t length = 0;
            std::array<std::uint8_t, kMostSteps> reversed{};
            for (std::size_t at = level;; at = format.levels[at].parent) {
                reversed[length++] = static_cast<std::uint8_t>(at);
                if (at == 0) break;
            }
            for (std::size_t step = 0; step < length; ++step)
                path_[level][step] = reversed[length - 1 - step];
            lowest_[level] = true;
        }
        for (const Level& level : format.levels.subspan(1)) lowest_[level.parent] = false;
    }

    [[nodiscard]] const Level& shape(unsigned level) const { return format_->levels[level]; }
    [[nodiscard]] std::byte* bytes_at(const Slot& slot) const {
        return cache_->frames().at(slot.table) + slot.index * shape(slot.level).entry_bytes;
    }
    [[nodiscard]] PhysAddr address_of(const Slot& slot) const {
        return PhysAddr(slot.table.value() + slot.index * shape(slot.level).entry_bytes);
    }
    [[nodiscard]] std::uint64_t peek(const Slot& slot) const {
        return load_entry(bytes_at(slot), shape(slot.level).entry_bytes, format_->big_endian);
    }
    std::uint64_t load(const Slot& slot) {
        meter_->load(address_of(slot), shape(slot.level).entry_bytes, 1);
        return peek(slot);
    }
    // `was` is what stands there, as the caller has just read it.
    void store(const Slot& slot, std::uint64_t raw, std::uint64_t was) {
        meter_->store(address_of(slot), shape(slot.level).entry_bytes, was == 0, raw == 0);
        store_entry(bytes_at(slot), shape(slot.level).entry_bytes, format_->big_endian, raw);
    }
    // Entries of `level` that point to the same table of level `next`, as a power of two: 8xx 8M takes two.
    [[nodiscard]] unsigned cell_shift(unsigned level, unsigned next) const {
        const unsigned span = shape(next).span_shift();
        return span > shape(level).shift ? span : shape(level).shift;
    }
    // Writes an upper entry into its whole cell.
    void store_cell(const Slot& slot, unsigned cell, std::uint64_t raw, std::uint64_t was) {
        const std::size_t count = std::size_t{1} << (cell - shape(slot.level).shift);
        const std::size_t first = slot.index & ~(count - 1);
        for (std::size_t n = 0; n < count; ++n) store({slot.level, slot.table, first + n}, raw, was);
    }
    void give_up(PhysAddr table, unsigned level) {
        if (shared_ != nullptr && shared_->shared(table))
            shared_->drop(table);
        else
            cache_->give(table, level);
    }

    [[nodiscard]] bool table_empty(PhysAddr table, unsigned level) const;
    [[nodiscard]] bool subtree_empty(PhysAddr table, unsigned level) const;
    void give_up_subtree(PhysAddr table, unsigned level);
    Status check_range(VirtAddr start, std::uint64_t bytes) const;
    [[nodiscard]] bool straddles(std::uint64_t address, std::uint64_t start, std::uint64_t last) const;
    bool own_table(const Slot& upper, Entry& entry, std::uint64_t raw);
    template <class Visit>
    bool each_slot(unsigned level, PhysAddr table, std::uint64_t start, std::uint64_t last, bool change,
                   bool dying, Visit&& visit);
    Status copy_table(BasicTree& child, unsigned level, PhysAddr table, PhysAddr child_table,
                      std::uint64_t start, std::uint64_t last, bool protect);
    std::uint64_t take_write(const Slot& slot, const Entry& page, std::uint64_t raw);
    void free_tables(unsigned level, PhysAddr table, std::uint64_t start, std::uint64_t end,
                     std::uint64_t floor, std::uint64_t ceiling);
    void scan_table(unsigned level, PhysAddr table, std::size_t entries, const Scan& how);
    void scan_slot(const Slot& slot, std::uint64_t raw, const Scan& how);

    const Format* format_;
    Cache* cache_;
    Meter* meter_;
    SharedTables* shared_;
    PhysAddr root_;
    std::array<std::array<std::uint8_t, kMostSteps>, 6> path_{};  // by level: the levels from the root to it
    std::array<bool, 6> lowest_{};                                // no other level hangs below it
};

using TableCache = BasicTableCache<>;
using Tree = BasicTree<>;

}  // namespace tlbscope::pagetable

#include "pagetable/teardown_impl.h"
#include "pagetable/tree_impl.h"
