// Everything about booting a guest for `record --system` up to starting QEMU: the kernel, the file system
// with the command in it, and QEMU's command line. What the guest reports while it runs is read by report.h
// and places.h.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "capture/guest/architecture.h"
#include "capture/guest/kernel.h"
#include "capture/process.h"
#include "core/error.h"

namespace tlbscope::capture {

struct GuestRequest {
    std::vector<std::string> command;         // as typed: program (looked up like a shell does), arguments
    std::vector<std::filesystem::path> with;  // more files and folders for the guest, at their own names
    const Architecture* architecture = &architectures().front();
    std::uint32_t memory_mib = 0;  // 0: what is usual for the architecture
    std::uint32_t cpus = 1;
    bool events = false;                          // the agent enables the kernel's tracing (guests/trace.c)
    std::filesystem::path root;                   // its contents lie at the guest's root; empty: none
    std::optional<std::filesystem::path> kernel;  // instead of the distribution's
    std::vector<std::string> kernel_arguments;    // added to the kernel's command line
    std::optional<std::filesystem::path> agent;   // instead of guests/agent next to the program
    Progress progress;                            // what is being waited for, one short line each
};

struct PreparedGuest {
    std::vector<std::string> qemu;      // command line without -plugin
    std::filesystem::path console_log;  // what the guest prints on its console
    Kernel kernel;
    std::string target;  // QEMU's name of the architecture
    std::uint32_t memory_mib = 0;
    std::string cpu_model;
    std::string kernel_command_line;
    std::string qemu_version;  // "7.2.22"
    bool deterministic = false;
    std::map<std::string, std::filesystem::path>
        host_files;                  // the guest's files: name there -> file on the host
    std::vector<std::string> notes;  // what a reader of the recording should know
    WorkFolder folder;               // holds the initramfs and the log; removed at the end
};

[[nodiscard]] Result<PreparedGuest> prepare_guest(const GuestRequest& request);

}  // namespace tlbscope::capture
