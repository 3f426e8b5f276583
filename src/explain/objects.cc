#include "explain/objects.h"

#include <fmt/format.h>

#include "explain/names.h"

namespace tlbscope::explain {

namespace {

// Kernel releases start the line that metadata keeps: "6.1.0-57-cloud-amd64 #1 SMP ...".
std::string kernel_release(const recording::Metadata& metadata) {
    return metadata.kernel.substr(0, metadata.kernel.find(' '));
}

void append(std::vector<Symbol>& to, std::vector<Symbol>& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

Object object_of(const std::string& path, ElfSymbols elf) {
    const std::string base = path == "[vdso]" ? "vdso" : path.substr(path.find_last_of('/') + 1);
    for (Symbol& symbol : elf.unnamed) symbol.name = "[" + base + symbol.name + "]";
    Object object{.path = path,
                  .named = SymbolTable(std::move(elf.symbols)),
                  .unnamed = SymbolTable(std::move(elf.unnamed)),
                  .elf = {}};
    elf.symbols.clear();
    elf.unnamed.clear();
    object.elf = std::move(elf);
    return object;
}

}  // namespace

Objects::Objects(const recording::Metadata& metadata, const NameOptions& options, std::string vdso)
    : metadata_(metadata), options_(options), vdso_(std::move(vdso)), debug_folders_(options.debug_folders) {
    if (!options.sysroot.empty()) debug_folders_.push_back(options.sysroot / "usr/lib/debug");
    debug_folders_.emplace_back("/usr/lib/debug");
    for (const recording::MappedRange& range : metadata.maps) {
        if (!range.build_id.empty()) build_ids_.emplace(range.path, range.build_id);
        // QEMU maps a user-mode guest's code without execute permission; there, a build-id says that the file
        // is a program or library.
        has_code_[range.path] |= range.protection.find('x') != std::string::npos || !range.build_id.empty();
    }
}

const Object* Objects::of(const std::string& path) {
    const auto [known, is_new] = known_.try_emplace(path);
    if (is_new) {
        if (path == "[vdso]")
            known->second = load_vdso();
        else if (path.starts_with("/"))
            known->second = load(path);
    }
    return known->second ? &*known->second : nullptr;
}

std::optional<ElfSymbols> Objects::debug_symbols(const std::filesystem::path& file,
                                                 const std::string& build_id, const ElfSymbols* main) {
    const auto found = find_debug_file(file, build_id, main != nullptr ? main->debug_link : std::string{},
                                       main != nullptr ? main->debug_checksum : 0, debug_folders_);
    if (!found) return std::nullopt;
    auto symbols = read_elf_symbols(*found);
    if (!symbols) {
        warnings_.push_back(symbols.error().message());
        return std::nullopt;
    }
    return std::move(*symbols);
}

std::optional<Object> Objects::load(const std::string& path) {
    const std::string recorded = build_ids_.contains(path) ? build_ids_.at(path) : std::string{};
    const std::filesystem::path file =
        options_.sysroot.empty() ? std::filesystem::path(path) : options_.sysroot / path.substr(1);
    auto elf = read_elf_symbols(file);
    if (!elf && !has_code_[path]) return std::nullopt;  // data: nothing is missing
    const bool wrong_build = elf && !recorded.empty() && elf->build_id != recorded;
    if (elf && !wrong_build) {
        if (!elf->full) {
            if (auto debug = debug_symbols(file, elf->build_id, &*elf)) {
                append(elf->symbols, debug->symbols);
                elf->full = debug->full;
            }
        }
        if (!elf->full && has_code_[path]) stripped_.push_back(path);
        return object_of(path, std::move(*elf));
    }
    // The file that ran is not there. Its debug file may be, and has all that naming takes.
    if (auto debug = recorded.empty() ? std::nullopt : debug_symbols(file, recorded, nullptr))
        return object_of(path, std::move(*debug));
    warnings_.push_back(
        wrong_build
            ? fmt::format(
                  "{}: it is another build than the one that ran (build-id {}, recorded {}), so its "
                  "functions stay unknown; give the files that ran with --sysroot DIR, or that build's "
                  "debug files with --debug-path DIR",
                  file.string(), elf->build_id.empty() ? "none" : elf->build_id, recorded)
            : fmt::format("{}, so its functions stay unknown; give the files that ran with --sysroot DIR, or "
                          "their debug files with --debug-path DIR",
                          Error{.where = elf.error().where, .what = elf.error().what, .hint = {}}.message()));
    return std::nullopt;
}

std::optional<Object> Objects::load_vdso() {
    if (!vdso_.empty())
        if (auto elf = read_elf_image(vdso_, "[vdso]")) return object_of("[vdso]", std::move(*elf));
    const bool wide = !(metadata_.target == "i386" || metadata_.target == "ppc" || metadata_.target == "arm");
    std::vector<std::filesystem::path> folders;
    const std::string release = kernel_release(metadata_);
    if (!options_.sysroot.empty()) folders.push_back(options_.sysroot / "lib/modules" / release / "vdso");
    for (const std::filesystem::path& folder : options_.debug_folders) folders.push_back(folder);
    folders.push_back(std::filesystem::path("/lib/modules") / release / "vdso");
    for (const std::filesystem::path& folder : folders)
        for (const char* name : {wide ? "vdso64.so" : "vdso32.so", "vdso.so"}) {
            std::error_code ignored;
            if (!std::filesystem::exists(folder / name, ignored)) continue;
            if (auto elf = read_elf_symbols(folder / name)) return object_of("[vdso]", std::move(*elf));
        }
    warnings_.push_back(fmt::format(
        "the recording has no image of its vDSO (kernel {}), so its functions stay unknown; record "
        "again, or give the folder with its {} with --debug-path",
        release, wide ? "vdso64.so" : "vdso32.so"));
    return std::nullopt;
}

std::vector<std::string> Objects::warnings() const {
    std::vector<std::string> all = warnings_;
    if (!stripped_.empty())
        all.push_back(fmt::format(
            "stripped of local names: {}; their other functions are shown in brackets as file and offset. "
            "Install their debug symbols (Debian: PACKAGE-dbgsym, libc6-dbg) or give their folder with "
            "--debug-path DIR",
            fmt::join(stripped_, ", ")));
    return all;
}

}  // namespace tlbscope::explain
