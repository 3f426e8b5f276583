#include "capture/session.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <charconv>
#include <csignal>
#include <cstring>

#include "recording/isa.h"

namespace tlbscope::capture {

Result<WindowPoint> parse_point(
    const std::string& option, const std::string& text,
    const std::function<Result<WindowPoint>(const std::string& symbol)>& resolve) {
    WindowPoint point;
    if (text.empty()) return point;
    constexpr std::string_view kMark = "mark:";
    if (!text.starts_with(kMark)) return resolve(text);
    const char* end = text.data() + text.size();
    const auto [rest, code] = std::from_chars(text.data() + kMark.size(), end, point.mark);
    if (code != std::errc{} || rest != end || point.mark >= recording::kFirstOwnMark) {
        auto error = fail(
            "",
            fmt::format("{} {}: a mark is a number from 0 to {}", option, text, recording::kFirstOwnMark - 1),
            "see include/tlbscope/mark.h");
        error.error().error_class = ErrorClass::kUsage;
        return error;
    }
    point.kind = WindowPoint::Kind::kMark;
    return point;
}

std::string window_words(const RecordOptions& options) {
    std::string words;
    if (options.from.empty() && options.to.empty()) words = "the whole command";
    if (!options.from.empty()) words = "from " + options.from;
    if (!options.to.empty()) words += std::string(words.empty() ? "" : " ") + "to " + options.to;
    if (options.most_references != ~std::uint64_t{0})
        words += fmt::format(", at most {} references", options.most_references);
    return words;
}

Result<std::string> check_window(const RecordOptions& options, const RecordOutcome& outcome) {
    if (outcome.window_opened || options.from.empty()) return std::string();
    return fail("", fmt::format("the run never came to {}, so nothing was recorded", options.from),
                "check the symbol or the mark's number, or leave --from out");
}

std::string ending_words(int wait_status) {
    if (WIFEXITED(wait_status)) return fmt::format("ended with status {}", WEXITSTATUS(wait_status));
    if (!WIFSIGNALED(wait_status)) return "did not end";
    const char* name = ::sigabbrev_np(WTERMSIG(wait_status));
    return name != nullptr ? fmt::format("was killed by SIG{}", name)
                           : fmt::format("was killed by signal {}", WTERMSIG(wait_status));
}

}  // namespace tlbscope::capture
