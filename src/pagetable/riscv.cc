// RISC-V Sv39, Sv48 and Sv57: three to five levels of 512 eight-byte entries; a leaf at any level, and 64K
// pages (Svnapot): sixteen equal entries with N and ppn[3:0] = 1000.
//
// Sources: as remembered from the privileged specification [R]: V 0, R 1, W 2, X 3, U 4, G 5, A 6, D 7, RSW
// 9:8, PPN 53:10, PBMT 62:61, N 63; a leaf iff R or X; W without R is reserved, so are D, A, U, PBMT and N in
// a pointer and bits 60:54; a superpage whose low PPN bits are not zero faults.
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kValid = 1;
constexpr std::uint64_t kR = 2;
constexpr std::uint64_t kW = 4;
constexpr std::uint64_t kX = 8;
constexpr std::uint64_t kU = 16;
constexpr std::uint64_t kG = 32;
constexpr std::uint64_t kA = 64;
constexpr std::uint64_t kD = 128;
constexpr std::uint64_t kPpn = 0x003ffffffffffc00;
constexpr std::uint64_t kReserved = 0x1fc0000000000000;  // 60:54
constexpr std::uint64_t kPbmt = 0x6000000000000000;
constexpr std::uint64_t kPbmtIo = 0x4000000000000000;
constexpr std::uint64_t kN = std::uint64_t{1} << 63;
constexpr std::uint64_t kNapot64K = 0x8 << 10;

constexpr std::array kLevels57{Level{"level 4", 48, 9, 8, 0}, Level{"level 3", 39, 9, 8, 0},
                               Level{"level 2", 30, 9, 8, 1}, Level{"level 1", 21, 9, 8, 2},
                               Level{"level 0", 12, 9, 8, 3}};
constexpr std::array kLevels48{Level{"level 3", 39, 9, 8, 0}, Level{"level 2", 30, 9, 8, 0},
                               Level{"level 1", 21, 9, 8, 1}, Level{"level 0", 12, 9, 8, 2}};
constexpr std::array kLevels39{Level{"level 2", 30, 9, 8, 0}, Level{"level 1", 21, 9, 8, 0},
                               Level{"level 0", 12, 9, 8, 1}};
constexpr std::array kSizes57{PageSize{PageShift(12), 4}, PageSize{PageShift(16), 4},
                              PageSize{PageShift(21), 3}, PageSize{PageShift(30), 2},
                              PageSize{PageShift(39), 1}, PageSize{PageShift(48), 0}};
constexpr std::array kSizes48{PageSize{PageShift(12), 3}, PageSize{PageShift(16), 3},
                              PageSize{PageShift(21), 2}, PageSize{PageShift(30), 1},
                              PageSize{PageShift(39), 0}};
constexpr std::array kSizes39{PageSize{PageShift(12), 2}, PageSize{PageShift(16), 2},
                              PageSize{PageShift(21), 1}, PageSize{PageShift(30), 0}};

constexpr std::array kTableFields{FieldName{kValid, kValid, "V"}, FieldName{kG, kG, "G"}};
constexpr std::array kPageFields{FieldName{kValid, kValid, "V"},
                                 FieldName{kR, kR, "R"},
                                 FieldName{kW, kW, "W"},
                                 FieldName{kX, kX, "X"},
                                 FieldName{kU, kU, "U"},
                                 FieldName{kG, kG, "G"},
                                 FieldName{kA, kA, "A"},
                                 FieldName{kD, kD, "D"},
                                 FieldName{kPbmt, 0x2000000000000000, "PBMT=NC"},
                                 FieldName{kPbmt, kPbmtIo, "PBMT=IO"},
                                 FieldName{kN, kN, "N"}};

Entry malformed(const char* why) { return {.kind = EntryKind::kMalformed, .why = why}; }

