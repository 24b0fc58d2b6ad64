#include "rules/group_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace manta::rules {
namespace {

using ::testing::HasSubstr;

Resources Cpus(double cpus) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  return out;
}

GroupFacts Facts(std::uint64_t number, std::vector<Resources> bundles, const std::string& name = {}) {
  GroupFacts facts;
  facts.group = Id{number, 1};
  facts.job = Id{number, 2};
  facts.home = 1;
  facts.name = name;
  facts.bundles = std::move(bundles);
  return facts;
}

// Nodes that grant everything.
struct World {
  void Obey(GroupTable::Out out) {
    while (!out.orders.empty()) {
      const GroupAction order = out.orders.front();
      out.orders.erase(out.orders.begin());
      if (const auto* reserve = std::get_if<ReserveBundle>(&order)) {
        table.Reserved(reserve->group, reserve->attempt, reserve->bundle, reserve->node, 0, &out);
      } else if (const auto* commit = std::get_if<CommitBundle>(&order)) {
        table.Committed(commit->group, commit->attempt, commit->bundle, commit->node, 0, &out);
      } else {
        ++released;
      }
    }
    for (const GroupFacts& facts : out.changed) told.push_back(facts);
  }
  void AddNode(NodeId node, double cpus) {
    GroupTable::Out out;
    table.NodeHeard(node, Cpus(cpus), Cpus(cpus), 0, &out);
    Obey(std::move(out));
  }
  Status Create(const GroupFacts& facts, bool alone = false) {
    GroupTable::Out out;
    Status status = table.Create(facts, alone, 0, &out);
    Obey(std::move(out));
    return status;
  }

  GroupTable table;
  std::vector<GroupFacts> told;
  int released = 0;
};

TEST(GroupTable, AGroupIsToldWhenItIsMadeAndWhenItIsReady) {
  World world;
  world.AddNode(1, 2);
  ASSERT_TRUE(world.Create(Facts(7, {Cpus(1), Cpus(1)})).ok());
  ASSERT_EQ(world.told.size(), 2U);
  EXPECT_EQ(world.told[0].state, GroupState::kWaiting);
  EXPECT_EQ(world.told[1].state, GroupState::kReady);
  EXPECT_GT(world.told[1].changes, world.told[0].changes);
  EXPECT_EQ(world.told[1].nodes, (std::vector<NodeNumber>{1, 1}));
}

TEST(GroupTable, NamesAreTakenOnceInASpaceAndFreeAfterRemoval) {
  World world;
  world.AddNode(1, 4);
  ASSERT_TRUE(world.Create(Facts(1, {Cpus(1)}, "trainers")).ok());
  const Status taken = world.Create(Facts(2, {Cpus(1)}, "trainers"));
  EXPECT_EQ(taken.code(), Code::kInvalid);
  EXPECT_THAT(taken.message(), HasSubstr("trainers"));
  GroupFacts elsewhere = Facts(3, {Cpus(1)}, "trainers");
  elsewhere.space = "other";
  EXPECT_TRUE(world.Create(elsewhere).ok());
  ASSERT_NE(world.table.Find("trainers", "default"), nullptr);
  EXPECT_EQ(world.table.Find("trainers", "default")->group, (Id{1, 1}));
  GroupTable::Out out;
  EXPECT_TRUE(world.table.Remove(Id{1, 1}, "it was removed", 0, &out));
  EXPECT_FALSE(world.table.Remove(Id{1, 1}, "it was removed", 0, &out));
  EXPECT_EQ(out.changed.back().state, GroupState::kRemoved);
  EXPECT_EQ(out.orders.size(), 1U);
  EXPECT_TRUE(world.Create(Facts(4, {Cpus(1)}, "trainers")).ok());
}

