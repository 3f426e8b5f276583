#include "capture/guest/report.h"

#include <gtest/gtest.h>

#include <random>

#include "capture/guest/messages.h"

namespace tlbscope::capture {
namespace {

using Units = std::vector<std::uint16_t>;

std::string number(std::uint32_t v) {
    std::string bytes;
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(v >> 8 * i & 0xff);
    return bytes;
}

// A message as guests/channel.c sends it.
void add(Units& units, std::uint16_t type, const std::string& bytes) {
    units.insert(units.end(), {0x7463, type, static_cast<std::uint16_t>(bytes.size() & 0xffff),
                               static_cast<std::uint16_t>(bytes.size() >> 16)});
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
        const auto low = static_cast<std::uint8_t>(bytes[i]);
        const auto high = static_cast<std::uint8_t>(i + 1 < bytes.size() ? bytes[i + 1] : 0);
        units.push_back(static_cast<std::uint16_t>(low | high << 8));
    }
}

std::string hello(bool big_endian = false) {
    return number(kProtocolVersion) + number(4096) + number(2) + number(big_endian ? 1 : 0);
}

Units whole_report() {
    Units units;
    add(units, kMessageHello, hello());
    add(units, kMessageKernel, std::string("6.1.0\0#1 SMP\0x86_64\0", 20));
    add(units, kMessageCommandLine, "console=ttyS0 quiet \n");
    add(units, kMessageCpu, "QEMU Virtual CPU");
    add(units, kMessageNotes, number(4) + number(3) + number(3) + std::string("GNU\0\x01\x02\xff\0", 8));
    add(units, kMessageModules, "");
    add(units, kMessageVdso, std::string("\177ELF", 4));
    add(units, kMessageVdso, std::string("\0\1", 2));
    add(units, kMessageKallsyms, "ffffffff81000000 T _st");
    add(units, kMessageKallsyms, "ext\n");
    add(units, kMessageTasks, "1 1 100 init\n");
    add(units, kMessageCommand, number(80));
    add(units, kMessageStatus, number(7 << 8));
    add(units, kMessagePerf, number(1) + "odd");
    add(units, kMessagePerf, number(1) + "more");
    add(units, kMessagePerfLost, number(0) + number(0) + number(0) + number(0));
    add(units, kMessagePerfLost, number(1) + number(1) + number(5) + number(1));
    add(units, kMessageTraceFormat, "name: print\n");
    add(units, kMessageTraceLost, number(0) + number(2) + number(0));
    add(units, kMessageTraceLost, number(1) + number(3) + number(1));
    add(units, kMessageTrace, number(1) + "page");
    add(units, kMessageTrace, number(1) + "next");
    add(units, kMessageStdout, "out");
    add(units, kMessageStdout, "put\n");
    add(units, kMessageStderr, std::string("a\0b", 3));
    add(units, kMessageDropped, number(kMessageStderr) + number(9) + number(0));
    add(units, kMessageWarning, "cannot read x");
    add(units, 999, "a message of the future");
    add(units, kMessageDone, "");
    return units;
}

void expect_whole(const GuestFacts& f) {
    EXPECT_EQ(f.page_size, 4096U);
    EXPECT_EQ(f.cpus, 2U);
    EXPECT_EQ(f.release, "6.1.0");
    EXPECT_EQ(f.version, "#1 SMP");
    EXPECT_EQ(f.machine, "x86_64");
    EXPECT_EQ(f.command_line, "console=ttyS0 quiet");
    EXPECT_EQ(f.cpu, "QEMU Virtual CPU");
    EXPECT_EQ(f.build_id, "0102ff");
    EXPECT_EQ(f.tasks, "1 1 100 init\n");
    EXPECT_EQ(f.pid, 80U);
    EXPECT_EQ(f.status, 7 << 8);
    EXPECT_EQ(outcome(f), "exited with status 7");
    EXPECT_EQ(std::string(f.perf.at(1).begin(), f.perf.at(1).end()), "oddmore");
    EXPECT_EQ(f.perf_lost, (std::uint64_t{1} << 32) + 5);
    EXPECT_EQ(f.trace_formats, std::vector<std::string>{"name: print\n"});
    EXPECT_EQ(f.trace_lost, (std::uint64_t{1} << 32) + 5);
    ASSERT_EQ(f.trace.at(1).size(), 2U);
    EXPECT_EQ(std::string(f.trace.at(1)[1].begin(), f.trace.at(1)[1].end()), "next");
    EXPECT_EQ(f.out, "output\n");
    EXPECT_EQ(f.err, std::string("a\0b", 3));
    EXPECT_EQ(f.err_dropped, 9U);
    EXPECT_EQ(f.out_dropped, 0U);
    EXPECT_EQ(f.warnings, std::vector<std::string>{"cannot read x"});
    EXPECT_EQ(f.kallsyms, "ffffffff81000000 T _stext\n");
    EXPECT_EQ(f.vdso, std::string("\177ELF\0\1", 6));
    EXPECT_TRUE(f.done);
}

TEST(GuestReport, ReadsEveryMessage) {
    GuestReport report;
    ASSERT_TRUE(report.feed(whole_report()));
    expect_whole(report.facts());
}

TEST(GuestReport, ByteOrderOfTheGuest) {
    Units units;
    add(units, kMessageHello, hello(true));
    add(units, kMessageNotes, std::string("\0\0\0\4\0\0\0\2\0\0\0\3GNU\0\xab\xcd\0\0", 20));
    GuestReport report;
    ASSERT_TRUE(report.feed(units));
    EXPECT_TRUE(report.facts().big_endian);
    EXPECT_EQ(report.facts().build_id, "abcd");
}

TEST(GuestReport, InAnyPieces) {
    const Units units = whole_report();
    for (const std::size_t piece : {1U, 2U, 3U, 7U}) {
        GuestReport report;
        for (std::size_t at = 0; at < units.size(); at += piece)
            ASSERT_TRUE(report.feed(std::span(units).subspan(at, std::min(piece, units.size() - at))));
        expect_whole(report.facts());
    }
}

TEST(GuestReport, EveryPrefixIsUnderstoodButNotDone) {
    const Units units = whole_report();
    for (std::size_t n = 0; n < units.size(); ++n) {
        GuestReport report;
        ASSERT_TRUE(report.feed(std::span(units).first(n)));
        EXPECT_FALSE(report.done());
        EXPECT_EQ(report.units(), n);
    }
}

TEST(GuestReport, KallsymsAreCompleteWhenAnythingElseFollows) {
    GuestReport report;
    Units units;
    add(units, kMessageHello, hello());
    add(units, kMessageKallsyms, "a");
    add(units, kMessageKallsyms, "b");
    ASSERT_TRUE(report.feed(units));
    EXPECT_FALSE(report.facts().has_all_kallsyms);
    units.clear();
    add(units, kMessageTasks, "");
    ASSERT_TRUE(report.feed(units));
    EXPECT_TRUE(report.facts().has_all_kallsyms);
    EXPECT_EQ(report.facts().kallsyms, "ab");
}

TEST(GuestReport, BadFramingIsAnError) {
    Units units;
    add(units, kMessageHello, hello());
    units.insert(units.end(), {0x1234, 1, 0, 0});
    GuestReport wrong_magic;
    const auto first = wrong_magic.feed(units);
    ASSERT_FALSE(first);
    EXPECT_EQ(first.error().where, "guest's report:unit 12");

    GuestReport too_long;
    const auto second = too_long.feed(Units{0x7463, 1, 0, 0x100});
    ASSERT_FALSE(second);
    EXPECT_EQ(second.error().what, "a message of 16777216 bytes is longer than any the agent sends");

    Units no_greeting;
    add(no_greeting, kMessageStatus, number(0));
    EXPECT_FALSE(GuestReport().feed(no_greeting));

    Units other_version;
    add(other_version, kMessageHello, number(9) + number(4096) + number(1) + number(0));
    EXPECT_FALSE(GuestReport().feed(other_version));

    Units too_short;
    add(too_short, kMessageHello, hello());
    add(too_short, kMessageStatus, "ab");
    const auto third = GuestReport().feed(too_short);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().what, "a message of type 14 is too short");
}

