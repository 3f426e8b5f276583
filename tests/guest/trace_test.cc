// Pages of the kernel's trace buffer made by hand, as include/linux/ring_buffer.h describes them.
#include "capture/guest/trace.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "capture/guest/messages.h"

namespace tlbscope::capture {
namespace {

using recording::KernelEvent;
using recording::time_of;

const char* const kHead =
    "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n"
    "\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n";

std::string format(const std::string& name, int id, const std::string& fields) {
    return "name: " + name + "\nID: " + std::to_string(id) + "\nformat:\n" + kHead + fields +
           "\nprint fmt: \"\"\n";
}
std::string field(const std::string& declared, int offset, int size) {
    return "\tfield:" + declared + ";\toffset:" + std::to_string(offset) + ";\tsize:" + std::to_string(size) +
           ";\tsigned:0;\n";
}

enum Id : std::uint16_t {
    kPrint = 5,
    kEnter = 20,
    kLeave = 21,
    kFork = 30,
    kCloneId = 40,
    kTlbieId = 50,
    kGatherId = 51
};

std::vector<std::string> formats() {
    std::vector<std::string> all{
        format("print", kPrint, field("unsigned long ip", 8, 8) + field("char buf[]", 16, 0)),
        format("sys_enter", kEnter, field("long id", 8, 8) + field("unsigned long args[6]", 16, 48)),
        format("sys_exit", kLeave, field("long id", 8, 8) + field("long ret", 16, 8)),
        format("sched_process_fork", kFork,
               field("char parent_comm[16]", 8, 16) + field("pid_t parent_pid", 24, 4) +
                   field("char child_comm[16]", 28, 16) + field("pid_t child_pid", 44, 4)),
        format("clone", kCloneId, field("unsigned long __probe_ip", 8, 8) + field("u64 flags", 16, 8)),
        format("flush_gather", kGatherId,
               field("unsigned long __probe_ip", 8, 8) + field("u64 mm", 16, 8) + field("u64 start", 24, 8) +
                   field("u64 end", 32, 8) + field("u16 bits", 40, 2) + field("u32 page", 42, 4))};
    std::string fields;
    int at = 8;
    for (const char* name : {"lpid", "local", "rb", "rs", "ric", "prs", "r"}) {
        fields += field(std::string("unsigned long ") + name, at, 8);
        at += 8;
    }
    all.push_back(format("tlbie", kTlbieId, fields));
    return all;
}

class Page {
  public:
    explicit Page(std::uint64_t time) : time_(time) {
        put(time, 8);
        put(0, 8);
    }
    // `numbers` are the words of the event behind its common part.
    void event(std::uint64_t time, std::uint16_t id, std::uint32_t thread,
               const std::vector<std::uint64_t>& numbers) {
        std::vector<std::uint8_t> body;
        for (const std::uint64_t n : numbers) append(body, n, 8);
        raw(time, id, thread, body);
    }
    void raw(std::uint64_t time, std::uint16_t id, std::uint32_t thread, std::vector<std::uint8_t> body,
             bool long_form = false) {
        std::vector<std::uint8_t> data;
        append(data, id, 2);
        append(data, 0, 2);
        append(data, thread, 4);
        data.insert(data.end(), body.begin(), body.end());
        while (data.size() % 4 != 0) data.push_back(0);
        std::uint64_t delta = time - time_;
        if (delta >> 27 != 0) {  // time extend
            put(30 | (delta & 0x7ffffff) << 5, 4);
            put(delta >> 27, 4);
            delta = 0;
        }
        time_ = time;
        if (long_form || data.size() > 28 * 4) {
            put(delta << 5, 4);
            put(data.size() + 4, 4);
        } else {
            put(data.size() / 4 | delta << 5, 4);
        }
        bytes_.insert(bytes_.end(), data.begin(), data.end());
        finish();
    }
    void absolute(std::uint64_t time) {
        put(31 | (time & 0x7ffffff) << 5, 4);
        put(time >> 27 & 0xffffffff, 4);
        time_ = time;
        finish();
    }
    void discarded(std::size_t bytes) {
        put(29 | 1U << 5, 4);
        put(bytes + 4, 4);
        bytes_.resize(bytes_.size() + bytes);
        time_ += 1;
        finish();
    }
    void padding() {
        put(29, 4);
        finish();
        bytes_.resize(bytes_.size() + 8, 0xee);
    }
    void print(std::uint64_t time, const std::string& text) {
        std::vector<std::uint8_t> body(8);
        body.insert(body.end(), text.begin(), text.end());
        body.push_back(0);
        raw(time, kPrint, 7, body);
    }
    [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

  private:
    static void append(std::vector<std::uint8_t>& to, std::uint64_t value, int size) {
        for (int i = 0; i < size; ++i) to.push_back(static_cast<std::uint8_t>(value >> 8 * i));
    }
    void put(std::uint64_t value, int size) { append(bytes_, value, size); }
    void finish() {
        const std::uint64_t commit = bytes_.size() - 16;
        std::memcpy(bytes_.data() + 8, &commit, 8);
    }
    std::vector<std::uint8_t> bytes_;
    std::uint64_t time_;
};

GuestFacts facts_of(std::map<std::uint32_t, std::vector<std::vector<std::uint8_t>>> pages) {
    GuestFacts facts;
    facts.page_size = 65536;
    facts.tasks = "7 7 0 command\n8 7 0 command\n";
    facts.trace_formats = formats();
    facts.trace = std::move(pages);
    return facts;
}

struct Told {
    std::uint32_t cpu;
    KernelEvent event;
};
std::vector<Told> read(const GuestFacts& facts) {
    std::vector<Told> told;
    const auto read = read_trace(facts, false, [&](std::uint32_t cpu, const KernelEvent& e) -> Result<void> {
        told.push_back({cpu, e});
        return {};
    });
    EXPECT_TRUE(read) << read.error().message();
    return told;
}

TEST(Trace, BetweenTheMarkersOnly) {
    Page page(1000);
    page.event(1000, kTlbieId, 7, {0, 1, 0x400, std::uint64_t{5} << 32, 2, 1, 1});
    page.print(1010, kTraceBegin);
    page.event(1020, kTlbieId, 7, {0, 1, 0x10a0, std::uint64_t{5} << 32, 0, 1, 1});
    page.print(1030, kTraceEnd);
    page.event(1040, kTlbieId, 7, {0, 0, 0x400, std::uint64_t{5} << 32, 2, 1, 1});
    // Another CPU, whose page knows of no marker.
    Page other(1);
    other.event(1005, kTlbieId, 8, {0, 0, 0x400, 0, 0, 1, 1});
    other.event(1025, kTlbieId, 8, {0, 0, 0x401, std::uint64_t{6} << 32, 1, 1, 1});
    const auto told = read(facts_of({{0, {page.bytes()}}, {1, {other.bytes()}}}));
    ASSERT_EQ(told.size(), 2U);
    const auto& first = std::get<TlbOperation>(told[0].event);
    EXPECT_EQ(first.time, 1020U);
    EXPECT_EQ(first.scope, TlbScope::kPage);
    EXPECT_TRUE(first.local);
    EXPECT_EQ(first.hardware, 5U);
    EXPECT_EQ(first.start, VirtAddr(0x1000));
    EXPECT_EQ(first.bytes, 65536U);
    const auto& second = std::get<TlbOperation>(told[1].event);
    EXPECT_EQ(told[1].cpu, 1U);
    EXPECT_EQ(second.scope, TlbScope::kWalkCache);
    EXPECT_FALSE(second.local);
}

TEST(Trace, EveryFormOfTime) {
    Page page(100);
    page.print(100, kTraceBegin);
    page.event(100 + (std::uint64_t{5} << 27), kTlbieId, 7, {});  // extended
    page.absolute((std::uint64_t{9} << 27) + 3);
    page.event((std::uint64_t{9} << 27) + 13, kTlbieId, 7, {});
    page.discarded(12);
    page.raw((std::uint64_t{9} << 27) + 20, kTlbieId, 7, std::vector<std::uint8_t>(56), true);
    page.padding();
    const auto told = read(facts_of({{0, {page.bytes()}}}));
    ASSERT_EQ(told.size(), 3U);
    EXPECT_EQ(time_of(told[0].event), 100 + (std::uint64_t{5} << 27));
    EXPECT_EQ(time_of(told[1].event), (std::uint64_t{9} << 27) + 13);
    EXPECT_EQ(time_of(told[2].event), (std::uint64_t{9} << 27) + 20);
}

TEST(Trace, CallsStandWhereTheyBegan) {
    Page page(1);
    page.print(1, kTraceBegin);
    page.event(10, kEnter, 8, {91, 0x20000, 100, 0, 0, 0, 0});  // munmap
    page.event(15, kTlbieId, 8, {});
    page.event(20, kLeave, 8, {91, 0});
    page.event(30, kEnter, 7, {90, 0, 0x10001, 3, 0x22, 0, 0});  // mmap, ends on another CPU
    page.event(50, kEnter, 7, {125, 0x10000, 65536, 1, 0, 0, 0});
    page.event(55, kLeave, 7, {125, ~std::uint64_t{12} + 1});  // -ENOMEM: nothing happened
    Page other(40);
    other.event(40, kLeave, 7, {90, 0x7000000});
    const auto told = read(facts_of({{0, {page.bytes()}}, {1, {other.bytes()}}}));
    ASSERT_EQ(told.size(), 3U);
    const auto& unmap = std::get<MemoryEvent>(told[0].event);
    EXPECT_EQ(unmap.kind, MemoryEventKind::kUnmap);
    EXPECT_EQ(unmap.process, 7U);
    EXPECT_EQ(unmap.thread, 8U);
    EXPECT_EQ(unmap.time, 10U);
    EXPECT_EQ(unmap.start, VirtAddr(0x20000));
    EXPECT_EQ(unmap.bytes, 65536U);
    EXPECT_EQ(time_of(told[1].event), 15U);
    const auto& map = std::get<MemoryEvent>(told[2].event);
    EXPECT_EQ(map.kind, MemoryEventKind::kMap);
    EXPECT_EQ(map.start, VirtAddr(0x7000000));
    EXPECT_EQ(map.bytes, 131072U);
    EXPECT_EQ(map.protection, kProtectRead | kProtectWrite);
    EXPECT_FALSE(map.file);
}

TEST(Trace, ThreadsAndProcesses) {
    const auto fork = [](Page& page, std::uint64_t time, std::uint32_t parent, std::uint32_t child) {
        std::vector<std::uint8_t> body(40);
        std::memcpy(body.data() + 16, &parent, 4);
        std::memcpy(body.data() + 36, &child, 4);
        page.raw(time, kFork, parent, body);
    };
    Page page(1);
    page.event(2, kCloneId, 7, {0, 0});
    fork(page, 3, 7, 20);  // before the window: known all the same
    page.print(5, kTraceBegin);
    page.event(10, kCloneId, 20, {0, 0x10100});
    fork(page, 11, 20, 21);
    page.event(12, kCloneId, 21, {0, 0x4100});  // vfork
    fork(page, 13, 21, 22);
    page.event(14, kGatherId, 22, {0, 0xc000, 0x1000, 0x3000, 0x1000000005});
    const auto told = read(facts_of({{0, {page.bytes()}}}));
    ASSERT_EQ(told.size(), 3U);
    const auto& thread = std::get<MemoryEvent>(told[0].event);
    EXPECT_EQ(std::tuple(thread.process, thread.thread, thread.child, thread.shares_space),
              std::tuple(20U, 20U, 21U, true));
    const auto& child = std::get<MemoryEvent>(told[1].event);
    EXPECT_EQ(std::tuple(child.process, child.thread, child.child, child.shares_space),
              std::tuple(20U, 21U, 22U, true));
    const auto& gather = std::get<MemoryCall>(told[2].event);
    EXPECT_EQ(gather.process, 22U);
    EXPECT_EQ(gather.space, 0xc000U);
    EXPECT_EQ(gather.start, 0x1000U);
    EXPECT_EQ(gather.end, 0x3000U);
    EXPECT_TRUE(gather.whole);
    EXPECT_TRUE(gather.freed_tables);
    EXPECT_EQ(gather.page_shift, 20U);
}

TEST(Trace, WithoutTheStartNothingIsTold) {
    Page page(1);
    page.event(10, kTlbieId, 8, {});
    EXPECT_TRUE(read(facts_of({{0, {page.bytes()}}})).empty());
}

TEST(Trace, DamagedPagesNeverCrash) {
    Page page(1);
    page.print(1, kTraceBegin);
    page.event(10, kEnter, 8, {91, 0x20000, 100, 0, 0, 0, 0});
    page.event(20, kLeave, 8, {91, 0});
    page.discarded(8);
    page.absolute(1 << 20);
    page.event(1 << 21, kTlbieId, 8, {0, 1, 2, 3, 4, 5, 6});
    const auto good = page.bytes();
    const auto none = [](std::uint32_t, const KernelEvent&) -> Result<void> { return {}; };
    std::size_t refused = 0;
    for (std::size_t at = 0; at < good.size(); ++at)
        for (int bit = 0; bit < 8; ++bit) {
            auto bad = good;
            bad[at] = static_cast<std::uint8_t>(bad[at] ^ 1 << bit);
            refused += read_trace(facts_of({{0, {bad}}}), false, none) ? 0 : 1;
        }
    EXPECT_GT(refused, 0U);
    for (std::size_t size = 0; size < good.size(); ++size) {
        const std::vector<std::uint8_t> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(size));
        EXPECT_FALSE(read_trace(facts_of({{0, {cut}}}), false, none)) << size;
    }
}

}  // namespace
}  // namespace tlbscope::capture
