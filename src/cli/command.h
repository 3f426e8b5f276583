// A command of tlbscope is one file: src/cli/NAME.cc defines `Command NAME_command()`, and one word in
// src/cli/CMakeLists.txt puts it into the table.
//
//     Command info_command() {
//         return {.name = "info",
//                 .summary = "say what a recording holds",
//                 .examples = "  tlbscope info                  what tlbscope.rec holds\n",
//                 .declare = [](CLI::App& app, Console& console) -> Run {
//                     auto file = std::make_shared<std::string>(kDefaultRecording);
//                     app.add_option("recording", *file, "a recording");
//                     return [file, &console]() -> Result<Exit> { ... return Exit::kOk; };
//                 }};
//     }
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/console.h"
#include "core/error.h"

namespace tlbscope::cli {

enum class Exit : int {
    kOk = 0,
    kFailure = 1,
    kUsage = 2,
    kBudgetExceeded = 3,
    kInterrupted = 130,
};

// What runs once the command line is understood. An Error is printed by main as `tlbscope: ...`, and its
// class says the exit status; a failure that was already reported returns Exit::kFailure.
using Run = std::function<Result<Exit>()>;

struct Command {
    std::string name;
    std::string summary;   // one line, for the list of commands
    std::string examples;  // lines of "  command line    what it does"; the first thing --help shows
    // Adds the command's options to `app`. What the options write to must live as long as the returned Run:
    // keep it in a shared_ptr that Run captures.
    std::function<Run(CLI::App& app, Console& console)> declare;
};

inline constexpr const char* kDefaultRecording = "tlbscope.rec";
inline constexpr const char* kDefaultMachine = "mpc855t";

enum class Format { kText, kJson, kCsv };

// Adds --json and --csv, which exclude each other.
void add_format_options(CLI::App& app, const std::shared_ptr<Format>& format);
// Adds --threads N, by default every core.
void add_threads_option(CLI::App& app, const std::shared_ptr<unsigned>& threads);
// Adds --progress auto|always|never.
void add_progress_option(CLI::App& app, const std::shared_ptr<ProgressMode>& mode);

// A number with an optional k, M or G (thousands): "48M", "1.5G", "48000000"; also "48MHz". Nothing if it is
// none.
[[nodiscard]] std::optional<double> parse_scaled(std::string text);

// The error for a wrong option value: usage class, names the option.
[[nodiscard]] std::unexpected<Error> usage_error(std::string what, std::string hint);

}  // namespace tlbscope::cli
