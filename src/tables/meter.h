// What page-table work costs, counted access by access.
//
// A line is touched once in an operation (one fork, one exit ...), however often it is read. The data cache
// decides what has to be fetched: before an operation it is full of the program's own lines, since the
// program ran; a fetch that replaces one of those evicts it, which the program will pay for later. That is
// thread 2's "BLOWS up all the D-cache", in lines.
//
// Beside the counting, each meter knows how many entries of each table are not none. A table that is given up
// while one is left is a mistake of a strategy, reported always, in release builds and timed runs too.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/types.h"
#include "pagetable/arena.h"

namespace tlbscope::tables {

// A data cache as far as tables need one.
struct DataCache {
    std::uint32_t bytes = 0;
    std::uint32_t ways = 1;
    std::uint32_t line = 32;
    bool write_allocate = false;
    std::string source;
};

struct Costs {
    std::uint64_t entry = 0;     // cycles to look at an entry that is in the cache: load, test, branch
    std::uint64_t fetch = 0;     // to fetch a line
    std::uint64_t store = 0;     // to write an entry or a link
    std::uint64_t clear = 0;     // to clear a line of a new table
    std::uint64_t allocate = 0;  // to get a table's memory from the allocator, and as much to give it back
    std::uint64_t cached = 0;    // to take a table from a list or put it there, its link's accesses aside
    std::string source;
};

struct Accesses {
    std::uint64_t entries_read = 0;
    std::uint64_t loads = 0;  // instructions that read them: fewer when entries are read in pairs
    std::uint64_t entries_written = 0;
    std::uint64_t lines_touched = 0;
    std::uint64_t lines_fetched = 0;
    std::uint64_t lines_fetched_again = 0;  // of these, in the same operation not for the first time
    std::uint64_t lines_evicted = 0;        // the program's
    std::uint64_t lines_cleared = 0;
    Accesses& operator+=(const Accesses& other);
    friend Accesses operator-(const Accesses& a, const Accesses& b);
    friend bool operator==(const Accesses&, const Accesses&) = default;
};

// The check alone: what timed runs use.
class LiveMeter {
  public:
    explicit LiveMeter(const pagetable::Arena& arena, PhysAddr base, std::uint64_t bytes);
    void load(PhysAddr, unsigned, unsigned) {}
    void store(PhysAddr at, unsigned, bool was_none, bool is_none) {
        if (was_none == is_none) return;
        live_[table_of(at)] += is_none ? -1 : 1;
    }
    void clear(PhysAddr, std::size_t) {}
    void link(PhysAddr, bool) {}
    void took(PhysAddr table, std::size_t bytes);
    void gave(PhysAddr table, std::size_t bytes);

    // Why a strategy is wrong; empty while it is not.
    [[nodiscard]] const std::string& mistake() const { return mistake_; }
    [[nodiscard]] std::uint64_t tables() const { return tables_; }
    [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

  private:
    static constexpr unsigned kUnit = 8;  // the arena's smallest block
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    [[nodiscard]] std::size_t table_of(PhysAddr at) const {
        const std::uint64_t unit = (at.value() - base_) >> kUnit;
        return static_cast<std::size_t>(unit & ~((std::uint64_t{1} << size_[unit]) - 1));
    }
    std::uint64_t base_;
    // Zero pages until used: an arena is mostly empty.
    std::unique_ptr<std::int32_t[], Free> live_;  // by unit: entries that are not none, at a table's first
    std::unique_ptr<std::uint8_t[], Free> size_;  // by unit: log2 of the units of the table it belongs to
    std::unique_ptr<std::uint8_t[], Free> in_use_;
    std::string mistake_;
    std::uint64_t tables_ = 0;
    std::uint64_t bytes_ = 0;
};

// Everything.
class Meter : public LiveMeter {
  public:
    Meter(const pagetable::Arena& arena, PhysAddr base, std::uint64_t bytes, const DataCache& cache);
    // A new operation: the program has run since the last one.
    void begin() {
        ++epoch_;
        clock_ = 0;
    }
    void load(PhysAddr at, unsigned bytes, unsigned entries) {
        counts_.entries_read += entries;
        ++counts_.loads;
        touch(at, bytes, false);
    }
    void store(PhysAddr at, unsigned bytes, bool was_none, bool is_none) {
        ++counts_.entries_written;
        touch(at, bytes, true);
        LiveMeter::store(at, bytes, was_none, is_none);
    }
    void clear(PhysAddr table, std::size_t bytes);
    void link(PhysAddr table, bool written) {
        ++links_;
        touch(table, 8, written);
    }
    [[nodiscard]] const Accesses& counts() const { return counts_; }
    [[nodiscard]] std::uint64_t links() const { return links_; }

  private:
    struct Way {
        std::uint64_t line = 0;
        std::uint32_t epoch = 0;  // another one than now: the program's line
        std::uint32_t used = 0;   // clock of the last use
    };
    void touch(PhysAddr at, unsigned bytes, bool store);

    std::uint64_t line_shift_;
    std::uint64_t sets_;
    std::uint32_t ways_count_;
    bool write_allocate_;
    std::uint64_t first_line_;
    std::vector<Way> ways_;
    std::unique_ptr<std::uint32_t[], void (*)(void*)> touched_;  // by line: the epoch that touched it last
    std::unique_ptr<std::uint32_t[], void (*)(void*)> fetched_;  // and fetched it
    std::uint32_t epoch_ = 1;
    std::uint32_t clock_ = 0;
    std::uint64_t links_ = 0;
    Accesses counts_;
};

}  // namespace tlbscope::tables
