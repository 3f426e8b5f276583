#include "machine/handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/files.h"
#include "core/nearest.h"
#include "machine/machine_file.h"
#include "machine/toml_reader.h"
#include "pagetable/format.h"

namespace tlbscope::machine {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMost = 1'000'000;

std::uint64_t address(TomlTable& table, const std::string& key) {
    const std::string word = table.text(key);
    char* end = nullptr;
    const std::uint64_t value = std::strtoull(word.c_str(), &end, 16);
    if (!word.starts_with("0x") || *end != '\0')
        table.reject(key, fmt::format("\"{}\" is no address", word), "give it as \"0x...\"");
    return value;
}

void read_conditions(TomlTable& table, HandlerPath& path) {
    if (table.has("kind")) {
        const std::string word = table.text("kind");
        if (word != "instruction" && word != "data")
            table.reject("kind", fmt::format("{} is \"{}\"", table.path_of("kind"), word),
                         "give \"instruction\" or \"data\", or leave it out for both");
        path.kind = word == "data" ? Kind::kData : Kind::kInstruction;
    }
    if (table.has("side")) {
        const std::string word = table.text("side");
        if (word != "user" && word != "kernel")
            table.reject("side", fmt::format("{} is \"{}\"", table.path_of("side"), word),
                         "give \"user\" or \"kernel\", or leave it out for both");
        path.side = word == "kernel" ? Side::kKernel : Side::kUser;
    }
    if (table.has("large")) path.large = table.truth_or("large", false);
    if (table.has("region")) {
        const std::string word = table.text("region");
        path.region = addrspace::region_named(word);
        if (!path.region)
            table.reject("region", fmt::format("there is no region {}", word),
                         "for example \"kernel-linear\"");
    }
    path.nested = table.truth_or("nested", false);
}

HandlerPath read_path(TomlDocument& document, const toml::table& node, std::size_t number) {
    TomlTable table(document, node, fmt::format("path[{}]", number),
                    {"name", "kind", "side", "large", "region", "nested", "instructions", "tables", "loads",
                     "stores", "lines", "address"});
    HandlerPath path;
    path.name = table.text("name");
    read_conditions(table, path);
    path.instructions = static_cast<std::uint32_t>(table.whole("instructions", 1, kMost));
    const std::string tables = table.text("tables");
    if (tables == "all")
        path.tables = TableLoads::kAll;
    else if (tables == "last")
        path.tables = TableLoads::kLast;
    else if (tables == "none")
        path.tables = TableLoads::kNone;
    else
        table.reject("tables", fmt::format("{} is \"{}\"", table.path_of("tables"), tables),
                     "give \"all\", \"last\" or \"none\"");
    path.loads = static_cast<std::uint32_t>(table.whole_or("loads", 0, kMost, 0));
    path.stores = static_cast<std::uint32_t>(table.whole_or("stores", 0, kMost, 0));
    path.lines = static_cast<std::uint32_t>(table.whole_or("lines", 0, kMost, 0));
    if (path.lines > 0) path.address = address(table, "address");
    return path;
}

std::vector<fs::path> folders() {
    std::vector<fs::path> found;
    for (const fs::path& folder : machine_folders()) found.push_back(folder / "handlers");
    return found;
}

}  // namespace

const HandlerPath& Handler::path(Kind kind, Side side, bool large, addrspace::Region region) const {
    const auto holds = [&](const HandlerPath& path) {
        return !path.nested && path.kind.value_or(kind) == kind && path.side.value_or(side) == side &&
               path.large.value_or(large) == large && path.region.value_or(region) == region;
    };
    return *std::find_if(paths.begin(), paths.end(), holds);
}

const HandlerPath* Handler::nested() const {
    const auto found = std::find_if(paths.begin(), paths.end(), [](const auto& path) { return path.nested; });
    return found == paths.end() ? nullptr : &*found;
}

bool Handler::needs_regions() const {
    return std::any_of(paths.begin(), paths.end(),
                       [](const HandlerPath& path) { return path.region.has_value(); });
}

Result<Handler> parse_handler(const std::string& text, const std::string& file) {
    auto document = TomlDocument::parse(text, file);
    if (!document) return std::unexpected(document.error());
    Handler handler;
    TomlTable root(*document, document->root(), "",
                   {"name", "title", "source", "format", "entry", "exit", "virtual_table", "path"});
    handler.name = root.text("name");
    handler.title = root.text("title");
    handler.source = root.text("source");
    handler.format = root.text("format");
    handler.entry = Cycles(root.whole("entry", 0, kMost));
    handler.exit = Cycles(root.whole("exit", 0, kMost));
    if (root.has("virtual_table")) handler.virtual_table = address(root, "virtual_table");
    if (!document->error())
        if (const auto format = pagetable::find_format(handler.format); !format)
            root.reject("format", format.error().what, format.error().hint);
    const toml::array* paths = document->root()["path"].as_array();
    if (paths == nullptr || paths->empty()) {
        root.reject("path", "the handler has no path", "add one: [[path]]");
    } else {
        for (const toml::node& node : *paths)
            if (node.is_table())
                handler.paths.push_back(read_path(*document, *node.as_table(), handler.paths.size() + 1));
            else
                root.reject("path", "path is no list of tables", "write each path as [[path]]");
        // The last one must take whatever is left.
        const bool total =
            std::any_of(handler.paths.begin(), handler.paths.end(), [](const HandlerPath& path) {
                return !path.nested && !path.kind && !path.side && !path.large && !path.region;
            });
        if (!total)
            root.reject("path", "no path takes every miss that the others do not",
                        "leave kind, side, large and region out of the last one");
        if (handler.virtual_table && handler.nested() == nullptr)
            root.reject("path", "a handler with a virtual table has no path for when its load misses",
                        "add one with nested = true");
    }
    if (document->error()) return std::unexpected(*document->error());
    handler.file = file;
    return handler;
}

std::vector<std::string> handler_names() {
    std::set<std::string> names;
    for (const fs::path& folder : folders()) {
        std::error_code code;
        for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
            if (entry->path().extension() == ".toml") names.insert(entry->path().stem().string());
    }
    return {names.begin(), names.end()};
}

Result<Handler> load_handler(const std::string& name_or_path) {
    fs::path path;
    if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml")) {
        path = name_or_path;
    } else {
        for (const fs::path& folder : folders()) {
            std::error_code code;
            if (path.empty() && fs::is_regular_file(folder / (name_or_path + ".toml"), code))
                path = folder / (name_or_path + ".toml");
        }
        if (path.empty()) {
            const std::vector<std::string> names = handler_names();
            const std::string guess = nearest(name_or_path, names);
            return std::unexpected(Error{.where = "",
                                         .what = fmt::format("there is no miss handler {}", name_or_path),
                                         .hint = guess.empty()
                                                     ? fmt::format("there are {}", fmt::join(names, ", "))
                                                     : fmt::format("did you mean {}?", guess),
                                         .error_class = ErrorClass::kUsage});
        }
    }
    auto text = read_text(path);
    if (!text) return std::unexpected(text.error());
    return parse_handler(*text, path.string());
}

}  // namespace tlbscope::machine
