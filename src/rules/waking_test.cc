#include "rules/waking.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

Average Calls(double us) {
  Average average;
  average.Add(us);
  return average;
}

TEST(Waking, NobodyIsWokenForNothing) {
  EXPECT_FALSE(OneMorePays({.waiting = 0, .awake = 0, .cores = 8}, {}));
  EXPECT_FALSE(OneMorePays({.waiting = 0, .awake = 3, .cores = 8}, Calls(1e6)));
}

TEST(Waking, SomebodyIsWokenWhenNobodyIsAwake) {
  EXPECT_TRUE(OneMorePays({.waiting = 1, .awake = 0, .cores = 1}, {}));
  EXPECT_TRUE(OneMorePays({.waiting = 1, .awake = 0, .cores = 1}, Calls(0.1)));
}

TEST(Waking, AFewTasksForEachAreLeftToThoseAwake) {
  EXPECT_FALSE(OneMorePays({.waiting = kComfort, .awake = 1, .cores = 8}, {}));
  EXPECT_FALSE(OneMorePays({.waiting = 3 * kComfort, .awake = 3, .cores = 8}, Calls(1e6)));
}

TEST(Waking, TasksOfUnknownLengthMayBeLong) {
  EXPECT_TRUE(OneMorePays({.waiting = kComfort + 1, .awake = 1, .cores = 1}, {}));
}

TEST(Waking, ABatchOfShortTasksIsLeftToOneWorkerWhereAllCoresAreTaken) {
  EXPECT_FALSE(OneMorePays({.waiting = 1000, .awake = 1, .cores = 2}, Calls(0.1)));
  EXPECT_TRUE(OneMorePays({.waiting = 1000, .awake = 1, .cores = 3}, Calls(0.1))) << "a core is free";
  EXPECT_TRUE(OneMorePays({.waiting = 1000, .awake = 1, .cores = 2, .owner_runs = false}, Calls(0.1)))
      << "the owner leaves it its own";
}

TEST(Waking, LongTasksAreWorthMoreWorkersThanCores) {
  EXPECT_TRUE(OneMorePays({.waiting = 10, .awake = 1, .cores = 1}, Calls(1000)));
  EXPECT_TRUE(OneMorePays({.waiting = 100'000, .awake = 1, .cores = 2}, Calls(0.1))) << "or very many short ones";
}

TEST(Waking, TheMoreAreAwakeTheLessAnotherHelps) {
  const Average calls = Calls(10);
  EXPECT_TRUE(OneMorePays({.waiting = 20, .awake = 2, .cores = 8}, calls));
  EXPECT_FALSE(OneMorePays({.waiting = 17, .awake = 4, .cores = 8}, calls));
}

}  // namespace
}  // namespace manta::rules
