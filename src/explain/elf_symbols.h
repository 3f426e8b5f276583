// The functions an ELF file knows about, from everything it says: .symtab and .dynsym, the relocations of its
// procedure linkage table (`read@plt`), and, for the parts of a stripped file that no symbol covers, the
// function boundaries in its unwind table. Such a function has no name; it is shown in brackets as file and
// offset, `[dd+0x3a40]`, which tells functions apart without pretending to know what they are called.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "explain/symbols.h"

namespace tlbscope::explain {

struct ElfSegment {
    std::uint64_t address = 0;
    std::uint64_t offset = 0;  // in the file
    std::uint64_t bytes = 0;   // in the file
    std::uint64_t memory_bytes = 0;
    bool executable = false;
};

struct ElfSymbols {
    std::string build_id;              // hex; empty when it has none
    std::vector<ElfSegment> segments;  // to be loaded
    std::vector<Symbol> symbols;
    std::vector<Symbol> unnamed;  // from the unwind table; `name` is "+0x3a40"
    bool full = false;            // has .symtab, so local functions are named as well
    std::string debug_link;       // .gnu_debuglink: name of the file the symbols were moved to
    std::uint32_t debug_checksum = 0;

    // Where the byte at `offset` of the file is loaded, before relocation.
    [[nodiscard]] std::optional<std::uint64_t> address_of(std::uint64_t offset) const;
    [[nodiscard]] bool executable(std::uint64_t address) const;
};

[[nodiscard]] Result<ElfSymbols> read_elf_symbols(const std::filesystem::path& path);
// From an image in memory, which `name` stands for in an error.
[[nodiscard]] Result<ElfSymbols> read_elf_image(std::string image, const std::string& name);

// The file with the symbols that were stripped from a file with this build-id and debug link, in the usual
// places below each of `folders` (as GDB looks for it: .build-id/ab/cdef.debug, then the linked name next to
// the file, in its .debug folder, and below the folder under the file's own path), and in debuginfod's cache.
[[nodiscard]] std::optional<std::filesystem::path> find_debug_file(
    const std::filesystem::path& file, const std::string& build_id, const std::string& debug_link,
    std::uint32_t debug_checksum, const std::vector<std::filesystem::path>& folders);

}  // namespace tlbscope::explain
