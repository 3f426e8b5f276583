// Which function an address lies in.
//
// A name counts only where its symbol reaches: to its size, or for a symbol without one up to the next symbol
// of the same section and never beyond the section. Symbols may overlap (aliases, labels within assembly
// code), so the table is flattened once into ranges that do not; a look-up is a binary search.
//
// Among symbols of one address the best name is the one
//   1. that has a size, the larger one first (a label without a size within a function never hides it),
//   2. that is a function's, then one that no linker script made up to mark a boundary,
//   3. that is global rather than weak rather than local,
//   4. with the fewest leading underscores, then the shortest, then the first by alphabet.
// Where a smaller symbol lies within a larger one, the one that starts last counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tlbscope::explain {

enum class Binding : std::uint8_t { kGlobal, kWeak, kLocal };

struct Symbol {
    std::uint64_t start = 0;
    std::uint64_t size = 0;   // 0: not known
    std::uint64_t limit = 0;  // end of its section
    std::string name;
    Binding binding = Binding::kGlobal;
    bool function = true;  // the symbol says that it is one
};

class SymbolTable {
  public:
    SymbolTable() = default;
    explicit SymbolTable(std::vector<Symbol> symbols);

    // Index of the name of the symbol that `address` lies in.
    [[nodiscard]] std::optional<std::uint32_t> find(std::uint64_t address) const;
    // Distinct names; two functions of one name share it.
    [[nodiscard]] const std::vector<std::string>& names() const { return names_; }
    [[nodiscard]] bool empty() const { return ranges_.empty(); }

    // Calls visit(start, end, name index) for every range in order of address.
    template <class Visit>
    void for_each(Visit visit) const {
        for (const Range& range : ranges_) visit(range.start, range.end, range.name);
    }

  private:
    struct Range {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        std::uint32_t name = 0;
    };
    std::vector<Range> ranges_;  // by start, without overlap
    std::vector<std::string> names_;
};

// Names that mark places for tools rather than functions: ARM's and RISC-V's mapping symbols ($x, $d), the
// assembler's own labels (.L...).
[[nodiscard]] bool is_tool_label(std::string_view name);

}  // namespace tlbscope::explain
