// LeaseQueue under random events, checked after each against what its header promises; and owners with endless work,
// of whom none may starve. What single events do is in lease_queue_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "rules/lease_queue.h"

namespace manta::rules {
namespace {

Resources Cpus(double cpus, double gpus = 0, double disks = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  out.Set("disk", static_cast<std::int64_t>(disks * kUnit));
  return out;
}

class Chaos {
 public:
  Chaos(std::uint64_t seed, const Resources& total) : random_(seed), queue_("n1", total) {}

  void Step() {
    now_ += Below(4'000);
    LeaseActions actions;
    bool tick = false;
    const std::uint64_t dice = Below(100);
    if (dice < 30) {
      Ask(&actions);
    } else if (dice < 45) {
      if (const auto lease = AnyLease()) {
        gone_.insert(queue_.Find(lease)->want.key);
        std::erase(resuming_, lease);
        EXPECT_TRUE(Below(2) ? queue_.Return(lease, now_, &actions) : queue_.Lost(lease, now_, &actions));
      }
    } else if (dice < 52) {
      Cancel(&actions);
    } else if (dice < 66) {
      if (const auto lease = AnyLease()) queue_.Block(lease, now_, &actions);
    } else if (dice < 80) {
      if (const auto lease = AnyLease()) {
        const bool blocked = queue_.Find(lease)->blocked;
        queue_.Unblock(lease, Below(3) == 0, now_, &actions);
        if (blocked && std::find(resuming_.begin(), resuming_.end(), lease) == resuming_.end()) {
          resuming_.push_back(lease);
        } else if (!blocked) {
          EXPECT_EQ(actions.size(), 1U);
          return;
        }
      }
    } else if (dice < 83) {
      const auto owner = static_cast<ProcessId>(1 + Below(6));
      for (auto it = waiting_.begin(); it != waiting_.end();) {
        if (it->first.owner == owner) {
          gone_.insert(it->first);
          it = waiting_.erase(it);
        } else {
          ++it;
        }
      }
      queue_.OwnerDied(owner, now_, &actions);
    } else {
      tick = true;
      std::set<std::uint64_t> idle;
      for (const auto& [number, lease] : queue_.leases()) {
        if (Below(4) == 0) idle.insert(number);
      }
      CheckTick(idle);
    }
    if (!tick) Absorb(actions);
    Check();
  }

  // Ends all there is; everybody must have been served then.
  void Drain() {
    while (!queue_.leases().empty()) {
      const std::uint64_t lease = AnyLease();
      LeaseActions actions;
      gone_.insert(queue_.Find(lease)->want.key);
      std::erase(resuming_, lease);
      queue_.Return(lease, now_, &actions);
      Absorb(actions);
      Check();
    }
    EXPECT_EQ(queue_.waiting(), 0U);
    EXPECT_EQ(queue_.free(), queue_.total());
  }

 private:
  std::uint64_t Below(std::uint64_t limit) { return random_() % limit; }

  std::uint64_t AnyLease() {
    if (queue_.leases().empty()) return 0;
    auto it = queue_.leases().begin();
    std::advance(it, Below(queue_.leases().size()));
    return it->first;
  }

  void Ask(LeaseActions* actions) {
    LeaseWant want;
    want.actor = Below(8) == 0;
    want.key = {want.actor ? kNoProcess : static_cast<ProcessId>(1 + Below(6)), ++requests_};
    want.priority = static_cast<std::int32_t>(Below(3)) - 1;
    want.queue = want.actor ? 0 : Below(2);
    if (Below(10) != 0) want.need.Set("CPU", static_cast<std::int64_t>(1 + Below(6)) * kUnit / 2);
    if (Below(3) == 0) {
      static const std::int64_t kAmounts[] = {2500, 3333, 5000, 10000, 20000, 15000, 50000};
      want.need.Set("GPU", kAmounts[Below(7)]);
    }
    if (Below(4) == 0) want.need.Set("disk", static_cast<std::int64_t>(1 + Below(2)) * kUnit);
    const std::int64_t gpus = want.need.Get("GPU");
    const Status status = queue_.Add(want, now_, actions);
    if (gpus > kUnit && gpus % kUnit != 0) {
      EXPECT_EQ(status.code(), Code::kInvalid);
    } else if (!queue_.total().Covers(want.need)) {
      EXPECT_EQ(status.code(), Code::kInfeasible);
    } else {
      EXPECT_TRUE(status.ok());
      waiting_[want.key] = want;
    }
  }

  void Cancel(LeaseActions* actions) {
    if (waiting_.empty()) return;
    auto it = waiting_.begin();
    std::advance(it, Below(waiting_.size()));
    gone_.insert(it->first);
    EXPECT_TRUE(queue_.Cancel(it->first, now_, actions));
    waiting_.erase(it);
  }

  void Absorb(const LeaseActions& actions) {
    for (const LeaseAction& action : actions) {
      if (const auto* grant = std::get_if<Grant>(&action)) {
        EXPECT_EQ(waiting_.erase(grant->key), 1U) << "granted only what waited, once";
        EXPECT_GT(grant->lease, last_lease_);
        last_lease_ = grant->lease;
      } else if (const auto* resume = std::get_if<Resume>(&action)) {
        const auto it = std::find(resuming_.begin(), resuming_.end(), resume->lease);
        ASSERT_NE(it, resuming_.end());
        resuming_.erase(it);
        EXPECT_FALSE(queue_.Find(resume->lease)->blocked);
      } else {
        ADD_FAILURE() << "only Tick revokes";
      }
    }
  }

  void CheckTick(const std::set<std::uint64_t>& idle) {
    std::int32_t highest = -100;
    for (const auto& [key, want] : waiting_) highest = std::max(highest, want.priority);
    std::int32_t woken = -100;
    for (const std::uint64_t lease : resuming_) woken = std::max(woken, queue_.Find(lease)->want.priority);
    std::set<std::uint64_t> before;
    for (const auto& [number, lease] : queue_.leases()) {
      if (lease.revoked) before.insert(number);
    }
    LeaseActions actions;
    queue_.Tick(now_, [&](std::uint64_t lease) { return idle.contains(lease); }, &actions);
    std::set<std::uint64_t> now_revoked = before;
    for (const LeaseAction& action : actions) {
      const std::uint64_t number = std::get<Revoke>(action).lease;
      const LeaseQueue::Lease& lease = *queue_.Find(number);
      EXPECT_TRUE(now_revoked.insert(number).second) << "revoked twice";
      EXPECT_TRUE(lease.revoked);
      EXPECT_FALSE(lease.want.actor);
      EXPECT_FALSE(lease.blocked);
      const bool matured = now_ - lease.granted_us >= LeaseQueue::kQuantumUs;
      const std::int32_t priority = lease.want.priority;
      EXPECT_TRUE(idle.contains(number) || priority <= woken || priority < highest || (priority == highest && matured));
    }
    EXPECT_TRUE(actions.empty() || !waiting_.empty() || !resuming_.empty());
    if (queue_.total().amounts().size() == 1) {  // a second tick has nothing to add: what was decided is counted on
      LeaseActions more;
      queue_.Tick(now_, [&](std::uint64_t lease) { return idle.contains(lease); }, &more);
      EXPECT_TRUE(more.empty());
      EXPECT_GT(queue_.NextTick(now_), now_);
    }
  }

  void Check() {
    // (1) sums, in all and per device
    Resources sum = queue_.free();
    std::map<std::uint32_t, std::int64_t> devices;
    Resources actors;
    for (const auto& [number, lease] : queue_.leases()) {
      sum.Add(lease.held);
      if (lease.want.actor) actors.Add(lease.held);
      EXPECT_TRUE(lease.want.need.Covers(lease.held));
      EXPECT_EQ(lease.held.Get("GPU"), lease.want.need.Get("GPU"));
      for (const std::uint32_t gpu : lease.gpus) {
        devices[gpu] += lease.held.Get("GPU") / static_cast<std::int64_t>(lease.gpus.size());
      }
      const std::set<std::uint32_t> distinct(lease.gpus.begin(), lease.gpus.end());
      EXPECT_EQ(distinct.size(), lease.gpus.size());
      EXPECT_EQ(lease.gpus.size(), static_cast<std::size_t>((lease.want.need.Get("GPU") + kUnit - 1) / kUnit));
      if (lease.blocked) {
        EXPECT_EQ(lease.held.Get("CPU") + lease.held.Get("disk"), 0);
      }
    }
    EXPECT_EQ(sum, queue_.total());
    Resources used = queue_.in_use();
    used.Add(queue_.free());
    EXPECT_EQ(used, queue_.total());
    for (const auto& [name, amount] : queue_.free().amounts()) EXPECT_GT(amount, 0) << name;
    for (const auto& [device, amount] : devices) {
      EXPECT_LE(amount, kUnit);
      EXPECT_LT(device * kUnit, queue_.total().Get("GPU"));
    }
    // (2) waiting, granted or gone
    EXPECT_EQ(queue_.waiting(), waiting_.size());
    for (const auto& [key, want] : waiting_) {
      EXPECT_TRUE(queue_.IsWaiting(key));
      EXPECT_FALSE(queue_.LeaseOf(key).has_value());
    }
    for (const auto& [number, lease] : queue_.leases()) {
      EXPECT_EQ(queue_.LeaseOf(lease.want.key), number);
      EXPECT_FALSE(queue_.IsWaiting(lease.want.key));
      EXPECT_FALSE(gone_.contains(lease.want.key));
    }
    EXPECT_EQ(queue_.resuming(), resuming_.size());
    // (4) whoever comes first does not fit
    if (!resuming_.empty()) {
      Resources back = queue_.Find(resuming_.front())->want.need;
      back.Set("GPU", 0);
      EXPECT_FALSE(queue_.free().Covers(back));
      Resources loose = queue_.total();
      loose.Subtract(actors);
      EXPECT_TRUE(loose.Covers(back)) << "should have resumed with what there is";
    } else if (!waiting_.empty()) {
      // The order of arrival changes when revoked leases end, so this looks at the whole front; there one may hold back
      // from another, but then at least one of them is short of something.
      std::pair<std::int32_t, int> best{1000, 0};
      for (const auto& [key, want] : waiting_) best = std::min(best, Rank(want));
      std::int64_t room = 0;  // on one device
      std::int64_t whole = 0;
      for (std::uint32_t i = 0; i < queue_.total().Get("GPU") / kUnit; ++i) {
        room = std::max(room, kUnit - devices[i]);
        whole += devices[i] == 0 ? 1 : 0;
      }
      bool all_fit = true;
      for (const auto& [key, want] : waiting_) {
        if (Rank(want) != best) continue;
        const std::int64_t gpus = want.need.Get("GPU");
        all_fit &= queue_.free().Covers(want.need) && (gpus < kUnit ? gpus <= room : gpus / kUnit <= whole);
      }
      EXPECT_FALSE(all_fit) << "in front, and there is room";
    }
  }

  std::pair<std::int32_t, int> Rank(const LeaseWant& want) const {
    int serving = 0;
    for (const auto& [number, lease] : queue_.leases()) {
      if (lease.want.actor || lease.blocked || want.actor) continue;
      serving += lease.want.key.owner == want.key.owner && lease.want.queue == want.queue ? 1 : 0;
    }
    return {-want.priority, serving};
  }

  std::mt19937_64 random_;
  LeaseQueue queue_;
  std::int64_t now_ = 0;
  std::uint64_t requests_ = 0;
  std::uint64_t last_lease_ = 0;
  std::map<LeaseKey, LeaseWant> waiting_;
  std::set<LeaseKey> gone_;
  std::vector<std::uint64_t> resuming_;
};

TEST(LeaseQueue, KeepsItsPromisesOverManyRandomEvents) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Chaos chaos(seed,
                seed % 4 == 0 ? Cpus(3) : Cpus(1 + static_cast<double>(seed % 6), static_cast<double>(seed % 4), 2));
    for (int i = 0; i < 1500 && !testing::Test::HasFailure(); ++i) chaos.Step();
    chaos.Drain();
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
}

// Owners with endless work, one of them with a big need, one that nests: all get on.
TEST(LeaseQueue, NobodyStarvesAmongOwnersWithEndlessWork) {
  LeaseQueue queue("n1", Cpus(4, 1));
  std::mt19937_64 random(7);
  const std::map<ProcessId, Resources> needs = {{1, Cpus(1)},    {2, Cpus(1)},        {3, Cpus(4)},
                                                {4, Cpus(1, 1)}, {5, Cpus(0.5, 0.5)}, {6, Cpus(2)}};
  std::map<ProcessId, int> served;
  std::vector<std::uint64_t> returning;
  std::uint64_t requests = 0;
  LeaseActions actions;
  const auto ask = [&](ProcessId owner) {
    ASSERT_TRUE(queue.Add({{owner, ++requests}, needs.at(owner)}, 0, &actions).ok());
  };
  std::int64_t now = 0;
  for (const auto& [owner, need] : needs) {
    for (int i = 0; i < 3; ++i) ask(owner);
  }
  for (int round = 0; round < 4000; ++round) {
    now += 1000;
    queue.Tick(now, [](std::uint64_t) { return false; }, &actions);
    // A worker obeys a little later; its owner asks again.
    std::shuffle(returning.begin(), returning.end(), random);
    for (int i = 0; i < 2 && !returning.empty(); ++i) {
      const std::uint64_t lease = returning.back();
      returning.pop_back();
      const ProcessId owner = queue.Find(lease)->want.key.owner;
      queue.Return(lease, now, &actions);
      ASSERT_TRUE(queue.Add({{owner, ++requests}, needs.at(owner)}, now, &actions).ok());
    }
    for (const LeaseAction& action : actions) {
      if (const auto* grant = std::get_if<Grant>(&action)) ++served[grant->key.owner];
      if (const auto* revoke = std::get_if<Revoke>(&action)) returning.push_back(revoke->lease);
    }
    actions.clear();
  }
  for (const auto& [owner, need] : needs) EXPECT_GT(served[owner], 10) << "owner " << owner;
}

}  // namespace
}  // namespace manta::rules
