// tlbscope replay: what a recorded run's TLB misses cost on some machine.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/machine_options.h"
#include "explain/causes.h"
#include "recording/recording.h"
#include "replay/replay.h"
#include "report/report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string recording = kDefaultRecording;
    std::shared_ptr<MachineOptions> machines = std::make_shared<MachineOptions>();
    std::optional<std::uint64_t> max_misses;
    std::string elapsed;
    std::string clock;
    bool causes = false;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

Result<std::optional<double>> positive(const std::string& option, const std::string& text) {
    if (text.empty()) return std::optional<double>{};
    const std::optional<double> value = parse_scaled(text);
    if (!value || !(*value > 0))
        return usage_error(fmt::format("{} {} is no number above 0", option, text),
                           option == "--clock" ? "for example --clock 48M" : "for example --elapsed 4.241");
    return value;
}

Result<Exit> run(const Options& options, Console& console) {
    const auto elapsed = positive("--elapsed", options.elapsed);
    if (!elapsed) return std::unexpected(elapsed.error());
    const auto clock = positive("--clock", options.clock);
    if (!clock) return std::unexpected(clock.error());
    auto machines = load_machines(*options.machines);
    if (!machines) return std::unexpected(machines.error());
    auto events = parse_events(options.machines->events);
    if (!events) return std::unexpected(events.error());
    const auto recording = recording::Recording::open(options.recording);
    if (!recording) return std::unexpected(recording.error());
    const auto regions = Regions::of(*recording, *machines);
    if (!regions) return std::unexpected(regions.error());

    report::Replay report{.recording = options.recording,
                          .metadata = recording->metadata(),
                          .ledgers = {},
                          .elapsed = *elapsed,
                          .clock = *clock};
    {
        Progress progress("replaying", *options.progress);
        const replay::Options how{
            .threads = *options.threads,
            .progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); },
            .observers = {},
            .region_of = regions->look_up(),
            .events = std::move(*events)};
        auto ledgers = options.causes ? explain::replay_with_causes(*recording, *machines, how)
                                      : replay::replay(*recording, *machines, how);
        if (!ledgers) return std::unexpected(ledgers.error());
        report.ledgers = std::move(*ledgers);
    }
    const std::string text = *options.format == Format::kJson  ? report::as_json(report)
                             : *options.format == Format::kCsv ? report::as_csv(report)
                                                               : report::as_text(report, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());

    bool exceeded = false;
    for (const replay::Ledger& ledger : report.ledgers) {
        const std::uint64_t misses = ledger.misses.total();
        if (!options.max_misses || misses <= *options.max_misses) continue;
        exceeded = true;
        console.note(fmt::format("{} misses on {}, {} more than --max-misses {}", misses, ledger.machine.name,
                                 misses - *options.max_misses, *options.max_misses));
    }
    if (exceeded) return Exit::kBudgetExceeded;
    if (*options.format == Format::kText) {
        const std::string file = options.recording == kDefaultRecording ? "" : " " + options.recording;
        console.suggest(options.machines->changes.empty()
                            ? fmt::format("tlbscope replay{} --set tlb.instruction.entries=64 --set "
                                          "tlb.data.entries=64    what larger TLBs would save",
                                          file)
                            : fmt::format("tlbscope replay{} --machine {}    the machine as it is", file,
                                          options.machines->names));
    }
    return Exit::kOk;
}

}  // namespace

Command replay_command() {
    return {
        .name = "replay",
        .summary = "what a recorded run's TLB misses cost on a machine",
        .examples =
            "  tlbscope replay                                      tlbscope.rec on an MPC855T\n"
            "  tlbscope replay --machine mpc855t,lru32              several machines in one pass\n"
            "  tlbscope replay --set tlb.data.entries=64            the same with a larger data TLB\n"
            "  tlbscope replay --map kernel-linear=8M,user=64K      with large pages\n"
            "  tlbscope replay --pin kernel-text:8M                 with entries that stay\n"
            "  tlbscope replay --handler 8xx-linux-2.6.12           cost per miss from the handler's code\n"
            "  tlbscope replay --elapsed 4.241 --clock 48M          share of a run that took 4.241 s\n"
            "  tlbscope replay --max-misses 500000 --json           for a test: exit status 3 above\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("recording", options->recording, "a recording")
                ->option_text(fmt::format("REC (default: {})", kDefaultRecording));
            add_machine_options(app, options->machines);
            add_refill_options(app, options->machines);
            app.add_option("--max-misses", options->max_misses, "exit with status 3 above this many misses")
                ->type_name("N");
            app.add_option("--elapsed", options->elapsed, "seconds the run took on the real machine")
                ->type_name("SECONDS");
            app.add_option("--clock", options->clock, "that machine's clock, e.g. 48M")->type_name("HZ");
            app.add_flag("--causes", options->causes, "say why the misses happened as well");
            add_format_options(app, options->format);
            add_threads_option(app, options->threads);
            add_progress_option(app, options->progress);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
