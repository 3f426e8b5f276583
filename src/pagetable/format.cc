#include "pagetable/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "core/nearest.h"

namespace tlbscope::pagetable {

std::string flags_text(Flags flags) {
    static constexpr std::string_view kLetters = "rwxugad";
    std::string text;
    for (std::size_t bit = 0; bit < kLetters.size(); ++bit)
        text += (flags >> bit & 1) != 0 ? kLetters[bit] : '-';
    if ((flags & kUncached) != 0) text += ", uncached";
    return text;
}

const PageSize* Format::size_of(PageShift shift) const {
    for (const PageSize& size : sizes)
        if (size.shift == shift) return &size;
    return nullptr;
}

bool Format::canonical(std::uint64_t address) const {
    if (address_base != 0 && (address & address_base) == address_base) address &= ~address_base;
    if (address_bits >= 64) return true;
    const std::uint64_t above = address >> address_bits;
    if (above == 0) return !sign_extended || (address >> (address_bits - 1) & 1) == 0;
    return sign_extended && static_cast<std::int64_t>(address) >> (address_bits - 1) == -1;
}

std::uint64_t Format::user_end() const {
    const std::uint64_t tables = static_cast<std::uint64_t>(user_root_entries) << levels[0].shift;
    const std::uint64_t half = std::uint64_t{1} << (address_bits - (sign_extended ? 1 : 0));
    return std::min(tables, half);
}

PhysAddr Format::root(std::uint64_t reg) const {
    return PhysAddr((root_of_register == nullptr ? reg : root_of_register(reg)) & root_mask);
}

std::string Format::fields_text(unsigned level, std::uint64_t raw) const {
    const Entry entry = decode(*this, level, raw);
    if (entry.kind == EntryKind::kNone) return raw == 0 ? "" : "not present, but not zero";
    std::string text;
    for (const FieldName& field : entry.kind == EntryKind::kTable ? table_fields : page_fields) {
        if ((raw & field.mask) != field.value) continue;
        if (!text.empty()) text += ' ';
        text += field.word;
    }
    return text;
}

std::uint64_t load_entry(const void* bytes, unsigned size, bool big_endian) {
    const bool swap = big_endian == (std::endian::native == std::endian::little);
    if (size == 4) {
        std::uint32_t raw = 0;
        std::memcpy(&raw, bytes, sizeof raw);
        return swap ? __builtin_bswap32(raw) : raw;
    }
    std::uint64_t raw = 0;
    std::memcpy(&raw, bytes, sizeof raw);
    return swap ? __builtin_bswap64(raw) : raw;
}

void store_entry(void* bytes, unsigned size, bool big_endian, std::uint64_t raw) {
    const bool swap = big_endian == (std::endian::native == std::endian::little);
    if (size == 4) {
        auto narrow = static_cast<std::uint32_t>(raw);
        if (swap) narrow = __builtin_bswap32(narrow);
        std::memcpy(bytes, &narrow, sizeof narrow);
        return;
    }
    if (swap) raw = __builtin_bswap64(raw);
    std::memcpy(bytes, &raw, sizeof raw);
}

std::span<const Format* const> formats() {
    static constexpr std::array kAll{
        &kMpc8xxLinux24, &kMpc8xxLinux26, &kMpc8xx, &kSparc64Wide, &kSparc64Linux22, &kSparc64, &kX86,
        &kX86FiveLevels, &kArm64,         &kSv39,   &kSv48,        &kSv57,           &kRadix4K, &kRadix64K};
    return kAll;
}

Result<const Format*> find_format(const std::string& name) {
    std::vector<std::string> names;
    for (const Format* format : formats()) {
        if (format->name == name) return format;
        names.emplace_back(format->name);
    }
    const std::string guess = nearest(name, names);
    return fail("", fmt::format("there is no page-table format {}", name),
                guess.empty() ? fmt::format("there are {}", fmt::join(names, ", "))
                              : fmt::format("did you mean {}?", guess));
}

}  // namespace tlbscope::pagetable
