// Whatever a machine file and a --set say, the parser ends with a machine that works or with an error. The
// first line of the input, up to a newline, is the --set; it may be empty.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "machine/machine_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const std::size_t line = text.find('\n');
    std::vector<std::string> changes;
    if (line != std::string::npos && line > 0 && text.front() != '#') changes.push_back(text.substr(0, line));
    const auto machine = tlbscope::machine::parse_machine(
        line == std::string::npos ? text : text.substr(line + 1), "fuzz.toml", changes);
    if (!machine) {
        if (machine.error().message().empty()) std::abort();
        return 0;
    }
    // What a replay takes for granted: base pages of either kind have an array, and levels count up.
    std::uint32_t level = 1;
    for (const auto& tlb : machine->tlbs) {
        if (tlb.level != level && tlb.level != ++level) std::abort();
        if (tlb.pages.empty()) std::abort();
    }
    for (const auto kind : {tlbscope::Kind::kInstruction, tlbscope::Kind::kData})
        if (machine->tlb(kind).level != 1 || !machine->tlb(kind).serves(kind)) std::abort();
    for (const auto& tlb : machine->tlbs) {
        // Replay divides by these.
        if (tlb.geometry.entries == 0 || tlb.geometry.ways == 0 ||
            tlb.geometry.entries % tlb.geometry.ways != 0 || tlb.geometry.reserved >= tlb.geometry.ways)
            std::abort();
        if (tlb.geometry.entries > 4096) continue;
        const auto array = tlbscope::machine::make_tlb(tlb.geometry, 0);
        std::vector<std::uint64_t> keys;
        for (std::uint64_t page = 0; page < 64; ++page) keys.push_back(page * page % 48);
        std::vector<std::uint32_t> misses(keys.size());
        const std::size_t missed = array->run(keys, misses.data());
        if (array->counts().found + missed != keys.size() || array->counts().refills != missed) std::abort();
    }
    return 0;
}