TEST(GroupTable, AGroupTooLargeWaitsWithTheNumbersAndFailsOnANodeOfItsOwn) {
  World world;
  world.AddNode(1, 2);
  ASSERT_TRUE(world.Create(Facts(1, {Cpus(8)})).ok());
  EXPECT_EQ(world.told.back().state, GroupState::kWaiting);
  EXPECT_THAT(world.told.back().why, HasSubstr("CPU 8"));
  const Status alone = world.Create(Facts(2, {Cpus(9)}), true);
  EXPECT_EQ(alone.code(), Code::kInfeasible);
  EXPECT_THAT(alone.message(), HasSubstr("CPU 9"));
  EXPECT_EQ(world.table.Find(Id{2, 1}), nullptr);
  world.AddNode(2, 8);
  EXPECT_EQ(world.table.Find(Id{1, 1})->state, GroupState::kReady);
  EXPECT_EQ(world.table.Find(Id{1, 1})->why, "");
}

TEST(GroupTable, GroupsEndWithTheirJobOrItsNodeUnlessDetached) {
  World world;
  world.AddNode(1, 8);
  GroupFacts detached = Facts(1, {Cpus(1)});
  detached.detached = true;
  ASSERT_TRUE(world.Create(detached).ok());
  GroupFacts mine = Facts(2, {Cpus(1)});
  mine.job = detached.job;
  ASSERT_TRUE(world.Create(mine).ok());
  GroupFacts far = Facts(3, {Cpus(1)});
  far.home = 5;
  ASSERT_TRUE(world.Create(far).ok());
  GroupTable::Out out;
  world.table.JobEnded(detached.job, 0, &out);
  EXPECT_EQ(world.table.all().size(), 2U);
  world.table.HomeGone(5, 0, &out);
  EXPECT_EQ(world.table.all().size(), 1U);
  EXPECT_NE(world.table.Find(Id{1, 1}), nullptr);
}

TEST(GroupTable, ALostBundleIsPlacedAgainAndTheOthersStay) {
  World world;
  world.AddNode(1, 1);
  world.AddNode(2, 1);
  GroupFacts facts = Facts(1, {Cpus(1), Cpus(1)});
  facts.strategy = GroupStrategy::kStrictSpread;
  ASSERT_TRUE(world.Create(facts).ok());
  GroupTable::Out out;
  world.table.NodeDown(2, 0, &out);
  world.Obey(std::move(out));
  EXPECT_EQ(world.table.Find(Id{1, 1})->state, GroupState::kWaiting);
  const std::vector<NodeNumber> left = world.table.Find(Id{1, 1})->nodes;
  EXPECT_EQ(std::count(left.begin(), left.end(), 1U), 1);
  EXPECT_EQ(std::count(left.begin(), left.end(), kNoNode), 1);
  world.AddNode(3, 1);
  EXPECT_EQ(world.table.Find(Id{1, 1})->state, GroupState::kReady);
  const std::vector<NodeNumber> now = world.table.Find(Id{1, 1})->nodes;
  EXPECT_EQ(std::count(now.begin(), now.end(), 3U), 1);
}

TEST(GroupTable, ARestoredGroupIsAsItWasAndCanBeRemoved) {
  World first;
  first.AddNode(1, 2);
  ASSERT_TRUE(first.Create(Facts(1, {Cpus(1), Cpus(1)}, "kept")).ok());
  World second;
  ASSERT_TRUE(second.table.Restore(*first.table.Find(Id{1, 1}), 0).ok());
  EXPECT_EQ(second.table.Find("kept", "default")->state, GroupState::kReady);
  GroupTable::Out out;
  second.table.Remove(Id{1, 1}, "it was removed", 0, &out);
  EXPECT_EQ(out.orders.size(), 2U);
}

TEST(AbleBundles, SaysWhatIsWrong) {
  const GroupFacts facts = Facts(1, {Cpus(1), Cpus(2)}, "trainers");
  EXPECT_EQ(AbleBundles(facts, -1, Cpus(1)).value(), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_EQ(AbleBundles(facts, -1, Cpus(2)).value(), (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(AbleBundles(facts, 0, Cpus(2)).status().code(), Code::kInfeasible);
  EXPECT_THAT(AbleBundles(facts, 0, Cpus(2)).status().message(), HasSubstr("bundle 0"));
  EXPECT_EQ(AbleBundles(facts, 2, Cpus(1)).status().code(), Code::kInvalid);
}

}  // namespace
}  // namespace manta::rules
