#include "capture/guest/libraries.h"

#include <elf.h>

#include <deque>
#include <set>

#include "capture/process.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

// Debian's name of the machine in library folders (dpkg-architecture -qDEB_HOST_MULTIARCH).
std::string multiarch(const ElfFile& elf) {
    switch (elf.machine) {
        case EM_X86_64:
            return elf.bits == 64 ? "x86_64-linux-gnu" : "x86_64-linux-gnux32";
        case EM_386:
            return "i386-linux-gnu";
        case EM_PPC64:
            return elf.big_endian ? "powerpc64-linux-gnu" : "powerpc64le-linux-gnu";
        case EM_PPC:
            return "powerpc-linux-gnu";
        case EM_AARCH64:
            return "aarch64-linux-gnu";
        case EM_RISCV:
            return "riscv64-linux-gnu";
        default:
            return "";
    }
}

std::vector<fs::path> default_folders(const ElfFile& elf) {
    std::vector<fs::path> folders;
    if (const std::string name = multiarch(elf); !name.empty())
        folders = {fs::path("/lib") / name, fs::path("/usr/lib") / name};
    folders.insert(folders.end(), {"/lib", "/usr/lib"});
    if (elf.bits == 64) folders.insert(folders.end(), {"/lib64", "/usr/lib64"});
    return folders;
}

// ld.so(8), "Rpath token expansion".
std::string expand(std::string text, const ElfFile& elf, const fs::path& origin) {
    const std::pair<std::string, std::string> tokens[] = {
        {"ORIGIN", origin.string()},
        {"LIB", multiarch(elf).empty() ? "lib" : "lib/" + multiarch(elf)},
        {"PLATFORM",
         elf.machine == EM_X86_64 ? "x86_64" : multiarch(elf).substr(0, multiarch(elf).find('-'))}};
    for (const auto& [token, value] : tokens)
        for (const std::string& form : {"${" + token + "}", "$" + token})
            for (std::size_t at = 0; (at = text.find(form, at)) != std::string::npos; at += value.size())
                text.replace(at, form.size(), value);
    return text;
}

// An object being loaded, with the folders its DT_RPATH and those of its loaders add.
struct Loaded {
    fs::path path;
    ElfFile elf;
    std::vector<fs::path> inherited;
};

std::vector<fs::path> expanded(const std::vector<std::string>& folders, const Loaded& object) {
    std::error_code ignored;
    fs::path origin = fs::canonical(object.path, ignored).parent_path();
    std::vector<fs::path> list;
    for (const std::string& folder : folders) list.emplace_back(expand(folder, object.elf, origin));
    return list;
}

}  // namespace

LibraryFinder LibraryFinder::of_system() {
    std::map<std::string, std::vector<fs::path>> cache;
    for (const char* tool : {"ldconfig", "/usr/sbin/ldconfig", "/sbin/ldconfig"}) {
        const auto listed = run({tool, "-p"});
        if (!listed || !listed->ok) continue;
        // "\tlibz.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libz.so.1". Entries for better processors than
        // a guest's are left out.
        const std::string& text = listed->output;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = std::min(text.find('\n', at), text.size());
            const std::string line = text.substr(at, end - at);
            at = end + 1;
            const std::size_t bracket = line.find(" (");
            const std::size_t arrow = line.find(" => ");
            if (line.empty() || line[0] != '\t' || bracket == std::string::npos ||
                arrow == std::string::npos ||
                line.substr(bracket, arrow - bracket).find("hwcap") != std::string::npos)
                continue;
            cache[line.substr(1, bracket - 1)].emplace_back(line.substr(arrow + 4));
        }
        break;
    }
    return LibraryFinder(std::move(cache));
}

std::vector<Library> LibraryFinder::needed_by(const fs::path& program) const {
    std::vector<Library> libraries;
    std::set<std::string> known;  // names asked for and names the libraries give themselves
    const auto first = read_elf(program);
    if (!first) return libraries;
    std::deque<Loaded> queue{{program, *first, {}}};
    const std::vector<fs::path> defaults = default_folders(*first);

    // Breadth first, as ld.so loads: a name that an earlier object brought in is not searched again.
    while (!queue.empty()) {
        Loaded object = std::move(queue.front());
        queue.pop_front();
        // DT_RPATH of the object and its loaders, unless it has DT_RUNPATH, which replaces them for its own
        // needs.
        std::vector<fs::path> rpath = expanded(object.elf.rpath, object);
        if (!object.elf.runpath.empty()) rpath.clear();
        rpath.insert(rpath.end(), object.inherited.begin(), object.inherited.end());
        const std::vector<fs::path> own =
            object.elf.runpath.empty() ? rpath : expanded(object.elf.runpath, object);

        for (const std::string& name : object.elf.needed) {
            if (!known.insert(name).second) continue;
            Library found{.name = name, .wanted_by = object.path.string()};
            std::optional<ElfFile> elf;
            const auto take = [&](const fs::path& path, bool by_default) {
                if (!found.path.empty()) return;
                elf = read_elf(path);
                if (!elf || !elf->same_machine(*first)) return;
                found.path = path;
                found.by_default = by_default;
            };
            if (name.find('/') != std::string::npos) {
                take(expand(name, object.elf, object.path.parent_path()), true);
            } else {
                // A folder the file names is searched in the guest too: nothing else is needed to find it
                // there.
                for (const fs::path& folder : own) take(folder / name, true);
                if (const auto entry = cache_.find(name); entry != cache_.end())
                    for (const fs::path& path : entry->second) {
                        bool by_default = false;
                        for (const fs::path& folder : defaults) by_default |= path.parent_path() == folder;
                        take(path, by_default);
                    }
                for (const fs::path& folder : defaults) take(folder / name, true);
            }
            if (!found.path.empty()) {
                if (!elf->name.empty()) known.insert(elf->name);
                queue.push_back({found.path, *elf, rpath});
            }
            libraries.push_back(std::move(found));
        }
    }
    return libraries;
}

}  // namespace tlbscope::capture
