// Prints executed addresses and what they are called, for a comparison with another symboliser:
//
//     name_samples RECORDING NUMBER [--debug-path DIR]     "ADDRESS OBJECT MAP_START FILE_OFFSET FUNCTION"
//     each name_samples RECORDING kallsyms                      the recording's kernel symbols
//
// The samples are spread evenly over the executed blocks in order of address. FILE_OFFSET is where the
// address is in the file; for the kernel both numbers are 0.
#include <fmt/format.h>

#include <cstdlib>
#include <set>
#include <string>

#include "explain/names.h"
#include "recording/recording.h"

using namespace tlbscope;

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    auto recording = recording::Recording::open(argv[1]);
    if (!recording) {
        fmt::print(stderr, "{}\n", recording.error().message());
        return 1;
    }
    if (std::string(argv[2]) == "kallsyms") {
        if (const auto text = recording->kernel_symbols()) fmt::print("{}", *text);
        return 0;
    }
    explain::NameOptions options;
    options.find_stacks = false;
    options.demangle = false;
    for (int i = 3; i + 1 < argc; i += 2) options.debug_folders.emplace_back(argv[i + 1]);
    auto names = explain::Names::load(*recording, options);
    if (!names) return 1;
    const recording::Metadata& metadata = recording->metadata();
    // Every instruction counts, not only a block's first.
    std::set<std::uint64_t> addresses;
    for (const recording::Block& block : recording->dictionary().blocks())
        for (std::size_t i = 0; i < block.instructions; ++i)
            addresses.insert(recording->dictionary().instruction_address(block, i).value());
    const std::size_t wanted = std::strtoul(argv[2], nullptr, 10);
    const std::size_t step = std::max<std::size_t>(1, addresses.size() / std::max<std::size_t>(1, wanted));
    std::size_t n = 0;
    for (const std::uint64_t address : addresses) {
        if (n++ % step != 0) continue;
        std::uint64_t start = 0;
        std::uint64_t offset = 0;
        for (const recording::MappedRange& range : metadata.maps)
            if (range.space == SpaceId(0) && address >= range.start.value() && address < range.end.value()) {
                start = range.start.value();
                offset = address - start + range.file_offset;
            }
        const explain::Name name = names->function_at(SpaceId(0), VirtAddr(address));
        fmt::print("{:#x} {} {:#x} {:#x} {}\n", address, name.object.empty() ? "-" : name.object, start,
                   offset, name.function);
    }
    return 0;
}
