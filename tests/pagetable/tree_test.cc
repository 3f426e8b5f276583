// A tree against the plainest thing that could hold the same pages, a std::map, over seeded random
// operations, for every format; and what the operations refuse.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>

#include "counting_meter.h"
#include "pagetable/arena.h"
#include "pagetable/tree.h"

namespace tlbscope::pagetable {
namespace {

using MeteredTree = BasicTree<CountingMeter>;
using MeteredCache = BasicTableCache<CountingMeter>;

struct Mapped {
    std::uint64_t page = 0;
    unsigned shift = 0;
    Flags flags = 0;
    friend bool operator==(const Mapped&, const Mapped&) = default;
};
using Oracle = std::map<std::uint64_t, Mapped>;

// What a format keeps of flags; that it is idempotent is tested with the formats.
Flags kept(const Format& format, const PageSize& size, Flags flags) {
    return format.decode(format, size.level, format.encode_page(format, size, PhysAddr(0), flags)).flags;
}

void expect_equal(MeteredTree& tree, const Oracle& oracle, std::uint64_t start, std::uint64_t bytes) {
    Oracle found;
    tree.each_page(VirtAddr(start), bytes, [&](VirtAddr at, const Entry& entry) {
        found[at.value()] = {entry.address.value(), entry.size.value(), entry.flags};
    });
    ASSERT_EQ(found.size(), oracle.size());
    for (auto a = found.begin(), b = Oracle(oracle).begin(); a != found.end(); ++a) {
        const auto same = oracle.find(a->first);
        ASSERT_TRUE(same != oracle.end() && same->second == a->second) << std::hex << a->first;
        (void)b;
    }
}

// The page of the oracle that overlaps [start, last], if any.
Oracle::const_iterator overlapping(const Oracle& oracle, std::uint64_t start, std::uint64_t last) {
    auto at = oracle.upper_bound(last);
    if (at == oracle.begin()) return oracle.end();
    --at;
    return at->first + ((std::uint64_t{1} << at->second.shift) - 1) >= start ? at : oracle.end();
}

// Whether an upper entry on the way to `at` leads to pages of another kind of table already.
bool mixed(const Format& format, const Oracle& oracle, std::uint64_t at, const PageSize& size) {
    const Level& level = format.levels[size.level];
    if (size.level == 0) return false;
    const unsigned cell = std::max<unsigned>(level.span_shift(), format.levels[level.parent].shift);
    const std::uint64_t first = at >> cell << cell;
    for (auto page = oracle.lower_bound(first); page != oracle.end() && page->first >> cell == at >> cell;
         ++page) {
        const PageSize& other = *format.size_of(PageShift(static_cast<std::uint8_t>(page->second.shift)));
        if (other.level != size.level && format.levels[other.level].parent == level.parent) return true;
    }
    return false;
}

class TreeOf : public testing::TestWithParam<const Format*> {};
INSTANTIATE_TEST_SUITE_P(Every, TreeOf, testing::ValuesIn(formats().begin(), formats().end()),
                         [](const auto& of) {
                             std::string name(of.param->name);
                             for (char& c : name)
                                 if (c == '-' || c == '.') c = '_';
                             return name;
                         });

TEST_P(TreeOf, MapsWhatAMapSays) {
    const Format& format = *GetParam();
    const std::uint64_t base = format.base_page().bytes();
    for (std::uint32_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(testing::Message() << "seed " << seed);
        std::mt19937_64 random(seed);
        Arena arena(PhysAddr(0x100000), 64 << 20);
        CountingMeter meter;
        {
            MeteredCache cache(format, arena, {.policy = static_cast<CachePolicy>(seed % 4)}, &meter);
            auto tree = MeteredTree::create(format, cache, meter);
            ASSERT_TRUE(tree);
            Oracle oracle;
            // Addresses around a few places where tables meet, so that tables are shared by neighbours.
            std::vector<std::uint64_t> places{0, format.user_end()};
            for (const Level& level : format.levels)
                for (const std::uint64_t n : {1, 3})
                    places.push_back((n << level.shift) & (format.user_end() - 1));
            const auto address = [&](std::uint64_t align) {
                const std::uint64_t place = places[random() % places.size()];
                const std::uint64_t near = place + (random() % 64 - 32) * align;
                return near % format.user_end() & ~(align - 1);
            };
            for (int step = 0; step < 400; ++step) {
                const PageSize& size = format.sizes[random() % 3 == 0 ? random() % format.sizes.size() : 0];
                const std::uint64_t bytes = size.shift.bytes();
                const auto flags = static_cast<Flags>(kRead | (random() & (kWrite | kExecute | kUser)));
                switch (random() % 4) {
                    case 0:
                    case 1: {
                        const std::uint64_t at = address(bytes);
                        if (at + (bytes - 1) >= format.user_end()) break;
                        const std::uint64_t page =
                            random() % (std::uint64_t{1} << (format.physical_bits - 1)) & ~(bytes - 1);
                        const Status done = tree->map(VirtAddr(at), PhysAddr(page), size.shift, flags);
                        if (overlapping(oracle, at, at + (bytes - 1)) != oracle.end()) {
                            ASSERT_TRUE(done == Status::kOccupied || done == Status::kMixed);
                        } else if (mixed(format, oracle, at, size)) {
                            ASSERT_EQ(done, Status::kMixed);
                        } else {
                            ASSERT_EQ(done, Status::kDone) << std::hex << at << " " << bytes;
                            oracle[at] = {page, size.shift.value(), kept(format, size, flags)};
                        }
                        break;
                    }
                    default: {
                        const bool unmap = random() % 2 == 0;
                        const std::uint64_t start = address(base);
                        const std::uint64_t length =
                            std::min((1 + random() % 40) * (random() % 4 == 0 ? bytes : base),
                                     format.user_end() - start);
                        const std::uint64_t last = start + (length - 1);
                        bool straddles = false;
                        for (const std::uint64_t edge : {start, last})
                            if (const auto page = overlapping(oracle, edge, edge); page != oracle.end())
                                straddles |=
                                    page->first < start ||
                                    page->first + ((std::uint64_t{1} << page->second.shift) - 1) > last;
                        std::uint64_t count = 0;
                        const Status done = unmap ? tree->unmap(VirtAddr(start), length, &count)
                                                  : tree->protect(VirtAddr(start), length, flags, &count);
                        if (straddles) {
                            ASSERT_EQ(done, Status::kStraddles);
                            break;
                        }
                        ASSERT_EQ(done, Status::kDone);
                        const auto first = oracle.lower_bound(start);
                        const auto end = oracle.upper_bound(last);
                        ASSERT_EQ(count, static_cast<std::uint64_t>(std::distance(first, end)));
                        if (unmap) {
                            oracle.erase(first, end);
                        } else {
                            for (auto page = first; page != end; ++page)
                                page->second.flags = kept(
                                    format,
                                    *format.size_of(PageShift(static_cast<std::uint8_t>(page->second.shift))),
                                    flags);
                        }
                        // Either every unmap gives up its range's tables, or none does: free_range() counts
                        // on that.
                        if (unmap && seed % 3 != 0) {
                            const auto above = oracle.lower_bound(start);
                            const std::uint64_t ceiling = above == oracle.end() ? 0 : above->first;
                            std::uint64_t floor = 0;
                            if (above != oracle.begin()) {
                                const auto below = std::prev(above);
                                floor = below->first + (std::uint64_t{1} << below->second.shift);
                            }
                            tree->free_range(start, start + length, floor, ceiling);
                        }
                    }
                }
                if (step % 20 == 0) expect_equal(*tree, oracle, 0, format.user_end());
                if (HasFatalFailure()) return;
            }
            expect_equal(*tree, oracle, 0, format.user_end());
            for (const auto& [at, mapped] : oracle) {
                const Walk found = tree->lookup(VirtAddr(at + base / 2));
                ASSERT_EQ(found.outcome, Outcome::kMapped);
                ASSERT_EQ(found.physical(at + base / 2).value(), mapped.page + base / 2);
            }
            ASSERT_EQ(tree->unmap(VirtAddr(0), format.user_end()), Status::kDone);
            if (seed % 3 == 1) {
                tree->free_range(0, format.user_end(), 0, 0);
                EXPECT_TRUE(tree->bare());
            }
            tree->scan({.only_32_bit = false, .pairs = seed % 2 == 0});
            EXPECT_TRUE(tree->bare());
            tree->release();
            EXPECT_TRUE(meter.tables.empty()) << meter.tables.size() << " tables are left";
            EXPECT_EQ(meter.given_up_live, 0U);
        }
        EXPECT_EQ(arena.blocks_in_use(), 0U) << "the cache kept a table at its end";
    }
}

TEST_P(TreeOf, RefusesWithoutChange) {
    const Format& format = *GetParam();
    Arena arena(PhysAddr(0x100000), 64 << 20);
    CountingMeter meter;
    MeteredCache cache(format, arena, {}, &meter);
    auto tree = MeteredTree::create(format, cache, meter);
    const PageShift base = format.base_page();
    const PageSize& large = format.sizes.back();
    EXPECT_EQ(tree->map(VirtAddr(0), PhysAddr(0), PageShift(10), kRead), Status::kNoSuchSize);
    EXPECT_EQ(tree->map(VirtAddr(base.bytes() / 2), PhysAddr(0), base, kRead), Status::kMisaligned);
    EXPECT_EQ(tree->map(VirtAddr(0), PhysAddr(base.bytes() / 2), base, kRead), Status::kMisaligned);
    EXPECT_EQ(tree->map(VirtAddr(std::uint64_t{1} << 60), PhysAddr(0), base, kRead), Status::kOutside);
    EXPECT_EQ(tree->map(VirtAddr(0), PhysAddr(std::uint64_t{1} << format.physical_bits), base, kRead),
              Status::kOutside);
    EXPECT_EQ(tree->unmap(VirtAddr(0), base.bytes() + 1), Status::kMisaligned);
    EXPECT_EQ(tree->unmap(VirtAddr(0), 0), Status::kDone);
    EXPECT_EQ(tree->unmap(VirtAddr(0), ~std::uint64_t{0} & ~(base.bytes() - 1)), Status::kOutside);
    EXPECT_TRUE(tree->bare());
    ASSERT_EQ(tree->map(VirtAddr(0), PhysAddr(0), large.shift, kRead), Status::kDone);
    if (format.sizes.size() > 1) {
        const Status done = tree->map(VirtAddr(base.bytes()), PhysAddr(0), base, kRead);
        EXPECT_TRUE(done == Status::kOccupied || done == Status::kMixed);
        EXPECT_EQ(tree->unmap(VirtAddr(0), base.bytes()), Status::kStraddles);
        EXPECT_EQ(tree->protect(VirtAddr(base.bytes()), large.shift.bytes(), kRead), Status::kStraddles);
    }
    EXPECT_EQ(tree->map(VirtAddr(0), PhysAddr(0), large.shift, kRead), Status::kOccupied);
    EXPECT_EQ(tree->unmap(VirtAddr(0), large.shift.bytes()), Status::kDone);
    tree->scan({});
    tree->release();
    EXPECT_TRUE(meter.tables.empty());
}

TEST_P(TreeOf, LeavesEverythingWhenThereIsNoFrame) {
    const Format& format = *GetParam();
    Arena arena(PhysAddr(0x100000), 64 << 10);  // radix-4k's root takes all of it, others get a few tables
    CountingMeter meter;
    MeteredCache cache(format, arena, {}, &meter);
    auto tree = MeteredTree::create(format, cache, meter);
    ASSERT_TRUE(tree);
    Oracle oracle;
    const std::uint64_t stride = std::uint64_t{1} << format.levels[format.sizes[0].level].span_shift();
    const PageSize& base = format.sizes[0];
    Status done = Status::kDone;
    for (std::uint64_t n = 0; n < 64 && done == Status::kDone; ++n) {
        done = tree->map(VirtAddr(n * stride), PhysAddr(0), base.shift, kRead | kUser);
        if (done == Status::kDone)
            oracle[n * stride] = {0, base.shift.value(), kept(format, base, kRead | kUser)};
    }
    EXPECT_EQ(done, Status::kNoFrame);
    expect_equal(*tree, oracle, 0, format.user_end());
    ASSERT_EQ(tree->unmap(VirtAddr(0), format.user_end()), Status::kDone);
    tree->scan({});
    tree->release();
    EXPECT_TRUE(meter.tables.empty());
}

// The kernel's half, up to the last page there is.
TEST(Tree, MapsTheTop) {
    Arena arena(PhysAddr(0x100000), 1 << 20);
    CountingMeter meter;
    MeteredCache cache(kX86, arena, {}, &meter);
    auto tree = MeteredTree::create(kX86, cache, meter);
    const VirtAddr top(~std::uint64_t{0xfff});
    ASSERT_EQ(tree->map(top, PhysAddr(0x5000), PageShift(12), kRead), Status::kDone);
    EXPECT_EQ(tree->lookup(VirtAddr(~std::uint64_t{0})).physical(~std::uint64_t{0}).value(), 0x5fffU);
    ASSERT_EQ(tree->map(VirtAddr(0xffff800000000000), PhysAddr(0), PageShift(30), kRead), Status::kDone);
    std::uint64_t pages = 0;
    ASSERT_EQ(tree->unmap(VirtAddr(0xffff800000000000), std::uint64_t{1} << 47, &pages), Status::kDone);
    EXPECT_EQ(pages, 2U);
    // scan() is for a process's half; the kernel's tables go by range, 0 being the top.
    tree->free_range(0xffff800000000000, 0, 0xffff800000000000, 0);
    EXPECT_TRUE(tree->bare());
    tree->release();
    EXPECT_TRUE(meter.tables.empty());
}

// A fork: the child has the same pages, copied or shared, and what either changes later is its own.
TEST_P(TreeOf, CopiesAndShares) {
    const Format& format = *GetParam();
    for (const bool lazily : {false, true}) {
        SCOPED_TRACE(lazily);
        std::mt19937_64 random(7);
        Arena arena(PhysAddr(0x100000), 64 << 20);
        CountingMeter meter;
        MeteredCache cache(format, arena, {.policy = CachePolicy::kLinux22}, &meter);
        SharedTables shared;
        std::vector<MeteredTree> trees;
        std::vector<Oracle> oracles(4);
        trees.reserve(4);
        for (int n = 0; n < 4; ++n)
            trees.push_back(
                std::move(*MeteredTree::create(format, cache, meter, lazily ? &shared : nullptr)));
        const std::uint64_t base = format.base_page().bytes();
        for (const PageSize& size : format.sizes)
            for (std::uint64_t n = 2; n < 5; ++n) {
                const std::uint64_t at = n * size.shift.bytes();
                if (at + size.shift.bytes() > format.user_end()) continue;
                const std::uint64_t page =
                    (7 * size.shift.bytes()) & ((std::uint64_t{1} << format.physical_bits) - 1);
                if (trees[0].map(VirtAddr(at), PhysAddr(page), size.shift, kRead | kWrite | kUser) ==
                    Status::kDone)
                    oracles[0][at] = {page, size.shift.value(), kept(format, size, kRead | kWrite | kUser)};
            }
        ASSERT_GE(oracles[0].size(), 3U);
        for (int child = 1; child < 4; ++child) {
            const bool protect = child != 2;
            ASSERT_EQ(trees[child - 1].copy_range(trees[child], VirtAddr(0), format.user_end(), protect),
                      Status::kDone);
            if (protect)
                for (auto& [at, mapped] : oracles[child - 1])
                    mapped.flags =
                        kept(format, *format.size_of(PageShift(static_cast<std::uint8_t>(mapped.shift))),
                             static_cast<Flags>(mapped.flags & ~kWrite));
            oracles[child] = oracles[child - 1];
            // A lazy child sees write permission go from its tables when they are still those of the parent.
            if (lazily && protect && child == 3) oracles[0] = oracles[1] = oracles[2];
        }
        for (int n = 0; n < 4; ++n) expect_equal(trees[n], oracles[n], 0, format.user_end());
        for (int step = 0; step < 60; ++step) {
            const std::size_t n = random() % 4;
            const std::uint64_t at = 2 * base + random() % 8 * base;
            const auto page = overlapping(oracles[n], at, at);
            if (page == oracles[n].end()) {
                ASSERT_EQ(trees[n].map(VirtAddr(at), PhysAddr(0), format.base_page(), kRead), Status::kDone);
                oracles[n][at] = {0, format.base_page().value(), kept(format, format.sizes[0], kRead)};
            } else {
                const std::uint64_t bytes = std::uint64_t{1} << page->second.shift;
                ASSERT_EQ(trees[n].unmap(VirtAddr(page->first), bytes), Status::kDone);
                oracles[n].erase(page);
            }
            for (std::size_t tree = 0; tree < 4; ++tree)
                expect_equal(trees[tree], oracles[tree], 0, format.user_end());
            if (HasFatalFailure()) return;
        }
        for (MeteredTree& tree : trees) {
            ASSERT_EQ(tree.unmap(VirtAddr(0), format.user_end(), nullptr, true), Status::kDone);
            tree.scan({});
            EXPECT_TRUE(tree.bare());
            tree.release();
        }
        EXPECT_TRUE(shared.empty());
        EXPECT_TRUE(meter.tables.empty());
        EXPECT_EQ(meter.given_up_live, 0U);
    }
}

}  // namespace
}  // namespace tlbscope::pagetable
