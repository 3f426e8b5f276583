// Page-table formats as data: the levels of the tree, how many address bits each takes, how large its entries
// are and in which byte order, and two functions that turn an entry into its meaning and back. One file per
// architecture holds its formats and says where each fact comes from; everything else (walker, tree,
// teardown, caches) reads the data and knows no architecture.
//
// What the formats have in common, and the rest relies on: an entry that is all zero is none, a table in
// which every entry is none is all zero, and a table is aligned to its size.
//
// Two things are less regular than the textbook tree, and both are data here. A page may be larger than what
// one entry covers; then the same value stands in several neighbouring entries (8xx 16K, sparc64 64K to 4M,
// RISC-V 64K). And an entry may choose among several kinds of lower table (8xx: a table of 4K pages, of eight
// 512K pages, or of one 8M page), so `levels` holds these as alternatives of each other, and a decoded entry
// names the one it points to.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/error.h"
#include "core/types.h"

namespace tlbscope::pagetable {

// What an entry allows, in terms common to all formats.
using Flags = std::uint16_t;
inline constexpr Flags kRead = 1;
inline constexpr Flags kWrite = 2;
inline constexpr Flags kExecute = 4;
inline constexpr Flags kUser = 8;
inline constexpr Flags kGlobal = 16;
inline constexpr Flags kAccessed = 32;
inline constexpr Flags kDirty = 64;
inline constexpr Flags kUncached = 128;
// "rwxugad" with a dash for each that is missing, then ", uncached".
[[nodiscard]] std::string flags_text(Flags flags);

struct Level {
    std::string_view name;   // "pgd", "pte"
    std::uint8_t shift = 0;  // an entry covers 1 << shift bytes
    std::uint8_t bits = 0;   // a table has 1 << bits entries
    std::uint8_t entry_bytes = 8;
    std::uint8_t parent = 0;  // index of the level whose entries point to such tables; the root names itself
    std::uint16_t least_bytes = 0;  // a table takes at least as much, whatever its entries need

    [[nodiscard]] constexpr std::size_t entries() const { return std::size_t{1} << bits; }
    [[nodiscard]] constexpr std::size_t table_bytes() const {
        return entries() * entry_bytes < least_bytes ? least_bytes : entries() * entry_bytes;
    }
    // A table covers 1 << span_shift() bytes.
    [[nodiscard]] constexpr unsigned span_shift() const { return shift + bits; }
    [[nodiscard]] constexpr std::size_t index(std::uint64_t address) const {
        return (address >> shift) & (entries() - 1);
    }
};

// A page size and the level whose entries map it.
struct PageSize {
    PageShift shift;
    std::uint8_t level = 0;
};

enum class EntryKind : std::uint8_t {
    kNone,       // nothing there; the value need not be zero (a swap entry)
    kTable,      // points to a table of level `next`
    kPage,       // maps a page
    kMalformed,  // the hardware, or the kernel that wrote it, gives it no meaning: `why`
};

// An entry's meaning.
struct Entry {
    EntryKind kind = EntryKind::kNone;
    std::uint8_t next = 0;      // kTable: index into levels
    PageShift size;             // kPage
    Flags flags = 0;            // kPage
    PhysAddr address;           // of the table or page
    const char* why = nullptr;  // kMalformed, in words; static storage
};

// A bit, or a field with a value, that has a name when an entry is printed.
struct FieldName {
    std::uint64_t mask = 0;
    std::uint64_t value = 0;
    std::string_view word;
};

struct Format {
    std::string_view name;    // what --format takes
    std::string_view title;   // one line
    std::string_view source;  // where the facts come from; [R]: remembered, not confirmed in a primary source
    std::span<const Level> levels;            // [0] is the root
    std::span<const PageSize> sizes;          // ascending; [0] is the base page
    std::span<const FieldName> table_fields;  // names in an entry that points to a table
    std::span<const FieldName> page_fields;   // and in one that maps a page
    bool big_endian = false;
    std::uint8_t address_bits = 0;        // of a virtual address
    bool sign_extended = false;           // the bits above repeat the highest one
    std::uint8_t physical_bits = 0;       // of a physical address an entry can hold
    std::uint32_t user_root_entries = 0;  // of the root table that are a process's own
    std::uint64_t address_base =
        0;  // these bits are set in addresses of one half and stand for no index (radix)
    std::uint64_t kernel_base =
        0;  // entries hold virtual addresses of tables: physical + this (8xx of Linux 2.4)
    std::uint64_t root_mask = ~std::uint64_t{0};  // what of the root register is the root table's address
    // A register that holds no plain address (satp) to the address; nullptr: root_mask says it all.
    std::uint64_t (*root_of_register)(std::uint64_t reg) = nullptr;
    Entry (*decode)(const Format& format, unsigned level, std::uint64_t raw) = nullptr;
    // The entry that maps `page`; `size` must be one of sizes.
    std::uint64_t (*encode_page)(const Format& format, const PageSize& size, PhysAddr page,
                                 Flags flags) = nullptr;
    // The entry that points to a table of level `next`.
    std::uint64_t (*encode_table)(const Format& format, unsigned next, PhysAddr table) = nullptr;

    [[nodiscard]] PageShift base_page() const { return sizes.front().shift; }
    // The page size, or nullptr when the format has none such.
    [[nodiscard]] const PageSize* size_of(PageShift shift) const;
    // Neighbouring entries that hold a page of this size.
    [[nodiscard]] std::size_t copies(const PageSize& size) const {
        return std::size_t{1} << (size.shift.value() - levels[size.level].shift);
    }
    // Whether the hardware would translate it at all: bits above the highest index are as they must be.
    [[nodiscard]] bool canonical(std::uint64_t address) const;
    // The end of what a process may map: one behind its last address.
    [[nodiscard]] std::uint64_t user_end() const;
    // The root table's address from what the architecture's register holds (CR3 with its PCID, TTBR with its
    // ASID, satp): a plain address is itself.
    [[nodiscard]] PhysAddr root(std::uint64_t reg) const;
    // The names of the bits of a raw entry of level `level`, in the order of their mask: "P RW US A".
    [[nodiscard]] std::string fields_text(unsigned level, std::uint64_t raw) const;
};

// An entry at `bytes`: `size` 4 or 8.
[[nodiscard]] std::uint64_t load_entry(const void* bytes, unsigned size, bool big_endian);
void store_entry(void* bytes, unsigned size, bool big_endian, std::uint64_t raw);

// All formats, by family.
[[nodiscard]] std::span<const Format* const> formats();
// By name; the error lists the names, or the nearest one.
[[nodiscard]] Result<const Format*> find_format(const std::string& name);

// One line per architecture's file.
extern const Format kMpc8xxLinux24, kMpc8xxLinux26, kMpc8xx;
extern const Format kSparc64Wide, kSparc64Linux22, kSparc64;
extern const Format kX86, kX86FiveLevels;
extern const Format kArm64;
extern const Format kSv39, kSv48, kSv57;
extern const Format kRadix4K, kRadix64K;

}  // namespace tlbscope::pagetable
