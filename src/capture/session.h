// Recording a command: the two ways to run it, from what the user asked for to the finished file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "capture/recorder.h"

namespace tlbscope::capture {

struct RecordOptions {
    std::vector<std::string> command;
    std::filesystem::path output;
    std::string from;  // "mark:N" or a symbol; empty: from the command's start
    std::string to;    // likewise; empty: to its end
    std::uint64_t most_references = ~std::uint64_t{0};
    recording::Granularity granularity = recording::Granularity::kFull;
    std::string tool_version;

    // User programs.
    std::string library_prefix;  // QEMU's -L; empty: the cross compiler's, if there is one

    // Whole machines.
    std::string guest = "x86_64";  // kind of guest, see guest/architecture.h
    std::uint32_t cpus = 1;
    std::uint64_t memory_mib = 0;             // 0: what is usual for the kind
    std::filesystem::path root;               // its contents lie at the guest's root; empty: none
    bool events = false;                      // enable the kernel's tracing and bring its events home
    std::filesystem::path kernel;             // empty: the distribution's
    std::string kernel_arguments;             // put behind our own
    std::vector<std::filesystem::path> with;  // files and folders to pack besides

    // One short phrase on what is happening, and the references so far.
    std::function<void(const std::string& phase, std::uint64_t references)> on_progress;
};

struct Session {
    RecordOutcome outcome;
    recording::Metadata metadata;
    std::uint64_t file_bytes = 0;
    std::string standard_output;  // of the command, where it did not go to ours directly
    std::string standard_error;
};

// Runs the command under QEMU's user mode of its own architecture.
Result<Session> record_program(const RecordOptions& options);
// Boots a Linux kernel and runs the command in it.
Result<Session> record_machine(const RecordOptions& options);

// "mark:N", or a symbol that `resolve` turns into an address.
Result<WindowPoint> parse_point(const std::string& option, const std::string& text,
                                const std::function<Result<WindowPoint>(const std::string& symbol)>& resolve);
// "from mark 1 to mark 2", "the whole command", ...
[[nodiscard]] std::string window_words(const RecordOptions& options);
// The error when the window never opened.
[[nodiscard]] Result<std::string> check_window(const RecordOptions& options, const RecordOutcome& outcome);
// "ended with status 0", "was killed by SIGSEGV" from a wait status.
[[nodiscard]] std::string ending_words(int wait_status);

}  // namespace tlbscope::capture
