#include "capture/guest/packages.h"

#include <cstring>

#include "capture/process.h"
#include "core/files.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of(" \n");
    if (end == std::string::npos) return {};
    const std::size_t start = text.find_last_of('\n', end);
    return text.substr(start == std::string::npos ? 0 : start + 1,
                       end - (start == std::string::npos ? 0 : start + 1) + 1);
}

bool has_lists(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().filename().string().find("_Packages") != std::string::npos) return true;
    return false;
}

std::vector<std::string> joined(std::vector<std::string> first, const std::vector<std::string>& second,
                                const std::vector<std::string>& third) {
    first.insert(first.end(), second.begin(), second.end());
    first.insert(first.end(), third.begin(), third.end());
    return first;
}

}  // namespace

Result<Packages> Packages::of(const std::string& architecture, const Progress& progress) {
    if (architecture.empty()) return Packages({});
    auto cache = cache_folder();
    if (!cache) return std::unexpected(cache.error());
    const fs::path home = *cache / ("apt-" + architecture);
    std::error_code code;
    fs::create_directories(home / "lists/partial", code);
    if (!code) fs::create_directories(home / "cache/archives/partial", code);
    if (code) return system_error(home.string(), "cannot create", code.value());
    if (!fs::exists(home / "status"))
        if (auto made = write_text(home / "status", ""); !made) return std::unexpected(made.error());
    Packages packages({"-o", "APT::Architecture=" + architecture, "-o", "APT::Architectures=" + architecture,
                       "-o", "Dir::State::Lists=" + (home / "lists").string(), "-o",
                       "Dir::State::status=" + (home / "status").string(), "-o",
                       "Dir::Cache=" + (home / "cache").string()});
    if (has_lists(home / "lists")) return packages;
    if (progress) progress("fetching Debian's package lists for " + architecture + " (once)");
    // Some of a mirror's lists may be out of step with the others; what matters is whether a package is
    // found.
    const auto updated =
        run(joined({"apt-get", "-q", "-o", "APT::Sandbox::User=root"}, packages.options_, {"update"}), home);
    if (!updated) return std::unexpected(updated.error());
    if (!has_lists(home / "lists"))
        return fail(
            "", "cannot fetch Debian's package lists for " + architecture + ": " + last_line(updated->errors),
            "check the network and /etc/apt/sources.list");
    return packages;
}

Result<std::string> Packages::first_dependency(const std::string& package) const {
    const auto depends = run(joined({"apt-cache"}, options_, {"depends", package}));
    if (!depends) return std::unexpected(depends.error());
    const std::size_t at = depends->output.find("Depends: ");
    if (at == std::string::npos) return std::string();
    const std::size_t start = at + std::strlen("Depends: ");
    return depends->output.substr(start, depends->output.find('\n', start) - start);
}

Result<fs::path> Packages::download(const std::string& package, const fs::path& folder,
                                    const std::string& use, const std::string& otherwise) const {
    // As root, apt-get drops to a user that may not write here, warns, and goes on as root: asked for, it
    // does not warn.
    const auto fetched = run(
        joined({"apt-get", "-q", "-o", "APT::Sandbox::User=root"}, options_, {"download", package}), folder);
    if (!fetched) return std::unexpected(fetched.error());
    fs::path archive;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored))
        if (entry.path().extension() == ".deb") archive = entry.path();
    if (!fetched->ok || archive.empty())
        return fail(package, "cannot download " + use + ": " + last_line(fetched->errors),
                    "check the network and run `apt-get update` as root" + otherwise);
    return archive;
}

Result<bool> unpack(const fs::path& package, const std::string& pattern, const fs::path& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) return system_error(folder.string(), "cannot create", code.value());
    const auto unpacked =
        run({"sh", "-c", "dpkg-deb --fsys-tarfile \"$1\" | tar -x -C \"$2\" --wildcards \"$3\"", "sh",
             package.string(), folder.string(), pattern});
    if (!unpacked) return std::unexpected(unpacked.error());
    return unpacked->ok;
}

}  // namespace tlbscope::capture
