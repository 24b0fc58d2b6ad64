#include "node/leases.h"

#include <algorithm>

#include "base/clock.h"
#include "base/failpoint.h"
#include "shm/arena.h"
#include "wire/crypto.h"

namespace manta::node {

using rules::LeaseActions;
using rules::LeaseKey;
using rules::LeaseQueue;

namespace {
constexpr std::int64_t kFirstReminderUs = 2'000;
constexpr std::int64_t kComingUs = 5'000;
constexpr std::int64_t kQuotaPatienceUs = 1'000'000;
constexpr std::int64_t kLastReminderUs = 100'000;  // a long task is running: it knows
}  // namespace

Leases::Leases(base::Loop& loop, Peers& peers, WorkerPool& pool, shm::NodeArea& area, const std::string& node,
               const Resources& total)
    : loop_(loop), peers_(peers), pool_(pool), area_(area), queue_(node, total) {}

// ---- messages ----

void Leases::Request(Peer& peer, const wire::LeaseRequest& message) {
  const LeaseKey key{peer.process, message.request};
  if (asked_.contains(key) || queue_.LeaseOf(key).has_value()) {
    peer.connection->Close(Status(Code::kCorrupt, Cat("lease request ", message.request, " was made twice")));
    return;
  }
  if (!shm::Arena::Valid(message.queue, 8) || !shm::Arena::Valid(message.lane, 8)) {
    peer.connection->Send(wire::LeaseRefused{
        message.request, Failure{Code::kInvalid, "a lease request names a queue or lane outside the arena", {}, {}}});
    return;
  }
  asked_[key] = Ask{peer.job, message.queue, message.lane, {}, message.need, message.strategy, nullptr};
  LeaseActions actions;
  const Status status = queue_.Add(rules::LeaseWant{key, Taken(message.need, message.strategy, peer.job),
                                                    message.priority, false, message.queue, message.stalled},
                                   base::NowMicros(), &actions);
  if (!status.ok()) {
    asked_.erase(key);
    peer.connection->Send(wire::LeaseRefused{message.request, ToFailure(status)});
  }
  Perform(actions);
}

void Leases::Cancel(Peer& peer, const wire::LeaseCancel& message) {
  const LeaseKey key{peer.process, message.request};
  LeaseActions actions;
  if (queue_.Cancel(key, base::NowMicros(), &actions)) {
    asked_.erase(key);
    peer.connection->Send(wire::LeaseEnded{message.request});
    Perform(actions);
    return;
  }
  // Granted, but the owner does not know yet: its worker is still being forked.
  const std::optional<std::uint64_t> lease = queue_.LeaseOf(key);
  if (lease.has_value() && given_[*lease].worker == nullptr) Revoke(*lease);
}

void Leases::Return(Peer& peer, const wire::LeaseReturn& message) {
  Worker* worker = peer.worker;
  // One that was lost or taken meanwhile: the answer has crossed.
  if (worker == nullptr || worker->lease != message.lease || message.lease == 0 || !worker->actor.empty()) return;
  const auto it = given_.find(message.lease);
  if (it == given_.end()) return;
  const LeaseKey key = it->second.key;
  area_.bell(peer.process).flags.fetch_and(~shm::Doorbell::kRevoke);
  TellEnded(key);
  // The worker first: the end of this lease may be the beginning of another.
  if (message.leaving) pool_.Leave(*worker);
  pool_.Release(*worker);
  End(message.lease);
}

void Leases::Blocked(Peer& peer, const wire::Blocked& message) {
  const Worker* worker = peer.worker;
  if (worker == nullptr || worker->lease == 0 || (message.lease != 0 && message.lease != worker->lease)) return;
  LeaseActions actions;
  queue_.Block(worker->lease, base::NowMicros(), &actions);
  Perform(actions);
}

void Leases::Unblock(Peer& peer, std::uint64_t call, const wire::Unblock& message) {
  const Worker* worker = peer.worker;
  const auto it = worker == nullptr ? given_.end() : given_.find(worker->lease);
  if (it == given_.end() || (message.lease != 0 && message.lease != worker->lease)) {
    peer.connection->Fail(call, Status(Code::kNotFound, "the process holds no such lease"));
    return;
  }
  it->second.unblocking.emplace_back(peer.process, call);
  if (quotas_.contains(it->second.ask.job)) {
    // Its quota may be with actors of its job on other nodes, for as long as they live: then it goes on without.
    loop_.After(kQuotaPatienceUs, [this, alive = alive_, lease = it->first] {
      if (!*alive) return;
      const auto given = given_.find(lease);
      if (given == given_.end() || given->second.unblocking.empty()) return;
      LeaseActions late;
      queue_.Unblock(lease, true, base::NowMicros(), &late);
      Perform(late);
    });
  }
  LeaseActions actions;
  queue_.Unblock(it->first, message.late, base::NowMicros(), &actions);
  Perform(actions);
}

// ---- owners on other nodes ----

Status Leases::RequestFar(rules::LeaseWant want, const Id& job, const Strategy& strategy) {
  if (asked_.contains(want.key) || queue_.LeaseOf(want.key).has_value()) {
    return Status(Code::kCorrupt, Cat("lease request ", want.key.request, " was made twice"));
  }
  asked_[want.key] = Ask{job, want.queue, 0, {}, want.need, strategy, nullptr};
  want.need = Taken(want.need, strategy, job);
  LeaseActions actions;
  const Status status = queue_.Add(want, base::NowMicros(), &actions);
  if (!status.ok()) asked_.erase(want.key);
  Perform(actions);
  return status;
}

void Leases::CancelFar(const LeaseKey& key) {
  LeaseActions actions;
  if (queue_.Cancel(key, base::NowMicros(), &actions)) {
    asked_.erase(key);
    far_.ended(key);
    Perform(actions);
    return;
  }
  const std::optional<std::uint64_t> lease = queue_.LeaseOf(key);
  if (lease.has_value() && !given_[*lease].ready) Revoke(*lease);
}

void Leases::FarReady(Peer& peer, const wire::FarReady& message) {
  Worker* worker = peer.worker;
  if (worker == nullptr || worker->lease != message.lease || message.lease == 0) return;
  const auto it = given_.find(message.lease);
  if (it == given_.end() || it->second.pass == 0 || it->second.ready) return;
  const LeaseKey key = it->second.key;
  if (!message.failure.ok()) {
    TellRefused(key, message.failure);
    pool_.Release(*worker);
    End(message.lease);
    return;
  }
  it->second.ready = true;
  it->second.ready_us = base::NowMicros();
  far_.granted(key, wire::LeaseGranted{key.request, peer.process, worker->pid, message.address, it->second.pass});
}

void Leases::BreakFar(const LeaseKey& key, const Failure& why) {
  const std::optional<std::uint64_t> lease = queue_.LeaseOf(key);
  if (!lease.has_value()) return CancelFar(key);
  if (Worker* worker = given_[*lease].worker; worker != nullptr) pool_.Kill(*worker, why);
}

void Leases::KillServing(ProcessId stand_in, const Failure& why) {
  std::vector<Worker*> workers;
  for (const auto& [lease, given] : given_) {
    if (given.key.owner == stand_in && given.worker != nullptr) workers.push_back(given.worker);
  }
  for (Worker* worker : workers) pool_.Kill(*worker, why);
}

bool Leases::TakeOut(const LeaseKey& key) {
  LeaseActions actions;
  if (!queue_.Cancel(key, base::NowMicros(), &actions)) return false;
  asked_.erase(key);
  Perform(actions);
  return true;
}

void Leases::RevokeAll() {
  std::vector<std::uint64_t> leases;
  for (const auto& [lease, given] : given_) {
    if (given.key.owner != kNoProcess) leases.push_back(lease);
  }
  for (const std::uint64_t lease : leases) Revoke(lease);
}

void Leases::TellRefused(const LeaseKey& key, const Failure& why) {
  if (far_owners_.contains(key.owner)) return far_.refused(key, why);
  peers_.Send(key.owner, wire::LeaseRefused{key.request, why});
}

void Leases::TellEnded(const LeaseKey& key) {
  if (far_owners_.contains(key.owner)) return far_.ended(key);
  peers_.Send(key.owner, wire::LeaseEnded{key.request});
}

void Leases::TellLost(const LeaseKey& key, const wire::LeaseLost& lost) {
  if (far_owners_.contains(key.owner)) return far_.lost(key, lost);
  peers_.Send(key.owner, lost);
}

// ---- actors ----

Status Leases::AddActor(const Id& actor, const Id& job, const Resources& need, const Strategy& strategy) {
  const LeaseKey key{kNoProcess, next_actor_request_++};
  asked_[key] = Ask{{}, 0, 0, actor, need, strategy, nullptr};
  actor_keys_[actor] = key;
  LeaseActions actions;
  const Status status =
      queue_.Add(rules::LeaseWant{key, Taken(need, strategy, job), 0, true, 0, false}, base::NowMicros(), &actions);
  if (!status.ok()) {
    asked_.erase(key);
    actor_keys_.erase(actor);
  }
  Perform(actions);
  return status;
}

void Leases::CancelActor(const Id& actor) {
  const auto it = actor_keys_.find(actor);
  if (it == actor_keys_.end()) return;
  LeaseActions actions;
  queue_.Cancel(it->second, base::NowMicros(), &actions);
  asked_.erase(it->second);
  actor_keys_.erase(it);
  Perform(actions);
}

void Leases::EndActor(std::uint64_t lease) { End(lease); }

// ---- bundles ----

Resources Leases::Taken(const Resources& need, const Strategy& strategy, const Id& job) const {
  if (!strategy.group.empty()) return InBundle(need, strategy.group, strategy.bundle);  // which is counted itself
  const auto quota = quotas_.find(job);
  if (quota == quotas_.end()) return need;
  Resources taken = need;
  taken.Add(OfQuota(need, quota->second, job));
  return taken;
}

Result<std::uint64_t> Leases::Reserve(const Resources& need, OnReserved granted, const Id& job) {
  const LeaseKey key{kNoProcess, next_actor_request_++};
  asked_[key] = Ask{{}, 0, 0, {}, need, {}, std::move(granted)};
  LeaseActions actions;
  const Status status =
      queue_.Add(rules::LeaseWant{key, Taken(need, {}, job), 0, true, 0, false}, base::NowMicros(), &actions);
  if (!status.ok()) asked_.erase(key);
  Perform(actions);
  if (!status.ok()) return status;
  return key.request;
}

void Leases::CancelReservation(std::uint64_t request) {
  const LeaseKey key{kNoProcess, request};
  LeaseActions actions;
  queue_.Cancel(key, base::NowMicros(), &actions);
  asked_.erase(key);
  Perform(actions);
}

void Leases::EmptyBundle(const Id& group, std::int32_t bundle, const Failure& why) {
  const auto in = [&](const Ask& ask) { return ask.strategy.group == group && ask.strategy.bundle == bundle; };
  std::vector<std::pair<LeaseKey, Id>> waiting;
  for (const auto& [key, ask] : asked_) {
    if (in(ask)) waiting.emplace_back(key, ask.actor);
  }
  for (const auto& [key, actor] : waiting) {
    if (!actor.empty()) {
      actor_evicted_(actor, why);
    } else if (TakeOut(key)) {
      TellRefused(key, why);
    }
  }
  std::vector<std::uint64_t> leases;
  for (const auto& [lease, given] : given_) {
    if (in(given.ask)) leases.push_back(lease);
  }
  for (const std::uint64_t lease : leases) {
    const auto it = given_.find(lease);
    if (it == given_.end()) continue;
    if (!it->second.ask.actor.empty()) {
      actor_evicted_(Id(it->second.ask.actor), why);
    } else if (it->second.worker != nullptr) {
      pool_.Kill(*it->second.worker, why);
    } else if (it->second.acquiring != 0) {
      pool_.Cancel(it->second.ask.job, it->second.acquiring);
      TellRefused(it->second.key, why);
      End(lease);
    }
  }
}

bool Leases::InBundleNow(const Id& group, std::int32_t bundle) const {
  const auto in = [&](const Ask& ask) { return ask.strategy.group == group && ask.strategy.bundle == bundle; };
  return std::any_of(asked_.begin(), asked_.end(), [&](const auto& entry) { return in(entry.second); }) ||
         std::any_of(given_.begin(), given_.end(), [&](const auto& entry) { return in(entry.second.ask); });
}

// ---- quotas ----

void Leases::Limit(const Id& job, const Resources& quota, const Resources& here) {
  quotas_[job] = quota;
  queue_.SetQuota(OfQuota(quota, quota, job), OfQuota(here, quota, job));
}

void Leases::Unlimit(const Id& job, const Resources& quota) {
  quotas_.erase(job);
  static_cast<void>(queue_.RemoveShare(OfQuota(FreeShare(job), quota, job)));
  queue_.DropQuota(OfQuota(quota, quota, job));
}

void Leases::AddShare(const Id& job, const Resources& more) {
  LeaseActions actions;
  queue_.AddShare(OfQuota(more, more, job), base::NowMicros(), &actions);
  Perform(actions);
}

bool Leases::RemoveShare(const Id& job, const Resources& less) {
  ++changes_;
  return queue_.RemoveShare(OfQuota(less, less, job));
}

void Leases::Withdraw(std::uint64_t lease) {
  given_.erase(lease);
  queue_.Withdraw(lease);
}

Resources Leases::LacksQuota(const Id& job, bool patient) const {
  return QuotaOf(queue_.LacksQuota(job, FreeFor(kNoProcess, 0), patient), job);
}

bool Leases::QuotaUsedUp(const Id& job, const Resources& need) const {
  const auto it = quotas_.find(job);
  return it != quotas_.end() && !queue_.free().Covers(OfQuota(need, it->second, job));
}

// ---- deaths ----

void Leases::OwnerDied(ProcessId owner) {
  LeaseActions actions;
  queue_.OwnerDied(owner, base::NowMicros(), &actions);
  std::erase_if(asked_, [&](const auto& entry) { return entry.first.owner == owner; });
  std::vector<std::uint64_t> leases;
  for (const auto& [lease, given] : given_) {
    if (given.key.owner == owner) leases.push_back(lease);
  }
  Perform(actions);
  for (const std::uint64_t lease : leases) Revoke(lease);
}

void Leases::WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current) {
  const auto it = given_.find(worker.lease);
  if (it == given_.end()) return;
  const LeaseKey key = it->second.key;
  if (worker.actor.empty()) TellLost(key, wire::LeaseLost{key.request, worker.process(), failure, current});
  const std::uint64_t lease = std::exchange(worker.lease, 0);
  End(lease);
}

