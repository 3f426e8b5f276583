// POWER9 radix: 52 bits in four levels, big-endian; 13/9/9/9 with 4K base pages, 13/9/9/5 with 64K. 2M pages
// in the third level, 1G in the second. A directory entry says how many bits the next table takes (NLS), so
// the hardware could walk other shapes; a table of these formats has Linux's.
//
// Sources: Linux arch/powerpc/include/asm/book3s/64 (valid 63, leaf 62, EXEC 1, W 2, R 4, PRIV 8, NONIDEMP
// 20, TOLERANT 30, DIRTY 80, ACCESSED 100; 13/9/9/9, 13/9/9/5); NLB 0x0fffffffffffff00, NLS 0x1f and RPN
// 0x01fffffffffff000 are [R], and so is that the address bits below a large page's size must be zero.
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kValid = std::uint64_t{1} << 63;
constexpr std::uint64_t kLeaf = std::uint64_t{1} << 62;
constexpr std::uint64_t kRpn = 0x01fffffffffff000;
constexpr std::uint64_t kNextBase = 0x0fffffffffffff00;
constexpr std::uint64_t kNextSize = 0x1f;
constexpr std::uint64_t kX = 0x1;
constexpr std::uint64_t kW = 0x2;
constexpr std::uint64_t kR = 0x4;
constexpr std::uint64_t kPrivileged = 0x8;
constexpr std::uint64_t kAttribute = 0x30;
constexpr std::uint64_t kNonIdempotent = 0x20;
constexpr std::uint64_t kTolerant = 0x30;
constexpr std::uint64_t kDirtyBit = 0x80;
constexpr std::uint64_t kAccessedBit = 0x100;

constexpr std::array kLevels4K{Level{"pgd", 39, 13, 8, 0}, Level{"pud", 30, 9, 8, 0},
                               Level{"pmd", 21, 9, 8, 1}, Level{"pte", 12, 9, 8, 2}};
constexpr std::array kLevels64K{Level{"pgd", 39, 13, 8, 0}, Level{"pud", 30, 9, 8, 0},
                                Level{"pmd", 21, 9, 8, 1}, Level{"pte", 16, 5, 8, 2}};
constexpr std::array kSizes4K{PageSize{PageShift(12), 3}, PageSize{PageShift(21), 2},
                              PageSize{PageShift(30), 1}};
constexpr std::array kSizes64K{PageSize{PageShift(16), 3}, PageSize{PageShift(21), 2},
                               PageSize{PageShift(30), 1}};

constexpr std::array kTableFields{FieldName{kValid, kValid, "V"}, FieldName{kNextSize, 9, "NLS=9"},
                                  FieldName{kNextSize, 5, "NLS=5"}};
constexpr std::array kPageFields{FieldName{kValid, kValid, "V"},
                                 FieldName{kLeaf, kLeaf, "L"},
                                 FieldName{kAccessedBit, kAccessedBit, "ACCESSED"},
                                 FieldName{kDirtyBit, kDirtyBit, "DIRTY"},
                                 FieldName{kAttribute, 0x10, "SAO"},
                                 FieldName{kAttribute, kNonIdempotent, "NONIDEMP"},
                                 FieldName{kAttribute, kTolerant, "TOLERANT"},
                                 FieldName{kPrivileged, kPrivileged, "PRIV"},
                                 FieldName{kR, kR, "R"},
                                 FieldName{kW, kW, "W"},
                                 FieldName{kX, kX, "X"}};

Entry decode(const Format& format, unsigned level, std::uint64_t raw) {
    if ((raw & kValid) == 0) return {};
    const std::size_t last = format.levels.size() - 1;
    if ((raw & kLeaf) == 0) {
        if (level == last) return {.kind = EntryKind::kMalformed, .why = "a pointer at the last level"};
        const Level& next = format.levels[level + 1];
        if ((raw & kNextSize) != next.bits)
            return {.kind = EntryKind::kMalformed, .why = "NLS is not the size of this format's next table"};
        const std::uint64_t table = raw & kNextBase;
        if ((table & (next.table_bytes() - 1)) != 0)
            return {.kind = EntryKind::kMalformed, .why = "the table's address is not aligned to its size"};
        return {.kind = EntryKind::kTable,
                .next = static_cast<std::uint8_t>(level + 1),
                .address = PhysAddr(table)};
    }
    if (level == 0) return {.kind = EntryKind::kMalformed, .why = "there are no pages of 512G"};
    const unsigned shift = format.levels[level].shift;
    const std::uint64_t page = raw & kRpn;
    if ((page & ((std::uint64_t{1} << shift) - 1)) != 0)
        return {.kind = EntryKind::kMalformed, .why = "the frame is not aligned to the page's size"};
    Flags flags = 0;
    if ((raw & kR) != 0) flags |= kRead;
    if ((raw & kW) != 0) flags |= kWrite;
    if ((raw & kX) != 0) flags |= kExecute;
    if ((raw & kPrivileged) == 0) flags |= kUser;
    if ((raw & kAccessedBit) != 0) flags |= kAccessed;
    if ((raw & kDirtyBit) != 0) flags |= kDirty;
    if ((raw & kNonIdempotent) != 0) flags |= kUncached;
    return {.kind = EntryKind::kPage,
            .size = PageShift(static_cast<std::uint8_t>(shift)),
            .flags = flags,
            .address = PhysAddr(page)};
}

std::uint64_t encode_page(const Format&, const PageSize&, PhysAddr page, Flags flags) {
    std::uint64_t raw = page.value() | kValid | kLeaf;
    if ((flags & kRead) != 0) raw |= kR;
    if ((flags & kWrite) != 0) raw |= kW;
    if ((flags & kExecute) != 0) raw |= kX;
    if ((flags & kUser) == 0) raw |= kPrivileged;
    if ((flags & kAccessed) != 0) raw |= kAccessedBit;
    if ((flags & kDirty) != 0) raw |= kDirtyBit;
    if ((flags & kUncached) != 0) raw |= kNonIdempotent;
    return raw;
}

std::uint64_t encode_table(const Format& format, unsigned next, PhysAddr table) {
    return table.value() | kValid | format.levels[next].bits;
}

constexpr Format radix(std::string_view name, std::string_view title, std::span<const Level> levels,
                       std::span<const PageSize> sizes) {
    return {.name = name,
            .title = title,
            .source = "Linux arch/powerpc/include/asm/book3s/64; NLB, NLS and RPN masks [R]",
            .levels = levels,
            .sizes = sizes,
            .table_fields = kTableFields,
            .page_fields = kPageFields,
            .big_endian = true,
            .address_bits = 52,
            .sign_extended = false,
            .physical_bits = 57,
            .user_root_entries = 8192,
            // The kernel's quadrant: 0xc in the top bits stands for no index.
            .address_base = 0xc000000000000000,
            .root_mask = kNextBase,
            .decode = decode,
            .encode_page = encode_page,
            .encode_table = encode_table};
}

}  // namespace

constexpr Format kRadix4K =
    radix("radix-4k", "POWER9 radix with 4K pages, 13/9/9/9 bits; 4K, 2M and 1G pages", kLevels4K, kSizes4K);
constexpr Format kRadix64K = radix(
    "radix-64k", "POWER9 radix with 64K pages, 13/9/9/5 bits; 64K, 2M and 1G pages", kLevels64K, kSizes64K);

}  // namespace tlbscope::pagetable
