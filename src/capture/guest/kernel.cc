// Debian's "cloud" kernel is taken because it has what a virtual machine needs built in, half the code of the
// general one, and boots in half the time. linux-image-cloud-amd64 names the current version; that version's
// package holds the file.
#include "capture/guest/kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "capture/process.h"
#include "core/files.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

constexpr const char* kMetaPackage = "linux-image-cloud-amd64";
constexpr const char* kOwnKernel = "or give a kernel file with --kernel";

// Documentation/x86/boot.rst: "HdrS" at 0x202; at 0x20e the place of the version text, counted from 0x200.
Result<std::string> release_of(const fs::path& path, std::span<const std::uint8_t> bytes) {
    if (bytes.size() >= 4 && std::memcmp(bytes.data(), "\177ELF", 4) == 0) return std::string();
    if (bytes.size() < 0x260 || std::memcmp(&bytes[0x202], "HdrS", 4) != 0)
        return fail(path.string(), "is not a Linux kernel for x86 (neither bzImage nor ELF)",
                    "name a kernel such as /boot/vmlinuz-*");
    const std::size_t at = (std::size_t{bytes[0x20e]} | std::size_t{bytes[0x20f]} << 8) + 0x200;
    std::string release;
    for (std::size_t i = at; i < bytes.size() && release.size() < 256 && bytes[i] > ' ' && bytes[i] < 0x7f;
         ++i)
        release += static_cast<char>(bytes[i]);
    return release;
}

Result<Kernel> describe(const fs::path& path) {
    const auto file = MappedFile::open(path);
    if (!file) return std::unexpected(file.error());
    const auto release = release_of(path, file->bytes());
    if (!release) return std::unexpected(release.error());
    return Kernel{.path = path, .release = *release, .hash = content_hash(file->bytes())};
}

// "linux-image-6.1.0-57-cloud-amd64" < "linux-image-6.1.0-103-cloud-amd64": numbers inside names count as
// numbers.
bool older(const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; }

std::optional<fs::path> newest_in_cache(const fs::path& kernels) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(kernels, ignored))
        if (fs::is_regular_file(entry.path() / "vmlinuz", ignored))
            names.push_back(entry.path().filename().string());
    if (names.empty()) return std::nullopt;
    return kernels / *std::max_element(names.begin(), names.end(), older) / "vmlinuz";
}

std::optional<fs::path> newest_in_boot() {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/boot", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with("vmlinuz-") && name.ends_with("-cloud-amd64")) names.push_back(name);
    }
    if (names.empty()) return std::nullopt;
    return "/boot/" + *std::max_element(names.begin(), names.end(), older);
}

// The file, complete, under its release in the cache.
Result<Kernel> keep(const fs::path& file, const fs::path& kernels, const WorkFolder& work) {
    const auto kernel = describe(file);
    if (!kernel) return kernel;
    const fs::path staged = work.path() / "staged";
    std::error_code code;
    fs::create_directory(staged, code);
    if (!code) fs::copy_file(file, staged / "vmlinuz", fs::copy_options::overwrite_existing, code);
    if (code) return system_error(staged.string(), "cannot keep the kernel", code.value());
    const fs::path home = kernels / kernel->release;
    fs::rename(staged, home, code);
    // Another run may have put it there in the meantime, which is as good.
    if (code && !fs::exists(home / "vmlinuz"))
        return system_error(home.string(), "cannot keep the kernel", code.value());
    return describe(home / "vmlinuz");
}

std::string last_line(const std::string& text) {
    const std::size_t end = text.find_last_not_of(" \n");
    if (end == std::string::npos) return {};
    const std::size_t start = text.find_last_of('\n', end);
    return text.substr(start == std::string::npos ? 0 : start + 1,
                       end - (start == std::string::npos ? 0 : start + 1) + 1);
}

Result<Kernel> download(const fs::path& kernels, const Progress& progress) {
    const auto depends = run({"apt-cache", "depends", kMetaPackage});
    if (!depends)
        return fail(
            "", "no kernel for the guest: none is kept or installed, and apt-cache is not here to find one",
            "give a kernel file with --kernel");
    const std::size_t at = depends->output.find("Depends: linux-image-");
    if (at == std::string::npos)
        return fail(kMetaPackage, "apt does not know this package, so the guest has no kernel",
                    std::string("run `apt-get update` as root, ") + kOwnKernel);
    const std::size_t start = at + std::strlen("Depends: ");
    const std::string package = depends->output.substr(start, depends->output.find('\n', start) - start);

    if (progress) progress("downloading the guest's kernel, " + package + " (once; about 27 MB)");
    auto work = WorkFolder::create(kernels);
    if (!work) return std::unexpected(work.error());
    // As root, apt-get drops to a user that may not write here, warns, and goes on as root: asked for, it
    // does not warn.
    const auto fetched =
        run({"apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package}, work->path());
    if (!fetched) return std::unexpected(fetched.error());
    fs::path archive;
    for (const auto& entry : fs::directory_iterator(work->path()))
        if (entry.path().extension() == ".deb") archive = entry.path();
    if (!fetched->ok || archive.empty())
        return fail(package, "cannot download the guest's kernel: " + last_line(fetched->errors),
                    std::string("check the network and run `apt-get update` as root, ") + kOwnKernel);

    if (progress) progress("unpacking the guest's kernel");
    const fs::path boot = work->path() / "unpacked";
    std::error_code code;
    fs::create_directory(boot, code);
    const auto unpacked =
        run({"sh", "-c", "dpkg-deb --fsys-tarfile \"$1\" | tar -x -C \"$2\" --wildcards './boot/vmlinuz-*'",
             "sh", archive.string(), boot.string()});
    if (!unpacked) return std::unexpected(unpacked.error());
    fs::path file;
    for (const auto& entry : fs::directory_iterator(boot / "boot", code)) file = entry.path();
    if (!unpacked->ok || file.empty())
        return fail(package, "cannot unpack the guest's kernel: " + last_line(unpacked->errors),
                    std::string("check the space in ") + kernels.string() + ", " + kOwnKernel);
    return keep(file, kernels, *work);
}

Result<fs::path> kernels_in_cache() {
    auto cache = cache_folder();
    if (!cache) return std::unexpected(cache.error());
    std::error_code code;
    fs::create_directories(*cache / "kernels", code);
    if (code) return system_error((*cache / "kernels").string(), "cannot create", code.value());
    return *cache / "kernels";
}

}  // namespace

Result<Kernel> find_kernel(const std::optional<fs::path>& file, const Progress& progress) {
    if (file) return describe(*file);
    const auto kernels = kernels_in_cache();
    if (!kernels) return std::unexpected(kernels.error());
    if (const auto kept = newest_in_cache(*kernels)) return describe(*kept);
    if (const auto installed = newest_in_boot()) {
        auto work = WorkFolder::create(*kernels);
        if (!work) return std::unexpected(work.error());
        if (auto kernel = keep(*installed, *kernels, *work)) return kernel;
        // An unreadable /boot is no reason to stop.
    }
    return download(*kernels, progress);
}

}  // namespace tlbscope::capture
