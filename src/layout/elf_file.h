// The parts of an ELF file that layout needs: sections, symbols with the source files that local ones belong
// to, loadable segments; of an executable, a library, an object or each member of an archive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::layout {

struct ElfSection {
    std::string name;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t align = 1;
    bool allocated = false;
    bool code = false;
    bool writable = false;
};

struct ElfSymbol {
    std::string name;
    std::uint64_t value = 0;
    std::uint64_t size = 0;
    std::uint32_t section = 0;  // index into sections; 0: none
    bool function = false;
    bool object = false;  // data
    bool local = false;
    bool weak = false;
    std::string file;  // of a local one; empty when the table does not say
};

struct ElfSegmentInfo {
    std::uint64_t address = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t memory_bytes = 0;
};

struct ElfFile {
    std::string name;  // "libc.a(exit.o)" for a member
    std::uint16_t machine = 0;
    std::uint16_t type = 0;
    std::string build_id;
    std::vector<ElfSection> sections;  // by number; 0 is none
    std::vector<ElfSymbol> symbols;
    std::vector<ElfSegmentInfo> segments;
    bool has_symbol_table = false;  // .symtab
};

[[nodiscard]] Result<ElfFile> read_elf_file(const std::filesystem::path& path);
// Each object in turn: of an archive its members, thin ones' from the files they name.
[[nodiscard]] Result<void> for_each_object(const std::filesystem::path& path,
                                           const std::function<void(const ElfFile&)>& visit);

}  // namespace tlbscope::layout
