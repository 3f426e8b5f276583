#include "explain/symbols.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace tlbscope::explain {

namespace {

// __start_SECTION, __irqentry_text_end ...: names of linker scripts for the edges of what they place.
bool is_boundary(std::string_view name) {
    return name == "_text" || name == "_stext" || name == "_etext" || name == "_sinittext" ||
           name == "_einittext" || name.ends_with("_text_start") || name.ends_with("_text_end") ||
           name.starts_with("__start_") || name.starts_with("__stop_") || name.ends_with("_begin");
}

std::size_t underscores(std::string_view name) { return std::min(name.find_first_not_of('_'), name.size()); }

// Whether `a` is the better name for their common address.
bool better(const Symbol& a, const Symbol& b) {
    const auto rank = [](const Symbol& s) {
        return std::tuple(~s.size, !s.function, is_boundary(s.name), s.binding, underscores(s.name),
                          s.name.size());
    };
    const auto rank_a = rank(a);
    const auto rank_b = rank(b);
    return rank_a != rank_b ? rank_a < rank_b : a.name < b.name;
}

}  // namespace

bool is_tool_label(std::string_view name) {
    return name.empty() || name.starts_with("$") || name.starts_with(".L");
}

SymbolTable::SymbolTable(std::vector<Symbol> symbols) {
    std::sort(symbols.begin(), symbols.end(), [](const Symbol& a, const Symbol& b) {
        return a.start != b.start ? a.start < b.start : better(a, b);
    });
    symbols.erase(std::unique(symbols.begin(), symbols.end(),
                              [](const Symbol& a, const Symbol& b) { return a.start == b.start; }),
                  symbols.end());

    std::unordered_map<std::string, std::uint32_t> index;
    const auto name_index = [&](const std::string& name) {
        const auto [at, is_new] = index.try_emplace(name, static_cast<std::uint32_t>(names_.size()));
        if (is_new) names_.push_back(name);
        return at->second;
    };
    const auto add = [&](std::uint64_t start, std::uint64_t end, const Symbol& symbol) {
        if (start >= end) return;
        const std::uint32_t name = name_index(symbol.name);
        if (!ranges_.empty() && ranges_.back().end == start && ranges_.back().name == name)
            ranges_.back().end = end;
        else
            ranges_.push_back({start, end, name});
    };

    // Sized symbols that reach over `at`, the one that starts last on top; `at` is how far the ranges go.
    std::vector<const Symbol*> open;
    std::uint64_t at = 0;
    const auto advance = [&](std::uint64_t to) {
        while (!open.empty()) {
            const std::uint64_t end = open.back()->start + open.back()->size;
            add(at, std::min(end, to), *open.back());
            at = std::max(at, std::min(end, to));
            if (end > to) break;
            open.pop_back();
        }
        at = std::max(at, to);
    };
    for (std::size_t i = 0; i < symbols.size(); ++i) {
        const Symbol& symbol = symbols[i];
        advance(symbol.start);
        if (symbol.size != 0) {
            open.push_back(&symbol);
        } else if (open.empty()) {
            const std::uint64_t next = i + 1 < symbols.size() ? symbols[i + 1].start : symbol.limit;
            add(symbol.start, std::min(next, symbol.limit), symbol);
        }
    }
    advance(~std::uint64_t{0});
}

std::optional<std::uint32_t> SymbolTable::find(std::uint64_t address) const {
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), address,
                                        [](std::uint64_t a, const Range& range) { return a < range.start; });
    if (after == ranges_.begin()) return std::nullopt;
    const Range& range = *std::prev(after);
    if (address >= range.end) return std::nullopt;
    return range.name;
}

}  // namespace tlbscope::explain
