// Random lives of several processes against a std::map for each, under every strategy: whatever the strategy,
// the pages are the same at every point, no table is left or freed twice, and every strategy ends in the same
// state.
#include "tables/life.h"

#include <gtest/gtest.h>

#include <random>

#include "tables/account.h"

namespace tlbscope::tables {
namespace {

using pagetable::Arena;
using pagetable::Entry;
using pagetable::Format;

// Page -> writable, by process. What the events mean, and nothing of how.
struct Oracle {
    struct Process {
        std::map<std::uint64_t, std::uint8_t> mapped;  // page -> protection
        std::map<std::uint64_t, bool> present;         // page -> writable
    };
    std::map<std::uint32_t, Process> processes;
};

constexpr std::uint8_t kRw = kProtectRead | kProtectWrite;

// Events that make sense, made with the oracle's knowledge of what is there.
class Maker {
  public:
    Maker(const Format& format, std::uint32_t seed)
        : format_(format), random_(seed), page_(format.base_page().bytes()) {
        for (const auto& level : format.levels)
            for (const std::uint64_t n : {1, 2})
                places_.push_back((n << level.span_shift()) % format.user_end());
        places_.push_back(64 * page_);
        places_.push_back(format.user_end());
    }
    MemoryEvent next(Oracle& oracle) {
        MemoryEvent event{.cpu = static_cast<std::uint32_t>(random_() % 3), .process = any_process(oracle)};
        Oracle::Process& process = oracle.processes[event.process];
        const std::uint64_t start = address();
        const std::uint64_t pages = 1 + random_() % 12;
        const std::uint64_t end = std::min(start + pages * page_, format_.user_end());
        event.start = VirtAddr(start);
        event.bytes = end - start;
        switch (random_() % 16) {
            case 0:
            case 1:
            case 2:
                event.kind = MemoryEventKind::kMap;
                event.protection = random_() % 3 == 0 ? kProtectRead : kRw;
                for (std::uint64_t at = start; at < end; at += page_) {
                    process.mapped[at] = event.protection;
                    process.present.erase(at);
                }
                return event;
            case 3:
            case 4:
                event.kind = MemoryEventKind::kUnmap;
                for (std::uint64_t at = start; at < end; at += page_) {
                    process.mapped.erase(at);
                    process.present.erase(at);
                }
                return event;
            case 5:
                event.kind = MemoryEventKind::kProtect;
                event.protection = random_() % 2 == 0 ? kProtectRead : kRw;
                for (std::uint64_t at = start; at < end; at += page_) {
                    if (process.mapped.contains(at)) process.mapped[at] = event.protection;
                    if (process.present.contains(at)) process.present[at] = event.protection == kRw;
                }
                return event;
            case 6:
                event.kind = MemoryEventKind::kDiscard;
                for (std::uint64_t at = start; at < end; at += page_) process.present.erase(at);
                return event;
            case 7: {
                event.kind = MemoryEventKind::kFork;
                event.child = ++last_;
                Oracle::Process& child = oracle.processes[event.child];
                for (auto& [at, writable] : process.present)
                    if (process.mapped[at] == kRw) writable = false;
                child = process;
                return event;
            }
            case 8:
                if (oracle.processes.size() < 2) break;
                event.kind = random_() % 3 == 0 ? MemoryEventKind::kExec : MemoryEventKind::kExit;
                if (event.kind == MemoryEventKind::kExec)
                    process = {};
                else
                    oracle.processes.erase(event.process);
                return event;
            case 9: {  // move some mapped pages elsewhere
                if (process.mapped.empty()) break;
                const std::uint64_t from = process.mapped.lower_bound(start) == process.mapped.end()
                                               ? process.mapped.begin()->first
                                               : process.mapped.lower_bound(start)->first;
                const std::uint64_t to = address();
                if (from == to || (from < to ? to - from : from - to) < page_) break;
                event.kind = MemoryEventKind::kRemap;
                event.old_start = VirtAddr(from);
                event.old_bytes = page_;
                event.start = VirtAddr(to);
                event.bytes = page_;
                process.present.erase(to);
                if (process.present.contains(from)) process.present[to] = process.present[from];
                process.mapped[to] = process.mapped[from];
                process.mapped.erase(from);
                process.present.erase(from);
                return event;
            }
            default:
                break;
        }
        // A fault, mostly where something is mapped.
        event.kind = MemoryEventKind::kFault;
        event.bytes = 0;
        event.write = random_() % 2 == 0;
        if (!process.mapped.empty()) {
            auto at = process.mapped.lower_bound(start);
            if (at == process.mapped.end()) at = process.mapped.begin();
            event.start = VirtAddr(at->first + random_() % page_);
            const bool may_write = at->second == kRw;
            const auto present = process.present.find(at->first);
            if (present == process.present.end())
                process.present[at->first] = may_write;
            else if (event.write && may_write)
                present->second = true;
        }
        return event;
    }

