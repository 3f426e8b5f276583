// The auditor on small logs, one for each thing that can be wrong, and beside it the same log done right.
#include "tables/audit.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <sstream>

namespace tlbscope::tables {
namespace {

Auditor audited(const std::string& log, const AuditOptions& options = {}) {
    Auditor auditor(options);
    std::istringstream lines(log);
    std::string line;
    std::uint64_t number = 0;
    while (std::getline(lines, line)) auditor.line(line, ++number);
    auditor.finish();
    return auditor;
}

// "double free 4<2", one for each finding.
std::string faults(const std::string& log, const AuditOptions& options = {}) {
    const Auditor auditor = audited(log, options);
    std::string text;
    for (const Finding& finding : auditor.findings())
        text += fmt::format("{}{} {}<{}", text.empty() ? "" : ", ", name_of(finding.fault), finding.line,
                            finding.earlier);
    return text;
}

TEST(Audit, Allocations) {
    EXPECT_EQ(faults("alloc 0x1000\nfree 0x1000\nalloc 0x1000\nfree 0x1000\n"), "");
    EXPECT_EQ(faults("alloc 0x1000\nfree 0x1000\nfree 0x1000\n"), "double free 3<2");
    EXPECT_EQ(faults("alloc 0x1000\nalloc 0x1000\nfree 0x1000\n"), "double allocation 2<1");
    EXPECT_EQ(faults("free 0x1000\n"), "free of an unknown frame 1<0");
    EXPECT_EQ(faults("alloc 0x1000\nalloc 0x2000 frame\n"), "leaked table 1<0") << "a data frame may stay";
}

TEST(Audit, TablesInUse) {
    const std::string made =
        "alloc 0x1000\nalloc 0x2000\n"
        "map 1 0x40000000 0x2000 in=0x1000 perm=table\n"
        "map 1 0x40001000 0x80001000 in=0x2000\n";
    EXPECT_EQ(faults(made + "unmap 1 0x40001000 in=0x2000\nunmap 1 0x40000000 in=0x1000 perm=table\nfree "
                            "0x2000\nfree 0x1000\n"),
              "");
    EXPECT_EQ(faults(made + "free 0x2000\n"), "freed in use 5<4, leaked table 1<3")
        << "the entry of a neighbour lives";
    EXPECT_EQ(faults(made + "unmap 1 0x40001000 in=0x2000\nfree 0x2000\nfree 0x1000\n"), "freed in use 6<3");
    EXPECT_EQ(faults(made + "unmap 1 0x40001000 in=0x2000\nfree 0x1000\nfree 0x2000\n"), "freed in use 6<3");
    EXPECT_EQ(faults("alloc 0x2000\nfree 0x2000\nmap 1 0x1000 0x9000 in=0x2000\n"),
              "use of a freed table 3<2");
    EXPECT_EQ(faults("alloc 0x2000\nfree 0x2000\nunmap 1 0x1000 in=0x2000\n"),
              "use of a freed table 3<2, unmap of nothing 3<0");
}

TEST(Audit, Mappings) {
    EXPECT_EQ(faults("map 1 0x1000 0x9000\nmap 1 0x1000 0xa000\n"), "overlapping map 2<1");
    EXPECT_EQ(faults("map 1 0x200000 0x9000 size=2M\nmap 1 0x3ff000 0xa000\n"), "overlapping map 2<1");
    EXPECT_EQ(faults("map 1 0x200000 0x9000 size=2M\nmap 1 0x400000 0xa000\nmap 2 0x200000 0xb000\n"), "");
    EXPECT_EQ(faults("unmap 1 0x1000\n"), "unmap of nothing 1<0");
    EXPECT_EQ(faults("protect 1 0x1000 r\n"), "protect of nothing 1<0");
}

TEST(Audit, StaleTranslations) {
    const std::string used = "switch 0 1\nswitch 1 1\nmap 1 0x1000 0x9000\naccess 0 0x1234 w\n";
    EXPECT_EQ(faults(used + "unmap 1 0x1000\naccess 0 0x1000\n"), "stale translation 6<5");
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nflush * 1 0x1000\naccess 0 0x1000\n"), "")
        << "a fault, as it should be";
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nflush 1 1 0x1000\naccess 0 0x1000\n"), "stale translation 7<5")
        << "the other CPU was flushed";
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nflush 0 1 0x2000\naccess 0 0x1000\n"), "stale translation 7<5")
        << "another page was flushed";
    EXPECT_EQ(faults(used + "unmap 1 0x1000\naccess 1 0x1000\n"), "") << "this CPU never used it";
    EXPECT_EQ(faults(used + "flush * * *\nunmap 1 0x1000\naccess 0 0x1000\n"), "");
    // Too early a flush: it was used again before the entry went.
    EXPECT_EQ(faults(used + "flush * 1 0x1000\naccess 0 0x1000\nunmap 1 0x1000\naccess 0 0x1000\n"),
              "stale translation 8<7");
    // Another space's page at the same address is no matter.
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nmap 2 0x1000 0xa000\nswitch 0 2\naccess 0 0x1000\n"), "");
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nswitch 0 2\nswitch 0 1\naccess 0 0x1000\n"),
              "stale translation 8<5");
    EXPECT_EQ(
        faults(used + "unmap 1 0x1000\nswitch 0 2\nswitch 0 1\naccess 0 0x1000\n", {.switch_flushes = true}),
        "");
    // Permission taken away counts for accesses that need it.
    EXPECT_EQ(faults(used + "protect 1 0x1000 r\naccess 0 0x1000 r\n"), "");
    EXPECT_EQ(faults(used + "protect 1 0x1000 r\naccess 0 0x1000 w\n"), "stale translation 6<5");
    EXPECT_EQ(faults(used + "protect 1 0x1000 rwx\naccess 0 0x1000 w\n"), "");
    // Mapped again elsewhere, and mapped again the same.
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nmap 1 0x1000 0xa000\naccess 0 0x1000\n"),
              "stale translation 7<5");
    EXPECT_EQ(faults(used + "unmap 1 0x1000\nmap 1 0x1000 0x9000\naccess 0 0x1000\n"), "");
    // The kernel's mappings are everybody's.
    EXPECT_EQ(faults("switch 0 7\nmap * 0xffff0000 0x9000\naccess 0 0xffff0010\nunmap * 0xffff0000\naccess 0 "
                     "0xffff0010\n",
                     {.switch_flushes = true}),
              "stale translation 5<4");
}

