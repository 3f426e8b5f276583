// tlbscope record: run a command under QEMU and write down every reference it makes.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <memory>

#include "capture/session.h"
#include "cli/command.h"
#include "core/numbers.h"

namespace tlbscope::cli {

namespace {

struct Options {
    capture::RecordOptions record;
    bool system = false;
    std::string guest = "x86_64";
    std::string root;
    std::string granularity = "full";
    std::string output = kDefaultRecording;
    std::string most_references;
    std::string memory;
    std::string kernel;
    std::vector<std::string> with;
};

Result<void> read_options(Options& options) {
    capture::RecordOptions& record = options.record;
    if (record.command.empty())
        return usage_error("there is no command to record",
                           "give it behind --: tlbscope record -- COMMAND...");
    if (!options.most_references.empty()) {
        const auto most = parse_scaled(options.most_references);
        if (!most || *most < 1)
            return usage_error(
                fmt::format("--max-refs {}: it is not a number of references", options.most_references),
                "for example --max-refs 100M");
        record.most_references = static_cast<std::uint64_t>(*most);
    }
    if (!options.memory.empty()) {
        const std::uint64_t memory = parse_size(options.memory);
        const std::uint64_t bytes =
            memory != 0 && memory < 1U << 20 ? memory << 20 : memory;  // a bare number is MiB
        if (bytes < 64U << 20)
            return usage_error(fmt::format("--memory {}: a guest needs at least 64M", options.memory),
                               "for example --memory 512M");
        record.memory_mib = bytes >> 20;
    }
    if (!options.system && (options.guest != "x86_64" || options.record.events))
        return usage_error(options.record.events ? "--events needs --system" : "--guest needs --system",
                           "say tlbscope record --system ...");
    record.guest = options.guest;
    record.root = options.root;
    for (const auto known :
         {recording::Granularity::kFull, recording::Granularity::kPage, recording::Granularity::kNone})
        if (options.granularity == name_of(known)) record.granularity = known;
    if (record.granularity == recording::Granularity::kNone && !options.system)
        return usage_error("--granularity none leaves nothing to record of a lone program",
                           "use it with --system, for the kernel's events");
    record.output = options.output;
    record.kernel = options.kernel;
    record.with.assign(options.with.begin(), options.with.end());
    record.tool_version = TLBSCOPE_VERSION;
    return {};
}

void say_what_happened(Console& console, const Options& options, const capture::Session& session) {
    const recording::Totals& totals = session.outcome.totals;
    const double per_reference = totals.references() == 0 ? 0
                                                          : static_cast<double>(session.file_bytes) /
                                                                static_cast<double>(totals.references());
    console.note(fmt::format("the command {}; {} references in {} ({}, {:.3f} bytes each)",
                             session.metadata.outcome, grouped(totals.references()), options.output,
                             human_bytes(session.file_bytes), per_reference));
    for (const std::string& missing : session.metadata.not_recorded)
        if (!missing.starts_with("the kernel:") && !missing.starts_with("physical"))
            console.note("not recorded: " + missing);
    console.suggest(options.output == kDefaultRecording ? "tlbscope replay"
                                                        : "tlbscope replay " + options.output);
}

Result<Exit> run(Options& options, Console& console) {
    if (auto read = read_options(options); !read) return std::unexpected(read.error());
    if (console.error_is_terminal() && options.system) {
        options.record.on_progress = [](const std::string& phase, std::uint64_t references) {
            const std::string line =
                references == 0 ? phase : fmt::format("{}: {} references", phase, grouped(references));
            fmt::print(stderr, "\r\033[K{}", line);
            std::fflush(stderr);
        };
    }
    auto session =
        options.system ? capture::record_machine(options.record) : capture::record_program(options.record);
    if (options.record.on_progress) fmt::print(stderr, "\r\033[K");
    if (!session) return std::unexpected(session.error());
    if (auto printed = console.print(session->standard_output); !printed)
        return std::unexpected(printed.error());
    fmt::print(stderr, "{}", session->standard_error);
    say_what_happened(console, options, *session);
    return session->outcome.interrupted ? Exit::kInterrupted : Exit::kOk;
}

}  // namespace

Command record_command() {
    return {
        .name = "record",
        .summary = "run a command under QEMU and record every reference it makes",
        .examples =
            "  tlbscope record -- ls -l                       a user program, into tlbscope.rec\n"
            "  tlbscope record --system -- dd if=/dev/zero of=file bs=4k count=3840\n"
            "                                                 the program and its kernel, in a guest\n"
            "  tlbscope record --system --guest ppc32 -- dd if=/dev/zero of=file bs=4k count=3840\n"
            "                                                 on a PowerPC 440 (scripts/build-ppc32-kernel)\n"
            "  tlbscope record --from main --max-refs 100M -o main.rec -- ./program\n"
            "  tlbscope record --from mark:1 --to mark:2 -- ./program-with-marks\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("command", options->record.command, "the command and its arguments, behind --");
            app.add_option("-o,--output", options->output, "the recording")->capture_default_str();
            app.add_flag("--system", options->system,
                         "boot a Linux kernel and record it together with the command");
            app.add_option("--from", options->record.from,
                           "start at the first execution of this symbol, or at mark:N");
            app.add_option("--to", options->record.to,
                           "stop at the first execution of this symbol after the start, or at mark:N");
            app.add_option("--max-refs", options->most_references,
                           "stop after so many references (100M, 2G)");
            app.add_option("--granularity", options->granularity,
                           "full: every reference; page: only changes of page, which split TLBs replay "
                           "alike; none: no "
                           "references, only counts of invalidations and what --events brings")
                ->check(CLI::IsMember({"full", "page", "none"}))
                ->capture_default_str();
            app.add_option("--library-prefix", options->record.library_prefix,
                           "where a foreign program's libraries are (QEMU's -L)");
            app.add_option("--cpus", options->record.cpus,
                           "with --system: CPUs of the guest; more than one is not deterministic")
                ->check(CLI::Range(1, 64))
                ->capture_default_str();
            app.add_option("--guest", options->guest,
                           "with --system: the guest's architecture: x86_64, ppc32 (a 44x, software TLB), "
                           "ppc64le (POWER9, radix)")
                ->capture_default_str();
            app.add_option("--memory", options->memory,
                           "with --system: memory of the guest (512M; ppc32 256M, ppc64le 1G)");
            app.add_option("--root", options->root,
                           "with --system: a folder whose contents lie at the guest's root, such as packages "
                           "unpacked for its architecture");
            app.add_option("--with", options->with,
                           "with --system: a file or folder that the command needs, packed at its own place")
                ->allow_extra_args(false);  // one each, or it would take the -- before the command
            app.add_flag(
                "--events", options->record.events,
                "with --system: bring home the kernel's own events of faults, mappings, processes and "
                "TLB flushes; tracing them adds to the kernel's misses");
            app.add_option("--kernel", options->kernel,
                           "with --system: a kernel image instead of the distribution's");
            app.add_option("--append", options->record.kernel_arguments,
                           "with --system: further words for the kernel's command line");
            return [options, &console]() -> Result<Exit> { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
