// tlbscope flush: what invalidating translations costs under one flush policy or another.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/command.h"
#include "core/numbers.h"
#include "flush/recorded.h"
#include "flush/replay.h"
#include "import_log/log.h"
#include "machine/machine_file.h"
#include "recording/format.h"
#include "recording/summary.h"
#include "report/flush_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string input = kDefaultRecording;
    std::string policies = "before,series,today";
    std::string machines;
    std::vector<std::string> changes;
    std::string page;
    std::optional<std::uint32_t> cpus;
    std::string touched = "auto";
    std::string from = "auto";
    bool by_reason = false;
    bool crossover = false;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

// The machine a policy takes its numbers from: of those the user named the first of its family, else its own.
Result<std::vector<flush::PolicyOnMachine>> policies_of(const Options& options) {
    auto policies = flush::policies_named(options.policies);
    if (!policies) return std::unexpected(policies.error());
    std::vector<machine::Machine> named;
    std::istringstream words(options.machines);
    for (std::string word; std::getline(words, word, ',');) {
        auto machine = machine::load_machine(word, options.changes);
        if (!machine) return std::unexpected(machine.error());
        if (machine->flush.family.empty())
            return usage_error(fmt::format("machine {} says nothing about flushing", machine->name),
                               "add a [flush] table to its file (docs/machine-file.md)");
        named.push_back(std::move(*machine));
    }
    std::vector<flush::PolicyOnMachine> chosen;
    for (const flush::Policy& policy : *policies) {
        const auto found = std::find_if(named.begin(), named.end(), [&](const machine::Machine& machine) {
            return machine.flush.family == policy.family;
        });
        if (found != named.end()) {
            chosen.push_back({.policy = policy, .machine = *found});
            continue;
        }
        auto machine = machine::load_machine(std::string(policy.machine), options.changes);
        if (!machine) return std::unexpected(machine.error());
        if (machine->flush.family != policy.family)
            return fail(machine->file,
                        fmt::format("its [flush] table is not of the family {} that policy {} needs",
                                    policy.family, policy.name),
                        "give another --machine");
        chosen.push_back({.policy = policy, .machine = std::move(*machine)});
    }
    for (const machine::Machine& machine : named)
        if (std::none_of(chosen.begin(), chosen.end(), [&](const flush::PolicyOnMachine& each) {
                return each.machine.name == machine.name;
            }))
            return usage_error(fmt::format("--machine {} is of the family {}, which no policy asked for has",
                                           machine.name, machine.flush.family),
                               "name a policy of that family; `tlbscope flush --help` lists them");
    return chosen;
}

std::string quantity(std::uint64_t n, const char* one, const char* many) {
    return n == 1 ? fmt::format("1 {}", one) : fmt::format("{} {}", grouped(n), many);
}

Result<flush::ReplayOptions> replay_options(const Options& options) {
    flush::ReplayOptions how{.page = std::nullopt, .cpus = options.cpus, .faults = std::nullopt};
    if (options.touched != "auto") how.faults = options.touched == "faults";
    if (!options.page.empty()) {
        const std::uint64_t bytes = parse_size(options.page);
        if (bytes != 4096 && bytes != 16384 && bytes != 65536)
            return usage_error(fmt::format("--page {} is no page size of a kernel", options.page),
                               "give 4K, 16K or 64K");
        how.page = PageShift(bytes == 4096 ? 12 : bytes == 16384 ? 14 : 16);
    }
    return how;
}

bool is_recording(const std::string& file) {
    if (file == "-") return false;
    std::ifstream stream(file, std::ios::binary);
    std::array<char, sizeof recording::format::kMagic> first{};
    stream.read(first.data(), first.size());
    return stream && std::memcmp(first.data(), recording::format::kMagic, first.size()) == 0;
}

Result<void> read_text_log(const Options& options, flush::Replay& replay, report::FlushReport& report) {
    const import::LogSink sink{.event = [&](const MemoryEvent& event) { replay.event(event); },
                               .operation = [&](const TlbOperation& seen) { report.observed.add(seen); }};
    std::error_code unknown;
    const std::uint64_t size = options.input == "-" ? 0 : std::filesystem::file_size(options.input, unknown);
    Progress progress("reading", *options.progress);
    auto log = import::read_log(options.input, sink, [&](std::uint64_t bytes) {
        // A compressed file holds more text than it has bytes.
        if (!unknown && bytes <= size) progress.update(bytes, size);
    });
    if (!log) return std::unexpected(log.error());
    report.format = log->format;
    if (log->events == 0 && log->operations == 0)
        return fail(report.input,
                    fmt::format("none of its {} lines tells of address spaces", grouped(log->lines)),
                    "docs/flush.md says which events to record");
    for (const std::string& note : log->problems.notes("input")) report.notes.push_back(note);
    if (log->failed_calls > 0)
        report.notes.push_back(quantity(log->failed_calls, "system call failed and changed nothing",
                                        "system calls failed and changed nothing"));
    if (log->lost > 0)
        report.notes.push_back(
            fmt::format("the input says that events were lost ({}): counts are too low", grouped(log->lost)));
    if (!log->damage.empty()) report.notes.push_back("the input ends early: " + log->damage);
    return {};
}

