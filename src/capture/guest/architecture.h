// The kinds of guests: what differs between them before anything runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "capture/guest/elf_file.h"
#include "core/error.h"

namespace tlbscope::capture {

struct Architecture {
    std::string_view name;  // as --guest says it
    std::string_view
        target;             // in recordings: QEMU's name of the architecture, "le" behind it if little-endian
    std::string_view qemu;  // the emulator's program
    std::string_view machine;            // QEMU's board with one CPU
    std::string_view machine_with_cpus;  // with several
    std::string_view cpu_model;
    std::vector<std::string_view> qemu_options;  // further ones
    std::string_view kernel_arguments;
    std::string_view agent;            // below the program's folder
    std::string_view programs;         // folder of our own programs for it, likewise; empty: none
    std::string_view switch_function;  // the kernel's, that loads the next task's stack pointer
    std::uint64_t kernel_base;         // first address of the kernel's side
    std::uint16_t elf_machine;         // EM_...
    std::uint16_t elf_machine_too;     // a second one that its kernel runs; 0: none
    bool big_endian;
    std::uint32_t memory_mib;  // unless asked for
    std::uint32_t most_memory_mib;
    std::uint32_t most_cpus;

    [[nodiscard]] bool runs(const ElfFile& elf) const {
        return elf.big_endian == big_endian && (elf.machine == elf_machine || elf.machine == elf_machine_too);
    }
    // The host's own programs and libraries serve in the guest.
    [[nodiscard]] bool is_hosts() const;
};

// x86_64, ppc32, ppc64le.
[[nodiscard]] const std::vector<Architecture>& architectures();
// By name; a usage error for another.
[[nodiscard]] Result<const Architecture*> find_architecture(std::string_view name);

}  // namespace tlbscope::capture
