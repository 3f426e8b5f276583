#include "layout/order_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <unordered_map>

namespace tlbscope::layout {

namespace {

constexpr std::array kFormats{
    FormatInfo{OrderFormat::kLld, "lld", Linker::kLld, "-fuse-ld=lld -Wl,--symbol-ordering-file=ORDER", true},
    FormatInfo{OrderFormat::kLldCallGraph, "lld-call-graph", Linker::kLld,
               "-fuse-ld=lld -Wl,--call-graph-ordering-file=ORDER"},
    FormatInfo{OrderFormat::kGold, "gold", Linker::kGold, "-fuse-ld=gold -Wl,--section-ordering-file=ORDER",
               true},
    FormatInfo{OrderFormat::kLd, "ld", Linker::kScript,
               "INCLUDE ORDER as the first line of .text in the script of -Wl,-T"},
    FormatInfo{OrderFormat::kLdSorted, "ld-sorted", Linker::kSorted,
               "objcopy @ORDER on every object before linking with GNU ld"},
    FormatInfo{OrderFormat::kLd243, "ld-2.43", Linker::kScript, "-Wl,--section-ordering-file=ORDER", true},
    FormatInfo{OrderFormat::kMold, "mold", Linker::kMold, "-fuse-ld=mold @ORDER in place of the objects",
               true},
    FormatInfo{OrderFormat::kApple, "apple", Linker::kApple, "-Wl,-order_file,ORDER", true},
    FormatInfo{OrderFormat::kBolt, "bolt", Linker::kBolt,
               "llvm-bolt --reorder-functions=user --function-order=ORDER"},
    FormatInfo{OrderFormat::kBoltProfile, "bolt-profile", Linker::kBolt, "llvm-bolt --data=ORDER"},
    FormatInfo{OrderFormat::kLinux, "linux", Linker::kLinux,
               "#include before TEXT_TEXT in arch/*/kernel/vmlinux.lds.S"},
};

std::string header(const OrderInput& input, Linker linker, std::string_view first, std::string_view between,
                   std::string_view last) {
    const Origin& origin = input.origin;
    std::string text = fmt::format("{}tlbscope order for {}", first, name_of(linker));
    text += fmt::format("{}image: {}", between, origin.image);
    if (!origin.build_id.empty()) text += fmt::format("{}build-id: {}", between, origin.build_id);
    text += fmt::format("{}machine: {}", between, origin.machine);
    text += fmt::format("{}method: {}", between, origin.method);
    for (std::size_t i = 0; i < origin.recordings.size(); ++i)
        text += fmt::format("{}recording: {} {}", between, origin.contents[i], origin.recordings[i]);
    return text + std::string(last);
}

std::string hash_header(const OrderInput& input, Linker linker) {
    return header(input, linker, "# ", "\n# ", "\n");
}
std::string script_header(const OrderInput& input, Linker linker) {
    return header(input, linker, "/* ", "\n * ", " */\n");
}

// Names that mean something to a linker script's pattern.
std::string pattern(const std::string& section) {
    std::string text;
    for (const char c : section) text += c == '*' || c == '?' || c == '[' || c == ']' || c == '\\' ? '?' : c;
    return text;
}

std::string call_graph(const OrderInput& input) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> sums;
    for (const Edge& edge : input.graph->edges) sums[{edge.from, edge.to}] += edge.count;
    std::string text;
    for (const auto& [ends, count] : sums) {
        const std::string& from = (*input.units)[input.graph->nodes[ends.first].unit].key;
        const std::string& to = (*input.units)[input.graph->nodes[ends.second].unit].key;
        text += fmt::format("{} {} {}\n", from, to,
                            std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(count))));
    }
    return text;
}

// The kinds of clones whose suffix a rebuild changes.
std::string_view without_hash(std::string_view name) {
    const std::size_t at = name.find(".llvm.");
    return at == std::string_view::npos ? name : name.substr(0, at);
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
        text.remove_suffix(1);
    return text;
}

