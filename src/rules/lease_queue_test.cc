#include "rules/lease_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "types/strategy.h"

namespace manta::rules {
namespace {

constexpr std::int64_t kQuantum = LeaseQueue::kQuantumUs;

Resources Cpus(double cpus, double gpus = 0, double disks = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  out.Set("disk", static_cast<std::int64_t>(disks * kUnit));
  return out;
}

// Drives a queue and keeps what it said.
struct Desk {
  explicit Desk(const Resources& total) : queue("n1", total) {}

  // By default every owner has one queue of its own.
  void Ask(ProcessId owner, std::uint64_t request, const Resources& need, int priority = 0, bool actor = false,
           std::uint64_t on = 0) {
    const Status status = queue.Add({{owner, request}, need, priority, actor, on}, now, &actions);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void Actor(std::uint64_t request, const Resources& need) { Ask(kNoProcess, request, need, 0, true); }
  std::uint64_t Lease(ProcessId owner, std::uint64_t request) const {
    return queue.LeaseOf({owner, request}).value_or(0);
  }
  bool Has(ProcessId owner, std::uint64_t request) const { return Lease(owner, request) != 0; }
  std::vector<std::uint32_t> Gpus(ProcessId owner, std::uint64_t request) const {
    return queue.Find(Lease(owner, request))->gpus;
  }
  void Return(ProcessId owner, std::uint64_t request) {
    ASSERT_TRUE(queue.Return(Lease(owner, request), now, &actions));
  }
  void Block(ProcessId owner, std::uint64_t request) { ASSERT_TRUE(queue.Block(Lease(owner, request), now, &actions)); }
  // True if it may go on at once.
  bool Unblock(ProcessId owner, std::uint64_t request, bool late = false) {
    actions.clear();
    EXPECT_TRUE(queue.Unblock(Lease(owner, request), late, now, &actions));
    return Resumed(owner, request);
  }
  bool Resumed(ProcessId owner, std::uint64_t request) const {
    return std::any_of(actions.begin(), actions.end(), [&](const LeaseAction& action) {
      const auto* resume = std::get_if<Resume>(&action);
      return resume != nullptr && resume->lease == Lease(owner, request);
    });
  }
  // The owners that lose a lease in this tick, sorted. `idle` names owners.
  std::vector<ProcessId> Tick(const std::set<ProcessId>& idle = {}) {
    LeaseActions out;
    queue.Tick(now, [&](std::uint64_t lease) { return idle.contains(queue.Find(lease)->want.key.owner); }, &out);
    std::vector<ProcessId> losers;
    for (const LeaseAction& action : out) losers.push_back(queue.Find(std::get<Revoke>(action).lease)->want.key.owner);
    std::sort(losers.begin(), losers.end());
    return losers;
  }

  LeaseQueue queue;
  LeaseActions actions;
  std::int64_t now = 1'000'000;
};

using Owners = std::vector<ProcessId>;
using Devices = std::vector<std::uint32_t>;

// ---- what is refused ----

TEST(LeaseQueue, ARequestForMoreThanTheNodeHasIsRefusedWithTheNumbers) {
  Desk desk(Cpus(2));
  const Status status = desk.queue.Add({{1, 1}, Cpus(4)}, 0, &desk.actions);
  EXPECT_EQ(status.code(), Code::kInfeasible);
  EXPECT_EQ(status.message(),
            "task asks for CPU 4, node n1 has CPU 2 in all; ask for less or start Manta with more (Config::cpus, "
            "Config::resources)");
  EXPECT_EQ(desk.queue.Check(Cpus(1, 1), "actor Counter").code(), Code::kInfeasible);
  EXPECT_EQ(desk.queue.waiting(), 0U);
}

TEST(LeaseQueue, ARequestThatMakesNoSenseIsInvalid) {
  Desk desk(Cpus(2, 4));
  EXPECT_EQ(desk.queue.Check(Cpus(1, 1.5)).code(), Code::kInvalid);
  EXPECT_EQ(desk.queue.Check(Cpus(-1)).code(), Code::kInvalid);
  EXPECT_TRUE(desk.queue.Check(Cpus(1, 2)).ok());
  EXPECT_TRUE(desk.queue.Check(Cpus(1, 0.3)).ok());
  desk.Ask(1, 1, Cpus(1));
  EXPECT_EQ(desk.queue.Add({{1, 1}, Cpus(1)}, 0, &desk.actions).code(), Code::kInvalid) << "granted already";
}

TEST(LeaseQueue, EventsOfUnknownLeasesAreIgnored) {
  Desk desk(Cpus(1));
  EXPECT_FALSE(desk.queue.Return(7, 0, &desk.actions));
  EXPECT_FALSE(desk.queue.Lost(7, 0, &desk.actions));
  EXPECT_FALSE(desk.queue.Block(7, 0, &desk.actions));
  EXPECT_FALSE(desk.queue.Unblock(7, false, 0, &desk.actions));
  EXPECT_FALSE(desk.queue.Cancel({1, 1}, 0, &desk.actions));
  EXPECT_TRUE(desk.actions.empty());
}

// ---- order ----

TEST(LeaseQueue, AWorkerThatDiesGivesItsCpusToTheNextTaskInLine) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1));
  desk.Ask(3, 1, Cpus(1));
  EXPECT_EQ(desk.queue.waiting(), 2U);
  desk.queue.Lost(desk.Lease(1, 1), desk.now, &desk.actions);
  EXPECT_TRUE(desk.Has(2, 1));
  EXPECT_FALSE(desk.Has(3, 1));
}

