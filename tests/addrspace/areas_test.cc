// Areas against an array with a byte for every page.
#include "addrspace/areas.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace tlbscope::addrspace {
namespace {

TEST(Areas, AreWhatAnArraySays) {
    constexpr std::uint64_t kPages = 40;
    for (std::uint32_t seed = 1; seed <= 50; ++seed) {
        std::mt19937 random(seed);
        Areas areas;
        std::array<int, kPages> oracle{};  // protection + 1; 0: not mapped
        for (int step = 0; step < 200; ++step) {
            const std::uint64_t start = random() % kPages;
            const std::uint64_t end = start + 1 + random() % (kPages - start);
            const auto protection = static_cast<std::uint8_t>(random() % 8);
            std::uint64_t bytes = 0;
            std::uint64_t wanted = 0;
            for (std::uint64_t page = start; page < end; ++page) wanted += oracle[page] != 0 ? 1 : 0;
            switch (random() % 3) {
                case 0:
                    for (const Area& gone : areas.map({start, end, protection, false}))
                        bytes += gone.end - gone.start;
                    std::fill(oracle.begin() + static_cast<std::ptrdiff_t>(start),
                              oracle.begin() + static_cast<std::ptrdiff_t>(end), protection + 1);
                    break;
                case 1:
                    for (const Area& gone : areas.unmap(start, end)) bytes += gone.end - gone.start;
                    std::fill(oracle.begin() + static_cast<std::ptrdiff_t>(start),
                              oracle.begin() + static_cast<std::ptrdiff_t>(end), 0);
                    break;
                default:
                    for (const Area& changed : areas.protect(start, end, protection))
                        bytes += changed.end - changed.start;
                    for (std::uint64_t page = start; page < end; ++page)
                        if (oracle[page] != 0) oracle[page] = protection + 1;
            }
            ASSERT_EQ(bytes, wanted) << "seed " << seed;
            std::uint64_t total = 0;
            for (std::uint64_t page = 0; page < kPages; ++page) {
                const auto area = areas.find(page);
                ASSERT_EQ(area ? area->protection + 1 : 0, oracle[page])
                    << "seed " << seed << " page " << page;
                total += oracle[page] != 0 ? 1 : 0;
                if (oracle[page] != 0) continue;
                std::uint64_t below = page;
                while (below != 0 && oracle[below - 1] == 0) --below;
                std::uint64_t above = page;
                while (above < kPages && oracle[above] == 0) ++above;
                ASSERT_EQ(areas.end_below(page), below);
                ASSERT_EQ(areas.start_above(page).value_or(kPages), above);
            }
            ASSERT_EQ(areas.bytes(), total);
        }
    }
}

}  // namespace
}  // namespace tlbscope::addrspace
