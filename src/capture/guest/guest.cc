// One CPU counts instructions for time (-icount): what the guest does then depends on nothing but its inputs,
// and a recorder that slows it down does not change how often the timer interrupts it.
#include "capture/guest/guest.h"

#include <unistd.h>

#include <fmt/format.h>

#include "capture/guest/packages.h"
#include "capture/guest/packing.h"
#include "capture/qemu.h"
#include "core/files.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

// What the kernel and the agent take before the command has anything, in MiB.
constexpr std::uint64_t kKernelMib = 96;
constexpr std::uint32_t kLeastMemoryMib = 128;

Result<fs::path> find_agent(const Architecture& architecture) {
    const fs::path home = program_folder();
    const fs::path below = architecture.agent;
    const fs::path installed = home / "../libexec/tlbscope" / below.lexically_relative("guests");
    for (const fs::path& path : {home / below, installed})
        if (::access(path.c_str(), R_OK) == 0) return path.lexically_normal();
    return fail((home / below).string(), "the guest's agent is missing",
                architecture.is_hosts() ? std::string("build the whole project, or install it again")
                                        : fmt::format("run `scripts/install-dependencies {}` and build again",
                                                      architecture.name));
}

// busybox of the guest's architecture: the host's own, or Debian's package of it, unpacked into the cache
// once. Empty when the architecture has none.
Result<fs::path> find_busybox(const Architecture& architecture, const Progress& progress) {
    if (architecture.is_hosts()) return find_program("busybox").value_or(fs::path());
    if (architecture.name != "ppc64le") return fs::path();  // Debian has dropped powerpc
    auto cache = cache_folder();
    if (!cache) return std::unexpected(cache.error());
    const fs::path home = *cache / "programs" / architecture.name;
    if (fs::exists(home / "busybox")) return home / "busybox";
    const auto packages = Packages::of("ppc64el", progress);
    if (!packages) return std::unexpected(packages.error());
    std::error_code code;
    fs::create_directories(home, code);
    if (code) return system_error(home.string(), "cannot create", code.value());
    auto work = WorkFolder::create(home);
    if (!work) return std::unexpected(work.error());
    const auto archive = packages->download("busybox-static", work->path(), "the guest's busybox", "");
    if (!archive) return std::unexpected(archive.error());
    const auto found = unpack(*archive, "*bin/busybox", work->path());
    if (!found) return std::unexpected(found.error());
    for (const char* folder : {"bin", "usr/bin"})
        if (fs::exists(work->path() / folder / "busybox"))
            fs::rename(work->path() / folder / "busybox", home / "busybox", code);
    if (code || !fs::exists(home / "busybox"))
        return fail("busybox-static", "cannot unpack the guest's busybox",
                    "check the space in " + home.string());
    return home / "busybox";
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
    const Architecture& architecture = *request.architecture;
    if (request.cpus < 1 || request.cpus > architecture.most_cpus)
        return std::unexpected(Error{
            "",
            fmt::format("a{} guest cannot have {} CPUs",
                        architecture.is_hosts() ? "" : fmt::format(" {}", architecture.name), request.cpus),
            architecture.most_cpus == 1 ? std::string("leave out --cpus")
                                        : fmt::format("use 1 to {}", architecture.most_cpus),
            ErrorClass::kUsage});
    if (request.memory_mib != 0 && request.memory_mib < kLeastMemoryMib)
        return std::unexpected(
            Error{"", fmt::format("{} MiB of memory are too few to boot", request.memory_mib),
                  fmt::format("use at least --memory {}", kLeastMemoryMib), ErrorClass::kUsage});
    if (request.memory_mib > architecture.most_memory_mib)
        return std::unexpected(Error{
            "", fmt::format("a {} guest cannot have {} MiB of memory", architecture.name, request.memory_mib),
            fmt::format("use at most --memory {}", architecture.most_memory_mib), ErrorClass::kUsage});
    return {};
}

