// One message is at most 64 KiB and a few bytes long, so that a decoder that has lost its place notices soon.
// All texts together are bounded too: the units come from a guest, which can run anything.
#include "capture/guest/report.h"

#include <sys/wait.h>

#include <cstring>

#include <fmt/format.h>

#include "capture/guest/elf_file.h"
#include "capture/guest/messages.h"

namespace tlbscope::capture {

namespace {

constexpr std::uint32_t kMostMessage = (1 << 16) + 64;
constexpr std::uint64_t kMostKept = 512 << 20;
constexpr std::uint64_t kMostTrace = std::uint64_t{4} << 30;  // what a guest's trace buffers may hold
constexpr std::uint16_t kMagic = 0x7463;

class Reader {
  public:
    explicit Reader(std::span<const std::uint8_t> bytes) : rest_(bytes) {}
    std::uint32_t u32() {
        if (rest_.size() < 4) {
            short_ = true;
            rest_ = {};
            return 0;
        }
        const std::uint32_t v = std::uint32_t{rest_[0]} | std::uint32_t{rest_[1]} << 8 |
                                std::uint32_t{rest_[2]} << 16 | std::uint32_t{rest_[3]} << 24;
        rest_ = rest_.subspan(4);
        return v;
    }
    // Up to the next zero.
    std::string text() {
        const auto* start = reinterpret_cast<const char*>(rest_.data());
        const std::size_t n = rest_.empty() ? 0 : ::strnlen(start, rest_.size());
        const std::string s(start != nullptr ? start : "", n);
        rest_ = rest_.subspan(std::min(n + 1, rest_.size()));
        return s;
    }
    [[nodiscard]] std::span<const std::uint8_t> rest() const { return rest_; }
    [[nodiscard]] bool cut_short() const { return short_; }

