// Whatever a guest sends over the channel, the report is read or refused, and what it says of tasks and
// mappings is made sense of or not.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <vector>

#include "capture/guest/places.h"
#include "capture/guest/report.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tlbscope;
    std::vector<std::uint16_t> units(size / 2);
    for (std::size_t i = 0; i < units.size(); ++i)
        units[i] = static_cast<std::uint16_t>(data[2 * i] | data[2 * i + 1] << 8);

    // In pieces of any size the result is the same.
    capture::GuestReport whole;
    capture::GuestReport pieces;
    const bool good = whole.feed(units).has_value();
    bool good_pieces = true;
    const std::size_t piece = size % 7 + 1;
    for (std::size_t at = 0; at < units.size() && good_pieces; at += piece)
        good_pieces =
            pieces.feed(std::span(units).subspan(at, std::min(piece, units.size() - at))).has_value();
    if (good != good_pieces || whole.units() != pieces.units() || whole.facts().out != pieces.facts().out)
        std::abort();

    static_cast<void>(capture::outcome(whole.facts()));
    for (const auto& [cpu, bytes] : whole.facts().perf) static_cast<void>(capture::parse_perf(bytes, true));
    std::vector<capture::CpuSwitches> switches(1);
    for (std::uint64_t task = 1; task < 6; ++task)
        switches[0].switches.push_back(
            {.task = task % 3, .space = SpaceId(static_cast<std::uint32_t>(task % 3))});
    switches[0].begin = 1;
    switches[0].end = 4;
    static_cast<void>(capture::guest_places(whole.facts(), switches, {}));
    return 0;
}