Entry decode(const Format& format, unsigned level, std::uint64_t raw) {
    if ((raw & kValid) == 0) return {};
    if ((raw & kReserved) != 0) return malformed("reserved bits 60:54 are set");
    const unsigned shift = format.levels[level].shift;
    const std::uint64_t address = (raw & kPpn) << 2;
    if ((raw & (kR | kW | kX)) == 0) {
        if (shift == 12) return malformed("a pointer at the last level");
        if ((raw & (kD | kA | kU | kPbmt | kN)) != 0)
            return malformed("D, A, U, PBMT or N is set in a pointer");
        return {.kind = EntryKind::kTable,
                .next = static_cast<std::uint8_t>(level + 1),
                .address = PhysAddr(address)};
    }
    if ((raw & (kR | kW)) == kW) return malformed("W without R is reserved");
    if ((raw & kPbmt) == kPbmt) return malformed("PBMT 3 is reserved");
    unsigned size = shift;
    std::uint64_t page = address;
    if ((raw & kN) != 0) {
        if (shift != 12 || (raw & (std::uint64_t{0xf} << 10)) != kNapot64K)
            return malformed("N with a size other than 64K is reserved");
        size = 16;
        page &= ~std::uint64_t{0xffff};
    } else if ((address & ((std::uint64_t{1} << shift) - 1)) != 0) {
        return malformed("misaligned superpage: low PPN bits are set");
    }
    Flags flags = 0;
    if ((raw & kR) != 0) flags |= kRead;
    if ((raw & kW) != 0) flags |= kWrite;
    if ((raw & kX) != 0) flags |= kExecute;
    if ((raw & kU) != 0) flags |= kUser;
    if ((raw & kG) != 0) flags |= kGlobal;
    if ((raw & kA) != 0) flags |= kAccessed;
    if ((raw & kD) != 0) flags |= kDirty;
    if ((raw & kPbmt) != 0) flags |= kUncached;
    return {.kind = EntryKind::kPage,
            .size = PageShift(static_cast<std::uint8_t>(size)),
            .flags = flags,
            .address = PhysAddr(page)};
}

std::uint64_t encode_page(const Format&, const PageSize& size, PhysAddr page, Flags flags) {
    std::uint64_t raw = page.value() >> 2 | kValid;
    if ((flags & (kRead | kWrite)) != 0) raw |= kR;  // W alone is reserved
    if ((flags & kWrite) != 0) raw |= kW;
    if ((flags & kExecute) != 0) raw |= kX;
    if ((raw & (kR | kX)) == 0) raw |= kR;  // a leaf must allow something
    if ((flags & kUser) != 0) raw |= kU;
    if ((flags & kGlobal) != 0) raw |= kG;
    if ((flags & kAccessed) != 0) raw |= kA;
    if ((flags & kDirty) != 0) raw |= kD;
    if ((flags & kUncached) != 0) raw |= kPbmtIo;
    if (size.shift.value() == 16) raw |= kN | kNapot64K;
    return raw;
}

std::uint64_t encode_table(const Format&, unsigned, PhysAddr table) { return table.value() >> 2 | kValid; }

// satp holds MODE 63:60, ASID 59:44 and PPN 43:0; a physical address has 56 bits, so a MODE tells one from
// the other.
std::uint64_t root_of_satp(std::uint64_t reg) {
    return reg >> 60 == 0 ? reg : (reg & ((std::uint64_t{1} << 44) - 1)) << 12;
}

constexpr Format riscv(std::string_view name, std::string_view title, std::span<const Level> levels,
                       std::span<const PageSize> sizes, std::uint8_t bits) {
    return {.name = name,
            .title = title,
            .source = "RISC-V privileged specification, Sv39/Sv48/Sv57, Svpbmt, Svnapot [R]",
            .levels = levels,
            .sizes = sizes,
            .table_fields = kTableFields,
            .page_fields = kPageFields,
            .address_bits = bits,
            .sign_extended = true,
            .physical_bits = 56,
            .user_root_entries = 256,
            .root_mask = 0x00fffffffffff000,
            .root_of_register = root_of_satp,
            .decode = decode,
            .encode_page = encode_page,
            .encode_table = encode_table};
}

}  // namespace

constexpr Format kSv39 =
    riscv("sv39", "RISC-V Sv39, 3 levels of 9 bits; 4K, 64K, 2M and 1G pages", kLevels39, kSizes39, 39);
constexpr Format kSv48 =
    riscv("sv48", "RISC-V Sv48, 4 levels of 9 bits; 4K to 512G pages", kLevels48, kSizes48, 48);
constexpr Format kSv57 =
    riscv("sv57", "RISC-V Sv57, 5 levels of 9 bits; 4K to 256T pages", kLevels57, kSizes57, 57);

}  // namespace tlbscope::pagetable
