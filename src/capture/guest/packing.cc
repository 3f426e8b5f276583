// What a program names it finds in the guest under the same name, so links and folders are copied as they are
// on the host. What it opens later by itself (configuration, modules of an interpreter) nobody can know:
// --with brings it.
//
// A guest of another architecture has a folder of its own as its root (--root, say packages unpacked for it),
// our own programs for it, and busybox; of the host's files it can use static programs and data.
//
// There is no ld.so.cache in the guest: a library that only the host's cache finds gets a link in a folder
// that is always searched. The environment is small and fixed, since its size moves the stack and so changes
// what misses.
#include "capture/guest/packing.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "capture/process.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

constexpr const char* kEnvironment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                        "HOME=/root", "TERM=linux", "LANG=C"};
constexpr int kMostInterpreters =
    5;  // a script's interpreter may be a script; the kernel's own limit, binfmt_script

std::string first_line(const fs::path& path) {
    char buffer[256] = {};
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return {};
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    ::close(fd);
    const std::string text(buffer, n > 0 ? static_cast<std::size_t>(n) : 0);
    return text.substr(0, text.find('\n'));
}

std::vector<std::string> words(const std::string& text) {
    std::vector<std::string> list;
    for (std::size_t at = text.find_first_not_of(" \t"); at != std::string::npos;) {
        const std::size_t end = std::min(text.find_first_of(" \t", at), text.size());
        list.push_back(text.substr(at, end - at));
        at = text.find_first_not_of(" \t", end);
    }
    return list;
}

class Packer {
  public:
    Packer(const LibraryFinder& libraries, const Architecture& architecture)
        : libraries_(libraries), architecture_(architecture) {}

    Result<void> program(const fs::path& path, int depth = 0) {
        if (const auto elf = read_elf(path)) {
            if (!architecture_.runs(*elf))
                return fail(path.string(),
                            fmt::format("is a program for another architecture than the guest's {}",
                                        architecture_.name),
                            "choose the guest with --guest, or record it without --system");
            if (auto done = archive_.add_host(path); !done) return std::unexpected(done.error());
            return needs(path, *elf, true);
        }
        if (auto done = archive_.add_host(path); !done) return std::unexpected(done.error());
        const std::string line = first_line(path);
        if (!line.starts_with("#!"))
            return fail(path.string(), "is neither an ELF program nor a script that starts with #!",
                        "name a program, or its interpreter and the file with --with");
        if (depth >= kMostInterpreters)
            return fail(path.string(), "has too many interpreters", "name a program");
        return interpreter(path, words(line.substr(2)), depth);
    }

    // A file or a folder with all it holds.
    Result<void> extra(const fs::path& path) {
        std::error_code code;
        const fs::path name = fs::absolute(path, code).lexically_normal();
        if (name == "/" || name == "/proc" || name == "/sys" || name == "/dev")
            return fail(path.string(), "cannot be packed into the guest",
                        "name the files that the command needs");
        if (!fs::exists(name, code))
            return fail(path.string(), "--with names a file that does not exist", "check the name");
        const auto real = archive_.add_host(name);
        if (!real) return std::unexpected(real.error());
        if (fs::is_directory(*real, code)) return folder(*real);
        return file_needs(*real);
    }

    // All that `top` holds, at the guest's root.
    Result<void> root(const fs::path& top) {
        std::error_code code;
        if (!fs::is_directory(top, code))
            return fail(top.string(), "--root names no folder",
                        "name the folder that is to be the guest's root");
        // Links and folders first, so that a file finds them whatever the order of the folder's entries.
        for (const bool files : {false, true}) {
            fs::recursive_directory_iterator entries(top, fs::directory_options::skip_permission_denied,
                                                     code);
            for (; !code && entries != fs::recursive_directory_iterator(); entries.increment(code)) {
                const fs::path& path = entries->path();
                const std::string name = "/" + path.lexically_relative(top).string();
                const fs::file_status status = entries->symlink_status();
                std::error_code unreadable;
                if (fs::is_symlink(status)) {
                    if (!files) archive_.add_link(name, fs::read_symlink(path, unreadable).string());
                } else if (fs::is_directory(status)) {
                    if (!files)
                        archive_.add_own_folder(name, static_cast<std::uint32_t>(status.permissions()));
                } else if (files && fs::is_regular_file(status)) {
                    if (auto done = archive_.add_file(name, path); !done) return done;
                }
            }
            if (code) return system_error(top.string(), "cannot read the folder", code.value());
        }
        return {};
    }

    Archive& archive() { return archive_; }
    std::vector<std::string> notes() { return std::move(notes_); }

