// A walk: from a root table and a virtual address to a page, or to the reason why there is none. The caller
// supplies the memory, which may be an arena, a guest's memory or a file; nothing in it is trusted.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "core/types.h"
#include "pagetable/format.h"

namespace tlbscope::pagetable {

// Physical memory as entries are read from it and written to it.
class Memory {
  public:
    virtual ~Memory() = default;
    // Copies `bytes` bytes (4 or 8) at a physical address, which is aligned to them; false when there is no
    // memory there.
    [[nodiscard]] virtual bool load(PhysAddr at, void* into, unsigned bytes) const = 0;
    [[nodiscard]] virtual bool store(PhysAddr at, const void* from, unsigned bytes) = 0;
};

enum class Outcome : std::uint8_t {
    kMapped,
    kNotPresent,    // the last step's entry is none
    kMalformed,     // the last step's entry means nothing: why
    kNoMemory,      // the last step's entry lies outside the memory
    kNotCanonical,  // no step: the address has bits that no table translates
};

struct Step {
    std::uint8_t level = 0;  // index into the format's levels
    PhysAddr entry_address;
    std::uint64_t raw = 0;
    Entry entry;
};

// Most tables on one path: five levels, and no format has alternatives on the same path.
inline constexpr std::size_t kMostSteps = 5;

struct Walk {
    Outcome outcome = Outcome::kNotCanonical;
    std::uint8_t count = 0;
    std::array<Step, kMostSteps> path;  // [0, count) from the root down
    const char* why = nullptr;          // kMalformed

    [[nodiscard]] std::span<const Step> steps() const { return std::span(path).first(count); }
    // kMapped: the page, and where in it the address lies.
    [[nodiscard]] const Entry& page() const { return path[count - 1u].entry; }
    [[nodiscard]] PhysAddr physical(std::uint64_t address) const {
        return PhysAddr(page().address.value() + (address & (page().size.bytes() - 1)));
    }
};

// Linear in the levels; about a load and a decision for each.
[[nodiscard]] Walk walk(const Format& format, const Memory& memory, PhysAddr root, VirtAddr address);

// The same when only the entries' addresses matter, as a refill asks: writes the physical addresses of the
// entries that the hardware or the handler reads for `address`, from the root down, and says how many.
std::size_t entry_addresses(const Format& format, const Memory& memory, PhysAddr root, VirtAddr address,
                            std::array<PhysAddr, kMostSteps>& into);

// "mapped", "not present" ...
[[nodiscard]] std::string_view name_of(Outcome outcome);

}  // namespace tlbscope::pagetable
