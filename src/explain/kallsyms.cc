#include "explain/kallsyms.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace tlbscope::explain {

namespace {

struct Line {
    std::uint64_t address = 0;
    char type = '?';
    std::string_view name;
    std::string_view module;
};

std::optional<Line> parse_line(std::string_view text) {
    const auto word = [&text] {
        text.remove_prefix(std::min(text.find_first_not_of(" \t\r"), text.size()));
        const std::size_t end = std::min(text.find_first_of(" \t\r"), text.size());
        const std::string_view found = text.substr(0, end);
        text.remove_prefix(end);
        return found;
    };
    Line line;
    const std::string_view address = word();
    const std::string_view type = word();
    line.name = word();
    line.module = word();
    const auto [end, error] =
        std::from_chars(address.data(), address.data() + address.size(), line.address, 16);
    if (error != std::errc{} || end != address.data() + address.size() || type.size() != 1 ||
        line.name.empty())
        return std::nullopt;
    line.type = type[0];
    if (line.module.starts_with('[') && line.module.ends_with(']'))
        line.module = line.module.substr(1, line.module.size() - 2);
    return line;
}

bool is_text(char type) { return type == 't' || type == 'T' || type == 'w' || type == 'W'; }

}  // namespace

KernelSymbols parse_kallsyms(std::string_view text) {
    KernelSymbols result;
    std::vector<Line> lines;
    bool any_address = false;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view row = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
        if (const auto line = parse_line(row)) {
            // Absolute symbols (per-CPU offsets, constants) are no places.
            if (line->type != 'A' && line->type != 'a' && line->type != 'U') lines.push_back(*line);
            any_address |= line->address != 0;
        } else {
            ++result.unreadable_lines;
        }
    }
    result.hidden = !lines.empty() && !any_address;
    if (result.hidden) return result;
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.address < b.address; });

    // The sections' edges, as include/linux/kallsyms.h's is_kernel_text() and is_kernel_inittext() have them.
    // Text that carries symbols only (a System.map without them) is one section.
    std::map<std::string_view, std::uint64_t> edges;
    for (const Line& line : lines)
        if (line.module.empty() &&
            (line.name == "_text" || line.name == "_stext" || line.name == "_etext" || line.name == "_end" ||
             line.name == "_sinittext" || line.name == "_einittext"))
            edges.emplace(line.name, line.address);
    const auto edge = [&](std::string_view name, std::uint64_t otherwise) {
        const auto at = edges.find(name);
        return at == edges.end() ? otherwise : at->second;
    };
    const std::uint64_t text_start = std::min(edge("_stext", 0), edge("_text", ~std::uint64_t{0}));
    const AddressRange sections[] = {{text_start, edge("_etext", ~std::uint64_t{0})},
                                     {edge("_sinittext", 0), edge("_einittext", 0)}};
    result.image = {edge("_text", edge("_stext", 0)), edge("_end", edge("_etext", 0))};

    std::map<std::string_view, KernelSymbols::Module> modules;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Line& line = lines[i];
        if (!is_text(line.type) || is_tool_label(line.name)) continue;
        std::uint64_t limit = 0;
        if (line.module.empty()) {
            const auto home =
                std::find_if(std::begin(sections), std::end(sections),
                             [&](const auto& section) { return section.contains(line.address); });
            if (home == std::end(sections)) continue;
            limit = home->end;
        } else {
            // Where a module's text ends is not told; its parts begin on pages of their own (strict module
            // permissions), so the last function ends with its page.
            limit = (line.address | 0xfff) + 1;
        }
        std::size_t next = i + 1;
        while (next < lines.size() && lines[next].address == line.address) ++next;
        const std::uint64_t end = next < lines.size() ? lines[next].address : ~std::uint64_t{0};
        const bool followed = next < lines.size() && lines[next].module == line.module;
        if (followed && !line.module.empty()) limit = std::max(limit, end);
        Symbol symbol{.start = line.address,
                      .size = std::min(end, limit) - line.address,
                      .limit = limit,
                      .name = std::string(line.name),
                      .binding = line.type == 'T'   ? Binding::kGlobal
                                 : line.type == 't' ? Binding::kLocal
                                                    : Binding::kWeak,
                      .function = true};
        if (line.module.empty()) {
            result.kernel.push_back(std::move(symbol));
        } else {
            KernelSymbols::Module& module = modules[line.module];
            module.name = line.module;
            module.symbols.push_back(std::move(symbol));
        }
    }
    for (auto& [name, module] : modules) result.modules.push_back(std::move(module));
    return result;
}

}  // namespace tlbscope::explain