  private:
    Result<void> interpreter(const fs::path& script, const std::vector<std::string>& line, int depth) {
        if (line.empty()) return fail(script.string(), "has an empty #! line", "name its interpreter");
        if (!architecture_.is_hosts()) {
            if (archive_.reaches(line[0])) return {};
            return fail(script.string(),
                        "needs the interpreter " + line[0] + ", which the guest does not have",
                        "bring it with --root");
        }
        const auto found = find_program(line[0]);
        if (!found || line[0][0] != '/')
            return fail(script.string(), "needs the interpreter " + line[0] + ", which is not here",
                        "install it or correct the script's first line");
        if (auto done = program(*found, depth + 1); !done) return done;
        if (fs::path(line[0]).filename() != "env") return {};
        // env [-S] [NAME=VALUE]... PROGRAM
        for (std::size_t i = 1; i < line.size(); ++i) {
            if (line[i][0] == '-' || line[i].find('=') != std::string::npos) continue;
            const auto named = find_program(line[i]);
            if (!named)
                return fail(script.string(), "needs the interpreter " + line[i] + ", which is not in PATH",
                            "install it or correct the script's first line");
            return program(*named, depth + 1);
        }
        return {};
    }

    // The dynamic linker and the libraries of an ELF file. Those of the command must be there.
    Result<void> needs(const fs::path& path, const ElfFile& elf, bool must) {
        if (!elf.interpreter.empty()) {
            std::error_code code;
            if (fs::exists(elf.interpreter, code)) {
                if (auto done = archive_.add_host(elf.interpreter); !done)
                    return std::unexpected(done.error());
            } else if (must) {
                return fail(path.string(),
                            "needs the dynamic linker " + elf.interpreter + ", which is not here",
                            "install the C library it was built for");
            }
        }
        for (const Library& library : libraries_.needed_by(path)) {
            if (library.path.empty()) {
                const std::string what = "needs the library " + library.name + ", which is not found";
                if (must)
                    return fail(
                        library.wanted_by, what,
                        "install it or set the program's RPATH; LD_LIBRARY_PATH does not reach the guest");
                notes_.push_back(library.wanted_by + " " + what);
                continue;
            }
            if (auto done = archive_.add_host(library.path); !done) return std::unexpected(done.error());
            const std::string link = (elf.bits == 64 ? "/usr/lib64/" : "/usr/lib/") + library.name;
            if (!library.by_default && !archive_.has(link)) archive_.add_link(link, library.path.string());
        }
        return {};
    }

    Result<void> file_needs(const fs::path& path) {
        const auto elf = read_elf(path);
        if (!elf || !architecture_.runs(*elf)) return {};
        return needs(path, *elf, false);
    }

    Result<void> folder(const fs::path& top) {
        std::error_code code;
        fs::recursive_directory_iterator entries(top, fs::directory_options::skip_permission_denied, code);
        for (; !code && entries != fs::recursive_directory_iterator(); entries.increment(code)) {
            const fs::path& path = entries->path();
            const fs::file_status status = entries->symlink_status();
            if (fs::is_symlink(status)) {
                // A link that leads nowhere, or to a folder, is kept as a link.
                std::error_code missing;
                if (fs::is_regular_file(path, missing)) {
                    if (auto done = archive_.add_host(path); !done) return std::unexpected(done.error());
                } else {
                    archive_.add_link(path.string(), fs::read_symlink(path, missing).string());
                }
            } else if (fs::is_directory(status)) {
                if (auto done = archive_.add_host(path); !done) return std::unexpected(done.error());
            } else if (fs::is_regular_file(status)) {
                if (auto done = archive_.add_host(path); !done) return std::unexpected(done.error());
                if (auto done = file_needs(path); !done) return done;
            }
        }
        if (code) return system_error(top.string(), "cannot read the folder", code.value());
        return {};
    }

    const LibraryFinder& libraries_;
    const Architecture& architecture_;
    Archive archive_;
    std::vector<std::string> notes_;
};

constexpr const char* kProgramFolders[] = {"usr/local/sbin", "usr/local/bin", "usr/sbin",
                                           "usr/bin",        "sbin",          "bin"};

std::vector<std::string> applets(const PackingOrder& order) {
    std::vector<std::string> command{order.busybox.string(), "--list"};
    if (!order.architecture->is_hosts())
        command.insert(command.begin(), fmt::format("qemu-{}", order.architecture->target));
    const auto listed = run(command);
    std::vector<std::string> names;
    if (!listed || !listed->ok) return names;
    const std::string& text = listed->output;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        std::string name = text.substr(at, end - at);
        at = end + 1;
        if (!name.empty() && name != "busybox" && name.find('/') == std::string::npos)
            names.push_back(std::move(name));
    }
    return names;
}

// busybox for scripts and for `sh -c`: every applet that another file does not stand for already. Where it is
// not the host's it keeps its name on the host, where its symbols are looked for, and /bin/busybox is a link.
Result<void> add_busybox(Archive& archive, const PackingOrder& order) {
    if (order.busybox.empty()) return {};
    if (const auto elf = read_elf(order.busybox);
        !elf || !order.architecture->runs(*elf) || !elf->needed.empty())
        return {};
    if (order.architecture->is_hosts()) {
        if (auto done = archive.add_file("/bin/busybox", order.busybox); !done) return done;
    } else {
        if (auto done = archive.add_host(order.busybox); !done) return std::unexpected(done.error());
        archive.add_link("/bin/busybox", order.busybox.string());
    }
    for (const std::string& name : applets(order)) {
        bool taken = false;
        for (const char* folder : kProgramFolders) taken |= archive.has(std::string(folder) + "/" + name);
        if (!taken) archive.add_link("/bin/" + name, "/bin/busybox");
    }
    return {};
}

