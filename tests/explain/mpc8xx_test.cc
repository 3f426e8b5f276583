// The 19 lines of the 2005 thread, and dumps with more and with less in them.
#include "explain/mpc8xx_dump.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace tlbscope::explain {
namespace {

constexpr const char* kThread24 =
    "+SPR  816 : 0x0ffe800f    268337167\n"
    "+SPR  816 : 0x0ffeb00f    268349455\n"
    "+SPR  816 : 0xc009e01f  -1073094625\n"
    "+SPR  816 : 0xc009d01f  -1073098721\n"
    "+SPR  816 : 0xc000301f  -1073729505\n"
    "+SPR  816 : 0xc009c01f  -1073102817\n";
constexpr const char* kThread26 =
    "+SPR  816 : 0x0feda16f    267231599\n"
    "+SPR  816 : 0xc004b17f  -1073434241\n"
    "+SPR  816 : 0xc004a17f  -1073438337\n"
    "+SPR  816 : 0x0ff7e16f    267903343\n"
    "+SPR  816 : 0x1001016f    268501359\n"
    "+SPR  816 : 0xc000217f  -1073733249\n"
    "+SPR  816 : 0xc001617f  -1073651329\n"
    "+SPR  816 : 0xc002e17f  -1073553025\n"
    "+SPR  816 : 0xc010e17f  -1072635521\n"
    "+SPR  816 : 0xc002d17f  -1073557121\n"
    "+SPR  816 : 0xc010d17f  -1072639617\n"
    "+SPR  816 : 0xc000c17f  -1073692289\n"
    "+SPR  816 : 0xc000317f  -1073729153\n";

void check_thread(const char* text, std::size_t entries, std::size_t kernel, unsigned asid) {
    const Mpc8xxDump dump = parse_mpc8xx_dump(text);
    EXPECT_TRUE(dump.warnings.empty());
    EXPECT_TRUE(dump.others.empty());
    ASSERT_EQ(dump.entries.size(), entries);
    std::size_t on_kernel_side = 0;
    for (const Mpc8xxEntry& entry : dump.entries) {
        EXPECT_EQ(entry.kind, Kind::kInstruction);
        EXPECT_EQ(entry.mark, DumpMark::kAdded);
        ASSERT_TRUE(entry.size());
        EXPECT_EQ(*entry.size(), PageShift(12));
        EXPECT_EQ(entry.asid(), asid);
        EXPECT_EQ(entry.valid_subpages(), 15U);
        EXPECT_EQ(entry.page().value(), entry.cam & 0xfffff000);
        // Kernel pages are shared between all identifiers, user pages are not.
        EXPECT_EQ(entry.shared(), entry.cam >= 0xc0000000);
        on_kernel_side += entry.cam >= 0xc0000000 ? 1 : 0;
    }
    EXPECT_EQ(on_kernel_side, kernel);
}

TEST(Mpc8xxDump, TheThread) {
    check_thread(kThread24, 6, 4, 0);
    check_thread(kThread26, 13, 10, 11);
}

TEST(Mpc8xxDump, WholeEntriesOfBothTlbs) {
    const Mpc8xxDump dump = parse_mpc8xx_dump(
        "BDI>rdspr 784\n"
        "SPR  784 : 0x08001c00    134224896\n"
        "SPR  816 : 0xc0000e1f  -1073738209\n"
        "SPR  817 : 0x00000e00         3584\n"
        "SPR  818 : 0x00000003            3\n"
        "SPR  824: 0x00400f3b      4198203\n"
        "SPR  825 : 0x00123000      1191936\n"
        "SPR  999 : 0x00000000            0\n");
    ASSERT_EQ(dump.entries.size(), 2U);
    const Mpc8xxEntry& pinned = dump.entries[0];
    EXPECT_EQ(pinned.size(), PageShift(23));
    EXPECT_EQ(pinned.page(), VirtAddr(0xc0000000));
    EXPECT_EQ(pinned.frame(), PhysAddr(0));
    EXPECT_EQ(pinned.valid(), true);
    const Mpc8xxEntry& data = dump.entries[1];
    EXPECT_EQ(data.kind, Kind::kData);
    EXPECT_EQ(data.valid_subpages(), 15U);
    EXPECT_EQ(data.asid(), 11U);
    EXPECT_TRUE(data.shared());
    EXPECT_EQ(data.size(), PageShift(14));
    EXPECT_EQ(data.frame(), PhysAddr(0x123000));
    ASSERT_EQ(dump.others.size(), 2U);
    EXPECT_EQ(mpc8xx_register_name(dump.others[0].number), "MI_CTR");
    EXPECT_EQ(mpc8xx_register_fields(dump.others[0]), "next index 28, 4 entries reserved");
    EXPECT_EQ(mpc8xx_register_name(999), "");
}

TEST(Mpc8xxDump, WhatIsNew) {
    const Mpc8xxDump before =
        parse_mpc8xx_dump("SPR  816 : 0xc009e01f\nSPR  816 : 0xc009e01f\nSPR 824 : 0xc009e01f\n");
    const Mpc8xxDump after = parse_mpc8xx_dump(
        "SPR  816 : 0xc009e01f\nSPR  816 : 0xc009d01f\nSPR  816 : 0xc009e01f\nSPR  816 : 0xc009e01f\n");
    const auto fresh = new_entries(before, after);
    ASSERT_EQ(fresh.size(), 2U);
    EXPECT_EQ(fresh[0].cam, 0xc009d01f);
    EXPECT_EQ(fresh[1].cam, 0xc009e01f);
}

TEST(Mpc8xxDump, GarbageIsNamedByItsLine) {
    const Mpc8xxDump dump = parse_mpc8xx_dump(
        "--- before\n+++ after\nSPR 816 0xc009e01f\nSPR  816 : 0xc009e01f  -1\nSPR x : 0x0\n-SPR  816 : "
        "0xc009c01f\n");
    EXPECT_EQ(dump.warnings.size(), 3U);
    EXPECT_TRUE(dump.warnings[0].starts_with("line 3 "));
    ASSERT_EQ(dump.entries.size(), 2U);
    EXPECT_EQ(dump.entries[0].cam, 0xc009e01f);
    EXPECT_EQ(dump.entries[1].mark, DumpMark::kRemoved);
}

}  // namespace
}  // namespace tlbscope::explain
