// Sources. x86_64: Documentation/x86/x86_64/mm.rst (Linux 6.1), four and five levels; the addresses of both
// do not overlap, so no test of the number of levels is needed. Without KASLR the bases are these; with it
// (CONFIG_RANDOMIZE_MEMORY) linear, vmalloc and vmemmap move, so guests are booted with nokaslr. arm64:
// Documentation/arm64/memory.rst (6.1), 4K pages and 48 bits. ppc64: arch/powerpc/include/asm/book3s/64/
// radix.h, which the hash MMU with 64K pages shares. ppc32: arch/powerpc/include/asm/page_32.h and the
// "Kernel virtual memory layout" lines that mm/mem.c prints: lowmem from PAGE_OFFSET, at most 768 MB, vmalloc
// behind it, ioremap and fixmap at the top [remembered: the exact edges depend on the amount of memory].
#include "addrspace/regions.h"

#include <array>

namespace tlbscope::addrspace {

namespace {

constexpr std::array<std::string_view, kRegions> kNames{
    "user-text",      "user-heap",    "user-stack",     "user-mmap",     "kernel-text", "kernel-linear",
    "kernel-vmalloc", "kernel-stack", "kernel-vmemmap", "kernel-percpu", "kernel-io",   "unknown"};

}  // namespace

std::string_view name_of(Region region) { return kNames[static_cast<std::size_t>(region)]; }

std::optional<Region> region_named(std::string_view name) {
    for (std::size_t i = 0; i < kNames.size(); ++i)
        if (kNames[i] == name) return static_cast<Region>(i);
    return std::nullopt;
}

KernelLayout::KernelLayout(std::string_view target, AddressRange image) : image_(image) {
    const auto add = [this](std::uint64_t start, std::uint64_t last, Region region) {
        spans_[count_++] = {start, last, region};
    };
    if (target == "x86_64") {
        stack_bytes_ = 16384;  // THREAD_SIZE; vmalloc'ed stacks are aligned to it (THREAD_ALIGN)
        // Four levels.
        add(0xffff888000000000, 0xffffc87fffffffff, Region::kKernelLinear);
        add(0xffffc90000000000, 0xffffe8ffffffffff, Region::kKernelVmalloc);
        add(0xffffea0000000000, 0xffffeaffffffffff, Region::kKernelVmemmap);
        // Five levels.
        add(0xff11000000000000, 0xff90ffffffffffff, Region::kKernelLinear);
        add(0xffa0000000000000, 0xffd1ffffffffffff, Region::kKernelVmalloc);
        add(0xffd4000000000000, 0xffd5ffffffffffff, Region::kKernelVmemmap);
        // Both. The CPU entry areas hold each CPU's GDT, TSS, entry and exception stacks.
        add(0xfffffe0000000000, 0xfffffe7fffffffff, Region::kKernelPercpu);
        add(0xffffff0000000000, 0xffffff7fffffffff, Region::kKernelStack);  // %esp fixup stacks
        add(0xffffffff80000000, 0xffffffff9fffffff, Region::kKernelText);
        add(0xffffffffa0000000, 0xfffffffffeffffff, Region::kKernelVmalloc);  // modules
        add(0xffffffffff000000, 0xffffffffffffffff, Region::kKernelIo);       // fixmap, vsyscall
    } else if (target == "aarch64") {
        stack_bytes_ = 16384;
        add(0xffff000000000000, 0xffff7fffffffffff, Region::kKernelLinear);
        add(0xffff800000000000, 0xfffffbffefffffff, Region::kKernelVmalloc);  // modules, then vmalloc
        add(0xfffffbfff0000000, 0xfffffbffffffffff, Region::kKernelIo);       // fixmap, PCI I/O
        add(0xfffffc0000000000, 0xfffffdffffffffff, Region::kKernelVmemmap);
    } else if (target == "ppc64" || target == "ppc64le") {
        add(0xc000000000000000, 0xc007ffffffffffff, Region::kKernelLinear);
        add(0xc008000000000000, 0xc009ffffffffffff, Region::kKernelVmalloc);
        add(0xc00a000000000000, 0xc00bffffffffffff, Region::kKernelIo);
        add(0xc00c000000000000, 0xc00fffffffffffff, Region::kKernelVmemmap);
    } else if (target == "ppc") {
        add(0xc0000000, 0xefffffff, Region::kKernelLinear);
        add(0xf0000000, 0xfdffffff, Region::kKernelVmalloc);
        add(0xfe000000, 0xffffffff, Region::kKernelIo);
    }
}

Region KernelLayout::at(std::uint64_t address) const {
    if (image_.contains(address)) return Region::kKernelText;
    for (std::size_t i = 0; i < count_; ++i)
        if (address >= spans_[i].start && address <= spans_[i].last) return spans_[i].region;
    return Region::kUnknown;
}

}  // namespace tlbscope::addrspace
