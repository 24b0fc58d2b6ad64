#include "rules/job_quota.h"

#include <gtest/gtest.h>

#include <random>

#include "rules/lease_queue.h"
#include "types/strategy.h"

namespace manta::rules {
namespace {

Resources Cpus(std::int64_t count) {
  Resources out;
  out.Set("CPU", count * kUnit);
  return out;
}

Resources Sum(const JobQuota& quota) {
  Resources sum = quota.here();
  for (const NodeId node : quota.nodes()) sum.Add(quota.Share(node));
  return sum;
}

TEST(JobQuota, AllOfItBeginsAtHomeAndSharesAddUpToIt) {
  JobQuota quota(Cpus(4));
  EXPECT_EQ(quota.here(), Cpus(4));
  EXPECT_TRUE(quota.Heard(2, {}, Cpus(1), 0).empty());
  EXPECT_EQ(quota.Lacks(2), Cpus(1));
  const std::uint64_t number = quota.Give(2, Cpus(1));
  EXPECT_EQ(quota.here(), Cpus(3));
  EXPECT_EQ(quota.Share(2), Cpus(1));  // from the moment it is sent
  EXPECT_TRUE(quota.Heard(2, Cpus(1), {}, number).empty());
  EXPECT_EQ(quota.Share(2), Cpus(1));
  EXPECT_EQ(quota.Heard(2, {}, {}, number), Cpus(1));  // gave it back
  EXPECT_EQ(quota.here(), Cpus(4));
  EXPECT_TRUE(quota.nodes().empty());
}

TEST(JobQuota, AWordThatCrossesAGiftDoesNotTakeItBack) {
  JobQuota quota(Cpus(4));
  quota.Heard(2, {}, Cpus(2), 0);
  const std::uint64_t first = quota.Give(2, Cpus(2));
  const std::uint64_t second = quota.Give(2, Cpus(1));
  EXPECT_TRUE(quota.Heard(2, Cpus(2), {}, first).empty());
  EXPECT_EQ(quota.Share(2), Cpus(3));
  EXPECT_EQ(quota.Heard(2, Cpus(2), {}, second), Cpus(1));
  EXPECT_EQ(Sum(quota), Cpus(4));
}

TEST(JobQuota, WhatWasUnderWayOnALostConnectionComesBackWhenTheNodeSpeaksAgain) {
  JobQuota quota(Cpus(4));
  quota.Heard(2, {}, Cpus(2), 0);
  quota.Give(2, Cpus(2));
  quota.LinkLost(2);
  EXPECT_EQ(quota.here(), Cpus(2));  // it may have arrived, and run
  EXPECT_EQ(quota.Heard(2, {}, {}, 0), Cpus(2));
  EXPECT_EQ(quota.here(), Cpus(4));
}

TEST(JobQuota, ADeadNodesShareComesHome) {
  JobQuota quota(Cpus(4));
  quota.Heard(2, {}, Cpus(3), 0);
  quota.Give(2, Cpus(3));
  EXPECT_EQ(quota.NodeGone(2), Cpus(3));
  EXPECT_EQ(quota.here(), Cpus(4));
  EXPECT_TRUE(quota.NodeGone(2).empty());
}

TEST(JobQuota, IsRecalledFromOthersAndNotBeyondTheirShare) {
  JobQuota quota(Cpus(4));
  quota.Heard(2, {}, Cpus(3), 0);
  const std::uint64_t number = quota.Give(2, Cpus(3));
  quota.Heard(2, Cpus(3), Cpus(1), number);
  EXPECT_TRUE(quota.Recall(2).empty());  // it lacks some itself
  quota.Heard(3, {}, Cpus(8), 0);
  EXPECT_EQ(quota.Recall(2), Cpus(3));
  EXPECT_TRUE(quota.Recall(3).empty());
  quota.Heard(3, {}, {}, 0);
  quota.HomeLacks(Cpus(1));
  EXPECT_EQ(quota.Recall(2), Cpus(1));
}

TEST(JobQuota, ANodeThatClaimsMoreThanItWasGivenIsNotBelieved) {
  JobQuota quota(Cpus(4));
  quota.Heard(2, Cpus(100), {}, 0);
  EXPECT_EQ(quota.here(), Cpus(4));
  EXPECT_EQ(Sum(quota), Cpus(4));
}

// Home and three nodes, each with a LeaseQueue; messages that are delayed, connections that break, nodes that die.
TEST(JobQuota, IsNeverExceededWhateverIsLateOrLost) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    JobQuota quota(Cpus(5));
    struct Far {
      std::int64_t have = 0;
      std::int64_t used = 0;
      std::int64_t wants = 0;
      std::uint64_t seen = 0;
      std::vector<std::pair<std::uint64_t, std::int64_t>> coming;
      struct Word {
        std::int64_t have, lacks;
        std::uint64_t seen;
      };
      std::vector<Word> going;
    };
    std::map<NodeId, Far> nodes{{2, {}}, {3, {}}, {4, {}}};
    std::int64_t home_used = 0;
    for (int step = 0; step < 400; ++step) {
      auto it = std::next(nodes.begin(), pick(static_cast<std::uint32_t>(nodes.size())));
      Far& far = it->second;
      switch (pick(9)) {
        case 0:
          far.wants = pick(3);
          [[fallthrough]];
        case 1:
          far.going.push_back({far.have, std::max<std::int64_t>(far.wants - (far.have - far.used), 0), far.seen});
          break;
        case 2:
          if (far.going.empty()) break;
          quota.Heard(it->first, Cpus(far.going.front().have), Cpus(far.going.front().lacks), far.going.front().seen);
          far.going.erase(far.going.begin());
          break;
        case 3: {
          const std::int64_t lacks = quota.Lacks(it->first).Get("CPU") / kUnit;
          if (lacks == 0 || quota.here().Get("CPU") / kUnit - home_used < lacks) break;
          far.coming.emplace_back(quota.Give(it->first, Cpus(lacks)), lacks);
          break;
        }
        case 4:
          if (far.coming.empty()) break;
          far.seen = far.coming.front().first;
          far.have += far.coming.front().second;
          far.coming.erase(far.coming.begin());
          break;
        case 5:
          if (far.have > far.used) ++far.used;
          break;
        case 6:
          if (far.used > 0) --far.used;
          far.have = std::max(far.used, far.have - 1);
          break;
        case 7:
          if (quota.here().Get("CPU") / kUnit > home_used) ++home_used;
          if (pick(2) == 0 && home_used > 0) --home_used;
          break;
        default:
          if (pick(4) != 0) break;
          if (pick(2) == 0) {
            quota.LinkLost(it->first);
            far.coming.clear();
            far.going.clear();
          } else {
            quota.NodeGone(it->first);
            const std::uint64_t seen = far.seen;
            far = Far{};
            far.seen = seen;
          }
      }
      std::int64_t used = home_used;
      for (const auto& [id, node] : nodes) used += node.used;
      ASSERT_LE(used, 5) << "seed " << seed << " step " << step;
      ASSERT_EQ(Sum(quota), Cpus(5)) << "seed " << seed << " step " << step;
      ASSERT_GE(quota.here().Get("CPU"), home_used * kUnit) << "seed " << seed << " step " << step;
    }
  }
}

