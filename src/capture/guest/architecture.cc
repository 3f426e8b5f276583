// Why these boards and options, measured on QEMU 7.2:
// - x86_64: microvm boots Debian's cloud kernel, runs a dd of 15 MiB and powers off in 2.4 s, q35 in 3.1 s,
// pc in
//   3.3 s: it has no firmware menu, no PCI bus and no disk controllers to wait for. qemu64 has no random
//   number instruction, and the kernel is told not to trust the boot loader's seed.
// - ppc32: bamboo is QEMU's only board with a PowerPC 440, whose 64-entry TLB the kernel fills by software,
// so that
//   every miss is code in the recording. It has one CPU. 256 MiB are what one pinned entry maps.
// - ppc64le: a POWER9 with radix tables, where the kernel invalidates with tlbie and tlbiel. x-vof is QEMU's
// small
//   firmware, which starts the kernel at once. The capabilities switched off are those TCG does not have.
// QEMU takes what it hands to a guest as random (device tree seeds, darn) from -seed.
#include "capture/guest/architecture.h"

#include <elf.h>

#include <fmt/format.h>

namespace tlbscope::capture {

bool Architecture::is_hosts() const {
#if defined(__x86_64__)
    return name == "x86_64";
#else
    return false;
#endif
}

const std::vector<Architecture>& architectures() {
    static const std::vector<Architecture> all{
        {.name = "x86_64",
         .target = "x86_64",
         .qemu = "qemu-system-x86_64",
         .machine = "microvm",
         .machine_with_cpus = "q35",
         .cpu_model = "qemu64",
         .qemu_options = {},
         // nokaslr, norandmaps: the same addresses in every run. panic=-1: a panic reboots at once, which
         // ends QEMU.
         .kernel_arguments = "console=ttyS0 quiet panic=-1 nokaslr norandmaps random.trust_cpu=off "
                             "random.trust_bootloader=off tsc=reliable reboot=t",
         .agent = "guests/agent",
         .programs = "",
         .switch_function = "__switch_to_asm",
         .kernel_base = 0xffff800000000000,  // Documentation/arch/x86/x86_64/mm.rst
         .elf_machine = EM_X86_64,
         .elf_machine_too = EM_386,
         .big_endian = false,
         .memory_mib = 512,
         .most_memory_mib = 1U << 20,
         .most_cpus = 64},
        {.name = "ppc32",
         .target = "ppc",
         .qemu = "qemu-system-ppc",
         .machine = "bamboo",
         .machine_with_cpus = "bamboo",
         .cpu_model = "440epb",
         .qemu_options = {"-seed", "1"},
         .kernel_arguments = "console=ttyS0 quiet panic=-1 norandmaps",
         .agent = "guests/ppc32/agent",
         .programs = "guests/ppc32",
         .switch_function = "_switch",
         .kernel_base = 0xc0000000,  // CONFIG_PAGE_OFFSET
         .elf_machine = EM_PPC,
         .elf_machine_too = 0,
         .big_endian = true,
         .memory_mib = 256,
         .most_memory_mib = 512,
         .most_cpus = 1},
        {.name = "ppc64le",
         .target = "ppc64le",
         .qemu = "qemu-system-ppc64",
         .machine = "pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off",
         .machine_with_cpus =
             "pseries,x-vof=on,cap-cfpc=broken,cap-sbbc=broken,cap-ibs=broken,cap-ccf-assist=off",
         .cpu_model = "power9",
         .qemu_options = {"-seed", "1"},
         .kernel_arguments = "console=hvc0 quiet panic=-1 nokaslr norandmaps",
         .agent = "guests/ppc64le/agent",
         .programs = "guests/ppc64le",
         .switch_function = "_switch",
         .kernel_base = 0xc000000000000000,
         .elf_machine = EM_PPC64,
         .elf_machine_too = 0,
         .big_endian = false,
         .memory_mib = 1024,
         .most_memory_mib = 1U << 16,
         .most_cpus = 64},
    };
    return all;
}

Result<const Architecture*> find_architecture(std::string_view name) {
    std::string known;
    for (const Architecture& architecture : architectures()) {
        if (architecture.name == name) return &architecture;
        known += fmt::format("{}{}", known.empty() ? "" : ", ", architecture.name);
    }
    return std::unexpected(Error{"", fmt::format("--guest {}: there is no such kind of guest", name),
                                 "use one of " + known, ErrorClass::kUsage});
}

}  // namespace tlbscope::capture
