#include "shm/hand_over.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "shm/node_area.h"

namespace manta::shm {
namespace {

std::uint32_t SleepsInARow(HandOver& hand_over) {
  std::uint32_t sleeps = 0;
  while (!hand_over.YieldsPay()) ++sleeps;
  return sleeps;
}

TEST(HandOver, AWaiterYieldsAsLongAsYieldsAreShort) {
  HandOver hand_over;
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(hand_over.YieldsPay());
    EXPECT_TRUE(hand_over.Yielded(HandOver::kLongYieldUs - 1));
  }
}

TEST(HandOver, ALongYieldMakesTheNextWaitsSleepAndAShortOneIsForgiving) {
  HandOver hand_over;
  EXPECT_FALSE(hand_over.Yielded(HandOver::kLongYieldUs));
  EXPECT_EQ(SleepsInARow(hand_over), HandOver::kFewestSleeps);
  EXPECT_FALSE(hand_over.Yielded(HandOver::kLongYieldUs));
  EXPECT_EQ(SleepsInARow(hand_over), 2 * HandOver::kFewestSleeps);
  EXPECT_TRUE(hand_over.Yielded(1));
  EXPECT_FALSE(hand_over.Yielded(HandOver::kLongYieldUs));
  EXPECT_EQ(SleepsInARow(hand_over), HandOver::kFewestSleeps);
}

TEST(HandOver, TheNumberOfSleepsHasABound) {
  HandOver hand_over;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(hand_over.Yielded(HandOver::kLongYieldUs));
    EXPECT_LE(SleepsInARow(hand_over), HandOver::kMostSleeps);
  }
}

TEST(Doorbell, AProcessSharesTheCoreOnWhichItLastRan) {
  Result<NodeArea> area = NodeArea::Create(2);
  ASSERT_TRUE(area.ok());
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  Doorbell& bell = area->bell(1);
  area->Reset(1);
  EXPECT_FALSE(bell.SharesCore()) << "it has not run yet";
  bell.RunsHere();
  EXPECT_TRUE(bell.SharesCore());
  bell.core.store(sched_getcpu() + 1);
  EXPECT_FALSE(bell.SharesCore());
  sched_setaffinity(0, sizeof before, &before);
}

}  // namespace
}  // namespace manta::shm
