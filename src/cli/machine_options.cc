#include "cli/machine_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/numbers.h"
#include "machine/handler.h"
#include "machine/machine_file.h"
#include "machine/routes.h"

namespace tlbscope::cli {

namespace {

void add_list(CLI::App& app, const std::string& name, std::vector<std::string>& values,
              const std::string& help, const std::string& type) {
    app.add_option(name, values, help)->type_name(type)->expected(1)->take_all();
}

std::vector<std::string> split(const std::vector<std::string>& lists) {
    std::vector<std::string> words;
    for (const std::string& list : lists) {
        std::istringstream rest(list);
        std::string word;
        while (std::getline(rest, word, ','))
            if (!word.empty()) words.push_back(word);
    }
    return words;
}

template <class Number>
bool parse(std::string_view text, int base, Number& value) {
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    return code == std::errc{} && end == text.data() + text.size() && !text.empty();
}

}  // namespace

void add_machine_options(CLI::App& app, const std::shared_ptr<MachineOptions>& options) {
    app.add_option("--machine", options->names, "machines by name or file")
        ->option_text(fmt::format("NAME|FILE[,...] (default: {})", kDefaultMachine));
    add_list(app, "--set", options->changes, "change a fact of the machines; repeatable", "KEY=VALUE");
    add_list(app, "--map", options->maps,
             "map a region in pages of another size, e.g. kernel-linear=8M; repeatable", "REGION=SIZE[,...]");
    add_list(app, "--pin", options->pins,
             "keep entries for a region or page that no reload replaces, e.g. kernel-text:8M; repeatable",
             "REGION:SIZE[,...]");
}

void add_refill_options(CLI::App& app, const std::shared_ptr<MachineOptions>& options) {
    app.add_option("--handler", options->handler,
                   "derive the cost of each miss from this software miss handler, e.g. 8xx-linux-2.6.12")
        ->type_name("NAME|FILE");
    add_list(app, "--event", options->events,
             "let software touch the TLBs before block execution N: tlbie:0xADDRESS@N, load:0xADDRESS@N or "
             "tlbia@N; repeatable",
             "EVENT[,...]");
}

Result<std::vector<machine::Machine>> load_machines(const MachineOptions& options) {
    std::vector<addrspace::MappingRule> rules;
    for (const bool pinned : {false, true})
        for (const std::string& word : split(pinned ? options.pins : options.maps)) {
            auto rule = addrspace::parse_rule(word, pinned);
            if (!rule) return std::unexpected(rule.error());
            rules.push_back(std::move(*rule));
        }
    std::vector<machine::Machine> machines;
    for (const std::string& name : split({options.names})) {
        auto machine = machine::load_machine(name, options.changes);
        if (!machine) return std::unexpected(machine.error());
        if (!options.handler.empty()) {
            auto handler = machine::load_handler(options.handler);
            if (!handler) return std::unexpected(handler.error());
            if (!machine->data_cache)
                return usage_error(
                    fmt::format("--handler: {} does not say what cache loads go through", name),
                    "add a table [data_cache] to the machine's file");
            machine->refill.handler = std::move(*handler);
            machine->refill.derived = true;
        }
        machine->rules.insert(machine->rules.end(), rules.begin(), rules.end());
        if (auto routes = machine::Routes::of(*machine); !routes)
            return usage_error(fmt::format("{}: {}", name, routes.error().what), routes.error().hint);
        machines.push_back(std::move(*machine));
    }
    if (machines.empty()) return usage_error("--machine names none", "`tlbscope machines` lists them");
    return machines;
}

Result<void> check_plain(const machine::Machine& machine, const std::string& what) {
    const auto refuse = [&](const std::string& why) {
        return usage_error(
            fmt::format("{} cannot follow {}: {}", what, machine.name, why),
            "it follows one array per kind with base pages, such as mpc855t's without --map and "
            "--pin; `tlbscope explain --by page` breaks the misses of any machine down");
    };
    if (!machine.rules.empty()) return refuse("its mapping has pages of several sizes or pins");
    const auto routes = machine::Routes::of(machine);
    if (!routes) return std::unexpected(routes.error());
    if (!routes->split()) return refuse("an array of it serves instructions and data, or several serve one");
    if (routes->levels() != 1) return refuse(fmt::format("it has {} levels", routes->levels()));
    if (!routes->simple()) return refuse("its entries have several sizes");
    if (machine.refill.derived && machine.refill.handler && machine.refill.handler->virtual_table)
        return refuse("its handler takes entries of the data TLB for itself");
    return {};
}

Result<std::vector<replay::TlbEvent>> parse_events(const std::vector<std::string>& texts) {
    std::vector<replay::TlbEvent> events;
    for (const std::string& text : split(texts)) {
        const auto bad = [&](const std::string& what) {
            return usage_error(fmt::format("--event {}: {}", text, what),
                               "write tlbie:0xADDRESS@N, load:0xADDRESS@N or tlbia@N");
        };
        replay::TlbEvent event;
        const std::size_t at = text.rfind('@');
        if (at == std::string::npos || !parse(std::string_view(text).substr(at + 1), 10, event.execution))
            return bad("it does not say before which block execution");
        const std::string_view what = std::string_view(text).substr(0, at);
        const std::size_t colon = what.find(':');
        const std::string_view kind = what.substr(0, colon);
        if (kind == "tlbia" && colon == std::string_view::npos) {
            event.what = replay::TlbEvent::What::kInvalidateAll;
        } else if ((kind == "tlbie" || kind == "load") && colon != std::string_view::npos) {
            event.what =
                kind == "load" ? replay::TlbEvent::What::kLoad : replay::TlbEvent::What::kInvalidatePage;
            std::string_view address = what.substr(colon + 1);
            std::uint64_t value = 0;
            if (!address.starts_with("0x") || !parse(address.substr(2), 16, value))
                return bad("the address is no hexadecimal number");
            event.address = VirtAddr(value);
        } else {
            return bad(kind == "tlbia"                     ? "tlbia has no address"
                       : kind == "tlbie" || kind == "load" ? "it does not say at which address"
                                                           : fmt::format("there is no event {}", kind));
        }
        events.push_back(event);
    }
    return events;
}

bool needs_regions(const std::vector<machine::Machine>& machines, bool kernel_recorded) {
    // A program recorded without its kernel has no address that a rule for a kernel region could cover.
    const auto rule_needs = [kernel_recorded](const addrspace::MappingRule& rule) {
        return rule.needs_region() &&
               (kernel_recorded || rule.pinned || *rule.region <= addrspace::Region::kUserMmap);
    };
    return std::any_of(machines.begin(), machines.end(), [&](const machine::Machine& machine) {
        const auto& refill = machine.refill;
        return std::any_of(machine.rules.begin(), machine.rules.end(), rule_needs) ||
               (refill.derived && refill.handler && refill.handler->needs_regions());
    });
}

Result<void> place_pins(machine::Machine& machine, const explain::Names* names) {
    std::uint64_t pages = 0;
    bool unbounded = false;
    for (addrspace::MappingRule& rule : machine.rules) {
        if (!rule.pinned) continue;
        if (rule.region == addrspace::Region::kKernelText && names != nullptr) {
            const addrspace::AddressRange image = names->kernel_image();
            if (image.empty())
                return usage_error(
                    fmt::format("pin {}: the recording does not say where the kernel's text is", rule.text()),
                    "pin pages by address, such as --pin 0xc0000000:8M");
            rule.region.reset();
            rule.range = image;
        }
        if (!rule.range) {
            unbounded = true;
            continue;
        }
        const std::uint64_t size = rule.size.bytes();
        // Whole pages: a pinned entry translates all of its page.
        rule.range->start &= ~(size - 1);
        rule.range->end = (rule.range->end + size - 1) & ~(size - 1);
        pages += (rule.range->end - rule.range->start) / size;
    }
    if (pages == 0 && !unbounded) return {};
    auto routes = machine::Routes::of(machine);
    if (!routes) return std::unexpected(routes.error());
    for (const Kind kind : {Kind::kInstruction, Kind::kData})
        for (const addrspace::MappingRule& rule : machine.rules) {
            if (!rule.pinned) continue;
            machine::TlbDescription& tlb = machine.tlbs[routes->route(kind, rule.size)[0]->array];
            machine::TlbGeometry& geometry = tlb.geometry;
            if (geometry.sets() != 1)
                return usage_error(
                    fmt::format("pin {}: tlb.{} of {} has {} sets, and only a fully associative "
                                "array reserves entries",
                                rule.text(), tlb.name, machine.name, geometry.sets()),
                    "map the region in large pages instead: --map");
            if (geometry.replacement == machine::Replacement::kTreePlru)
                return usage_error(fmt::format("pin {}: tree-plru cannot spare entries", rule.text()),
                                   fmt::format("--set tlb.{}.replacement=nru", tlb.name));
            if (pages >= geometry.entries)
                return usage_error(fmt::format("the pins take {} entries and tlb.{} of {} has {}",
                                               grouped(pages), tlb.name, machine.name, geometry.entries),
                                   "pin fewer or larger pages");
            geometry.reserved = std::max(geometry.reserved, static_cast<std::uint32_t>(pages));
            if (unbounded && geometry.reserved == 0)
                return usage_error(
                    fmt::format("pin {}: nobody says how many entries that may take", rule.text()),
                    fmt::format("reserve some: --set tlb.{}.reserved=4; or pin pages by address", tlb.name));
        }
    return {};
}

Result<Regions> Regions::of(const recording::Recording& recording, std::vector<machine::Machine>& machines) {
    Regions regions;
    if (needs_regions(machines, recording.metadata().system)) {
        auto names = explain::Names::load(recording, {.find_stacks = false});
        if (!names) return std::unexpected(names.error());
        regions.names_ = std::make_shared<const explain::Names>(std::move(*names));
    }
    for (machine::Machine& machine : machines)
        if (auto placed = place_pins(machine, regions.names_.get()); !placed)
            return std::unexpected(placed.error());
    return regions;
}

addrspace::RegionOf Regions::look_up() const {
    if (!names_) return {};
    return [names = names_](SpaceId space, VirtAddr address) { return names->region_of(space, address); };
}

}  // namespace tlbscope::cli
