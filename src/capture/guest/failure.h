// Why a guest did not do what it was booted for, in one line with a remedy.
#pragma once

#include <cstdint>
#include <string>

#include "capture/guest/report.h"
#include "core/error.h"

namespace tlbscope::capture {

struct GuestState {
    bool report_started = false;  // the agent has said anything
    bool began = false;           // kBegin was executed
    bool ended = false;           // kEnd was executed
    bool timed_out = false;       // the launcher lost patience and stopped QEMU
    double seconds = 0;           // since QEMU was started
    int qemu_status = 0;          // as wait() gives it; 0 when it was still running
    std::string qemu_errors;      // what QEMU wrote to its standard error
    std::uint32_t memory_mib = 0;
    std::string architecture = "x86_64";   // Architecture::name
    std::string qemu = "qemu-system-x86";  // the package
};

// For a run that gave no complete report, or whose report says that the command did not start.
[[nodiscard]] Error guest_failure(const std::string& console, const GuestFacts& facts,
                                  const GuestState& state);

// The console's text without terminal escapes and carriage returns, as a person would read it.
[[nodiscard]] std::string plain_console(const std::string& console);

}  // namespace tlbscope::capture
