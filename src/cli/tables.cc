// tlbscope tables: what building, caching and tearing down page tables costs, strategy beside strategy.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/numbers.h"
#include "core/text.h"
#include "import_strace/strace.h"
#include "import_text/input.h"
#include "recording/format.h"
#include "recording/recording.h"
#include "tables/account.h"
#include "tables/proc_maps.h"
#include "tables/recorded.h"
#include "tables/workloads.h"

namespace tlbscope::cli {

namespace {

using Json = nlohmann::ordered_json;
using tables::Accesses;
using tables::Events;
using tables::Ledger;

struct Options {
    std::string input;
    std::string format_name;
    std::string strategies;
    std::string cache;
    std::vector<std::string> costs;
    std::uint64_t rounds = 0;
    std::uint64_t populate = 16;
    std::optional<std::uint32_t> timed;
    std::shared_ptr<Format> output = std::make_shared<Format>(Format::kText);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

Result<std::vector<std::uint8_t>> all_of(import::Input& input, std::size_t most) {
    std::vector<std::uint8_t> bytes;
    for (;;) {
        const std::size_t had = bytes.size();
        if (had >= most) break;
        bytes.resize(had + std::min<std::size_t>(most - had, std::size_t{1} << 20));
        const auto got = input.read(std::span(bytes).subspan(had));
        if (!got && had == 0) return std::unexpected(got.error());
        bytes.resize(had + (got ? *got : 0));
        if (!got || *got == 0) break;
    }
    return bytes;
}

Result<Events> text_events(const Options& options) {
    // Standard input can be read once, so it is kept; a file is opened again.
    const bool once = options.input == "-";
    auto first = import::Input::open(options.input);
    if (!first) return std::unexpected(first.error());
    const std::string name = first->name();
    const auto bytes = all_of(*first, once ? ~std::size_t{0} : std::size_t{64} << 10);
    if (!bytes) return std::unexpected(bytes.error());
    const std::string_view text(reinterpret_cast<const char*>(bytes->data()),
                                std::min<std::size_t>(bytes->size(), 65536));
    auto again = once ? import::Input::of_bytes(name, *bytes) : import::Input::open(options.input);
    if (!again) return std::unexpected(again.error());
    import::Lines lines(std::move(*again));
    if (tables::looks_like_maps(text)) return tables::read_maps(lines, options.populate);
    if (!import::looks_like_strace(text))
        return fail(name, "it is no recording, no log of strace, no /proc/PID/maps or smaps, and no workload",
                    "`tlbscope tables --help` lists the workloads; logs: strace -f -o LOG COMMAND");
    auto log = import::read_strace(lines);
    if (!log) return std::unexpected(log.error());
    Events events;
    events.name = name;
    events.events = std::move(log->events);
    for (const std::string& note : log->problems.notes(name)) events.notes.push_back(note);
    if (!log->damage.empty()) events.notes.push_back(fmt::format("{}: {}", name, log->damage));
    tables::populate(events, options.populate);
    events.notes.push_back(
        fmt::format("strace logs no faults: the first {} pages of each mapping count as touched "
                    "(--populate)",
                    grouped(options.populate)));
    return events;
}

bool is_recording(const std::string& file) {
    std::array<char, sizeof recording::format::kMagic> first{};
    std::ifstream(file, std::ios::binary).read(first.data(), first.size());
    return std::memcmp(first.data(), recording::format::kMagic, first.size()) == 0;
}

Result<Events> read_events(const Options& options) {
    if (auto made = tables::make_workload(options.input, options.rounds)) return std::move(*made);
    if (options.input != "-") {
        if (!std::filesystem::exists(options.input)) {
            std::string names;
            for (const tables::Workload& workload : tables::workloads())
                names += (names.empty() ? "" : ", ") + std::string(workload.name);
            return fail(options.input, "there is no such file, and no such workload",
                        "the workloads are " + names);
        }
        if (is_recording(options.input)) {
            const auto recording = recording::Recording::open(options.input);
            if (!recording) return std::unexpected(recording.error());
            return tables::recorded_events(*recording);
        }
    }
    return text_events(options);
}

Result<std::vector<tables::Strategy>> strategies_of(const Options& options) {
    if (options.strategies.empty()) return tables::usual_strategies();
    std::vector<tables::Strategy> all;
    std::string_view rest = options.strategies;
    while (!rest.empty()) {
        const std::size_t comma = rest.find(',');
        auto strategy = tables::parse_strategy(rest.substr(0, comma));
        if (!strategy) return usage_error("--strategy: " + strategy.error().what, strategy.error().hint);
        all.push_back(*strategy);
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
    return all;
}

// "16K:1:32", sizes and ways of a data cache.
Result<tables::DataCache> cache_of(const Options& options, const pagetable::Format& format) {
    tables::DataCache cache = tables::usual_cache(format);
    if (options.cache.empty()) return cache;
    const std::size_t first = options.cache.find(':');
    const std::size_t second = first == std::string::npos ? first : options.cache.find(':', first + 1);
    if (second != std::string::npos) {
        const std::uint64_t bytes = parse_size(options.cache.substr(0, first));
        const std::uint64_t ways = parse_size(options.cache.substr(first + 1, second - first - 1));
        const std::uint64_t line = parse_size(options.cache.substr(second + 1));
        if (line >= 8 && line <= 4096 && (line & (line - 1)) == 0 && ways >= 1 && ways <= 1024 &&
            bytes <= 64 << 20 && bytes != 0 && bytes % (ways * line) == 0)
            return tables::DataCache{.bytes = static_cast<std::uint32_t>(bytes),
                                     .ways = static_cast<std::uint32_t>(ways),
                                     .line = static_cast<std::uint32_t>(line),
                                     .write_allocate = cache.write_allocate,
                                     .source = "--dcache"};
    }
    return usage_error(fmt::format("--dcache {} is no cache of whole sets", options.cache),
                       "for example --dcache 16K:1:32, which is size, ways and bytes of a line");
}

Result<tables::Costs> costs_of(const Options& options, const pagetable::Format& format) {
    tables::Costs costs = tables::usual_costs(format);
    for (const std::string& change : options.costs) {
        const std::size_t equals = change.find('=');
        const std::string key = change.substr(0, equals);
        const double value =
            equals == std::string::npos ? -1 : parse_scaled(change.substr(equals + 1)).value_or(-1);
        std::uint64_t* const field = key == "entry"      ? &costs.entry
                                     : key == "fetch"    ? &costs.fetch
                                     : key == "store"    ? &costs.store
                                     : key == "clear"    ? &costs.clear
                                     : key == "allocate" ? &costs.allocate
                                     : key == "cached"   ? &costs.cached
                                                         : nullptr;
        if (field == nullptr || value < 0 || value > 1e6)
            return usage_error(
                fmt::format("--cost {} is no cost in cycles", change),
                "the costs are entry, fetch, store, clear, allocate and cached, for example --cost fetch=40");
        *field = static_cast<std::uint64_t>(value);
        costs.source = "--cost, and: " + costs.source;
    }
    return costs;
}

std::string ratio(double part, double whole) {
    if (whole == 0) return "-";
    return fmt::format("{:.3g}", part / whole);
}

struct Report {
    const Options& options;
    const Events& events;
    const pagetable::Format& format;
    const tables::DataCache& cache;
    const tables::Costs& costs;
    const std::vector<Ledger>& ledgers;
};

std::string table(const std::vector<std::vector<std::string>>& rows) {
    std::vector<std::size_t> widths(rows.front().size());
    for (const auto& row : rows)
        for (std::size_t n = 0; n < row.size(); ++n) widths[n] = std::max(widths[n], row[n].size());
    std::string text;
    for (const auto& row : rows) {
        std::string line = fmt::format("  {:<{}}", row[0], widths[0]);
        for (std::size_t n = 1; n < row.size(); ++n) line += fmt::format("  {:>{}}", row[n], widths[n]);
        text += line + "\n";
    }
    return text;
}

std::string range_text(std::vector<std::uint64_t> values, double scale, const char* unit) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    return fmt::format("{:.1f}-{:.1f} {}", static_cast<double>(*least) / scale,
                       static_cast<double>(*most) / scale, unit);
}

std::string as_text(const Report& report) {
    const std::vector<Ledger>& ledgers = report.ledgers;
    const Ledger& first = ledgers.front();
    const auto best = std::min_element(ledgers.begin(), ledgers.end(),
                                       [](const Ledger& a, const Ledger& b) { return a.cycles < b.cycles; });
    std::string text;
    if (&*best == &first)
        text = fmt::format("{} takes {} cycles by the model\n", first.strategy.name(), grouped(first.cycles));
    else
        text = fmt::format("{} takes {} cycles by the model and {} takes {}: {:.1f} % of it\n",
                           first.strategy.name(), grouped(first.cycles), best->strategy.name(),
                           grouped(best->cycles),
                           100.0 * static_cast<double>(best->cycles) /
                               static_cast<double>(std::max<std::uint64_t>(first.cycles, 1)));
    text += fmt::format(
        "{} on {}: {} events{}, {} spaces\n", report.events.name, report.format.name,
        grouped(report.events.events.size()),
        report.events.rounds == 0 ? "" : fmt::format(" in {} rounds", grouped(report.events.rounds)),
        grouped(first.processes));

    std::vector<std::vector<std::string>> rows{{"accesses", "entries read", "loads", "written",
                                                "lines touched", "fetched", "again", "evicted", "cycles"}};
    for (const Ledger& ledger : ledgers) {
        const Accesses& a = ledger.accesses;
        rows.push_back({ledger.strategy.name(), grouped(a.entries_read), grouped(a.loads),
                        grouped(a.entries_written), grouped(a.lines_touched), grouped(a.lines_fetched),
                        grouped(a.lines_fetched_again), grouped(a.lines_evicted), grouped(ledger.cycles)});
    }
    text += "\n" + table(rows);

    rows = {{"tables", "allocated", "zeroed", "from cache", "freed", "peak", "after", "of it cached",
             "most of a process"}};
    for (const Ledger& ledger : ledgers)
        rows.push_back({ledger.strategy.name(), grouped(ledger.tables.allocated),
                        grouped(ledger.tables.zeroed), grouped(ledger.tables.from_cache),
                        grouped(ledger.tables.freed), human_bytes(ledger.peak_bytes),
                        human_bytes(ledger.after_bytes), human_bytes(ledger.after_cached_bytes),
                        human_bytes(ledger.most_of_a_process)});
    text += "\n" + table(rows);

    // What one event of each kind reads, where any was.
    rows = {{"entries read by one"}};
    std::vector<std::size_t> kinds;
    for (std::size_t kind = 1; kind < tables::kEventKinds; ++kind)
        if (first.kinds[kind].events != 0 && kind != static_cast<std::size_t>(MemoryEventKind::kSwitch)) {
            kinds.push_back(kind);
            rows[0].emplace_back(name_of(static_cast<MemoryEventKind>(kind)));
        }
    for (const Ledger& ledger : ledgers) {
        rows.push_back({ledger.strategy.name()});
        for (const std::size_t kind : kinds)
            rows.back().push_back(
                fmt::format("{:.1f}", static_cast<double>(ledger.kinds[kind].accesses.entries_read) /
                                          static_cast<double>(ledger.kinds[kind].events)));
    }
    text += "\n" + table(rows);

    if (first.timing) {
        const double all = static_cast<double>(tables::Timing::median(first.timing->all));
        const double teardown = static_cast<double>(tables::Timing::median(first.timing->teardown));
        rows = {
            {"time here", "on tables", "spread", "of the first", "giving them up", "spread", "of the first"}};
        for (const Ledger& ledger : ledgers) {
            const double own = static_cast<double>(tables::Timing::median(ledger.timing->all));
            const double own_teardown = static_cast<double>(tables::Timing::median(ledger.timing->teardown));
            rows.push_back({ledger.strategy.name(), fmt::format("{:.1f} us", own / 1000),
                            range_text(ledger.timing->all, 1000, "us"), ratio(own, all),
                            fmt::format("{:.1f} us", own_teardown / 1000),
                            range_text(ledger.timing->teardown, 1000, "us"), ratio(own_teardown, teardown)});
        }
        text += "\n" + table(rows);
        text += fmt::format("  medians of {} rounds, strategies in turns\n", first.timing->all.size());
    }

    text += fmt::format("\ndata cache  {}, {} way{}, {}-byte lines: {}\n", size_name(report.cache.bytes),
                        report.cache.ways, report.cache.ways == 1 ? "" : "s", report.cache.line,
                        report.cache.source);
    text += wrapped(report.costs.source, "            ", 100, "costs       ");
    std::vector<std::string> notes = report.events.notes;
    for (const std::string& note : first.problems.notes(report.events.name)) notes.push_back(note);
    if (!notes.empty()) {
        text += "\nnotes\n";
        for (const std::string& note : notes) text += wrapped(note, "    ", 110, "  - ");
    }
    return text;
}

Json accesses_json(const Accesses& a) {
    return {{"entries_read", a.entries_read},       {"loads", a.loads},
            {"entries_written", a.entries_written}, {"lines_touched", a.lines_touched},
            {"lines_fetched", a.lines_fetched},     {"lines_fetched_again", a.lines_fetched_again},
            {"lines_evicted", a.lines_evicted}};
}

Json time_json(const std::vector<std::uint64_t>& values) {
    return {{"median", tables::Timing::median(values)},
            {"least", *std::min_element(values.begin(), values.end())},
            {"most", *std::max_element(values.begin(), values.end())}};
}

std::string as_json(const Report& report) {
    Json json{{"schema", 1},
              {"input", report.events.name},
              {"format", report.format.name},
              {"events", report.events.events.size()},
              {"rounds", report.events.rounds},
              {"data_cache",
               {{"bytes", report.cache.bytes},
                {"ways", report.cache.ways},
                {"line", report.cache.line},
                {"source", report.cache.source}}},
              {"strategies", Json::array()},
              {"notes", report.events.notes}};
    for (const std::string& note : report.ledgers.front().problems.notes(report.events.name))
        json["notes"].push_back(note);
    for (const Ledger& ledger : report.ledgers) {
        Json one{{"strategy", ledger.strategy.name()}};
        one.update(accesses_json(ledger.accesses));
        one["pages"] = {{"allocated", ledger.tables.allocated},
                        {"zeroed", ledger.tables.zeroed},
                        {"from_cache", ledger.tables.from_cache},
                        {"to_cache", ledger.tables.to_cache},
                        {"freed", ledger.tables.freed}};
        one["bytes"] = {{"peak", ledger.peak_bytes},
                        {"after", ledger.after_bytes},
                        {"after_cached", ledger.after_cached_bytes},
                        {"most_of_a_process", ledger.most_of_a_process}};
        one["cycles"] = ledger.cycles;
        if (ledger.timing) {
            one["time"] = time_json(ledger.timing->all);
            one["teardown_time"] = time_json(ledger.timing->teardown);
        }
        for (std::size_t kind = 1; kind < tables::kEventKinds; ++kind) {
            const tables::KindCounts& counts = ledger.kinds[kind];
            if (counts.events == 0) continue;
            Json each{{"events", counts.events}};
            each.update(accesses_json(counts.accesses));
            one["by_event"][std::string(name_of(static_cast<MemoryEventKind>(kind)))] = std::move(each);
        }
        json["strategies"].push_back(std::move(one));
    }
    return json.dump(2) + "\n";
}

std::string as_csv(const Report& report) {
    std::string text =
        "strategy,entries_read,loads,entries_written,lines_touched,lines_fetched,lines_fetched_again,lines_"
        "evicted,"
        "allocated,zeroed,from_cache,freed,peak_bytes,after_bytes,most_of_a_process,cycles,time_median,"
        "teardown_time_median\n";
    for (const Ledger& ledger : report.ledgers) {
        const Accesses& a = ledger.accesses;
        text += fmt::format(
            "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", ledger.strategy.name(), a.entries_read,
            a.loads, a.entries_written, a.lines_touched, a.lines_fetched, a.lines_fetched_again,
            a.lines_evicted, ledger.tables.allocated, ledger.tables.zeroed, ledger.tables.from_cache,
            ledger.tables.freed, ledger.peak_bytes, ledger.after_bytes, ledger.most_of_a_process,
            ledger.cycles, ledger.timing ? fmt::format("{}", tables::Timing::median(ledger.timing->all)) : "",
            ledger.timing ? fmt::format("{}", tables::Timing::median(ledger.timing->teardown)) : "");
    }
    return text;
}

Result<Exit> run(const Options& options, Console& console) {
    const bool built_in = tables::make_workload(options.input, 1).has_value();
    const std::string format_name = !options.format_name.empty() ? options.format_name
                                    : built_in                   ? "sparc64-2.2"
                                                                 : "x86-64";
    const auto format = pagetable::find_format(format_name);
    if (!format) return usage_error("--format: " + format.error().what, format.error().hint);
    const auto strategies = strategies_of(options);
    if (!strategies) return std::unexpected(strategies.error());
    const auto cache = cache_of(options, **format);
    if (!cache) return std::unexpected(cache.error());
    const auto costs = costs_of(options, **format);
    if (!costs) return std::unexpected(costs.error());
    if (options.rounds != 0 && !built_in)
        return usage_error("--rounds repeats a built-in workload", "leave it out for a file");
    auto events = read_events(options);
    if (!events) return std::unexpected(events.error());
    if (auto done = tables::fit(*events, **format); !done) return std::unexpected(done.error());

    std::vector<Ledger> ledgers;
    {
        Progress progress("counting", *options.progress);
        auto made = tables::account(
            *events, **format, *strategies,
            {.cache = *cache,
             .costs = *costs,
             .timed_rounds = options.timed.value_or(0),
             .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); }});
        if (!made) return std::unexpected(made.error());
        ledgers = std::move(*made);
    }
#ifndef NDEBUG
    if (options.timed)
        events->notes.push_back(
            "this is a build with assertions: it looks through every cached table that it hands out, so "
            "times with caches mean nothing");
#endif
    if (ledgers.front().implied != 0)
        events->notes.push_back(
            fmt::format("{} faults lay where no event had mapped anything (an exec's own ranges, or from "
                        "before the events "
                        "began): a page each",
                        grouped(ledgers.front().implied)));
    const Report report{options, *events, **format, *cache, *costs, ledgers};
    const std::string text = *options.output == Format::kJson  ? as_json(report)
                             : *options.output == Format::kCsv ? as_csv(report)
                                                               : as_text(report);
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (*options.output == Format::kText)
        console.suggest(
            options.timed
                ? fmt::format("tlbscope tables {} --format x86-64    another layout", options.input)
                : fmt::format("tlbscope tables {} --time    with real time on this machine", options.input));
    return Exit::kOk;
}

}  // namespace

