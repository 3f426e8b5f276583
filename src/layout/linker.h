// The linkers that an order can be written for: what each can move, and where it then puts everything.
//
// A linker lays the pieces of an output section out one behind the other, each at the next multiple of its
// alignment. An order takes some out of their places and puts them, in its own order, at one point; what
// follows moves up or down, and with it the output sections behind, as far as nothing pads them to a page.
// These rules were taken from the link maps that the linkers write and are checked against them in the tests
// (tests/layout/linkers).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layout/image.h"

namespace tlbscope::layout {

enum class Linker : std::uint8_t {
    kLld,     // listed functions first in .text
    kGold,    // listed sections behind all others
    kSorted,  // GNU ld's default script: .text.sorted.* behind .text.hot.*
    kScript,  // lines at the start of .text in a GNU ld script, or 2.43's --section-ordering-file
    kMold,    // object files in the order given
    kApple,   // as lld
    kBolt,    // listed functions first, whatever sections they lay in
    kLinux,   // lines before TEXT_TEXT in a kernel's linker script
};
inline constexpr std::size_t kLinkers = 8;
[[nodiscard]] std::string_view name_of(Linker linker);
[[nodiscard]] std::optional<Linker> linker_named(std::string_view name);

// Whether a user names this file to the linker: no member of an archive, and none of the compiler driver's
// own.
[[nodiscard]] bool is_given_object(std::string_view object);

// What a linker moves at once: the pieces that one line of an order names. Two functions of one name, local
// to different files, are one unit.
struct Unit {
    std::string key;                    // the line: a symbol, a section or an object file
    std::vector<std::uint32_t> pieces;  // in the image's order
    std::uint64_t bytes = 0;
};

class Units {
  public:
    Units(const Image& image, Linker linker);
    [[nodiscard]] std::size_t size() const { return units_.size(); }
    [[nodiscard]] const Unit& operator[](std::uint32_t unit) const { return units_[unit]; }
    // Nothing for a piece that stays.
    [[nodiscard]] std::optional<std::uint32_t> of_piece(std::uint32_t piece) const {
        return of_piece_[piece] == 0 ? std::nullopt : std::optional(of_piece_[piece] - 1);
    }
    [[nodiscard]] std::optional<std::uint32_t> named(const std::string& key) const;

  private:
    std::vector<Unit> units_;
    std::vector<std::uint32_t> of_piece_;  // unit + 1
};

// Where the pieces lie: starts by piece, in the image's addresses.
using Placement = std::vector<std::uint64_t>;
[[nodiscard]] Placement as_linked(const Image& image);

// Makes placements. Holds what does not change from one order to the next.
class Placer {
  public:
    Placer(const Image& image, const Units& units, Linker linker);
    // `order`: distinct units. Linear in the pieces.
    void place(std::span<const std::uint32_t> order, Placement& placement);
    [[nodiscard]] Placement placed(std::span<const std::uint32_t> order);

  private:
    const Image& image_;
    const Units& units_;
    std::vector<std::uint32_t>
        insert_before_;                    // by output: the piece that the order goes before; its end else
    std::vector<bool> flows_;              // by output: it begins right behind the one before
    std::vector<std::uint32_t> sequence_;  // in which pieces that are not listed follow each other
    std::vector<char> listed_;             // scratch, by piece
};

}  // namespace tlbscope::layout
