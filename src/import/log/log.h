// Any log that tells what happened to address spaces: which reader it needs is told by its first lines, never
// by its name. The registry of readers is the table in log.cc.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "import_text/input.h"
#include "import_text/problems.h"
#include "import_tracepoints/tracepoints.h"

namespace tlbscope::import {

struct LogSummary {
    std::string_view format;  // "strace", "ftrace", "perf script"
    std::uint64_t lines = 0;
    std::uint64_t events = 0;      // memory events
    std::uint64_t operations = 0;  // TLB operations
    std::uint64_t others = 0;      // lines understood that say nothing about translations
    std::uint64_t failed_calls = 0;
    std::uint64_t lost = 0;  // events that the log says were lost
    Problems problems;
    std::string damage;  // why the log ends early (a cut compressed file); empty when it does not
};

// Reads a file, or standard input for "-", to its end; `bytes` is told how many bytes of text were read, now
// and then. An error when it cannot be opened or is of no known format.
[[nodiscard]] Result<LogSummary> read_log(const std::string& name, const LogSink& sink,
                                          const std::function<void(std::uint64_t)>& bytes = {});
[[nodiscard]] Result<LogSummary> read_log(Input input, const LogSink& sink,
                                          const std::function<void(std::uint64_t)>& bytes = {});

}  // namespace tlbscope::import
