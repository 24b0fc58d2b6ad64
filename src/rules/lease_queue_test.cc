#include "rules/lease_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <utility>

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

// ---- everything at random, checked against what the header promises ----

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
      const bool matured = now_ - lease.granted_us >= kQuantum;
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
