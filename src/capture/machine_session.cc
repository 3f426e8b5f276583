#include <fmt/format.h>

#include <chrono>
#include <sstream>

#include "capture/guest/architecture.h"
#include "capture/guest/failure.h"
#include "capture/guest/guest.h"
#include "capture/guest/places.h"
#include "capture/guest/report.h"
#include "capture/guest/trace.h"
#include "capture/qemu.h"
#include "capture/session.h"

namespace tlbscope::capture {

namespace {

// Above any boot that will still succeed: five seconds here, twenty on a busy machine.
constexpr std::chrono::seconds kBootPatience{180};

// The kernel's text symbols, for the few that the recorder itself needs.
class KernelSymbols {
  public:
    explicit KernelSymbols(const std::string& kallsyms) : text_(kallsyms) {}

    struct Range {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
    };
    // The symbol of exactly this name, up to the next symbol; empty when there is none.
    [[nodiscard]] Range find(const std::string& name) const {
        Range found;
        each([&](std::uint64_t address, std::string_view symbol) {
            if (symbol == name) found.start = address;
        });
        if (found.start == 0) return found;
        found.end = ~std::uint64_t{0};
        each([&](std::uint64_t address, std::string_view) {
            if (address > found.start) found.end = std::min(found.end, address);
        });
        return found;
    }

  private:
    // Lines "ADDRESS TYPE NAME", of modules with "\t[MODULE]" behind.
    void each(const std::function<void(std::uint64_t, std::string_view)>& visit) const {
        std::istringstream lines(text_);
        for (std::string line; std::getline(lines, line);) {
            const auto name = line.find(' ') + 3;
            if (name < line.size())
                visit(std::strtoull(line.c_str(), nullptr, 16),
                      std::string_view(line).substr(name, line.find('\t', name) - name));
        }
    }

    const std::string& text_;
};

// System calls have a prefix that depends on the architecture; people know them without it.
Result<WindowPoint> kernel_point(const KernelSymbols& symbols, const std::string& name) {
    for (const char* prefix : {"", "__x64_", "__do_", "__se_", "ksys_"}) {
        std::string candidate = prefix + name;
        if (std::string_view(prefix) == "ksys_" && name.starts_with("sys_")) candidate = "k" + name;
        if (const auto range = symbols.find(candidate); range.start != 0)
            return WindowPoint{.kind = WindowPoint::Kind::kAddress, .address = range.start};
    }
    return fail("", fmt::format("the guest's kernel has no symbol {}", name),
                "look it up in /proc/kallsyms of such a kernel, or use mark:N");
}

// What the session learns while the guest runs.
struct Conversation {
    const RecordOptions& options;
    const Architecture& architecture;
    const PreparedGuest& guest;
    GuestReport report;
    bool configured = false;
    std::chrono::steady_clock::time_point started = std::chrono::steady_clock::now();

    Result<void> configure(Control& control) {
        if (configured || !report.facts().has_all_kallsyms) return {};
        configured = true;
        const KernelSymbols symbols(report.facts().kallsyms);
        const auto range = symbols.find(std::string(architecture.switch_function));
        control.switch_start = range.start;
        control.switch_end = range.end;
        if (architecture.name == "ppc32") {
            const auto page = symbols.find("__tlbil_va");
            control.flush_page_start = page.start;
            control.flush_page_end = page.end;
            control.flush_all = symbols.find("_tlbil_all").start;
        }
        const auto resolve = [&](const std::string& name) { return kernel_point(symbols, name); };
        auto from = parse_point("--from", options.from, resolve);
        if (!from) return std::unexpected(from.error());
        auto to = parse_point("--to", options.to, resolve);
        if (!to) return std::unexpected(to.error());
        control.from = *from;
        control.to = *to;
        return {};
    }

    Result<bool> hear(Control& control, std::span<const std::uint16_t> units) {
        if (auto fed = report.feed(units); !fed) return std::unexpected(fed.error());
        if (auto good = configure(control); !good) return std::unexpected(good.error());
        return report.done();
    }

    Result<void> tick(const Control& control, const recording::Totals& totals) const {
        const bool waiting = control.phase.load() == Phase::kWaiting;
        if (options.on_progress) {
            const bool arrived = report.units() != 0;
            options.on_progress(!arrived  ? "booting the guest"
                                : waiting ? "in the guest"
                                          : "recording",
                                totals.references());
        }
        if (report.units() == 0 && std::chrono::steady_clock::now() - started > kBootPatience)
            return std::unexpected(failure({.timed_out = true}));
        return {};
    }

