// The flushes account as text, JSON and CSV, and the crossover of range and full flush.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "flush/crossover.h"
#include "flush/observed.h"
#include "flush/policy.h"

namespace tlbscope::report {

struct FlushRow {
    std::string policy;
    std::string family;
    std::string machine;
    double hertz = 0;
    flush::Account account;
    machine::FlushCosts costs;
    flush::FlushSizes sizes;
};

struct FlushReport {
    std::string input;
    std::string format;  // "strace", "recording", ...
    std::uint64_t page_bytes = 4096;
    std::uint64_t events = 0;
    std::uint64_t spaces = 0;
    std::uint32_t cpus = 0;
    std::uint64_t copies = 0;
    bool references = false;  // there were some: live translations and refills are counted
    std::vector<FlushRow> rows;
    flush::Observed observed;
    // Instructions that the recorder counted while they ran, where the input is a recording: tlbie, tlbiel,
    // ...
    std::vector<std::pair<std::string, std::uint64_t>> executed;
    bool by_reason = false;
    bool crossover = false;
    std::vector<std::string> notes;
};

[[nodiscard]] std::string as_text(const FlushReport& report);
[[nodiscard]] std::string as_json(const FlushReport& report);
[[nodiscard]] std::string as_csv(const FlushReport& report);

}  // namespace tlbscope::report
