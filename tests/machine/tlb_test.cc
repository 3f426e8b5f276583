// The fast arrays against the reference, over everything that fits in a tiny world, and by hand where a
// manual says what happens.
#include "machine/tlb.h"

#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "support/reference_tlb.h"
#include "support/traces.h"

namespace tlbscope::machine {
namespace {

constexpr Replacement kPolicies[] = {Replacement::kFifo,     Replacement::kFifoDown, Replacement::kLru,
                                     Replacement::kTreePlru, Replacement::kNru,      Replacement::kRandom};

std::vector<TlbGeometry> tiny_geometries() {
    std::vector<TlbGeometry> geometries;
    for (const Replacement policy : kPolicies)
        for (const auto& [entries, ways, reserved] : std::vector<std::array<std::uint32_t, 3>>{
                 {3, 3, 0}, {3, 1, 0}, {3, 3, 1}, {3, 3, 2}, {2, 2, 0}, {4, 2, 0}, {1, 1, 0}, {6, 2, 0}})
            if (policy != Replacement::kTreePlru || (std::has_single_bit(ways) && reserved == 0))
                geometries.push_back({.entries = entries,
                                      .ways = ways,
                                      .reserved = reserved,
                                      .replacement = policy,
                                      .seed = 5});
    return geometries;
}

std::string describe(const TlbGeometry& g) {
    return std::string(name_of(g.replacement)) + " " + std::to_string(g.entries) + "/" +
           std::to_string(g.ways) + " r" + std::to_string(g.reserved);
}

// What a letter of a trace does: one of four pages (two of space 1, one of space 2, one of the kernel), or a
// drop.
struct Letter {
    std::uint64_t page;
    std::uint16_t tag;
};
constexpr Letter kPages[] = {{0, 1}, {1, 1}, {2, 2}, {3, 0}};
constexpr unsigned kDropSpace = 4;
constexpr unsigned kFlush = 5;

void compare(const TlbGeometry& geometry, const std::vector<unsigned>& trace) {
    const auto fast = make_tlb(geometry, 0);
    reference::Tlb slow(geometry, 0);
    std::uint64_t misses = 0;
    for (std::size_t i = 0; i < trace.size(); ++i) {
        if (trace[i] == kDropSpace) {
            fast->drop_tag(1);
            slow.drop_space(1);
        } else if (trace[i] == kFlush) {
            fast->flush_all();
            slow.flush_all();
        } else {
            const Letter& letter = kPages[trace[i]];
            const std::uint64_t key = key_of(letter.page, letter.tag);
            std::uint32_t missed = 0;
            const bool hit = fast->run({&key, 1}, &missed) == 0;
            const bool wanted =
                slow.look_up({.kernel = letter.tag == 0, .space = letter.tag, .page = letter.page});
            if (hit != wanted) {
                std::string text;
                for (const unsigned l : trace) text += std::to_string(l);
                FAIL() << describe(geometry) << ", trace " << text << ", touch " << i;
            }
            misses += hit ? 0 : 1;
        }
    }
    ASSERT_EQ(fast->counts().refills, misses);
    ASSERT_EQ(fast->counts().evicted + fast->counts().dropped + fast->resident(), misses);
}

// All traces of exactly `length` letters; shorter ones are their beginnings.
void every_trace(unsigned letters, std::size_t length) {
    for (const TlbGeometry& geometry : tiny_geometries()) {
        std::vector<unsigned> trace(length, 0);
        for (;;) {
            ASSERT_NO_FATAL_FAILURE(compare(geometry, trace));
            std::size_t at = 0;
            while (at < length && ++trace[at] == letters) trace[at++] = 0;
            if (at == length) break;
        }
    }
}

TEST(Tlb, EqualsTheReferenceOnEveryTraceOfSevenTouches) { every_trace(4, 7); }

TEST(Tlb, EqualsTheReferenceOnEveryTraceWithDropsAndFlushes) { every_trace(6, 6); }

TEST(Tlb, RunsOverManyKeysLikeOneByOne) {
    const std::uint64_t seed = reference::seed();
    SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
    Random random(seed);
    for (int repeat = 0; repeat < 200; ++repeat) {
        const TlbGeometry geometry = reference::random_machine(random).tlbs[0].geometry;
        const auto fast = make_tlb(geometry, 3);
        reference::Tlb slow(geometry, 3);
        const std::uint32_t pages = 1 + random.below(geometry.entries * 2 + 2);
        for (int part = 0; part < 5; ++part) {
            std::vector<std::uint64_t> keys(random.below(300));
            std::vector<std::uint32_t> wanted;
            for (std::size_t i = 0; i < keys.size(); ++i) {
                const std::uint64_t page = random.below(pages) * 0x10001ull;
                const auto tag = static_cast<std::uint16_t>(random.below(3));
                keys[i] = key_of(page, tag);
                if (!slow.look_up({.kernel = tag == 0, .space = tag, .page = page}))
                    wanted.push_back(static_cast<std::uint32_t>(i));
            }
            std::vector<std::uint32_t> misses(keys.size());
            misses.resize(fast->run(keys, misses.data()));
            ASSERT_EQ(misses, wanted) << describe(geometry);
            if (random.below(3) == 0) {
                fast->drop_tag(2);
                slow.drop_space(2);
            }
        }
    }
}

std::vector<std::uint64_t> pages_in(const Tlb& tlb) {
    std::vector<std::uint64_t> pages;
    for (const std::uint64_t key : tlb.contents()) pages.push_back(key == kNoKey ? 99 : page_of(key));
    return pages;
}

void load(Tlb& tlb, std::vector<std::uint64_t> pages) {
    for (auto& page : pages) page = key_of(page, 1);
    std::vector<std::uint32_t> misses(pages.size());
    ASSERT_EQ(tlb.run(pages, misses.data()), pages.size());
}

// MPC801 UM 11.8.2: the index starts at 0, counts down after each reload, and stays below the reserved
// entries.
TEST(Tlb, CountsDownFromZeroBelowTheReservedEntries) {
    const auto tlb =
        make_tlb({.entries = 6, .ways = 6, .reserved = 2, .replacement = Replacement::kFifoDown}, 0);
    load(*tlb, {10, 11, 12});
    EXPECT_EQ(pages_in(*tlb), (std::vector<std::uint64_t>{10, 99, 12, 11, 99, 99}));
    load(*tlb, {13, 14});
    EXPECT_EQ(pages_in(*tlb), (std::vector<std::uint64_t>{14, 13, 12, 11, 99, 99}));
}

TEST(Tlb, FlushAllClearsTheIndex) {
    const auto tlb = make_tlb({.entries = 4, .ways = 4, .replacement = Replacement::kFifoDown}, 0);
    load(*tlb, {10, 11});
    tlb->flush_all();
    EXPECT_EQ(tlb->resident(), 0u);
    load(*tlb, {12});
    EXPECT_EQ(pages_in(*tlb), (std::vector<std::uint64_t>{12, 99, 99, 99}));
}

TEST(Tlb, DroppingASpaceLeavesTheIndexWhereItIs) {
    const auto tlb = make_tlb({.entries = 3, .ways = 3, .replacement = Replacement::kFifo}, 0);
    load(*tlb, {10, 11});
    tlb->drop_tag(1);
    load(*tlb, {12});
    EXPECT_EQ(pages_in(*tlb), (std::vector<std::uint64_t>{99, 99, 12}));
}

// Pinned so that random replacement means the same everywhere and for ever.
TEST(Random, GivesTheNumbersOfItsPaper) {
    Random random(1234567);
    EXPECT_EQ(random.next(), 6457827717110365317u);
    EXPECT_EQ(random.next(), 3203168211198807973u);
    EXPECT_EQ(random.next(), 9817491932198370423u);
    for (int i = 0; i < 1000; ++i) EXPECT_LT(random.below(3), 3u);
}

}  // namespace
}  // namespace tlbscope::machine
