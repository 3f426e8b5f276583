// tlbscope machines: which MMUs there are, and what is known about one.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "cli/command.h"
#include "core/numbers.h"
#include "core/text.h"
#include "machine/machine_file.h"

namespace tlbscope::cli {

namespace {

using machine::Machine;
using Json = nlohmann::ordered_json;

std::string page_sizes(const std::vector<PageShift>& sizes) {
    std::string text;
    for (const PageShift size : sizes) {
        if (!text.empty()) text += ", ";
        text += size_name(size.bytes());
    }
    return text;
}

std::string serves_text(const machine::TlbDescription& tlb) {
    if (tlb.instruction && tlb.data) return "both";
    return tlb.instruction ? "instruction" : "data";
}

std::string geometry_text(const Machine& machine, const machine::TlbDescription& tlb) {
    const machine::TlbGeometry& geometry = tlb.geometry;
    std::string text = fmt::format("{} entries, ", geometry.entries);
    text += geometry.sets() == 1 ? "fully associative"
                                 : fmt::format("{} ways, {} sets", geometry.ways, geometry.sets());
    text += fmt::format(", {}", machine::name_of(geometry.replacement));
    if (geometry.reserved > 0) text += fmt::format(", {} reserved", geometry.reserved);
    if (tlb.instruction && tlb.data)
        text += ", for instructions and data";
    else if (tlb.name != serves_text(tlb))
        text += tlb.instruction ? ", for instructions" : ", for data";
    if (tlb.pages != machine.pages.sizes) text += fmt::format("; {} pages", page_sizes(tlb.pages));
    if (tlb.level > 1) text += fmt::format("; level {}, a hit costs {} cycles", tlb.level, tlb.hit.value());
    if (tlb.inclusive) text += ", inclusive: what it loses the levels before lose too";
    return text;
}

std::string identifiers_text(std::uint32_t count) {
    if (count == 0) return "none: every switch of address space flushes everything";
    if (count == 1) return "one: every switch of address space drops the user's entries";
    return grouped(count) + " identifiers";
}

std::string invalidation_text(const Machine& machine) {
    const machine::InvalidationRules& rules = machine.invalidation;
    // Only of machines that have reserved entries, or have a rule of their own about them.
    const bool reserves =
        rules.page_kills_reserved || !rules.all_spares_reserved ||
        std::any_of(machine.tlbs.begin(), machine.tlbs.end(),
                    [](const machine::TlbDescription& tlb) { return tlb.geometry.reserved > 0; });
    std::string text = rules.page_matches_any_asid
                           ? "of a page: its entries whatever their identifier"
                           : "of a page: its entries with the current identifier, and global ones";
    if (reserves) text += rules.page_kills_reserved ? ", reserved ones too" : ", but not reserved ones";
    text += "; of everything: ";
    std::vector<std::string> spared;
    if (rules.all_spares_global) spared.emplace_back("global");
    if (reserves && rules.all_spares_reserved) spared.emplace_back("reserved");
    text += spared.empty() ? "all entries" : fmt::format("all but {} entries", fmt::join(spared, " and "));
    if (rules.reload_kills_overlapping)
        text += "; a reload removes older entries of other sizes in its range";
    return text;
}

std::string walk_text(const Machine::Walk& walk) {
    std::string text =
        fmt::format("{} tables, {} cycles besides the loads", walk.format, walk.cycles.value());
    for (const Machine::Walk::Cached& cached : walk.caches)
        text += fmt::format("; remembers {} {} entries", cached.entries, cached.level);
    return text;
}

std::string cache_text(const machine::CacheDescription& cache) {
    return fmt::format("{}, {} ways, lines of {} bytes; a hit takes {} cycles, a miss {}{}",
                       size_name(cache.bytes), cache.ways, cache.line, cache.hit.value(), cache.miss.value(),
                       cache.sees_program ? "; the program uses it too" : "");
}

std::string shown(const Machine& machine) {
    constexpr std::size_t kNames = 15;  // columns that most names fit into
    std::string text = fmt::format("{}: {}\n", machine.name, machine.title);
    text += wrapped(machine.source, "  ");
    const std::string indent(kNames + 4, ' ');
    const auto group = [&](const std::string& name, const std::string& facts, const std::string& source) {
        text += "\n";
        if (name.size() > kNames) text += fmt::format("  {}\n", name);
        text += wrapped(facts, indent, 100,
                        name.size() > kNames ? indent : fmt::format("  {:<{}}  ", name, kNames));
        if (!source.empty()) text += wrapped("source: " + source, indent + "    ", 100, indent + "  ");
    };
    group("addresses", fmt::format("{} bits", machine.address_bits), "");
    group("clock",
          fmt::format("{:g} MHz, {:g} {} an instruction", machine.clock.hertz / 1e6,
                      machine.clock.cycles_per_instruction,
                      machine.clock.cycles_per_instruction == 1 ? "cycle" : "cycles"),
          machine.clock.source);
    group("pages",
          fmt::format("{}; base {}", page_sizes(machine.pages.sizes), size_name(machine.pages.base.bytes())),
          machine.pages.source);
    group("asid", identifiers_text(machine.asids.count), machine.asids.source);
    for (const auto& tlb : machine.tlbs) group("tlb." + tlb.name, geometry_text(machine, tlb), tlb.source);
    if (!machine.rules.empty()) group("mapping", machine.mapping().text(), machine.rules_source);
    if (!machine.invalidation.source.empty())
        group("invalidation", invalidation_text(machine), machine.invalidation.source);
    std::string refill =
        fmt::format("by {}, {} cycles per miss", machine.refill.by, machine.refill.cycles.value());
    if (machine.refill.handler) refill += ", handler " + machine.refill.handler->name;
    if (machine.refill.derived) refill += "; derived from what each loads instead";
    group("refill", refill, machine.refill.source);
    if (machine.walk) group("walk", walk_text(*machine.walk), machine.walk->source);
    for (const auto& [name, cache] : {std::pair{"data_cache", &machine.data_cache},
                                      std::pair{"instruction_cache", &machine.instruction_cache}})
        if (*cache) group(name, cache_text(**cache), (*cache)->source);
    group("file", machine.file, "");
    if (!machine.changes.empty()) group("changed", machine.changes_text(), "");
    return text;
}

Json sizes_json(const std::vector<PageShift>& pages) {
    Json sizes = Json::array();
    for (const PageShift size : pages) sizes.push_back(size.bytes());
    return sizes;
}

Json as_json(const Machine& machine) {
    Json json{{"name", machine.name},
              {"title", machine.title},
              {"source", machine.source},
              {"address_bits", machine.address_bits},
              {"clock",
               {{"hertz", machine.clock.hertz},
                {"cycles_per_instruction", machine.clock.cycles_per_instruction},
                {"source", machine.clock.source}}}};
    json["pages"] = {{"sizes", sizes_json(machine.pages.sizes)},
                     {"base", machine.pages.base.bytes()},
                     {"source", machine.pages.source}};
    json["asid"] = {{"count", machine.asids.count}, {"source", machine.asids.source}};
    for (const auto& tlb : machine.tlbs)
        json["tlb"][tlb.name] = {{"entries", tlb.geometry.entries},
                                 {"ways", tlb.geometry.ways},
                                 {"reserved", tlb.geometry.reserved},
                                 {"replacement", machine::name_of(tlb.geometry.replacement)},
                                 {"seed", tlb.geometry.seed},
                                 {"level", tlb.level},
                                 {"serves", serves_text(tlb)},
                                 {"pages", sizes_json(tlb.pages)},
                                 {"hit", tlb.hit.value()},
                                 {"inclusive", tlb.inclusive},
                                 {"source", tlb.source}};
    Json map = Json::array();
    Json pin = Json::array();
    for (const addrspace::MappingRule& rule : machine.rules) (rule.pinned ? pin : map).push_back(rule.text());
    json["mapping"] = {{"map", map}, {"pin", pin}, {"source", machine.rules_source}};
    const machine::InvalidationRules& rules = machine.invalidation;
    json["invalidation"] = {{"page_matches_any_asid", rules.page_matches_any_asid},
                            {"page_kills_reserved", rules.page_kills_reserved},
                            {"all_spares_reserved", rules.all_spares_reserved},
                            {"all_spares_global", rules.all_spares_global},
                            {"all_clears_index", rules.all_clears_index},
                            {"reload_kills_overlapping", rules.reload_kills_overlapping},
                            {"source", rules.source}};
    json["refill"] = {{"by", machine.refill.by},
                      {"cycles", machine.refill.cycles.value()},
                      {"source", machine.refill.source}};
    if (machine.refill.handler) json["refill"]["handler"] = machine.refill.handler->name;
    json["refill"]["derived"] = machine.refill.derived;
    if (machine.walk) {
        Json caches = Json::object();
        for (const Machine::Walk::Cached& cached : machine.walk->caches)
            caches[cached.level] = cached.entries;
        json["walk"] = {{"format", machine.walk->format},
                        {"caches", caches},
                        {"cycles", machine.walk->cycles.value()},
                        {"source", machine.walk->source}};
    }
    for (const auto& [name, cache] : {std::pair{"data_cache", &machine.data_cache},
                                      std::pair{"instruction_cache", &machine.instruction_cache}})
        if (*cache)
            json[name] = {{"bytes", (*cache)->bytes},       {"line", (*cache)->line},
                          {"ways", (*cache)->ways},         {"hit", (*cache)->hit.value()},
                          {"miss", (*cache)->miss.value()}, {"sees_program", (*cache)->sees_program},
                          {"source", (*cache)->source}};
    json["file"] = machine.file;
    return json;
}

struct Options {
    std::string name;
    std::vector<std::string> changes;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
};

std::string csv_field(const std::string& text) {
    std::string field = "\"";
    for (const char c : text) field += c == '"' ? std::string("\"\"") : std::string(1, c);
    return field + '"';
}

constexpr const char* kCsvHeading =
    "machine,title,array,level,serves,pages,entries,ways,reserved,replacement,hit_cycles,inclusive,refill_by,"
    "refill_cycles,file\n";

// A line for each array: a machine has any number of them, and one may serve instructions and data.
std::string csv_lines(const Machine& machine) {
    std::string text;
    for (const machine::TlbDescription& tlb : machine.tlbs)
        text += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", machine.name,
                            csv_field(machine.title), tlb.name, tlb.level, serves_text(tlb),
                            csv_field(page_sizes(tlb.pages)), tlb.geometry.entries, tlb.geometry.ways,
                            tlb.geometry.reserved, machine::name_of(tlb.geometry.replacement),
                            tlb.hit.value(), tlb.inclusive, machine.refill.by, machine.refill.cycles.value(),
                            csv_field(machine.file));
    return text;
}

Result<Exit> list(Console& console, Format format) {
    std::string text;
    Json rows = Json::array();
    std::optional<Error> bad;  // a file that does not load must not hide the others
    if (format == Format::kCsv) text = kCsvHeading;
    for (const std::string& name : machine::machine_names()) {
        auto loaded = machine::load_machine(name);
        if (!loaded) {
            if (!bad) bad = loaded.error();
            continue;
        }
        if (format == Format::kJson)
            rows.push_back(as_json(*loaded));
        else if (format == Format::kCsv)
            text += csv_lines(*loaded);
        else
            text += fmt::format("{:<12} {}\n", name, loaded->title);
    }
    if (format == Format::kJson) text = Json{{"schema", 1}, {"machines", rows}}.dump(2) + "\n";
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (bad) return std::unexpected(*bad);
    if (format == Format::kText)
        console.suggest(fmt::format("tlbscope machines {}    where each fact comes from", kDefaultMachine));
    return Exit::kOk;
}

Result<Exit> show(Console& console, const Options& options) {
    auto loaded = machine::load_machine(options.name, options.changes);
    if (!loaded) return std::unexpected(loaded.error());
    const std::string text =
        *options.format == Format::kJson
            ? Json{{"schema", 1}, {"machines", Json::array({as_json(*loaded)})}}.dump(2) + "\n"
        : *options.format == Format::kCsv ? kCsvHeading + csv_lines(*loaded)
                                          : shown(*loaded);
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (*options.format == Format::kText)
        console.suggest(fmt::format("tlbscope replay --machine {}", options.name));
    return Exit::kOk;
}

}  // namespace

Command machines_command() {
    return {.name = "machines",
            .summary = "list the MMUs, or show one with the source of each fact",
            .examples =
                "  tlbscope machines                   list them\n"
                "  tlbscope machines mpc855t           show one, with sources\n"
                "  tlbscope machines ./my-chip.toml    check and show your own\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                app.add_option("machine", options->name, "a machine's name or file")->type_name("NAME|FILE");
                app.add_option("--set", options->changes,
                               "change a fact, e.g. tlb.data.entries=64; repeatable")
                    ->type_name("KEY=VALUE")
                    ->expected(1)
                    ->take_all();
                add_format_options(app, options->format);
                return [options, &console]() -> Result<Exit> {
                    if (options->name.empty()) {
                        if (!options->changes.empty())
                            return usage_error("--set needs a machine",
                                               fmt::format("tlbscope machines {} --set {}", kDefaultMachine,
                                                           options->changes.front()));
                        return list(console, *options->format);
                    }
                    return show(console, *options);
                };
            }};
}

}  // namespace tlbscope::cli