// ---- carrying out ----

void Leases::Perform(const LeaseActions& actions) {
  dirty_ = true;
  ++changes_;
  for (const rules::LeaseAction& action : actions) {
    if (const auto* grant = std::get_if<rules::Grant>(&action)) {
      Give(*grant);
    } else if (const auto* revoke = std::get_if<rules::Revoke>(&action)) {
      Revoke(revoke->lease);
    } else if (const auto* resume = std::get_if<rules::Resume>(&action)) {
      const auto it = given_.find(resume->lease);
      if (it == given_.end()) continue;
      for (const auto& [process, call] : std::exchange(it->second.unblocking, {}))
        peers_.Send(process, wire::Done{}, call);
    }
  }
}

void Leases::Give(const rules::Grant& grant) {
  const auto ask = asked_.find(grant.key);
  const LeaseQueue::Lease* lease = queue_.Find(grant.lease);
  if (lease == nullptr) return;  // an earlier action of the same batch ended it
  Given& given = given_[grant.lease];
  given.key = grant.key;
  given.gpus = grant.gpus;
  if (ask != asked_.end()) {
    given.ask = std::move(ask->second);
    asked_.erase(ask);
  }
  given.with_gpus = given.ask.need.Get("GPU") > 0;
  if (given.ask.reserved) {
    const OnReserved reserved = std::exchange(given.ask.reserved, nullptr);
    reserved(grant.lease, grant.gpus);
    return;
  }
  if (grant.key.owner == kNoProcess) {
    const Id actor = given.ask.actor;
    actor_keys_.erase(actor);
    actor_granted_(actor, grant.lease, grant.gpus);
    return;
  }
  const std::uint64_t number = grant.lease;
  const std::uint64_t ticket =
      pool_.Acquire(given.ask.job, [this, number](Worker* worker, const Status& why) { Serve(number, worker, why); });
  // If there was no worker to be had, the lease is gone by now.
  if (const auto it = given_.find(number); it != given_.end() && ticket != 0) it->second.acquiring = ticket;
}

