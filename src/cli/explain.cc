// tlbscope explain: whose misses, of what, and why.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/command.h"
#include "cli/machine_options.h"
#include "core/files.h"
#include "explain/attribution.h"
#include "explain/breakdown.h"
#include "explain/names.h"
#include "explain/question.h"
#include "explain/stepper.h"
#include "recording/recording.h"
#include "replay/replay.h"
#include "report/explain_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string recording = kDefaultRecording;
    std::shared_ptr<MachineOptions> machine = std::make_shared<MachineOptions>();
    std::string by = "kind,function";
    std::vector<std::string> filters;
    std::optional<std::size_t> rows;
    std::string at;
    bool misses_only = false;
    std::string callgrind;
    std::vector<std::string> debug_folders;
    std::string sysroot;
    std::string jit_map;
    std::string kernel_symbols;
    bool mangled = false;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

Result<explain::Names> names_of(const recording::Recording& recording, const Options& options,
                                bool regions_wanted, Console& console) {
    explain::NameOptions how;
    for (const std::string& folder : options.debug_folders) how.debug_folders.emplace_back(folder);
    how.sysroot = options.sysroot;
    how.jit_map = options.jit_map;
    how.kernel_symbols = options.kernel_symbols;
    how.demangle = !options.mangled;
    how.find_stacks = regions_wanted;
    how.threads = *options.threads;
    auto names = explain::Names::load(recording, how);
    if (!names) return std::unexpected(names.error());
    for (const std::string& warning : names->warnings()) console.note(warning);
    return names;
}

explain::Naming naming_by(const explain::Names& names) {
    return {
        .function_at = [&names](SpaceId space,
                                VirtAddr address) { return names.function_at(space, address); },
        .region_of = [&names](SpaceId space, VirtAddr address) { return names.region_of(space, address); }};
}

Result<Exit> step(const Options& options, const recording::Recording& recording,
                  const machine::Machine& machine, Console& console) {
    const auto target = explain::parse_target(options.at);
    if (!target) return std::unexpected(target.error());
    const auto names = names_of(recording, options, false, console);
    if (!names) return std::unexpected(names.error());
    Progress progress("stepping", *options.progress);
    auto steps = explain::step_through(
        recording, machine, naming_by(*names),
        {.target = *target,
         .limit = options.rows.value_or(20),
         .misses_only = options.misses_only,
         .threads = *options.threads,
         .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }});
    if (!steps) return std::unexpected(steps.error());
    if (steps->steps.empty())
        return fail(
            options.recording,
            target->what == explain::Target::What::kTouch
                ? fmt::format("it has {} touches on {}, and no touch {}", steps->touches, machine.name,
                              target->value)
                : fmt::format("nothing {} {}", options.misses_only ? "missed at" : "touches", options.at),
            target->what == explain::Target::What::kTouch
                ? "--at takes one of them"
                : "`tlbscope explain --by page` lists the pages that missed");
    const report::Stepping stepping{.recording = options.recording,
                                    .metadata = recording.metadata(),
                                    .machine = machine,
                                    .steps = std::move(*steps)};
    const std::string text = *options.format == Format::kJson ? report::as_json(stepping)
                                                              : report::as_text(stepping, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    return Exit::kOk;
}

Result<explain::Question> question_of(const Options& options) {
    explain::Question question;
    auto by = explain::parse_dimensions(options.by);
    if (!by) return std::unexpected(by.error());
    question.by = std::move(*by);
    for (const std::string& text : options.filters) {
        auto filter = explain::parse_filter(text);
        if (!filter) return std::unexpected(filter.error());
        question.filters.push_back(std::move(*filter));
    }
    question.rows = options.rows.value_or(20);
    question.instructions = !options.callgrind.empty();
    return question;
}

Result<Exit> break_down(const Options& options, const explain::Question& question,
                        const recording::Recording& recording, std::vector<machine::Machine> machines,
                        std::vector<replay::TlbEvent> events, Console& console) {
    // What the mapping calls a region is what `replay` does, whatever else is found out for the breakdown.
    const auto mapped = Regions::of(recording, machines);
    if (!mapped) return std::unexpected(mapped.error());
    const machine::Machine& machine = machines.front();
    const bool regions = question.needs(explain::Dimension::kRegion);
    const auto names = names_of(recording, options, regions, console);
    if (!names) return std::unexpected(names.error());
    explain::Attribution attribution(machine, recording.dictionary(), recording.metadata().kernel_base,
                                     naming_by(*names), question);
    Progress progress("explaining", *options.progress);
    auto ledgers = replay::replay(
        recording, machines,
        {.threads = *options.threads,
         .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); },
         .observers = {&attribution},
         .region_of = mapped->look_up(),
         .events = std::move(events)});
    if (!ledgers) return std::unexpected(ledgers.error());
    replay::Ledger ledger = std::move(ledgers->front());
    if (!ledger.full())
        ledger.notes.emplace_back(
            "recorded at granularity page: the code of a miss is not in it, so functions are [unknown]");
    if (regions && !names->stack_note().empty()) ledger.notes.push_back(names->stack_note());
    auto breakdown = explain::break_down(attribution, question, recording.metadata(), std::move(ledger));
    if (!breakdown) {
        Error error = breakdown.error();
        error.where = options.recording;
        return std::unexpected(error);
    }
    const report::Explanation explanation{
        .recording = options.recording, .metadata = recording.metadata(), .breakdown = std::move(*breakdown)};
    if (!options.callgrind.empty()) {
        const std::vector<explain::CodeCost> costs =
            explain::code_costs(attribution, question, recording.metadata(), machine.pages.base);
        const std::string profile = report::as_callgrind(explanation, costs, TLBSCOPE_VERSION);
        if (options.callgrind == "-") {
            if (auto done = console.print(profile); !done) return std::unexpected(done.error());
            return Exit::kOk;
        }
        if (auto done = write_text(options.callgrind, profile); !done) return std::unexpected(done.error());
    }
    const std::string text = *options.format == Format::kJson ? report::as_json(explanation)
                             : *options.format == Format::kCsv
                                 ? report::as_csv(explanation)
                                 : report::as_text(explanation, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    const std::string file = options.recording == kDefaultRecording ? "" : " " + options.recording;
    console.suggest(options.callgrind.empty()
                        ? fmt::format("tlbscope explain{} --by region,page    which pages miss", file)
                        : fmt::format("kcachegrind {}    look at it", options.callgrind));
    return Exit::kOk;
}