TEST(Audit, SaysWhatBecameOfTheFrame) {
    const Auditor auditor = audited(
        "alloc 0x9000 frame\nswitch 0 1\nmap 1 0x1000 0x9000\naccess 0 0x1000\nunmap 1 0x1000\nfree 0x9000\n"
        "alloc 0x9000 table\naccess 0 0x1008\n");
    ASSERT_GE(auditor.findings().size(), 1U);
    EXPECT_EQ(auditor.findings()[0].what,
              "CPU 0 accesses 0x1008 in space 1 through a translation to 0x9008 that it may still hold from "
              "line 4; that frame was "
              "given out again in line 7");
    EXPECT_EQ(auditor.findings()[0].contradicts, "it was unmapped, and no flush on this CPU covers it since");
}

TEST(Audit, ReadsAConsole) {
    // A serial log with other words in it.
    const Auditor auditor = audited(
        "booting\n[    0.1] audit: alloc 0x1000 # the root\nfree 0x1000\n[    0.2] audit: free "
        "0x1000\naudit: free 0x1000\n");
    EXPECT_EQ(auditor.found(), 1U);
    EXPECT_EQ(auditor.findings()[0].line, 5U);
    // Malformed lines are counted, and the rest is done.
    const Auditor odd = audited(
        "alloc\nalloc x\nalloc 0x1000 thing\nmap 1 2\nmap 1 0x1000 0x2000 size=0\nmap 1 0xfffffffffffff000 0 "
        "size=2M\n"
        "fly 1\nflush 0 1 x\nprotect 1 0x1000 q\naccess 0 0x1000 q\nalloc 0x2000\nfree 0x2000\n");
    EXPECT_EQ(odd.events(), 2U);
    EXPECT_EQ(odd.problems().total(), 10U);
    EXPECT_EQ(odd.found(), 0U);
}

}  // namespace
}  // namespace tlbscope::tables
