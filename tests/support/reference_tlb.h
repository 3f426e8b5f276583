// The gold standard: a TLB as one would explain it at a blackboard, one rule per function, plain containers,
// no cleverness. The fast arrays and the engine must agree with it exactly. It shares no code with them
// except the generator that random replacement is defined by.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "core/types.h"
#include "machine/random.h"
#include "machine/tlb.h"

namespace tlbscope::reference {

// What an entry translates.
struct Translation {
    bool kernel = false;      // the kernel's pages match every address space
    std::uint32_t space = 0;  // which identifier the entry carries; 0 for kernel pages
    std::uint64_t page = 0;   // counted in pages of the entry's size
    unsigned shift = 12;      // that size
    friend bool operator==(const Translation&, const Translation&) = default;
};

class Tlb {
  public:
    Tlb(const machine::TlbGeometry& geometry, std::uint64_t stream);

    // True when it hits. A miss loads the translation.
    bool look_up(const Translation& wanted);
    [[nodiscard]] bool holds(const Translation& wanted) const;
    [[nodiscard]] bool reserved(const Translation& wanted) const;
    // What the last reload replaced.
    [[nodiscard]] const std::optional<Translation>& lost() const { return lost_; }
    // Into the first reserved way that is empty.
    bool pin(const Translation& wanted);
    // Writes an entry that nothing missed.
    void load(const Translation& wanted);
    void drop_if(const std::function<bool(const Translation&, bool reserved)>& doomed);
    void drop_space(std::uint32_t space);
    void flush_all();

  private:
    struct Entry {
        Translation translation;
        std::uint64_t last_used = 0;
        bool recently = false;  // NRU
    };
    using Set = std::vector<std::optional<Entry>>;

    Set& set_of(const Translation& wanted);
    std::size_t victim(Set& set, std::size_t set_number);
    std::size_t fifo_victim(std::size_t set_number);
    static std::size_t lru_victim(const Set& set, std::size_t usable);
    static std::size_t nru_victim(Set& set, std::size_t usable);
    std::size_t tree_victim(const Set& set, std::size_t set_number);
    void use(std::size_t set_number, std::size_t way);
    void reload(const Translation& wanted);

    machine::TlbGeometry geometry_;
    std::vector<Set> sets_;
    std::vector<std::size_t> fifo_index_;
    // Tree-PLRU: of a set, by (first way, ways) of each group: whether its next victim is in the right half.
    std::vector<std::map<std::pair<std::size_t, std::size_t>, bool>> right_next_;
    std::optional<Translation> lost_;
    machine::Random random_;
    std::uint64_t time_ = 0;
};

}  // namespace tlbscope::reference