// ---- what a LeaseQueue does with a share ----

class QuotaInQueue : public ::testing::Test {
 protected:
  LeaseKey Ask(std::uint64_t request, std::int64_t cpus, const Id& job, std::uint64_t queue = 1, bool actor = false) {
    Resources need = Cpus(cpus);
    need.Add(OfQuota(need, Cpus(1), job));
    const LeaseKey key{actor ? kNoProcess : ProcessId{100 + job.lo}, request};
    EXPECT_TRUE(queue_.Add(LeaseWant{key, need, 0, actor, queue, false}, now_, &actions_).ok());
    return key;
  }
  void Share(const Id& job, std::int64_t total, std::int64_t here) {
    queue_.SetQuota(OfQuota(Cpus(total), Cpus(1), job), OfQuota(Cpus(here), Cpus(1), job));
  }

  const Id job_{1, 1};
  const Id other_{2, 2};
  std::int64_t now_ = 1'000'000;
  LeaseQueue queue_{"n1", Cpus(4)};
  LeaseActions actions_;
};

TEST_F(QuotaInQueue, AJobGetsNoMoreThanItsShareAndLeavesTheRestToOthers) {
  Share(job_, 2, 2);
  EXPECT_TRUE(queue_.LeaseOf(Ask(1, 1, job_)).has_value());
  EXPECT_TRUE(queue_.LeaseOf(Ask(2, 1, job_)).has_value());
  EXPECT_TRUE(queue_.IsWaiting(Ask(3, 1, job_)));
  Share(other_, 9, 9);
  EXPECT_TRUE(queue_.LeaseOf(Ask(1, 1, other_)).has_value());
  EXPECT_TRUE(queue_.LeaseOf(Ask(2, 1, other_)).has_value());
  EXPECT_EQ(queue_.in_use(), Cpus(4));
}

TEST_F(QuotaInQueue, WhoWaitsForHisQuotaHoldsNothingElseBack) {
  Share(job_, 4, 1);
  const LeaseKey large = Ask(1, 2, job_);
  EXPECT_TRUE(queue_.IsWaiting(large));
  const LeaseKey plain{900, 1};
  ASSERT_TRUE(queue_.Add(LeaseWant{plain, Cpus(4), 0, false, 1, false}, now_, &actions_).ok());
  EXPECT_TRUE(queue_.LeaseOf(plain).has_value());
  EXPECT_TRUE(queue_.IsWaiting(Ask(2, 1, job_, 2)));  // but for its own job's: it came first
}

