#include "layout/linker.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <unordered_map>

namespace tlbscope::layout {

namespace {

constexpr std::array<std::string_view, kLinkers> kNames{"lld",  "gold",  "ld-sorted", "ld",
                                                        "mold", "apple", "bolt",      "linux"};

// The word by which a linker's order file names a piece.
std::string key_of(const Piece& piece, Linker linker) {
    switch (linker) {
        case Linker::kGold:
        case Linker::kSorted:
        case Linker::kScript:
        case Linker::kLinux:
            return piece.section;
        case Linker::kMold:
            return piece.object;
        case Linker::kLld:
        case Linker::kApple:
        case Linker::kBolt:
            break;
    }
    return piece.symbols.empty() ? std::string{} : piece.symbols.front();
}

// GNU ld's default script and gold put these groups before everything else of .text.
bool goes_first(const std::string& section) {
    for (const std::string_view prefix : {".text.unlikely", ".text.exit", ".text.startup", ".text.hot"})
        if (section == prefix || (section.starts_with(prefix) && section[prefix.size()] == '.')) return true;
    return section.starts_with(".text.") && section.ends_with("_unlikely");
}

// What TEXT_TEXT of a kernel's linker script takes: .text of assembly as well, but not .head.text and the
// like before it.
bool of_text_text(const Piece& piece) {
    return piece.stays != Stays::kOwnPlace && piece.stays != Stays::kMadeByLinker;
}

// What the compiler driver adds by itself, before and behind the user's objects; naming it again would link
// it twice.
bool is_runtime_object(std::string_view object) {
    const std::string_view file = object.substr(object.rfind('/') + 1);
    if (!file.ends_with(".o")) return false;
    return file.ends_with("crt1.o") || file == "crti.o" || file == "crtn.o" || file.starts_with("crtbegin") ||
           file.starts_with("crtend") || file == "crtfastmath.o";
}

std::uint64_t aligned(std::uint64_t address, std::uint64_t align) {
    return (address + align - 1) / align * align;
}

}  // namespace

bool is_given_object(std::string_view object) {
    return !object.empty() && !object.ends_with(')') && !object.ends_with(".a") &&
           object.find(".so") == std::string_view::npos && !is_runtime_object(object);
}

std::string_view name_of(Linker linker) { return kNames[static_cast<std::size_t>(linker)]; }

std::optional<Linker> linker_named(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name) return static_cast<Linker>(i);
    return std::nullopt;
}

Units::Units(const Image& image, Linker linker) : of_piece_(image.pieces.size()) {
    std::unordered_map<std::string, std::uint32_t> known;
    for (std::uint32_t i = 0; i < image.pieces.size(); ++i) {
        const Piece& piece = image.pieces[i];
        // mold moves whole files, so all that matters is which file a piece is from.
        if (linker != Linker::kMold && piece.stays != Stays::kMoves) continue;
        if (linker == Linker::kMold &&
            (!is_given_object(piece.object) || piece.stays == Stays::kMadeByLinker))
            continue;
        std::string key = key_of(piece, linker);
        if (key.empty()) continue;
        const auto [place, is_new] = known.try_emplace(key, static_cast<std::uint32_t>(units_.size()));
        if (is_new) units_.push_back({.key = std::move(key), .pieces = {}, .bytes = 0});
        units_[place->second].pieces.push_back(i);
        units_[place->second].bytes += piece.size;
        of_piece_[i] = place->second + 1;
    }
}

std::optional<std::uint32_t> Units::named(const std::string& key) const {
    for (std::uint32_t i = 0; i < units_.size(); ++i)
        if (units_[i].key == key) return i;
    return std::nullopt;
}

Placement as_linked(const Image& image) {
    Placement placement;
    placement.reserve(image.pieces.size());
    for (const Piece& piece : image.pieces) placement.push_back(piece.start);
    return placement;
}