  private:
    std::uint32_t any_process(const Oracle& oracle) {
        if (oracle.processes.empty()) return ++last_;
        auto at = oracle.processes.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(random_() % oracle.processes.size()));
        return at->first;
    }
    std::uint64_t address() {
        const std::uint64_t place = places_[random_() % places_.size()];
        const std::uint64_t near = place + (random_() % 24) * page_ - 12 * page_;
        return near < format_.user_end() ? near : random_() % 24 * page_;
    }
    const Format& format_;
    std::mt19937_64 random_;
    std::uint64_t page_;
    std::uint32_t last_ = 0;
    std::vector<std::uint64_t> places_;
};

std::vector<Strategy> every_strategy() {
    std::vector<Strategy> all;
    for (const char* name :
         {"scan", "scan-32", "scan-pairs", "scan-32-pairs+linux22", "scan+linux24", "range", "range+linux22",
          "range+linux24", "range+quicklist", "scan+lazy-fork", "range+linux24+lazy-fork"})
        all.push_back(parse_strategy(name).value());
    return all;
}

TEST(Life, IsWhatTheEventsSayUnderEveryStrategy) {
    for (const Format* format : pagetable::formats())
        for (std::uint32_t seed = 1; seed <= 3; ++seed)
            for (const Strategy& strategy : every_strategy()) {
                SCOPED_TRACE(testing::Message()
                             << format->name << " " << strategy.name() << " seed " << seed);
                Arena arena(kArenaBase, kArenaBytes);
                LiveMeter meter(arena, kArenaBase, kArenaBytes);
                {
                    Life<LiveMeter> life(*format, strategy, 3, false, meter, arena);
                    Maker maker(*format, seed);
                    Oracle oracle;
                    for (int step = 0; step < 250; ++step) {
                        const MemoryEvent event = maker.next(oracle);
                        life.apply(event);
                        ASSERT_EQ(meter.mistake(), "") << "step " << step << " " << name_of(event.kind);
                        if (step % 10 != 0 && step != 249) continue;
                        for (const auto& [process, wanted] : oracle.processes) {
                            std::map<std::uint64_t, bool> found;
                            life.each_page(process, [&](VirtAddr at, const Entry& entry) {
                                found[at.value()] = (entry.flags & pagetable::kWrite) != 0;
                            });
                            // A lazily shared table shows its pages' permission to all who share it.
                            if (strategy.lazy_fork) {
                                ASSERT_EQ(found.size(), wanted.present.size()) << "step " << step;
                                for (const auto& [at, writable] : wanted.present)
                                    ASSERT_TRUE(found.contains(at)) << "step " << step;
                            } else {
                                ASSERT_EQ(found, wanted.present) << "step " << step << " process " << process;
                            }
                        }
                    }
                    life.end();
                    EXPECT_EQ(life.mistake(), "");
                }
                EXPECT_EQ(meter.tables(), 0U);
                EXPECT_EQ(arena.blocks_in_use(), 0U);
            }
}

// A 4 KiB log on 8 KiB pages: half a page may go while the other half stays.
TEST(Life, KeepsAPageThatAnotherAreaReachesInto) {
    for (const char* name : {"scan", "range"}) {
        Arena arena(kArenaBase, kArenaBytes);
        LiveMeter meter(arena, kArenaBase, kArenaBytes);
        Life<LiveMeter> life(pagetable::kSparc64, parse_strategy(name).value(), 1, false, meter, arena);
        const auto apply = [&](MemoryEventKind kind, std::uint64_t start, std::uint64_t bytes) {
            life.apply(
                {.kind = kind, .protection = kRw, .process = 1, .start = VirtAddr(start), .bytes = bytes});
        };
        const auto pages = [&] {
            std::uint64_t count = 0;
            life.each_page(1, [&](VirtAddr, const Entry&) { ++count; });
            return count;
        };
        apply(MemoryEventKind::kMap, 0x3000, 0x1000);
        apply(MemoryEventKind::kMap, 0x2000, 0x1000);
        apply(MemoryEventKind::kFault, 0x2000, 0);
        EXPECT_EQ(pages(), 1U);
        apply(MemoryEventKind::kUnmap, 0x2000, 0x1000);
        EXPECT_EQ(pages(), 1U) << "0x3000 is in the same page";
        apply(MemoryEventKind::kUnmap, 0x3000, 0x1000);
        EXPECT_EQ(pages(), 0U);
        EXPECT_EQ(meter.mistake(), "");
    }
}

TEST(Life, ThreadsAndVforkShareASpace) {
    Arena arena(kArenaBase, kArenaBytes);
    LiveMeter meter(arena, kArenaBase, kArenaBytes);
    Life<LiveMeter> life(pagetable::kX86, parse_strategy("range").value(), 1, false, meter, arena);
    const auto apply = [&](MemoryEvent event) { life.apply(event); };
    apply({.kind = MemoryEventKind::kMap,
           .protection = kRw,
           .process = 1,
           .start = VirtAddr(0x1000),
           .bytes = 0x1000});
    apply({.kind = MemoryEventKind::kFault, .process = 1, .start = VirtAddr(0x1000)});
    apply({.kind = MemoryEventKind::kFork, .shares_space = true, .process = 1, .thread = 1, .child = 2});
    apply({.kind = MemoryEventKind::kFork, .shares_space = true, .process = 1, .thread = 1, .child = 3});
    EXPECT_EQ(meter.tables(), 4U);
    // 3 was a vfork child: it leaves with its exec. The first thread ends before the second.
    apply({.kind = MemoryEventKind::kExec, .process = 3, .thread = 3});
    EXPECT_EQ(meter.tables(), 5U) << "a root of its own";
    apply({.kind = MemoryEventKind::kExit, .process = 1, .thread = 1});
    apply({.kind = MemoryEventKind::kUnmap,
           .process = 1,
           .thread = 2,
           .start = VirtAddr(0x1000),
           .bytes = 0x1000});
    EXPECT_EQ(meter.tables(), 2U);
    apply({.kind = MemoryEventKind::kExit, .process = 1, .thread = 2});
    EXPECT_EQ(meter.tables(), 1U);
    apply({.kind = MemoryEventKind::kFork, .process = 1, .child = 9, .position = 77});
    apply({.kind = MemoryEventKind::kExit, .process = 3});
    EXPECT_EQ(meter.tables(), 0U);
    apply({.kind = MemoryEventKind::kUnmap,
           .process = 5,
           .start = VirtAddr(0x1000),
           .bytes = 0x1000,
           .position = 78});
    apply({.kind = MemoryEventKind::kExit, .process = 6, .position = 79});
    EXPECT_EQ(
        life.problems().notes("log"),
        (std::vector<std::string>{
            "log: 1 line left out: a fork of a process that has ended (first in line 77)",
            "log: 1 line left out: an unmap of nothing (first in line 78)",
            "log: 1 line left out: an exit of a process that nothing else is known of (first in line 79)"}));
}

}  // namespace
}  // namespace tlbscope::tables
