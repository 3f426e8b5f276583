// The four formats come in two families. GNU ld and gold print, indented by one blank below the output
// section's line, "SECTION ADDRESS SIZE OBJECT", broken behind a section name of 15 characters and more. lld
// and mold print tables: lld "VMA LMA SIZE ALIGN" and mold "VMA SIZE ALIGN", then the name, whose indentation
// says what it is: an output section, then "OBJECT:(SECTION)", then a symbol.
#include "layout/link_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <unordered_set>

#include "core/files.h"

namespace tlbscope::layout {

namespace {

class Lines {
  public:
    explicit Lines(std::string_view text) : rest_(text) {}
    bool next(std::string_view& line) {
        if (rest_.empty()) return false;
        const std::size_t end = rest_.find('\n');
        line = rest_.substr(0, end);
        rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
        if (line.ends_with('\r')) line.remove_suffix(1);
        return true;
    }

  private:
    std::string_view rest_;
};

std::string_view word_of(std::string_view& text) {
    const std::size_t start = std::min(text.find_first_not_of(" \t"), text.size());
    text.remove_prefix(start);
    const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(end);
    return word;
}

std::optional<std::uint64_t> number(std::string_view word, int base) {
    if (base == 16 && word.starts_with("0x")) word.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (failure != std::errc{} || end != word.data() + word.size()) return std::nullopt;
    return value;
}

std::string trimmed(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return std::string(text);
}

void parse_gnu(std::string_view text, LinkMap& map) {
    Lines lines(text);
    std::string output;
    std::string pending;  // a name too long for its line's other columns
    bool in_map = false;
    for (std::string_view line; lines.next(line);) {
        if (line.starts_with("Linker script and memory map") || line.starts_with("Memory map")) in_map = true;
        if (line.starts_with("Cross Reference Table")) break;
        if (!in_map || line.empty()) continue;
        std::string_view rest = line;
        const bool name_line = line[0] != ' ' || (line.size() > 1 && line[1] != ' ');
        std::string name;
        if (name_line) {
            const bool is_output = line[0] != ' ';
            name = word_of(rest);
            pending.clear();
            if (name.starts_with('*') || name.starts_with("*(")) continue;
            if (is_output) {
                if (name.starts_with('.') || name.starts_with('_')) output = name;
                continue;
            }
            if (trimmed(rest).empty()) {
                pending = name;
                continue;
            }
        } else {
            name = pending;
            pending.clear();
        }
        if (name.empty()) continue;
        const auto start = number(word_of(rest), 16);
        const auto size = number(word_of(rest), 16);
        std::string object = trimmed(rest);
        if (start && size && !object.empty() && name == ".text") map.objects.push_back(object);
        if (!start || !size || *size == 0 || *start == 0 || object.empty()) continue;
        map.sections.push_back({.section = std::move(name),
                                .object = std::move(object),
                                .output = output,
                                .start = *start,
                                .size = *size,
                                .align = 0});
    }
}

void parse_table(std::string_view text, bool mold, LinkMap& map) {
    Lines lines(text);
    std::string output;
    std::unordered_set<std::string> known;
    for (std::string_view line; lines.next(line);) {
        std::string_view rest = line;
        const auto start = number(word_of(rest), 16);
        if (!mold) word_of(rest);  // the load address
        const auto size = number(word_of(rest), mold ? 10 : 16);
        const auto align = number(word_of(rest), 10);
        if (!start || !size || !align || rest.empty()) continue;
        const std::size_t indent = std::min(rest.find_first_not_of(' '), rest.size());
        const std::string_view name = rest.substr(indent);
        if (indent <= 1) {
            output = name;
            continue;
        }
        const std::size_t open = name.rfind(":(");
        if (indent >= 17 || open == std::string_view::npos || !name.ends_with(')')) continue;
        if (*size == 0 || *start == 0) continue;
        std::string object(name.substr(0, open));
        if (known.insert(object).second) map.objects.push_back(object);
        map.sections.push_back({.section = std::string(name.substr(open + 2, name.size() - open - 3)),
                                .object = std::move(object),
                                .output = output,
                                .start = *start,
                                .size = *size,
                                .align = static_cast<std::uint32_t>(*align)});
    }
}

}  // namespace

Result<LinkMap> parse_link_map(std::string_view text, const std::string& name) {
    LinkMap map;
    Lines lines(text);
    std::string_view head;
    lines.next(head);
    std::string_view rest = head;
    const std::string_view first = word_of(rest);
    const std::string_view second = word_of(rest);
    if (first == "VMA" && (second == "LMA" || second == "Size")) {
        map.writer = second == "LMA" ? MapWriter::kLld : MapWriter::kMold;
        parse_table(text, map.writer == MapWriter::kMold, map);
    } else if (text.find("Linker script and memory map") != std::string_view::npos) {
        map.writer = MapWriter::kGnuLd;
        parse_gnu(text, map);
    } else if (text.find("Memory map") != std::string_view::npos) {
        map.writer = MapWriter::kGold;
        parse_gnu(text, map);
    } else {
        return fail(name, "it is no link map of GNU ld, gold, lld or mold",
                    "link with -Wl,-Map=FILE and give that file");
    }
    // GNU ld and gold also list debug sections, whose addresses mean nothing.
    std::erase_if(map.sections, [](const InputSection& s) {
        return s.section.starts_with(".debug") || s.section.starts_with(".comment");
    });
    if (map.sections.empty())
        return fail(name, "this link map holds no section with an address",
                    "link again with -Wl,-Map=FILE and give that file");
    std::stable_sort(map.sections.begin(), map.sections.end(),
                     [](const InputSection& a, const InputSection& b) { return a.start < b.start; });
    return map;
}

Result<LinkMap> read_link_map(const std::filesystem::path& path) {
    auto text = read_text(path);
    if (!text) return std::unexpected(text.error());
    return parse_link_map(*text, path.string());
}

}  // namespace tlbscope::layout
