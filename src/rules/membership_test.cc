#include "rules/membership.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>

namespace manta::rules {
namespace {

constexpr std::int64_t kMs = 1'000;

template <typename T>
std::vector<T> Of(const MembershipActions& actions) {
  std::vector<T> out;
  for (const MembershipAction& action : actions) {
    if (const T* one = std::get_if<T>(&action)) out.push_back(*one);
  }
  return out;
}

// Ticks every 100 ms up to `until`.
MembershipActions Pass(Membership* members, std::int64_t* now, std::int64_t until) {
  MembershipActions actions;
  for (; *now <= until; *now += 100 * kMs) members->Tick(*now, &actions);
  return actions;
}

TEST(Membership, AClosedConnectionIsADeathAtOnce) {
  Membership members;
  MembershipActions actions;
  const std::uint64_t first = members.Register(1, 0, &actions);
  EXPECT_EQ(Of<NodeCameUp>(actions).size(), 1U);
  members.Closed(1, first, &actions);
  ASSERT_EQ(Of<NodeDied>(actions).size(), 1U);
  EXPECT_EQ(Of<NodeDied>(actions)[0].why, "its connection closed");
  EXPECT_FALSE(members.Lives(1, first));
  members.Closed(1, first, &actions);
  EXPECT_EQ(Of<NodeDied>(actions).size(), 1U) << "told once";
}

TEST(Membership, SilenceIsSuspectedProbedAndThenADeathWithinThreeSeconds) {
  Membership members;
  MembershipActions actions;
  members.Register(1, 0, &actions);
  std::int64_t now = 0;
  EXPECT_EQ(Of<ProbeNode>(Pass(&members, &now, 900 * kMs)).size(), 0U);
  EXPECT_EQ(Of<ProbeNode>(Pass(&members, &now, 2'800 * kMs)).size(), 1U);
  EXPECT_EQ(members.Find(1)->phase, NodePhase::kSuspect);
  EXPECT_TRUE(members.Lives(1, 1)) << "a suspect may still act";
  const auto dead = Of<NodeDied>(Pass(&members, &now, 3'000 * kMs));
  ASSERT_EQ(dead.size(), 1U);
  EXPECT_EQ(dead[0].why, "it was silent for 2900 ms, and 2850 are allowed");
}

TEST(Membership, ASuspectThatIsHeardIsAliveAgain) {
  Membership members;
  MembershipActions actions;
  members.Register(1, 0, &actions);
  std::int64_t now = 0;
  Pass(&members, &now, 2'800 * kMs);
  EXPECT_TRUE(members.Heard(1, 1, now));
  EXPECT_EQ(members.Find(1)->phase, NodePhase::kAlive);
  EXPECT_TRUE(Of<NodeDied>(Pass(&members, &now, 5'500 * kMs)).empty());
}

TEST(Membership, OurOwnStallIsNotTheNodesSilence) {
  Membership members;
  MembershipActions actions;
  members.Register(1, 0, &actions);
  members.Tick(0, &actions);
  members.Tick(60'000 * kMs, &actions);  // we were stopped for a minute
  EXPECT_TRUE(Of<NodeDied>(actions).empty());
  std::int64_t now = 60'100 * kMs;
  EXPECT_TRUE(Of<NodeDied>(Pass(&members, &now, 62'000 * kMs)).empty());
  EXPECT_EQ(Of<NodeDied>(Pass(&members, &now, 63'000 * kMs)).size(), 1U);
}

TEST(Membership, AStallBeforeTheFirstLookIsOursToo) {
  Membership members;
  MembershipActions actions;
  members.Register(1, 0, &actions);
  members.Tick(60'000 * kMs, &actions);
  EXPECT_TRUE(Of<NodeDied>(actions).empty());
}

TEST(Membership, AFencedNodeCannotActAndANewIncarnationCan) {
  Membership members;
  MembershipActions actions;
  const std::uint64_t first = members.Register(1, 0, &actions);
  std::int64_t now = 0;
  Pass(&members, &now, 3'100 * kMs);
  EXPECT_FALSE(members.Heard(1, first, now)) << "it comes back from a partition";
  const std::uint64_t second = members.Register(1, now, &actions);
  EXPECT_GT(second, first);
  EXPECT_FALSE(members.Heard(1, first, now));
  EXPECT_TRUE(members.Heard(1, second, now));
  members.Closed(1, first, &actions);  // the old connection's end comes late
  EXPECT_TRUE(members.Lives(1, second));
}

TEST(Membership, RegisteringTwiceEndsTheFormerIncarnation) {
  Membership members;
  MembershipActions actions;
  members.Register(1, 0, &actions);
  actions.clear();
  members.Register(1, 5, &actions);
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(std::get<NodeDied>(actions[0]).incarnation, 1U);
  EXPECT_EQ(std::get<NodeCameUp>(actions[1]).incarnation, 2U);
}

TEST(Membership, AfterARestartOfControlEverybodyHasAsLongAsANewcomer) {
  Membership members;
  members.Restore(1, 4, true, 100'000 * kMs);
  members.Restore(2, 7, false, 100'000 * kMs);
  EXPECT_TRUE(members.Lives(1, 4));
  EXPECT_FALSE(members.Lives(2, 7));
  MembershipActions actions;
  EXPECT_EQ(members.Register(2, 100'000 * kMs, &actions), 8U) << "incarnations go on from the table";
  std::int64_t now = 100'000 * kMs;
  EXPECT_TRUE(Of<NodeDied>(Pass(&members, &now, 102'800 * kMs)).empty());
}

TEST(NodeLease, ANodeThatIsCutOffStopsBeforeAnybodyReplacesIt) {
  static_assert(NodeLease::kLengthUs < Membership::kDeadUs);
  NodeLease lease;
  EXPECT_FALSE(lease.MayAct(0)) << "not before control answered";
  lease.Answered(1'000);
  EXPECT_TRUE(lease.MayAct(1'000 + NodeLease::kLengthUs - 1));
  EXPECT_FALSE(lease.MayAct(1'000 + NodeLease::kLengthUs));
  lease.Answered(500'000);
  lease.Answered(400'000);  // answers out of order take nothing away
  EXPECT_TRUE(lease.MayAct(500'000 + NodeLease::kLengthUs - 1));
  lease.Fenced();
  EXPECT_FALSE(lease.MayAct(600'000));
}

TEST(NodeLease, WhileControlIsDownRunningTasksGoOn) {
  NodeLease lease;
  lease.Answered(0);
  for (std::int64_t now = 0; now <= 60'000'000; now += 1'000'000) {
    EXPECT_TRUE(lease.MayAct(now));
    lease.Refused(now);
  }
  EXPECT_FALSE(lease.MayAct(62'500'000)) << "nothing is heard any more: perhaps it is back and we are cut off";
}

TEST(Membership, RandomEventsNeverReviveTheDeadNorKillTheHeard) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    Membership members;
    std::int64_t now = 0;
    std::set<std::pair<NodeId, std::uint64_t>> dead;
    std::map<NodeId, std::int64_t> heard;
    for (int step = 0; step < 3'000; ++step) {
      now += static_cast<std::int64_t>(random() % 200'000);
      MembershipActions actions;
      const auto node = static_cast<NodeId>(1 + random() % 8);
      const Membership::Node* entry = members.Find(node);
      const std::uint64_t some = entry == nullptr ? 1 : entry->incarnation - random() % 2;
      switch (random() % 6) {
        case 0:
          members.Register(node, now, &actions);
          heard[node] = now;
          break;
        case 1:
          members.Closed(node, some, &actions);
          break;
        case 2:
        case 3: {
          const bool lives = members.Lives(node, some);
          ASSERT_EQ(members.Heard(node, some, now), lives);
          if (lives) heard[node] = now;
          break;
        }
        default:
          members.Tick(now, &actions);
          for (const NodeDied& died : Of<NodeDied>(actions)) ASSERT_GE(now - heard[died.node], Membership::kDeadUs);
      }
      for (const NodeDied& died : Of<NodeDied>(actions)) ASSERT_TRUE(dead.insert({died.node, died.incarnation}).second);
      for (const auto& [id, incarnation] : dead) ASSERT_FALSE(members.Lives(id, incarnation));
      for (const auto& [id, one] : members.nodes()) {
        ASSERT_EQ(one.phase == NodePhase::kDead, dead.contains({id, one.incarnation}));
      }
    }
  }
}

}  // namespace
}  // namespace manta::rules
