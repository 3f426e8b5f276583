// Physical memory in a file: what a debugger, a hypervisor or a crash left, as memory in which page tables
// can be walked.
//
//   raw      byte n of the file is physical address base + n (QEMU's pmemsave, a JTAG dump)
//   ELF      a core whose PT_LOAD segments carry physical addresses (/proc/kcore, QEMU's dump-guest-memory,
//   vmcore) kdump    makedumpfile's compressed format, whole or flattened, with zlib or zstd pages
//   (dump-guest-memory -z)
//
// Told apart by content. Nothing in the file is trusted: a read outside of what it holds fails, and never the
// process.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/error.h"
#include "pagetable/walk.h"

namespace tlbscope::image {

class Image : public pagetable::Memory {
  public:
    // "raw memory", "ELF core, 64-bit little-endian, 3 segments" ...
    [[nodiscard]] virtual std::string description() const = 0;
    // Whether all of [at, at + bytes) is memory of the machine that the file describes, filled or not.
    [[nodiscard]] virtual bool contains(PhysAddr at, std::uint64_t bytes) const = 0;
    [[nodiscard]] bool store(PhysAddr, const void*, unsigned) override { return false; }
};

// `base`: the physical address of a raw file's first byte; other formats know theirs.
[[nodiscard]] Result<std::unique_ptr<Image>> open_image(const std::string& file, std::uint64_t base);

}  // namespace tlbscope::image
