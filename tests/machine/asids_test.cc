#include "addrspace/asids.h"

#include <gtest/gtest.h>

#include "addrspace/spaces.h"

namespace tlbscope::addrspace {
namespace {

TEST(Asids, GivesThemOutInTurnAndTakesTheOldestBack) {
    Asids asids(2);
    EXPECT_EQ(asids.switch_to(SpaceId(7)).tag, 1);
    EXPECT_EQ(asids.switch_to(SpaceId(8)).tag, 2);
    EXPECT_FALSE(asids.switch_to(SpaceId(7)).drop);
    const auto third = asids.switch_to(SpaceId(9));
    EXPECT_EQ(third.tag, 1);  // 7 got its identifier first, however recently it ran
    EXPECT_TRUE(third.drop);
    EXPECT_FALSE(asids.switch_to(SpaceId(8)).drop);
    EXPECT_TRUE(asids.switch_to(SpaceId(7)).drop);
    EXPECT_EQ(asids.reuses(), 2u);
    EXPECT_EQ(asids.switches(), 5u);
}

TEST(Asids, OneIdentifierDropsAtEverySwitchAndNoneFlushes) {
    Asids one(1);
    EXPECT_FALSE(one.switch_to(SpaceId(0)).drop);
    EXPECT_FALSE(one.switch_to(SpaceId(0)).drop);
    EXPECT_TRUE(one.switch_to(SpaceId(1)).drop);
    EXPECT_TRUE(one.switch_to(SpaceId(0)).drop);
    Asids none(0);
    EXPECT_FALSE(none.switch_to(SpaceId(0)).flush);
    EXPECT_FALSE(none.switch_to(SpaceId(0)).flush);
    EXPECT_TRUE(none.switch_to(SpaceId(1)).flush);
}

TEST(Spaces, OfOneProcessAreOne) {
    Spaces spaces;
    spaces.add(SpaceId(0), 0);
    spaces.add(SpaceId(1), 40);
    spaces.add(SpaceId(2), 0);
    spaces.add(SpaceId(3), 40);
    EXPECT_EQ(spaces.same_as(SpaceId(3)), SpaceId(1));
    EXPECT_EQ(spaces.same_as(SpaceId(2)), SpaceId(2));
    EXPECT_EQ(spaces.same_as(SpaceId(9)), SpaceId(9));
}

}  // namespace
}  // namespace tlbscope::addrspace
