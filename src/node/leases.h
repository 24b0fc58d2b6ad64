// Leases carries out what rules::LeaseQueue decides: finds a worker for a granted request, tells owner
// and worker, rings a worker that is to return its lease, and brings the time to the queue.
//
// An actor's need goes through the same queue; `actor_granted` says when it has its resources, and
// from then on the actor is Actors' business.
//
// An owner on another node stands in the queue under a process number of this node that is nobody else's. What becomes
// of its requests is told to FarEvents (node/far_leases.h); its lease is granted when the worker says where it waits.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "node/peers.h"
#include "node/worker_pool.h"
#include "rules/lease_queue.h"
#include "shm/node_area.h"
#include "types/strategy.h"

namespace manta::node {

class Leases {
 public:
  using OnActorGranted =
      std::function<void(const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus)>;
  // Its bundle is taken away.
  using OnActorEvicted = std::function<void(const Id& actor, const Failure& why)>;
  using OnReserved = std::function<void(std::uint64_t lease, const std::vector<std::uint32_t>& gpus)>;

  struct FarEvents {
    std::function<void(const rules::LeaseKey& key, const wire::LeaseGranted& grant)> granted;
    std::function<void(const rules::LeaseKey& key, const Failure& why)> refused;
    std::function<void(const rules::LeaseKey& key)> ended;
    std::function<void(const rules::LeaseKey& key, const wire::LeaseLost& lost)> lost;
  };

  Leases(base::Loop& loop, Peers& peers, WorkerPool& pool, shm::NodeArea& area, const std::string& node,
         const Resources& total);
  ~Leases() {
    *alive_ = false;
    loop_.Cancel(timer_);
    loop_.Cancel(remind_timer_);
  }
  Leases(const Leases&) = delete;
  Leases& operator=(const Leases&) = delete;

  void OnActor(OnActorGranted granted, OnActorEvicted evicted) {
    actor_granted_ = std::move(granted);
    actor_evicted_ = std::move(evicted);
  }

  // Messages. A bad one ends the peer's connection.
  void Request(Peer& peer, const wire::LeaseRequest& message);
  void Cancel(Peer& peer, const wire::LeaseCancel& message);
  void Return(Peer& peer, const wire::LeaseReturn& message);
  void Blocked(Peer& peer, const wire::Blocked& message);
  void Unblock(Peer& peer, std::uint64_t call, const wire::Unblock& message);
  void FarReady(Peer& peer, const wire::FarReady& message);

  // For owners on other nodes: `stand_in` is their number here, `owner` their own.
  void OnFar(FarEvents events) { far_ = std::move(events); }
  void AddFarOwner(ProcessId stand_in, ProcessId owner) { far_owners_[stand_in] = owner; }
  void RemoveFarOwner(ProcessId stand_in) { far_owners_.erase(stand_in); }
  // `want.need` as the task says it, whatever bundle it is in.
  Status RequestFar(rules::LeaseWant want, const Id& job, const Strategy& strategy);
  void CancelFar(const rules::LeaseKey& key);
  // Its worker is killed, so that nothing more happens on the owner's behalf.
  void BreakFar(const rules::LeaseKey& key, const Failure& why);
  void KillServing(ProcessId stand_in, const Failure& why);

  // Takes a request that waits out of the queue, to be served elsewhere. False: it does not wait (any more).
  bool TakeOut(const rules::LeaseKey& key);
  // Everybody is to return, after the current task; actors stay.
  void RevokeAll();
  // What a request for this queue could have at once, idle leases of other queues included.
  [[nodiscard]] Resources FreeFor(ProcessId owner, std::uint64_t queue) const;

  // ---- quotas (node/quotas.h); amounts by plain names ----

  // From now on what runs for the job takes of its quota, too; `here` of it is this node's share.
  void Limit(const Id& job, const Resources& quota, const Resources& here);
  void Unlimit(const Id& job, const Resources& quota);
  void AddShare(const Id& job, const Resources& more);
  bool RemoveShare(const Id& job, const Resources& less);  // false: it is in use
  void Withdraw(std::uint64_t lease);                      // of a reservation of a share: it is gone with it
  [[nodiscard]] Resources FreeShare(const Id& job) const { return QuotaOf(queue_.free(), job); }
  // What the first that waits lacks of the quota (rules::LeaseQueue::LacksQuota).
  [[nodiscard]] Resources LacksQuota(const Id& job, bool patient) const;
  // Has the job nothing left here of its quota for that?
  [[nodiscard]] bool QuotaUsedUp(const Id& job, const Resources& need) const;
  // Counts what has happened.
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  // For actors.
  [[nodiscard]] Status Check(const Resources& need, const std::string& who) const { return queue_.Check(need, who); }
  Status AddActor(const Id& actor, const Id& job, const Resources& need, const Strategy& strategy);
  void CancelActor(const Id& actor);  // while it waits
  [[nodiscard]] bool ActorWaits(const Id& actor) const { return actor_keys_.contains(actor); }
  void EndActor(std::uint64_t lease);

