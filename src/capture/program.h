// What has to be known of a program before it can run under QEMU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

struct Program {
    std::filesystem::path path;          // the ELF file that runs
    std::vector<std::string> arguments;  // argv, with a script's interpreter put in front
    std::string target;                  // QEMU's name of its architecture
    bool position_independent = false;
    std::uint64_t code_start = 0;  // lowest executable address the file asks for
};

// Finds `command` as a shell would, follows #! lines, and reads the ELF header.
Result<Program> find_program(const std::vector<std::string>& command);

// Address of a function or object in an ELF file, from its symbol table or its dynamic one; nothing when it
// has no such symbol.
Result<std::optional<std::uint64_t>> find_symbol(const std::filesystem::path& elf, const std::string& name);

// The GNU build id in hex; empty when the file has none or is no ELF file.
[[nodiscard]] std::string build_id(const std::filesystem::path& elf);

}  // namespace tlbscope::capture