    [[nodiscard]] Error failure(GuestState state) const {
        state.report_started = report.units() != 0;
        state.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
        state.memory_mib = guest.memory_mib;
        state.architecture = architecture.name;
        state.qemu = qemu_package(architecture.qemu);
        if (const auto words = read_text(guest.folder.path() / "qemu.log"); words) state.qemu_errors = *words;
        const auto console = read_text(guest.console_log);
        return guest_failure(console ? *console : "", report.facts(), state);
    }
};

GuestRequest guest_request(const RecordOptions& options, const Architecture& architecture) {
    GuestRequest request{.command = options.command,
                         .with = options.with,
                         .architecture = &architecture,
                         .memory_mib = static_cast<std::uint32_t>(options.memory_mib),
                         .cpus = options.cpus,
                         .events = options.events,
                         .root = options.root};
    if (!options.kernel.empty()) request.kernel = options.kernel;
    std::istringstream words(options.kernel_arguments);
    for (std::string word; words >> word;) request.kernel_arguments.push_back(word);
    if (options.on_progress)
        request.progress = [&](const std::string& what) { options.on_progress(what, 0); };
    return request;
}

void describe(const Conversation& talk, const RecordOptions& options, const RecordOutcome& run,
              recording::Metadata& metadata) {
    const GuestFacts& facts = talk.report.facts();
    metadata.kernel = facts.release + " " + facts.version;
    metadata.kernel_command_line = facts.command_line;
    metadata.kernel_build_id = facts.build_id;
    metadata.page_bytes = facts.page_size;
    metadata.outcome = outcome(facts);
    if (run.limit_reached && !facts.done) metadata.outcome = "was stopped after enough references";
    if (run.interrupted) metadata.outcome = "was interrupted";

    GuestPlaces places = guest_places(facts, run.switches, talk.guest.host_files);
    metadata.spaces = std::move(places.spaces);
    metadata.maps = std::move(places.maps);
    const auto add = [&](const std::vector<std::string>& notes) {
        metadata.not_recorded.insert(metadata.not_recorded.end(), notes.begin(), notes.end());
    };
    add(places.notes);
    add(facts.warnings);
    add(talk.guest.notes);
    const bool references = options.granularity != recording::Granularity::kNone;
    if (!references) metadata.not_recorded.emplace_back("references (--granularity none)");
    if (references)
        metadata.not_recorded.emplace_back(
            "physical pages of instruction fetches (this plugin interface gives data only)");
    if (talk.architecture.name != "ppc32")
        metadata.not_recorded.emplace_back(
            "operands of invalidating instructions (this plugin interface reads no registers)");
    else if (!run.tells_flushed_page)
        metadata.not_recorded.emplace_back(
            "which page an invalidation was for (a kernel of scripts/build-ppc32-kernel tells)");
    if (references && talk.architecture.name == "ppc64le")
        metadata.not_recorded.emplace_back(
            "that firmware calls run with translation off: their few references count on the user side");
    if (run.limit_reached)
        metadata.not_recorded.push_back(
            fmt::format("everything after the first {} references (--max-refs)", options.most_references));
    if (options.cpus > 1)
        metadata.not_recorded.emplace_back("the exact interleaving of the CPUs: they are ordered by buffers");
}

// What the kernel itself told, as chunks of the recording.
Result<void> add_kernel_events(const Conversation& talk, recording::Writer& writer,
                               recording::Metadata& metadata) {
    const GuestFacts& facts = talk.report.facts();
    metadata.kernel_events = true;
    metadata.lost_kernel_events = facts.trace_lost;
    recording::KernelEventEncoder encoder;
    std::uint32_t cpu = 0;
    std::uint32_t number = 0;
    const auto close = [&]() -> Result<void> {
        if (encoder.empty()) return {};
        return writer.add_kernel_events(cpu, number++, encoder.take());
    };
    const auto read =
        read_trace(facts, talk.architecture.name == "x86_64",
                   [&](std::uint32_t of_cpu, const recording::KernelEvent& event) -> Result<void> {
                       if (of_cpu != cpu || encoder.full())
                           if (auto done = close(); !done) return done;
                       if (of_cpu != cpu) number = 0;
                       cpu = of_cpu;
                       encoder.add(event);
                       return {};
                   });
    if (!read) return std::unexpected(read.error());
    if (auto done = close(); !done) return done;
    if (!read->has_begin)
        metadata.not_recorded.emplace_back(
            "the kernel's events: its trace has no mark of the command's start");
    else if (!read->has_end)
        metadata.not_recorded.emplace_back(
            "where the kernel's events end: its trace has no mark of the command's end");
    if (facts.trace_lost != 0)
        metadata.not_recorded.push_back(fmt::format(
            "{} of the kernel's events, for which its buffers had no room (more --memory gives them more)",
            facts.trace_lost));
    return {};
}

}  // namespace

Result<Session> record_machine(const RecordOptions& options) {
    const auto architecture = find_architecture(options.guest);
    if (!architecture) return std::unexpected(architecture.error());
    auto guest = prepare_guest(guest_request(options, **architecture));
    if (!guest) return std::unexpected(guest.error());
    if (options.events && (*architecture)->big_endian)
        return std::unexpected(
            Error{"", fmt::format("--events: the kernel of {} guests has no tracing", options.guest),
                  "use --guest ppc64le or x86_64", ErrorClass::kUsage});
    Session session;
    Conversation talk{.options = options, .architecture = **architecture, .guest = *guest};

    RecordRequest request{.qemu_arguments = guest->qemu,
                          .output = options.output,
                          .qemu_log = guest->folder.path() / "qemu.log",
                          .most_references = options.most_references};
    // Symbols are resolved when the kernel's list is at hand, which may be only once the guest has sent it.
    const auto later = [](const std::string&) -> Result<WindowPoint> {
        return WindowPoint{.kind = WindowPoint::Kind::kAddress};
    };
    auto from = parse_point("--from", options.from, later);
    if (!from) return std::unexpected(from.error());
    auto to = parse_point("--to", options.to, later);
    if (!to) return std::unexpected(to.error());
    request.from = *from;
    request.to = *to;
    recording::Metadata& metadata = request.metadata;
    metadata.tool_version = options.tool_version;
    metadata.command = options.command;
    metadata.target = guest->target;
    metadata.system = true;
    metadata.kernel_base = (*architecture)->kernel_base;
    metadata.qemu_version = guest->qemu_version;
    metadata.cpu_model = guest->cpu_model;
    metadata.kernel_command_line = guest->kernel_command_line;
    metadata.deterministic = guest->deterministic;
    metadata.cpus = options.cpus;
    metadata.granularity = options.granularity;
    metadata.window = window_words(options);
    request.on_channel = [&](Control& control, std::span<const std::uint16_t> units) {
        return talk.hear(control, units);
    };
    if (options.events)
        request.more = [&](recording::Writer& writer, recording::Metadata& m) -> Result<void> {
            auto added = add_kernel_events(talk, writer, m);
            session.metadata = m;
            return added;
        };
    request.vdso = [&] { return talk.report.facts().vdso; };
    request.on_tick = [&](const Control& control, const recording::Totals& totals) {
        return talk.tick(control, totals);
    };

    auto outcome =
        record(request, [&](const RecordOutcome& run, recording::Metadata& m) -> Result<std::string> {
            const GuestFacts& facts = talk.report.facts();
            const bool stopped = run.interrupted || run.limit_reached;
            if (!stopped && (!facts.done || facts.failure || facts.exec_error))
                return std::unexpected(talk.failure({.began = run.window_opened,
                                                     .ended = run.window_closed,
                                                     .qemu_status = run.guest_done ? 0 : run.wait_status}));
            if (run.interrupted && !run.window_opened)
                return std::unexpected(
                    Error{.what = "interrupted before the command started; nothing was recorded",
                          .error_class = ErrorClass::kInterrupted});
            if (auto checked = check_window(options, run); !checked) return checked;
            describe(talk, options, run, m);
            session.metadata = m;
            return talk.report.facts().kallsyms;
        });
    if (!outcome) return std::unexpected(outcome.error());
    session.outcome = std::move(*outcome);
    session.standard_output = talk.report.facts().out;
    session.standard_error = talk.report.facts().err;
    std::error_code ignored;
    session.file_bytes = std::filesystem::file_size(options.output, ignored);
    return session;
}

}  // namespace tlbscope::capture
