// What each policy issues for one request, counted by hand from the kernels' sources, and what memory
// management asks for, against a slow model.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "flush/broadcast.h"
#include "flush/crossover.h"
#include "flush/memory_manager.h"
#include "flush/policy.h"
#include "flush/radix.h"
#include "flush/x86.h"
#include "machine/machine_file.h"

namespace tlbscope::flush {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr auto kPageScope = static_cast<std::size_t>(TlbScope::kPage);
constexpr auto kRangeScope = static_cast<std::size_t>(TlbScope::kRange);
constexpr auto kPidScope = static_cast<std::size_t>(TlbScope::kPid);
constexpr auto kWalkScope = static_cast<std::size_t>(TlbScope::kWalkCache);

// Without the errata, which have a test of their own.
machine::Machine power9() {
    machine::Machine machine = *machine::load_machine(std::string(MACHINES) + "/power9.toml");
    machine.flush.fixups = 0;
    return machine;
}

std::unique_ptr<Flusher> radix(const std::string& name) {
    return make_flusher(policies_named(name)->front(), power9(), PageShift(12));
}

Request range(RequestKind kind, std::uint64_t pages, bool tables = false) {
    return {.kind = kind, .space = SpaceId(1), .freed_tables = tables, .start = 0, .end = pages * kPage};
}

Tally local(const std::string& policy, const Request& request) {
    auto flusher = radix(policy);
    flusher->switch_to(0, SpaceId(1));
    flusher->request(request);
    return flusher->account().total();
}

Tally global(const std::string& policy, Request request, std::uint32_t users = 2) {
    auto flusher = radix(policy);
    flusher->switch_to(1, SpaceId(1));
    flusher->switch_to(0, SpaceId(1));
    request.users = users;
    flusher->request(request);
    return flusher->account().total();
}

TEST(Radix, RangeFlushBeforeAndAfterTheSeries) {
    // flush_tlb_range of one page, this CPU alone: 128 tlbiel, later one.
    EXPECT_EQ(local("before", range(RequestKind::kRange, 1)).local_instructions[kPidScope], 128U);
    EXPECT_EQ(local("patch3", range(RequestKind::kRange, 1)).local_instructions[kPageScope], 1U);
    EXPECT_EQ(local("series", range(RequestKind::kRange, 1)).local[kPageScope], 1U);
    // The ceilings: 33 before and globally, 256 locally.
    EXPECT_EQ(local("patch3", range(RequestKind::kRange, 34)).local_instructions[kPidScope], 128U);
    EXPECT_EQ(local("series", range(RequestKind::kRange, 34)).local_instructions[kPageScope], 34U);
    EXPECT_EQ(local("series", range(RequestKind::kRange, 256)).local_instructions[kPageScope], 256U);
    EXPECT_EQ(local("series", range(RequestKind::kRange, 257)).local_instructions[kPidScope], 128U);
    EXPECT_EQ(global("series", range(RequestKind::kRange, 33)).global_instructions[kPageScope], 33U);
    EXPECT_EQ(global("series", range(RequestKind::kRange, 34)).global_instructions[kPidScope], 1U);
}

TEST(Radix, BarriersAroundARange) {
    EXPECT_EQ(local("before", range(RequestKind::kGather, 30)).local_barriers, 30U);
    EXPECT_EQ(local("patch1", range(RequestKind::kGather, 30)).local_barriers, 1U);
    const Tally batched = global("patch1", range(RequestKind::kGather, 30));
    EXPECT_EQ(batched.global_barriers, 1U);
    EXPECT_EQ(batched.fences, 2U);
    EXPECT_EQ(batched.syncs, 1U);
    EXPECT_EQ(batched.global_instructions[kPageScope], 30U);
}

TEST(Radix, FreedTables) {
    const Tally before = local("before", range(RequestKind::kGather, 2, true));
    EXPECT_EQ(before.local_instructions[kPidScope], 128U);
    const Tally after = local("series", range(RequestKind::kGather, 2, true));
    EXPECT_EQ(after.local_instructions[kPageScope], 2U);
    EXPECT_EQ(after.local_instructions[kWalkScope], 1U);
    EXPECT_EQ(after.local[kRangeScope], 1U);
    EXPECT_EQ(after.local[kWalkScope], 1U);
    EXPECT_EQ(after.local_barriers, 1U);
}

TEST(Radix, TodayTrimsTheMaskOfASingleThread) {
    // The process migrated from CPU 1 to 0: one interrupt, a PID flush there, and everything local from then
    // on.
    auto flusher = radix("today");
    flusher->switch_to(1, SpaceId(1));
    flusher->switch_to(1, std::nullopt);
    flusher->switch_to(0, SpaceId(1));
    flusher->request(range(RequestKind::kGather, 1));
    Tally total = flusher->account().total();
    EXPECT_EQ(total.ipis, 1U);
    EXPECT_EQ(total.interrupted, 1U);
    EXPECT_EQ(total.local_instructions[kPidScope], 128U);
    EXPECT_EQ(total.local_instructions[kPageScope], 1U);
    flusher->request(range(RequestKind::kGather, 1));
    total = flusher->account().total();
    EXPECT_EQ(total.ipis, 1U);
    EXPECT_EQ(total.local_instructions[kPageScope], 2U);
    EXPECT_EQ(total.instructions(true), 0U);
    // Before, it is global for good.
    EXPECT_EQ(global("series", range(RequestKind::kGather, 1), 1).global_instructions[kPageScope], 1U);
}

TEST(Radix, TodayTriesToTrimEvery1073Flushes) {
    auto flusher = radix("today");
    flusher->switch_to(1, SpaceId(1));
    flusher->switch_to(1, std::nullopt);
    flusher->switch_to(0, SpaceId(1));
    Request request = range(RequestKind::kGather, 1);
    request.users = 2;
    for (int i = 0; i < 1072; ++i) flusher->request(request);
    EXPECT_EQ(flusher->account().total().ipis, 0U);
    EXPECT_EQ(flusher->account().total().global_instructions[kPageScope], 1072U);
    flusher->request(request);
    EXPECT_EQ(flusher->account().total().ipis, 1U);
    EXPECT_EQ(flusher->account().total().global_instructions[kPageScope], 1072U);
}

TEST(Radix, SpuriousFaults) {
    EXPECT_EQ(global("before", range(RequestKind::kSpurious, 1)).global_instructions[kPageScope], 1U);
    EXPECT_EQ(global("patch7", range(RequestKind::kSpurious, 1)).local_instructions[kPageScope], 1U);
    EXPECT_EQ(global("today", range(RequestKind::kSpurious, 1)).operations(), 0U);
}

TEST(Radix, ErrataRepeatGlobalFlushes) {
    machine::Machine machine = power9();
    machine.flush.fixups = 2;
    auto flusher = make_flusher(policies_named("today")->front(), machine, PageShift(12));
    flusher->switch_to(1, SpaceId(1));
    flusher->switch_to(0, SpaceId(1));
    Request request = range(RequestKind::kGather, 3);
    request.users = 2;
    flusher->request(request);
    const Tally total = flusher->account().total();
    EXPECT_EQ(total.global_instructions[kPageScope], 4U);
    EXPECT_EQ(total.global_instructions[kPidScope], 1U);
    EXPECT_EQ(total.fences, 4U);
}

TEST(X86, ThreeWaysToCatchUp) {
    X86 flusher(X86Rules{.asids = 6});
    flusher.switch_to(0, SpaceId(1));
    flusher.switch_to(1, SpaceId(1));
    flusher.request(range(RequestKind::kGather, 2));
    Tally total = flusher.account().total();
    EXPECT_EQ(total.ipis, 1U);
    EXPECT_EQ(total.local_instructions[kPageScope], 4U);  // two pages on each of two CPUs
    // Lazy: left alone, and flushed when it comes back.
    flusher.switch_to(1, std::nullopt);
    flusher.request(range(RequestKind::kGather, 2));
    EXPECT_EQ(flusher.account().total().ipis, 1U);
    flusher.switch_to(1, SpaceId(1));
    total = flusher.account().total();
    EXPECT_EQ(total.local[kPidScope], 1U);
    EXPECT_EQ(total.local_instructions[kPidScope], 1U);
    // Lazy when tables go: interrupted.
    flusher.switch_to(1, std::nullopt);
    flusher.request(range(RequestKind::kGather, 2, true));
    EXPECT_EQ(flusher.account().total().ipis, 2U);
    // More than 33 pages: everything.
    flusher.request(range(RequestKind::kGather, 34));
    EXPECT_EQ(flusher.account().total().local_instructions[kPidScope], 2U);
}

TEST(X86, InvlpgbFromThreeCpusOn) {
    X86 flusher(X86Rules{.broadcast = true, .broadcast_pages = 8});
    for (std::uint32_t cpu = 0; cpu < 3; ++cpu) flusher.switch_to(cpu, SpaceId(1));
    flusher.request(range(RequestKind::kGather, 17));
    const Tally total = flusher.account().total();
    EXPECT_EQ(total.ipis, 0U);
    EXPECT_EQ(total.global_instructions[kRangeScope], 3U);
    EXPECT_EQ(total.syncs, 1U);
}

TEST(Arm64, ByPageBelowMaxDvmOpsAndByRange) {
    Arm64 flusher(Arm64Rules{});
    flusher.request(range(RequestKind::kGather, 511));
    EXPECT_EQ(flusher.account().total().global_instructions[kPageScope], 511U);
    flusher.request(range(RequestKind::kGather, 512));
    EXPECT_EQ(flusher.account().total().global_instructions[kPidScope], 1U);
    // Range operations cover any number of pages by at most five instructions, and say exactly that many.
    EXPECT_EQ(Arm64::range_instructions(1), 1U);
    EXPECT_EQ(Arm64::range_instructions(2), 1U);
    EXPECT_EQ(Arm64::range_instructions(3), 2U);
    EXPECT_EQ(Arm64::range_instructions(64), 1U);
    EXPECT_EQ(Arm64::range_instructions(67), 3U);
    EXPECT_EQ(Arm64::range_instructions((1U << 21) - 1), 5U);
}

TEST(Riscv, SixtyFourPagesAndLocalNewEntries) {
    Riscv flusher(RiscvRules{});
    flusher.switch_to(0, SpaceId(1));
    flusher.request(range(RequestKind::kGather, 64));
    EXPECT_EQ(flusher.account().total().local_instructions[kPageScope], 64U);
    flusher.request(range(RequestKind::kGather, 65));
    EXPECT_EQ(flusher.account().total().local_instructions[kPidScope], 1U);
    flusher.request(range(RequestKind::kInstalled, 1));
    EXPECT_EQ(flusher.account().total().local_instructions[kPageScope], 65U);
    EXPECT_EQ(flusher.account().total().ipis, 0U);
}

// The sums of the mail thread: 34.5 M fewer tlbiel and 210,000 fewer tlbie save half a second of CPU time.
TEST(Cost, OfTheThreadsOwnNumbers) {
    Tally saved;
    saved.local_instructions[kPidScope] = 49'500'000 - 15'000'000;
    saved.global_instructions[kPageScope] = 290'000 - 80'000;
    const machine::Duration time = cost_of(saved, power9().flush).total();
    EXPECT_NEAR(time.nanoseconds * 1e-9, 0.52, 0.01);
    EXPECT_GT(time.error, 0);
}

TEST(Crossover, IsWhereTheCurvesMeet) {
    FlushSizes sizes;
    sizes.add(1, false, 100);
    sizes.add(200, false, 100);
    const auto curves = crossover(sizes, power9().flush);
    const Curve& here = curves[0];
    EXPECT_EQ(here.crossing(0).pages, 128U);  // as many tlbiel either way
    EXPECT_LE(here.by_page(128).nanoseconds, here.by_space(0).nanoseconds + 1e-6);
    EXPECT_GT(here.by_page(129).nanoseconds, here.by_space(0).nanoseconds);
    EXPECT_EQ(here.lost_most, 100);
    EXPECT_EQ(here.crossing(100).pages, 360U);  // 128 + 100 x 30 / 12.9
    EXPECT_EQ(here.best_ceiling(0), 1U);
    EXPECT_EQ(here.best_ceiling(100), 200U);
    EXPECT_EQ(curves[1].crossing(0).pages, 1U);  // one tlbie either way
}

TEST(Policies, UnknownNamesAreAnswered) {
    const auto wrong = policies_named("serie");
    ASSERT_FALSE(wrong.has_value());
    EXPECT_EQ(wrong.error().hint, "did you mean series?");
    EXPECT_EQ(policies_named("patches")->size(), 7U);
    EXPECT_EQ(policies_named("all")->size(), policies().size());
    EXPECT_EQ(policies_named("today,today")->size(), 1U);
}

// Memory management against a model that keeps one entry a page in a map and recomputes everything.
struct Slow {
    struct Entry {
        bool writable = false;
        int copy = 0;  // 0: the file's page or zeros
    };
    std::map<std::uint64_t, Entry> entries;        // by page
    std::map<std::uint64_t, std::uint8_t> mapped;  // by page: protection
};

struct Recorder : Listener {
    std::vector<Request> requests;
    void switched(std::uint32_t, std::optional<SpaceId>) override {}
    void requested(const Request& request) override { requests.push_back(request); }
    void ended(SpaceId) override {}
};

TEST(MemoryManager, AsksForWhatASlowModelSays) {
    for (std::uint32_t seed = 1; seed <= 200; ++seed) {
        std::mt19937 random(seed);
        Recorder recorder;
        MemoryManager manager({.faults = true, .cpus_known = true}, recorder);
        manager.event({.kind = MemoryEventKind::kExec, .process = 1});
        recorder.requests.clear();
        Slow slow;
        constexpr std::uint64_t kPages = 40;
        constexpr std::uint64_t kBase = 0x1ff000;  // so that a table's edge lies within
        for (int step = 0; step < 60; ++step) {
            const std::uint64_t first = random() % kPages;
            const std::uint64_t count = 1 + random() % 6;
            MemoryEvent event{.process = 1, .start = VirtAddr(kBase + first * kPage), .bytes = count * kPage};
            std::set<std::uint64_t> touched;
            RequestKind kind = RequestKind::kGather;
            const auto each = [&](auto&& act) {
                for (std::uint64_t page = first; page < first + count; ++page) act(page);
            };
            switch (random() % 5) {
                case 0:
                    event.kind = MemoryEventKind::kMap;
                    event.protection = 3;
                    each([&](std::uint64_t page) {
                        if (slow.entries.erase(page) > 0) touched.insert(page);
                        slow.mapped[page] = 3;
                    });
                    break;
                case 1:
                    event.kind = MemoryEventKind::kUnmap;
                    each([&](std::uint64_t page) {
                        if (slow.entries.erase(page) > 0) touched.insert(page);
                        slow.mapped.erase(page);
                    });
                    break;
                case 2:
                    event.kind = MemoryEventKind::kDiscard;
                    each([&](std::uint64_t page) {
                        if (slow.entries.erase(page) > 0) touched.insert(page);
                    });
                    break;
                case 3:
                    event.kind = MemoryEventKind::kProtect;
                    event.protection = (random() & 1) != 0 ? 1 : 3;
                    each([&](std::uint64_t page) {
                        const auto entry = slow.entries.find(page);
                        if (entry == slow.entries.end() || event.protection != 1) return;
                        if (entry->second.writable) touched.insert(page);
                        entry->second.writable = false;
                    });
                    break;
                default: {
                    if (!slow.mapped.contains(first)) continue;
                    event.kind = MemoryEventKind::kFault;
                    event.write = (random() & 1) != 0;
                    auto [entry, fresh] = slow.entries.try_emplace(first);
                    kind = RequestKind::kInstalled;
                    if (fresh) {
                        entry->second = {.writable = event.write, .copy = event.write ? 1 : 0};
                    } else if (!event.write) {
                        continue;
                    } else if (entry->second.writable) {
                        kind = RequestKind::kSpurious;
                    } else if (entry->second.copy == 1) {
                        kind = RequestKind::kRelax;
                        entry->second.writable = true;
                    } else {
                        kind = RequestKind::kPage;
                        entry->second = {.writable = true, .copy = 1};
                    }
                    touched.insert(first);
                }
            }
            recorder.requests.clear();
            manager.event(event);
            // Freed tables widen a gather's range and may be all it has; a protection that took nothing away
            // still tells the wide range.
            std::uint64_t low = ~std::uint64_t{0};
            std::uint64_t high = 0;
            for (const Request& request : recorder.requests) {
                EXPECT_EQ(request.kind, kind) << "seed " << seed << " step " << step;
                if (request.end > request.start) {
                    low = std::min(low, request.start);
                    high = std::max(high, request.end);
                }
            }
            if (touched.empty()) {
                for (const Request& request : recorder.requests)
                    EXPECT_TRUE(request.end == request.start || request.freed_tables)
                        << "seed " << seed << " step " << step;
                continue;
            }
            ASSERT_FALSE(recorder.requests.empty()) << "seed " << seed << " step " << step;
            bool tables = false;
            for (const Request& request : recorder.requests) tables = tables || request.freed_tables;
            const std::uint64_t first_touched = kBase + *touched.begin() * kPage;
            const std::uint64_t last_touched = kBase + (*touched.rbegin() + 1) * kPage;
            if (tables) {
                EXPECT_LE(low, first_touched);
                EXPECT_GE(high, last_touched);
            } else {
                EXPECT_EQ(low, first_touched) << "seed " << seed << " step " << step;
                EXPECT_EQ(high, last_touched) << "seed " << seed << " step " << step;
            }
        }
    }
}

TEST(MemoryManager, ForkCopiesOnWriteUntilOneIsLeft) {
    Recorder recorder;
    MemoryManager manager({.faults = true, .cpus_known = true}, recorder);
    const auto event = [&](MemoryEvent e) {
        recorder.requests.clear();
        manager.event(e);
        return recorder.requests;
    };
    const auto write = [&](std::uint32_t process) {
        return event(
            {.kind = MemoryEventKind::kFault, .write = true, .process = process, .start = VirtAddr(0x10000)});
    };
    event({.kind = MemoryEventKind::kExec, .process = 1});
    event({.kind = MemoryEventKind::kMap,
           .protection = 3,
           .process = 1,
           .start = VirtAddr(0x10000),
           .bytes = kPage});
    EXPECT_EQ(write(1).at(0).kind, RequestKind::kInstalled);
    EXPECT_EQ(event({.kind = MemoryEventKind::kFork, .process = 1, .child = 2}).at(0).kind,
              RequestKind::kSpace);
    EXPECT_EQ(write(1).at(0).kind, RequestKind::kPage);   // the parent copies
    EXPECT_EQ(write(2).at(0).kind, RequestKind::kRelax);  // the child is the only one left
    const auto ends = event({.kind = MemoryEventKind::kExit, .process = 2});
    ASSERT_EQ(ends.size(), 1U);
    EXPECT_TRUE(ends[0].whole);
    EXPECT_TRUE(ends[0].freed_tables);
    EXPECT_FALSE(ends[0].current);
}

// What a ppc64le guest of two CPUs showed: the task is on CPU 0 when its old space goes and on CPU 1 by the
// time of sched_process_exec, and what is flushed is decided where each thing happens.
TEST(MemoryManager, AnExecIsFlushedWhereItHappens) {
    constexpr std::uint64_t kNewStack = 0xffffffffffff0;  // below 2^52, where an exec builds it
    constexpr std::uint64_t kOld = 0x1000;                // mm_structs
    constexpr std::uint64_t kNew = 0x2000;
    Recorder recorder;
    MemoryManager manager({.faults = true, .cpus_known = true}, recorder);
    const auto fault = [&](std::uint32_t cpu, std::uint64_t address) {
        manager.event({.kind = MemoryEventKind::kFault,
                       .write = true,
                       .cpu = cpu,
                       .process = 7,
                       .thread = 7,
                       .start = VirtAddr(address)});
    };
    const auto call = [&](MemoryCallKind kind, std::uint32_t cpu, std::uint64_t space, std::uint64_t start) {
        manager.call({.kind = kind, .cpu = cpu, .process = 7, .thread = 7, .space = space, .start = start});
    };
    manager.event({.kind = MemoryEventKind::kExec, .process = 7, .thread = 7});
    fault(0, 0x10000);
    call(MemoryCallKind::kPage, 0, kOld, 0x10000);
    recorder.requests.clear();

    // An exec that fails takes down its own space only.
    fault(0, kNewStack);
    call(MemoryCallKind::kExit, 0, kNew, 0);
    EXPECT_TRUE(recorder.requests.empty());

    fault(0, kNewStack);
    call(MemoryCallKind::kExit, 0, kOld, 0);
    ASSERT_EQ(recorder.requests.size(), 1U);
    EXPECT_TRUE(recorder.requests[0].whole);
    EXPECT_EQ(recorder.requests[0].reason, Reason::kExec);
    EXPECT_EQ(recorder.requests[0].cpu, 0U);
    const SpaceId old = recorder.requests[0].space;
    recorder.requests.clear();
    manager.event({.kind = MemoryEventKind::kSwitch, .cpu = 1, .process = 7, .thread = 7});
    call(MemoryCallKind::kProtect, 1, kNew, kNewStack & ~0xfffULL);
    ASSERT_EQ(recorder.requests.size(), 2U);  // the stack's range and its tables
    for (const Request& request : recorder.requests) {
        EXPECT_EQ(request.cpu, 1U);
        EXPECT_NE(request.space, old);
    }
    const SpaceId fresh = recorder.requests[0].space;
    recorder.requests.clear();
    manager.event({.kind = MemoryEventKind::kExec, .cpu = 1, .process = 7, .thread = 7});
    EXPECT_TRUE(recorder.requests.empty());
    EXPECT_EQ(manager.space_of(7), fresh);

    // Its end, likewise: where exit_mmap begins, and only once.
    fault(1, 0x10000);
    recorder.requests.clear();
    call(MemoryCallKind::kExit, 1, kNew, 0);
    ASSERT_EQ(recorder.requests.size(), 1U);
    EXPECT_TRUE(recorder.requests[0].whole);
    EXPECT_EQ(recorder.requests[0].reason, Reason::kExit);
    EXPECT_EQ(recorder.requests[0].cpu, 1U);
    recorder.requests.clear();
    manager.event({.kind = MemoryEventKind::kExit, .cpu = 0, .process = 7, .thread = 7});
    EXPECT_TRUE(recorder.requests.empty());
}

// free_pgtables: a table goes only when no neighbour keeps it.
TEST(MemoryManager, TablesGoWithTheirLastRange) {
    Recorder recorder;
    MemoryManager manager({.faults = true, .cpus_known = true}, recorder);
    manager.event({.kind = MemoryEventKind::kExec, .process = 1});
    for (const std::uint64_t start : {0x400000U, 0x410000U}) {
        manager.event({.kind = MemoryEventKind::kMap,
                       .protection = 3,
                       .process = 1,
                       .start = VirtAddr(start),
                       .bytes = kPage});
        manager.event(
            {.kind = MemoryEventKind::kFault, .write = true, .process = 1, .start = VirtAddr(start)});
    }
    recorder.requests.clear();
    manager.event(
        {.kind = MemoryEventKind::kUnmap, .process = 1, .start = VirtAddr(0x400000), .bytes = kPage});
    ASSERT_EQ(recorder.requests.size(), 1U);
    EXPECT_FALSE(recorder.requests[0].freed_tables);
    recorder.requests.clear();
    manager.event(
        {.kind = MemoryEventKind::kUnmap, .process = 1, .start = VirtAddr(0x410000), .bytes = kPage});
    ASSERT_EQ(recorder.requests.size(), 1U);
    EXPECT_TRUE(recorder.requests[0].freed_tables);
    EXPECT_EQ(recorder.requests[0].start, 0x400000U);  // where the table begins
    EXPECT_EQ(recorder.requests[0].end, 0x411000U);
}

}  // namespace
}  // namespace tlbscope::flush
