// The account's figures, exact, from the layouts of FACTS and the workloads as they are written.
#include "tables/account.h"

#include <gtest/gtest.h>

#include "import_text/input.h"
#include "tables/events.h"
#include "tables/proc_maps.h"
#include "tables/workloads.h"

namespace tlbscope::tables {
namespace {

std::vector<Ledger> run(const Events& events, const pagetable::Format& format,
                        std::initializer_list<const char*> names) {
    std::vector<Strategy> strategies;
    for (const char* name : names) strategies.push_back(parse_strategy(name).value());
    auto ledgers = account(
        events, format, strategies,
        {.cache = usual_cache(format), .costs = usual_costs(format), .timed_rounds = 0, .progress = {}});
    EXPECT_TRUE(ledgers.has_value()) << ledgers.error().message();
    return ledgers ? std::move(*ledgers) : std::vector<Ledger>{};
}

// What one more fork and exit takes: the difference of 11 rounds and 10.
Accesses per_round(const char* strategy, const pagetable::Format& format, MemoryEventKind kind) {
    const auto more = run(make_workload("fork+exit", 11).value(), format, {strategy});
    const auto less = run(make_workload("fork+exit", 10).value(), format, {strategy});
    const auto n = static_cast<std::size_t>(kind);
    return more[0].kinds[n].accesses - less[0].kinds[n].accesses;
}

// The program's ranges under 8 KiB pages: six areas, of which the heap begins in the middle of a page.
//   text 0x10000 +0x20000 (16 pages)   data and heap 0x40000 +0xc000 (2 + 4)   library 0x70000000 +0x100000
//   (128), data 0x70110000 +0x8000 (4)   stack 0x7ffe0000 +0x20000 (16); three pte tables: 0x0, 0x70000000,
//   0x7f800000.
// Unmapping reads a pgd, a pmd and each pte of a range: 6 x 2 + 16 + 2 + 4 + 128 + 4 + 16 = 182.
TEST(Account, ForkAndExitReadWhatThreadTwoSays) {
    constexpr std::uint64_t kUnmap = 6 * 2 + 16 + 2 + 4 + 128 + 4 + 16;
    struct Case {
        const char* strategy;
        std::uint64_t scanned;
        std::uint64_t loads;
    };
    for (const auto& [strategy, scanned, loads] :
         {Case{"scan", 3071, 3071}, Case{"scan-pairs", 3071, 1536}, Case{"scan-32", 513, 513},
          Case{"scan-32-pairs", 513, 257}, Case{"scan+linux24", 3071, 3071}, Case{"range", 6, 6},
          Case{"range+linux24", 6, 6}}) {
        const Accesses exit = per_round(strategy, pagetable::kSparc64Linux22, MemoryEventKind::kExit);
        EXPECT_EQ(exit.entries_read, kUnmap + scanned) << strategy;
        EXPECT_EQ(exit.loads, kUnmap + loads) << strategy;
        // A none for each page that the program touched (text 4, data 2, heap 2, library 8 and 3, stack 2),
        // for three pmd entries and a pgd entry.
        EXPECT_EQ(exit.entries_written, 4U + 2U + 2U + 8U + 3U + 2U + 3U + 1U) << strategy;
    }
    // The upper tables of the scan alone are 4 K + 8 K: 384 lines of 32 bytes, most of a direct-mapped 16 K.
    const Accesses scan = per_round("scan", pagetable::kSparc64Linux22, MemoryEventKind::kExit);
    EXPECT_GE(scan.lines_fetched, 384U);
    EXPECT_LE(scan.lines_evicted, 512U);
    EXPECT_GT(scan.lines_evicted,
              per_round("scan-32-pairs", pagetable::kSparc64Linux22, MemoryEventKind::kExit).lines_evicted);
    EXPECT_GT(per_round("scan-32-pairs", pagetable::kSparc64Linux22, MemoryEventKind::kExit).lines_evicted,
              per_round("range+linux24", pagetable::kSparc64Linux22, MemoryEventKind::kExit).lines_evicted);
}

// Each fork needs five tables; with a cache only the first child's come from the allocator and are cleared.
TEST(Account, CachesServeEveryForkButTheFirst) {
    const auto ledgers = run(make_workload("fork+exit", 100).value(), pagetable::kSparc64Linux22,
                             {"scan", "range+linux22", "range+linux24", "range+quicklist"});
    EXPECT_EQ(ledgers[0].tables.allocated, 5U + 500U);
    EXPECT_EQ(ledgers[0].tables.zeroed, 505U);
    EXPECT_EQ(ledgers[0].tables.freed, 500U);
    for (std::size_t n = 1; n < 4; ++n) {
        EXPECT_EQ(ledgers[n].tables.allocated, 10U);
        EXPECT_EQ(ledgers[n].tables.from_cache, 495U);
        EXPECT_EQ(ledgers[n].tables.freed, 0U);
        EXPECT_LT(ledgers[n].cycles, ledgers[0].cycles);
    }
}

// The thread's second claim: less memory after a large mmap and munmap. 64 MiB of 4K pages take 32 pte
// tables.
TEST(Account, RangeTeardownHoldsLessAfterwards) {
    const auto ledgers =
        run(make_workload("mmap", 3).value(), pagetable::kX86, {"scan", "range", "range+linux24"});
    EXPECT_EQ(ledgers[0].after_bytes - ledgers[1].after_bytes, 32U * 4096U);
    EXPECT_EQ(ledgers[0].peak_bytes, ledgers[1].peak_bytes);
    // With a cache the allocator does not have them back, but any process can.
    EXPECT_EQ(ledgers[2].after_bytes - ledgers[2].after_cached_bytes, ledgers[1].after_bytes);
}

TEST(Account, EveryWorkloadRunsOnEveryFormat) {
    for (const Workload& workload : workloads())
        for (const pagetable::Format* format : pagetable::formats()) {
            Events events = make_workload(workload.name, 2).value();
            ASSERT_TRUE(fit(events, *format).has_value());
            EXPECT_TRUE(events.notes.empty()) << "the workloads fit every format as they are";
            const auto ledgers =
                run(events, *format,
                    {"scan", "scan-32-pairs+linux22", "range+linux24", "range+quicklist+lazy-fork"});
            ASSERT_EQ(ledgers.size(), 4U) << workload.name << " " << format->name;
            for (const Ledger& ledger : ledgers)
                EXPECT_EQ(ledger.problems.total(), 0U)
                    << workload.name << " " << format->name << " " << ledger.problems.notes("")[0];
            // Where processes end, ranges leave less to read.
            if (workload.name.starts_with("fork")) {
                EXPECT_LT(ledgers[2].accesses.entries_read, ledgers[0].accesses.entries_read) << format->name;
            }
        }
    EXPECT_FALSE(make_workload("lmbench", 0).has_value());
}

TEST(Account, StrategiesHaveNames) {
    for (const char* name : {"scan", "scan-32", "scan-pairs", "scan-32-pairs", "range", "range+linux22",
                             "scan+quicklist+lazy-fork"})
        EXPECT_EQ(parse_strategy(name).value().name(), name);
    EXPECT_EQ(parse_strategy("scna").error().hint, "did you mean scan?");
    EXPECT_FALSE(parse_strategy("range+linux24+linux22").has_value());
    EXPECT_FALSE(parse_strategy("").has_value());
    EXPECT_FALSE(parse_strategy("range+").has_value());
}

// A cache with sets of one way: two lines that share a set drive each other out, which is fetching again.
TEST(Meter, CountsLinesOfAnOperation) {
    pagetable::Arena arena(kArenaBase, 1 << 20);
    Meter meter(arena, kArenaBase, 1 << 20,
                {.bytes = 1024, .ways = 1, .line = 32, .write_allocate = false, .source = {}});
    const PhysAddr table = arena.allocate(4096).value();
    meter.took(table, 4096);
    const auto at = [&](std::uint64_t offset) { return PhysAddr(table.value() + offset); };
    meter.begin();
    meter.load(at(0), 4, 1);
    meter.load(at(4), 4, 1);
    meter.load(at(1024), 8, 2);
    meter.load(at(0), 4, 1);
    EXPECT_EQ(meter.counts(), (Accesses{.entries_read = 5,
                                        .loads = 4,
                                        .lines_touched = 2,
                                        .lines_fetched = 3,
                                        .lines_fetched_again = 1,
                                        .lines_evicted = 1}));
    meter.begin();
    meter.store(at(64), 4, true, false);
    EXPECT_EQ(meter.counts().lines_fetched, 3U) << "writes do not allocate here";
    EXPECT_EQ(meter.counts().lines_touched, 3U);
    meter.load(at(0), 4, 1);
    EXPECT_EQ(meter.counts().lines_evicted, 2U) << "the program ran in between";
    EXPECT_EQ(meter.mistake(), "");
    meter.gave(table, 4096);
    EXPECT_NE(meter.mistake().find("while 1 of its entries"), std::string::npos);
}

TEST(Meter, NoticesWhatIsGivenUpTwice) {
    pagetable::Arena arena(kArenaBase, 1 << 20);
    LiveMeter meter(arena, kArenaBase, 1 << 20);
    meter.took(kArenaBase, 8192);
    meter.gave(kArenaBase, 8192);
    EXPECT_EQ(meter.mistake(), "");
    meter.gave(kArenaBase, 8192);
    EXPECT_NE(meter.mistake().find("given up twice"), std::string::npos);
}

Events maps_of(const std::string& text, std::uint64_t most) {
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    import::Lines lines(import::Input::of_bytes("maps", bytes).value());
    auto events = read_maps(lines, most);
    EXPECT_TRUE(events.has_value()) << events.error().message();
    return events ? std::move(*events) : Events{};
}

TEST(Maps, SmapsTellHowManyPagesThereWere) {
    const std::string smaps =
        "00400000-00404000 r-xp 00000000 08:01 17                         /bin/x\n"
        "Size:                 16 kB\n"
        "Rss:                   8 kB\n"
        "7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0                  [stack]\n"
        "Rss:                  12 kB\n"
        "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0          [vsyscall]\n"
        "Rss:                   0 kB\n"
        "00400000-00401000 rw-s 00000000 00:00 0\n"
        "Rss:                   4 kB\n";
    const Events events = maps_of(smaps, 16);
    std::map<std::string, int> counts;
    for (const MemoryEvent& event : events.events)
        ++counts[std::string(name_of(event.kind)) + std::to_string(event.process)];
    EXPECT_EQ(counts,
              (std::map<std::string, int>{
                  {"map1", 2}, {"fault1", 5}, {"exit1", 1}, {"map2", 1}, {"fault2", 1}, {"exit2", 1}}));
    const Events plain = maps_of(
        "00400000-00404000 r-xp 00000000 08:01 17 /bin/x\n00600000-00700000 ---p 00000000 00:00 0\n", 3);
    EXPECT_EQ(plain.events.size(), 2U + 3U + 1U);
    EXPECT_TRUE(looks_like_maps(smaps));
    EXPECT_FALSE(looks_like_maps("brk(NULL) = 0x5\n"));
}

// Addresses that a format does not have are moved, in order and without tearing a range apart.
TEST(Fit, KeepsOrderAndRanges) {
    Events events = maps_of(
        "00400000-00404000 r-xp 00000000 08:01 17 /bin/x\n"
        "555500000000-555500010000 rw-p 00000000 00:00 0 [heap]\n"
        "7f0000000000-7f0080001000 r-xp 00000000 08:01 17 /lib/x\n"
        "7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0 [stack]\n",
        2);
    const Events before = events;
    ASSERT_TRUE(fit(events, pagetable::kX86).has_value());
    EXPECT_EQ(events.events, before.events);
    ASSERT_TRUE(fit(events, pagetable::kSv39).has_value());
    EXPECT_EQ(events.notes.size(), before.notes.size() + 1);
    std::uint64_t end = 0;
    for (std::size_t n = 0; n < events.events.size(); ++n) {
        const MemoryEvent& event = events.events[n];
        if (event.kind != MemoryEventKind::kMap) continue;
        EXPECT_GE(event.start.value(), end);
        EXPECT_EQ(event.bytes, before.events[n].bytes);
        EXPECT_EQ(event.start.value() % (1 << 30), before.events[n].start.value() % (1 << 30));
        end = event.start.value() + event.bytes;
        EXPECT_LE(end, pagetable::kSv39.user_end());
    }
    // 2 GiB do not fit below 2 GiB beside the rest.
    Events large = before;
    EXPECT_FALSE(fit(large, pagetable::kMpc8xx).has_value());
}

TEST(Populate, TouchesWhatIsMapped) {
    Events events;
    events.events = {
        {.kind = MemoryEventKind::kMap,
         .protection = 3,
         .process = 1,
         .start = VirtAddr(0x1000),
         .bytes = 0x5000},
        {.kind = MemoryEventKind::kMap,
         .protection = 0,
         .process = 1,
         .start = VirtAddr(0x9000),
         .bytes = 0x5000},
        {.kind = MemoryEventKind::kBreak, .process = 1, .start = VirtAddr(0x20800), .bytes = 0},
        {.kind = MemoryEventKind::kBreak, .process = 1, .start = VirtAddr(0x20800), .bytes = 0x1000}};
    populate(events, 3);
    std::vector<std::uint64_t> faults;
    for (const MemoryEvent& event : events.events)
        if (event.kind == MemoryEventKind::kFault) faults.push_back(event.start.value());
    EXPECT_EQ(faults, (std::vector<std::uint64_t>{0x1000, 0x2000, 0x3000, 0x20800, 0x21000}));
}

}  // namespace
}  // namespace tlbscope::tables
