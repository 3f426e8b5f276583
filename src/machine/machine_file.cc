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
#include "machine/toml_reader.h"

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

TlbDescription read_tlb(TomlDocument& document, const toml::table& table, const std::string& name,
                        Kind kind) {
    constexpr std::uint64_t kMostEntries = 1 << 20;
    TomlTable reader(document, table, "tlb." + name,
                     {"entries", "ways", "reserved", "replacement", "seed", "source"});
    TlbDescription tlb;
    tlb.name = name;
    tlb.kind = kind;
    TlbGeometry& geometry = tlb.geometry;
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
    geometry.seed = reader.whole_or("seed", 0, ~std::uint64_t{0} >> 1, 1);
    tlb.source = reader.text("source");
    return tlb;
}

void read_tlbs(TomlDocument& document, TomlTable& root, Machine& machine) {
    // Named here so that a misspelt name is told apart from an array that other stages may define one day.
    auto reader = root.table("tlb", {"instruction", "data"});
    if (!reader) return;
    for (const auto& [name, kind] : {std::pair{"instruction", Kind::kInstruction}, {"data", Kind::kData}})
        if (const toml::table* table = reader->raw_table(name))
            machine.tlbs.push_back(read_tlb(document, *table, name, kind));
}

Machine read_machine(TomlDocument& document) {
    Machine machine;
    TomlTable root(document, document.root(), "",
                   {"name", "title", "source", "address_bits", "clock", "pages", "asid", "tlb", "refill", "flush"});
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
    if (auto refill = root.table("refill", {"by", "cycles", "source"})) {
        machine.refill.by = refill->text("by");
        if (machine.refill.by != "software" && machine.refill.by != "hardware")
            refill->reject("by", fmt::format("refill.by is \"{}\"", machine.refill.by),
                           "give \"software\" or \"hardware\"");
        machine.refill.cycles = Cycles(refill->whole("cycles", 0, 1'000'000));
        machine.refill.source = refill->text("source");
    }
    machine.flush = read_flush_costs(root);
    machine.file = document.file();
    return machine;
}

}  // namespace

const TlbDescription& Machine::tlb(Kind kind) const {
    return *std::find_if(tlbs.begin(), tlbs.end(),
                         [kind](const TlbDescription& tlb) { return tlb.kind == kind; });
}

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
