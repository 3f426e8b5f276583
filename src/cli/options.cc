// Options that several commands share.
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <thread>

#include "cli/command.h"

namespace tlbscope::cli {

void add_format_options(CLI::App& app, const std::shared_ptr<Format>& format) {
    auto* json = app.add_flag_callback("--json", [format] { *format = Format::kJson; }, "print JSON");
    auto* csv = app.add_flag_callback("--csv", [format] { *format = Format::kCsv; }, "print CSV");
    json->excludes(csv);
}

void add_threads_option(CLI::App& app, const std::shared_ptr<unsigned>& threads) {
    *threads = std::max(1u, std::thread::hardware_concurrency());
    app.add_option("--threads", *threads, "threads to use; the result does not depend on it")
        ->check(CLI::Range(1u, 1024u))
        ->option_text("N (default: every core)");
}

void add_progress_option(CLI::App& app, const std::shared_ptr<ProgressMode>& mode) {
    app.add_option("--progress", "say how far the work is: auto (when watched), always or never")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->each([mode](const std::string& word) {
            *mode = word == "always"  ? ProgressMode::kAlways
                    : word == "never" ? ProgressMode::kNever
                                      : ProgressMode::kAuto;
        })
        ->option_text("auto|always|never");
}

std::optional<double> parse_scaled(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (text.ends_with("hz")) text.resize(text.size() - 2);
    double factor = 1;
    if (!text.empty()) {
        switch (text.back()) {
            case 'k':
                factor = 1e3;
                break;
            case 'm':
                factor = 1e6;
                break;
            case 'g':
                factor = 1e9;
                break;
            default:
                break;
        }
        if (factor > 1) text.pop_back();
    }
    if (text.empty() || (std::isdigit(static_cast<unsigned char>(text[0])) == 0 && text[0] != '.'))
        return std::nullopt;
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (*end != '\0' || !(value < 1e18)) return std::nullopt;
    return value * factor;
}

std::unexpected<Error> usage_error(std::string what, std::string hint) {
    return std::unexpected(Error{
        .where = "", .what = std::move(what), .hint = std::move(hint), .error_class = ErrorClass::kUsage});
}

}  // namespace tlbscope::cli