// One line of what an earlier run wrote about itself.
void read_origin(std::string_view line, OrderFile& file, bool& says_linker) {
    const auto value = [&](std::string_view key) -> std::optional<std::string> {
        if (!line.starts_with(key)) return std::nullopt;
        return std::string(trimmed(line.substr(key.size())));
    };
    if (const auto linker = value("tlbscope order for ")) {
        if (const auto known = linker_named(*linker)) {
            file.linker = *known;
            says_linker = true;
        }
    } else if (const auto image = value("image: ")) {
        file.origin.image = *image;
    } else if (const auto id = value("build-id: ")) {
        file.origin.build_id = *id;
    } else if (const auto machine = value("machine: ")) {
        file.origin.machine = *machine;
    } else if (const auto method = value("method: ")) {
        file.origin.method = *method;
    } else if (const auto recording = value("recording: ")) {
        const std::size_t space = recording->find(' ');
        if (space == std::string::npos) return;
        file.origin.contents.push_back(recording->substr(0, space));
        file.origin.recordings.push_back(recording->substr(space + 1));
    }
}

}  // namespace

std::span<const FormatInfo> formats() { return kFormats; }

std::optional<FormatInfo> format_named(std::string_view name) {
    for (const FormatInfo& info : kFormats)
        if (info.name == name) return info;
    return std::nullopt;
}

std::string written(OrderFormat format, const OrderInput& input) {
    const Units& units = *input.units;
    std::string text;
    switch (format) {
        case OrderFormat::kLld:
        case OrderFormat::kGold:
            text = hash_header(input, format == OrderFormat::kLld ? Linker::kLld : Linker::kGold);
            for (const std::uint32_t unit : input.order) text += units[unit].key + "\n";
            break;
        case OrderFormat::kApple:
            // Symbols of Mach-O files begin with an underscore that ELF files do not have.
            text = hash_header(input, Linker::kApple);
            for (const std::uint32_t unit : input.order) text += "_" + units[unit].key + "\n";
            break;
        case OrderFormat::kLldCallGraph:
            text = call_graph(input);
            break;
        case OrderFormat::kLd:
        case OrderFormat::kLinux:
            text = script_header(input, format == OrderFormat::kLd ? Linker::kScript : Linker::kLinux);
            for (const std::uint32_t unit : input.order)
                text += fmt::format("*({})\n", pattern(units[unit].key));
            break;
        case OrderFormat::kLd243:
            text = script_header(input, Linker::kScript);
            for (std::uint32_t output = 0; output < input.image->outputs.size(); ++output) {
                std::string lines;
                for (const std::uint32_t unit : input.order)
                    if (input.image->pieces[units[unit].pieces.front()].output == output)
                        lines += fmt::format("  *({})\n", pattern(units[unit].key));
                if (!lines.empty())
                    text += fmt::format("{} :\n{{\n{}}}\n", input.image->outputs[output].name, lines);
            }
            break;
        case OrderFormat::kLdSorted: {
            std::size_t number = 0;
            for (const std::uint32_t unit : input.order)
                text += fmt::format("--rename-section {}=.text.sorted.{:06}\n", units[unit].key, ++number);
            break;
        }
        case OrderFormat::kMold: {
            // It stands in for all object files of the link, so it names those without any order as well.
            std::set<std::string> written;
            for (const std::uint32_t unit : input.order)
                if (written.insert(units[unit].key).second) text += units[unit].key + "\n";
            for (const std::string& object : input.image->objects)
                if (is_given_object(object) && written.insert(object).second) text += object + "\n";
            break;
        }
        case OrderFormat::kBolt:
            for (const std::uint32_t unit : input.order) text += units[unit].key + "\n";
            break;
        case OrderFormat::kBoltProfile:
            for (const Branch& branch : input.branches)
                text += fmt::format("1 {} {:x} 1 {} {:x} 0 {}\n", branch.from, branch.from_offset, branch.to,
                                    branch.to_offset, branch.count);
            break;
    }
    return text;
}

