// tlbscope diff: what changed between two runs, or between two machines.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/machine_options.h"
#include "cli/name_options.h"
#include "core/files.h"
#include "explain/diff.h"
#include "explain/miss_totals.h"
#include "replay/replay.h"
#include "report/diff_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::vector<std::string> recordings;
    std::vector<std::string> counters;
    std::shared_ptr<MachineOptions> machines = std::make_shared<MachineOptions>();
    std::string per;
    std::vector<std::string> elapsed;
    std::string clock;
    std::size_t rows = 10;
    std::shared_ptr<explain::NameOptions> names = std::make_shared<explain::NameOptions>();
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

struct Numbers {
    std::optional<double> per;
    std::optional<double> elapsed_a;
    std::optional<double> elapsed_b;
    std::optional<double> clock;
};

Result<std::optional<double>> positive(const char* option, const std::string& text, const char* example) {
    if (text.empty()) return std::optional<double>{};
    const std::optional<double> value = parse_scaled(text);
    if (!value || !(*value > 0))
        return usage_error(fmt::format("{} {} is no number above 0", option, text), example);
    return value;
}

Result<Numbers> numbers_of(const Options& options) {
    Numbers numbers;
    const auto per = positive("--per", options.per, "for example --per 3840");
    if (!per) return std::unexpected(per.error());
    const auto clock = positive("--clock", options.clock, "for example --clock 48M");
    if (!clock) return std::unexpected(clock.error());
    numbers.per = *per;
    numbers.clock = *clock;
    if (options.elapsed.empty()) return numbers;
    for (std::size_t i = 0; i < 2; ++i) {
        const auto value = positive("--elapsed", options.elapsed[i], "for example --elapsed 3.440 4.241");
        if (!value) return std::unexpected(value.error());
        (i == 0 ? numbers.elapsed_a : numbers.elapsed_b) = *value;
    }
    return numbers;
}

bool changed(const MachineOptions& options) {
    return !options.changes.empty() || !options.maps.empty() || !options.pins.empty() ||
           !options.handler.empty();
}

// The machines of A and of B.
Result<std::vector<machine::Machine>> machines_of(const Options& options) {
    auto machines = load_machines(*options.machines);
    if (!machines) return machines;
    if (machines->size() > 2 || machines->empty())
        return usage_error("--machine names neither one machine nor two",
                           "for example --machine mpc855t,lru32");
    const bool one_run = options.recordings.size() == 1 && options.counters.empty();
    if (machines->size() == 1 && one_run) {
        if (!changed(*options.machines))
            return usage_error(
                "one recording on one machine is nothing to compare",
                "name another recording, two machines (--machine A,B), or a change (--set, --map, --pin)");
        auto unchanged = load_machines(MachineOptions{.names = options.machines->names});
        if (!unchanged) return unchanged;
        machines->insert(machines->begin(), unchanged->front());
    } else if (machines->size() == 1) {
        machines->push_back(machines->front());
    } else if (!one_run && options.counters.empty()) {
        return usage_error("two recordings and two machines: the difference would be of both",
                           "change one of them at a time");
    }
    return machines;
}

// Cycles of every miss; 0 where they differ, or hits in later levels cost some as well.
std::uint64_t fixed_cost(const replay::Ledger& ledger) {
    const std::uint64_t each = ledger.machine.refill.cycles.value();
    return ledger.refill_cycles().value() == ledger.misses.total() * each ? each : 0;
}

// One side of the comparison with what its misses add up to.
struct Account {
    report::DiffSide side;
    std::map<explain::RowName, explain::KindCounts> functions;
    std::map<explain::RowName, explain::KindCounts> regions;
    std::map<explain::RowName, explain::KindCounts> pages;
};

std::uint64_t sum(const std::map<explain::RowName, explain::KindCounts>& rows) {
    std::uint64_t total = 0;
    for (const auto& [name, counts] : rows) total += counts[0] + counts[1];
    return total;
}

