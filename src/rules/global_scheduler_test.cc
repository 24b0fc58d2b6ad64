#include "rules/global_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
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

// A cluster as a scheduler sees it.
struct Cluster {
  explicit Cluster(int nodes = 0, double cpus = 4) {
    for (int i = 1; i <= nodes; ++i) Beat(static_cast<NodeId>(i), Cpus(cpus), Cpus(cpus));
  }
  Heartbeat Make(NodeId node, const Resources& total, const Resources& available, std::int64_t queued = 0,
                 double run_us = 10'000) {
    Heartbeat beat;
    beat.node = node;
    beat.incarnation = 1;
    beat.sequence = ++sequence;
    beat.total = total;
    beat.available = available;
    if (queued > 0) beat.backlog["CPU"] = static_cast<double>(queued) * run_us * kUnit;
    beat.classes.push_back({7, queued, run_us});
    return beat;
  }
  void Beat(NodeId node, const Resources& total, const Resources& available, std::int64_t queued = 0,
            double run_us = 10'000) {
    ASSERT_TRUE(scheduler.Heard(Make(node, total, available, queued, run_us)));
  }
  PlaceRequest Want(std::int64_t count = 1, const Resources& need = Cpus(1)) {
    PlaceRequest request;
    request.function = 7;
    request.need = need;
    request.count = count;
    return request;
  }
  std::map<NodeId, std::int64_t> Place(const PlaceRequest& request) {
    auto placed = scheduler.Place(request, now);
    EXPECT_TRUE(placed.ok()) << placed.status().message();
    std::map<NodeId, std::int64_t> out;
    if (!placed.ok()) return out;
    last = *placed;
    for (const Placement& one : *placed) out[one.node] += one.count;
    return out;
  }
  NodeId PlaceOne(const PlaceRequest& request) { return Place(request).begin()->first; }

  GlobalScheduler scheduler{1};
  std::uint64_t sequence = 0;
  std::int64_t now = 0;
  std::vector<Placement> last;
};

