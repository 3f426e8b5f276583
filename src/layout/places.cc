#include "layout/places.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace tlbscope::layout {

namespace {

using recording::MappedRange;

constexpr std::uint64_t kPage = 4096;

// `_text` and its address in kallsyms; a kernel with a randomised base lies elsewhere than its file says.
std::optional<std::uint64_t> address_of_text(std::string_view kallsyms, std::string_view name) {
    while (!kallsyms.empty()) {
        const std::size_t end = kallsyms.find('\n');
        const std::string_view line = kallsyms.substr(0, end);
        kallsyms.remove_prefix(end == std::string_view::npos ? kallsyms.size() : end + 1);
        const std::size_t space = line.find(' ');
        if (space == std::string_view::npos || line.size() < space + 4 || line.substr(space + 3) != name)
            continue;
        return std::strtoull(std::string(line.substr(0, space)).c_str(), nullptr, 16);
    }
    return std::nullopt;
}

std::unexpected<Error> other_build(const Image& image, const std::string& recorded) {
    return fail(image.path,
                fmt::format("it is another build than the one that ran (build-id {}, recorded {})",
                            image.build_id.empty() ? "none" : image.build_id, recorded),
                "give the file that ran with --image, or record this one");
}

}  // namespace

std::optional<std::string> program_of(const recording::Metadata& metadata) {
    if (metadata.system) return std::nullopt;
    // The program's maps come first: QEMU loads it before its interpreter.
    for (const MappedRange& range : metadata.maps)
        if (range.path.starts_with("/")) return range.path;
    return std::nullopt;
}

Result<Places> Places::find(const recording::Recording& recording, const Image& image) {
    const recording::Metadata& metadata = recording.metadata();
    Places places;
    places.low_ = ~std::uint64_t{0};
    for (const Image::Segment& s : image.segments) {
        places.low_ = std::min(places.low_, s.address);
        places.high_ = std::max(places.high_, s.address + s.memory_bytes);
    }
    if (image.segments.empty() && !image.outputs.empty()) {
        places.low_ = image.outputs.front().start;
        places.high_ = image.outputs.back().end;
    }
    if (image.kernel) {
        places.kernel_ = true;
        if (!metadata.system)
            return fail(recording.path().string(), "it holds no kernel code", "record with --system");
        if (!metadata.kernel_build_id.empty() && !image.build_id.empty() &&
            metadata.kernel_build_id != image.build_id)
            return other_build(image, metadata.kernel_build_id);
        const auto symbols = recording.kernel_symbols();
        if (!symbols) return std::unexpected(symbols.error());
        const Function* known = nullptr;
        std::size_t checked = 0;
        std::size_t apart = 0;
        for (const char* name : {"start_kernel", "vfs_read", "do_idle", "schedule"}) {
            const auto at = address_of_text(*symbols, name);
            const auto function = std::find_if(image.functions.begin(), image.functions.end(),
                                               [&](const Function& f) { return f.name == name; });
            if (!at || function == image.functions.end()) continue;
            const std::uint64_t bias = *at - function->start;
            if (known == nullptr) {
                known = &*function;
                places.kernel_bias_ = bias;
            }
            ++checked;
            if (bias != places.kernel_bias_) ++apart;
        }
        if (apart > 0)
            return fail(image.path, "its functions do not lie where the recorded kernel's symbols say",
                        "give the vmlinux of the kernel that ran with --image");
        if (checked == 0)
            places.notes_.push_back(
                fmt::format("{}: the recording has no kernel symbols to check the image against",
                            recording.path().string()));
        return places;
    }
    const std::string base_name = std::filesystem::path(image.path).filename().string();
    std::string recorded_id;
    // By build-id, else by path, else by the file's name alone.
    const auto matches = [&](const MappedRange& range, int how) {
        if (how == 0) return !image.build_id.empty() && range.build_id == image.build_id;
        if (how == 1) return range.path == image.path;
        return std::filesystem::path(range.path).filename() == base_name;
    };
    std::string path;
    for (int how = 0; how < 3 && path.empty(); ++how)
        for (const MappedRange& range : metadata.maps)
            if (matches(range, how)) {
                path = range.path;
                break;
            }
    if (path.empty())
        return fail(recording.path().string(), fmt::format("{} is none of the files that ran", image.path),
                    "`tlbscope info --json` lists them; give one of those with --image");
    for (const MappedRange& range : metadata.maps)
        if (range.path == path && !range.build_id.empty()) recorded_id = range.build_id;
    if (!recorded_id.empty() && recorded_id != image.build_id) return other_build(image, recorded_id);
    if (recorded_id.empty())
        places.notes_.push_back(
            fmt::format("{}: it has no build-id, so whether it is the build that ran could not "
                        "be checked; link with -Wl,--build-id",
                        image.path));
    for (const MappedRange& range : metadata.maps) {
        if (range.path != path || places.biases_.contains(range.space)) continue;
        for (const Image::Segment& s : image.segments) {
            const std::uint64_t start = s.offset & ~(kPage - 1);
            if (range.file_offset < start ||
                range.file_offset >= s.offset + std::max<std::uint64_t>(s.bytes, 1))
                continue;
            places.biases_[range.space] = range.start.value() - (s.address - s.offset + range.file_offset);
            break;
        }
    }
    if (places.biases_.empty())
        return fail(image.path, "none of its segments lies where the recording maps the file",
                    "give the file that ran with --image");
    return places;
}

std::optional<std::uint64_t> Places::bias(SpaceId space) const {
    if (kernel_) return kernel_bias_;
    const auto known = biases_.find(space);
    if (known == biases_.end()) return std::nullopt;
    return known->second;
}

}  // namespace tlbscope::layout