Result<std::vector<Account>> accounts_of(const std::string& file, std::vector<machine::Machine> machines,
                                         const Options& options, const Numbers& numbers, Console& console) {
    const auto recording = recording::Recording::open(file);
    if (!recording) return std::unexpected(recording.error());
    const auto regions = Regions::of(*recording, machines);
    if (!regions) return std::unexpected(regions.error());
    auto events = parse_events(options.machines->events);
    if (!events) return std::unexpected(events.error());
    explain::NameOptions name_options = *options.names;
    name_options.threads = *options.threads;
    auto names = load_names(*recording, name_options, console);
    if (!names) return std::unexpected(names.error());
    std::vector<explain::MissTotals> totals;
    totals.reserve(machines.size());
    std::vector<replay::Observer*> observers;
    observers.reserve(machines.size());
    for (std::size_t i = 0; i < machines.size(); ++i)
        observers.push_back(&totals.emplace_back(*recording, *names));
    Progress progress("replaying " + file, *options.progress);
    auto ledgers = replay::replay(
        *recording, machines,
        {.threads = *options.threads,
         .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); },
         .observers = observers,
         .region_of = regions->look_up(),
         .events = std::move(*events)});
    if (!ledgers) return std::unexpected(ledgers.error());
    std::vector<Account> accounts;
    for (std::size_t i = 0; i < machines.size(); ++i) {
        const replay::Ledger& ledger = (*ledgers)[i];
        Account account{.side = {.label = fmt::format("{} on {}", file, machines[i].name),
                                 .counters = explain::four_counters(ledger),
                                 .cycles = static_cast<double>(ledger.refill_cycles().value()),
                                 .cycles_per_miss = fixed_cost(ledger),
                                 .replay = report::Replay{.recording = file,
                                                          .metadata = recording->metadata(),
                                                          .ledgers = {ledger},
                                                          .elapsed = std::nullopt,
                                                          .clock = numbers.clock}},
                        .functions = totals[i].by_function(),
                        .regions = totals[i].by_region(),
                        .pages = totals[i].by_page()};
        if (const std::string changes = machines[i].changes_text(); !changes.empty())
            account.side.label += " with " + changes;
        if (!machines[i].rules.empty()) account.side.label += ", pages " + ledger.mapping;
        for (const auto* rows : {&account.functions, &account.regions, &account.pages})
            if (sum(*rows) != ledger.misses.total())
                return fail(file,
                            fmt::format("the accounts do not add up: {} misses by name, {} in the ledger",
                                        sum(*rows), ledger.misses.total()),
                            "this is a bug in tlbscope; please report it with the recording");
        accounts.push_back(std::move(account));
    }
    return accounts;
}

Result<std::vector<Account>> counted(const Options& options, const std::vector<machine::Machine>& machines) {
    std::vector<Account> accounts;
    for (std::size_t i = 0; i < 2; ++i) {
        const std::string& file = options.counters[i];
        auto text = read_text(file);
        if (!text) return std::unexpected(text.error());
        auto counters = explain::parse_counters(*text, file);
        if (!counters) return std::unexpected(counters.error());
        const std::uint64_t cost = machines[i].refill.cycles.value();
        Account account;
        account.side = {.label = file,
                        .counters = *counters,
                        .cycles = static_cast<double>(counters->total() * cost),
                        .cycles_per_miss = cost,
                        .replay = std::nullopt};
        accounts.push_back(std::move(account));
    }
    return accounts;
}

std::vector<std::string> notes_of(const report::Diff& diff) {
    std::vector<std::string> notes;
    for (const report::DiffSide* side : {&diff.a, &diff.b}) {
        if (!side->replay) continue;
        for (const std::string& note : side->replay->ledgers.front().notes) {
            const std::string own = (side == &diff.a ? "A: " : "B: ") + note;
            // What both say is said once.
            const std::string other = "A: " + note;
            const auto same = std::find(notes.begin(), notes.end(), other);
            if (side == &diff.b && same != notes.end())
                *same = note;
            else
                notes.push_back(own);
        }
    }
    return notes;
}