std::string kernel_command_line(const GuestRequest& request) {
    std::string line(request.architecture->kernel_arguments);
    for (const std::string& argument : request.kernel_arguments) line += " " + argument;
    return line;
}

std::vector<std::string> qemu_command_line(const fs::path& qemu, const GuestRequest& request,
                                           const PreparedGuest& guest, const fs::path& initramfs) {
    const Architecture& architecture = *request.architecture;
    const bool one = request.cpus == 1;
    std::vector<std::string> line{qemu.string(),
                                  "-no-user-config",
                                  "-nodefaults",
                                  "-machine",
                                  std::string(one ? architecture.machine : architecture.machine_with_cpus),
                                  "-cpu",
                                  std::string(architecture.cpu_model),
                                  "-m",
                                  std::to_string(guest.memory_mib),
                                  "-smp",
                                  std::to_string(request.cpus),
                                  "-accel",
                                  one ? "tcg,thread=single" : "tcg,thread=multi"};
    line.insert(line.end(), architecture.qemu_options.begin(), architecture.qemu_options.end());
    const auto add = [&](std::initializer_list<std::string> words) { line.insert(line.end(), words); };
    if (one) add({"-icount", "shift=2,sleep=off", "-rtc", "base=2020-01-01,clock=vm"});
    add({"-display", "none", "-vga", "none", "-nic", "none", "-monitor", "none", "-no-reboot"});
    add({"-serial", "file:" + guest.console_log.string()});
    add({"-kernel", guest.kernel.path.string(), "-initrd", initramfs.string(), "-append",
         guest.kernel_command_line});
    return line;
}

}  // namespace

Result<PreparedGuest> prepare_guest(const GuestRequest& request) {
    if (auto done = check(request); !done) return std::unexpected(done.error());
    const Architecture& architecture = *request.architecture;
    const auto qemu = find_qemu(std::string(architecture.qemu));
    if (!qemu) return std::unexpected(qemu.error());
    const auto agent = request.agent ? Result<fs::path>(*request.agent) : find_agent(architecture);
    if (!agent) return std::unexpected(agent.error());

    PackingOrder order{.command = request.command,
                       .with = request.with,
                       .folder = {},
                       .agent = *agent,
                       .architecture = &architecture,
                       .root = request.root,
                       .programs = {},
                       .busybox = {},
                       .events = request.events};
    std::error_code code;
    order.folder = fs::current_path(code);
    if (code) return system_error(".", "cannot tell the current folder", code.value());
    if (!architecture.programs.empty()) order.programs = agent->parent_path();
    auto busybox = find_busybox(architecture, request.progress);
    if (!busybox) return std::unexpected(busybox.error());
    order.busybox = *busybox;
    // A command that does not exist is said before the kernel is downloaded.
    if (const auto program = find_command(order); !program) return std::unexpected(program.error());

    auto kernel = find_kernel(request.kernel, request.progress, architecture);
    if (!kernel) return std::unexpected(kernel.error());

    if (request.progress) request.progress("packing the guest's files");
    const auto packing =
        pack(order, architecture.is_hosts() ? LibraryFinder::of_system() : LibraryFinder({}));
    if (!packing) return std::unexpected(packing.error());
    const std::uint32_t memory_mib = request.memory_mib == 0 ? architecture.memory_mib : request.memory_mib;
    if (auto done = check_memory(packing->archive.size(), memory_mib); !done)
        return std::unexpected(done.error());
    auto folder = WorkFolder::create();
    if (!folder) return std::unexpected(folder.error());
    const fs::path initramfs = folder->path() / "initramfs";
    if (auto done = packing->archive.write(initramfs); !done) return std::unexpected(done.error());

    PreparedGuest guest{.qemu = {},
                        .console_log = folder->path() / "console.log",
                        .kernel = std::move(*kernel),
                        .target = std::string(architecture.target),
                        .memory_mib = memory_mib,
                        .cpu_model = std::string(architecture.cpu_model),
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
