// tlbscope footprint: the pages, lines and functions that a path needs.
#include <fmt/format.h>

#include <bit>
#include <sstream>

#include "cli/command.h"
#include "cli/machine_options.h"
#include "cli/name_options.h"
#include "core/numbers.h"
#include "explain/contents.h"
#include "explain/footprint.h"
#include "report/footprint_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string recording = kDefaultRecording;
    std::vector<std::string> paths;
    std::string pages = "4K,16K,64K";
    std::string line = "64";
    bool contents = false;
    std::optional<std::uint64_t> call;
    std::shared_ptr<MachineOptions> machine = std::make_shared<MachineOptions>();
    std::shared_ptr<explain::NameOptions> names = std::make_shared<explain::NameOptions>();
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

// The power of two that a size is; nothing when it is none from 16 bytes to 1 GiB.
std::optional<unsigned> shift_of(const std::string& text) {
    const std::uint64_t bytes = parse_size(text);
    if (!std::has_single_bit(bytes) || bytes < 16 || bytes > std::uint64_t{1} << 30) return std::nullopt;
    return static_cast<unsigned>(std::countr_zero(bytes));
}

Result<explain::FootprintOptions> footprint_options(const Options& options) {
    explain::FootprintOptions result{
        .pages = {}, .line_shift = 6, .threads = *options.threads, .progress = {}};
    const auto line = shift_of(options.line);
    if (!line) return usage_error(fmt::format("--line {} is no size", options.line), "for example --line 32");
    result.line_shift = *line;
    std::istringstream words(options.pages);
    for (std::string word; std::getline(words, word, ',');) {
        const auto shift = shift_of(word);
        if (!shift || *shift < *line)
            return usage_error(fmt::format("--page {} is no page size of at least a line", word),
                               "for example --page 4K,16K,64K");
        result.pages.emplace_back(static_cast<std::uint8_t>(*shift));
    }
    if (result.pages.empty()) return usage_error("--page names no size", "for example --page 4K,16K,64K");
    return result;
}

Result<Exit> run(const Options& options, Console& console) {
    auto how = footprint_options(options);
    if (!how) return std::unexpected(how.error());
    const auto machines = load_machines(*options.machine);
    if (!machines) return std::unexpected(machines.error());
    if (options.contents) {
        if (machines->size() != 1)
            return usage_error("--machine names several", "--contents shows one machine's TLBs");
        if (auto plain = check_plain(machines->front(), "--contents"); !plain)
            return std::unexpected(plain.error());
    }
    const auto recording = recording::Recording::open(options.recording);
    if (!recording) return std::unexpected(recording.error());
    explain::NameOptions name_options = *options.names;
    name_options.threads = *options.threads;
    name_options.find_stacks = options.contents;  // regions are printed with contents only
    auto names = load_names(*recording, name_options, console);
    if (!names) return std::unexpected(names.error());
    std::vector<explain::Path> paths;
    for (const std::string& text : options.paths) {
        auto path = explain::parse_path(text, *recording, *names);
        if (!path) return std::unexpected(path.error());
        paths.push_back(std::move(*path));
    }

    report::Footprints report{
        .recording = options.recording,
        .paths = {},
        .contents = {},
        .machine = {},
        .line_bytes = std::uint64_t{1} << how->line_shift,
        .knows_interrupts = explain::PathTracker(*recording, *names, paths).knows_interrupts() ||
                            !recording->metadata().system,
        .names = &*names};
    {
        Progress progress("following paths", *options.progress);
        how->progress = [&](std::uint64_t done, std::uint64_t total) { progress.update(done, total); };
        auto found = explain::footprint(*recording, *names, paths, *how);
        if (!found) return std::unexpected(found.error());
        report.paths = std::move(*found);
    }
    if (options.contents) {
        report.machine = machines->front().name;
        for (std::size_t i = 0; i < paths.size(); ++i) {
            const std::uint64_t calls = report.paths[i].calls;
            // By default a call of the steady state: the middle one.
            auto contents = explain::contents_of_call(*recording, *names, machines->front(), paths[i],
                                                      options.call.value_or((calls + 1) / 2), calls);
            if (!contents) return std::unexpected(contents.error());
            report.contents.push_back(std::move(*contents));
        }
    }
    const std::string text = *options.format == Format::kJson  ? report::as_json(report)
                             : *options.format == Format::kCsv ? report::as_csv(report)
                                                               : report::as_text(report, console.color());
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (!options.contents && *options.format == Format::kText)
        console.suggest(
            fmt::format("tlbscope footprint {} --path {} --contents    what one call brings into the "
                        "TLBs",
                        options.recording, options.paths.front()));
    return Exit::kOk;
}

}  // namespace

Command footprint_command() {
    return {
        .name = "footprint",
        .summary = "how many pages, lines and functions a path needs",
        .examples =
            "  tlbscope footprint --path sys_read --path sys_write    two system calls of tlbscope.rec\n"
            "  tlbscope footprint dd.rec --path mark:1..mark:2        what lies between two marks\n"
            "  tlbscope footprint --path sys_read --contents          the TLBs before and after one call\n"
            "  tlbscope footprint --path main --page 4K,2M --line 32  other pages and lines\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("recording", options->recording, "a recording")
                ->type_name("REC")
                ->capture_default_str();
            app.add_option("--path", options->paths,
                           "a function (sys_read finds __x64_sys_read) or mark:A..mark:B; repeatable")
                ->type_name("PATH")
                ->required()
                ->expected(1)
                ->take_all();
            app.add_option("--page", options->pages, "page sizes")
                ->type_name("SIZE[,...]")
                ->capture_default_str();
            app.add_option("--line", options->line, "bytes of a cache line")
                ->type_name("SIZE")
                ->capture_default_str();
            app.add_flag("--contents", options->contents,
                         "print the TLBs of --machine before and after one call");
            app.add_option("--call", options->call, "which call, from 1; by default the middle one")
                ->type_name("N");
            add_machine_options(app, options->machine);
            add_name_options(app, options->names);
            add_format_options(app, options->format);
            add_threads_option(app, options->threads);
            add_progress_option(app, options->progress);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
