// The choices behind QEMU's command line, measured on QEMU 7.2 with Debian's 6.1 cloud kernel, dd of 15 MiB,
// and a plugin that only listens:
// - microvm boots, runs and powers off in 2.4 s, q35 in 3.1 s, pc in 3.3 s: it has no firmware menu, no PCI
// bus and
//   no disk controllers for the kernel to wait for, and its serial port and power-off work with the same
//   kernel.
// - one CPU counts instructions for time (-icount): what the guest does then depends on nothing but its
// inputs, and a
//   recorder that slows it down does not change how often the timer interrupts it.
// - qemu64 has no random number instruction, and the kernel is told not to trust the boot loader's seed.
#include "capture/guest/guest.h"

#include <unistd.h>

#include <fmt/format.h>

#include "capture/guest/packing.h"
#include "capture/qemu.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

constexpr const char* kQemu = "qemu-system-x86_64";
constexpr const char* kCpuModel = "qemu64";
// What the kernel and the agent take before the command has anything, in MiB.
constexpr std::uint64_t kKernelMib = 96;
constexpr std::uint32_t kLeastMemoryMib = 128;

Result<fs::path> find_agent() {
    std::error_code code;
    const fs::path self = fs::read_symlink("/proc/self/exe", code).parent_path();
    for (const fs::path& path : {self / "guests/agent", self / "../libexec/tlbscope/agent"})
        if (::access(path.c_str(), R_OK) == 0) return path.lexically_normal();
    return fail((self / "guests/agent").string(), "the guest's agent is missing",
                "build the whole project, or install it again");
}

// While the kernel unpacks it, the archive lies in memory twice, and its files may take half of what the
// archive itself leaves (the limit of a tmpfs that nobody has set one for).
Result<void> check_memory(std::uint64_t archive, std::uint32_t memory_mib) {
    const std::uint64_t mib = (archive >> 20) + 1;
    const std::uint64_t wanted = 3 * mib + kKernelMib;
    if (wanted <= memory_mib) return {};
    return fail(
        "", fmt::format("{} MiB of files do not fit in a guest with {} MiB of memory", mib, memory_mib),
        fmt::format("give it more with --memory {} or pack less with --with", (wanted + 255) / 256 * 256));
}

Result<void> check(const GuestRequest& request) {
    if (request.command.empty() || request.command[0].empty())
        return std::unexpected(Error{"", "no command to record", "put it after --", ErrorClass::kUsage});
    if (request.cpus < 1 || request.cpus > 64)
        return std::unexpected(Error{"", fmt::format("a guest cannot have {} CPUs", request.cpus),
                                     "use 1 to 64", ErrorClass::kUsage});
    if (request.memory_mib < kLeastMemoryMib)
        return std::unexpected(
            Error{"", fmt::format("{} MiB of memory are too few to boot", request.memory_mib),
                  fmt::format("use at least --memory {}", kLeastMemoryMib), ErrorClass::kUsage});
    return {};
}

std::string kernel_command_line(const GuestRequest& request) {
    // nokaslr, norandmaps: the same addresses in every run. panic=-1: a panic reboots at once, which ends
    // QEMU.
    std::string line =
        "console=ttyS0 quiet panic=-1 nokaslr norandmaps random.trust_cpu=off random.trust_bootloader=off "
        "tsc=reliable reboot=t";
    for (const std::string& argument : request.kernel_arguments) line += " " + argument;
    return line;
}

std::vector<std::string> qemu_command_line(const fs::path& qemu, const GuestRequest& request,
                                           const PreparedGuest& guest, const fs::path& initramfs) {
    std::vector<std::string> line{qemu.string(),
                                  "-no-user-config",
                                  "-nodefaults",
                                  "-machine",
                                  request.cpus == 1 ? "microvm" : "q35",
                                  "-cpu",
                                  kCpuModel,
                                  "-m",
                                  std::to_string(request.memory_mib),
                                  "-smp",
                                  std::to_string(request.cpus),
                                  "-accel",
                                  request.cpus == 1 ? "tcg,thread=single" : "tcg,thread=multi"};
    const auto add = [&](std::initializer_list<std::string> words) { line.insert(line.end(), words); };
    if (request.cpus == 1) add({"-icount", "shift=2,sleep=off", "-rtc", "base=2020-01-01,clock=vm"});
    add({"-display", "none", "-vga", "none", "-nic", "none", "-monitor", "none", "-no-reboot"});
    add({"-serial", "file:" + guest.console_log.string()});
    add({"-kernel", guest.kernel.path.string(), "-initrd", initramfs.string(), "-append",
         guest.kernel_command_line});
    return line;
}

}  // namespace

Result<PreparedGuest> prepare_guest(const GuestRequest& request) {
    if (auto done = check(request); !done) return std::unexpected(done.error());
    const auto qemu = find_qemu(kQemu);
    if (!qemu) return std::unexpected(qemu.error());
    const auto agent = request.agent ? Result<fs::path>(*request.agent) : find_agent();
    if (!agent) return std::unexpected(agent.error());

    PackingOrder order{.command = request.command, .with = request.with, .folder = {}, .agent = *agent};
    std::error_code code;
    order.folder = fs::current_path(code);
    if (code) return system_error(".", "cannot tell the current folder", code.value());
    // A command that does not exist is said before anything is downloaded.
    if (!find_program(request.command[0]))
        return fail(request.command[0], "no such program, or it may not be executed",
                    "check the name and PATH");

    auto kernel = find_kernel(request.kernel, request.progress);
    if (!kernel) return std::unexpected(kernel.error());

    if (request.progress) request.progress("packing the guest's files");
    const auto packing = pack(order, LibraryFinder::of_system());
    if (!packing) return std::unexpected(packing.error());
    if (auto done = check_memory(packing->archive.size(), request.memory_mib); !done)
        return std::unexpected(done.error());
    auto folder = WorkFolder::create();
    if (!folder) return std::unexpected(folder.error());
    const fs::path initramfs = folder->path() / "initramfs";
    if (auto done = packing->archive.write(initramfs); !done) return std::unexpected(done.error());

    PreparedGuest guest{.qemu = {},
                        .console_log = folder->path() / "console.log",
                        .kernel = std::move(*kernel),
                        .cpu_model = kCpuModel,
                        .kernel_command_line = kernel_command_line(request),
                        .qemu_version = qemu_version(*qemu),
                        .deterministic = request.cpus == 1,
                        .host_files = packing->archive.host_files(),
                        .notes = packing->notes,
                        .folder = std::move(*folder)};
    guest.qemu = qemu_command_line(*qemu, request, guest, initramfs);
    return guest;
}

}  // namespace tlbscope::capture
