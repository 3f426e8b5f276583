// ARMv8 with the 4K granule: four levels of 512 eight-byte descriptors, 48 bits; 2M blocks at level 2, 1G at
// level 1. Addresses whose upper bits are ones belong to TTBR1: a second root with the same layout.
//
// Sources: as remembered from the ARMv8-A manual, D5 [R]: bits 1:0 are 11 for a table or page and 01 for a
// block (levels 1 and 2), AttrIndx 4:2, NS 5, AP 7:6, SH 9:8, AF 10, nG 11, output address 47:12, DBM 51,
// Contiguous 52, PXN 53, UXN 54; of a table NSTable 63, APTable 62:61, UXNTable 60, PXNTable 59. Bit 55 is
// Linux's dirty bit, AttrIndx 0 its normal memory and 3 its device memory [R].
#include <array>

#include "pagetable/format.h"

namespace tlbscope::pagetable {

namespace {

constexpr std::uint64_t kValid = 1;
constexpr std::uint64_t kTableOrPage = 2;
constexpr std::uint64_t kAttribute = 0x1c;
constexpr std::uint64_t kDevice = 0x0c;
constexpr std::uint64_t kEl0 = 0x40;
constexpr std::uint64_t kReadOnly = 0x80;
constexpr std::uint64_t kInnerShareable = 0x300;
constexpr std::uint64_t kAccessFlag = 0x400;
constexpr std::uint64_t kNotGlobal = 0x800;
constexpr std::uint64_t kAddress = 0x0000fffffffff000;
constexpr std::uint64_t kPrivilegedNever = std::uint64_t{1} << 53;
constexpr std::uint64_t kUserNever = std::uint64_t{1} << 54;
constexpr std::uint64_t kSoftDirty = std::uint64_t{1} << 55;

constexpr std::array kLevels{Level{"level 0", 39, 9, 8, 0}, Level{"level 1", 30, 9, 8, 0},
                             Level{"level 2", 21, 9, 8, 1}, Level{"level 3", 12, 9, 8, 2}};
constexpr std::array kSizes{PageSize{PageShift(12), 3}, PageSize{PageShift(21), 2},
                            PageSize{PageShift(30), 1}};

constexpr FieldName bit(unsigned n, std::string_view word) {
    return {std::uint64_t{1} << n, std::uint64_t{1} << n, word};
}
constexpr std::array kTableFields{FieldName{3, 3, "table"}, bit(59, "PXNTable"), bit(60, "UXNTable"),
                                  bit(61, "APTable0"),      bit(62, "APTable1"), bit(63, "NSTable")};
constexpr std::array kPageFields{FieldName{3, 3, "page"},
                                 FieldName{3, 1, "block"},
                                 FieldName{kAttribute, 0x00, "Attr0"},
                                 FieldName{kAttribute, 0x04, "Attr1"},
                                 FieldName{kAttribute, 0x08, "Attr2"},
                                 FieldName{kAttribute, 0x0c, "Attr3"},
                                 FieldName{kAttribute, 0x10, "Attr4"},
                                 FieldName{kAttribute, 0x14, "Attr5"},
                                 FieldName{kAttribute, 0x18, "Attr6"},
                                 FieldName{kAttribute, 0x1c, "Attr7"},
                                 bit(5, "NS"),
                                 bit(6, "AP1"),
                                 bit(7, "AP2"),
                                 FieldName{0x300, 0x200, "SH=outer"},
                                 FieldName{0x300, 0x300, "SH=inner"},
                                 bit(10, "AF"),
                                 bit(11, "nG"),
                                 bit(51, "DBM"),
                                 bit(52, "Contig"),
                                 bit(53, "PXN"),
                                 bit(54, "UXN")};

Entry decode(const Format& format, unsigned level, std::uint64_t raw) {
    if ((raw & kValid) == 0) return {};
    const unsigned shift = format.levels[level].shift;
    const bool last = shift == 12;
    const bool table_or_page = (raw & kTableOrPage) != 0;
    if (!last && table_or_page)
        return {.kind = EntryKind::kTable,
                .next = static_cast<std::uint8_t>(level + 1),
                .address = PhysAddr(raw & kAddress)};
    if (last && !table_or_page)
        return {.kind = EntryKind::kMalformed, .why = "01 is reserved at level 3: a page is 11"};
    if (level == 0) return {.kind = EntryKind::kMalformed, .why = "there are no blocks at level 0"};
    const std::uint64_t below = ((std::uint64_t{1} << shift) - 1) & kAddress;
    if ((raw & below) != 0)
        return {.kind = EntryKind::kMalformed, .why = "reserved address bits of a block are set"};
    Flags flags = kRead;
    const bool user = (raw & kEl0) != 0;
    if ((raw & kReadOnly) == 0) flags |= kWrite;
    if ((raw & (user ? kUserNever : kPrivilegedNever)) == 0) flags |= kExecute;
    if (user) flags |= kUser;
    if ((raw & kNotGlobal) == 0) flags |= kGlobal;
    if ((raw & kAccessFlag) != 0) flags |= kAccessed;
    if ((raw & kSoftDirty) != 0) flags |= kDirty;
    if ((raw & kAttribute) == kDevice) flags |= kUncached;
    return {.kind = EntryKind::kPage,
            .size = PageShift(static_cast<std::uint8_t>(shift)),
            .flags = flags,
            .address = PhysAddr(raw & kAddress)};
}

std::uint64_t encode_page(const Format&, const PageSize& size, PhysAddr page, Flags flags) {
    std::uint64_t raw = page.value() | kValid | kInnerShareable;
    if (size.shift.value() == 12) raw |= kTableOrPage;
    if ((flags & kWrite) == 0) raw |= kReadOnly;
    if ((flags & kUser) != 0) raw |= kEl0 | kPrivilegedNever;
    if ((flags & kUser) == 0) raw |= kUserNever;
    if ((flags & kExecute) == 0) raw |= kUserNever | kPrivilegedNever;
    if ((flags & kGlobal) == 0) raw |= kNotGlobal;
    if ((flags & kAccessed) != 0) raw |= kAccessFlag;
    if ((flags & kDirty) != 0) raw |= kSoftDirty;
    if ((flags & kUncached) != 0) raw |= kDevice;
    return raw;
}

std::uint64_t encode_table(const Format&, unsigned, PhysAddr table) {
    return table.value() | kValid | kTableOrPage;
}

}  // namespace

constexpr Format kArm64{.name = "arm64",
                        .title = "ARMv8, 4K granule, 4 levels of 9 bits; 4K pages, 2M and 1G blocks",
                        .source = "ARMv8-A manual, D5 [R]",
                        .levels = kLevels,
                        .sizes = kSizes,
                        .table_fields = kTableFields,
                        .page_fields = kPageFields,
                        .address_bits = 48,
                        // Bit 63:48 choose the root, bit 47 is an index bit in both.
                        .sign_extended = false,
                        .physical_bits = 48,
                        .user_root_entries = 512,
                        .address_base = 0xffff000000000000,
                        .root_mask = 0x0000fffffffffffe,
                        .decode = decode,
                        .encode_page = encode_page,
                        .encode_table = encode_table};

}  // namespace tlbscope::pagetable
