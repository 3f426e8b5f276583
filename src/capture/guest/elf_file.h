// What a guest needs to know about a program: for which machine it is, and what it needs to start.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tlbscope::capture {

struct ElfFile {
    std::uint8_t bits = 0;  // 32 or 64
    bool big_endian = false;
    std::uint16_t machine = 0;  // EM_...
    bool has_code = false;      // something to load: a program or a shared library
    std::string interpreter;    // of a dynamically linked program
    std::vector<std::string> needed;
    std::string name;                // DT_SONAME
    std::vector<std::string> rpath;  // DT_RPATH, DT_RUNPATH: folders, tokens not yet replaced
    std::vector<std::string> runpath;
    std::string build_id;  // hex; empty when there is none

    [[nodiscard]] bool same_machine(const ElfFile& other) const {
        return bits == other.bits && big_endian == other.big_endian && machine == other.machine;
    }
};

// Nothing when the file cannot be read or is not ELF.
[[nodiscard]] std::optional<ElfFile> read_elf(const std::filesystem::path& path);

// The build-id in a run of ELF notes (a PT_NOTE segment, /sys/kernel/notes), as hex; empty when there is
// none.
[[nodiscard]] std::string build_id_in_notes(std::span<const std::uint8_t> notes, bool big_endian,
                                            std::size_t align = 4);

}  // namespace tlbscope::capture