Placer::Placer(const Image& image, const Units& units, Linker linker)
    : image_(image), units_(units), listed_(image.pieces.size()) {
    for (std::uint32_t output = 0; output < image.outputs.size(); ++output) {
        const Output& out = image.outputs[output];
        flows_.push_back(output > 0 && out.start == aligned(image.outputs[output - 1].end, out.align));
        std::uint32_t before = 0;
        std::uint32_t end = 0;
        bool found = false;
        for (std::uint32_t i = 0; i < image.pieces.size(); ++i) {
            const Piece& piece = image.pieces[i];
            if (piece.output != output) continue;
            end = i + 1;
            if (found) continue;
            const bool here = linker == Linker::kSorted  ? !goes_first(piece.section)
                              : linker == Linker::kLinux ? of_text_text(piece)
                              : linker == Linker::kMold  ? units.of_piece(i).has_value()
                                                         : true;
            if (here) {
                before = i;
                found = true;
            }
        }
        insert_before_.push_back(linker == Linker::kGold || !found ? end : before);
    }
    // By itself gold groups sections as GNU ld does; given an order it leaves the others as they are read.
    sequence_.resize(image.pieces.size());
    std::iota(sequence_.begin(), sequence_.end(), 0U);
    if (linker != Linker::kGold) return;
    // A piece whose place among the inputs is not known goes with the one before it.
    std::vector<std::uint64_t> input(image.pieces.size());
    for (std::uint32_t i = 0; i < input.size(); ++i) {
        const bool follows = i > 0 && image.pieces[i - 1].output == image.pieces[i].output;
        input[i] = image.pieces[i].input != 0 ? image.pieces[i].input : follows ? input[i - 1] : 0;
    }
    std::stable_sort(sequence_.begin(), sequence_.end(), [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(image.pieces[a].output, input[a]) < std::pair(image.pieces[b].output, input[b]);
    });
}

void Placer::place(std::span<const std::uint32_t> order, Placement& placement) {
    placement.resize(image_.pieces.size());
    std::fill(listed_.begin(), listed_.end(), char{0});
    for (const std::uint32_t unit : order)
        for (const std::uint32_t piece : units_[unit].pieces) listed_[piece] = 1;
    std::uint32_t next = 0;
    std::uint64_t at = 0;
    std::uint64_t before_end = 0;
    for (std::uint32_t output = 0; output < image_.outputs.size(); ++output) {
        const Output& out = image_.outputs[output];
        at = flows_[output] ? aligned(before_end, out.align) : std::max(out.start, at);
        const auto put = [&](std::uint32_t piece) {
            at = aligned(at, image_.pieces[piece].align);
            placement[piece] = at;
            at += image_.pieces[piece].size;
        };
        const auto put_order = [&] {
            for (const std::uint32_t unit : order)
                for (const std::uint32_t piece : units_[unit].pieces)
                    if (image_.pieces[piece].output == output) put(piece);
        };
        // What is not listed keeps the distance to its neighbour when that stays too: padding that no
        // alignment explains (thunks, hand-made gaps) moves along.
        bool ordered = false;
        std::uint32_t last = ~std::uint32_t{0};
        for (; next < image_.pieces.size() && image_.pieces[next].output == output; ++next) {
            const std::uint32_t piece = order.empty() ? next : sequence_[next];
            if (!ordered && next == insert_before_[output]) {
                put_order();
                ordered = true;
                last = ~std::uint32_t{0};
            }
            if (listed_[piece] != 0) continue;
            if (last != ~std::uint32_t{0} && last + 1 == piece) {
                const std::uint64_t gap = image_.pieces[piece].start - image_.pieces[last].end();
                if (gap >= image_.pieces[piece].align)
                    at += gap / image_.pieces[piece].align * image_.pieces[piece].align;
            }
            put(piece);
            last = piece;
        }
        if (!ordered) put_order();
        before_end = at;
        // Space behind the last piece that belongs to the section.
        const std::uint64_t last_end =
            next > 0 && image_.pieces[next - 1].output == output ? image_.pieces[next - 1].end() : out.start;
        before_end += out.end - last_end;
    }
}

Placement Placer::placed(std::span<const std::uint32_t> order) {
    Placement placement;
    place(order, placement);
    return placement;
}

}  // namespace tlbscope::layout