  // For bundles of placement groups (node/groups.h), which hold resources as actors do.
  // The number of the request, which `granted` answers some time.
  Result<std::uint64_t> Reserve(const Resources& need, OnReserved granted, const Id& job = {});
  void CancelReservation(std::uint64_t request);  // while it waits
  void EndReservation(std::uint64_t lease) { End(lease); }
  void AddBundle(const Resources& pool, const std::vector<std::uint32_t>& gpus) { queue_.AddPool(pool, gpus); }
  // Refuses who waits for the bundle (-1: for any of the group) and kills who runs in it.
  void EmptyBundle(const Id& group, std::int32_t bundle, const Failure& why);
  // Does anybody have or want something of this bundle (-1: as one of any)?
  [[nodiscard]] bool InBundleNow(const Id& group, std::int32_t bundle) const;
  bool RemoveBundle(const Resources& pool, const std::vector<std::uint32_t>& gpus) {
    return queue_.RemovePool(pool, gpus);
  }

  // What it asked for is forgotten; who serves it is asked to return.
  void OwnerDied(ProcessId owner);
  // `current`: the call that it was in (Doorbell::current).
  void WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current);

  // At the end of each round of the loop: decides revocations, and sets the clock for the next look.
  void EndRound();

  // Whom the worker serves; kNoProcess: nobody, or it is an actor.
  [[nodiscard]] ProcessId OwnerOf(const Worker& worker) const;
  // By workers that run something now, and by actors.
  [[nodiscard]] Resources InUse() const;
  [[nodiscard]] const rules::LeaseQueue& queue() const { return queue_; }

 private:
  struct Ask {
    Id job;
    std::uint64_t queue = 0;
    std::uint64_t lane = 0;
    Id actor;
    Resources need;
    Strategy strategy;
    OnReserved reserved;  // of a bundle
  };
  struct Given {
    rules::LeaseKey key;
    Ask ask;
    bool with_gpus = false;
    std::vector<std::uint32_t> gpus;
    std::uint64_t acquiring = 0;  // ticket of the pool while there is no worker yet
    std::uint64_t pass = 0;       // of an owner on another node; 0: it is on this one
    bool ready = false;           // that owner was told, …
    std::int64_t ready_us = 0;    // … then
    Worker* worker = nullptr;
    std::vector<std::pair<ProcessId, std::uint64_t>> unblocking;  // calls to answer
  };

  void Perform(const rules::LeaseActions& actions);
  void Give(const rules::Grant& grant);
  void Revoke(std::uint64_t lease);
  void RingToReturn(const Worker& worker);
  void Remind(std::int64_t after_us);
  void Serve(std::uint64_t lease, Worker* worker, const Status& why);
  // Takes it out of the books. The worker, if any, is the caller's.
  void End(std::uint64_t lease);
  [[nodiscard]] bool IsIdle(std::uint64_t lease) const;
  // What it takes in the queue: of a bundle, or of the node and of the job's quota.
  [[nodiscard]] Resources Taken(const Resources& need, const Strategy& strategy, const Id& job) const;
  void TellRefused(const rules::LeaseKey& key, const Failure& why);
  void TellEnded(const rules::LeaseKey& key);
  void TellLost(const rules::LeaseKey& key, const wire::LeaseLost& lost);

  base::Loop& loop_;
  Peers& peers_;
  WorkerPool& pool_;
  shm::NodeArea& area_;
  rules::LeaseQueue queue_;
  OnActorGranted actor_granted_;
  OnActorEvicted actor_evicted_;
  FarEvents far_;
  std::unordered_map<ProcessId, ProcessId> far_owners_;  // by their number here
  std::map<rules::LeaseKey, Ask> asked_;
  std::unordered_map<std::uint64_t, Given> given_;
  std::unordered_map<Id, rules::LeaseKey> actor_keys_;  // of actors that wait
  std::uint64_t next_actor_request_ = 1;
  // Rung for, and not returned yet. A worker that was rung before it read of the lease has nothing to return, and
  // takes the ring for done: it is rung again.
  std::set<std::uint64_t> rung_;
  base::Loop::TimerId remind_timer_ = 0;
  bool dirty_ = false;
  std::uint64_t changes_ = 0;
  std::unordered_map<Id, Resources> quotas_;  // of jobs that have one
  base::Loop::TimerId timer_ = 0;
  std::int64_t timer_due_us_ = rules::LeaseQueue::kNever;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
