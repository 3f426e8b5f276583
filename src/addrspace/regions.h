// Regions of the kernel's side by address, as each architecture lays it out. What addresses cannot tell
// (stacks, per-CPU data) explain/stacks.h finds out from what the instructions do.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/types.h"

namespace tlbscope::addrspace {

struct AddressRange {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    [[nodiscard]] bool contains(std::uint64_t address) const { return address >= start && address < end; }
    [[nodiscard]] bool empty() const { return start >= end; }
    friend bool operator==(const AddressRange&, const AddressRange&) = default;
};

enum class Region : std::uint8_t {
    kUserText,
    kUserHeap,
    kUserStack,
    kUserMmap,
    kKernelText,
    kKernelLinear,
    kKernelVmalloc,
    kKernelStack,
    kKernelVmemmap,
    kKernelPercpu,
    kKernelIo,
    kUnknown,
};
inline constexpr std::size_t kRegions = 12;

// "user-text", "kernel-linear" ...
[[nodiscard]] std::string_view name_of(Region region);
[[nodiscard]] std::optional<Region> region_named(std::string_view name);

class KernelLayout {
  public:
    // `target` is QEMU's name of the architecture, `image` the kernel's own code and data where known.
    KernelLayout(std::string_view target, AddressRange image);
    [[nodiscard]] Region at(std::uint64_t address) const;
    [[nodiscard]] AddressRange image() const { return image_; }
    // Bytes of a kernel stack that starts at a multiple of its size in vmalloc space; 0 when stacks are not
    // aligned so there.
    [[nodiscard]] std::uint64_t stack_bytes() const { return stack_bytes_; }

  private:
    struct Span {
        std::uint64_t start = 0;
        std::uint64_t last = 0;
        Region region = Region::kUnknown;
    };
    static constexpr std::size_t kMostSpans = 16;
    Span spans_[kMostSpans];
    std::size_t count_ = 0;
    AddressRange image_;
    std::uint64_t stack_bytes_ = 0;
};

}  // namespace tlbscope::addrspace