TEST(LeaseQueue, AStreamOfSmallRequestsDoesNotStarveABigOne) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1));
  desk.Ask(3, 1, Cpus(2));
  desk.Ask(4, 1, Cpus(1));
  desk.Return(1, 1);
  EXPECT_FALSE(desk.Has(4, 1)) << "one CPU is free, and held back";
  desk.Return(2, 1);
  EXPECT_TRUE(desk.Has(3, 1));
}

TEST(LeaseQueue, HigherPriorityGoesFirst) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1), 0);
  desk.Ask(3, 1, Cpus(1), 5);
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Has(3, 1));
}

TEST(LeaseQueue, AnOwnerWithoutAWorkerGoesBeforeOneThatWantsAnother) {
  Desk desk(Cpus(2));
  for (std::uint64_t i = 1; i <= 6; ++i) desk.Ask(1, i, Cpus(1));
  desk.Ask(2, 1, Cpus(1));
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Has(2, 1)) << "though four requests of owner 1 came before";
}

TEST(LeaseQueue, AGpuRequestThatWaitsDoesNotIdleTheCpus) {
  Desk desk(Cpus(1, 1));
  desk.Ask(1, 1, Cpus(0, 1));
  desk.Ask(2, 1, Cpus(1, 1));
  desk.Ask(3, 1, Cpus(1));
  EXPECT_TRUE(desk.Has(3, 1));
  EXPECT_FALSE(desk.Has(2, 1));
}

TEST(LeaseQueue, AGpuThatIsFreeIsKeptForTheRequestThatStillLacksACpu) {
  Desk desk(Cpus(1, 1));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1, 1));
  desk.Ask(3, 1, Cpus(0, 1));
  EXPECT_FALSE(desk.Has(3, 1));
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Has(2, 1));
}

TEST(LeaseQueue, NobodyWaitsBehindARequestThatWaitsForAnActorToEnd) {
  Desk desk(Cpus(2));
  desk.Actor(1, Cpus(1));
  desk.Ask(1, 1, Cpus(2));
  desk.Ask(2, 1, Cpus(1));
  EXPECT_TRUE(desk.Has(2, 1)) << "the actor may end only after this one ran";
  desk.Return(kNoProcess, 1);
  desk.Ask(3, 1, Cpus(1));
  EXPECT_FALSE(desk.Has(3, 1)) << "now the big one can have its CPUs, and holds them back";
}

TEST(LeaseQueue, AChildGetsItsGpuThoughABiggerRequestWaitsForItsParents) {
  Desk desk(Cpus(2, 2));
  desk.Ask(1, 1, Cpus(1, 1));
  desk.Ask(2, 1, Cpus(0, 2));
  desk.Block(1, 1);  // in Get of the child
  desk.Ask(3, 1, Cpus(1, 1));
  EXPECT_TRUE(desk.Has(3, 1));
}

TEST(LeaseQueue, WhatNeedsNothingNeverWaits) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1));
  desk.Actor(1, Cpus(0));
  EXPECT_TRUE(desk.Has(kNoProcess, 1));
}

