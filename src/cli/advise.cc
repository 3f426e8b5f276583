// tlbscope advise: which change would remove the most cycles, what is left then, and what it costs.
#include "advise/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <string_view>

#include "cli/command.h"
#include "cli/layout_options.h"
#include "cli/machine_options.h"
#include "recording/recording.h"
#include "report/advise_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string recording = kDefaultRecording;
    std::shared_ptr<MachineOptions> machine = std::make_shared<MachineOptions>();
    std::uint32_t most_pins = 8;
    std::size_t rows = 15;
    std::optional<double> most_seconds;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

MachineOptions with(const MachineOptions& options, const advise::Change& change) {
    MachineOptions all = options;
    all.changes.insert(all.changes.end(), change.sets.begin(), change.sets.end());
    all.maps.insert(all.maps.end(), change.maps.begin(), change.maps.end());
    all.pins.insert(all.pins.end(), change.pins.begin(), change.pins.end());
    if (!change.handler.empty()) all.handler = change.handler;
    return all;
}

// A word of a command line, as a shell reads it.
std::string shell_word(const std::string& word) {
    const bool plain = std::all_of(word.begin(), word.end(), [](unsigned char c) {
        return std::isalnum(c) != 0 ||
               std::string_view("_./:=,@+-").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain && !word.empty()) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
    return text + "'";
}

// The replay that shows the machine as it is, but for its handler.
std::string command_of(const Options& options) {
    std::string command = "tlbscope replay";
    const auto add = [&command](const std::string& option, const std::string& value) {
        command += " " + option + " " + shell_word(value);
    };
    if (options.recording != kDefaultRecording) command += " " + shell_word(options.recording);
    if (options.machine->names != kDefaultMachine) add("--machine", options.machine->names);
    for (const std::string& change : options.machine->changes) add("--set", change);
    for (const std::string& map : options.machine->maps) add("--map", map);
    for (const std::string& pin : options.machine->pins) add("--pin", pin);
    for (const std::string& event : options.machine->events) add("--event", event);
    return command;
}

Result<Exit> run(const Options& options, Console& console) {
    auto machines = load_machines(*options.machine);
    if (!machines) return std::unexpected(machines.error());
    if (machines->size() != 1) return usage_error("--machine names several", "advise one machine at a time");
    auto events = parse_events(options.machine->events);
    if (!events) return std::unexpected(events.error());
    const StopOnInterrupt stop;
    const auto recording = recording::Recording::open(options.recording);
    if (!recording) return std::unexpected(recording.error());
    // Regions as `replay` finds them for --map.
    const auto names = explain::Names::load(*recording, {.find_stacks = false, .threads = *options.threads});
    if (!names) return std::unexpected(names.error());

    using Clock = std::chrono::steady_clock;
    const auto start = Clock::now();
    const auto late = [&] {
        return options.most_seconds &&
               std::chrono::duration<double>(Clock::now() - start).count() > *options.most_seconds;
    };
    constexpr std::size_t kAtOnce = 4;
    std::optional<Progress> progress;
    const advise::Options how{
        .threads = *options.threads,
        .make = [&](const advise::Change& change) -> Result<machine::Machine> {
            auto made = load_machines(with(*options.machine, change));
            if (!made) return std::unexpected(made.error());
            machine::Machine machine = std::move(made->front());
            if (auto placed = place_pins(machine, &*names); !placed) return std::unexpected(placed.error());
            return machine;
        },
        .region_of = [&](SpaceId space, VirtAddr address) { return names->region_of(space, address); },
        .events = std::move(*events),
        .most_pins = options.most_pins,
        .pass = [&](const std::string& what) { progress.emplace("trying " + what, *options.progress); },
        .progress =
            [&](std::uint64_t done, std::uint64_t total) {
                if (progress) progress->update(done, total);
            },
        .enough = late,
        .interrupted = [] { return StopOnInterrupt::asked(); },
        .at_once = options.most_seconds ? kAtOnce : ~std::size_t{0}};
    auto advice = advise::advise(*recording, how);
    progress.reset();
    if (!advice && advice.error().error_class != ErrorClass::kInterrupted)
        return std::unexpected(advice.error());
    const bool interrupted = StopOnInterrupt::asked() && (!advice || advice->stopped);
    if (interrupted && (!advice || advice->trials.empty()))
        return std::unexpected(Error{.where = "",
                                     .what = "stopped before a remedy was tried",
                                     .hint = "",
                                     .error_class = ErrorClass::kInterrupted});
    const report::Advised advised{
        .recording = options.recording,
        .metadata = recording->metadata(),
        .command = command_of(options),
        .handler = options.machine->handler.empty() ? std::string() : shell_word(options.machine->handler),
        .advice = std::move(*advice),
        .rows = options.rows,
        .stopped = interrupted ? std::string("ctrl-C")
                               : fmt::format("--max-time {}", options.most_seconds.value_or(0))};
    const std::string text = *options.format == Format::kJson  ? report::as_json(advised)
                             : *options.format == Format::kCsv ? report::as_csv(advised)
                                                               : report::as_text(advised, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (interrupted)
        return std::unexpected(Error{.where = "",
                                     .what = report::stopped_text(advised),
                                     .hint = "",
                                     .error_class = ErrorClass::kInterrupted});
    if (*options.format == Format::kText && advised.advice.first)
        console.suggest(report::command_of(advised, advised.advice.trials[*advised.advice.first]) +
                        "    what would be left");
    return Exit::kOk;
}

}  // namespace

Command advise_command() {
    return {.name = "advise",
            .summary = "which change would save the most, proved by replay, and what it costs",
            .examples =
                "  tlbscope advise                                      tlbscope.rec on an MPC855T\n"
                "  tlbscope advise --machine lru32 -n 0                 another machine, every remedy\n"
                "  tlbscope advise --map kernel-linear=8M               what to do after that\n"
                "  tlbscope advise --handler 8xx-linux-2.6.12           handlers too, by derived cost\n"
                "  tlbscope advise --max-time 60                        the best of what a minute can try\n"
                "  tlbscope advise --json                               everything that was tried\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                app.add_option("recording", options->recording, "a recording")
                    ->option_text(fmt::format("REC (default: {})", kDefaultRecording));
                add_machine_options(app, options->machine);
                add_refill_options(app, options->machine);
                app.add_option("--most-pins", options->most_pins, "try to pin up to this many entries")
                    ->check(CLI::Range(0u, 64u))
                    ->option_text("N (default: 8)");
                app.add_option("-n,--rows", options->rows, "rows of the table; 0: all")
                    ->check(CLI::Range(0, 1000000))
                    ->type_name("N")
                    ->capture_default_str();
                app.add_option("--max-time", options->most_seconds,
                               "stop trying after so many seconds, and rank what was tried")
                    ->check([](const std::string& text) {
                        double seconds = 0;
                        const auto [end, code] =
                            std::from_chars(text.data(), text.data() + text.size(), seconds);
                        const bool good = code == std::errc{} && end == text.data() + text.size() &&
                                          seconds >= 0 && seconds <= 1e9;
                        return good ? std::string() : fmt::format("{} is no number of seconds", text);
                    })
                    ->type_name("SECONDS");
                add_format_options(app, options->format);
                add_threads_option(app, options->threads);
                add_progress_option(app, options->progress);
                return [options, &console] { return run(*options, console); };
            }};
}

}  // namespace tlbscope::cli
