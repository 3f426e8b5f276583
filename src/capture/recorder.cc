#include "capture/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sstream>

#include "capture/program.h"
#include "capture/qemu.h"
#include "recording/isa.h"

namespace tlbscope::capture {

namespace {

volatile std::sig_atomic_t interruptions = 0;
void on_interrupt(int) { interruptions = interruptions + 1; }

// Counts ctrl-C (and SIGTERM, SIGHUP) instead of dying of it, while it lives.
class InterruptGuard {
  public:
    InterruptGuard() {
        interruptions = 0;
        struct sigaction action{};
        action.sa_handler = on_interrupt;
        for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &previous_[i]);
    }
    ~InterruptGuard() {
        for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &previous_[i], nullptr);
    }
    InterruptGuard(const InterruptGuard&) = delete;
    InterruptGuard& operator=(const InterruptGuard&) = delete;

  private:
    static constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP};
    std::array<struct sigaction, 3> previous_{};
};

class Transport {
  public:
    static Result<std::unique_ptr<Transport>> create() {
        const int fd = ::memfd_create("tlbscope", MFD_CLOEXEC);
        if (fd < 0 || ::ftruncate(fd, static_cast<off_t>(kTransportBytes)) != 0)
            return system_error("", "cannot make the memory shared with QEMU", errno);
        void* memory =
            ::mmap(nullptr, kTransportBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (memory == MAP_FAILED) return system_error("", "cannot map the memory shared with QEMU", errno);
        return std::unique_ptr<Transport>(new Transport(fd, memory));
    }
    ~Transport() {
        ::munmap(memory_, kTransportBytes);
        ::close(fd_);
    }
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;
    [[nodiscard]] Control& control() const { return *static_cast<Control*>(memory_); }
    // A name under which QEMU can open it. Not /proc/self: QEMU gives its guests a /proc/self of their own.
    [[nodiscard]] std::string path() const { return fmt::format("/proc/{}/fd/{}", ::getpid(), fd_); }

  private:
    Transport(int fd, void* memory) : fd_(fd), memory_(memory) {}
    int fd_;
    void* memory_;
};

void configure(Control& control, const RecordRequest& request) {
    control.version = kTransportVersion;
    control.isa = static_cast<std::uint32_t>(recording::isa_of(request.metadata.target));
    control.system = request.metadata.system ? 1 : 0;
    control.start_armed = request.metadata.system ? 0 : 1;
    control.references = request.metadata.granularity == recording::Granularity::kNone ? 0 : 1;
    control.from = request.from;
    control.to = request.to;
    control.kernel_base = request.metadata.kernel_base;
    const bool wait = request.metadata.system || request.from.kind != WindowPoint::Kind::kNone;
    control.phase = wait ? Phase::kWaiting : Phase::kRecording;
    control.epoch = 1;
}

// Passes on what the guest's agent has sent so far.
Result<bool> take_channel(Control& control, const RecordRequest& request) {
    const std::uint64_t written = control.channel_written.load(std::memory_order_acquire);
    std::uint64_t at = control.channel_read.load(std::memory_order_relaxed);
    bool done = false;
    while (at < written) {
        const std::size_t place = at % kChannelRingUnits;
        const std::size_t part = std::min<std::size_t>(written - at, kChannelRingUnits - place);
        auto said = request.on_channel(control, std::span(control.channel_ring + place, part));
        if (!said) return said;
        done = *said;
        at += part;
        control.channel_read.store(at, std::memory_order_release);
        futex_wake(&control.room);
    }
    return done;
}

Error start_failure(const Control& control, const std::string& qemu, int status) {
    Error error{.where = qemu};
    if (control.refused.load() == static_cast<std::uint32_t>(Refusal::kInterface)) {
        error.what =
            fmt::format("its plugin interface {} is not one of 1 to 5", control.interface_version.load());
        error.hint = "use QEMU 6.0 to 10.x";
    } else if (WIFSIGNALED(status)) {
        error.what = fmt::format("it was killed by signal {} before it loaded the plugin", WTERMSIG(status));
        error.hint = "run the same command without 'tlbscope record' first";
    } else {
        error.what = "it ended before it loaded the plugin (its own words are above)";
        error.hint =
            "check that this QEMU was built with plugins: Debian's packages are, static ones are not";
    }
    return error;
}

}  // namespace