TEST(LeaseQueue, ACancelledRequestLetsThoseBehindItPass) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(2));
  desk.Ask(3, 1, Cpus(1));
  EXPECT_TRUE(desk.queue.Cancel({2, 1}, desk.now, &desk.actions));
  EXPECT_TRUE(desk.Has(3, 1));
  EXPECT_FALSE(desk.queue.Cancel({3, 1}, desk.now, &desk.actions)) << "granted meanwhile";
  EXPECT_TRUE(desk.Has(3, 1));
}

TEST(LeaseQueue, TheRequestsOfADeadOwnerGoItsLeasesStay) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(1, 2, Cpus(2));
  desk.Ask(2, 1, Cpus(1));
  EXPECT_FALSE(desk.Has(2, 1) && desk.queue.waiting() == 0);
  desk.queue.OwnerDied(1, desk.now, &desk.actions);
  EXPECT_TRUE(desk.Has(1, 1));
  EXPECT_FALSE(desk.queue.IsWaiting({1, 2}));
  EXPECT_TRUE(desk.Has(2, 1));
}

// ---- GPUs ----

TEST(LeaseQueue, WholeGpusAreDistinctDevices) {
  Desk desk(Cpus(4, 4));
  desk.Ask(1, 1, Cpus(1, 1));
  desk.Ask(2, 1, Cpus(1, 2));
  EXPECT_EQ(desk.Gpus(1, 1), Devices{0});
  EXPECT_EQ(desk.Gpus(2, 1), (Devices{1, 2}));
  desk.Return(1, 1);
  desk.Ask(3, 1, Cpus(1, 2));
  EXPECT_EQ(desk.Gpus(3, 1), (Devices{0, 3}));
}

TEST(LeaseQueue, FractionsShareADeviceAndLeaveWholeOnesWhole) {
  Desk desk(Cpus(8, 2));
  desk.Ask(1, 1, Cpus(1, 0.5));
  desk.Ask(2, 1, Cpus(1, 0.3));
  desk.Ask(3, 1, Cpus(1, 1));
  EXPECT_EQ(desk.Gpus(1, 1), Devices{0});
  EXPECT_EQ(desk.Gpus(2, 1), Devices{0});
  EXPECT_EQ(desk.Gpus(3, 1), Devices{1});
  desk.Ask(4, 1, Cpus(1, 0.3));
  EXPECT_FALSE(desk.Has(4, 1)) << "0.2 are left";
  desk.Return(2, 1);
  EXPECT_EQ(desk.Gpus(4, 1), Devices{0});
}

TEST(LeaseQueue, TwoHalvesOfTwoDevicesAreNotAWholeOne) {
  Desk desk(Cpus(8, 2));
  desk.Ask(1, 1, Cpus(1, 0.6));
  desk.Ask(2, 1, Cpus(1, 0.6));
  desk.Ask(3, 1, Cpus(1, 0.6));
  EXPECT_FALSE(desk.Has(3, 1)) << "0.8 are free, but not on one device";
  EXPECT_EQ(desk.queue.free().Get("GPU"), 8000);
}

// ---- blocking ----

TEST(LeaseQueue, ABlockedTaskLendsItsCpusAndKeepsItsGpu) {
  Desk desk(Cpus(1, 1));
  desk.Ask(1, 1, Cpus(1, 1));
  desk.Ask(2, 1, Cpus(1));
  desk.Ask(3, 1, Cpus(0, 1));
  desk.Block(1, 1);
  EXPECT_TRUE(desk.Has(2, 1));
  EXPECT_FALSE(desk.Has(3, 1));
}

TEST(LeaseQueue, AWokenTaskGoesBeforeNewRequestsAndInOrder) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Block(1, 1);
  desk.Ask(2, 1, Cpus(1));
  desk.Block(2, 1);
  desk.Ask(3, 1, Cpus(1));
  desk.Ask(4, 1, Cpus(1), 9);
  EXPECT_FALSE(desk.Unblock(1, 1));
  EXPECT_FALSE(desk.Unblock(2, 1));
  EXPECT_EQ(desk.queue.resuming(), 2U);
  desk.actions.clear();
  desk.Return(3, 1);
  EXPECT_TRUE(desk.Resumed(1, 1));
  EXPECT_FALSE(desk.Resumed(2, 1));
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Resumed(2, 1));
  EXPECT_FALSE(desk.Has(4, 1));
}

