#include "explain/jit_map.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>

namespace tlbscope::explain {

namespace {

std::optional<std::uint64_t> hexadecimal(std::string_view word) {
    if (word.starts_with("0x")) word.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, 16);
    if (word.empty() || error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
}

std::optional<Symbol> parse_line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t first = line.find(' ');
    const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    const auto start = hexadecimal(line.substr(0, first));
    const auto size = hexadecimal(line.substr(first + 1, second - first - 1));
    const std::string_view name = line.substr(second + 1);
    // Names may hold anything but a line's end; control characters would be garbage.
    const bool printable =
        std::none_of(name.begin(), name.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (!start || !size || *size == 0 || *start + *size < *start || name.empty() || !printable)
        return std::nullopt;
    return Symbol{.start = *start,
                  .size = *size,
                  .limit = *start + *size,
                  .name = std::string(name),
                  .binding = Binding::kGlobal,
                  .function = true};
}

}  // namespace

JitMap parse_jit_map(std::string_view text) {
    JitMap result;
    std::map<std::uint64_t, Symbol> pieces;  // by start, without overlap
    const auto cut = [&](std::uint64_t at) {
        auto after = pieces.upper_bound(at);
        if (after == pieces.begin()) return;
        Symbol& piece = std::prev(after)->second;
        if (piece.start == at || piece.limit <= at) return;
        Symbol upper = piece;
        upper.start = at;
        upper.size = upper.limit - at;
        piece.limit = at;
        piece.size = at - piece.start;
        pieces.emplace(at, std::move(upper));
    };
    for (std::size_t number = 1; !text.empty(); ++number) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (line.empty()) continue;
        if (auto symbol = parse_line(line)) {
            cut(symbol->start);
            cut(symbol->limit);
            pieces.erase(pieces.lower_bound(symbol->start), pieces.lower_bound(symbol->limit));
            pieces.insert_or_assign(symbol->start, std::move(*symbol));
        } else if (result.unreadable_lines++ == 0) {
            result.first_unreadable = number;
        }
    }
    for (auto& [start, symbol] : pieces) result.symbols.push_back(std::move(symbol));
    return result;
}

}  // namespace tlbscope::explain
