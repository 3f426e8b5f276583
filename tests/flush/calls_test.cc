// The kernel's own calls of its flush code as requests, operands in words, and what a TLB per CPU loses.
#include <gtest/gtest.h>

#include "core/tlbie.h"
#include "flush/call_manager.h"
#include "flush/radix.h"
#include "flush/tlb_contents.h"

namespace tlbscope::flush {
namespace {

struct Recorder : Listener {
    std::vector<Request> requests;
    std::vector<SpaceId> ends;
    std::optional<SpaceId> running;  // by the last switch
    void switched(std::uint32_t, std::optional<SpaceId> space) override { running = space; }
    void requested(const Request& request) override { requests.push_back(request); }
    void ended(SpaceId space) override { ends.push_back(space); }
};

MemoryCall call(MemoryCallKind kind, std::uint32_t process, std::uint64_t space, std::uint64_t start = 0,
                std::uint64_t end = 0) {
    return {.kind = kind, .process = process, .thread = process, .space = space, .start = start, .end = end};
}

TEST(CallManager, AnExecUsesItsNewSpaceBeforeItsEvent) {
    Recorder recorder;
    CallManager manager(PageShift(16), recorder);
    manager.event({.kind = MemoryEventKind::kFault, .process = 7, .start = VirtAddr(0x10000)});
    manager.call(call(MemoryCallKind::kPage, 7, 0xa, 0x10000));
    MemoryCall teardown = call(MemoryCallKind::kGather, 7, 0xa);
    teardown.whole = true;
    manager.call(teardown);
    manager.call(call(MemoryCallKind::kRange, 7, 0xb, 0x20000, 0x30000));
    manager.event({.kind = MemoryEventKind::kExec, .process = 7, .thread = 7});
    manager.call(call(MemoryCallKind::kPage, 7, 0xb, 0x40000));
    ASSERT_EQ(recorder.requests.size(), 4U);
    EXPECT_EQ(recorder.requests[0].space, recorder.requests[1].space);
    EXPECT_TRUE(recorder.requests[1].whole);
    EXPECT_FALSE(recorder.requests[1].current);
    EXPECT_NE(recorder.requests[2].space, recorder.requests[0].space);
    EXPECT_TRUE(recorder.requests[2].current);
    EXPECT_EQ(recorder.requests[3].space, recorder.requests[2].space);
    EXPECT_EQ(recorder.ends, std::vector{recorder.requests[0].space});
}

// exit_mmap has begun: wherever the task goes to finish, it brings no CPU into the mask of the space. The
// mm_struct serves the next process before the event of this end.
TEST(CallManager, AnEndLeavesItsSpaceWhereItBegins) {
    Recorder recorder;
    CallManager manager(PageShift(16), recorder);
    manager.event({.kind = MemoryEventKind::kFault, .process = 7, .start = VirtAddr(0x10000)});
    manager.call(call(MemoryCallKind::kPage, 7, 0xa, 0x10000));
    EXPECT_TRUE(recorder.running.has_value());
    manager.call(call(MemoryCallKind::kExit, 7, 0xa));
    EXPECT_FALSE(recorder.running.has_value());
    manager.event({.kind = MemoryEventKind::kSwitch, .cpu = 1, .process = 7, .thread = 7});
    EXPECT_FALSE(recorder.running.has_value());
    MemoryCall teardown = call(MemoryCallKind::kGather, 7, 0xa);
    teardown.whole = true;
    manager.call(teardown);
    manager.event({.kind = MemoryEventKind::kFault, .process = 8, .start = VirtAddr(0x10000)});
    manager.call(call(MemoryCallKind::kPage, 8, 0xa, 0x10000));
    manager.event({.kind = MemoryEventKind::kExit, .cpu = 1, .process = 7, .thread = 7});
    manager.call(call(MemoryCallKind::kPage, 8, 0xa, 0x20000));
    ASSERT_EQ(recorder.requests.size(), 4U);
    EXPECT_EQ(recorder.requests[1].space, recorder.requests[0].space);
    EXPECT_NE(recorder.requests[2].space, recorder.requests[0].space);
    EXPECT_EQ(recorder.requests[3].space, recorder.requests[2].space);
    EXPECT_TRUE(recorder.requests[3].current);
    EXPECT_EQ(recorder.ends, std::vector{recorder.requests[0].space});
}

TEST(CallManager, AFailedExecTakesDownASpaceThatNeverRan) {
    Recorder recorder;
    CallManager manager(PageShift(16), recorder);
    manager.event({.kind = MemoryEventKind::kFault, .process = 7, .start = VirtAddr(0x10000)});
    manager.call(call(MemoryCallKind::kPage, 7, 0xa, 0x10000));
    MemoryCall teardown = call(MemoryCallKind::kGather, 7, 0xb);
    teardown.whole = true;
    manager.call(teardown);
    manager.call(call(MemoryCallKind::kPage, 7, 0xa, 0x20000));
    ASSERT_EQ(recorder.requests.size(), 3U);
    EXPECT_NE(recorder.requests[1].space, recorder.requests[0].space);
    EXPECT_EQ(recorder.requests[2].space, recorder.requests[0].space);
    EXPECT_TRUE(recorder.requests[2].current);
    // Today's kernel has nothing to flush for it: no CPU is in its mask.
    Radix today(RadixRules{.today = true});
    today.switch_to(0, recorder.requests[0].space);
    today.request(recorder.requests[1]);
    EXPECT_EQ(today.account().total().operations(), 0U);
}

TEST(CallManager, ACollapseNamesEverySmallPageAndTheTable) {
    Recorder recorder;
    CallManager manager(PageShift(16), recorder);
    manager.call(call(MemoryCallKind::kHuge, 99, 0xa, 0x200000, 0x200000));
    ASSERT_EQ(recorder.requests.size(), 1U);
    EXPECT_EQ(recorder.requests[0].end - recorder.requests[0].start, 0x200000U);
    EXPECT_TRUE(recorder.requests[0].freed_tables);
    EXPECT_FALSE(recorder.requests[0].current);
}

TEST(Tlbie, InWordsAndBack) {
    const TlbieOperands page = tlbie_page(0x7fff8a2d0000, 65536, 12, true);
    EXPECT_EQ(page.rb, 0x7fff8a2d00a0U);
    EXPECT_EQ(in_words(page), "tlbiel: page 0x7fff8a2d0000 (64K) of PID 12, translations");
    EXPECT_EQ(operation_of(page).bytes, 65536U);
    const TlbieOperands pid = tlbie_pid(5, 3, 0, true);
    EXPECT_EQ(pid.rb, 0x3400U);
    EXPECT_EQ(in_words(pid), "tlbiel: set 3 of PID 5, translations");
    EXPECT_EQ(in_words(tlbie_pid(5, 0, 2, false)),
              "tlbie: PID 5, translations, walk cache and process table entry");
    EXPECT_EQ(in_words(tlbie_pid(5, 0, 1, false)), "tlbie: PID 5, walk cache");
    EXPECT_EQ(kind_in_words(tlbie_pid(0, 0, 2, false)),
              "tlbie: a PID, translations, walk cache and process table entry, the kernel's own");
    EXPECT_EQ(operation_of(tlbie_pid(5, 0, 1, true)).scope, TlbScope::kWalkCache);
    EXPECT_EQ(operation_of({.rb = 0xc00, .ric = 2}).scope, TlbScope::kAll);
    const auto read =
        parse_tlbie("tlbie: lpid=0, local=1, rb=0x3400, rs=0x500000000, ric=0x0, prs=0x1, r=0x1");
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(*read, pid);
    EXPECT_FALSE(parse_tlbie("rb=0x3400").has_value());
    EXPECT_FALSE(parse_tlbie("rb=0xzz rs=0x1").has_value());
}

TEST(TlbContents, WhatAPidFlushDropsAliveIsMissedLater) {
    Radix before(RadixRules{.page_bytes = 4096});
    TlbContents tlb(before, 64, PageShift(12));
    before.show(&tlb);
    before.switch_to(0, SpaceId(1));
    for (const std::uint64_t page : {1U, 2U, 3U}) tlb.reference(0, SpaceId(1), page * 4096);
    const Request request{
        .kind = RequestKind::kRange, .space = SpaceId(1), .start = 1 * 4096, .end = 2 * 4096};
    tlb.begin(request);
    before.request(request);
    tlb.end();
    EXPECT_EQ(before.account().total().dropped, 3U);
    EXPECT_EQ(before.account().total().live_dropped, 2U);
    tlb.reference(0, SpaceId(1), 1 * 4096);  // changed: no fault of the flush
    tlb.reference(0, SpaceId(1), 2 * 4096);
    tlb.reference(0, SpaceId(1), 2 * 4096);
    EXPECT_EQ(before.account().total().refills, 1U);
}

}  // namespace
}  // namespace tlbscope::flush