  private:
    std::span<const std::uint8_t> rest_;
    bool short_ = false;
};

std::string trimmed(std::string text) {
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\0'))
        text.pop_back();
    return text;
}

void append_output(std::string& text, std::uint64_t& dropped, const std::string& more) {
    const std::size_t room = kMostOutput - text.size();
    text.append(more, 0, room);
    if (more.size() > room) dropped += more.size() - room;
}

}  // namespace

Result<void> GuestReport::feed(std::span<const std::uint16_t> units) {
    for (const std::uint16_t value : units)
        if (auto done = unit(value); !done) return done;
    return {};
}

Result<void> GuestReport::unit(std::uint16_t value) {
    ++units_;
    if (header_ < 4) {
        if (header_ == 0 && value != kMagic)
            return fail(fmt::format("guest's report:unit {}", units_ - 1),
                        "is not a message of the guest's agent",
                        "the recording may still be used; please report this");
        if (header_ == 1) type_ = value;
        if (header_ == 2) length_ = value;
        if (header_ == 3) {
            length_ |= std::uint32_t{value} << 16;
            if (length_ > kMostMessage)
                return fail(fmt::format("guest's report:unit {}", units_ - 1),
                            fmt::format("a message of {} bytes is longer than any the agent sends", length_),
                            "the recording may still be used; please report this");
            bytes_.clear();
        }
        ++header_;
        if (header_ == 4 && length_ == 0) return finish_message();
        return {};
    }
    bytes_.push_back(static_cast<std::uint8_t>(value & 0xff));
    if (bytes_.size() < length_) bytes_.push_back(static_cast<std::uint8_t>(value >> 8));
    return bytes_.size() == length_ ? finish_message() : Result<void>{};
}

Result<void> GuestReport::finish_message() {
    header_ = 0;
    const std::string where = fmt::format("guest's report:unit {}", units_ - 1);
    Reader reader(bytes_);
    const std::string text(bytes_.begin(), bytes_.end());
    (type_ == kMessageTrace ? kept_trace_ : kept_) += bytes_.size();
    if (kept_ > kMostKept || kept_trace_ > kMostTrace)
        return fail(where,
                    type_ == kMessageTrace ? "the guest's trace is larger than 4 GiB"
                                           : "the guest reports more than 512 MiB",
                    "record a shorter run of the command");
    if (!hello_ && type_ != kMessageHello)
        return fail(where, "the report does not start with the agent's greeting", "please report this");
    if (type_ != kMessageKallsyms && !facts_.kallsyms.empty()) facts_.has_all_kallsyms = true;
    switch (type_) {
        case kMessageHello: {
            const std::uint32_t version = reader.u32();
            if (version != kProtocolVersion)
                return fail(where,
                            fmt::format("the guest's agent speaks version {} of the protocol, not {}",
                                        version, static_cast<int>(kProtocolVersion)),
                            "build agent and program together");
            hello_ = true;
            facts_.page_size = reader.u32();
            facts_.cpus = reader.u32();
            facts_.big_endian = reader.u32() != 0;
            break;
        }
        case kMessageKernel:
            facts_.release = reader.text();
            facts_.version = reader.text();
            facts_.machine = reader.text();
            break;
        case kMessageCommandLine:
            facts_.command_line = trimmed(facts_.command_line + text);
            break;
        case kMessageCpu:
            facts_.cpu = trimmed(text);
            break;
        case kMessageNotes:
            notes_.insert(notes_.end(), bytes_.begin(), bytes_.end());
            facts_.build_id = build_id_in_notes(notes_, facts_.big_endian);
            break;
        case kMessageModules:
            facts_.modules += text;
            break;
        case kMessageVdso:
            facts_.vdso += text;
            break;
        case kMessageKallsyms:
            facts_.kallsyms += text;
            break;
        case kMessageTasks:
            facts_.tasks += text;
            break;
        case kMessagePerf: {
            std::vector<std::uint8_t>& records = facts_.perf[reader.u32()];
            records.insert(records.end(), reader.rest().begin(), reader.rest().end());
            break;
        }
        case kMessagePerfLost: {
            reader.u32();
            const std::uint32_t some = reader.u32();
            const std::uint64_t low = reader.u32();
            const std::uint64_t lost = low | std::uint64_t{reader.u32()} << 32;
            // A kernel before 6.0 does not count: whether the buffer was full shows in the records' end only.
            facts_.perf_lost += lost != 0 ? lost : some;
            break;
        }
        case kMessageTraceFormat:
            facts_.trace_formats.push_back(text);
            break;
        case kMessageTrace: {
            auto& pages = facts_.trace[reader.u32()];
            pages.emplace_back(reader.rest().begin(), reader.rest().end());
            break;
        }
        case kMessageTraceLost: {
            reader.u32();
            const std::uint64_t low = reader.u32();
            facts_.trace_lost += low | std::uint64_t{reader.u32()} << 32;
            break;
        }
        case kMessageStdout:
            append_output(facts_.out, facts_.out_dropped, text);
            break;
        case kMessageStderr:
            append_output(facts_.err, facts_.err_dropped, text);
            break;
        case kMessageCommand:
            facts_.pid = reader.u32();
            break;
        case kMessageStatus:
            facts_.status = static_cast<int>(reader.u32());
            break;
        case kMessageExecFailed:
            facts_.exec_error = reader.u32();
            break;
        case kMessageWarning:
            facts_.warnings.push_back(text);
            break;
        case kMessageFailure:
            facts_.failure = text;
            break;
        case kMessageDropped: {
            std::uint64_t& dropped = reader.u32() == kMessageStdout ? facts_.out_dropped : facts_.err_dropped;
            const std::uint64_t low = reader.u32();
            dropped += low | std::uint64_t{reader.u32()} << 32;
            break;
        }
        case kMessageDone:
            facts_.done = true;
            break;
        default:
            break;  // of a later agent with the same protocol version: additions are free
    }
    if (reader.cut_short())
        return fail(where, fmt::format("a message of type {} is too short", type_), "please report this");
    return {};
}

std::string outcome(const GuestFacts& facts) {
    if (facts.failure) return "did not start: " + *facts.failure;
    if (facts.exec_error)
        return fmt::format("did not start: {}", std::strerror(static_cast<int>(*facts.exec_error)));
    if (!facts.status) return "did not end";
    const int status = *facts.status;
    if (WIFSIGNALED(status))
        return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
    return fmt::format("exited with status {}", WEXITSTATUS(status));
}

}  // namespace tlbscope::capture
