#include "rules/actor_watchers.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

constexpr ProcessId kCaller = 7;
constexpr ProcessId kOther = 9;

TEST(ActorWatchers, WhoAttachesAfterItWasToldOfARestartMayCall) {
  ActorWatchers watchers;
  EXPECT_TRUE(watchers.Attach(kCaller, 0));
  EXPECT_EQ(watchers.Restarted(), std::vector{kCaller});
  EXPECT_TRUE(watchers.Attach(kCaller, 1));
}

TEST(ActorWatchers, AnAttachmentThatPassedTheWordOfARestartIsVoid) {
  ActorWatchers watchers;
  EXPECT_TRUE(watchers.Attach(kCaller, 0));
  EXPECT_TRUE(watchers.Attach(kCaller, 0)) << "its connection broke, and nobody has restarted";
  EXPECT_EQ(watchers.Restarted().size(), 1U);
  EXPECT_FALSE(watchers.Attach(kCaller, 0));
  EXPECT_EQ(watchers.Restarted().size(), 1U);
  EXPECT_FALSE(watchers.Attach(kCaller, 1)) << "it died once more";
  EXPECT_TRUE(watchers.Attach(kCaller, 2));
}

TEST(ActorWatchers, WhoHasNotAttachedIsNotToldOfRestarts) {
  ActorWatchers watchers;
  watchers.Add(kOther);
  EXPECT_TRUE(watchers.Attach(kCaller, 0));
  EXPECT_EQ(watchers.Restarted(), std::vector{kCaller});
  EXPECT_EQ(watchers.All(), (std::vector{kCaller, kOther}));
  EXPECT_TRUE(watchers.Attach(kOther, 0)) << "the first time: there is nothing that it could have missed";
}

// As when an actor's home moves to this node: its callers have heard of restarts from others.
TEST(ActorWatchers, WhoComesFromElsewhereIsTakenAtItsWord) {
  ActorWatchers watchers;
  EXPECT_TRUE(watchers.Attach(kCaller, 3));
  EXPECT_EQ(watchers.Restarted().size(), 1U);
  EXPECT_FALSE(watchers.Attach(kCaller, 3));
  EXPECT_TRUE(watchers.Attach(kCaller, 4));
  watchers.Remove(kCaller);
  EXPECT_TRUE(watchers.empty());
}

}  // namespace
}  // namespace manta::rules