Result<void> add_own_programs(Archive& archive, const fs::path& folder) {
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(folder, code)) {
        const std::string name = entry.path().filename().string();
        if (name == "agent" || !read_elf(entry.path()) || archive.has("usr/bin/" + name)) continue;
        if (auto done = archive.add_host(entry.path()); !done) return std::unexpected(done.error());
        archive.add_link("/usr/bin/" + name, entry.path().string());
    }
    return {};
}

std::string joined(const std::vector<std::string>& strings) {
    std::string bytes;
    for (const std::string& s : strings) {
        bytes += s;
        bytes += '\0';
    }
    return bytes;
}

}  // namespace

Result<FoundProgram> find_command(const PackingOrder& order) {
    const std::string& name = order.command.at(0);
    const Architecture& architecture = *order.architecture;
    std::error_code ignored;
    if (!architecture.is_hosts()) {
        const bool is_path = name.find('/') != std::string::npos;
        if (!order.root.empty()) {
            if (is_path && name[0] == '/' && fs::exists(order.root / name.substr(1), ignored))
                return FoundProgram{order.root / name.substr(1), name};
            for (const char* folder : kProgramFolders)
                if (!is_path && fs::exists(fs::symlink_status(order.root / folder / name, ignored)))
                    return FoundProgram{order.root / folder / name, fmt::format("/{}/{}", folder, name)};
        }
        if (!is_path && !order.programs.empty() && fs::is_regular_file(order.programs / name, ignored) &&
            name != "agent")
            return FoundProgram{order.programs / name, (order.programs / name).string(), true};
        if (!is_path && !order.busybox.empty()) {
            if (name == "busybox") return FoundProgram{order.busybox, "/bin/busybox", true};
            for (const std::string& applet : applets(order))
                if (applet == name) return FoundProgram{order.busybox, "/bin/" + name, true};
        }
    }
    const auto program = find_program(name);
    if (!program)
        return fail(name,
                    architecture.is_hosts()
                        ? std::string("no such program, or it may not be executed")
                        : fmt::format("there is no such program for {} guests", architecture.name),
                    architecture.is_hosts() ? "check the name and PATH"
                                            : "name a static program built for it, or bring it with --root");
    return FoundProgram{*program, program->string(), true};
}

Result<Packing> pack(const PackingOrder& order, const LibraryFinder& libraries) {
    Packer packer(libraries, *order.architecture);
    Archive& archive = packer.archive();
    // A root brings its own idea of which folders are links; without one the host's is as good as any.
    if (!order.root.empty())
        if (auto done = packer.root(order.root); !done) return std::unexpected(done.error());
    for (const char* folder : {"/dev", "/etc", "/proc", "/root", "/run", "/sys", "/usr/bin", "/bin"})
        if (!archive.has(folder)) archive.add_folder(folder);
    archive.add_folder("/tmp", 01777);
    archive.add_character_device("/dev/console", 5, 1);
    archive.add_character_device("/dev/null", 1, 3);
    archive.add_text("/etc/passwd",
                     "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n", 0644);
    archive.add_text("/etc/group", "root:x:0:\nnogroup:x:65534:\n", 0644);
    archive.add_text("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n", 0644);
    archive.add_text("/etc/hosts", "127.0.0.1 localhost\n", 0644);
    archive.add_folder(order.folder.string());

    const auto program = find_command(order);
    if (!program) return std::unexpected(program.error());
    const bool foreign = !order.architecture->is_hosts();
    if (foreign) {
        if (auto done = add_own_programs(archive, order.programs); !done)
            return std::unexpected(done.error());
        if (auto done = add_busybox(archive, order); !done) return std::unexpected(done.error());
    }
    if (program->of_host)
        if (auto done = packer.program(program->host); !done) return std::unexpected(done.error());
    for (const fs::path& path : order.with)
        if (auto done = packer.extra(path); !done) return std::unexpected(done.error());
    if (!foreign)
        if (auto done = add_busybox(archive, order); !done) return std::unexpected(done.error());

    if (auto done = archive.add_file("/init", order.agent); !done) return std::unexpected(done.error());
    archive.add_folder("/.tlbscope", 0700);
    archive.add_text("/.tlbscope/argv", joined(order.command), 0600);
    archive.add_text("/.tlbscope/environment", joined({std::begin(kEnvironment), std::end(kEnvironment)}),
                     0600);
    archive.add_text("/.tlbscope/program", program->guest, 0600);
    if (order.events) archive.add_text("/.tlbscope/events", "", 0600);
    archive.add_text("/.tlbscope/cwd", order.folder.string(), 0600);
    return Packing{std::move(archive), packer.notes()};
}

}  // namespace tlbscope::capture
