#include "cli/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>

namespace tlbscope::cli {

namespace {

bool knows_color() {
    const char* terminal = std::getenv("TERM");
    return terminal == nullptr || std::strcmp(terminal, "dumb") != 0;
}

// Errors while telling of an error have nowhere to go.
void write_error(std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return;
        text.remove_prefix(static_cast<std::size_t>(n));
    }
}

std::string duration(double seconds) {
    const long whole = std::lround(seconds);
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{}:{:02} min", whole / 60, whole % 60);
    return fmt::format("{}:{:02} h", whole / 3600, whole / 60 % 60);
}

}  // namespace

bool Console::color() const {
    if (color_mode_ != ColorMode::kAuto) return color_mode_ == ColorMode::kAlways;
    const char* no_color = std::getenv("NO_COLOR");
    if (no_color != nullptr && *no_color != '\0') return false;
    return ::isatty(STDOUT_FILENO) == 1 && knows_color();
}

bool Console::error_is_terminal() const { return ::isatty(STDERR_FILENO) == 1; }

namespace {
// A reader that goes away is an error to report, not a reason to die without a word. Only while we write:
// programs that tlbscope runs must find SIGPIPE as it was.
class WithoutBrokenPipeSignal {
  public:
    WithoutBrokenPipeSignal() : before_(std::signal(SIGPIPE, SIG_IGN)) {}
    ~WithoutBrokenPipeSignal() { std::signal(SIGPIPE, before_); }
    WithoutBrokenPipeSignal(const WithoutBrokenPipeSignal&) = delete;
    WithoutBrokenPipeSignal& operator=(const WithoutBrokenPipeSignal&) = delete;

  private:
    void (*before_)(int);
};
}  // namespace

Result<void> Console::print(std::string_view text) {
    const WithoutBrokenPipeSignal quiet;
    while (!text.empty()) {
        const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return fail("standard output", fmt::format("cannot write: {}", std::strerror(errno)),
                        "the result is incomplete");
        text.remove_prefix(static_cast<std::size_t>(n));
    }
    return {};
}

void Console::note(std::string_view text) { write_error(fmt::format("tlbscope: {}\n", text)); }

void Console::suggest(std::string_view command_line) {
    if (error_is_terminal()) write_error(fmt::format("next: {}\n", command_line));
}

void Console::error(const Error& error) { note(error.message()); }

Progress::Progress(std::string what, ProgressMode mode)
    : what_(std::move(what)), terminal_(::isatty(STDERR_FILENO) == 1) {
    enabled_ = mode == ProgressMode::kAlways || (mode == ProgressMode::kAuto && terminal_);
}

Progress::~Progress() {
    if (shown_ && terminal_) write_error("\r\033[K");
}

void Progress::update(std::uint64_t done, std::uint64_t total) {
    if (!enabled_ || total == 0) return;
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    using Seconds = std::chrono::duration<double>;
    const double elapsed = Seconds(now - start_).count();
    // A terminal's line is redrawn; a log gets a line every few seconds.
    if (elapsed < 1 || Seconds(now - last_).count() < (terminal_ ? 0.2 : 5.0)) return;
    last_ = now;
    shown_ = true;
    const double fraction = static_cast<double>(done) / static_cast<double>(total);
    const std::string left =
        fraction > 0 ? fmt::format(", {} left", duration(elapsed / fraction - elapsed)) : std::string{};
    write_error(fmt::format("{}{}: {:.0f} %{}{}", terminal_ ? "\r\033[K" : "", what_, fraction * 100, left,
                            terminal_ ? "" : "\n"));
}

}  // namespace tlbscope::cli