TEST(LeaseQueue, AnUnblockIsAlwaysAnswered) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  EXPECT_TRUE(desk.Unblock(1, 1)) << "though it never blocked";
  desk.Block(1, 1);
  desk.Block(1, 1);
  EXPECT_TRUE(desk.Unblock(1, 1));
  EXPECT_EQ(desk.queue.free(), Resources());
}

TEST(LeaseQueue, ATaskWhoseCpuWentToAnActorResumesRatherThanHang) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Block(1, 1);  // waits for the actor it made
  desk.Actor(1, Cpus(1));
  ASSERT_TRUE(desk.Has(kNoProcess, 1));
  EXPECT_TRUE(desk.Unblock(1, 1));
  EXPECT_EQ(desk.queue.Find(desk.Lease(1, 1))->held, Resources());
  desk.Return(1, 1);
  EXPECT_EQ(desk.queue.free(), Resources()) << "the CPU is the actor's";
  desk.Return(kNoProcess, 1);
  EXPECT_EQ(desk.queue.free(), Cpus(1));
}

TEST(LeaseQueue, ATaskWhoseTimeIsUpResumesAtOnceWithWhatIsFree) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(2));
  desk.Block(1, 1);
  desk.Ask(2, 1, Cpus(1));
  EXPECT_FALSE(desk.Unblock(1, 1));
  EXPECT_TRUE(desk.Unblock(1, 1, /*late=*/true)) << "though it waits already";
  EXPECT_EQ(desk.queue.Find(desk.Lease(1, 1))->held, Cpus(1));
  EXPECT_EQ(desk.queue.free(), Resources());
  // That was for once.
  desk.Block(1, 1);
  EXPECT_FALSE(desk.Unblock(1, 1));
  desk.actions.clear();
  desk.Return(2, 1);
  EXPECT_TRUE(desk.Resumed(1, 1));
  EXPECT_EQ(desk.queue.Find(desk.Lease(1, 1))->held, Cpus(2));
}

TEST(LeaseQueue, ATaskThatDiesWhileItWaitsToResumeIsForgotten) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Block(1, 1);
  desk.Ask(2, 1, Cpus(1));
  EXPECT_FALSE(desk.Unblock(1, 1));
  desk.queue.Lost(desk.Lease(1, 1), desk.now, &desk.actions);
  EXPECT_EQ(desk.queue.resuming(), 0U);
  desk.Return(2, 1);
  EXPECT_EQ(desk.queue.free(), Cpus(1));
}

// ---- revocation ----

TEST(LeaseQueue, NothingIsRevokedWhileNobodyWaits) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.now += 100 * kQuantum;
  EXPECT_EQ(desk.Tick({1}), Owners{});
  EXPECT_EQ(desk.queue.NextTick(desk.now), LeaseQueue::kNever);
}

TEST(LeaseQueue, AnIdleLeaseIsRevokedAtOnceAndOnlyOnce) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1), 5);
  desk.Ask(2, 1, Cpus(1));
  desk.Ask(3, 1, Cpus(1));
  EXPECT_EQ(desk.Tick({1}), Owners{1}) << "whatever its priority";
  EXPECT_EQ(desk.Tick({1, 2}), Owners{}) << "one is on its way, and enough";
  EXPECT_EQ(desk.queue.NextTick(desk.now), desk.now + LeaseQueue::kIdlePollUs) << "it may not come soon";
  EXPECT_FALSE(desk.Has(3, 1));
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Has(3, 1));
}

TEST(LeaseQueue, AnIdleLeaseIsTakenInsteadOfWaitingForABusyOneThatWasRevoked) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(0.5));
  desk.now += 1;
  desk.Ask(2, 1, Cpus(0.5));
  desk.Ask(3, 1, Cpus(0.5));
  desk.now += kQuantum;
  desk.Ask(4, 1, Cpus(1));
  EXPECT_EQ(desk.Tick(), Owners{1}) << "all are busy, and it is the longest held";
  EXPECT_EQ(desk.Tick(), Owners{}) << "no other busy one has to go";
  EXPECT_EQ(desk.queue.NextTick(desk.now), desk.now + LeaseQueue::kIdlePollUs);
  EXPECT_EQ(desk.Tick({3}), Owners{3});
  EXPECT_EQ(desk.Tick({2, 3}), Owners{}) << "that was enough";
  desk.Return(3, 1);
  EXPECT_TRUE(desk.Has(4, 1));
}