std::vector<recording::MappedRange> guest_maps(const std::string& text, std::uint64_t guest_base) {
    // QEMU's own mappings lie far above a guest's: it places 64-bit guests from 1 << 38 up.
    constexpr std::uint64_t kGuestBytes = std::uint64_t{1} << 42;
    std::vector<recording::MappedRange> ranges;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string span;
        std::string device;
        std::string inode;
        std::string offset;
        recording::MappedRange range;
        words >> span >> range.protection >> offset >> device >> inode >> std::ws;
        std::getline(words, range.path);
        const auto dash = span.find('-');
        if (dash == std::string::npos) continue;
        const std::uint64_t start = std::stoull(span.substr(0, dash), nullptr, 16);
        const std::uint64_t end = std::stoull(span.substr(dash + 1), nullptr, 16);
        if (start < guest_base || end - guest_base > kGuestBytes || range.protection.starts_with("---"))
            continue;
        range.start = VirtAddr(start - guest_base);
        range.end = VirtAddr(end - guest_base);
        range.file_offset = std::stoull(offset, nullptr, 16);
        ranges.push_back(range);
    }
    return ranges;
}

namespace {

// The user program's mappings: looked at now and then while it runs, since a crash leaves no time to, and
// told by the plugin at the end.
class MapWatcher {
  public:
    void look(pid_t qemu, const Control& control) {
        const auto now = std::chrono::steady_clock::now();
        if (now - last_ < std::chrono::milliseconds(known_.empty() ? 1 : 50)) return;
        last_ = now;
        if (control.guest_base.load() == 0 && control.start_code.load() == 0) return;
        if (const auto text = read_text(fmt::format("/proc/{}/maps", qemu)); text) add(*text, control);
    }
    void look_back(const Control& control) {
        add(std::string(control.maps, std::min(control.maps_bytes.load(), kMapsBytes)), control);
    }
    std::vector<recording::MappedRange> take() {
        for (recording::MappedRange& range : known_)
            if (range.path.starts_with("/") && range.file_offset == 0) range.build_id = build_id(range.path);
        return std::move(known_);
    }

  private:
    void add(const std::string& text, const Control& control) {
        for (const recording::MappedRange& range : guest_maps(text, control.guest_base.load()))
            if (std::find(known_.begin(), known_.end(), range) == known_.end()) known_.push_back(range);
    }
    std::chrono::steady_clock::time_point last_;
    std::vector<recording::MappedRange> known_;
};

}  // namespace

