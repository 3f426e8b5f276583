// tlbscope machines: which MMUs there are, and what is known about one.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

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

std::string geometry_text(const Machine& machine, const machine::TlbDescription& tlb) {
    const machine::TlbGeometry& geometry = tlb.geometry;
    std::string text = geometry.ways == geometry.entries
                           ? fmt::format("{} entries, fully associative", geometry.entries)
                           : fmt::format("{} entries, {} ways", geometry.entries, geometry.ways);
    text += fmt::format(", {}", machine::name_of(geometry.replacement));
    if (geometry.reserved > 0) text += fmt::format(", {} reserved", geometry.reserved);
    if (tlb.pages != machine.pages.sizes) text += fmt::format(", for {}", page_sizes(tlb.pages));
    if (tlb.instruction && tlb.data) text += ", for instructions and data";
    if (tlb.level > 1) text += fmt::format(", level {}, a hit costs {} cycles", tlb.level, tlb.hit.value());
    if (tlb.inclusive) text += ", includes the levels before";
    return text;
}

std::string invalidation_text(const machine::InvalidationRules& rules) {
    return fmt::format(
        "by page: {}, {}; of everything: {}, {}; a reload {} older entries of other sizes in its range",
        rules.page_matches_any_asid ? "whatever the identifier" : "with its identifier",
        rules.page_kills_reserved ? "reserved entries as well" : "not reserved entries",
        rules.all_spares_reserved ? "not reserved entries" : "reserved entries as well",
        rules.all_spares_global ? "not global ones" : "global ones as well",
        rules.reload_kills_overlapping ? "removes" : "leaves");
}

std::string shown(const Machine& machine) {
    std::string text = fmt::format("{}: {}\n", machine.name, machine.title);
    const auto group = [&](const std::string& name, const std::string& facts, const std::string& source) {
        text += fmt::format("\n  {:<16} {}\n", name, facts);
        text += wrapped(source, "                   ");
    };
    group("addresses", fmt::format("{} bits", machine.address_bits), machine.source);
    group("clock",
          fmt::format("{:g} MHz, {:g} cycles an instruction", machine.clock.hertz / 1e6,
                      machine.clock.cycles_per_instruction),
          machine.clock.source);
    group("pages",
          fmt::format("{}; base {}", page_sizes(machine.pages.sizes), size_name(machine.pages.base.bytes())),
          machine.pages.source);
    group("asid", fmt::format("{} identifiers", machine.asids.count), machine.asids.source);
    for (const auto& tlb : machine.tlbs) group("tlb." + tlb.name, geometry_text(machine, tlb), tlb.source);
    if (!machine.rules.empty()) group("mapping", machine.mapping().text(), machine.rules_source);
    if (!machine.invalidation.source.empty())
        group("invalidation", invalidation_text(machine.invalidation), machine.invalidation.source);
    group("refill",
          fmt::format("by {}, {} cycles per miss", machine.refill.by, machine.refill.cycles.value()),
          machine.refill.source);
    text += fmt::format("\n  {:<16} {}\n", "file", machine.file);
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
                                 {"serves", tlb.instruction && tlb.data ? "both"
                                            : tlb.instruction           ? "instruction"
                                                                        : "data"},
                                 {"pages", sizes_json(tlb.pages)},
                                 {"hit", tlb.hit.value()},
                                 {"inclusive", tlb.inclusive},
                                 {"source", tlb.source}};
    json["refill"] = {{"by", machine.refill.by},
                      {"cycles", machine.refill.cycles.value()},
                      {"source", machine.refill.source}};
    json["file"] = machine.file;
    return json;
}

struct Options {
    std::string name;
    std::vector<std::string> changes;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
};

Result<Exit> list(Console& console, Format format) {
    std::string text;
    Json rows = Json::array();
    if (format == Format::kCsv) text = "name,title,instruction_entries,data_entries,refill_cycles,file\n";
    for (const std::string& name : machine::machine_names()) {
        auto loaded = machine::load_machine(name);
        if (!loaded) return std::unexpected(loaded.error());
        if (format == Format::kJson)
            rows.push_back(as_json(*loaded));
        else if (format == Format::kCsv)
            text += fmt::format("{},\"{}\",{},{},{},\"{}\"\n", name, loaded->title,
                                loaded->tlb(Kind::kInstruction).geometry.entries,
                                loaded->tlb(Kind::kData).geometry.entries, loaded->refill.cycles.value(),
                                loaded->file);
        else
            text += fmt::format("{:<12} {}\n", name, loaded->title);
    }
    if (format == Format::kJson) text = Json{{"schema", 1}, {"machines", rows}}.dump(2) + "\n";
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (format == Format::kText)
        console.suggest(fmt::format("tlbscope machines {}    where each fact comes from", kDefaultMachine));
    return Exit::kOk;
}

Result<Exit> show(Console& console, const Options& options) {
    auto loaded = machine::load_machine(options.name, options.changes);
    if (!loaded) return std::unexpected(loaded.error());
    if (*options.format == Format::kCsv)
        return usage_error("one machine has no CSV form", "use --json, or --csv without a name for the list");
    const std::string text =
        *options.format == Format::kJson
            ? Json{{"schema", 1}, {"machines", Json::array({as_json(*loaded)})}}.dump(2) + "\n"
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
