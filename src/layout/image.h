// The image whose order is wanted, a program or a kernel, as a linker sees it: the pieces it was linked from,
// which of them could lie elsewhere, and why the others cannot.
//
// A linked file no longer says what its input sections were. In order of trust: the link map says it all but
// (GNU ld, gold) alignments; object files have sizes and alignments and are found in the image by their
// symbols; with the image alone each function symbol is taken for a section, which holds for
// -ffunction-sections builds only, so source() must be shown. Alignments that nobody states are inferred from
// the gaps between pieces.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace tlbscope::layout {

enum class ImageSource : std::uint8_t { kLinkMap, kObjects, kSymbols };

// What stays where it is, and why.
enum class Stays : std::uint8_t {
    kMoves,     // it does not stay
    kNotSplit,  // the .text of an object whose functions have no sections of their own: assembly, or built
                // without -ffunction-sections
    kOwnPlace,  // the linker script gives its section a place: .sched.text, .entry.text, .init.text ...
    kMadeByLinker,  // .plt, .init, .fini, thunks
    kUnnamed,       // no symbol to name it in an order
};
inline constexpr std::size_t kStays = 5;
[[nodiscard]] std::string_view why(Stays stays);

struct Piece {
    std::string section;  // input section; without a link map or objects a guess from the function's name
    std::string object;   // file it came from; empty when unknown
    std::vector<std::string> symbols;  // defined in it, the best name first
    std::uint64_t start = 0;           // address in the image
    std::uint64_t size = 0;
    std::uint32_t align = 1;
    std::uint32_t output = 0;  // of Image::outputs
    Stays stays = Stays::kMoves;
    std::uint64_t input =
        0;  // place among the linker's inputs: object by object, section by section; 0: not known
    bool local = false;  // its best name is local to its object file

    [[nodiscard]] std::uint64_t end() const { return start + size; }
    [[nodiscard]] const std::string& name() const { return symbols.empty() ? section : symbols.front(); }
};

struct Output {
    std::string name;
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint32_t align = 1;
};

// A function, or part of one, as its symbol says; several can lie in one piece.
struct Function {
    std::string name;
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    bool local = false;
    std::string file;  // of a local one: the source file's name, where the symbol table says it
};

enum class What : std::uint8_t { kText, kData };

struct ImageOptions {
    std::filesystem::path map;                   // link map
    std::vector<std::filesystem::path> objects;  // objects and archives
    What what = What::kText;
    bool whole_functions = false;  // pieces are functions, whatever sections they lay in (BOLT)
};

struct Image {
    std::string path;
    std::string build_id;
    bool kernel = false;
    bool position_independent = false;
    std::string machine;  // of the ELF header: "x86-64", "PowerPC" ...
    std::uint16_t elf_machine = 0;
    ImageSource source = ImageSource::kSymbols;
    What what = What::kText;
    std::vector<Output> outputs;       // with code (or data), by address
    std::vector<Piece> pieces;         // by address, without overlap
    std::vector<Function> functions;   // by address
    std::vector<std::string> objects;  // that it was linked from, as far as a map or the user says
    struct Segment {
        std::uint64_t address = 0;
        std::uint64_t offset = 0;
        std::uint64_t bytes = 0;
        std::uint64_t memory_bytes = 0;
    };
    std::vector<Segment> segments;
    std::vector<std::string> notes;  // what a reader must know, one sentence each

    [[nodiscard]] std::optional<std::uint32_t> piece_at(std::uint64_t address) const;
    [[nodiscard]] const Function* function_at(std::uint64_t address) const;
    // Where the byte at `offset` of the file is loaded, before relocation.
    [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t offset) const;
};

// Reads the ELF file. An error when it is stripped of the symbols that an order is made of.
[[nodiscard]] Result<Image> load_image(const std::filesystem::path& path, const ImageOptions& options);

// The image of a kernel from its symbols alone (kallsyms); pieces are functions.
[[nodiscard]] Result<Image> image_of_symbols(std::string_view kallsyms, const std::string& name);

// Piece starts and sizes from what a map and symbols say; used by load_image and tests.
void infer_alignments(std::vector<Piece>& pieces);

}  // namespace tlbscope::layout