void Leases::Serve(std::uint64_t lease, Worker* worker, const Status& why) {
  Given& given = given_[lease];
  given.acquiring = 0;
  const LeaseKey key = given.key;
  if (worker == nullptr) {
    TellRefused(key, ToFailure(why));
    End(lease);
    return;
  }
  const Peer* owner = peers_.Find(key.owner);
  const auto far = far_owners_.find(key.owner);
  if (owner == nullptr && far == far_owners_.end()) {
    pool_.Release(*worker);
    End(lease);
    return;
  }
  given.worker = worker;
  worker->lease = lease;
  base::Failpoint("node.lease");
  area_.bell(worker->process()).flags.fetch_and(~shm::Doorbell::kRevoke);
  if (far != far_owners_.end()) {
    wire::FillRandom(std::as_writable_bytes(std::span(&given.pass, 1)));
    given.pass |= 1;
    wire::LeaseStart start{lease,           far->second, given.ask.job,   given.ask.need,
                           given.ask.queue, 0,           given.with_gpus, given.gpus};
    start.once = given.ask.strategy.spread;
    start.far = true;
    start.pass = given.pass;
    start.stored_for = key.owner;
    worker->peer->connection->Send(start);
    return;
  }
  worker->peer->connection->Send(
      wire::LeaseStart{lease, key.owner, given.ask.job, given.ask.need, given.ask.queue, given.ask.lane,
                       given.with_gpus, given.gpus, given.ask.strategy.spread},
      0, {owner->arena.get()});
  owner->connection->Send(wire::LeaseGranted{key.request, worker->process(), worker->pid, {}, 0});
}

