// MPC8xx, two levels: 1024 entries of 4 MiB, then 1024 pages (M_TWB with TWAM = 1, as Linux sets it). The
// hardware helps the miss handler to form the two addresses and walks nothing itself, so an entry means what
// the kernel's handler makes of it, and there are three generations:
//
//   Linux 2.4   the first level holds kernel virtual addresses of the second; the handler subtracts
//   KERNELBASE. 4K pages. Linux 2.6   physical addresses, bit 0 present, and the page size (PS) in bits 3:2
//   as the hardware's first-level
//               descriptor has it. 8M: two equal first-level entries, whose table base is the address of the
//               one descriptor (MPC885 manual 8-10). 512K: a table of the eight pages of the 4 MiB, as the
//               first Linux handlers for huge pages on the 8xx read it [R]. Bit 3 of a page is software's
//               (EXEC), so no 16K pages.
//   today       another set of page bits; 16K as four equal entries with SPS; 512K as 128 equal entries with
//   HUGE, which
//               the handler moves into PS; 8M as above.
//
// Sources: MPC823e manual p. 227, MPC860 table 9-4 (descriptors), MPC823 manual 11.5 (equal entries),
// head_8xx.S and pgtable.h of 2.4.0, 2.6.12-rc2 and 019b3fd94b (bits and meaning). That no flag stands in
// a 2.4 first-level entry and that 0x80000000 ends the user's half there are [R].
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kPresent = 0x001;
constexpr std::uint64_t kPageMask = 0xfffff000;
constexpr std::uint64_t kPmdSize = 0x00c;
constexpr std::uint64_t kPmd512K = 0x004;
constexpr std::uint64_t kPmd8M = 0x00c;

constexpr std::uint8_t kPgd = 0;
constexpr std::uint8_t kPte = 1;
constexpr std::uint8_t kOf8M = 2;
constexpr std::uint8_t kOf512K = 3;  // 2.6 only

// A first-level entry has no address bits below 4 KiB, so the two small tables take a frame each.
constexpr std::array kLevels26{Level{"pgd", 22, 10, 4, kPgd}, Level{"pte", 12, 10, 4, kPgd},
                               Level{"pte-8M", 23, 0, 4, kPgd, 4096},
                               Level{"pte-512K", 19, 3, 4, kPgd, 4096}};
constexpr std::span kLevels = std::span(kLevels26).first<3>();
constexpr std::span kLevels24 = std::span(kLevels26).first<2>();

constexpr std::array kSizes24{PageSize{PageShift(12), kPte}};
constexpr std::array kSizes26{PageSize{PageShift(12), kPte}, PageSize{PageShift(19), kOf512K},
                              PageSize{PageShift(23), kOf8M}};
constexpr std::array kSizes{PageSize{PageShift(12), kPte}, PageSize{PageShift(14), kPte},
                            PageSize{PageShift(19), kPte}, PageSize{PageShift(23), kOf8M}};

constexpr std::array kTableFields{FieldName{0x1, 0x1, "V"},       FieldName{0x2, 0x2, "WT"},
                                  FieldName{0xc, 0x4, "PS=512K"}, FieldName{0xc, 0xc, "PS=8M"},
                                  FieldName{0x10, 0x10, "G"},     FieldName{0x1e0, 0x20, "APG=1"}};
constexpr std::array kPageFields26{FieldName{0x1, 0x1, "PRESENT"},     FieldName{0x2, 0x2, "NO_CACHE"},
                                   FieldName{0x4, 0x4, "SHARED"},      FieldName{0x8, 0x8, "EXEC"},
                                   FieldName{0x10, 0x10, "GUARDED"},   FieldName{0x20, 0x20, "DIRTY"},
                                   FieldName{0x40, 0x40, "RW"},        FieldName{0x80, 0x80, "ACCESSED"},
                                   FieldName{0x100, 0x100, "HWWRITE"}, FieldName{0x800, 0x800, "USER"}};
constexpr std::array kPageFields{
    FieldName{0x1, 0x1, "PRESENT"}, FieldName{0x2, 0x2, "NO_CACHE"},   FieldName{0x4, 0x4, "SH"},
    FieldName{0x8, 0x8, "SPS"},     FieldName{0x10, 0x10, "GUARDED"},  FieldName{0x20, 0x20, "SPECIAL"},
    FieldName{0x40, 0x40, "EXEC"},  FieldName{0x80, 0x80, "ACCESSED"}, FieldName{0x100, 0x100, "DIRTY"},
    FieldName{0x600, 0x200, "NA"},  FieldName{0x600, 0x600, "RO"},     FieldName{0x800, 0x800, "HUGE"}};

