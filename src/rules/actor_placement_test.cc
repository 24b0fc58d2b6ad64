#include "rules/actor_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace manta::rules {
namespace {

Resources Of(const std::string& name, std::int64_t amount) {
  Resources out;
  out.Set(name, amount * kUnit);
  return out;
}

TEST(ActorPlacement, AnActorStaysWhereItIsWantedIfThereIsRoom) {
  const std::vector<NodeOffer> nodes{{1, Of("CPU", 2), false}, {2, Of("CPU", 2), false}};
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 1, Of("CPU", 1), nodes), ActorGoes::kHere);
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 2, Of("CPU", 1), nodes), ActorGoes::kThere);
  EXPECT_EQ(FirstPlace({}, 1, 1, {}, nodes), ActorGoes::kHere) << "one that needs nothing always has room";
}

TEST(ActorPlacement, AFullNodeAsksForAnotherIfThereIsOne) {
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 1, {}, {{1, Of("CPU", 2), false}, {2, Of("CPU", 2), false}}), ActorGoes::kUp);
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 1, {}, {{1, Of("CPU", 2), false}}), ActorGoes::kHere) << "it waits";
  EXPECT_EQ(FirstPlace(Of("CPU", 2), 1, 1, {}, {{1, Of("CPU", 2), false}, {2, Of("CPU", 1), false}}), ActorGoes::kHere);
}

TEST(ActorPlacement, WhatANodeLacksIsLookedForElsewhere) {
  const std::vector<NodeOffer> nodes{{1, Of("CPU", 2), false}, {2, Of("gold", 1), false}};
  EXPECT_EQ(FirstPlace(Of("gold", 1), 1, 1, Of("CPU", 2), nodes), ActorGoes::kUp);
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 2, Of("CPU", 2), nodes), ActorGoes::kHere);
  EXPECT_EQ(FirstPlace(Of("silver", 1), 1, 1, Of("CPU", 2), nodes), ActorGoes::kNowhere);
}

TEST(ActorPlacement, ADrainingNodeHoldsNothingNew) {
  const std::vector<NodeOffer> nodes{{1, Of("CPU", 2), true}, {2, Of("CPU", 2), false}};
  EXPECT_EQ(FirstPlace(Of("CPU", 1), 1, 1, Of("CPU", 2), nodes), ActorGoes::kUp);
  EXPECT_EQ(FirstPlace({}, 1, 1, {}, {{1, {}, true}}), ActorGoes::kNowhere);
}

TEST(ActorPlacement, TheRefusalSaysWhatWasAskedForAndWhatEachKindOfNodeHas) {
  const Status status =
      NoNodeHolds("actor Bank", Of("gold", 2),
                  {{1, Of("CPU", 2), false}, {2, Of("CPU", 2), false}, {3, Of("gold", 1), false}, {4, {}, true}});
  EXPECT_EQ(status.code(), Code::kInfeasible);
  EXPECT_THAT(status.message(),
              ::testing::AllOf(::testing::HasSubstr("actor Bank"), ::testing::HasSubstr("2 nodes have"),
                               ::testing::HasSubstr("1 node has"), ::testing::HasSubstr("gold"),
                               ::testing::HasSubstr("1 is being drained")));
}

}  // namespace
}  // namespace manta::rules
