// An address space as the flush code's callers see it: which ranges are mapped, which pages of them have a
// valid entry, which tables exist to hold the entries.
//
// Where the input reports page faults, a page has an entry from its fault on. Where it does not (strace),
// every page of an accessible range counts as touched; ranges above kMostTouched are reservations, of which
// the first page counts.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/types.h"
#include "flush/gather.h"

namespace tlbscope::flush {

// Page and table sizes of the machine that ran the log. A table of level 0 holds the entries of pages.
struct Geometry {
    std::uint8_t page_shift = 12;
    std::uint8_t table_shift[3] = {21, 30, 39};  // bytes that a table of level 0, 1, 2 maps
    [[nodiscard]] std::uint64_t page_bytes() const { return std::uint64_t{1} << page_shift; }
    // For a page size of 4K, 16K or 64K. Radix has 2M per table with 64K pages too (FACTS: 13/9/9/5), arm64's
    // 16K format 32M.
    static Geometry of(PageShift page);
};

inline constexpr std::uint64_t kMostTouched = std::uint64_t{1} << 30;

// Which anonymous pages several spaces share after a fork: a count of the entries that point at each.
class Frames {
  public:
    std::uint32_t allocate();  // never 0
    void share(std::uint32_t frame) { ++counts_[frame]; }
    void drop(std::uint32_t frame);
    [[nodiscard]] std::uint32_t count(std::uint32_t frame) const { return counts_[frame]; }

  private:
    std::vector<std::uint32_t> counts_ = {0};
    std::vector<std::uint32_t> free_;
};

class Space {
  public:
    // `faults`: entries appear by fault().
    Space(const Geometry& geometry, Frames& frames, bool faults)
        : geometry_(geometry), frames_(&frames), faults_(faults) {}
    ~Space();
    Space(const Space&) = delete;
    Space& operator=(const Space&) = delete;

    void map(std::uint64_t start, std::uint64_t end, std::uint8_t protection, bool file);
    // Removes ranges, entries and tables, into the gather.
    void unmap(std::uint64_t start, std::uint64_t end, Gather& gather);
    // Removes the entries of a range that stays mapped.
    void discard(std::uint64_t start, std::uint64_t end, Gather& gather);
    // Entries that lose a right go into the gather; gives whether the range had any entry.
    bool protect(std::uint64_t start, std::uint64_t end, std::uint8_t protection, Gather& gather);
    // Moves ranges and entries without freeing any; calls moved(start, end) for the old place of the entries,
    // once per table. What is at the new place must have been unmapped.
    void move(std::uint64_t old_start, std::uint64_t old_end, std::uint64_t start, std::uint64_t end,
              const std::function<void(std::uint64_t, std::uint64_t)>& moved);
    // Everything goes.
    void clear(Gather& gather);

    enum class Fault : std::uint8_t { kInstalled, kRelaxed, kCopied, kSpurious };
    Fault fault(std::uint64_t address, bool write);

    // A child's copy: private pages are shared and lose the right to be written in both.
    [[nodiscard]] std::unique_ptr<Space> fork();

    // Whether everything mapped is known: not for a process that was there before the log began.
    bool complete = false;
    [[nodiscard]] std::uint64_t pages() const { return pages_; }  // with an entry
    [[nodiscard]] std::uint64_t heap_end() const { return heap_end_; }
    void set_heap_end(std::uint64_t end) { heap_end_ = end; }

    // An entry: kValid, kWritable, and the frame when the page is the process's own, 0 for a page of a file
    // or the page of zeros.
    using Entry = std::uint32_t;
    struct Table {
        std::vector<Entry> entries;
        std::uint32_t valid = 0;
    };

  private:
    struct Range {
        std::uint64_t end = 0;
        std::uint8_t protection = 0;
        bool file = false;
        bool copied = false;  // has pages of its own (the kernel's anon_vma)
    };
    // An entry: kValid, kWritable, and the frame when the page is the process's own, 0 for a page of a file
    // or the page of zeros.
    static constexpr Entry kValid = Entry{1} << 31;
    static constexpr Entry kWritable = Entry{1} << 30;
    static constexpr Entry kFrame = kWritable - 1;
    [[nodiscard]] bool any_range(std::uint64_t start, std::uint64_t end) const;
    [[nodiscard]] bool any_entry(std::uint64_t start, std::uint64_t end) const;
    void split(std::uint64_t at);
    void erase_ranges(std::uint64_t start, std::uint64_t end);
    Table& table_of(std::uint64_t address);
    void remove_entries(std::uint64_t start, std::uint64_t end, Gather& gather);
    void remove_tables(std::uint64_t start, std::uint64_t end, std::uint64_t floor, std::uint64_t ceiling,
                       Gather& gather);
    // The part of a range that counts as touched when there are no faults.
    [[nodiscard]] std::uint64_t touched_end(std::uint64_t start, const Range& range) const;
    [[nodiscard]] std::uint64_t index_in_table(std::uint64_t address) const {
        return (address & ((std::uint64_t{1} << geometry_.table_shift[0]) - 1)) >> geometry_.page_shift;
    }

    Geometry geometry_;
    Frames* frames_;
    bool faults_;
    std::map<std::uint64_t, Range> ranges_;
    std::map<std::uint64_t, Table> tables_;  // by address >> table_shift[0]
    std::set<std::uint64_t> upper_[2];       // tables of levels 1 and 2, by address >> table_shift
    std::uint64_t pages_ = 0;
    std::uint64_t heap_end_ = 0;
};

}  // namespace tlbscope::flush