Entry page(std::uint64_t raw, std::uint8_t shift, Flags flags) {
    const std::uint64_t frame = raw & kPageMask;
    if ((frame & ((std::uint64_t{1} << shift) - 1)) != 0)
        return {.kind = EntryKind::kMalformed, .why = "the frame is not aligned to the page's size"};
    return {.kind = EntryKind::kPage, .size = PageShift(shift), .flags = flags, .address = PhysAddr(frame)};
}

Flags flags26(std::uint64_t raw) {
    Flags flags = kRead;
    if ((raw & 0x040) != 0) flags |= kWrite;
    if ((raw & 0x008) != 0) flags |= kExecute;
    if ((raw & 0x800) != 0) flags |= kUser;
    if ((raw & 0x004) != 0) flags |= kGlobal;
    if ((raw & 0x080) != 0) flags |= kAccessed;
    if ((raw & 0x020) != 0) flags |= kDirty;
    if ((raw & 0x002) != 0) flags |= kUncached;
    return flags;
}

std::uint64_t bits26(Flags flags) {
    std::uint64_t raw = kPresent;
    if ((flags & kWrite) != 0) raw |= 0x040;
    if ((flags & kExecute) != 0) raw |= 0x008;
    if ((flags & kUser) != 0) raw |= 0x800;
    if ((flags & kGlobal) != 0) raw |= 0x004;
    if ((flags & kAccessed) != 0) raw |= 0x080;
    if ((flags & kDirty) != 0) raw |= 0x020;
    if ((flags & (kDirty | kWrite)) == (kDirty | kWrite)) raw |= 0x100;
    if ((flags & kUncached) != 0) raw |= 0x002;
    return raw;
}

Entry decode24(const Format& format, unsigned level, std::uint64_t raw) {
    if (level == kPte) return (raw & kPresent) == 0 ? Entry{} : page(raw, 12, flags26(raw));
    if ((raw & kPageMask) == 0 && (raw & ~kPageMask) == 0) return {};
    if ((raw & ~kPageMask) != 0)
        return {.kind = EntryKind::kMalformed,
                .why = "a 2.4 first-level entry has no flags, and this has some"};
    if (raw < format.kernel_base)
        return {.kind = EntryKind::kMalformed, .why = "the table's virtual address lies below KERNELBASE"};
    return {.kind = EntryKind::kTable, .next = kPte, .address = PhysAddr(raw - format.kernel_base)};
}

Entry decode_pmd(unsigned of_512k, std::uint64_t raw) {
    if ((raw & kPresent) == 0) return {};
    switch (raw & kPmdSize) {
        case 0:
            return {.kind = EntryKind::kTable, .next = kPte, .address = PhysAddr(raw & kPageMask)};
        case kPmd8M:
            return {.kind = EntryKind::kTable, .next = kOf8M, .address = PhysAddr(raw & kPageMask)};
        case kPmd512K:
            if (of_512k == 0)
                return {.kind = EntryKind::kMalformed,
                        .why = "page size 512K, which today's kernels keep in the page"};
            return {.kind = EntryKind::kTable,
                    .next = static_cast<std::uint8_t>(of_512k),
                    .address = PhysAddr(raw & kPageMask)};
        default:
            return {.kind = EntryKind::kMalformed, .why = "page size 10 is reserved"};
    }
}

Entry decode26(const Format&, unsigned level, std::uint64_t raw) {
    if (level == kPgd) return decode_pmd(kOf512K, raw);
    if ((raw & kPresent) == 0) return {};
    return page(raw, level == kPte ? 12 : level == kOf8M ? 23 : 19, flags26(raw));
}