void Leases::Revoke(std::uint64_t lease) {
  const auto it = given_.find(lease);
  if (it == given_.end()) return;
  if (it->second.worker != nullptr) {
    RingToReturn(*it->second.worker);
    rung_.insert(lease);
    if (remind_timer_ == 0) Remind(kFirstReminderUs);
    return;
  }
  if (it->second.acquiring == 0) return;  // an actor's
  pool_.Cancel(it->second.ask.job, it->second.acquiring);
  TellEnded(it->second.key);
  End(lease);
}

void Leases::RingToReturn(const Worker& worker) {
  shm::Doorbell& bell = area_.bell(worker.process());
  bell.flags.fetch_or(shm::Doorbell::kRevoke, std::memory_order_seq_cst);
  bell.Rouse();
}

void Leases::Remind(std::int64_t after_us) {
  remind_timer_ = loop_.After(after_us, [this, after_us] {
    remind_timer_ = 0;
    if (rung_.empty()) return;
    for (const std::uint64_t lease : rung_) {
      if (const auto it = given_.find(lease); it != given_.end()) RingToReturn(*it->second.worker);
    }
    Remind(std::min(after_us * 2, kLastReminderUs));
  });
}

void Leases::End(std::uint64_t lease) {
  rung_.erase(lease);
  for (const auto& [process, call] : given_[lease].unblocking) peers_.Send(process, wire::Done{}, call);
  given_.erase(lease);
  LeaseActions actions;
  queue_.Return(lease, base::NowMicros(), &actions);
  Perform(actions);
}