TEST(LeaseQueue, ABusyLeaseOfEqualPriorityIsRevokedAfterItsQuantum) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.now += 5;
  desk.Ask(2, 1, Cpus(1));
  EXPECT_EQ(desk.Tick(), Owners{});
  EXPECT_EQ(desk.queue.NextTick(desk.now), desk.now + LeaseQueue::kIdlePollUs) << "it may run idle";
  desk.now += kQuantum - 6;
  EXPECT_EQ(desk.Tick(), Owners{});
  EXPECT_EQ(desk.queue.NextTick(desk.now), desk.now + 1);
  desk.now += 1;
  EXPECT_EQ(desk.queue.NextTick(desk.now), desk.now);
  EXPECT_EQ(desk.Tick(), Owners{1});
}

TEST(LeaseQueue, ALowerPriorityIsRevokedAtOnceAHigherNever) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1), -1);
  desk.Ask(2, 1, Cpus(1), 1);
  desk.Ask(3, 1, Cpus(1), 0);
  EXPECT_EQ(desk.Tick(), Owners{1});
  desk.Ask(4, 1, Cpus(1), 0);
  desk.now += 100 * kQuantum;
  EXPECT_EQ(desk.Tick(), Owners{});
}

TEST(LeaseQueue, ActorsAreNeverRevoked) {
  Desk desk(Cpus(1));
  desk.Actor(1, Cpus(1));
  desk.Ask(1, 1, Cpus(1), 9);
  desk.now += 100 * kQuantum;
  EXPECT_EQ(desk.Tick({kNoProcess}), Owners{});
  EXPECT_EQ(desk.queue.NextTick(desk.now), LeaseQueue::kNever);
}

TEST(LeaseQueue, AnOwnerLosesNoLeaseToItsOwnQueue) {
  Desk desk(Cpus(2));
  for (std::uint64_t i = 1; i <= 8; ++i) desk.Ask(1, i, Cpus(1));
  desk.now += 100 * kQuantum;
  EXPECT_EQ(desk.Tick(), Owners{});
  EXPECT_EQ(desk.queue.NextTick(desk.now), LeaseQueue::kNever) << "an idle loop stays idle";
  desk.Ask(1, 9, Cpus(1), 0, false, /*on=*/77);
  EXPECT_EQ(desk.Tick(), Owners{1}) << "another queue of the same owner is another matter";
}

TEST(LeaseQueue, IdleOnesGoBeforeBusyOnesThenLowerPriorityThenTheLongestHeld) {
  Desk desk(Cpus(4));
  desk.Ask(1, 1, Cpus(1), 0);
  desk.now += 1;
  desk.Ask(2, 1, Cpus(1), 0);
  desk.Ask(3, 1, Cpus(1), -1);
  desk.Ask(4, 1, Cpus(1), 2);
  desk.now += kQuantum;
  desk.Ask(5, 1, Cpus(1));
  EXPECT_EQ(desk.Tick({4}), Owners{4});
  desk.Ask(6, 1, Cpus(1));
  EXPECT_EQ(desk.Tick(), Owners{3});
  desk.Ask(7, 1, Cpus(1));
  EXPECT_EQ(desk.Tick(), Owners{1});
}

TEST(LeaseQueue, NothingIsRevokedThatWouldNotBeEnough) {
  Desk desk(Cpus(2));
  desk.Ask(1, 1, Cpus(1), 0);
  desk.Ask(2, 1, Cpus(1), 5);
  desk.Ask(3, 1, Cpus(2), 1);
  EXPECT_EQ(desk.Tick(), Owners{}) << "owner 2 stays, so stopping owner 1 would help nobody";
  EXPECT_EQ(desk.Tick({2}), (Owners{1, 2}));
}

TEST(LeaseQueue, NoMoreIsRevokedThanNeeded) {
  Desk desk(Cpus(4));
  desk.Ask(1, 1, Cpus(1));
  desk.now += 1;
  desk.Ask(2, 1, Cpus(3));
  desk.Ask(3, 1, Cpus(3));
  EXPECT_EQ(desk.Tick({1, 2}), Owners{2}) << "owner 1 held longer, but owner 2 alone is enough";
}