Result<RecordOutcome> record(
    RecordRequest request,
    const std::function<Result<std::string>(const RecordOutcome&, recording::Metadata&)>& complete) {
    auto plugin = find_plugin();
    if (!plugin) return std::unexpected(plugin.error());
    auto transport = Transport::create();
    if (!transport) return std::unexpected(transport.error());
    Control& control = (*transport)->control();
    configure(control, request);
    auto writer = recording::Writer::create(request.output, request.metadata);
    if (!writer) return std::unexpected(writer.error());

    const InterruptGuard guard;
    Spawn what{
        .arguments = request.qemu_arguments, .own_group = request.metadata.system, .log = request.qemu_log};
    what.arguments.insert(
        what.arguments.begin() + 1,
        {"-plugin", fmt::format("{},transport={}", plugin->string(), (*transport)->path())});
    auto qemu = spawn(what);
    if (!qemu) return std::unexpected(qemu.error());

    RecordOutcome outcome;
    MapWatcher maps;
    std::optional<Error> guest_error;
    {
        Packer packer(*writer);
        Collector collector(control, packer, request.metadata.granularity, request.most_references);
        int seen_interruptions = 0;
        const auto stop = [&](int signal) { ::kill(*qemu, signal); };
        auto next_tick = std::chrono::steady_clock::now();
        for (bool alive = true; alive;) {
            const std::uint32_t seen = control.work.load(std::memory_order_acquire);
            const bool any = collector.poll();
            if (!request.metadata.system) maps.look(*qemu, control);
            if (request.metadata.system) {
                auto done = take_channel(control, request);
                if (!done) guest_error = done.error();
                outcome.guest_done |= done && *done;
                if (outcome.guest_done || !done) stop(SIGKILL);
            }
            // Enough references, or nowhere to write them: waiting for the command's end would gain nothing.
            if (control.stop_requested.load(std::memory_order_acquire) != 0) stop(SIGKILL);
            if (interruptions != seen_interruptions) {
                // A user program may want to end in its own way; the second time it has to.
                outcome.interrupted = true;
                stop(request.metadata.system || interruptions > 1 ? SIGKILL : SIGINT);
                seen_interruptions = interruptions;
            }
            if (request.on_tick && std::chrono::steady_clock::now() >= next_tick) {
                if (auto good = request.on_tick(control, collector.totals()); !good && !guest_error) {
                    guest_error = good.error();
                    stop(SIGKILL);
                }
                next_tick = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
            }
            const pid_t ended = ::waitpid(*qemu, &outcome.wait_status, WNOHANG);
            alive = ended == 0 || (ended < 0 && errno == EINTR);
            if (alive && !any) futex_wait(&control.work, seen, 20);
        }
        if (request.metadata.system && !guest_error) {
            auto done = take_channel(control, request);
            if (!done) guest_error = done.error();
            outcome.guest_done |= done && *done;
        }
        collector.drain();
        outcome.totals = collector.totals();
        outcome.limit_reached = collector.limit_reached();
        outcome.space_tasks = collector.space_tasks();
        outcome.switches = collector.switches();
        if (const std::uint32_t cpu = control.begin_cpu.load(); cpu != 0 && cpu <= outcome.switches.size())
            outcome.switches[cpu - 1].begin = 0;
        if (const std::uint32_t cpu = control.end_cpu.load(); cpu != 0 && cpu <= outcome.switches.size())
            outcome.switches[cpu - 1].end = outcome.switches[cpu - 1].switches.size();
        request.metadata.invalidations = collector.invalidations();
        request.metadata.barriers = collector.barriers();
        for (std::size_t i = 0; i < request.metadata.invalidations.size(); ++i)
            request.metadata.invalidations[i] += control.invalidations[i].load();
        for (std::size_t i = 0; i < request.metadata.barriers.size(); ++i)
            request.metadata.barriers[i] += control.barriers[i].load();
        request.metadata.cpus = std::max(request.metadata.cpus, collector.cpus());
        if (auto written = packer.finish(); !written) {
            writer->keep_partial();
            Error error = written.error();
            error.what += fmt::format("; what could be written is in {}", writer->partial_name().string());
            return std::unexpected(error);
        }
        if (collector.malformed() != 0)
            request.metadata.not_recorded.push_back(fmt::format(
                "{} block executions that the ending program left half written", collector.malformed()));
    }
    if (control.installed.load() == 0 && !outcome.interrupted)
        return std::unexpected(start_failure(control, request.qemu_arguments.front(), outcome.wait_status));
    if (guest_error) return std::unexpected(*guest_error);

    outcome.exited = control.exited.load() != 0;
    outcome.tells_flushed_page = control.tells_flushed_page.load() != 0;
    outcome.forks = control.forks.load();
    outcome.execs = control.execs.load();
    outcome.window_opened = control.phase.load() != Phase::kWaiting;
    outcome.window_closed = control.phase.load() == Phase::kStopped;
    recording::Metadata& metadata = request.metadata;
    metadata.interface_version = control.interface_version.load();
    metadata.early_ends = outcome.totals.early_ends;
    metadata.uncertain_instructions = outcome.totals.uncertain_instructions;
    if (!metadata.system) {
        // The guest's process is QEMU's: just-in-time compilers name their maps by it.
        for (recording::Space& space : metadata.spaces) space.pid = static_cast<std::uint32_t>(*qemu);
        maps.look_back(control);
        metadata.maps = maps.take();
    }
    if (control.lost_cpus.load() != 0)
        metadata.not_recorded.push_back(fmt::format("{} threads beyond the {} that can be alive at once",
                                                    control.lost_cpus.load(), kMaxCpus));
    if (control.lost_events.load() != 0)
        metadata.not_recorded.push_back(
            fmt::format("{} events (marks, invalidations, bindings)", control.lost_events.load()));
    if (control.odd_access_descriptions.load() != 0)
        metadata.not_recorded.push_back(
            fmt::format("the true sizes of {} accesses that QEMU described in an unknown way",
                        control.odd_access_descriptions.load()));
    auto symbols = complete(outcome, metadata);
    if (!symbols) return std::unexpected(symbols.error());
    if (!symbols->empty())
        if (auto added = writer->add_kernel_symbols(*symbols); !added) return std::unexpected(added.error());
    if (const std::string image = request.vdso ? request.vdso() : std::string{}; !image.empty())
        if (auto added = writer->add_vdso(image); !added) return std::unexpected(added.error());
    if (request.more)
        if (auto added = request.more(*writer, metadata); !added) return std::unexpected(added.error());
    if (auto finished = writer->finish(metadata); !finished) return std::unexpected(finished.error());
    return outcome;
}

}  // namespace tlbscope::capture
