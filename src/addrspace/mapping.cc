#include "addrspace/mapping.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>

#include "core/nearest.h"
#include "core/numbers.h"

namespace tlbscope::addrspace {

namespace {

std::optional<std::uint64_t> address_of(std::string_view text) {
    if (!text.starts_with("0x") && !text.starts_with("0X")) return std::nullopt;
    text.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
    if (code != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

std::unexpected<Error> bad(const std::string& text, const std::string& what, std::string hint) {
    return std::unexpected(Error{.where = "",
                                 .what = fmt::format("mapping rule \"{}\": {}", text, what),
                                 .hint = std::move(hint),
                                 .error_class = ErrorClass::kUsage});
}

std::vector<std::string> words() {
    std::vector<std::string> words{"user", "kernel", "all"};
    for (std::size_t i = 0; i + 1 < kRegions; ++i) words.emplace_back(name_of(static_cast<Region>(i)));
    return words;
}

}  // namespace

bool MappingRule::covers(Region where, Side of, std::uint64_t address) const {
    if (range) return address >= range->start && (address < range->end || range->end == 0);
    if (side) return of == *side;
    return !region || where == *region;
}

std::string MappingRule::text() const {
    return fmt::format("{}{}{}", what, pinned ? ":" : "=", size_name(size.bytes()));
}

Result<MappingRule> parse_rule(const std::string& text, bool pinned) {
    const char separator = pinned ? ':' : '=';
    const std::string form = pinned ? "write REGION:SIZE or 0xADDRESS:SIZE, such as kernel-text:8M"
                                    : "write REGION=SIZE or 0xSTART-0xEND=SIZE, such as kernel-linear=8M";
    const std::size_t at = text.rfind(separator);
    if (at == std::string::npos || at == 0 || at + 1 == text.size())
        return bad(text, fmt::format("it has no {}SIZE", separator), form);
    MappingRule rule;
    rule.what = text.substr(0, at);
    rule.pinned = pinned;
    const std::uint64_t bytes = parse_size(text.substr(at + 1));
    if (!std::has_single_bit(bytes) || bytes < 4096)
        return bad(text, fmt::format("\"{}\" is no page size", text.substr(at + 1)),
                   "give a power of two from 4K up, such as 64K or 8M");
    rule.size = PageShift(static_cast<std::uint8_t>(std::countr_zero(bytes)));
    if (rule.what.starts_with("0x")) {
        const std::size_t dash = rule.what.find('-');
        const auto start = address_of(rule.what.substr(0, dash));
        if (!start) return bad(text, "the start is no hexadecimal address", form);
        if (dash == std::string::npos) {
            // The one page the address lies in.
            const std::uint64_t first = *start & ~(bytes - 1);
            rule.range = AddressRange{first, first + bytes};
            return rule;
        }
        const auto end = address_of(rule.what.substr(dash + 1));
        if (!end) return bad(text, "the end is no hexadecimal address", form);
        if (*end <= *start && *end != 0)
            return bad(text, "the range is empty", "give the end behind the start");
        rule.range = AddressRange{*start, *end};
        return rule;
    }
    if (rule.what == "all") return rule;
    if (rule.what == "user" || rule.what == "kernel") {
        rule.side = rule.what == "user" ? Side::kUser : Side::kKernel;
        return rule;
    }
    rule.region = region_named(rule.what);
    if (!rule.region || *rule.region == Region::kUnknown) {
        const std::string guess = nearest(rule.what, words());
        return bad(text, fmt::format("there is no region {}", rule.what),
                   guess.empty() ? fmt::format("regions are {}", fmt::join(words(), ", "))
                                 : fmt::format("did you mean {}?", guess));
    }
    return rule;
}

Mapping::Answer Mapping::at(SpaceId recorded, VirtAddr address, Side side, const RegionOf& region_of,
                            bool pins) const {
    std::optional<Region> region;
    for (const bool pinned : {true, false}) {
        if (pinned && !pins) continue;
        for (auto rule = rules_.rbegin(); rule != rules_.rend(); ++rule) {
            if (rule->pinned != pinned) continue;
            if (rule->needs_region() && !region)
                region = region_of ? region_of(recorded, address) : Region::kUnknown;
            if (rule->covers(region.value_or(Region::kUnknown), side, address.value()))
                return {.size = rule->size, .pin = pinned ? &*rule : nullptr, .rule = &*rule};
        }
    }
    return {.size = base_};
}

bool Mapping::needs_regions() const {
    return std::any_of(rules_.begin(), rules_.end(),
                       [](const MappingRule& rule) { return rule.needs_region(); });
}

std::string Mapping::text() const {
    std::string text = size_name(base_.bytes());
    const char* separator = "; ";
    for (const MappingRule& rule : rules_) {
        text += separator + rule.text() + (rule.pinned ? " pinned" : "");
        separator = ", ";
    }
    return text;
}

}  // namespace tlbscope::addrspace