TEST(LeaseQueue, OnlyLeasesThatHoldWhatIsLackingAreRevoked) {
  Desk desk(Cpus(4, 1));
  desk.Ask(1, 1, Cpus(1));
  desk.Ask(2, 1, Cpus(1, 1));
  desk.Ask(3, 1, Cpus(1, 0.5));
  EXPECT_EQ(desk.Tick({1, 2}), Owners{2});
}

TEST(LeaseQueue, EqualOwnersShareAndDoNotStealFromThoseWhoHaveNoMore) {
  Desk desk(Cpus(4));
  for (std::uint64_t i = 1; i <= 4; ++i) desk.Ask(1, i, Cpus(1));
  for (std::uint64_t i = 1; i <= 4; ++i) desk.Ask(2, i, Cpus(1));
  desk.now += kQuantum;
  EXPECT_EQ(desk.Tick(), (Owners{1, 1})) << "4 : 0 becomes 2 : 2";
  EXPECT_EQ(desk.Tick(), Owners{});
  desk.Return(1, 1);
  desk.Return(1, 2);
  EXPECT_TRUE(desk.Has(2, 1) && desk.Has(2, 2));
  desk.Ask(1, 5, Cpus(1));
  desk.now += 100 * kQuantum;
  EXPECT_EQ(desk.Tick(), Owners{}) << "2 : 2 stays";
}

TEST(LeaseQueue, WhoLosesALeaseToAnotherDoesNotGetItBackByHisOlderRequests) {
  Desk desk(Cpus(1));
  for (std::uint64_t i = 1; i <= 4; ++i) desk.Ask(1, i, Cpus(1));
  desk.Ask(2, 1, Cpus(1));
  desk.now += kQuantum;
  EXPECT_EQ(desk.Tick(), Owners{1});
  desk.Return(1, 1);
  EXPECT_TRUE(desk.Has(2, 1));
  desk.now += kQuantum;
  EXPECT_EQ(desk.Tick(), Owners{2}) << "they take turns";
  desk.Ask(3, 1, Cpus(1));
  desk.Return(2, 1);
  EXPECT_TRUE(desk.Has(1, 2));
}

TEST(LeaseQueue, AWokenTaskTakesABusyLeaseOfItsPriorityAtOnce) {
  Desk desk(Cpus(1));
  desk.Ask(1, 1, Cpus(1));
  desk.Block(1, 1);
  desk.Ask(1, 2, Cpus(1));
  EXPECT_FALSE(desk.Unblock(1, 1));
  EXPECT_EQ(desk.Tick(), Owners{1}) << "even from its own queue";
  desk.actions.clear();
  desk.Return(1, 2);
  EXPECT_TRUE(desk.Resumed(1, 1));
}

TEST(LeaseQueue, ThousandsOfWaitingRequestsStayCheap) {
  Desk desk(Cpus(1, 1));
  for (std::uint64_t i = 1; i <= 5000; ++i) desk.Ask(1 + i % 10, i, Cpus(1));
  for (int i = 0; i < 5000; ++i) {
    ASSERT_EQ(desk.queue.leases().size(), 1U);
    desk.queue.Return(desk.queue.leases().begin()->first, desk.now, &desk.actions);
  }
  EXPECT_EQ(desk.queue.free(), Cpus(1, 1));
}

// ---- bundles ----

constexpr Id kGroup{1, 2};

TEST(LeaseQueue, WhatIsSetAsideForABundleGoesToTheTasksOfItsGroupOnly) {
  Desk desk(Cpus(3));
  desk.Actor(1, Cpus(2));  // the bundle
  desk.queue.AddPool(BundlePool(Cpus(2), kGroup, 0), {});
  desk.Ask(5, 1, Cpus(1));
  desk.Ask(5, 2, Cpus(1));
  EXPECT_TRUE(desk.Has(5, 1));
  EXPECT_FALSE(desk.Has(5, 2));
  desk.Ask(6, 1, InBundle(Cpus(1), kGroup, 0));
  desk.Ask(6, 2, InBundle(Cpus(1), kGroup, -1));
  desk.Ask(6, 3, InBundle(Cpus(1), kGroup, 0));
  EXPECT_TRUE(desk.Has(6, 1));
  EXPECT_TRUE(desk.Has(6, 2));
  EXPECT_FALSE(desk.Has(6, 3));
  EXPECT_EQ(desk.queue.total(), Cpus(3));
  EXPECT_EQ(desk.queue.in_use(), Cpus(3));
  desk.Return(6, 2);
  EXPECT_TRUE(desk.Has(6, 3));
}

