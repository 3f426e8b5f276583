// tlbscope walk: page tables in a memory image, entry by entry.
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/numbers.h"
#include "image/image.h"
#include "pagetable/listing.h"
#include "pagetable/walk.h"

namespace tlbscope::cli {

namespace {

using Json = nlohmann::ordered_json;
using namespace pagetable;

struct Options {
    std::string image;
    std::string format_name;
    std::string root;
    std::string bdi2000;
    std::string base = "0";
    std::string kernel_base;
    std::vector<std::string> addresses;
    bool all = false;
    bool upper = false;
    std::shared_ptr<cli::Format> output = std::make_shared<cli::Format>(cli::Format::kText);
};

// Addresses are hexadecimal, with or without 0x, as debuggers print them.
Result<std::uint64_t> hexadecimal(const std::string& option, const std::string& text) {
    std::string_view digits = text;
    if (digits.starts_with("0x") || digits.starts_with("0X")) digits.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (code != std::errc{} || end != digits.data() + digits.size() || digits.empty())
        return usage_error(fmt::format("{}: {} is no hexadecimal number of at most 64 bits", option, text),
                           "for example 0xc0009e00");
    return value;
}

// The roots to try, in order, and what each is called.
struct Root {
    std::string name;
    PhysAddr table;
};

// BDI2000's convention (Abatron's manual 3.3.6; Linux's abatron_pteptrs): PTBASE holds the address of two
// words, the kernel's page directory and the current process's. Addresses from KERNELBASE up are virtual. The
// second table is searched when it is there and the first has no match.
Result<std::vector<Root>> bdi2000_roots(const Options& options, const image::Image& image,
                                        std::uint64_t kernel_base) {
    const auto pointer = hexadecimal("--bdi2000", options.bdi2000);
    if (!pointer) return std::unexpected(pointer.error());
    const auto word = [&](std::uint64_t at) -> Result<std::uint64_t> {
        std::uint32_t bytes = 0;
        if (!image.load(PhysAddr(at), &bytes, sizeof bytes))
            return fail(options.image, fmt::format("there is no memory at {:#x} in it", at),
                        "check --bdi2000 and, for raw memory, --base");
        const std::uint64_t value = load_entry(&bytes, sizeof bytes, true);
        return value >= kernel_base ? value - kernel_base : value;
    };
    const auto pair = word(*pointer);
    if (!pair) return std::unexpected(pair.error());
    if (*pair == 0)
        return fail(options.image,
                    fmt::format("the pointer at {:#x} is 0, so the debugger would walk no table", *pointer),
                    "the kernel must be built with CONFIG_BDI_SWITCH and must have started");
    std::vector<Root> roots;
    for (const auto& [name, offset] : {std::pair{"kernel", 0}, {"user", 4}}) {
        const auto table = word(*pair + static_cast<std::uint64_t>(offset));
        if (!table) return std::unexpected(table.error());
        if (*table == 0 && offset == 0)
            return fail(options.image,
                        "the kernel's page directory pointer is 0, so the debugger would walk no table",
                        "dump the memory after the kernel has set up its tables");
        if (*table != 0) roots.push_back({name, PhysAddr(*table)});
    }
    return roots;
}

std::string meaning(const pagetable::Format& format, const Step& step) {
    const std::string fields = format.fields_text(step.level, step.raw);
    std::string text;
    switch (step.entry.kind) {
        case EntryKind::kNone:
            text = "none";
            break;
        case EntryKind::kTable:
            text = fmt::format("table at {:#x}", step.entry.address.value());
            break;
        case EntryKind::kPage:
            text = fmt::format("page of {} at {:#x} {}", size_name(step.entry.size.bytes()),
                               step.entry.address.value(), flags_text(step.entry.flags));
            break;
        case EntryKind::kMalformed:
            text = fmt::format("malformed: {}", step.entry.why);
    }
    return fields.empty() ? text : text + "  (" + fields + ")";
}

std::string walk_text(const pagetable::Format& format, const Root& root, std::uint64_t address,
                      const Walk& found) {
    std::string text = fmt::format("{:#x}", address);
    switch (found.outcome) {
        case Outcome::kMapped:
            text += fmt::format(" is physical {:#x}, in a page of {}, {}", found.physical(address).value(),
                                size_name(found.page().size.bytes()), flags_text(found.page().flags));
            break;
        case Outcome::kNotPresent:
            text += " is not mapped";
            break;
        case Outcome::kMalformed:
            text += fmt::format(" meets a malformed entry: {}", found.why);
            break;
        case Outcome::kNoMemory:
            text += " leads to a table that is not in the image";
            break;
        case Outcome::kNotCanonical:
            text += fmt::format(" is no address of {}, which has {} bits", format.name, format.address_bits);
    }
    if (!root.name.empty()) text += fmt::format("; {}'s table", root.name);
    text += "\n";
    if (found.count == 0) return text + "\n";
    const int width = 2 + 2 * format.levels[0].entry_bytes;
    text +=
        fmt::format("  {:<8} {:>6}  {:<14} {:<18} {}\n", "level", "index", "entry at", "value", "meaning");
    for (const Step& step : found.steps()) {
        const Level& level = format.levels[step.level];
        const bool read = found.outcome != Outcome::kNoMemory || &step != &found.path[found.count - 1u];
        text += fmt::format(
            "  {:<8} {:>6}  {:<14} {:<18} {}\n", level.name, level.index(address),
            fmt::format("{:#x}", step.entry_address.value()),
            read ? fmt::format("{:#0{}x}", step.raw, std::max(width, 2 + 2 * level.entry_bytes)) : "-",
            read ? meaning(format, step) : "not in the image");
    }
    return text + "\n";
}

Json walk_json(const pagetable::Format& format, const Root& root, std::uint64_t address, const Walk& found) {
    Json json{{"address", fmt::format("{:#x}", address)}, {"outcome", name_of(found.outcome)}};
    if (!root.name.empty()) json["table"] = root.name;
    if (found.outcome == Outcome::kMapped) {
        json["physical"] = fmt::format("{:#x}", found.physical(address).value());
        json["size"] = found.page().size.bytes();
        json["flags"] = flags_text(found.page().flags);
    }
    if (found.why != nullptr) json["why"] = found.why;
    json["steps"] = Json::array();
    for (const Step& step : found.steps())
        json["steps"].push_back({{"level", format.levels[step.level].name},
                                 {"index", format.levels[step.level].index(address)},
                                 {"entry_at", fmt::format("{:#x}", step.entry_address.value())},
                                 {"value", fmt::format("{:#x}", step.raw)},
                                 {"meaning", meaning(format, step)}});
    return json;
}

std::string listing_text(const pagetable::Format& format, const image::Image& image, const Listing& listing) {
    std::size_t odd = listing.bad.size();
    for (const pagetable::Run& run : listing.runs) odd += run.odd != nullptr ? 1 : 0;
    std::string text = fmt::format(
        "{} pages in {} runs, {} tables; {}\n", grouped(listing.pages), grouped(listing.runs.size()),
        grouped(listing.tables),
        odd == 0 ? "nothing impossible" : fmt::format("{} impossible, marked with !", grouped(odd)));
    text += fmt::format("{}\n\n", image.description());
    const int width = 2 + (format.address_bits > 32 ? 16 : 8);
    if (!listing.runs.empty())
        text += fmt::format("  {:<{}} {:<{}} {:>6} {:>9}  {:<14} {}\n", "first", width, "last", width, "size",
                            "pages", "physical", "flags");
    for (const pagetable::Run& run : listing.runs)
        text += fmt::format("{} {:#0{}x} {:#0{}x} {:>6} {:>9}  {:<14} {}{}\n", run.odd == nullptr ? ' ' : '!',
                            run.start.value(), width, run.start.value() + (run.bytes - 1), width,
                            size_name(run.size.bytes()), grouped(run.bytes >> run.size.value()),
                            fmt::format("{:#x}", run.physical.value()), flags_text(run.flags),
                            run.odd == nullptr ? "" : fmt::format(", {}", run.odd));
    if (!listing.bad.empty()) text += "\nentries that lead nowhere\n";
    for (const BadEntry& bad : listing.bad)
        text += fmt::format("! {:#0{}x} {:<8} entry at {:#x} is {:#x}: {}\n", bad.address.value(), width,
                            format.levels[bad.level].name, bad.entry_address.value(), bad.raw, bad.why);
    std::string more;
    if (listing.not_present != 0)
        more += fmt::format("{} entries are not present and not zero (swapped out, or a software's own)\n",
                            grouped(listing.not_present));
    if (listing.repeated != 0)
        more += fmt::format("{} entries point to a table that is listed above already\n",
                            grouped(listing.repeated));
    if (listing.cut) more += "the list was cut here: there is more\n";
    return more.empty() ? text : text + "\n" + more;
}

Json listing_json(const pagetable::Format& format, const Listing& listing) {
    Json json{
        {"pages", listing.pages},       {"tables", listing.tables}, {"not_present", listing.not_present},
        {"repeated", listing.repeated}, {"cut", listing.cut},       {"runs", Json::array()},
        {"bad", Json::array()}};
    for (const pagetable::Run& run : listing.runs) {
        Json row{{"start", fmt::format("{:#x}", run.start.value())},
                 {"bytes", run.bytes},
                 {"size", run.size.bytes()},
                 {"physical", fmt::format("{:#x}", run.physical.value())},
                 {"flags", flags_text(run.flags)}};
        if (run.odd != nullptr) row["odd"] = run.odd;
        json["runs"].push_back(std::move(row));
    }
    for (const BadEntry& bad : listing.bad)
        json["bad"].push_back({{"address", fmt::format("{:#x}", bad.address.value())},
                               {"level", format.levels[bad.level].name},
                               {"entry_at", fmt::format("{:#x}", bad.entry_address.value())},
                               {"value", fmt::format("{:#x}", bad.raw)},
                               {"why", bad.why}});
    return json;
}

std::string listing_csv(const Listing& listing) {
    std::string text = "start,bytes,size,physical,flags,odd\n";
    for (const pagetable::Run& run : listing.runs)
        text += fmt::format("{:#x},{},{},{:#x},{},{}\n", run.start.value(), run.bytes, run.size.bytes(),
                            run.physical.value(), flags_text(run.flags).substr(0, 7),
                            run.odd == nullptr ? "" : run.odd);
    for (const BadEntry& bad : listing.bad)
        text +=
            fmt::format("{:#x},,,{:#x},,\"{}\"\n", bad.address.value(), bad.entry_address.value(), bad.why);
    return text;
}

Result<Exit> run(const Options& options, Console& console) {
    const auto known = find_format(options.format_name);
    if (!known) return usage_error("--format: " + known.error().what, known.error().hint);
    pagetable::Format format = **known;
    if (!options.kernel_base.empty()) {
        const auto base = hexadecimal("--kernel-base", options.kernel_base);
        if (!base) return std::unexpected(base.error());
        if (format.kernel_base != 0) format.kernel_base = *base;
    }
    if (options.root.empty() == options.bdi2000.empty())
        return usage_error("give --root or --bdi2000, and not both",
                           "--root is the table's physical address, or CR3, TTBR, satp");
    if (options.addresses.empty() != options.all)
        return usage_error(
            options.all ? "--all lists everything, so it takes no address" : "there is no address to walk",
            "give addresses, or --all");
    if (!options.bdi2000.empty() && !format.name.starts_with("mpc8xx"))
        return usage_error("--bdi2000 is a convention for the 8xx's tables", "use --root");
    std::vector<std::uint64_t> addresses;
    for (const std::string& text : options.addresses) {
        const auto address = hexadecimal("address", text);
        if (!address) return std::unexpected(address.error());
        addresses.push_back(*address);
    }
    const auto base = hexadecimal("--base", options.base);
    if (!base) return std::unexpected(base.error());
    const auto image = image::open_image(options.image, *base);
    if (!image) return std::unexpected(image.error());

    std::vector<Root> roots;
    if (options.bdi2000.empty()) {
        const auto root = hexadecimal("--root", options.root);
        if (!root) return std::unexpected(root.error());
        roots.push_back({"", format.root(*root)});
    } else {
        std::uint64_t kernel_base = 0xc0000000;
        if (!options.kernel_base.empty())
            kernel_base = hexadecimal("--kernel-base", options.kernel_base).value();
        auto found = bdi2000_roots(options, **image, kernel_base);
        if (!found) return std::unexpected(found.error());
        roots = std::move(*found);
    }

    std::string text;
    Json json{
        {"schema", 1}, {"image", options.image}, {"holds", (*image)->description()}, {"format", format.name}};
    if (options.all) {
        std::string csv;
        json["listings"] = Json::array();
        for (const Root& root : roots) {
            const Listing listing = list_all(
                format, **image, root.table,
                {.contains = [&](PhysAddr at, std::uint64_t bytes) { return (*image)->contains(at, bytes); },
                 .address_base = options.upper ? format.address_base : 0});
            if (!root.name.empty())
                text += fmt::format("{}'s table at {:#x}\n", root.name, root.table.value());
            text += listing_text(format, **image, listing);
            Json one = listing_json(format, listing);
            one["root"] = fmt::format("{:#x}", root.table.value());
            json["listings"].push_back(std::move(one));
            csv += listing_csv(listing);
        }
        if (*options.output == cli::Format::kCsv) text = csv;
    } else {
        std::string csv = "address,outcome,physical,size,flags\n";
        json["walks"] = Json::array();
        for (const std::uint64_t address : addresses) {
            std::size_t used = 0;
            Walk found = walk(format, **image, roots[0].table, VirtAddr(address));
            for (; found.outcome != Outcome::kMapped && used + 1 < roots.size();)
                found = walk(format, **image, roots[++used].table, VirtAddr(address));
            // No table has it: the kernel's own walk says the most about a kernel address, the last one about
            // others.
            text += walk_text(format, roots[used], address, found);
            json["walks"].push_back(walk_json(format, roots[used], address, found));
            const bool mapped = found.outcome == Outcome::kMapped;
            csv += fmt::format("{:#x},{},{},{},{}\n", address, name_of(found.outcome),
                               mapped ? fmt::format("{:#x}", found.physical(address).value()) : "",
                               mapped ? fmt::format("{}", found.page().size.bytes()) : "",
                               mapped ? flags_text(found.page().flags).substr(0, 7) : "");
        }
        if (!text.empty()) text.pop_back();
        if (*options.output == cli::Format::kCsv) text = csv;
    }
    if (*options.output == cli::Format::kJson) text = json.dump(2) + "\n";
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (*options.output == cli::Format::kText && !options.all)
        console.suggest(
            fmt::format("tlbscope walk {} --format {} {} --all    every mapping, and what cannot be right",
                        options.image, options.format_name,
                        options.root.empty() ? "--bdi2000 " + options.bdi2000 : "--root " + options.root));
    return Exit::kOk;
}

}  // namespace

Command walk_command() {
    return {
        .name = "walk",
        .summary = "page tables in a memory image, entry by entry",
        .examples =
            "  tlbscope walk dump --format x86-64 --root 0x1234000 ffffffff81000000    one address\n"
            "  tlbscope walk dump --format sv39 --root 0x8000000000080005 --all       all mappings; root as "
            "in satp\n"
            "  tlbscope walk ram.bin --format mpc8xx-2.6 --bdi2000 0xf0 c0009e00      as a BDI2000 finds its "
            "tables\n"
            "  tlbscope walk ram.bin --base 0x80000000 --format arm64 --root 40001000 8000    raw memory "
            "from there\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("image", options->image, "raw memory, an ELF core, or a kdump")
                ->required()
                ->option_text("IMAGE");
            app.add_option("addresses", options->addresses, "virtual addresses, hexadecimal")
                ->option_text("ADDRESS...");
            std::string names;
            for (const pagetable::Format* format : formats())
                names += (names.empty() ? "" : ", ") + std::string(format->name);
            app.add_option("--format", options->format_name, "layout of the tables: " + names)
                ->required()
                ->type_name("FORMAT");
            app.add_option("--root", options->root,
                           "physical address of the root table, or the register that holds it")
                ->type_name("ADDRESS");
            app.add_option("--bdi2000", options->bdi2000, "physical address of the pointer to the two roots")
                ->type_name("ADDRESS");
            app.add_option("--kernel-base", options->kernel_base,
                           "virtual address of physical 0 (default: c0000000), for --bdi2000 and mpc8xx-2.4")
                ->type_name("ADDRESS");
            app.add_option("--base", options->base,
                           "physical address of the first byte of raw memory (default: 0)")
                ->type_name("ADDRESS");
            app.add_flag("--all", options->all, "list every mapping, and mark those that cannot be right");
            app.add_flag("--upper", options->upper,
                         "with --all: the root is the upper half's (arm64, radix)");
            add_format_options(app, options->output);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
