// Page tables in a memory of anything: a walk ends, a listing ends, and what they say agrees. The first byte
// chooses the format, the next eight an address; the rest is the image, in which a kdump or an ELF core may
// hide.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include "image/image.h"
#include "memory_file.h"
#include "pagetable/listing.h"
#include "pagetable/walk.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tlbscope;
    using namespace tlbscope::pagetable;
    if (size < 9) return 0;
    const Format& format = *formats()[data[0] % formats().size()];
    std::uint64_t address = 0;
    std::memcpy(&address, data + 1, sizeof address);
    const fuzz::MemoryFile file(std::span(data + 9, size - 9));
    const auto image = image::open_image(file.path(), 0);
    if (!image) {
        if (image.error().message().empty()) std::abort();
        return 0;
    }
    const auto find = [&](std::uint64_t at) { return walk(format, **image, PhysAddr(0), VirtAddr(at)); };
    const Walk found = find(address);
    if (found.count > kMostSteps || (found.outcome == Outcome::kMalformed) != (found.why != nullptr))
        std::abort();
    std::array<PhysAddr, kMostSteps> entries;
    if (entry_addresses(format, **image, PhysAddr(0), VirtAddr(address), entries) != found.count)
        std::abort();
    const Listing listing = list_all(format, **image, PhysAddr(0), {.most = 4096});
    // What is listed is what a walk finds: at both ends of a run.
    for (std::size_t n = 0; n < std::min<std::size_t>(listing.runs.size(), 64); ++n) {
        const Run& run = listing.runs[n];
        for (const std::uint64_t offset : {std::uint64_t{0}, run.bytes - 1}) {
            const Walk end = find(run.start.value() + offset);
            if (end.outcome != Outcome::kMapped) std::abort();
            if (end.physical(run.start.value() + offset).value() != run.physical.value() + offset)
                std::abort();
        }
    }
    return 0;
}
