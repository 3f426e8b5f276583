// sparc64 under Linux, three levels of 8K base pages. The miss handler reads the last level through a linear
// virtual table and walks the two upper ones only when that misses too, so smaller upper entries mean fewer
// lines for the walk.
//
//   before   1024 x 8 bytes at each level, physical addresses; 43 bits
//   2.2      Jakub Jelinek's tables as merged (2.2.1 pgtable.h): pgd 1024 x 4, pmd 2048 x 4, pte 1024 x 8; 44
//   bits. The
//            upper entries are the low 32 bits of the physical address
//   2.4      the same with physical address >> 11 in the upper entries
//
// A pgd maps 16 GiB an entry; the last one of 2.2's and 2.4's is the linear table itself, so a process has
// 1023. The page entry is the hardware's TTE; Linux keeps its own bits in the TTE's soft field, and clears
// VALID to see an access, so a page is there when PRESENT is. Larger pages are the TTE's sizes, the same TTE
// in each of the entries it covers [R].
//
// Sources: 2.2.1 and 2.4 include/asm-sparc64/pgtable.h, UltraSPARC user's manual p. 69 (TTE). The layout
// before is presumed from the thread's arithmetic [R].
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kValid = std::uint64_t{1} << 63;
constexpr unsigned kSizeShift = 61;                     // 62:61: 8K, 64K, 512K, 4M
constexpr std::uint64_t kAddress = 0x000001ffffffe000;  // 40:13
constexpr std::uint64_t kPresent = 0x080;
constexpr std::uint64_t kSoftWrite = 0x100;
constexpr std::uint64_t kSoftRead = 0x200;
constexpr std::uint64_t kSoftAccessed = 0x400;
constexpr std::uint64_t kSoftModified = 0x800;
constexpr std::uint64_t kCachedPhysical = 0x20;
constexpr std::uint64_t kCachedVirtual = 0x10;
constexpr std::uint64_t kSideEffect = 0x08;
constexpr std::uint64_t kPrivileged = 0x04;
constexpr std::uint64_t kHardWrite = 0x02;
constexpr std::uint64_t kHardGlobal = 0x01;

constexpr std::array kNarrow{Level{"pgd", 34, 10, 4, 0}, Level{"pmd", 23, 11, 4, 0},
                             Level{"pte", 13, 10, 8, 1}};
constexpr std::array kWide{Level{"pgd", 33, 10, 8, 0}, Level{"pmd", 23, 10, 8, 0},
                           Level{"pte", 13, 10, 8, 1}};
constexpr std::array kSizes{PageSize{PageShift(13), 2}, PageSize{PageShift(16), 2},
                            PageSize{PageShift(19), 2}, PageSize{PageShift(22), 2}};
constexpr std::array kPageFields{FieldName{kValid, kValid, "VALID"},
                                 FieldName{std::uint64_t{3} << 61, std::uint64_t{1} << 61, "SZ=64K"},
                                 FieldName{std::uint64_t{3} << 61, std::uint64_t{2} << 61, "SZ=512K"},
                                 FieldName{std::uint64_t{3} << 61, std::uint64_t{3} << 61, "SZ=4M"},
                                 FieldName{std::uint64_t{1} << 60, std::uint64_t{1} << 60, "NFO"},
                                 FieldName{std::uint64_t{1} << 59, std::uint64_t{1} << 59, "IE"},
                                 FieldName{0x800, 0x800, "MODIFIED"},
                                 FieldName{0x400, 0x400, "ACCESSED"},
                                 FieldName{0x200, 0x200, "READ"},
                                 FieldName{0x100, 0x100, "WRITE"},
                                 FieldName{0x80, 0x80, "PRESENT"},
                                 FieldName{0x40, 0x40, "L"},
                                 FieldName{0x20, 0x20, "CP"},
                                 FieldName{0x10, 0x10, "CV"},
                                 FieldName{0x08, 0x08, "E"},
                                 FieldName{0x04, 0x04, "P"},
                                 FieldName{0x02, 0x02, "W"},
                                 FieldName{0x01, 0x01, "G"}};

Entry decode_page(std::uint64_t raw) {
    if ((raw & kPresent) == 0) return {};
    const auto shift = static_cast<std::uint8_t>(13 + 3 * (raw >> kSizeShift & 3));
    Flags flags = 0;
    if ((raw & kSoftRead) != 0) flags |= kRead | kExecute;  // the hardware has no execute bit
    if ((raw & kSoftWrite) != 0) flags |= kWrite;
    if ((raw & kPrivileged) == 0) flags |= kUser;
    if ((raw & kHardGlobal) != 0) flags |= kGlobal;
    if ((raw & kSoftAccessed) != 0) flags |= kAccessed;
    if ((raw & kSoftModified) != 0) flags |= kDirty;
    if ((raw & kSideEffect) != 0 || (raw & kCachedPhysical) == 0) flags |= kUncached;
    if ((raw & kHardWrite) != 0 && (raw & kSoftWrite) == 0)
        return {.kind = EntryKind::kMalformed, .why = "the hardware may write where Linux says nobody may"};
    if ((raw & kAddress & ((std::uint64_t{1} << shift) - 1)) != 0)
        return {.kind = EntryKind::kMalformed, .why = "the frame is not aligned to the page's size"};
    return {.kind = EntryKind::kPage,
            .size = PageShift(shift),
            .flags = flags,
            .address = PhysAddr(raw & kAddress)};
}

