// The quantities of address translation as distinct types, so that a page number cannot be used as an
// address, nor a count as cycles. Each has only the operators that mean something; every conversion is spelt
// out.
#pragma once

#include <compare>
#include <cstdint>

namespace tlbscope {

// A number with a name. Tag keeps the types apart; Representation is the stored integer.
template <class Tag, class Representation = std::uint64_t>
class Named {
  public:
    using representation = Representation;
    constexpr Named() = default;
    constexpr explicit Named(Representation value) : value_(value) {}
    [[nodiscard]] constexpr Representation value() const { return value_; }
    friend constexpr auto operator<=>(Named, Named) = default;

  private:
    Representation value_ = 0;
};

// Page size as a power of two: 12 for 4 KiB, 23 for 8 MiB.
class PageShift : public Named<struct PageShiftTag, std::uint8_t> {
  public:
    using Named::Named;
    [[nodiscard]] constexpr std::uint64_t bytes() const { return std::uint64_t{1} << value(); }
};

// Virtual page number: a virtual address without its page offset. Meaningful only with its PageShift.
using Vpn = Named<struct VpnTag>;
// Physical frame number.
using Pfn = Named<struct PfnTag>;

class VirtAddr : public Named<struct VirtAddrTag> {
  public:
    using Named::Named;
    [[nodiscard]] constexpr Vpn page(PageShift shift) const { return Vpn(value() >> shift.value()); }
    [[nodiscard]] constexpr std::uint64_t page_offset(PageShift shift) const {
        return value() & (shift.bytes() - 1);
    }
    friend constexpr VirtAddr operator+(VirtAddr a, std::uint64_t bytes) {
        return VirtAddr(a.value() + bytes);
    }
    friend constexpr std::uint64_t operator-(VirtAddr a, VirtAddr b) { return a.value() - b.value(); }
};

class PhysAddr : public Named<struct PhysAddrTag> {
  public:
    using Named::Named;
    [[nodiscard]] constexpr Pfn frame(PageShift shift) const { return Pfn(value() >> shift.value()); }
};

// Identifier a TLB entry carries so that it survives an address-space switch.
using Asid = Named<struct AsidTag, std::uint16_t>;
// An address space of the recording, numbered in order of appearance; 0 is the first.
using SpaceId = Named<struct SpaceTag, std::uint32_t>;
// A recorded CPU (in user mode: a thread), numbered from 0.
using CpuId = Named<struct CpuTag, std::uint32_t>;

// Processor clock cycles.
class Cycles : public Named<struct CyclesTag> {
  public:
    using Named::Named;
    friend constexpr Cycles operator+(Cycles a, Cycles b) { return Cycles(a.value() + b.value()); }
    friend constexpr Cycles operator*(Cycles a, std::uint64_t n) { return Cycles(a.value() * n); }
};

// DESIGN words: what was referenced, who ran, and where the address lies.
enum class Kind : std::uint8_t { kInstruction, kData };
enum class Mode : std::uint8_t { kUser, kKernel };
enum class Side : std::uint8_t { kUser, kKernel };

}  // namespace tlbscope