bool Leases::IsIdle(std::uint64_t lease) const {
  const auto it = given_.find(lease);
  if (it == given_.end()) return false;
  const Given& given = it->second;
  // An owner on another node needs a moment to come.
  if (given.pass != 0 && (!given.ready || base::NowMicros() < given.ready_us + kComingUs)) return false;
  return it->second.worker != nullptr &&
         area_.bell(it->second.worker->process()).state.load(std::memory_order_acquire) == shm::Doorbell::kIdle;
}

void Leases::EndRound() {
  const std::int64_t now = base::NowMicros();
  if (dirty_) {
    dirty_ = false;
    LeaseActions actions;
    queue_.Tick(now, [this](std::uint64_t lease) { return IsIdle(lease); }, &actions);
    Perform(actions);
    dirty_ = false;
  }
  const std::int64_t due = queue_.NextTick(now);
  if (due == timer_due_us_ && (timer_ != 0 || due == LeaseQueue::kNever)) return;
  loop_.Cancel(timer_);
  timer_ = 0;
  timer_due_us_ = due;
  if (due == LeaseQueue::kNever) return;
  timer_ = loop_.After(std::max<std::int64_t>(due - now, 0), [this] {
    timer_ = 0;
    dirty_ = true;
  });
}

// ---- what is ----

ProcessId Leases::OwnerOf(const Worker& worker) const {
  const auto it = given_.find(worker.lease);
  return it == given_.end() ? kNoProcess : it->second.key.owner;
}

Resources Leases::FreeFor(ProcessId owner, std::uint64_t queue) const {
  Resources sum = queue_.free();
  for (const auto& [lease, held] : queue_.leases()) {
    const bool own = held.want.key.owner == owner && held.want.queue == queue;
    if (!held.want.actor && !own && IsIdle(lease)) sum.Add(held.held);
  }
  return sum;
}

Resources Leases::InUse() const {
  Resources sum;
  for (const auto& [lease, held] : queue_.leases()) {
    if (held.want.actor || !IsIdle(lease)) sum.Add(held.held);
  }
  return Plain(sum);
}

}  // namespace manta::node
