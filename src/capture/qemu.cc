#include "capture/qemu.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "capture/process.h"

namespace tlbscope::capture {

Result<std::filesystem::path> find_qemu(const std::string& name) {
    if (const auto found = find_program(name)) return *found;
    return fail(name, "this QEMU is not installed", "install it: apt install " + qemu_package(name));
}

std::string qemu_package(std::string_view name) {
    if (!name.starts_with("qemu-system-")) return "qemu-user";
    return name == "qemu-system-x86_64" ? "qemu-system-x86" : "qemu-system-ppc";
}

std::string qemu_version(const std::filesystem::path& qemu) {
    const auto said = run({qemu.string(), "--version"});
    std::istringstream words(said ? said->output : "");
    for (std::string word; words >> word;)
        if (word == "version") {
            words >> word;
            return word;
        }
    return "";
}

std::filesystem::path program_folder() {
    std::error_code code;
    const auto self = std::filesystem::read_symlink("/proc/self/exe", code);
    return code ? std::filesystem::path(".") : self.parent_path();
}

Result<std::filesystem::path> find_plugin() {
    static constexpr const char* kName = "libtlbscope-plugin.so";
    if (const char* chosen = std::getenv("TLBSCOPE_PLUGIN"); chosen != nullptr) return chosen;
    for (const char* folder : {".", "../lib/tlbscope", "../lib"}) {
        auto candidate = program_folder() / folder / kName;
        if (std::filesystem::exists(candidate)) return candidate;
    }
    return fail(kName, "tlbscope's QEMU plugin is not beside the program", "build or install tlbscope whole");
}

std::string library_prefix(const std::string& target) {
    struct Prefix {
        const char* target;
        const char* folder;
    };
    static constexpr std::array kPrefixes{
        Prefix{"ppc", "/usr/powerpc-linux-gnu"},         Prefix{"ppc64", "/usr/powerpc64-linux-gnu"},
        Prefix{"ppc64le", "/usr/powerpc64le-linux-gnu"}, Prefix{"aarch64", "/usr/aarch64-linux-gnu"},
        Prefix{"arm", "/usr/arm-linux-gnueabihf"},       Prefix{"riscv64", "/usr/riscv64-linux-gnu"},
        Prefix{"s390x", "/usr/s390x-linux-gnu"},         Prefix{"mips", "/usr/mips-linux-gnu"},
        Prefix{"mipsel", "/usr/mipsel-linux-gnu"},       Prefix{"sparc64", "/usr/sparc64-linux-gnu"},
    };
    for (const Prefix& prefix : kPrefixes)
        if (prefix.target == target && std::filesystem::exists(prefix.folder)) return prefix.folder;
    return "";
}

Result<pid_t> spawn(const Spawn& what) {
    std::vector<char*> arguments;
    arguments.reserve(what.arguments.size() + 1);
    for (const std::string& argument : what.arguments)
        arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    int report[2];
    if (::pipe2(report, O_CLOEXEC) != 0) return system_error("", "cannot make a pipe", errno);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() != parent) ::_exit(1);
        if (what.own_group) ::setpgid(0, 0);
        if (what.keep_fd >= 0) ::fcntl(what.keep_fd, F_SETFD, 0);
        if (!what.log.empty()) {
            const int null = ::open("/dev/null", O_RDONLY);
            const int log = ::open(what.log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
            if (null < 0 || log < 0) ::_exit(127);
            ::dup2(null, 0);
            ::dup2(log, 1);
            ::dup2(log, 2);
        }
        sigset_t none;
        sigemptyset(&none);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        ::execv(arguments[0], arguments.data());
        const int code = errno;
        [[maybe_unused]] const ssize_t ignored = ::write(report[1], &code, sizeof code);
        ::_exit(127);
    }
    ::close(report[1]);
    if (child < 0) {
        const int code = errno;
        ::close(report[0]);
        return system_error(what.arguments.front(), "cannot start", code);
    }
    int code = 0;
    const ssize_t failed = ::read(report[0], &code, sizeof code);
    ::close(report[0]);
    if (failed == sizeof code) {
        ::waitpid(child, nullptr, 0);
        return system_error(what.arguments.front(), "cannot start", code);
    }
    return child;
}

}  // namespace tlbscope::capture
