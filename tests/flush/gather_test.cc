#include <gtest/gtest.h>

#include "flush/gather.h"

namespace tlbscope::flush {
namespace {

constexpr std::uint64_t kPage = 4096;

struct Kernel {
    std::vector<Request> flushes;
    std::vector<std::string> complaints;
    Gather::Flush flush = [this](const Request& request) { flushes.push_back(request); };
    Gather::Complaint complain = [this](std::string_view what) { complaints.emplace_back(what); };
};

TEST(Gather, OneFlushCoversEverythingAndTablesAreNoted) {
    Kernel kernel;
    {
        Gather gather({.space = SpaceId(7)}, kPage, kernel.flush, kernel.complain);
        gather.remove(0x10000, 2);
        gather.remove(0x40000, 1);
        gather.remove_table(0x200000);
        EXPECT_TRUE(kernel.flushes.empty());
        const auto freed = gather.finish();
        ASSERT_EQ(freed.size(), 3U);
        EXPECT_FALSE(freed[0].table);
        EXPECT_TRUE(freed[2].table);
    }
    ASSERT_EQ(kernel.flushes.size(), 1U);
    EXPECT_EQ(kernel.flushes[0].space, SpaceId(7));
    EXPECT_EQ(kernel.flushes[0].start, 0x10000U);
    EXPECT_EQ(kernel.flushes[0].end, 0x201000U);
    EXPECT_TRUE(kernel.flushes[0].freed_tables);
    EXPECT_TRUE(kernel.complaints.empty());
}

TEST(Gather, NothingGatheredIsNotFlushed) {
    Kernel kernel;
    {
        (void)Gather({}, kPage, kernel.flush, kernel.complain).finish();
    }
    EXPECT_TRUE(kernel.flushes.empty());
    EXPECT_TRUE(kernel.complaints.empty());
}

TEST(Gather, FreeingBeforeTheFlushIsAComplaint) {
    Kernel kernel;
    {
        Gather gather({}, kPage, kernel.flush, kernel.complain);
        gather.remove(0x10000, 1);
        gather.flush();
        gather.remove(0x20000, 1);  // not covered by that flush
        (void)gather.free();
        ASSERT_EQ(kernel.complaints.size(), 1U);
        EXPECT_EQ(kernel.complaints[0], "pages or tables were freed before the flush that covers them");
        gather.flush();
    }
    EXPECT_EQ(kernel.complaints.size(), 1U);
}

TEST(Gather, EndingUnflushedIsAComplaint) {
    Kernel kernel;
    {
        Gather gather({}, kPage, kernel.flush, kernel.complain);
        gather.restrict(0x10000, 1);
    }
    ASSERT_EQ(kernel.complaints.size(), 1U);
    EXPECT_EQ(kernel.complaints[0], "a gather ended with translations that no flush has covered");
}

TEST(Gather, EndingWithoutFreeingIsAComplaint) {
    Kernel kernel;
    {
        Gather gather({}, kPage, kernel.flush, kernel.complain);
        gather.remove(0x10000, 1);
        gather.flush();
    }
    ASSERT_EQ(kernel.complaints.size(), 1U);
    EXPECT_EQ(kernel.complaints[0], "a gather ended without freeing what it had taken out");
}

TEST(GatherDeathTest, WithoutAHandlerAComplaintEndsTheProgram) {
    EXPECT_DEATH(
        {
            Gather gather({}, kPage, [](const Request&) {});
            gather.restrict(0, 1);
        },
        "a gather ended with translations that no flush has covered");
}

TEST(Gather, AFullOneFlushesEarly) {
    Kernel kernel;
    {
        Gather gather({}, kPage, kernel.flush, kernel.complain);
        gather.remove(0, Gather::kMostPages + 5);
        EXPECT_EQ(kernel.flushes.size(), 1U);
        (void)gather.finish();
    }
    ASSERT_EQ(kernel.flushes.size(), 2U);
    EXPECT_EQ(kernel.flushes[0].end, Gather::kMostPages * kPage);
    EXPECT_EQ(kernel.flushes[1].start, Gather::kMostPages * kPage);
    EXPECT_EQ(kernel.flushes[1].end, (Gather::kMostPages + 5) * kPage);
}

}  // namespace
}  // namespace tlbscope::flush
