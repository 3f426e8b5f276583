// Teardown: what each strategy reads is exact and comes from the layout, and the edges of free_range() are
// tried at every level's boundary.
#include <gtest/gtest.h>

#include "counting_meter.h"
#include "pagetable/arena.h"
#include "pagetable/tree.h"

namespace tlbscope::pagetable {
namespace {

using MeteredTree = BasicTree<CountingMeter>;
using MeteredCache = BasicTableCache<CountingMeter>;

struct World {
    explicit World(const Format& format, const CacheOptions& options = {})
        : cache(format, arena, options, &meter),
          tree(std::move(*MeteredTree::create(format, cache, meter))) {}
    ~World() {
        EXPECT_EQ(tree.unmap(VirtAddr(0), tree.format().user_end()), Status::kDone);
        tree.scan({});
        tree.release();
        EXPECT_TRUE(meter.tables.empty());
        EXPECT_EQ(meter.given_up_live, 0U);
    }
    Arena arena{PhysAddr(0x100000), 64 << 20};
    CountingMeter meter;
    MeteredCache cache;
    MeteredTree tree;
};

// FACTS of thread 2: a 32-bit task has one pgd entry, so free_page_tables reads 1023 + 2048 entries; its hack
// reads 1 + 512 of them, the 512 in 256 loads.
TEST(Scan, ReadsWhatThreadTwoSays) {
    struct Case {
        Scan how;
        std::uint64_t entries;
        std::uint64_t loads;
    };
    for (const auto& [how, entries, loads] :
         {Case{{}, 3071, 3071}, Case{{.pairs = true}, 3071, 511 + 1 + 1024},
          Case{{.only_32_bit = true}, 513, 513}, Case{{.only_32_bit = true, .pairs = true}, 513, 257}}) {
        for (const Format* format : {&kSparc64Linux22, &kSparc64}) {
            World world(*format);
            // Text, heap, and a stack below 4 GiB.
            for (const std::uint64_t at : {0x10000, 0x800000, 0x70000000})
                ASSERT_EQ(world.tree.map(VirtAddr(at), PhysAddr(0), PageShift(13), kRead | kUser),
                          Status::kDone);
            ASSERT_EQ(world.meter.tables.size(), 2U + 3U);
            ASSERT_EQ(world.tree.unmap(VirtAddr(0), std::uint64_t{1} << 32), Status::kDone);
            world.meter.entries_read = world.meter.loads = world.meter.entries_written = 0;
            world.tree.scan(how);
            EXPECT_EQ(world.meter.entries_read, entries);
            EXPECT_EQ(world.meter.loads, loads);
            EXPECT_EQ(world.meter.entries_written, 4U) << "three pmd entries and a pgd entry";
            EXPECT_EQ(world.meter.tables.size(), 1U);
            EXPECT_TRUE(world.tree.bare());
        }
    }
}

TEST(Scan, ReadsAllOfTheLayoutBefore) {
    World world(kSparc64Wide);
    ASSERT_EQ(world.tree.map(VirtAddr(0x10000), PhysAddr(0), PageShift(13), kRead), Status::kDone);
    ASSERT_EQ(world.tree.unmap(VirtAddr(0x10000), 8192), Status::kDone);
    world.meter.entries_read = 0;
    world.tree.scan({});
    EXPECT_EQ(world.meter.entries_read, 1024U + 1024U);
}

// The same pages freed range by range: only the entries of the ranges are read.
TEST(FreeRange, LeavesNothingToScan) {
    World world(kSparc64Linux22);
    for (const std::uint64_t at : {0x10000, 0x800000, 0x70000000})
        ASSERT_EQ(world.tree.map(VirtAddr(at), PhysAddr(0), PageShift(13), kRead), Status::kDone);
    std::uint64_t floor = 0;
    world.meter.entries_read = 0;
    const std::uint64_t starts[] = {0x10000, 0x800000, 0x70000000, 0};
    for (int n = 0; n < 3; ++n) {
        ASSERT_EQ(world.tree.unmap(VirtAddr(starts[n]), 8192), Status::kDone);
        world.tree.free_range(starts[n], starts[n] + 8192, floor, starts[n + 1]);
        floor = 0;  // what lay below is gone
    }
    // For each: unmap reads pgd, pmd, pte; free_range pgd and pmd, where its range is not empty.
    EXPECT_TRUE(world.tree.bare());
    EXPECT_EQ(world.meter.entries_read, 3U * 5U);
}

class Edges : public testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Every, Edges, testing::ValuesIn(formats().begin(), formats().end()),
                         [](const auto& of) {
                             std::string name(of.param->name);
                             for (char& c : name)
                                 if (c == '-' || c == '.') c = '_';
                             return name;
                         });

// Three pages around the border between two tables of each level: the last of one and the first of the next,
// with and without neighbours one page away on either side. What may go is told by which tables a page still
// needs.
TEST_P(Edges, AtEveryBoundary) {
    const Format& format = *GetParam();
    const std::uint64_t page = format.base_page().bytes();
    std::vector<std::uint64_t> borders{0, format.user_end()};
    for (const Level& level : format.levels) {
        const std::uint64_t border = std::uint64_t{1} << level.span_shift();
        if (border < format.user_end())
            borders.insert(borders.end(), {border, 2 * border % format.user_end()});
        borders.push_back(std::uint64_t{1} << level.shift);
    }
    for (const std::uint64_t border : borders)
        for (int pages = 1; pages < 64; ++pages) {
            // Bit n of `pages`: page n of six around the border is mapped; two and three are the range that
            // goes.
            World world(format);
            std::vector<std::uint64_t> mapped;
            std::vector<std::uint64_t> wanted;
            std::uint64_t floor = 0;
            std::uint64_t ceiling = 0;
            for (int n = 0; n < 6; ++n) {
                const std::uint64_t at = border + static_cast<std::uint64_t>(n) * page - 3 * page;
                if (at >= format.user_end() || (pages >> n & 1) == 0) continue;
                ASSERT_EQ(world.tree.map(VirtAddr(at), PhysAddr(0), format.base_page(), kRead),
                          Status::kDone);
                mapped.push_back(at);
                if (n < 2) floor = at + page;
                if (n > 3 && ceiling == 0) ceiling = at;
                if (n != 2 && n != 3) wanted.push_back(at);
            }
            const std::uint64_t first = border - page;
            const std::uint64_t start = first < format.user_end() ? first : border;
            const std::uint64_t end = border + page <= format.user_end() ? border + page : border;
            ASSERT_EQ(world.tree.unmap(VirtAddr(start), end - start), Status::kDone);
            world.tree.free_range(start, end, floor, ceiling);
            // Every table that is left holds something, and nothing that is wanted is gone.
            EXPECT_EQ(world.meter.given_up_live, 0U);
            for (const std::uint64_t at : wanted)
                EXPECT_EQ(world.tree.lookup(VirtAddr(at)).outcome, Outcome::kMapped) << std::hex << at;
            std::uint64_t empty = 0;
            for (const auto& [table, live] : world.meter.tables)
                if (live == 0 && table != world.tree.root().value()) ++empty;
            EXPECT_EQ(empty, 0U) << format.name << std::hex << " border " << border << " pages " << pages;
        }
}

TEST(FreeRange, KeepsATableThatANeighbourMayNeed) {
    World world(kX86);
    const std::uint64_t table = 2 << 20;
    ASSERT_EQ(world.tree.map(VirtAddr(4 * table + 0x3000), PhysAddr(0), PageShift(12), kRead), Status::kDone);
    ASSERT_EQ(world.tree.unmap(VirtAddr(4 * table + 0x3000), 4096), Status::kDone);
    const std::uint64_t before = world.meter.tables.size();
    // A neighbour that has no page yet still ends at the floor.
    world.tree.free_range(4 * table + 0x3000, 4 * table + 0x4000, 4 * table + 1, 0);
    EXPECT_EQ(world.meter.tables.size(), before);
    world.tree.free_range(4 * table + 0x3000, 4 * table + 0x4000, 0, 5 * table - 1);
    EXPECT_EQ(world.meter.tables.size(), before);
    // Floor and ceiling on the table's edges: it goes, its upper tables are needed by the neighbours.
    world.tree.free_range(4 * table + 0x3000, 4 * table + 0x4000, 4 * table, 5 * table);
    EXPECT_EQ(world.meter.tables.size(), before - 1);
    world.tree.free_range(4 * table + 0x3000, 4 * table + 0x4000, 0, 1 << 30);
    EXPECT_EQ(world.meter.tables.size(), before - 2) << "the pmd goes, the pud is needed above 1 GiB";
    world.tree.free_range(4 * table + 0x3000, 4 * table + 0x4000, 0, 0);
    EXPECT_EQ(world.meter.tables.size(), before - 3) << "without neighbours the pud goes too";
}

TEST(Cache, Policies) {
    struct Case {
        CachePolicy policy;
        std::uint64_t kept_after_trim;
    };
    // A hundred tables of the last level, given up at once.
    for (const auto& [policy, kept] :
         {Case{CachePolicy::kNone, 0}, Case{CachePolicy::kLinux22, 100}, Case{CachePolicy::kLinux24, 25},
          Case{CachePolicy::kQuicklist, 100 - 16}}) {
        Arena arena(PhysAddr(0x100000), 64 << 20);
        Unmetered meter;
        TableCache cache(kSv39, arena, {.policy = policy, .cpus = 2}, &meter);
        std::vector<PhysAddr> tables;
        for (int n = 0; n < 100; ++n) tables.push_back(cache.take(2).value());
        for (const PhysAddr table : tables) cache.give(table, 2);
        EXPECT_EQ(cache.held(0), policy == CachePolicy::kNone ? 0U : 100U);
        cache.trim();
        EXPECT_EQ(cache.held(0), kept) << static_cast<int>(policy);
        EXPECT_EQ(arena.blocks_in_use(), kept);
        EXPECT_EQ(cache.bytes_held(), kept * 4096);
        // Another CPU's list is empty, this one's serves the table that was freed last.
        cache.run_on(1);
        cache.give(cache.take(2).value(), 2);
        EXPECT_EQ(cache.counts().from_cache, 0U);
        cache.run_on(0);
        const PhysAddr again = cache.take(2).value();
        EXPECT_EQ(cache.counts().from_cache, policy == CachePolicy::kNone ? 0U : 1U);
        cache.give(again, 2);
        cache.drain();
        EXPECT_EQ(arena.blocks_in_use(), 0U);
        EXPECT_EQ(cache.counts().allocated, cache.counts().freed);
        EXPECT_EQ(cache.counts().zeroed, cache.counts().allocated);
        EXPECT_EQ(cache.counts().refused, 0U);
    }
}

TEST(Cache, SharesListsAsItsPolicySays) {
    Arena arena(PhysAddr(0x100000), 64 << 20);
    Unmetered meter;
    // sparc64 of 2.2: a pmd table serves as a pte table; a root does not, nor does it with 2.4's lists.
    for (const auto& [policy, shared] : {std::pair{CachePolicy::kLinux22, true},
                                         {CachePolicy::kLinux24, false},
                                         {CachePolicy::kQuicklist, true}}) {
        TableCache cache(kSparc64, arena, {.policy = policy}, &meter);
        const PhysAddr pmd = cache.take(1).value();
        cache.give(pmd, 1);
        const PhysAddr pte = cache.take(2).value();
        EXPECT_EQ(pte == pmd, shared);
        const PhysAddr root = cache.take(0).value();
        EXPECT_NE(root, pmd);
        cache.give(pte, 2);
        cache.give(root, 0);
    }
}

#ifndef NDEBUG
TEST(CacheDeathTest, VerifiesWhatItHandsOut) {
    Arena arena(PhysAddr(0x100000), 1 << 20);
    Unmetered meter;
    TableCache cache(kX86, arena, {.policy = CachePolicy::kLinux24}, &meter);
    const PhysAddr table = cache.take(3).value();
    cache.give(table, 3);
    arena.at(table)[100] = std::byte{1};
    EXPECT_DEATH((void)cache.take(3), "every entry none");
    arena.at(table)[100] = std::byte{0};
}
#endif

TEST(Arena, RefusesWhatIsNotAllocated) {
    Arena arena(PhysAddr(0x100000), 1 << 20);
    const PhysAddr block = arena.allocate(4096).value();
    EXPECT_EQ(block.value() % 4096, 0U);
    EXPECT_FALSE(arena.release(block, 8192));
    EXPECT_FALSE(arena.release(PhysAddr(block.value() + 256), 256));
    EXPECT_FALSE(arena.release(PhysAddr(0), 4096));
    EXPECT_TRUE(arena.release(block, 4096));
    EXPECT_FALSE(arena.release(block, 4096)) << "twice";
    EXPECT_FALSE(arena.allocate(1 << 17).has_value());
    const PhysAddr small = arena.allocate(256).value();
    const PhysAddr large = arena.allocate(65536).value();
    EXPECT_EQ(large.value() % 65536, 0U);
    EXPECT_EQ(arena.allocate(4096).value(), block) << "the block freed last";
    EXPECT_TRUE(arena.release(small, 256));
    while (arena.allocate(65536)) {
    }
    EXPECT_FALSE(arena.allocate(65536).has_value());
    std::uint64_t word = 0;
    EXPECT_FALSE(arena.load(PhysAddr(0x100000 + (1 << 20)), &word, 8));
    EXPECT_FALSE(arena.load(PhysAddr(0x100000 + (1 << 20) - 4), &word, 8));
    EXPECT_TRUE(arena.load(PhysAddr(0x100000 + (1 << 20) - 8), &word, 8));
}

}  // namespace
}  // namespace tlbscope::pagetable
