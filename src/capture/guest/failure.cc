#include "capture/guest/failure.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

namespace tlbscope::capture {

namespace {

// "[    1.234567] text" -> "text"
std::string without_time(const std::string& line) {
    if (!line.starts_with('[')) return line;
    const std::size_t end = line.find("] ");
    return end == std::string::npos ? line : line.substr(end + 2);
}

std::string line_with(const std::string& console, const std::string& words) {
    const std::size_t at = console.find(words);
    if (at == std::string::npos) return {};
    const std::size_t start = console.rfind('\n', at);
    const std::size_t first = start == std::string::npos ? 0 : start + 1;
    return without_time(console.substr(first, console.find('\n', at) - first));
}

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of(" \n");
    if (end == std::string::npos) return {};
    const std::size_t start = text.rfind('\n', end);
    const std::size_t first = start == std::string::npos ? 0 : start + 1;
    return without_time(text.substr(first, end + 1 - first));
}

Error failure(std::string what, std::string hint) {
    return Error{.where = "", .what = std::move(what), .hint = std::move(hint)};
}

}  // namespace

std::string plain_console(const std::string& console) {
    std::string text;
    for (std::size_t i = 0; i < console.size(); ++i) {
        const char c = console[i];
        if (c == '\033') {
            // ESC c, or ESC [ parameters letter (ECMA-48).
            if (i + 1 < console.size() && console[i + 1] == '[') {
                i += 2;
                while (i < console.size() && (console[i] < '@' || console[i] > '~')) ++i;
            } else {
                ++i;
            }
        } else if (c == '\n' || (c >= ' ' && c != '\177')) {
            text += c;
        }
    }
    return text;
}

Error guest_failure(const std::string& console_log, const GuestFacts& facts, const GuestState& state) {
    const std::string console = plain_console(console_log);
    const std::string more_memory = fmt::format("give the guest more memory with --memory {}",
                                                state.memory_mib == 0 ? 1024 : state.memory_mib * 2);

    if (const std::string line = line_with(console, "Initramfs unpacking failed"); !line.empty())
        return failure("the guest has no room for its files (" + line + ")",
                       more_memory + ", or pack less with --with");
    if (facts.failure)
        return failure("the guest could not start the command: " + *facts.failure,
                       "pack what it needs with --with");
    if (facts.exec_error)
        return failure(fmt::format("the guest could not execute the command: {}",
                                   std::strerror(static_cast<int>(*facts.exec_error))),
                       *facts.exec_error == ENOENT
                           ? "its interpreter or dynamic linker is missing there: add it with --with"
                       : *facts.exec_error == ENOMEM
                           ? more_memory
                           : "check that the file is an executable for " + state.architecture);
    if (!line_with(console, "System is deadlocked on memory").empty() ||
        !line_with(console, "Out of memory and no killable processes").empty())
        return failure("the guest ran out of memory", more_memory);
    if (const std::string line = line_with(console, "Kernel panic"); !line.empty()) {
        if (line.find("init") != std::string::npos || line.find("root fs") != std::string::npos)
            return failure("the guest's kernel found no agent to start (" + line + ")",
                           "choose a kernel for " + state.architecture +
                               " that unpacks an initramfs, or leave out --kernel");
        return failure("the guest's kernel stopped: " + line, "try another kernel with --kernel");
    }
    if (!state.qemu_errors.empty() && !state.report_started && state.qemu_status != 0)
        return failure("QEMU stopped: " + last_line(state.qemu_errors),
                       "check the installation of " + state.qemu);
    if (WIFSIGNALED(state.qemu_status) && !state.timed_out)
        return failure(fmt::format("QEMU was killed by signal {} ({})", WTERMSIG(state.qemu_status),
                                   ::strsignal(WTERMSIG(state.qemu_status))),
                       WTERMSIG(state.qemu_status) == SIGKILL ? "the host may be short of memory"
                                                              : "please report this");
    if (state.timed_out && !state.report_started) {
        const std::string said = last_line(console);
        return failure(fmt::format("the guest did not boot in {:.0f} s; {}", state.seconds,
                                   said.empty() ? "its console is empty" : "its console ends with: " + said),
                       "check the kernel given with --kernel, or leave it out");
    }
    if (state.timed_out && state.began && !state.ended)
        return failure(fmt::format("the command was still running after {:.0f} s", state.seconds),
                       "record a shorter run, or a part of it with --to or --max-refs");
    if (!state.report_started)
        return failure(
            "the guest ended before its agent reported anything" +
                (last_line(console).empty() ? "" : "; its console ends with: " + last_line(console)),
            "check the kernel given with --kernel, or leave it out");
    if (!state.began) return failure("the guest ended before it started the command", "please report this");
    if (!state.ended)
        return failure(
            "the guest ended while the command ran" +
                (last_line(console).empty() ? "" : "; its console ends with: " + last_line(console)),
            "a command that powers off or kills process 1 cannot be recorded to its end");
    return failure("the guest's report is not complete",
                   "programs and maps may be missing from the recording");
}

}  // namespace tlbscope::capture
