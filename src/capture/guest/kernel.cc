// Debian's "cloud" kernel is taken because it has what a virtual machine needs built in, half the code of the
// general one, and boots in half the time. linux-image-cloud-amd64 names the current version; that version's
// package holds the file.
#include "capture/guest/kernel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fmt/format.h>

#include "capture/process.h"
#include "core/files.h"

namespace tlbscope::capture {

namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnKernel = ", or give a kernel file with --kernel";

// Where a distribution's kernel comes from and what it is called there.
struct Source {
    std::string_view guest;
    const char* debian;        // Debian's name of the architecture; empty: the host's
    const char* meta_package;  // names the current version's package
    const char* flavour;       // end of the release
    const char* file;          // in /boot, before "-RELEASE"
    const char* size;
};
constexpr Source kSources[] = {
    {"x86_64", "", "linux-image-cloud-amd64", "-cloud-amd64", "vmlinuz", "27 MB"},
    {"ppc64le", "ppc64el", "linux-image-powerpc64le", "-powerpc64le", "vmlinux", "49 MB"},
};

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

Result<Kernel> describe(const fs::path& path, const Architecture& architecture) {
    const auto file = MappedFile::open(path);
    if (!file) return std::unexpected(file.error());
    if (architecture.name != "x86_64") {
        const auto elf = read_elf(path);
        if (!elf || !architecture.runs(*elf))
            return fail(path.string(),
                        fmt::format("is not a Linux kernel for {} (an ELF file)", architecture.name),
                        "name the vmlinux of such a kernel");
        return Kernel{.path = path, .release = "", .hash = content_hash(file->bytes())};
    }
    const auto release = release_of(path, file->bytes());
    if (!release) return std::unexpected(release.error());
    return Kernel{.path = path, .release = *release, .hash = content_hash(file->bytes())};
}

// "linux-image-6.1.0-57-cloud-amd64" < "linux-image-6.1.0-103-cloud-amd64": numbers inside names count as
// numbers.
bool older(const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; }

std::optional<fs::path> newest_in_cache(const fs::path& kernels, const Source& source) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(kernels, ignored))
        if (const std::string name = entry.path().filename().string();
            name.ends_with(source.flavour) && fs::is_regular_file(entry.path() / source.file, ignored))
            names.push_back(name);
    if (names.empty()) return std::nullopt;
    return kernels / *std::max_element(names.begin(), names.end(), older) / source.file;
}

std::optional<fs::path> newest_in_boot(const Source& source) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator("/boot", ignored)) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(std::string(source.file) + "-") && name.ends_with(source.flavour))
            names.push_back(name);
    }
    if (names.empty()) return std::nullopt;
    return "/boot/" + *std::max_element(names.begin(), names.end(), older);
}

// The file, complete, under its release in the cache.
Result<Kernel> keep(const fs::path& file, const fs::path& kernels, const WorkFolder& work,
                    const Source& source, const Architecture& architecture) {
    const auto kernel = describe(file, architecture);
    if (!kernel) return kernel;
    // An ELF file does not say it at a fixed place, its name in the package does.
    const std::string release = kernel->release.empty()
                                    ? file.filename().string().substr(std::strlen(source.file) + 1)
                                    : kernel->release;
    const fs::path staged = work.path() / "staged";
    std::error_code code;
    fs::create_directory(staged, code);
    if (!code) fs::copy_file(file, staged / source.file, fs::copy_options::overwrite_existing, code);
    if (code) return system_error(staged.string(), "cannot keep the kernel", code.value());
    const fs::path home = kernels / release;
    fs::rename(staged, home, code);
    // Another run may have put it there in the meantime, which is as good.
    if (code && !fs::exists(home / source.file))
        return system_error(home.string(), "cannot keep the kernel", code.value());
    return describe(home / source.file, architecture);
}

Result<Kernel> download(const fs::path& kernels, const Progress& progress, const Source& source,
                        const Architecture& architecture) {
    const auto packages = Packages::of(source.debian, progress);
    if (!packages) return std::unexpected(packages.error());
    const auto package = packages->first_dependency(source.meta_package);
    if (!package)
        return fail(
            "", "no kernel for the guest: none is kept or installed, and apt-cache is not here to find one",
            "give a kernel file with --kernel");
    if (!package->starts_with("linux-image-"))
        return fail(source.meta_package, "apt does not know this package, so the guest has no kernel",
                    std::string("run `apt-get update` as root") + kOwnKernel);

    if (progress)
        progress(fmt::format("downloading the guest's kernel, {} (once; about {})", *package, source.size));
    auto work = WorkFolder::create(kernels);
    if (!work) return std::unexpected(work.error());
    const auto archive = packages->download(*package, work->path(), "the guest's kernel", kOwnKernel);
    if (!archive) return std::unexpected(archive.error());

    if (progress) progress("unpacking the guest's kernel");
    const fs::path unpacked = work->path() / "unpacked";
    const auto found = unpack(*archive, fmt::format("./boot/{}-*", source.file), unpacked);
    if (!found) return std::unexpected(found.error());
    fs::path file;
    std::error_code code;
    for (const auto& entry : fs::directory_iterator(unpacked / "boot", code)) file = entry.path();
    if (!*found || file.empty())
        return fail(*package, "cannot unpack the guest's kernel",
                    std::string("check the space in ") + kernels.string() + kOwnKernel);
    return keep(file, kernels, *work, source, architecture);
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

Result<Kernel> find_kernel(const std::optional<fs::path>& file, const Progress& progress,
                           const Architecture& architecture) {
    if (file) return describe(*file, architecture);
    const auto kernels = kernels_in_cache();
    if (!kernels) return std::unexpected(kernels.error());
    const auto* source = std::find_if(std::begin(kSources), std::end(kSources),
                                      [&](const Source& s) { return s.guest == architecture.name; });
    if (source == std::end(kSources)) {
        const fs::path built = *kernels / architecture.name / "vmlinux";
        if (fs::exists(built)) return describe(built, architecture);
        return fail(
            built.string(), fmt::format("the kernel of {} guests is not built", architecture.name),
            fmt::format("run scripts/build-{}-kernel once (some minutes){}", architecture.name, kOwnKernel));
    }
    if (const auto kept = newest_in_cache(*kernels, *source)) return describe(*kept, architecture);
    if (const auto installed = newest_in_boot(*source)) {
        auto work = WorkFolder::create(*kernels);
        if (!work) return std::unexpected(work.error());
        if (auto kernel = keep(*installed, *kernels, *work, *source, architecture)) return kernel;
        // An unreadable /boot is no reason to stop.
    }
    return download(*kernels, progress, *source, architecture);
}

}  // namespace tlbscope::capture
