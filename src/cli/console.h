// Where a command's words go: the result to standard output, everything else to standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

#include "core/error.h"

namespace tlbscope::cli {

enum class ColorMode { kAuto, kAlways, kNever };
enum class ProgressMode { kAuto, kAlways, kNever };

class Console {
  public:
    void set_color(ColorMode mode) { color_mode_ = mode; }
    // Whether standard output takes colour: --color, then NO_COLOR, then whether it is a terminal that knows
    // any.
    [[nodiscard]] bool color() const;
    [[nodiscard]] bool error_is_terminal() const;

    // Writes all of the result or says why it could not (closed, full).
    [[nodiscard]] Result<void> print(std::string_view text);
    // Something worth knowing that is not the result, as one line on standard error.
    void note(std::string_view text);
    // What to do next, when a person is watching.
    void suggest(std::string_view command_line);
    void error(const Error& error);

  private:
    ColorMode color_mode_ = ColorMode::kAuto;
};

// One line on standard error that says how far the work is and how long it will take. It appears after a
// second, on a terminal (or always), and vanishes when the object does. update() may be called from any
// thread and often.
class Progress {
  public:
    Progress(std::string what, ProgressMode mode);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void update(std::uint64_t done, std::uint64_t total);

  private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    bool enabled_;
    bool shown_ = false;
    bool terminal_;
    std::mutex mutex_;
    Clock::time_point start_ = Clock::now();
    Clock::time_point last_ = start_;
};

}  // namespace tlbscope::cli
