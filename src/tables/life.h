// The life of address spaces, as memory events tell it, carried out on real page tables under one strategy:
// processes and threads, their areas, their tables, on several CPUs.
//
// What the kernel does is done here in its order: unmap clears the entries of a range, then (with the range
// strategy) gives up tables between the neighbours as free_pgtables() does; exit does so for every area, or
// scans; fork copies area by area, private writable ones write-protected in both; exec leaves the space and
// starts an empty one; a fault maps one page.
//
// Events that cannot be (a fork of a process that has ended, a fault where nothing is mapped) are counted by
// reason with the position of the first, and left out.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "addrspace/areas.h"
#include "core/memory_event.h"
#include "import_text/problems.h"
#include "pagetable/arena.h"
#include "pagetable/tree.h"
#include "tables/meter.h"
#include "tables/strategy.h"

namespace tlbscope::tables {

inline constexpr std::size_t kEventKinds = 12;
// Where an arena begins: low, so that a virtual address of a table fits 32 bits (8xx of Linux 2.4).
inline constexpr PhysAddr kArenaBase{0x100000};
inline constexpr std::uint64_t kArenaBytes = std::uint64_t{512} << 20;

// Time spent on tables, teardown apart.
struct Times {
    std::uint64_t all = 0;       // nanoseconds
    std::uint64_t teardown = 0;  // of these: giving up tables at unmap, exit and exec
};

template <class SomeMeter>
class Life {
  public:
    using Tree = pagetable::BasicTree<SomeMeter>;
    using Cache = pagetable::BasicTableCache<SomeMeter>;

    Life(const pagetable::Format& format, const Strategy& strategy, std::uint32_t cpus, bool timed,
         SomeMeter& meter, pagetable::Arena& arena)
        : format_(format),
          strategy_(strategy),
          timed_(timed),
          meter_(meter),
          arena_(arena),
          cache_(format, arena, {.policy = strategy.cache, .cpus = cpus}, &meter) {}
    Life(const Life&) = delete;
    Life& operator=(const Life&) = delete;
    ~Life() { end(); }

    // A fault where nothing is known to be mapped maps its page, instead of being left out.
    void imply(bool whether) { imply_ = whether; }
    [[nodiscard]] std::uint64_t implied() const { return implied_; }

    void apply(const MemoryEvent& event);
    // Ends every process that still runs, and empties the caches.
    void end() {
        std::vector<std::uint32_t> left;
        for (const auto& [process, space] : processes_) left.push_back(process);
        for (const std::uint32_t process : left) leave(process, process, true);
        cache_.drain();
    }

    [[nodiscard]] const import::Problems& problems() const { return problems_; }
    [[nodiscard]] Cache& cache() { return cache_; }
    [[nodiscard]] std::size_t running() const { return processes_.size(); }
    [[nodiscard]] const Times& times() const { return times_; }
    [[nodiscard]] std::uint64_t most_bytes_of_a_process() const { return most_of_a_process_; }
    [[nodiscard]] std::uint64_t peak_bytes() const { return peak_; }  // of tables in use and cached
    [[nodiscard]] std::uint64_t processes_seen() const { return processes_seen_; }
    // Why the strategy is wrong: tables left over, freed twice, freed in use. Empty while it is right.
    [[nodiscard]] std::string mistake() const;
    // For tests: the pages of a process, ascending.
    template <class Visit>
    void each_page(std::uint32_t process, Visit&& visit) {
        const auto at = processes_.find(process);
        if (at != processes_.end()) at->second->tree.each_page(VirtAddr(0), format_.user_end(), visit);
    }

  private:
    struct Space {
        explicit Space(Tree its_tree) : tree(std::move(its_tree)) {}
        Tree tree;
        addrspace::Areas areas;
        std::set<std::uint32_t> members;  // threads, and vfork children until their exec
        std::set<std::uint32_t> joined;   // of these, those that a fork brought in
        std::set<std::uint32_t> ids;      // processes and threads whose events mean this space
        std::uint64_t heap = 0;
        std::uint64_t heap_end = 0;
        std::uint64_t highest = 0;  // end of the highest page ever mapped
        std::uint64_t table_bytes = 0;
    };
    class Section;  // measures the time from its making to its end

    [[nodiscard]] std::uint64_t page() const { return format_.base_page().bytes(); }
    [[nodiscard]] std::uint64_t down(std::uint64_t address) const { return address & ~(page() - 1); }
    [[nodiscard]] std::uint64_t up(std::uint64_t address) const {
        return (address + page() - 1) & ~(page() - 1);
    }

    Space* space_of(const MemoryEvent& event);
    std::shared_ptr<Space> new_space(const MemoryEvent& event);
    bool sane(const MemoryEvent& event, std::uint64_t start, std::uint64_t bytes);
    void map(Space& space, const MemoryEvent& event);
    void unmap_pieces(Space& space, const std::vector<addrspace::Area>& gone);
    void free_pieces(Space& space, const std::vector<addrspace::Area>& gone, std::uint64_t floor,
                     std::uint64_t ceiling);
    void remap(Space& space, const MemoryEvent& event);
    void change_break(Space& space, const MemoryEvent& event);
    void fault(Space& space, const MemoryEvent& event);
    void fork(const MemoryEvent& event);
    void exec(const MemoryEvent& event);
    void leave(std::uint32_t process, std::uint32_t member, bool all);
    void tear_down(Space& space);
    std::pair<std::uint64_t, std::uint64_t> whole_pages(const Space& space, std::uint64_t start,
                                                        std::uint64_t end) const;
    pagetable::Flags flags_of(std::uint8_t protection) const;
    PhysAddr next_frame();
    void note(const char* reason, const MemoryEvent& event) { problems_.add(reason, event.position); }

    const pagetable::Format& format_;
    Strategy strategy_;
    bool timed_;
    SomeMeter& meter_;
    pagetable::Arena& arena_;
    Cache cache_;
    pagetable::SharedTables shared_;
    std::unordered_map<std::uint32_t, std::shared_ptr<Space>> processes_;
    std::unordered_map<std::uint32_t, bool> ended_;
    import::Problems problems_;
    Times times_;
    bool imply_ = false;
    std::uint64_t implied_ = 0;
    std::uint64_t frames_ = 0;
    std::uint64_t peak_ = 0;
    std::uint64_t most_of_a_process_ = 0;
    std::uint64_t processes_seen_ = 0;
};

}  // namespace tlbscope::tables

#include "tables/life_impl.h"