Result<Exit> run(const Options& options, Console& console) {
    if (options.counters.empty() == options.recordings.empty())
        return usage_error("there is nothing to compare",
                           "name two recordings, or one with two machines, or --counters FILE FILE");
    const auto numbers = numbers_of(options);
    if (!numbers) return std::unexpected(numbers.error());
    const auto machines = machines_of(options);
    if (!machines) return std::unexpected(machines.error());

    Result<std::vector<Account>> accounts;
    if (!options.counters.empty()) {
        accounts = counted(options, *machines);
    } else if (options.recordings.size() == 1) {
        accounts = accounts_of(options.recordings[0], *machines, options, *numbers, console);
    } else {
        for (std::size_t i = 0; i < 2; ++i) {
            auto one = accounts_of(options.recordings[i], {(*machines)[i]}, options, *numbers, console);
            if (!one) return std::unexpected(one.error());
            accounts->push_back(std::move(one->front()));
        }
    }
    if (!accounts) return std::unexpected(accounts.error());
    Account& a = (*accounts)[0];
    Account& b = (*accounts)[1];
    report::Diff diff{
        .a = a.side,
        .b = b.side,
        .slowdown = explain::slowdown(a.side.counters, b.side.counters, a.side.cycles, b.side.cycles,
                                      numbers->clock.value_or((*machines)[1].clock.hertz), numbers->elapsed_a,
                                      numbers->elapsed_b),
        .elapsed_a = numbers->elapsed_a,
        .elapsed_b = numbers->elapsed_b,
        .per = numbers->per,
        .functions = explain::changes(a.functions, b.functions),
        .regions = explain::changes(a.regions, b.regions),
        .pages = explain::changes(a.pages, b.pages),
        .rows = options.rows,
        .notes = {}};
    diff.notes = notes_of(diff);
    if (!numbers->clock && (*machines)[0].clock.hertz != (*machines)[1].clock.hertz)
        diff.notes.insert(diff.notes.begin(),
                          "the machines' clocks differ: the difference in cycles is given in "
                          "seconds of B's clock; --clock HZ gives another");
    const std::string text = *options.format == Format::kJson  ? report::as_json(diff)
                             : *options.format == Format::kCsv ? report::as_csv(diff)
                                                               : report::as_text(diff, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    return Exit::kOk;
}

}  // namespace

Command diff_command() {
    return {.name = "diff",
            .summary = "what changed between two runs, or two machines",
            .examples =
                "  tlbscope diff old.rec new.rec                          two runs on an MPC855T\n"
                "  tlbscope diff old.rec new.rec --per 3840               misses per block copied\n"
                "  tlbscope diff dd.rec --machine mpc855t,lru32           one run on two machines\n"
                "  tlbscope diff dd.rec --set tlb.data.entries=64         one run, one change\n"
                "  tlbscope diff dd.rec --map kernel-linear=8M            without and with large pages\n"
                "  tlbscope diff --counters 24.txt 26.txt --elapsed 3.440 4.241 --clock 48M\n"
                "                                                         the four lines of /proc/tlbmiss\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                auto* recordings = app.add_option("recordings", options->recordings, "one or two recordings")
                                       ->type_name("A [B]")
                                       ->expected(0, 2);
                app.add_option("--counters", options->counters,
                               "two files with four counters each, instead of recordings")
                    ->type_name("FILE FILE")
                    ->expected(2)
                    ->excludes(recordings);
                add_machine_options(app, options->machines);
                add_refill_options(app, options->machines);
                app.add_option("--per", options->per, "units of work the runs did: print misses per unit")
                    ->type_name("N");
                app.add_option("--elapsed", options->elapsed, "seconds A and B took on the real machine")
                    ->type_name("A B")
                    ->expected(2);
                app.add_option("--clock", options->clock, "that machine's clock, e.g. 48M")->type_name("HZ");
                app.add_option("-n,--rows", options->rows, "rows of each table; 0: all")
                    ->check(CLI::Range(0, 1000000))
                    ->type_name("N")
                    ->capture_default_str();
                add_name_options(app, options->names);
                add_format_options(app, options->format);
                add_threads_option(app, options->threads);
                add_progress_option(app, options->progress);
                return [options, &console] { return run(*options, console); };
            }};
}

}  // namespace tlbscope::cli