TEST(GuestReport, DamagedUnitsNeverCrash) {
    const Units units = whole_report();
    for (std::size_t at = 0; at < units.size(); ++at)
        for (const std::uint16_t flip : {0x0001, 0x0080, 0x8000, 0xffff}) {
            Units damaged = units;
            damaged[at] = static_cast<std::uint16_t>(damaged[at] ^ flip);
            GuestReport report;
            (void)report.feed(damaged);
        }
    std::mt19937 random(20050407);
    for (int run = 0; run < 2000; ++run) {
        Units garbage;
        add(garbage, kMessageHello, hello());
        for (int i = 0; i < 64; ++i)
            garbage.push_back(random() % 4 == 0 ? 0x7463 : static_cast<std::uint16_t>(random() % 32));
        GuestReport report;
        (void)report.feed(garbage);
    }
}

TEST(GuestReport, OutputBeyondWhatIsKeptIsCounted) {
    GuestReport report;
    Units units;
    add(units, kMessageHello, hello());
    ASSERT_TRUE(report.feed(units));
    units.clear();
    add(units, kMessageStdout, std::string(65536, 'x'));
    for (int i = 0; i < kMostOutput / 65536 + 3; ++i) ASSERT_TRUE(report.feed(units));
    EXPECT_EQ(report.facts().out.size(), static_cast<std::size_t>(kMostOutput));
    EXPECT_EQ(report.facts().out_dropped, 3U * 65536);
}

TEST(GuestReport, MemoryIsBounded) {
    GuestReport report;
    Units units;
    add(units, kMessageHello, hello());
    ASSERT_TRUE(report.feed(units));
    units.clear();
    add(units, kMessageModules, std::string(65536, 'x'));
    Result<void> done;
    int sent = 0;
    for (; done && sent < 10000; ++sent) done = report.feed(units);
    EXPECT_FALSE(done);
    EXPECT_LE(sent, 8192);
}

TEST(Outcome, InWords) {
    GuestFacts facts;
    EXPECT_EQ(outcome(facts), "did not end");
    facts.status = 9;
    EXPECT_EQ(outcome(facts), "was killed by signal 9 (Killed)");
    facts.exec_error = 2;
    EXPECT_EQ(outcome(facts), "did not start: No such file or directory");
    facts.failure = "cannot enter /x: No such file or directory";
    EXPECT_EQ(outcome(facts), "did not start: cannot enter /x: No such file or directory");
}

}  // namespace
}  // namespace tlbscope::capture