Result<OrderFile> parse_order(std::string_view text, const std::string& name) {
    OrderFile file;
    bool says_linker = false;
    bool script = false;
    bool renames = false;
    bool sections = true;
    bool objects = true;
    bool in_comment = false;
    std::size_t number = 0;
    if (text.find('\0') != std::string_view::npos)
        return fail(name, "it is no order file: it holds bytes that are no text",
                    "give a file that `tlbscope order` or a linker's user wrote");
    while (!text.empty()) {
        const std::size_t end = text.find('\n');
        std::string_view line = trimmed(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        ++number;
        if (line.starts_with("/*")) in_comment = true;
        if (in_comment) {
            std::string_view comment = line;
            if (comment.starts_with("/*") || comment.starts_with("* ")) comment.remove_prefix(2);
            if (const std::size_t close = comment.find("*/"); close != std::string_view::npos) {
                comment = comment.substr(0, close);
                in_comment = false;
            }
            read_origin(trimmed(comment), file, says_linker);
            continue;
        }
        if (line.starts_with('#')) {
            read_origin(trimmed(line.substr(1)), file, says_linker);
            continue;
        }
        if (line.empty() || line == "{" || line == "}" || line.ends_with(" :") || line.ends_with(":{"))
            continue;
        if (line.starts_with("--rename-section ")) {
            const std::string_view rest = line.substr(17);
            const std::size_t equals = rest.find("=.text.sorted.");
            if (equals == std::string_view::npos)
                return fail(fmt::format("{}:{}", name, number), "it renames to no .text.sorted section",
                            "write it with `tlbscope order --format ld-sorted`");
            file.keys.emplace_back(rest.substr(0, equals));
            renames = true;
            continue;
        }
        if (line.find('(') != std::string_view::npos && line.ends_with(')')) {
            const std::size_t open = line.rfind('(');
            // "*(.text.a .text.b)" and "KEEP(*(.text.a))" are both in use.
            std::string_view inside = line.substr(open + 1);
            while (inside.ends_with(')')) inside.remove_suffix(1);
            while (!inside.empty()) {
                const std::size_t space = inside.find_first_of(" \t");
                if (const std::string_view key = trimmed(inside.substr(0, space)); !key.empty())
                    file.keys.emplace_back(key);
                inside.remove_prefix(space == std::string_view::npos ? inside.size() : space + 1);
            }
            script = true;
            continue;
        }
        if (line.find_first_of(" \t") != std::string_view::npos && !line.starts_with("_Z") &&
            line.find('"') == std::string_view::npos)
            return fail(fmt::format("{}:{}", name, number),
                        fmt::format("\"{}\" is no function, section or file", line.substr(0, 60)),
                        line.find(' ') != std::string_view::npos
                            ? "an order file has one name a line; call graphs and profiles are no orders"
                            : "an order file has one name a line");
        file.keys.emplace_back(line);
        sections = sections && line.starts_with('.');
        objects = objects && line.ends_with(".o");
    }
    if (file.keys.empty())
        return fail(name, "it orders nothing", "write an order with `tlbscope order REC -o FILE`");
    if (!says_linker)
        file.linker = renames    ? Linker::kSorted
                      : script   ? Linker::kScript
                      : sections ? Linker::kGold
                      : objects  ? Linker::kMold
                                 : Linker::kLld;
    if (file.linker == Linker::kApple)
        for (std::string& key : file.keys)
            if (key.starts_with('_')) key.erase(0, 1);
    return file;
}

Matched match(const OrderFile& file, const Image& image, const Units& units) {
    std::unordered_map<std::string, std::uint32_t> exact;
    std::unordered_map<std::string, std::vector<std::uint32_t>> other;
    const auto note = [&](const std::string& key, std::uint32_t unit) {
        auto& list = other[key];
        if (list.empty() || list.back() != unit) list.push_back(unit);
    };
    for (std::uint32_t unit = 0; unit < units.size(); ++unit) {
        exact.emplace(units[unit].key, unit);
        for (const std::uint32_t piece : units[unit].pieces) {
            for (const std::string& symbol : image.pieces[piece].symbols) {
                note(symbol, unit);
                if (const std::string_view plain = without_hash(symbol); plain != symbol)
                    note(std::string(plain) + ".llvm.", unit);
            }
            note(image.pieces[piece].section, unit);
        }
    }
    Matched result;
    std::vector<bool> taken(units.size());
    const auto take = [&](std::uint32_t unit) {
        if (!taken[unit]) result.order.push_back(unit);
        taken[unit] = true;
    };
    for (const std::string& key : file.keys) {
        if (const auto unit = exact.find(key); unit != exact.end()) {
            take(unit->second);
            continue;
        }
        auto found = other.find(key);
        if (found == other.end() && without_hash(key) != key) {
            found = other.find(std::string(without_hash(key)) + ".llvm.");
            if (found != other.end() && found->second.size() != 1) found = other.end();
        }
        if (found == other.end()) {
            // An object file without code is part of the link all the same.
            if (file.linker == Linker::kMold &&
                std::find(image.objects.begin(), image.objects.end(), key) != image.objects.end())
                continue;
            result.missing.push_back(key);
            continue;
        }
        for (const std::uint32_t unit : found->second) take(unit);
    }
    return result;
}

}  // namespace tlbscope::layout