TEST(LeaseQueue, ABundleIsGivenBackWhenNobodyIsInItEvenATaskOfNoResources) {
  Desk desk(Cpus(2));
  desk.Actor(1, Cpus(2));
  const Resources pool = BundlePool(Cpus(2), kGroup, 0);
  desk.queue.AddPool(pool, {});
  desk.Ask(6, 1, InBundle(Cpus(0), kGroup, 0));
  ASSERT_TRUE(desk.Has(6, 1));
  EXPECT_FALSE(desk.queue.RemovePool(pool, {}));
  desk.Return(6, 1);
  EXPECT_TRUE(desk.queue.RemovePool(pool, {}));
  EXPECT_EQ(desk.queue.Check(InBundle(Cpus(1), kGroup, 0)).code(), Code::kInfeasible);
  desk.Return(kNoProcess, 1);
  desk.Ask(5, 1, Cpus(2));
  EXPECT_TRUE(desk.Has(5, 1));
}

TEST(LeaseQueue, GpusOfABundleAreItsDevices) {
  Desk desk(Cpus(4, 3));
  desk.Ask(5, 1, Cpus(0, 1));
  desk.Actor(1, Cpus(0, 2));
  const Devices devices = desk.Gpus(kNoProcess, 1);
  ASSERT_EQ(devices, (Devices{1, 2}));
  desk.queue.AddPool(BundlePool(Cpus(0, 2), kGroup, 0), devices);
  desk.Ask(6, 1, InBundle(Cpus(0, 1), kGroup, -1));
  desk.Ask(6, 2, InBundle(Cpus(0, 1), kGroup, 0));
  desk.Ask(6, 3, InBundle(Cpus(0, 0.5), kGroup, 0));
  EXPECT_EQ(desk.Gpus(6, 1), (Devices{1}));
  EXPECT_EQ(desk.Gpus(6, 2), (Devices{2}));
  EXPECT_FALSE(desk.Has(6, 3));
  desk.Return(6, 1);
  EXPECT_EQ(desk.Gpus(6, 3), (Devices{1}));
  desk.Return(6, 2);
  desk.Return(6, 3);
  EXPECT_TRUE(desk.queue.RemovePool(BundlePool(Cpus(0, 2), kGroup, 0), devices));
  desk.Return(kNoProcess, 1);
  desk.Ask(5, 2, Cpus(0, 2));
  EXPECT_EQ(desk.Gpus(5, 2), (Devices{1, 2}));
}

TEST(LeaseQueue, ABundleTakesTheCpusOfIdleTasks) {
  Desk desk(Cpus(2));
  desk.Ask(5, 1, Cpus(1));
  desk.Ask(5, 2, Cpus(1));
  desk.Actor(1, Cpus(2));
  EXPECT_FALSE(desk.Has(kNoProcess, 1));
  EXPECT_EQ(desk.queue.loose(), Cpus(2));
  EXPECT_EQ(desk.Tick({5}), (Owners{5, 5}));
  desk.Return(5, 1);
  desk.Return(5, 2);
  EXPECT_TRUE(desk.Has(kNoProcess, 1));
  EXPECT_EQ(desk.queue.loose(), Cpus(0));
}

TEST(LeaseQueue, ATaskThatSleepsInABundleLendsItsCpusToTheGroup) {
  Desk desk(Cpus(1));
  desk.Actor(1, Cpus(1));
  desk.queue.AddPool(BundlePool(Cpus(1), kGroup, 0), {});
  desk.Ask(6, 1, InBundle(Cpus(1), kGroup, 0));
  desk.Ask(6, 2, InBundle(Cpus(1), kGroup, -1), 0, false, 7);
  EXPECT_FALSE(desk.Has(6, 2));
  desk.Block(6, 1);
  EXPECT_TRUE(desk.Has(6, 2));
  EXPECT_FALSE(desk.Unblock(6, 1));
  desk.actions.clear();
  desk.Return(6, 2);
  EXPECT_TRUE(desk.Resumed(6, 1));
}

}  // namespace
}  // namespace manta::rules
