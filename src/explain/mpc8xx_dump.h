// Debugger dumps of the MPC8xx TLBs: lines of special-purpose registers as a BDI2000 prints them,
//
//     SPR  816 : 0xc009e01f  -1073094625
//
// also as lines of a diff. Registers 816 to 818 (MI_CAM, MI_RAM0, MI_RAM1) are one entry of the instruction
// TLB, 824 to 826 (MD_CAM ...) one of the data TLB.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace tlbscope::explain {

enum class DumpMark : std::uint8_t { kNone, kAdded, kRemoved };  // the diff's + and -

struct Mpc8xxEntry {
    Kind kind = Kind::kInstruction;
    std::size_t line = 0;  // of the CAM
    DumpMark mark = DumpMark::kNone;
    std::uint32_t cam = 0;
    std::optional<std::uint32_t> ram0;
    std::optional<std::uint32_t> ram1;

    [[nodiscard]] VirtAddr page() const;
    [[nodiscard]] std::optional<PageShift> size() const;  // nothing for a code that is not defined
    [[nodiscard]] unsigned asid() const;
    [[nodiscard]] bool shared() const;
    [[nodiscard]] unsigned valid_subpages() const;        // 4 bits, the first subpage high
    [[nodiscard]] std::optional<PhysAddr> frame() const;  // of RAM0
    [[nodiscard]] std::optional<bool> valid() const;      // instruction TLB's RAM1 only
};

struct Mpc8xxRegister {
    unsigned number = 0;
    std::size_t line = 0;
    DumpMark mark = DumpMark::kNone;
    std::uint32_t value = 0;
};

struct Mpc8xxDump {
    std::vector<Mpc8xxEntry> entries;
    std::vector<Mpc8xxRegister> others;  // registers that are no part of an entry
    std::vector<std::string> warnings;
};

[[nodiscard]] Mpc8xxDump parse_mpc8xx_dump(std::string_view text);

// Entries of `after` that `before` does not have, each as often as it is new.
[[nodiscard]] std::vector<Mpc8xxEntry> new_entries(const Mpc8xxDump& before, const Mpc8xxDump& after);

// "MI_CTR" ...; empty when the number is none of the MMU's.
[[nodiscard]] std::string_view mpc8xx_register_name(unsigned number);
// The fields of a register that is no part of an entry, "index 28, reserved 4"; empty when there are none.
[[nodiscard]] std::string mpc8xx_register_fields(const Mpc8xxRegister& reg);

}  // namespace tlbscope::explain