// Instructions that the recorder saw executing, whatever the kernel's tracepoints say.
Result<void> count_executed(const recording::Recording& recording, report::FlushReport& report) {
    auto summary = recording::summarise(recording);
    if (!summary) return std::unexpected(summary.error());
    using recording::Barrier;
    using recording::Invalidation;
    for (const auto& [name, what] : {std::pair{"tlbie", Invalidation::kTlbie},
                                     {"tlbiel", Invalidation::kTlbiel},
                                     {"slbia", Invalidation::kSlbia},
                                     {"tlbia", Invalidation::kTlbia},
                                     {"invlpg", Invalidation::kInvlpg},
                                     {"mov to CR3", Invalidation::kMovToCr3},
                                     {"invpcid", Invalidation::kInvpcid}})
        if (const std::uint64_t n = summary->invalidations[static_cast<std::size_t>(what)]; n > 0)
            report.executed.emplace_back(name, n);
    for (const auto& [name, what] : {std::pair{"ptesync", Barrier::kPtesync}, {"tlbsync", Barrier::kTlbsync}})
        if (const std::uint64_t n = summary->barriers[static_cast<std::size_t>(what)]; n > 0)
            report.executed.emplace_back(name, n);
    return {};
}

Result<void> read_recording(const recording::Recording& recording, const Options& options,
                            std::span<flush::Replay* const> replays, report::FlushReport& report) {
    {
        Progress progress("replaying", *options.progress);
        auto done = flush::replay_recording(
            recording, replays, report.observed,
            [&](std::uint64_t chunks, std::uint64_t all) { progress.update(chunks, all); });
        if (!done) return done;
    }
    if (recording.metadata().lost_kernel_events > 0)
        report.notes.push_back(fmt::format("{} of the kernel's events were lost: counts are too low",
                                           grouped(recording.metadata().lost_kernel_events)));
    if (!recording.whole()) report.notes.push_back("the recording is not whole: " + recording.damage());
    if (!report.references)
        report.notes.emplace_back(
            "the recording does not hold every reference: which translations were alive is unknown");
    return count_executed(recording, report);
}

void add_rows(const flush::Replay& replay, report::FlushReport& report, const std::string& suffix) {
    for (const auto& result : replay.results())
        report.rows.push_back({.policy = std::string(result.policy->policy.name) + suffix,
                               .family = std::string(result.policy->policy.family),
                               .machine = result.policy->machine.name,
                               .hertz = result.policy->machine.clock.hertz,
                               .account = *result.account,
                               .costs = result.policy->machine.flush,
                               .sizes = *result.sizes});
    for (const std::string& note : replay.notes()) report.notes.push_back(note);
}

