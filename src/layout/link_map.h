// Link maps: which input sections a linker put where. GNU ld, gold, lld and mold each write one with
// -Map=FILE.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tlbscope::layout {

struct InputSection {
    std::string section;  // ".text.vfs_read"
    std::string object;   // "fs/read_write.o", "libc.a(exit.o)"
    std::string output;   // ".text"
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    std::uint32_t align = 0;  // 0: the map does not say
};

// Which linker wrote a map.
enum class MapWriter : std::uint8_t { kGnuLd, kGold, kLld, kMold };

struct LinkMap {
    MapWriter writer = MapWriter::kGnuLd;
    std::vector<InputSection> sections;  // with a size and an address, by address
    // In the order in which their .text was linked, empty ones too (GNU ld, gold); of the others those that
    // fill a section, by the first of theirs.
    std::vector<std::string> objects;
};

// Linear in the text. An error when it is no link map, or holds no section.
[[nodiscard]] Result<LinkMap> parse_link_map(std::string_view text, const std::string& name);
[[nodiscard]] Result<LinkMap> read_link_map(const std::filesystem::path& path);

}  // namespace tlbscope::layout
