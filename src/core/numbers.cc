#include "core/numbers.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>

namespace tlbscope {

std::string grouped(std::uint64_t n) {
    std::string text = std::to_string(n);
    for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
        text.insert(static_cast<std::size_t>(at), 1, ',');
    return text;
}

std::string human_bytes(std::uint64_t bytes) {
    static constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return fmt::format("{} B", bytes);
    double amount = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (amount >= 1024 && unit + 1 < kUnits.size()) {
        amount /= 1024;
        ++unit;
    }
    return fmt::format("{:.1f} {}", amount, kUnits[unit]);
}

std::string size_name(std::uint64_t bytes) {
    static constexpr std::array kUnits{"", "K", "M", "G", "T"};
    std::size_t unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < kUnits.size()) {
        bytes /= 1024;
        ++unit;
    }
    return fmt::format("{}{}", bytes, kUnits[unit]);
}

std::uint64_t parse_size(const std::string& text) {
    std::uint64_t amount = 0;
    const char* end = text.data() + text.size();
    auto [rest, code] = std::from_chars(text.data(), end, amount);
    if (code != std::errc{}) return 0;
    std::string unit;
    for (const char* c = rest; c != end; ++c)
        unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
    if (unit.ends_with("ib"))
        unit.resize(unit.size() - 2);
    else if (unit.ends_with("b"))
        unit.pop_back();
    if (unit.empty()) return amount;
    static constexpr std::string_view kUnits = "kmgt";
    const auto power = kUnits.find(unit[0]);
    if (unit.size() != 1 || power == std::string_view::npos) return 0;
    const auto shift = 10 * (power + 1);
    return amount > (~std::uint64_t{0} >> shift) ? 0 : amount << shift;
}

}  // namespace tlbscope
