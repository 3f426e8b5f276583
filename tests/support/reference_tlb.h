// The gold standard: a TLB as one would explain it at a blackboard, one rule per function, plain containers,
// no cleverness. The fast arrays and the engine must agree with it exactly. It shares no code with them
// except the generator that random replacement is defined by.
#pragma once

#include <cstdint>
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
    std::uint64_t page = 0;
    friend bool operator==(const Translation&, const Translation&) = default;
};

class Tlb {
  public:
    Tlb(const machine::TlbGeometry& geometry, std::uint64_t stream);

    // True when it hits. A miss loads the translation.
    bool look_up(const Translation& wanted);
    [[nodiscard]] bool holds(const Translation& wanted) const;
    void drop_space(std::uint32_t space);
    void flush_all();

  private:
    struct Entry {
        Translation translation;
        std::uint64_t last_used = 0;
    };
    using Set = std::vector<std::optional<Entry>>;

    Set& set_of(const Translation& wanted);
    std::size_t victim(Set& set, std::size_t set_number);
    std::size_t fifo_victim(std::size_t set_number);
    static std::size_t lru_victim(const Set& set, std::size_t usable);

    machine::TlbGeometry geometry_;
    std::vector<Set> sets_;
    std::vector<std::size_t> fifo_index_;
    machine::Random random_;
    std::uint64_t time_ = 0;
};

}  // namespace tlbscope::reference