Result<Exit> run(const Options& options, Console& console) {
    // Mistakes on the command line come before those in files.
    const auto question = question_of(options);
    if (!question) return std::unexpected(question.error());
    if (!options.at.empty() && *options.format == Format::kCsv)
        return usage_error("--at has no table for --csv", "--json has all of it");
    if (!options.at.empty())
        if (auto target = explain::parse_target(options.at); !target) return std::unexpected(target.error());
    auto machines = load_machines(*options.machine);
    if (!machines) return std::unexpected(machines.error());
    if (machines->size() != 1)
        return usage_error("--machine names several",
                           "explain one machine at a time; `tlbscope diff` compares");
    auto events = parse_events(options.machine->events);
    if (!events) return std::unexpected(events.error());
    if (!options.at.empty()) {
        if (auto plain = check_plain(machines->front(), "--at"); !plain)
            return std::unexpected(plain.error());
        if (!events->empty()) return usage_error("--at does not follow --event", "leave one of them out");
    }
    const auto recording = recording::Recording::open(options.recording);
    if (!recording) return std::unexpected(recording.error());
    return options.at.empty()
               ? break_down(options, *question, *recording, std::move(*machines), std::move(*events), console)
               : step(options, *recording, machines->front(), console);
}

}  // namespace

Command explain_command() {
    return {
        .name = "explain",
        .summary = "whose misses these are, of what, and why",
        .examples =
            "  tlbscope explain                                     by kind and function\n"
            "  tlbscope explain --by mode,kind,side                 the four counters, and who ran\n"
            "  tlbscope explain --by region,page -n 5               the worst five pages of each region\n"
            "  tlbscope explain --by function --filter kind=data    who misses the data TLB\n"
            "  tlbscope explain --callgrind callgrind.out.tlb       for KCachegrind\n"
            "  tlbscope explain --at page:0x401000 --misses         every miss of a page, step by step\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("recording", options->recording, "a recording")
                ->type_name("REC")
                ->capture_default_str();
            add_machine_options(app, options->machine);
            add_refill_options(app, options->machine);
            app.add_option("--by", options->by,
                           "break down by these, in this order: mode, kind, side, region, function, object, "
                           "page, space, cause")
                ->type_name("WHAT[,...]")
                ->capture_default_str();
            app.add_option("-n", options->rows, "rows of each level, or touches with --at; 0: all")
                ->type_name("N")
                ->default_str("20");
            app.add_option("--filter", options->filters,
                           "only misses whose WHAT matches a regular expression; repeatable, all must match")
                ->type_name("WHAT=REGEX")
                ->expected(1)
                ->take_all();
            auto* callgrind = app.add_option("--callgrind", options->callgrind,
                                             "write a profile for KCachegrind as well; - for standard output")
                                  ->type_name("FILE");
            auto* at = app.add_option("--at", options->at,
                                      "step through a touch (its number, from 1), the touches of an address "
                                      "(0x...) or of its page (page:0x...): the set before and after")
                           ->type_name("TOUCH|ADDRESS|PAGE");
            at->excludes(callgrind);
            app.add_flag("--misses", options->misses_only, "with --at: only those that missed")->needs(at);
            app.add_option("--debug-path", options->debug_folders,
                           "look for separate debug files here first; repeatable")
                ->type_name("DIR")
                ->expected(1)
                ->take_all();
            app.add_option("--sysroot", options->sysroot, "the recorded files are below this folder")
                ->type_name("DIR");
            app.add_option("--jit-map", options->jit_map, "instead of /tmp/perf-PID.map")->type_name("FILE");
            app.add_option("--kernel-symbols", options->kernel_symbols,
                           "instead of the recording's: a kallsyms or System.map")
                ->type_name("FILE");
            app.add_flag("--no-demangle", options->mangled, "leave C++ and Rust names as they are");
            add_format_options(app, options->format);
            add_threads_option(app, options->threads);
            add_progress_option(app, options->progress);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