Entry decode_today(const Format&, unsigned level, std::uint64_t raw) {
    if (level == kPgd) return decode_pmd(0, raw);
    if ((raw & kPresent) == 0) return {};
    Flags flags = 0;
    if ((raw & 0x600) == 0) flags |= kRead | kWrite;
    if ((raw & 0x600) == 0x600) flags |= kRead;
    if ((raw & 0x600) == 0x400)
        return {.kind = EntryKind::kMalformed, .why = "access rights 0x400 are reserved"};
    if ((raw & 0x040) != 0) flags |= kExecute;
    if ((raw & 0x004) != 0) flags |= kGlobal;
    if ((raw & 0x080) != 0) flags |= kAccessed;
    if ((raw & 0x100) != 0) flags |= kDirty;
    if ((raw & 0x002) != 0) flags |= kUncached;
    // Kernel pages are shared; whether a page is the user's is the first level's APG, so SH tells them apart
    // here.
    if ((raw & 0x004) == 0) flags |= kUser;
    const bool sps = (raw & 0x008) != 0;
    const bool huge = (raw & 0x800) != 0;
    if (level == kOf8M) return page(raw, 23, flags);
    return page(raw, huge ? 19 : sps ? 14 : 12, flags);
}

std::uint64_t encode_page26(const Format&, const PageSize&, PhysAddr at, Flags flags) {
    return at.value() | bits26(flags);
}

std::uint64_t encode_page_today(const Format&, const PageSize& size, PhysAddr at, Flags flags) {
    std::uint64_t raw = at.value() | kPresent;
    raw |= (flags & kWrite) != 0 ? 0 : (flags & kRead) != 0 ? 0x600 : 0x200;
    if ((flags & kExecute) != 0) raw |= 0x040;
    if ((flags & (kGlobal | kUser)) != kUser) raw |= 0x004;
    if ((flags & kAccessed) != 0) raw |= 0x080;
    if ((flags & kDirty) != 0) raw |= 0x100;
    if ((flags & kUncached) != 0) raw |= 0x002;
    if (size.shift.value() > 12) raw |= 0x008;
    if (size.shift.value() >= 19) raw |= 0x800;
    return raw;
}

std::uint64_t encode_table24(const Format& format, unsigned, PhysAddr table) {
    return table.value() + format.kernel_base;
}

std::uint64_t encode_table26(const Format&, unsigned next, PhysAddr table) {
    return table.value() | kPresent | (next == kOf8M ? kPmd8M : next == kOf512K ? kPmd512K : 0);
}

}  // namespace

constexpr Format kMpc8xxLinux24{
    .name = "mpc8xx-2.4",
    .title = "MPC8xx as Linux 2.4 lays it out: 4-byte entries, 10/10 bits, virtual addresses of tables",
    .source = "head_8xx.S and pgtable.h of Linux 2.4.0; end of the user's half [R]",
    .levels = kLevels24,
    .sizes = kSizes24,
    .table_fields = {},
    .page_fields = kPageFields26,
    .big_endian = true,
    .address_bits = 32,
    .physical_bits = 32,
    .user_root_entries = 512,
    .kernel_base = 0xc0000000,
    .root_mask = kPageMask,
    .decode = decode24,
    .encode_page = encode_page26,
    .encode_table = encode_table24,
};

constexpr Format kMpc8xxLinux26{
    .name = "mpc8xx-2.6",
    .title =
        "MPC8xx as Linux 2.6 lays it out: 4-byte entries, 10/10 bits; 512K and 8M through the first level",
    .source = "head_8xx.S and pgtable.h of Linux 2.6.12-rc2; MPC885 manual 8-10; table of 512K pages [R]",
    .levels = kLevels26,
    .sizes = kSizes26,
    .table_fields = kTableFields,
    .page_fields = kPageFields26,
    .big_endian = true,
    .address_bits = 32,
    .physical_bits = 32,
    .user_root_entries = 512,
    .root_mask = kPageMask,
    .decode = decode26,
    .encode_page = encode_page26,
    .encode_table = encode_table26,
};

constexpr Format kMpc8xx{
    .name = "mpc8xx",
    .title = "MPC8xx as today's Linux lays it out: 4-byte entries, 10/10 bits; 16K, 512K and 8M pages",
    .source = "pgtable.h and head_8xx.S of Linux 019b3fd94b; MPC823 manual 11.5",
    .levels = kLevels,
    .sizes = kSizes,
    .table_fields = kTableFields,
    .page_fields = kPageFields,
    .big_endian = true,
    .address_bits = 32,
    .physical_bits = 32,
    .user_root_entries = 512,
    .root_mask = kPageMask,
    .decode = decode_today,
    .encode_page = encode_page_today,
    .encode_table = encode_table26,
};

}  // namespace tlbscope::pagetable
