#include "machine/machine_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <set>

#include "addrspace/asids.h"
#include "core/files.h"
#include "core/nearest.h"
#include "core/numbers.h"
#include "machine/routes.h"
#include "machine/toml_reader.h"
#include "pagetable/format.h"

namespace tlbscope::machine {

namespace fs = std::filesystem;

namespace {

// A page size in words, or a complaint.
PageShift page_size(TomlTable& pages, const std::string& key, const std::string& word) {
    const std::uint64_t bytes = parse_size(word);
    // TLB keys have room for the page numbers of 4K pages, the smallest that any machine here maps by
    // default.
    if (!std::has_single_bit(bytes) || bytes < 4096 || bytes > std::uint64_t{1} << 40) {
        pages.reject(key, fmt::format("{} is no page size: \"{}\"", pages.path_of(key), word),
                     "give a power of two from 4K up, such as \"4K\" or \"8M\"");
        return PageShift(12);
    }
    return PageShift(static_cast<std::uint8_t>(std::countr_zero(bytes)));
}

// What an array serves: its name says so for "instruction" and "data", "serves" for the others.
void read_service(TomlTable& reader, TlbDescription& tlb) {
    if ((tlb.name == "instruction" || tlb.name == "data") && !reader.has("serves")) {
        tlb.instruction = tlb.name == "instruction";
        tlb.data = !tlb.instruction;
        return;
    }
    const std::string word = reader.text("serves");
    tlb.instruction = word == "instruction" || word == "both";
    tlb.data = word == "data" || word == "both";
    if (!tlb.instruction && !tlb.data)
        reader.reject("serves", fmt::format("{} is \"{}\"", reader.path_of("serves"), word),
                      "give \"instruction\", \"data\" or \"both\"");
}

void read_geometry(TomlTable& reader, TlbGeometry& geometry) {
    constexpr std::uint64_t kMostEntries = 1 << 20;
    geometry.entries = static_cast<std::uint32_t>(reader.whole("entries", 1, kMostEntries));
    geometry.ways =
        static_cast<std::uint32_t>(reader.whole_or_word("ways", 1, kMostEntries, "full", geometry.entries));
    if (geometry.ways > geometry.entries)
        reader.reject("ways",
                      fmt::format("{} is {}, more than the {} entries", reader.path_of("ways"), geometry.ways,
                                  geometry.entries),
                      "give at most that many, or \"full\"");
    else if (geometry.entries % geometry.ways != 0)
        reader.reject(
            "ways",
            fmt::format("{} entries do not divide into sets of {} ways", geometry.entries, geometry.ways),
            "make the entries a multiple of the ways");
    geometry.reserved = static_cast<std::uint32_t>(reader.whole_or("reserved", 0, kMostEntries, 0));
    if (geometry.reserved >= geometry.entries)
        reader.reject("reserved",
                      fmt::format("{} is {} of {} entries, which leaves none to reload",
                                  reader.path_of("reserved"), geometry.reserved, geometry.entries),
                      "reserve fewer");
    else if (geometry.reserved > 0 && geometry.ways != geometry.entries)
        reader.reject("reserved", "only a fully associative TLB can reserve entries", "set ways to \"full\"");
    const std::string policy = reader.text("replacement");
    if (const auto known = replacement_named(policy)) {
        geometry.replacement = *known;
    } else {
        const std::vector<std::string> names = replacement_names();
        const std::string guess = nearest(policy, names);
        reader.reject("replacement", fmt::format("{} is \"{}\"", reader.path_of("replacement"), policy),
                      guess.empty() ? fmt::format("known policies are {}", fmt::join(names, ", "))
                                    : fmt::format("did you mean {}?", guess));
    }
    if (geometry.replacement == Replacement::kTreePlru &&
        (!std::has_single_bit(geometry.ways) || geometry.ways > 64 || geometry.reserved > 0))
        reader.reject("replacement",
                      fmt::format("a tree over {} ways, {} of them reserved, does not come out even",
                                  geometry.ways, geometry.reserved),
                      "tree-plru needs 1, 2, 4 ... 64 ways and none reserved; \"lru\" or \"nru\" take any");
    geometry.seed = reader.whole_or("seed", 0, ~std::uint64_t{0} >> 1, 1);
}

TlbDescription read_tlb(TomlDocument& document, const toml::table& table, const std::string& name,
                        const Machine& machine) {
    TomlTable reader(document, table, "tlb." + name,
                     {"level", "serves", "pages", "entries", "ways", "reserved", "replacement", "seed", "hit",
                      "inclusive", "source"});
    TlbDescription tlb;
    tlb.name = name;
    tlb.level = static_cast<std::uint32_t>(reader.whole_or("level", 1, kMostLevels, 1));
    read_service(reader, tlb);
    tlb.pages = machine.pages.sizes;
    if (reader.has("pages")) {
        tlb.pages.clear();
        for (const std::string& word : reader.texts("pages")) {
            const PageShift size = page_size(reader, "pages", word);
            const auto& sizes = machine.pages.sizes;
            if (std::find(sizes.begin(), sizes.end(), size) == sizes.end())
                reader.reject("pages", fmt::format("{} is not among pages.sizes", word),
                              "add it there, or leave it out here");
            tlb.pages.push_back(size);
        }
        if (tlb.pages.empty())
            reader.reject("pages", fmt::format("{} is empty", reader.path_of("pages")),
                          "list sizes, or leave it out for all of pages.sizes");
        std::sort(tlb.pages.begin(), tlb.pages.end());
    }
    read_geometry(reader, tlb.geometry);
    if (tlb.level > 1)
        tlb.hit = Cycles(reader.whole("hit", 0, 10'000));
    else if (reader.has("hit"))
        reader.reject("hit", "a hit in the first level costs nothing extra", "leave it out");
    tlb.inclusive = reader.truth_or("inclusive", false);
    if (tlb.inclusive && tlb.level == 1)
        reader.reject("inclusive", "the first level has no level before it to include", "leave it out");
    tlb.source = reader.text("source");
    return tlb;
}

void read_tlbs(TomlDocument& document, TomlTable& root, Machine& machine) {
    const toml::table* tlbs = root.raw_table("tlb");
    if (tlbs == nullptr) return;
    // In the order of the file: arrays are reported as their author wrote them down.
    std::vector<std::pair<std::uint32_t, std::string>> names;
    const std::vector<std::string> usual{"instruction", "data"};
    for (const auto& [key, node] : *tlbs) {
        const std::string name(key.str());
        names.emplace_back(static_cast<std::uint32_t>(node.source().begin.line), name);
        // Any name will do for an array that says what it serves; without that it is a slip of the pen.
        const bool known =
            name == usual[0] || name == usual[1] || (node.is_table() && node.as_table()->contains("serves"));
        if (const std::string guess = nearest(name, usual); !known && !guess.empty())
            document.complain(document.where(key.source(), "tlb." + name),
                              fmt::format("unknown key tlb.{}", name),
                              fmt::format("did you mean tlb.{}?", guess));
    }
    std::sort(names.begin(), names.end());
    TomlTable reader(document, *tlbs, "tlb", {});
    for (const auto& [line, name] : names)
        if (const toml::table* table = reader.raw_table(name))
            machine.tlbs.push_back(read_tlb(document, *table, name, machine));
    std::stable_sort(machine.tlbs.begin(), machine.tlbs.end(),
                     [](const TlbDescription& a, const TlbDescription& b) { return a.level < b.level; });
    for (const Kind kind : {Kind::kInstruction, Kind::kData})
        if (std::none_of(machine.tlbs.begin(), machine.tlbs.end(),
                         [kind](const TlbDescription& tlb) { return tlb.level == 1 && tlb.serves(kind); }))
            root.reject(
                "tlb",
                fmt::format("no first-level array serves {} references",
                            kind == Kind::kInstruction ? "instruction" : "data"),
                fmt::format("add a table [tlb.{}]", kind == Kind::kInstruction ? "instruction" : "data"));
    for (std::uint32_t level = 2; level <= kMostLevels; ++level)
        for (const TlbDescription& tlb : machine.tlbs)
            if (tlb.level == level &&
                std::none_of(machine.tlbs.begin(), machine.tlbs.end(),
                             [level](const auto& other) { return other.level + 1 == level; }))
                reader.reject(tlb.name,
                              fmt::format("tlb.{} is of level {} and there is none of level {}", tlb.name,
                                          level, level - 1),
                              "number the levels from 1");
}

void read_mapping(TomlTable& root, Machine& machine) {
    if (!root.has("mapping")) return;
    auto table = root.table("mapping", {"map", "pin", "source"});
    if (!table) return;
    for (const bool pinned : {false, true}) {
        const char* key = pinned ? "pin" : "map";
        if (!table->has(key)) continue;
        for (const std::string& word : table->texts(key)) {
            auto rule = addrspace::parse_rule(word, pinned);
            if (!rule) {
                table->reject(key, rule.error().what, rule.error().hint);
                return;
            }
            machine.rules.push_back(std::move(*rule));
        }
    }
    machine.own_rules = machine.rules.size();
    machine.rules_source = table->text("source");
}

void read_walk(TomlTable& root, Machine& machine) {
    if (!root.has("walk")) return;
    auto table = root.table("walk", {"format", "caches", "cycles", "source"});
    if (!table) return;
    Machine::Walk walk;
    walk.format = table->text("format");
    const auto format = pagetable::find_format(walk.format);
    if (!format) {
        table->reject("format", format.error().what, format.error().hint);
        return;
    }
    walk.cycles = Cycles(table->whole("cycles", 0, 10'000));
    if (table->has("caches"))
        for (const std::string& word : table->texts("caches")) {
            const std::size_t colon = word.find(':');
            Machine::Walk::Cached cached{.level = word.substr(0, colon)};
            const auto& levels = (*format)->levels;
            const bool known = std::any_of(levels.begin(), levels.end(),
                                           [&](const auto& level) { return level.name == cached.level; });
            const std::string number = colon == std::string::npos ? "" : word.substr(colon + 1);
            cached.entries = static_cast<std::uint32_t>(std::strtoul(number.c_str(), nullptr, 10));
            if (!known || cached.entries == 0 || cached.entries > 65536) {
                std::string names;
                for (const auto& level : levels)
                    names += (names.empty() ? "" : ", ") + std::string(level.name);
                table->reject("caches", fmt::format("\"{}\" is no walk cache of {}", word, walk.format),
                              fmt::format("write LEVEL:ENTRIES; its levels are {}", names));
                return;
            }
            walk.caches.push_back(cached);
        }
    walk.source = table->text("source");
    machine.walk = std::move(walk);
}

void read_cache(TomlTable& root, const std::string& key, std::optional<CacheDescription>& into) {
    if (!root.has(key)) return;
    auto table = root.table(key, {"bytes", "line", "ways", "hit", "miss", "sees_program", "source"});
    if (!table) return;
    CacheDescription cache;
    const std::string word = table->text("bytes");
    cache.bytes = static_cast<std::uint32_t>(std::min<std::uint64_t>(parse_size(word), 1u << 30));
    cache.line = static_cast<std::uint32_t>(table->whole("line", 4, 4096));
    cache.ways = static_cast<std::uint32_t>(table->whole("ways", 1, 1024));
    if (!std::has_single_bit(cache.line) || cache.bytes % (cache.line * cache.ways) != 0 ||
        cache.bytes == 0 || !std::has_single_bit(cache.sets())) {
        table->reject(
            "bytes",
            fmt::format("{} of \"{}\" in lines of {} and {} ways do not make a power of two of sets", key,
                        word, cache.line, cache.ways),
            "check the three");
        return;
    }
    cache.hit = Cycles(table->whole("hit", 0, 10'000));
    cache.miss = Cycles(table->whole("miss", 0, 100'000));
    cache.sees_program = table->truth_or("sees_program", false);
    cache.source = table->text("source");
    into = cache;
}

void read_invalidation(TomlTable& root, Machine& machine) {
    if (!root.has("invalidation")) return;
    auto table = root.table("invalidation",
                            {"page_matches_any_asid", "page_kills_reserved", "all_spares_reserved",
                             "all_spares_global", "all_clears_index", "reload_kills_overlapping", "source"});
    if (!table) return;
    InvalidationRules& rules = machine.invalidation;
    rules.page_matches_any_asid = table->truth_or("page_matches_any_asid", rules.page_matches_any_asid);
    rules.page_kills_reserved = table->truth_or("page_kills_reserved", rules.page_kills_reserved);
    rules.all_spares_reserved = table->truth_or("all_spares_reserved", rules.all_spares_reserved);
    rules.all_spares_global = table->truth_or("all_spares_global", rules.all_spares_global);
    rules.all_clears_index = table->truth_or("all_clears_index", rules.all_clears_index);
    rules.reload_kills_overlapping =
        table->truth_or("reload_kills_overlapping", rules.reload_kills_overlapping);
    rules.source = table->text("source");
}

Machine read_machine(TomlDocument& document) {
    Machine machine;
    TomlTable root(document, document.root(), "",
                   {"name", "title", "source", "address_bits", "clock", "pages", "asid", "tlb", "refill",
                    "mapping", "invalidation", "walk", "data_cache", "instruction_cache", "flush"});
    machine.name = root.text("name");
    machine.title = root.text("title");
    machine.source = root.text("source");
    machine.address_bits = static_cast<std::uint32_t>(root.whole("address_bits", 16, 64));
    if (auto clock = root.table("clock", {"hertz", "cycles_per_instruction", "source"})) {
        machine.clock.hertz = clock->positive("hertz");
        machine.clock.cycles_per_instruction = clock->positive("cycles_per_instruction");
        machine.clock.source = clock->text("source");
    }
    if (auto pages = root.table("pages", {"sizes", "base", "source"})) {
        for (const std::string& word : pages->texts("sizes"))
            machine.pages.sizes.push_back(page_size(*pages, "sizes", word));
        std::sort(machine.pages.sizes.begin(), machine.pages.sizes.end());
        machine.pages.base = page_size(*pages, "base", pages->text("base"));
        const auto& sizes = machine.pages.sizes;
        if (std::find(sizes.begin(), sizes.end(), machine.pages.base) == sizes.end())
            pages->reject("base",
                          fmt::format("pages.base is {}, which is not among pages.sizes",
                                      size_name(machine.pages.base.bytes())),
                          "choose one of them or add it");
        machine.pages.source = pages->text("source");
    }
    if (auto asid = root.table("asid", {"count", "source"})) {
        machine.asids.count = static_cast<std::uint32_t>(asid->whole("count", 0, 1 << 24));
        machine.asids.source = asid->text("source");
    }
    read_tlbs(document, root, machine);
    read_mapping(root, machine);
    read_invalidation(root, machine);
    read_walk(root, machine);
    read_cache(root, "data_cache", machine.data_cache);
    read_cache(root, "instruction_cache", machine.instruction_cache);
    if (auto refill = root.table("refill", {"by", "cycles", "cost", "handler", "source"})) {
        machine.refill.by = refill->text("by");
        if (machine.refill.by != "software" && machine.refill.by != "hardware")
            refill->reject("by", fmt::format("refill.by is \"{}\"", machine.refill.by),
                           "give \"software\" or \"hardware\"");
        machine.refill.cycles = Cycles(refill->whole("cycles", 0, 1'000'000));
        if (refill->has("cost")) {
            const std::string cost = refill->text("cost");
            if (cost != "fixed" && cost != "derived")
                refill->reject("cost", fmt::format("refill.cost is \"{}\"", cost),
                               "give \"fixed\" or \"derived\"");
            machine.refill.derived = cost == "derived";
        }
        if (refill->has("handler")) {
            auto handler = load_handler(refill->text("handler"));
            if (handler)
                machine.refill.handler = std::move(*handler);
            else
                refill->reject("handler", handler.error().what, handler.error().hint);
        }
        if (machine.refill.derived) {
            if (!machine.data_cache)
                refill->reject("cost", "a derived cost needs to know the cache that table loads go through",
                               "add a table [data_cache]");
            else if (!machine.refill.handler && !machine.walk)
                refill->reject("cost", "a derived cost needs to know what is walked",
                               machine.refill.by == "software" ? "add refill.handler" : "add a table [walk]");
        }
        machine.refill.source = refill->text("source");
    }
    machine.flush = read_flush_costs(root);
    machine.file = document.file();
    return machine;
}

}  // namespace

const TlbDescription& Machine::tlb(Kind kind) const {
    // As routes go: the one whose largest size within a base page is the largest.
    const TlbDescription* best = nullptr;
    PageShift largest{0};
    for (const TlbDescription& tlb : tlbs)
        for (const PageShift size : tlb.pages)
            if (tlb.level == 1 && tlb.serves(kind) && size <= pages.base && size >= largest) {
                best = &tlb;
                largest = size;
            }
    return *best;
}

std::uint32_t Machine::levels() const { return tlbs.empty() ? 1 : tlbs.back().level; }

std::string Machine::changes_text() const { return fmt::format("{}", fmt::join(changes, ", ")); }

std::vector<fs::path> machine_folders() {
    std::vector<fs::path> folders;
    if (const char* named = std::getenv("TLBSCOPE_MACHINES"); named != nullptr) {
        std::string_view rest = named;
        while (!rest.empty()) {
            const auto colon = rest.find(':');
            if (colon != 0) folders.emplace_back(rest.substr(0, colon));
            rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
        }
    }
    std::error_code code;
    if (const fs::path program = fs::read_symlink("/proc/self/exe", code); !code) {
        folders.push_back(program.parent_path() / "machines");
        folders.push_back(program.parent_path().parent_path() / "share" / "tlbscope" / "machines");
    }
    folders.emplace_back(TLBSCOPE_SOURCE_MACHINES);
    return folders;
}

std::vector<std::string> machine_names() {
    std::set<std::string> names;
    for (const fs::path& folder : machine_folders()) {
        std::error_code code;
        for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code))
            if (entry->path().extension() == ".toml") names.insert(entry->path().stem().string());
    }
    return {names.begin(), names.end()};
}

Result<Machine> parse_machine(const std::string& text, const std::string& file,
                              const std::vector<std::string>& changes) {
    auto document = TomlDocument::parse(text, file);
    if (!document) return std::unexpected(document.error());
    for (const std::string& change : changes)
        if (auto done = document->set(change); !done) return std::unexpected(done.error());
    Machine machine = read_machine(*document);
    if (document->error()) return std::unexpected(*document->error());
    // A mapping of the file can be impossible on its arrays; the command line's is checked when it is added.
    if (auto routes = Routes::of(machine); !routes) {
        Error error = routes.error();
        // It names an array, or none.
        const auto tlbs = document->root()["tlb"];
        const toml::node* named = error.where.empty() ? nullptr : tlbs[error.where.substr(4)].node();
        error.where = named != nullptr ? document->where(named->source(), error.where)
                                       : document->where(tlbs.node()->source(), "tlb");
        return std::unexpected(error);
    }
    machine.changes = changes;
    return machine;
}

Result<Machine> load_machine(const std::string& name_or_path, const std::vector<std::string>& changes) {
    fs::path path;
    if (name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".toml")) {
        path = name_or_path;
    } else {
        for (const fs::path& folder : machine_folders()) {
            std::error_code code;
            if (fs::path candidate = folder / (name_or_path + ".toml");
                fs::is_regular_file(candidate, code)) {
                path = candidate;
                break;
            }
        }
        if (path.empty()) {
            const std::string guess = nearest(name_or_path, machine_names());
            return std::unexpected(Error{.where = "",
                                         .what = fmt::format("there is no machine {}", name_or_path),
                                         .hint = guess.empty() ? "`tlbscope machines` lists them"
                                                               : fmt::format("did you mean {}?", guess),
                                         .error_class = ErrorClass::kUsage});
        }
    }
    auto text = read_text(path);
    if (!text) return std::unexpected(text.error());
    return parse_machine(*text, path.string(), changes);
}

}  // namespace tlbscope::machine