TEST_F(QuotaInQueue, LacksOnlyWhatIsNotHereAndServesWhenItComes) {
  Share(job_, 3, 0);
  const LeaseKey key = Ask(1, 2, job_);
  EXPECT_EQ(QuotaOf(queue_.LacksQuota(job_, queue_.free(), false), job_), Cpus(2));
  EXPECT_TRUE(queue_.LacksQuota(job_, Cpus(1), false).empty());  // it lacks CPUs as well …
  EXPECT_FALSE(queue_.LacksQuota(job_, Cpus(1), true).empty());  // … and still waits
  EXPECT_TRUE(queue_.LacksQuota(other_, queue_.free(), true).empty());
  actions_.clear();
  queue_.AddShare(OfQuota(Cpus(2), Cpus(1), job_), now_, &actions_);
  ASSERT_EQ(actions_.size(), 1U);
  EXPECT_TRUE(queue_.LeaseOf(key).has_value());
  EXPECT_FALSE(queue_.RemoveShare(OfQuota(Cpus(1), Cpus(1), job_)));  // it is in use
  EXPECT_TRUE(queue_.Return(*queue_.LeaseOf(key), now_, &actions_));
  EXPECT_TRUE(queue_.RemoveShare(OfQuota(Cpus(2), Cpus(1), job_)));
  EXPECT_TRUE(queue_.IsWaiting(Ask(2, 1, job_)));
}

TEST_F(QuotaInQueue, WhatIsRecalledGoesWhenATaskEndsAndNotToTheNextInLine) {
  Share(job_, 1, 1);
  const LeaseKey first = Ask(1, 1, job_);
  const LeaseKey recall{kNoProcess, 50};
  const Resources one = OfQuota(Cpus(1), Cpus(1), job_);
  ASSERT_TRUE(queue_.Add(LeaseWant{recall, one, 0, true, 0, false}, now_, &actions_).ok());
  const LeaseKey next = Ask(2, 1, job_);
  EXPECT_TRUE(queue_.LacksQuota(job_, queue_.free(), true) == one);  // of the task; a recall lacks nothing
  now_ += LeaseQueue::kQuantumUs;
  actions_.clear();
  queue_.Tick(now_, [](std::uint64_t) { return false; }, &actions_);
  ASSERT_EQ(actions_.size(), 1U);  // the task is asked to return
  ASSERT_TRUE(std::holds_alternative<Revoke>(actions_[0]));
  EXPECT_TRUE(queue_.Return(*queue_.LeaseOf(first), now_, &actions_));
  ASSERT_TRUE(queue_.LeaseOf(recall).has_value());
  queue_.Withdraw(*queue_.LeaseOf(recall));
  EXPECT_TRUE(queue_.IsWaiting(next));
  EXPECT_EQ(queue_.free(), Cpus(4));
}

TEST_F(QuotaInQueue, ABlockedTaskLendsItsQuotaToThoseItWaitsFor) {
  Share(job_, 1, 1);
  const LeaseKey outer = Ask(1, 1, job_);
  const LeaseKey inner = Ask(2, 1, job_, 2);
  EXPECT_TRUE(queue_.IsWaiting(inner));
  const std::uint64_t lease = *queue_.LeaseOf(outer);
  queue_.Block(lease, now_, &actions_);
  ASSERT_TRUE(queue_.LeaseOf(inner).has_value());
  actions_.clear();
  queue_.Unblock(lease, false, now_, &actions_);
  EXPECT_TRUE(actions_.empty());
  queue_.Return(*queue_.LeaseOf(inner), now_, &actions_);
  ASSERT_EQ(actions_.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<Resume>(actions_[0]));
}

TEST_F(QuotaInQueue, AWokenTaskWaitsForItsQuotaWhileAnotherNodeMayGiveIt) {
  Share(job_, 2, 1);
  const std::uint64_t lease = *queue_.LeaseOf(Ask(1, 1, job_));
  queue_.Block(lease, now_, &actions_);
  ASSERT_TRUE(queue_.RemoveShare(OfQuota(Cpus(1), Cpus(1), job_)));
  actions_.clear();
  queue_.Unblock(lease, false, now_, &actions_);
  EXPECT_TRUE(actions_.empty());
  EXPECT_EQ(QuotaOf(queue_.LacksQuota(job_, queue_.free(), false), job_), Cpus(1));
  queue_.AddShare(OfQuota(Cpus(1), Cpus(1), job_), now_, &actions_);
  ASSERT_EQ(actions_.size(), 1U);
}

}  // namespace
}  // namespace manta::rules
