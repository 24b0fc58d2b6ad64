#include "rules/actor_spread.h"

#include <gtest/gtest.h>

namespace manta::rules {
namespace {

NodeOffer Node(NodeId number, std::int64_t cpus, bool draining = false) {
  NodeOffer offer{number, {}, draining};
  offer.total.Set("CPU", cpus * kUnit);
  return offer;
}

Id Number(std::uint64_t number) { return DeriveId(Id{}, 1, number); }

TEST(ActorSpread, TheFirstActorStaysWithItsCreatorAndLaterOnesGoToTheNodesWithFewest) {
  const std::vector<NodeOffer> nodes{Node(1, 2), Node(2, 2), Node(3, 2)};
  ActorSpread spread;
  EXPECT_EQ(spread.Choose(Number(0), 2, nodes), 2U);
  for (std::uint64_t i = 0; i < 30; ++i) spread.Put(Number(i), spread.Choose(Number(i), 2, nodes));
  for (const NodeId node : {1U, 2U, 3U}) EXPECT_EQ(spread.On(node), 10U);
}

TEST(ActorSpread, ANodeWithTwiceTheCpusGetsTwiceTheActors) {
  const std::vector<NodeOffer> nodes{Node(1, 2), Node(2, 4)};
  ActorSpread spread;
  for (std::uint64_t i = 0; i < 30; ++i) spread.Put(Number(i), spread.Choose(Number(i), 1, nodes));
  EXPECT_EQ(spread.On(1), 10U);
  EXPECT_EQ(spread.On(2), 20U);
}

TEST(ActorSpread, ANodeWithoutCpusIsTheLastChoiceAndADrainingNodeNone) {
  ActorSpread spread;
  EXPECT_EQ(spread.Choose(Number(0), 1, {Node(1, 0), Node(2, 1)}), 2U);
  EXPECT_EQ(spread.Choose(Number(0), 1, {Node(1, 0), Node(2, 1, true)}), 1U);
  EXPECT_EQ(spread.Choose(Number(0), 1, {Node(1, 1, true)}), kNoNode);
}

TEST(ActorSpread, AnActorThatMovesOrEndsLeavesItsFormerNode) {
  const std::vector<NodeOffer> nodes{Node(1, 1), Node(2, 1)};
  ActorSpread spread;
  spread.Put(Number(0), 1);
  EXPECT_EQ(spread.Choose(Number(0), 1, nodes), 1U) << "an actor does not give way to itself";
  EXPECT_EQ(spread.Choose(Number(1), 1, nodes), 2U);
  spread.Put(Number(0), 2);
  EXPECT_EQ(spread.On(1), 0U);
  EXPECT_EQ(spread.On(2), 1U);
  spread.Remove(Number(0));
  spread.Remove(Number(0));
  EXPECT_EQ(spread.On(2), 0U);
}

}  // namespace
}  // namespace manta::rules
