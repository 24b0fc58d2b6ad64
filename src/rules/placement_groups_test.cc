#include "rules/placement_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <set>

namespace manta::rules {
namespace {

Resources Cpus(double cpus, double gpus = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  return out;
}

GroupSpec Spec(GroupStrategy strategy, std::size_t bundles, const Resources& each = Cpus(1)) {
  return {strategy, std::vector<Resources>(bundles, each), ""};
}

Id Group(std::uint64_t number) { return Id{number, 1}; }

// A control process with nodes that answer whatever they are asked, honestly.
struct Cluster {
  struct Node {
    Resources total;
    Resources taken;  // by actors
    std::map<std::tuple<Id, std::uint64_t, std::uint32_t>, Resources> bundles;

    [[nodiscard]] Resources Available() const {
      Resources out = total;
      out.Subtract(taken);
      for (const auto& [key, need] : bundles) out.Subtract(need);
      return out;
    }
  };

  void Add(NodeId id, const Resources& total) {
    nodes[id].total = total;
    rule.NodeHeard(id, total, nodes[id].Available(), now, &inbox);
  }
  void Kill(NodeId id) {
    nodes.erase(id);
    rule.NodeDown(id, now, &inbox);
  }
  void Create(std::uint64_t number, const GroupSpec& spec) {
    const Status status = rule.Create(Group(number), spec, now, &inbox);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  // Carries out one action.
  void Step() {
    const GroupAction action = inbox.front();
    inbox.erase(inbox.begin());
    if (const auto* reserve = std::get_if<ReserveBundle>(&action)) {
      const auto it = nodes.find(reserve->node);
      if (it == nodes.end()) return;
      if (it->second.Available().Covers(reserve->need)) {
        it->second.bundles[{reserve->group, reserve->attempt, reserve->bundle}] = reserve->need;
        rule.Reserved(reserve->group, reserve->attempt, reserve->bundle, reserve->node, now, &inbox);
      } else {
        ++refusals;
        rule.Refused(reserve->group, reserve->attempt, reserve->bundle, reserve->node, it->second.Available(), now,
                     &inbox);
      }
    } else if (const auto* commit = std::get_if<CommitBundle>(&action)) {
      const auto it = nodes.find(commit->node);
      if (it == nodes.end()) return;
      ASSERT_TRUE(it->second.bundles.contains({commit->group, commit->attempt, commit->bundle}));
      rule.Committed(commit->group, commit->attempt, commit->bundle, commit->node, now, &inbox);
    } else if (const auto* release = std::get_if<ReleaseBundle>(&action)) {
      const auto it = nodes.find(release->node);
      if (it != nodes.end()) it->second.bundles.erase({release->group, release->attempt, release->bundle});
    } else if (const auto* ready = std::get_if<GroupReady>(&action)) {
      placed[ready->group] = ready->nodes;
    } else if (const auto* lost = std::get_if<GroupLost>(&action)) {
      placed.erase(lost->group);
    } else if (const auto* why = std::get_if<GroupInfeasible>(&action)) {
      messages.push_back(why->why);
    }
  }
  void Run() {
    while (!inbox.empty()) Step();
  }
  void Beat() {
    for (const auto& [id, node] : nodes) rule.NodeHeard(id, node.total, node.Available(), now, &inbox);
  }
  void Pass(std::int64_t us) {
    now += us;
    Beat();
    rule.Tick(now, &inbox);
    Run();
  }
  std::vector<NodeId> Nodes(std::uint64_t number) {
    std::vector<NodeId> out = placed[Group(number)];
    std::sort(out.begin(), out.end());
    return out;
  }
  bool Ready(std::uint64_t number) const { return placed.contains(Group(number)); }

  void Check() const {
    std::map<NodeId, Resources> held;
    for (const auto& [id, group] : rule.groups()) {
      std::set<NodeId> used;
      for (std::size_t i = 0; i < group.slots.size(); ++i) {
        const auto& slot = group.slots[i];
        if (slot.hold == PlacementGroups::Hold::kNothing) {
          ASSERT_NE(group.phase, GroupPhase::kReady);
          continue;
        }
        held[slot.node].Add(group.spec.bundles[i]);
        used.insert(slot.node);
        ASSERT_TRUE(nodes.contains(slot.node)) << "on a dead node";
        if (group.phase == GroupPhase::kWaiting || group.phase == GroupPhase::kReady) {
          ASSERT_EQ(slot.hold, PlacementGroups::Hold::kCommitted);
        }
      }
      if (group.phase != GroupPhase::kReady) continue;
      if (group.spec.strategy == GroupStrategy::kStrictPack) {
        ASSERT_EQ(used.size(), 1U);
      }
      if (group.spec.strategy == GroupStrategy::kStrictSpread) {
        ASSERT_EQ(used.size(), group.slots.size());
      }
    }
    for (const auto& [id, node] : nodes) {
      ASSERT_EQ(rule.Held(id), held[id]);
      ASSERT_TRUE(node.total.Covers(held[id])) << "over-committed";
      const Resources free = node.Available();
      for (const auto& [name, amount] : free.amounts()) ASSERT_GE(amount, 0);
    }
  }

  PlacementGroups rule;
  std::map<NodeId, Node> nodes;
  GroupActions inbox;
  std::map<Id, std::vector<NodeId>> placed;
  std::vector<std::string> messages;
  int refusals = 0;
  std::int64_t now = 1'000'000;
};

using Ids = std::vector<NodeId>;

TEST(PlacementGroups, PackUsesAsFewNodesAsPossible) {
  Cluster cluster;
  for (NodeId id = 1; id <= 4; ++id) cluster.Add(id, Cpus(4));
  cluster.Create(1, Spec(GroupStrategy::kPack, 4));
  cluster.Run();
  ASSERT_TRUE(cluster.Ready(1));
  const Ids nodes = cluster.Nodes(1);
  EXPECT_EQ(nodes.front(), nodes.back());
  cluster.Create(2, Spec(GroupStrategy::kPack, 6));
  cluster.Run();
  const Ids more = cluster.Nodes(2);
  EXPECT_EQ(std::set<NodeId>(more.begin(), more.end()).size(), 2U) << "more than one node has";
}

TEST(PlacementGroups, SpreadUsesAsManyNodesAsThereAre) {
  Cluster cluster;
  for (NodeId id = 1; id <= 3; ++id) cluster.Add(id, Cpus(4));
  cluster.Create(1, Spec(GroupStrategy::kSpread, 3));
  cluster.Create(2, Spec(GroupStrategy::kSpread, 5));
  cluster.Run();
  EXPECT_EQ(cluster.Nodes(1), (Ids{1, 2, 3}));
  EXPECT_EQ(cluster.Nodes(2).size(), 5U);
}

TEST(PlacementGroups, StrictPackIsOneNodeOrNone) {
  Cluster cluster;
  cluster.Add(1, Cpus(4));
  cluster.Add(2, Cpus(4));
  cluster.Create(1, Spec(GroupStrategy::kStrictPack, 5));
  cluster.Run();
  EXPECT_FALSE(cluster.Ready(1));
  ASSERT_EQ(cluster.messages.size(), 1U);
  EXPECT_EQ(cluster.messages[0],
            "placement group (STRICT_PACK, 5 bundles) waits: on one node they ask for CPU 5, and the most that one of "
            "2 nodes "
            "has is CPU 4; use PACK or start a larger node");
  cluster.Add(3, Cpus(8));
  cluster.Run();
  EXPECT_EQ(cluster.Nodes(1), (Ids{3, 3, 3, 3, 3})) << "a node that can hold it joined";
}

TEST(PlacementGroups, StrictSpreadFindsTheOnlyMatching) {
  Cluster cluster;
  cluster.Add(1, Cpus(4, 1));
  cluster.Add(2, Cpus(8));
  cluster.Add(3, Cpus(2));
  // The first fits everywhere, the second only on 1, the third only on 2.
  cluster.Create(1, {GroupStrategy::kStrictSpread, {Cpus(2), Cpus(1, 1), Cpus(6)}, ""});
  cluster.Run();
  EXPECT_EQ(cluster.placed[Group(1)], (Ids{3, 1, 2}));
}

TEST(PlacementGroups, WhatCannotFitIsNamedWithTheNumbers) {
  Cluster cluster;
  cluster.Add(1, Cpus(4, 2));
  cluster.Add(2, Cpus(4));
  cluster.Create(1, {GroupStrategy::kPack, {Cpus(1), Cpus(1, 4)}, "train"});
  cluster.Create(2, Spec(GroupStrategy::kStrictSpread, 3));
  cluster.Create(3, Spec(GroupStrategy::kSpread, 9));
  cluster.Run();
  ASSERT_EQ(cluster.messages.size(), 3U);
  EXPECT_EQ(
      cluster.messages[0],
      "placement group train (PACK, 2 bundles) waits: bundle 1 asks for CPU 1, GPU 4, and the most that one of 2 nodes "
      "has is CPU 4, GPU 2; ask for less or start such a node");
  EXPECT_EQ(
      cluster.messages[1],
      "placement group (STRICT_SPREAD, 3 bundles) waits: each wants a node of its own, and 2 of 2 nodes can hold any "
      "of them; use SPREAD or start more nodes");
  EXPECT_EQ(
      cluster.messages[2],
      "placement group (SPREAD, 9 bundles) waits: together they ask for CPU 9, and the 2 nodes have CPU 8, GPU 2, at "
      "most CPU 4, GPU 2 on one; ask for less or start more nodes");
  cluster.Pass(100'000);
  EXPECT_EQ(cluster.messages.size(), 3U) << "told once";
}

GroupSpec Labelled(GroupStrategy strategy, const std::vector<std::string>& zones) {
  GroupSpec spec = Spec(strategy, zones.size());
  for (const std::string& zone : zones) {
    spec.labels.emplace_back();
    if (!zone.empty()) spec.labels.back().push_back(LabelRule::Equals("zone", zone));
  }
  return spec;
}

TEST(PlacementGroups, ABundleGoesWhereItsLabelsMatch) {
  for (const GroupStrategy strategy : {GroupStrategy::kPack, GroupStrategy::kSpread, GroupStrategy::kStrictSpread}) {
    Cluster cluster;
    for (NodeId id = 1; id <= 3; ++id) {
      cluster.rule.SetLabels(id, {{"zone", std::string(1, static_cast<char>('a' + id - 1))}});
      cluster.Add(id, Cpus(4));
    }
    cluster.Create(1, Labelled(strategy, {"c", "a", ""}));
    cluster.Run();
    ASSERT_TRUE(cluster.Ready(1));
    EXPECT_EQ(cluster.placed[Group(1)][0], 3U);
    EXPECT_EQ(cluster.placed[Group(1)][1], 1U);
  }
}

TEST(PlacementGroups, BundlesOfDifferentLabelsAreNotPackedOnOneNode) {
  Cluster cluster;
  cluster.rule.SetLabels(1, {{"zone", "a"}});
  cluster.rule.SetLabels(2, {{"zone", "b"}});
  cluster.Add(1, Cpus(4));
  cluster.Add(2, Cpus(4));
  cluster.Create(1, Labelled(GroupStrategy::kStrictPack, {"a", "b"}));
  cluster.Create(2, Labelled(GroupStrategy::kStrictPack, {"b", "b"}));
  cluster.Run();
  EXPECT_FALSE(cluster.Ready(1));
  EXPECT_EQ(cluster.Nodes(2), (Ids{2, 2}));
}

TEST(PlacementGroups, LabelsThatNoNodeHasAreNamed) {
  Cluster cluster;
  cluster.rule.SetLabels(1, {{"zone", "a"}});
  cluster.Add(1, Cpus(4));
  cluster.Create(1, Labelled(GroupStrategy::kPack, {"b"}));
  cluster.Run();
  EXPECT_FALSE(cluster.Ready(1));
  ASSERT_FALSE(cluster.messages.empty());
  EXPECT_NE(cluster.messages.back().find("bundle 0 asks for a node with zone=b"), std::string::npos)
      << cluster.messages.back();
  cluster.rule.SetLabels(2, {{"zone", "b"}});
  cluster.Add(2, Cpus(4));
  cluster.Run();
  EXPECT_EQ(cluster.Nodes(1), Ids{2});
}

TEST(PlacementGroups, ARefusalReleasesAllAndIsTriedAgain) {
  Cluster cluster;
  cluster.Add(1, Cpus(2));
  cluster.Add(2, Cpus(2));
  cluster.nodes[2].taken = Cpus(1);  // an actor that no heartbeat told of
  cluster.Create(1, Spec(GroupStrategy::kStrictSpread, 2, Cpus(2)));
  cluster.Run();
  EXPECT_EQ(cluster.refusals, 1);
  EXPECT_FALSE(cluster.Ready(1));
  EXPECT_TRUE(cluster.nodes[1].bundles.empty()) << "nothing is held";
  cluster.Check();
  cluster.nodes[2].taken = Resources();
  cluster.Pass(2 * PlacementGroups::kBackOffUs + PlacementGroups::kRoundUs);
  EXPECT_TRUE(cluster.Ready(1));
}

TEST(PlacementGroups, TwoGroupsThatNeedTheSameNodesNeverDeadlock) {
  Cluster cluster;
  cluster.Add(1, Cpus(2));
  cluster.Add(2, Cpus(2));
  cluster.Create(1, Spec(GroupStrategy::kStrictSpread, 2, Cpus(2)));
  cluster.Create(2, Spec(GroupStrategy::kStrictSpread, 2, Cpus(2)));
  cluster.Run();
  EXPECT_TRUE(cluster.Ready(1));
  EXPECT_FALSE(cluster.Ready(2));
  cluster.rule.Remove(Group(1), cluster.now, &cluster.inbox);
  cluster.Run();
  cluster.Pass(100'000);
  EXPECT_TRUE(cluster.Ready(2));
}

TEST(PlacementGroups, ANodeThatDoesNotAnswerHasRefused) {
  Cluster cluster;
  cluster.Add(1, Cpus(2));
  cluster.Create(1, Spec(GroupStrategy::kPack, 2));
  ASSERT_EQ(cluster.inbox.size(), 2U);
  cluster.inbox.clear();  // lost on the way
  EXPECT_EQ(cluster.rule.NextTick(cluster.now), cluster.now + PlacementGroups::kAnswerUs);
  cluster.now += PlacementGroups::kAnswerUs;
  cluster.rule.Tick(cluster.now, &cluster.inbox);
  EXPECT_EQ(std::count_if(cluster.inbox.begin(), cluster.inbox.end(),
                          [](const GroupAction& one) { return std::holds_alternative<ReleaseBundle>(one); }),
            2);
  cluster.Run();
  cluster.Pass(PlacementGroups::kBackOffUs);
  EXPECT_TRUE(cluster.Ready(1));
}

TEST(PlacementGroups, ADeadNodesBundlesArePlacedAgainAndTheOthersStay) {
  Cluster cluster;
  for (NodeId id = 1; id <= 3; ++id) cluster.Add(id, Cpus(2));
  cluster.Create(1, Spec(GroupStrategy::kStrictSpread, 2, Cpus(2)));
  cluster.Run();
  const Ids before = cluster.placed[Group(1)];
  cluster.Kill(before[0]);
  EXPECT_TRUE(std::holds_alternative<GroupLost>(cluster.inbox.front()));
  cluster.Run();
  ASSERT_TRUE(cluster.Ready(1));
  EXPECT_EQ(cluster.placed[Group(1)][1], before[1]);
  EXPECT_NE(cluster.placed[Group(1)][0], before[0]);
  cluster.Check();
}

TEST(PlacementGroups, ALateAnswerOfARemovedGroupIsReleased) {
  Cluster cluster;
  cluster.Add(1, Cpus(2));
  cluster.Create(1, Spec(GroupStrategy::kPack, 1));
  const auto reserve = std::get<ReserveBundle>(cluster.inbox.at(0));
  cluster.inbox.clear();
  EXPECT_TRUE(cluster.rule.Remove(Group(1), cluster.now, &cluster.inbox));
  cluster.inbox.clear();
  cluster.rule.Reserved(reserve.group, reserve.attempt, 0, 1, cluster.now, &cluster.inbox);
  ASSERT_EQ(cluster.inbox.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ReleaseBundle>(cluster.inbox[0]));
  EXPECT_FALSE(cluster.rule.Remove(Group(1), cluster.now, &cluster.inbox));
}

TEST(PlacementGroups, SmallGroupsPassABigOneOnlyForAWhile) {
  Cluster cluster;
  cluster.Add(1, Cpus(4));
  cluster.Create(1, Spec(GroupStrategy::kPack, 2));
  cluster.Run();
  cluster.Create(2, Spec(GroupStrategy::kStrictPack, 4));  // must wait for 1
  cluster.Create(3, Spec(GroupStrategy::kPack, 1));
  cluster.Run();
  EXPECT_TRUE(cluster.Ready(3)) << "there is room";
  cluster.Pass(PlacementGroups::kPatienceUs);
  cluster.Create(4, Spec(GroupStrategy::kPack, 1));
  cluster.Run();
  EXPECT_FALSE(cluster.Ready(4)) << "now the big one is due";
  cluster.rule.Remove(Group(1), cluster.now, &cluster.inbox);
  cluster.rule.Remove(Group(3), cluster.now, &cluster.inbox);
  cluster.Run();
  cluster.Pass(100'000);
  EXPECT_TRUE(cluster.Ready(2));
}

TEST(PlacementGroups, ARestoredGroupKeepsItsNodes) {
  Cluster cluster;
  const Status status =
      cluster.rule.RestoreGroup(Group(1), Spec(GroupStrategy::kStrictSpread, 2), 9, {1, 2}, cluster.now);
  ASSERT_TRUE(status.ok()) << status.message();
  cluster.nodes[1] = {Cpus(2), {}, {{{Group(1), 9, 0}, Cpus(1)}}};
  cluster.nodes[2] = {Cpus(2), {}, {{{Group(1), 9, 1}, Cpus(1)}}};
  cluster.Beat();
  cluster.Check();
  EXPECT_EQ(cluster.rule.Find(Group(1))->phase, GroupPhase::kReady);
  cluster.Create(2, Spec(GroupStrategy::kPack, 2));
  cluster.Run();
  EXPECT_TRUE(cluster.Ready(2));
  EXPECT_GT(cluster.rule.Find(Group(2))->attempt, 9U);
}

TEST(PlacementGroups, WhatMakesNoSenseIsRefused) {
  PlacementGroups rule;
  GroupActions actions;
  EXPECT_EQ(rule.Create(Group(1), {}, 0, &actions).code(), Code::kInvalid);
  EXPECT_EQ(rule.Create(Group(1), Spec(GroupStrategy::kPack, 1, Resources()), 0, &actions).code(), Code::kInvalid);
  EXPECT_TRUE(rule.Create(Group(1), Spec(GroupStrategy::kPack, 1), 0, &actions).ok());
  EXPECT_EQ(rule.Create(Group(1), Spec(GroupStrategy::kPack, 1), 0, &actions).code(), Code::kInvalid);
}

TEST(PlacementGroups, RandomEventsNeverOverCommitAndEverybodyIsServedInTheEnd) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster;
    for (NodeId id = 1; id <= 6; ++id) cluster.Add(id, Cpus(4, static_cast<double>(id % 2)));
    std::uint64_t next = 1;
    NodeId next_node = 7;
    for (int step = 0; step < 600; ++step) {
      cluster.now += static_cast<std::int64_t>(random() % 20'000);
      switch (random() % 12) {
        case 0:
        case 1: {
          if (cluster.rule.groups().size() > 8) break;
          GroupSpec spec{static_cast<GroupStrategy>(random() % 4), {}, ""};
          const std::size_t bundles = 1 + random() % 4;
          for (std::size_t i = 0; i < bundles; ++i) spec.bundles.push_back(Cpus(static_cast<double>(1 + random() % 2)));
          if (random() % 3 == 0) spec.bundles[0] = Cpus(1, 1);
          cluster.Create(next++, spec);
          break;
        }
        case 2:
          if (!cluster.rule.groups().empty()) {
            auto it = cluster.rule.groups().begin();
            std::advance(it, static_cast<std::ptrdiff_t>(random() % cluster.rule.groups().size()));
            const Id id = it->first;
            cluster.rule.Remove(id, cluster.now, &cluster.inbox);
          }
          break;
        case 3: {
          // An actor comes or goes behind control's back.
          auto it = cluster.nodes.begin();
          std::advance(it, static_cast<std::ptrdiff_t>(random() % cluster.nodes.size()));
          if (!it->second.taken.empty()) {
            it->second.taken = Resources();
          } else if (it->second.Available().Covers(Cpus(1))) {
            it->second.taken = Cpus(1);
          }
          break;
        }
        case 4:
          if (random() % 4 == 0) {
            const NodeId victim = cluster.nodes.begin()->first;
            cluster.Kill(victim);
            cluster.Add(next_node, Cpus(4, static_cast<double>(next_node % 2)));
            ++next_node;
          }
          break;
        case 5:
          cluster.Beat();
          break;
        case 6:
          cluster.rule.Tick(cluster.now, &cluster.inbox);
          break;
        default:
          for (int i = 0; i < 4 && !cluster.inbox.empty(); ++i) cluster.Step();
      }
      if (random() % 2 == 0) cluster.Run();
      cluster.Check();
      if (testing::Test::HasFatalFailure()) FAIL() << "seed " << seed << " step " << step;
    }
    // Actors gone, and one group after another removed: the rest gets its turn.
    for (auto& [id, node] : cluster.nodes) node.taken = Resources();
    for (int round = 0; round < 40 && !cluster.rule.groups().empty(); ++round) {
      for (int i = 0; i < 4; ++i) cluster.Pass(PlacementGroups::kAnswerUs);
      const auto ready = std::find_if(cluster.rule.groups().begin(), cluster.rule.groups().end(),
                                      [](const auto& one) { return one.second.phase == GroupPhase::kReady; });
      const bool hopeless = std::all_of(cluster.rule.groups().begin(), cluster.rule.groups().end(),
                                        [](const auto& one) { return !one.second.infeasible.empty(); });
      if (hopeless) break;
      ASSERT_NE(ready, cluster.rule.groups().end())
          << "seed " << seed << ": nobody has anything and nobody gets anything";
      const Id id = ready->first;
      cluster.rule.Remove(id, cluster.now, &cluster.inbox);
      cluster.Run();
      cluster.Check();
    }
    for (const auto& [id, group] : cluster.rule.groups()) ASSERT_FALSE(group.infeasible.empty()) << "seed " << seed;
    if (cluster.rule.groups().empty()) {
      for (const auto& [id, node] : cluster.nodes) ASSERT_TRUE(node.bundles.empty()) << "something is left reserved";
    }
  }
}

}  // namespace
}  // namespace manta::rules