Result<Exit> run(const Options& options, Console& console) {
    auto policies = policies_of(options);
    if (!policies) return std::unexpected(policies.error());
    auto how = replay_options(options);
    if (!how) return std::unexpected(how.error());
    report::FlushReport report{.input = options.input == "-" ? "standard input" : options.input,
                               .by_reason = options.by_reason,
                               .crossover = options.crossover};
    std::optional<flush::Replay> replay;
    std::optional<flush::Replay> second;
    if (is_recording(options.input)) {
        report.format = "recording";
        auto recording = recording::Recording::open(options.input);
        if (!recording) return std::unexpected(recording.error());
        const recording::Metadata& metadata = recording->metadata();
        if (!metadata.kernel_events && !recording->whole())
            return fail(
                options.input,
                fmt::format("the recording is not whole ({}), and whether it had the kernel's own events "
                            "is lost with its end",
                            recording->damage()),
                "record again");
        if (!metadata.kernel_events)
            return fail(options.input, "the recording has none of the kernel's own events",
                        "record --system --events brings them home");
        if (!how->page && metadata.page_bytes != 0)
            how->page = PageShift(static_cast<std::uint8_t>(std::countr_zero(metadata.page_bytes)));
        std::uint64_t executions = 0;
        for (const recording::ChunkInfo& chunk : recording->chunks()) executions += chunk.executions;
        report.references = metadata.granularity == recording::Granularity::kFull && executions > 0;
        how->references = report.references;
        how->recorded = true;
        if (!how->faults) how->faults = true;
        how->calls = options.from == "calls" || options.from == "both" || options.from == "auto";
        if (options.from == "both") {
            flush::ReplayOptions events = *how;
            events.calls = false;
            second.emplace(*policies, events);
        }
        replay.emplace(std::move(*policies), *how);
        std::vector<flush::Replay*> replays = {&*replay};
        if (second) replays.push_back(&*second);
        if (auto done = read_recording(*recording, options, replays, report); !done)
            return std::unexpected(done.error());
    } else {
        if (options.from == "calls" || options.from == "both")
            return usage_error(fmt::format("--from {} needs a recording", options.from),
                               "record --system --events makes one");
        replay.emplace(std::move(*policies), *how);
        if (auto done = read_text_log(options, *replay, report); !done) return std::unexpected(done.error());
    }
    replay->finish();
    if (second) second->finish();
    report.page_bytes = replay->assumptions().page.bytes();
    report.events = replay->events();
    report.spaces = replay->spaces();
    report.cpus = replay->cpus();
    report.copies = second ? second->copies() : replay->copies();
    add_rows(*replay, report, "");
    if (second) add_rows(*second, report, " (events)");

    const std::string text = *options.format == Format::kJson  ? report::as_json(report)
                             : *options.format == Format::kCsv ? report::as_csv(report)
                                                               : report::as_text(report);
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (*options.format == Format::kText && !options.crossover && options.input != "-")
        console.suggest(fmt::format("tlbscope flush {} --crossover", options.input));
    return Exit::kOk;
}

std::string list_of_policies() {
    std::string text = "before,series,today; patches or all for many:";
    for (const flush::Policy& policy : flush::policies())
        text += fmt::format("\n{:<12} {}", policy.name, policy.summary);
    return text;
}

}  // namespace

Command flush_command() {
    return {.name = "flush",
            .summary = "say what TLB flushes cost under one policy or another",
            .examples =
                "  tlbscope flush                         before, series and today on tlbscope.rec\n"
                "  tlbscope flush trace.txt --policy today,x86,arm64-range,riscv\n"
                "                                         ftrace, trace-cmd report, perf script, strace -f\n"
                "  strace -f -o log make; tlbscope flush log --cpus 4 --by-reason\n"
                "  tlbscope flush log --policy patches    each patch of the 2017 series by itself\n"
                "  tlbscope flush log --crossover         where a range flush costs what a full one does\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                app.add_option("input", options->input, "a recording or a log; - for standard input")
                    ->type_name("INPUT")
                    ->option_text(fmt::format("(default: {})", kDefaultRecording));
                app.add_option("--policy", options->policies, list_of_policies())->type_name("LIST");
                app.add_option("--machine", options->machines,
                               "whose numbers to take, one for each family of policies (default: power9, "
                               "skylake, zen4, neoverse-n1, sifive-u74)")
                    ->type_name("LIST");
                app.add_option("--set", options->changes, "change a fact, e.g. flush.ceiling=64; repeatable")
                    ->type_name("KEY=VALUE")
                    ->expected(1)
                    ->take_all();
                app.add_option("--page", options->page, "page size of the kernel that ran: 4K, 16K or 64K")
                    ->type_name("SIZE");
                app.add_option("--cpus", options->cpus,
                               "place processes on so many CPUs in turn, whatever the input says of CPUs")
                    ->check(CLI::Range(1U, static_cast<unsigned>(flush::kMostCpus)))
                    ->type_name("N");
                app.add_option("--touched", options->touched,
                               "pages with an entry: those with a fault, or all of every mapping; auto: by "
                               "whether the input has faults")
                    ->check(CLI::IsMember({"auto", "faults", "all"}))
                    ->option_text("auto|faults|all");
                app.add_option("--from", options->from,
                               "of a recording: the kernel's calls of its flush code, the memory-management "
                               "events alone, or both side by side; auto: calls")
                    ->check(CLI::IsMember({"auto", "calls", "events", "both"}))
                    ->option_text("auto|calls|events|both");
                app.add_flag("--by-reason", options->by_reason,
                             "what asked for the flushes, and where the time goes");
                app.add_flag("--crossover", options->crossover,
                             "from how many pages on flushing the space is cheaper");
                add_format_options(app, options->format);
                add_progress_option(app, options->progress);
                return [options, &console] { return run(*options, console); };
            }};
}

}  // namespace tlbscope::cli