TEST(GlobalScheduler, TheNodeWithTheShortestQueueIsChosen) {
  Cluster cluster;
  cluster.Beat(1, Cpus(4), Cpus(0), 20);
  cluster.Beat(2, Cpus(4), Cpus(0), 5);
  cluster.Beat(3, Cpus(4), Cpus(0), 9);
  EXPECT_EQ(cluster.PlaceOne(cluster.Want()), 2U);
  EXPECT_DOUBLE_EQ(cluster.last[0].expected_wait_us, 6 * 10'000.0 / 4) << "five before it and its own turn";
}

TEST(GlobalScheduler, AQueueOfShortTasksIsShorterThanOneOfFewLongTasks) {
  Cluster cluster;
  cluster.Beat(1, Cpus(4), Cpus(0), 100, 100);
  cluster.Beat(2, Cpus(4), Cpus(0), 2, 1'000'000);
  EXPECT_EQ(cluster.PlaceOne(cluster.Want()), 1U);
}

TEST(GlobalScheduler, TasksGoWhereTheirInputsAreUnlessTheQueueThereIsLongerThanTheTransfer) {
  Cluster cluster(2);
  cluster.scheduler.Transferred(1, 100'000'000, 100'000);  // 1 GB/s
  cluster.scheduler.Transferred(2, 100'000'000, 100'000);
  PlaceRequest request = cluster.Want();
  request.inputs.push_back({100'000'000, {2}});  // 100 ms away
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
  cluster.Beat(2, Cpus(4), Cpus(0), 30);  // 75 ms
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
  cluster.Beat(2, Cpus(4), Cpus(0), 50);  // 125 ms
  EXPECT_EQ(cluster.PlaceOne(request), 1U);
}

TEST(GlobalScheduler, BandwidthFollowsWhatIsMeasured) {
  Cluster cluster(2);
  PlaceRequest request = cluster.Want();
  request.inputs.push_back({1'000'000, {2}});
  cluster.Beat(2, Cpus(4), Cpus(0), 1);  // 5 ms; the guess is 1 ms for the transfer
  EXPECT_EQ(cluster.PlaceOne(request), 1U);
  cluster.scheduler.Transferred(1, 1'000'000, 100'000);  // it takes 100
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
}

TEST(GlobalScheduler, HeartbeatsTellHowFastInputsComeToANode) {
  Cluster cluster(2);
  PlaceRequest request = cluster.Want();
  request.inputs.push_back({1'000'000, {2}});
  cluster.Beat(2, Cpus(4), Cpus(0), 1);  // 5 ms; the guess is 1 ms for the transfer
  EXPECT_EQ(cluster.PlaceOne(request), 1U);
  Heartbeat heartbeat = cluster.Make(1, Cpus(4), Cpus(4));
  heartbeat.fetched_bytes = 3'000'000;
  heartbeat.fetched_us = 300'000;  // it takes 100
  EXPECT_TRUE(cluster.scheduler.Heard(heartbeat));
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
}

TEST(GlobalScheduler, WhatItJustSentCountsUntilAHeartbeatHasSeenIt) {
  Cluster cluster(10, 4);
  std::map<NodeId, std::int64_t> sent;
  std::map<NodeId, std::vector<std::uint64_t>> tickets;
  for (int i = 0; i < 40; ++i) {
    for (const auto& [node, count] : cluster.Place(cluster.Want())) sent[node] += count;
    tickets[cluster.last[0].node].push_back(cluster.last[0].ticket);
    EXPECT_EQ(cluster.last[0].expected_wait_us, 0);
  }
  for (const auto& [node, count] : sent) EXPECT_EQ(count, 4) << "node " << node;
  EXPECT_GT(cluster.scheduler.WaitUs(1, 7, Cpus(1)), 0);
  Heartbeat before = cluster.Make(1, Cpus(4), Cpus(4));  // was on its way when they were sent
  EXPECT_TRUE(cluster.scheduler.Heard(before));
  EXPECT_GT(cluster.scheduler.WaitUs(1, 7, Cpus(1)), 0);
  Heartbeat after = cluster.Make(1, Cpus(4), Cpus(1));
  after.arrived = tickets[1];
  EXPECT_TRUE(cluster.scheduler.Heard(after));
  EXPECT_EQ(cluster.scheduler.WaitUs(1, 7, Cpus(1)), 0) << "one has ended already";
  EXPECT_EQ(cluster.scheduler.Charged(1, "CPU"), 0);
}

TEST(GlobalScheduler, ATicketCountsNoLongerThanItsTasksShouldLast) {
  Cluster cluster(1, 4);
  cluster.Place(cluster.Want(4));
  EXPECT_EQ(cluster.scheduler.Charged(1, "CPU"), 4.0 * kUnit);
  cluster.now += 10'000;  // they run for that long
  cluster.Place(cluster.Want(1));
  EXPECT_EQ(cluster.scheduler.Charged(1, "CPU"), 5.0 * kUnit);
  cluster.now += GlobalScheduler::kLeastTicketUs;
  cluster.scheduler.Withdrawn(cluster.last[0].ticket);
  cluster.Place(cluster.Want(1));
  EXPECT_EQ(cluster.scheduler.Charged(1, "CPU"), 1.0 * kUnit);
  EXPECT_EQ(cluster.scheduler.counts().expired, 1U);
}

TEST(GlobalScheduler, ABounceBringsTheTrueLoadAndAnotherNode) {
  Cluster cluster(2, 4);
  PlaceRequest request = cluster.Want();
  const NodeId first = cluster.PlaceOne(request);
  cluster.scheduler.Bounced(cluster.last[0].ticket, cluster.Make(first, Cpus(4), Cpus(0), 100));
  request.refused.push_back(first);
  request.bounces = 1;
  const NodeId second = cluster.PlaceOne(request);
  EXPECT_NE(second, first);
  EXPECT_FALSE(cluster.last[0].final);
  EXPECT_EQ(cluster.scheduler.Charged(first, "CPU"), 0);
  cluster.scheduler.Bounced(cluster.last[0].ticket, cluster.Make(second, Cpus(4), Cpus(0), 200));
  request.refused.push_back(second);
  request.bounces = 2;
  EXPECT_EQ(cluster.PlaceOne(request), first) << "all refused: the less loaded one must take it";
  EXPECT_TRUE(cluster.last[0].final);
}

TEST(GlobalScheduler, FreeCpusBesideALongQueueAreNotRoom) {
  Cluster cluster;
  cluster.Beat(1, Cpus(8), Cpus(4), 500);  // idle leases of somebody, about to be revoked for those who wait
  cluster.Beat(2, Cpus(8), Cpus(0), 20);
  EXPECT_EQ(cluster.Place(cluster.Want(4)), (std::map<NodeId, std::int64_t>{{2, 4}}));
}

TEST(GlobalScheduler, AnOldHeartbeatChangesNothing) {
  Cluster cluster(1);
  const Heartbeat old = cluster.Make(1, Cpus(4), Cpus(4));
  cluster.Beat(1, Cpus(4), Cpus(0), 10);
  EXPECT_FALSE(cluster.scheduler.Heard(old));
  EXPECT_GT(cluster.scheduler.WaitUs(1, 7, Cpus(1)), 0);
}

TEST(GlobalScheduler, OnlyNodesThatCanHoldTheTaskAreChosen) {
  Cluster cluster(50, 4);
  cluster.Beat(60, Cpus(8, 2), Cpus(0), 500);
  EXPECT_EQ(cluster.PlaceOne(cluster.Want(1, Cpus(1, 1))), 60U) << "though its CPUs are busy";
  EXPECT_EQ(cluster.PlaceOne(cluster.Want(1, Cpus(6))), 60U);
}

TEST(GlobalScheduler, LabelsChoose) {
  Cluster cluster(3);
  Heartbeat beat = cluster.Make(2, Cpus(4), Cpus(4));
  beat.labels = {{"zone", "b"}};
  ASSERT_TRUE(cluster.scheduler.Heard(beat));
  PlaceRequest request = cluster.Want(3);
  request.labels = {LabelRule::In("zone", {"a", "b"})};
  EXPECT_EQ(cluster.Place(request), (std::map<NodeId, std::int64_t>{{2, 3}}));
  request.labels = {LabelRule::NotIn("zone", {"b"})};
  EXPECT_FALSE(cluster.Place(request).contains(2));
  request.labels = {LabelRule::Exists("zone")};
  EXPECT_EQ(cluster.Place(request), (std::map<NodeId, std::int64_t>{{2, 3}}));
  request.labels = {LabelRule::Absent("zone")};
  EXPECT_FALSE(cluster.Place(request).contains(2));
  request.labels = {LabelRule::Equals("zone", "moon")};
  const auto none = cluster.scheduler.Place(request, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kInfeasible);
  EXPECT_NE(none.status().message().find("zone=moon"), std::string::npos) << none.status().message();
  EXPECT_NE(none.status().message().find("zone=b"), std::string::npos) << none.status().message();
}

TEST(GlobalScheduler, PreferredLabelsChooseUntilThoseNodesRefuse) {
  Cluster cluster(3);
  Heartbeat beat = cluster.Make(2, Cpus(4), Cpus(4));
  beat.labels = {{"zone", "b"}};
  ASSERT_TRUE(cluster.scheduler.Heard(beat));
  PlaceRequest request = cluster.Want();
  request.prefer = {LabelRule::Equals("zone", "b")};
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
  request.refused = {2};
  request.bounces = 1;
  EXPECT_NE(cluster.PlaceOne(request), 2U);
  request.refused.clear();
  request.bounces = 0;
  request.prefer = {LabelRule::Equals("zone", "moon")};
  EXPECT_NE(cluster.PlaceOne(request), 0U);
}

TEST(GlobalScheduler, HardAffinityIsThatNodeOrNone) {
  Cluster cluster(3);
  PlaceRequest request = cluster.Want();
  request.affinity = 2;
  cluster.Beat(2, Cpus(4), Cpus(0), 1000);
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
  cluster.scheduler.NodeDown(2);
  const auto none = cluster.scheduler.Place(request, 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), Code::kInfeasible);
  EXPECT_EQ(
      none.status().message(),
      "no node can hold a task that asks for CPU 1 on node 2 only: 2 nodes live; node 2 is not among them; ask for "
      "less or start a node that has it");
}

TEST(GlobalScheduler, SoftAffinityIsThatNodeWhileItLives) {
  Cluster cluster(3);
  PlaceRequest request = cluster.Want();
  request.affinity = 2;
  request.soft_affinity = true;
  EXPECT_EQ(cluster.PlaceOne(request), 2U);
  cluster.scheduler.NodeDown(2);
  EXPECT_NE(cluster.PlaceOne(request), 2U);
}

TEST(GlobalScheduler, SpreadingGivesEveryNodeTheSame) {
  Cluster cluster(7, 4);
  PlaceRequest request = cluster.Want(14);
  request.spread = Spread::kYes;
  const auto placed = cluster.Place(request);
  EXPECT_EQ(placed.size(), 7U);
  for (const auto& [node, count] : placed) EXPECT_EQ(count, 2);
  std::set<NodeId> seen;
  request.count = 1;
  for (int i = 0; i < 7; ++i) seen.insert(cluster.PlaceOne(request));
  EXPECT_EQ(seen.size(), 7U) << "one after another";
}

TEST(GlobalScheduler, ADrainingNodeGetsNothing) {
  Cluster cluster(2);
  Heartbeat beat = cluster.Make(1, Cpus(4), Cpus(4));
  beat.draining = true;
  ASSERT_TRUE(cluster.scheduler.Heard(beat));
  EXPECT_EQ(cluster.Place(cluster.Want(50)), (std::map<NodeId, std::int64_t>{{2, 50}}));
}

TEST(GlobalScheduler, WhatNobodyCanHoldIsRefusedWithTheNumbers) {
  Cluster cluster(3, 4);
  const auto none = cluster.scheduler.Place(cluster.Want(1, Cpus(1, 2)), 0);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().message(),
            "no node can hold a task that asks for CPU 1, GPU 2: 3 nodes live; the most that one has is CPU 4; ask for "
            "less or start a node that has it");
}

TEST(GlobalScheduler, ABatchFillsWhatIsFreeThenBalancesTheQueues) {
  Cluster cluster(4, 8);
  cluster.Beat(1, Cpus(8), Cpus(0), 16);
  const auto few = cluster.Place(cluster.Want(12));
  EXPECT_FALSE(few.contains(1));
  Cluster again(4, 8);
  const auto many = again.Place(again.Want(400));
  for (const auto& [node, count] : many) EXPECT_NEAR(static_cast<double>(count), 100, 13) << "node " << node;
}

TEST(GlobalScheduler, ADecisionAmongAThousandNodesLooksAtFew) {
  Cluster cluster(1'000, 64);
  const std::uint64_t before = cluster.scheduler.counts().looks;
  for (int i = 0; i < 1'000; ++i) cluster.Place(cluster.Want(16));
  EXPECT_LE(cluster.scheduler.counts().looks - before, 10'000U);
}

TEST(GlobalScheduler, ReplicasWithTheSameViewDoNotAllChooseTheSameNode) {
  std::map<NodeId, std::int64_t> sent;
  for (std::uint32_t replica = 1; replica <= 10; ++replica) {
    GlobalScheduler scheduler(replica);
    Cluster helper;
    for (NodeId node = 1; node <= 100; ++node) {
      ASSERT_TRUE(scheduler.Heard(helper.Make(node, Cpus(4), Cpus(node == 5 ? 4 : 3))));
    }
    for (int i = 0; i < 10; ++i) {
      auto placed = scheduler.Place(helper.Want(), 0);
      ASSERT_TRUE(placed.ok());
      for (const Placement& one : *placed) sent[one.node] += one.count;
    }
  }
  for (const auto& [node, count] : sent) EXPECT_LE(count, 10) << "node " << node;
}

TEST(GlobalScheduler, RandomEventsKeepItsPromises) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    Cluster cluster;
    std::map<NodeId, Heartbeat> nodes;
    std::map<std::uint64_t, std::pair<NodeId, std::int64_t>> open;  // tickets of one-CPU tasks
    for (int step = 0; step < 2'000; ++step) {
      cluster.now += 1;  // no ticket expires
      const auto id = static_cast<NodeId>(1 + random() % 30);
      switch (random() % 8) {
        case 0: {
          cluster.scheduler.NodeDown(id);
          nodes.erase(id);
          std::erase_if(open, [&](const auto& entry) { return entry.second.first == id; });
          break;
        }
        case 1:
        case 2:
        case 3: {
          const auto cpus = static_cast<double>(1 + random() % 8);
          Heartbeat beat = cluster.Make(id, Cpus(cpus), Cpus(static_cast<double>(random() % 3)),
                                        static_cast<std::int64_t>(random() % 20));
          beat.draining = random() % 10 == 0;
          for (auto it = open.begin(); it != open.end();) {
            const bool arrived = it->second.first == id && random() % 2 == 0;
            if (arrived) beat.arrived.push_back(it->first);
            it = arrived ? open.erase(it) : std::next(it);
          }
          ASSERT_TRUE(cluster.scheduler.Heard(beat));
          nodes[id] = beat;
          break;
        }
        default: {
          PlaceRequest request = cluster.Want(static_cast<std::int64_t>(1 + random() % 40));
          request.from = id;
          if (random() % 4 == 0) request.spread = Spread::kYes;
          if (random() % 4 == 0) request.affinity = static_cast<NodeId>(1 + random() % 30);
          request.soft_affinity = random() % 2 == 0;
          if (random() % 4 == 0) request.inputs.push_back({random() % 100'000'000, {id}});
          for (NodeId node = 1; node <= 30; ++node) {
            if (random() % 6 == 0) request.refused.push_back(node);
          }
          const auto placed = cluster.scheduler.Place(request, cluster.now);
          std::set<NodeId> able;
          for (const auto& [node, beat] : nodes) {
            if (!beat.draining) able.insert(node);
          }
          const bool hard = request.affinity != kNoNode && !request.soft_affinity;
          ASSERT_EQ(placed.ok(), hard ? able.contains(request.affinity) : !able.empty());
          if (!placed.ok()) break;
          std::int64_t sum = 0;
          for (const Placement& one : placed.value()) {
            ASSERT_TRUE(able.contains(one.node));
            ASSERT_GT(one.count, 0);
            ASSERT_GE(one.expected_wait_us, 0);
            if (!one.final) {
              ASSERT_EQ(std::count(request.refused.begin(), request.refused.end(), one.node), 0);
            }
            if (hard) {
              ASSERT_EQ(one.node, request.affinity);
            }
            sum += one.count;
            ASSERT_TRUE(open.emplace(one.ticket, std::pair(one.node, one.count)).second);
          }
          ASSERT_EQ(sum, request.count);
        }
      }
      std::map<NodeId, double> charged;
      for (const auto& [ticket, what] : open) charged[what.first] += static_cast<double>(what.second * kUnit);
      for (const auto& [node, beat] : nodes) ASSERT_EQ(cluster.scheduler.Charged(node, "CPU"), charged[node]);
      ASSERT_EQ(cluster.scheduler.open_tickets(), open.size());
      ASSERT_EQ(cluster.scheduler.nodes(), nodes.size());
    }
  }
}

// Looked for one by one, the names of each beat would take seconds.
TEST(GlobalScheduler, TenThousandNamesOfResourcesAreHeardAndFound) {
  Resources many;
  for (int i = 0; i < 10'000; ++i) many.Set("custom_" + std::to_string(i), kUnit);
  Cluster cluster(1);
  for (int i = 0; i < 20; ++i) cluster.Beat(2, many, many);
  Resources need;
  need.Set("custom_9999", kUnit);
  EXPECT_EQ(cluster.PlaceOne(cluster.Want(1, need)), 2U);
  EXPECT_EQ(cluster.scheduler.Charged(2, "custom_9999"), static_cast<double>(kUnit));
  EXPECT_EQ(cluster.scheduler.Charged(2, "custom_9998"), 0.0);
}

}  // namespace
}  // namespace manta::rules