Command tables_command() {
    return {
        .name = "tables",
        .summary = "what building, caching and tearing down page tables costs",
        .examples =
            "  tlbscope tables fork+exit                               thread 2's question, on sparc64 of "
            "Linux 2.2\n"
            "  tlbscope tables fork+exit --strategy scan,range+linux24 --time   with real time, strategies "
            "in turns\n"
            "  tlbscope tables mmap --format x86-64                    memory held after a large mmap and "
            "munmap\n"
            "  tlbscope tables build.strace --format radix-64k         from a log of strace -f, also .gz, "
            ".xz, .zst\n"
            "  cat /proc/*/smaps | tlbscope tables - --format arm64    the processes that run now\n"
            "  tlbscope tables tlbscope.rec                            each recorded space's tables\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            std::string names;
            for (const tables::Workload& workload : tables::workloads())
                names += (names.empty() ? "" : ", ") + std::string(workload.name);
            app.add_option(
                   "input", options->input,
                   "a recording, a log of strace -f, /proc/PID/maps or smaps, - for standard input, or a "
                   "workload: " +
                       names)
                ->required()
                ->option_text("INPUT");
            app.add_option("--format", options->format_name,
                           "page-table format (default: x86-64; sparc64-2.2 for workloads)")
                ->type_name("FORMAT");
            app.add_option(
                   "--strategy", options->strategies,
                   "scan, scan-32, scan-pairs, scan-32-pairs or range, with +linux22, +linux24, +quicklist, "
                   "+lazy-fork")
                ->type_name("NAME[,...]");
            app.add_option("--time", options->timed, "measure real time too, in so many rounds (default: 15)")
                ->type_name("[ROUNDS]")
                ->expected(0, 1)
                ->default_str("15")
                ->check(CLI::Range(1, 10000));
            app.add_option("--rounds", options->rounds, "repetitions of a workload")
                ->check(CLI::Range(1, 1000000))
                ->type_name("N");
            app.add_option("--populate", options->populate,
                           "pages touched of each mapping when the input does not tell")
                ->check(CLI::Range(0, 1000000000))
                ->option_text("PAGES (default: 16)");
            app.add_option("--dcache", options->cache, "data cache as size:ways:line")->type_name("16K:1:32");
            app.add_option("--cost", options->costs, "change a cost of the model; repeatable")
                ->type_name("KEY=CYCLES")
                ->expected(1)
                ->take_all();
            add_format_options(app, options->output);
            add_progress_option(app, options->progress);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
