// x86-64 long mode: four or five levels of 512 eight-byte entries; 4K pages, 2M in the second level from
// below, 1G in the third.
//
// Sources: as remembered from the Intel manual, volume 3, chapter 4 [R]: P 0, RW 1, US 2, PWT 3, PCD 4, A 5,
// D 6, PS 7 (PAT in a 4K page), G 8, address 51:12, PAT of a large page 12, protection key 62:59, NX 63.
// Reserved bits: the address bits below a large page's size, PS in the two top levels.
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kPresent = 1;
constexpr std::uint64_t kWritable = 2;
constexpr std::uint64_t kUserMode = 4;
constexpr std::uint64_t kNoCache = 0x10;
constexpr std::uint64_t kAccessedBit = 0x20;
constexpr std::uint64_t kDirtyBit = 0x40;
constexpr std::uint64_t kLarge = 0x80;
constexpr std::uint64_t kGlobalBit = 0x100;
constexpr std::uint64_t kNoExecute = std::uint64_t{1} << 63;
constexpr std::uint64_t kAddress = 0x000ffffffffff000;
constexpr std::uint64_t kLargePat = 0x1000;

constexpr std::array kFive{Level{"p5d", 48, 9, 8, 0}, Level{"p4d", 39, 9, 8, 0}, Level{"pud", 30, 9, 8, 1},
                           Level{"pmd", 21, 9, 8, 2}, Level{"pte", 12, 9, 8, 3}};
constexpr std::array kFour{Level{"pgd", 39, 9, 8, 0}, Level{"pud", 30, 9, 8, 0}, Level{"pmd", 21, 9, 8, 1},
                           Level{"pte", 12, 9, 8, 2}};
constexpr std::array kFiveSizes{PageSize{PageShift(12), 4}, PageSize{PageShift(21), 3},
                                PageSize{PageShift(30), 2}};
constexpr std::array kFourSizes{PageSize{PageShift(12), 3}, PageSize{PageShift(21), 2},
                                PageSize{PageShift(30), 1}};

constexpr std::array kTableFields{FieldName{1, 1, "P"},
                                  FieldName{2, 2, "RW"},
                                  FieldName{4, 4, "US"},
                                  FieldName{8, 8, "PWT"},
                                  FieldName{16, 16, "PCD"},
                                  FieldName{32, 32, "A"},
                                  FieldName{kNoExecute, kNoExecute, "NX"}};
constexpr std::array kPageFields{FieldName{1, 1, "P"},     FieldName{2, 2, "RW"},
                                 FieldName{4, 4, "US"},    FieldName{8, 8, "PWT"},
                                 FieldName{16, 16, "PCD"}, FieldName{32, 32, "A"},
                                 FieldName{64, 64, "D"},   FieldName{128, 128, "PS/PAT"},
                                 FieldName{256, 256, "G"}, FieldName{kNoExecute, kNoExecute, "NX"}};

Entry decode(const Format& format, unsigned level, std::uint64_t raw) {
    if ((raw & kPresent) == 0) return {};
    const unsigned shift = format.levels[level].shift;
    const bool last = shift == 12;
    if (!last && (raw & kLarge) == 0)
        return {.kind = EntryKind::kTable,
                .next = static_cast<std::uint8_t>(level + 1),
                .address = PhysAddr(raw & kAddress)};
    if (shift > 30) return {.kind = EntryKind::kMalformed, .why = "PS is reserved at this level"};
    const std::uint64_t below = ((std::uint64_t{1} << shift) - 1) & kAddress;
    if (!last && (raw & below & ~kLargePat) != 0)
        return {.kind = EntryKind::kMalformed, .why = "reserved address bits of a large page are set"};
    Flags flags = kRead;
    if ((raw & kWritable) != 0) flags |= kWrite;
    if ((raw & kNoExecute) == 0) flags |= kExecute;
    if ((raw & kUserMode) != 0) flags |= kUser;
    if ((raw & kGlobalBit) != 0) flags |= kGlobal;
    if ((raw & kAccessedBit) != 0) flags |= kAccessed;
    if ((raw & kDirtyBit) != 0) flags |= kDirty;
    if ((raw & kNoCache) != 0) flags |= kUncached;
    return {.kind = EntryKind::kPage,
            .size = PageShift(static_cast<std::uint8_t>(shift)),
            .flags = flags,
            .address = PhysAddr(raw & kAddress & ~below)};
}

std::uint64_t encode_page(const Format&, const PageSize& size, PhysAddr page, Flags flags) {
    std::uint64_t raw = page.value() | kPresent;
    if (size.shift.value() > 12) raw |= kLarge;
    if ((flags & kWrite) != 0) raw |= kWritable;
    if ((flags & kExecute) == 0) raw |= kNoExecute;
    if ((flags & kUser) != 0) raw |= kUserMode;
    if ((flags & kGlobal) != 0) raw |= kGlobalBit;
    if ((flags & kAccessed) != 0) raw |= kAccessedBit;
    if ((flags & kDirty) != 0) raw |= kDirtyBit;
    if ((flags & kUncached) != 0) raw |= kNoCache;
    return raw;
}

// As Linux's _PAGE_TABLE: everything allowed here, the pages decide.
std::uint64_t encode_table(const Format&, unsigned, PhysAddr table) {
    return table.value() | kPresent | kWritable | kUserMode | kAccessedBit | kDirtyBit;
}

constexpr Format x86(std::string_view name, std::string_view title, std::span<const Level> levels,
                     std::span<const PageSize> sizes, std::uint8_t bits) {
    return {.name = name,
            .title = title,
            .source = "Intel 64 manual, volume 3, chapter 4 [R]",
            .levels = levels,
            .sizes = sizes,
            .table_fields = kTableFields,
            .page_fields = kPageFields,
            .address_bits = bits,
            .sign_extended = true,
            .physical_bits = 52,
            .user_root_entries = 256,
            .root_mask = kAddress,
            .decode = decode,
            .encode_page = encode_page,
            .encode_table = encode_table};
}

}  // namespace

constexpr Format kX86 =
    x86("x86-64", "x86-64, 4 levels of 9 bits; 4K, 2M and 1G pages", kFour, kFourSizes, 48);
constexpr Format kX86FiveLevels =
    x86("x86-64-5", "x86-64, 5 levels of 9 bits (LA57); 4K, 2M and 1G pages", kFive, kFiveSizes, 57);

}  // namespace tlbscope::pagetable