// shift: how far the physical address is shifted right in an upper entry.
Entry decode_upper(const Format& format, unsigned level, std::uint64_t raw, unsigned shift) {
    if (raw == 0) return {};
    const std::uint64_t table = raw << shift;
    const auto next = static_cast<std::uint8_t>(level + 1);
    if ((table & (format.levels[next].table_bytes() - 1)) != 0)
        return {.kind = EntryKind::kMalformed, .why = "the table's address is not aligned to its size"};
    if (table >> format.physical_bits != 0)
        return {.kind = EntryKind::kMalformed, .why = "the table's address has more than 41 bits"};
    return {.kind = EntryKind::kTable, .next = next, .address = PhysAddr(table)};
}

Entry decode_plain(const Format& format, unsigned level, std::uint64_t raw) {
    return level == 2 ? decode_page(raw) : decode_upper(format, level, raw, 0);
}

Entry decode_shifted(const Format& format, unsigned level, std::uint64_t raw) {
    return level == 2 ? decode_page(raw) : decode_upper(format, level, raw, 11);
}

std::uint64_t encode_page(const Format&, const PageSize& size, PhysAddr page, Flags flags) {
    std::uint64_t raw = page.value() | kValid | kPresent;
    raw |= static_cast<std::uint64_t>((size.shift.value() - 13) / 3) << kSizeShift;
    if ((flags & kRead) != 0) raw |= kSoftRead;
    if ((flags & kWrite) != 0) raw |= kSoftWrite;
    if ((flags & (kWrite | kDirty)) == (kWrite | kDirty)) raw |= kHardWrite;
    if ((flags & kUser) == 0) raw |= kPrivileged;
    if ((flags & kGlobal) != 0) raw |= kHardGlobal;
    if ((flags & kAccessed) != 0) raw |= kSoftAccessed;
    if ((flags & kDirty) != 0) raw |= kSoftModified;
    raw |= (flags & kUncached) != 0 ? kSideEffect : kCachedPhysical | kCachedVirtual;
    return raw;
}

std::uint64_t encode_plain(const Format&, unsigned, PhysAddr table) { return table.value(); }
std::uint64_t encode_shifted(const Format&, unsigned, PhysAddr table) { return table.value() >> 11; }

constexpr Format narrow(std::string_view name, std::string_view title, std::string_view source) {
    return {.name = name,
            .title = title,
            .source = source,
            .levels = kNarrow,
            .sizes = kSizes,
            .table_fields = {},
            .page_fields = kPageFields,
            .big_endian = true,
            .address_bits = 44,
            .sign_extended = true,
            .physical_bits = 41,
            .user_root_entries = 1023};
}

constexpr Format with(Format format, decltype(Format::decode) decode,
                      decltype(Format::encode_table) encode_table) {
    format.decode = decode;
    format.encode_page = encode_page;
    format.encode_table = encode_table;
    return format;
}

constexpr Format wide() {
    Format format =
        narrow("sparc64-wide", "sparc64 before 32-bit tables: 8-byte entries, 10/10/10 bits, 8K pages",
               "presumed from thread 2's arithmetic: 1024 + 1024 entries of 8 bytes [R]");
    format.levels = kWide;
    format.address_bits = 43;
    format.user_root_entries = 1024;
    return format;
}

}  // namespace

constexpr Format kSparc64Wide = with(wide(), decode_plain, encode_plain);
constexpr Format kSparc64Linux22 = with(
    narrow("sparc64-2.2", "sparc64 of Linux 2.2: 4-byte pgd and pmd entries (pa), 10/11/10 bits, 8K pages",
           "Linux 2.2.1 include/asm-sparc64/pgtable.h; UltraSPARC manual p. 69"),
    decode_plain, encode_plain);
constexpr Format kSparc64 =
    with(narrow("sparc64", "sparc64 of Linux 2.4 and later: 4-byte pgd and pmd entries (pa >> 11), 8K pages",
                "Linux 2.4 include/asm-sparc64/pgtable.h; UltraSPARC manual p. 69"),
         decode_shifted, encode_shifted);

}  // namespace tlbscope::pagetable
