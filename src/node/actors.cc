#include "node/actors.h"

#include "shm/arena.h"

namespace manta::node {

using rules::ActorActions;

namespace {
// Workers that an actor may lose in a row before its constructor begins. One is lost with its fork server, before we
// hear of that; more than a few say that something else is wrong.
constexpr int kMostFalseStarts = 5;
}  // namespace

Actors::Actors(Peers& peers, WorkerPool& pool, Leases& leases, Directory& directory)
    : peers_(peers), pool_(pool), leases_(leases), directory_(directory) {
  leases_.OnActor([this](const Id& actor, std::uint64_t lease,
                         const std::vector<std::uint32_t>& gpus) { Granted(actor, lease, gpus); },
                  [this](const Id& actor, const Failure& why) { Evict(actor, why); });
}

// ---- messages ----

void Actors::Create(Peer& peer, std::uint64_t call, const wire::CreateActor& message) {
  const wire::ActorOptions& options = message.options;
  const std::string who = "actor " + (options.class_name.empty() ? ToString(message.actor) : options.class_name);
  const bool exists = options.get_if_exists && !options.name.empty() && table_.Find(options.name, options.space).ok();
  if (!exists) {
    if (Status status = leases_.Check(options.need, who); !status.ok()) return peer.connection->Fail(call, status);
    if (Status status = CheckHere(options.strategy, who); !status.ok()) return peer.connection->Fail(call, status);
  }
  ActorActions actions;
  const rules::ActorPolicy policy{options.class_name, options.name,          options.space,
                                  options.detached,   options.get_if_exists, options.max_restarts};
  const Result<Id> made = table_.Create(message.actor, peer.job, policy, &actions);
  if (!made.ok()) return peer.connection->Fail(call, made.status());
  const Id actor = made.value();
  directory_.HoldOne(actor, peer.process);
  if (!exists) {
    Record& record = records_[actor];
    record.options = options;
    record.spec = message.spec;
    record.owner = peer.process;
    record.job = peer.job;
    directory_.SetContained(actor, message.args);
  }
  Record& record = records_[actor];
  record.watchers.insert(peer.process);
  peer.connection->Send(wire::ActorCreated{actor, record.options}, call);
  Perform(actions);
}

void Actors::Ready(Peer& peer, const wire::ActorReady& message) {
  if (peer.worker == nullptr || peer.worker->actor != message.actor || message.actor.empty()) return;
  ActorActions actions;
  table_.Ready(message.actor, &actions);
  Perform(actions);
  const auto it = records_.find(message.actor);
  if (it == records_.end() || it->second.worker != peer.worker) return;
  for (const auto& [caller, at] : it->second.callers) Introduce(it->second, caller, at);
}

void Actors::Failed(Peer& peer, const wire::ActorFailed& message) {
  if (peer.worker == nullptr || peer.worker->actor != message.actor || message.actor.empty()) return;
  ActorActions actions;
  table_.ConstructorFailed(message.actor, message.failure, &actions);
  Perform(actions);
  Tidy(message.actor);
}

void Actors::Attach(Peer& peer, const wire::AttachActor& message) {
  const rules::ActorTable::Actor* actor = table_.Get(message.actor);
  if (actor == nullptr || actor->phase == rules::ActorPhase::kDead) {
    const Failure unknown{
        Code::kActorDied,
        Cat("actor ", ToString(message.actor), " is not known here: it ended, and nobody had a handle"),
        {},
        {}};
    peer.connection->Send(wire::ActorState{message.actor, wire::ActorPhase::kDead, kNoProcess,
                                           actor == nullptr ? unknown : actor->failure});
    const auto it = records_.find(message.actor);
    if (it == records_.end() || it->second.worker == nullptr) {
      peer.connection->Send(wire::ActorState{message.actor, wire::ActorPhase::kGone, kNoProcess, {}});
    } else {
      it->second.watchers.insert(peer.process);
    }
    return;
  }
  if (!shm::Arena::Valid(message.queue, 8) || !shm::Arena::Valid(message.lane, 8)) {
    peer.connection->Close(Status(Code::kCorrupt, "an actor's queue or lane is outside the arena"));
    return;
  }
  Record& record = records_[message.actor];
  record.watchers.insert(peer.process);
  const Caller at{message.queue, message.lane};
  record.callers[peer.process] = at;
  if (actor->phase != rules::ActorPhase::kAlive || record.worker == nullptr) return;  // introduced when it is ready
  Introduce(record, peer.process, at);
  // Whoever comes late has missed the change: it needs to know whom to ring.
  peer.connection->Send(wire::ActorState{message.actor, wire::ActorPhase::kAlive, record.worker->process(), {}});
}

void Actors::Kill(Peer&, const wire::KillActor& message) {
  ActorActions actions;
  table_.Kill(message.actor, message.restart, &actions);
  Perform(actions);
  Tidy(message.actor);
}

void Actors::Find(Peer& peer, std::uint64_t call, const wire::FindActor& message) {
  const Result<Id> found = table_.Find(message.name, message.space);
  if (!found.ok()) return peer.connection->Fail(call, found.status());
  directory_.HoldOne(found.value(), peer.process);
  Record& record = records_[found.value()];
  record.watchers.insert(peer.process);
  peer.connection->Send(wire::ActorFound{found.value(), record.options}, call);
}

// ---- deaths ----

void Actors::WorkerDied(Worker& worker, const Failure& failure, bool begun) {
  const Id actor = worker.actor;
  const auto it = records_.find(actor);
  leases_.WorkerDied(worker, failure, 0);
  worker.actor = {};
  if (it == records_.end() || it->second.worker != &worker) return;
  it->second.worker = nullptr;
  it->second.lease = 0;
  ActorActions actions;
  if (!begun && ++it->second.false_starts <= kMostFalseStarts) {
    table_.NeverBegan(actor, &actions);
  }
  if (actions.empty()) {
    it->second.false_starts = 0;
    it->second.callers.clear();
    const rules::ActorTable::Actor* known = table_.Get(actor);
    if (known == nullptr || known->phase == rules::ActorPhase::kDead) TellGone(actor, it->second);
    table_.WorkerDied(actor, failure, &actions);
  }
  Perform(actions);
  Tidy(actor);
}

void Actors::ProcessDied(ProcessId process) {
  for (auto& [id, record] : records_) {
    record.watchers.erase(process);
    record.callers.erase(process);
  }
}

void Actors::JobEnded(const Id& job, bool detached_too) {
  ActorActions actions;
  table_.DriverDied(job, &actions);
  if (detached_too) {
    std::vector<Id> detached;
    for (const auto& [id, actor] : table_.actors()) {
      if (actor.job == job && actor.phase != rules::ActorPhase::kDead) detached.push_back(id);
    }
    for (const Id& id : detached) table_.Kill(id, false, &actions);
  }
  leave_workers_ = true;
  Perform(actions);
  leave_workers_ = false;
}

bool Actors::HandlesGone(const Id& actor) {
  if (table_.Get(actor) == nullptr) return false;
  ActorActions actions;
  table_.HandlesGone(actor, &actions);
  Perform(actions);
  Tidy(actor);
  return true;
}

// ---- carrying out ----

void Actors::Perform(const ActorActions& actions) {
  for (const rules::ActorAction& action : actions) {
    if (const auto* request = std::get_if<rules::RequestLease>(&action)) {
      RequestLease(request->actor);
    } else if (const auto* cancel = std::get_if<rules::CancelLease>(&action)) {
      const auto it = records_.find(cancel->actor);
      if (it == records_.end()) continue;
      leases_.CancelActor(cancel->actor);
      if (it->second.acquiring != 0) pool_.Cancel(it->second.job, std::exchange(it->second.acquiring, 0));
      ReturnLease(it->second);
    } else if (const auto* stop = std::get_if<rules::StopWorker>(&action)) {
      const auto it = records_.find(stop->actor);
      if (it == records_.end() || it->second.worker == nullptr || leave_workers_) continue;
      if (stop->force) {
        const rules::ActorTable::Actor* actor = table_.Get(stop->actor);
        Failure why{Code::kActorDied, Cat(Describe(stop->actor), " was killed"), {}, {}};
        pool_.Kill(*it->second.worker, actor != nullptr && !actor->failure.ok() ? actor->failure : why);
      } else {
        pool_.Leave(*it->second.worker);
      }
    } else if (const auto* notify = std::get_if<rules::Notify>(&action)) {
      if (const auto it = records_.find(notify->actor); it != records_.end())
        Notify(notify->actor, it->second, *notify);
    }
  }
}

// In a group it waits until that is ready, and its bundle here.
void Actors::RequestLease(const Id& actor) {
  const wire::ActorOptions& options = records_[actor].options;
  if (options.strategy.group.empty() || placer_ == nullptr) {
    if (const Status status = leases_.AddActor(actor, options.need, options.strategy); !status.ok()) {
      GiveUp(actor, ToFailure(status));  // checked before; but never wait for what does not come
    }
    return;
  }
  rules::PlaceRequest request;
  request.need = options.need;
  placer_->Place(options.strategy, std::move(request), [this, actor](const Result<rules::Placement>& placed) {
    const auto it = records_.find(actor);
    const rules::ActorTable::Actor* known = table_.Get(actor);
    if (it == records_.end() || known == nullptr || !known->waits) return;
    Status status = placed.status();
    if (status.ok() && !placer_->AllowsHere(it->second.options.strategy)) {
      status = Status(Code::kInfeasible, Cat(Describe(actor), " is to run ", ToString(it->second.options.strategy),
                                             ", which is on another node than its creator"));
    }
    if (status.ok()) status = leases_.AddActor(actor, it->second.options.need, it->second.options.strategy);
    if (!status.ok()) GiveUp(actor, ToFailure(status));
  });
}

// It will never have what it waits for.
void Actors::GiveUp(const Id& actor, const Failure& why) {
  ActorActions actions;
  if (table_.Placed(actor)) table_.ConstructorFailed(actor, why, &actions);
  Perform(actions);
  Tidy(actor);
}

void Actors::Evict(const Id& actor, const Failure& why) {
  const auto it = records_.find(actor);
  if (it == records_.end()) return;
  if (it->second.worker != nullptr) return pool_.Kill(*it->second.worker, why);
  leases_.CancelActor(actor);
  if (it->second.acquiring != 0) pool_.Cancel(it->second.job, std::exchange(it->second.acquiring, 0));
  ReturnLease(it->second);
  GiveUp(actor, why);
}

Status Actors::CheckHere(const Strategy& strategy, const std::string& who) const {
  if (placer_ == nullptr || !strategy.group.empty() || placer_->AllowsHere(strategy)) return {};
  return {Code::kInfeasible, Cat(who, " is to run ", ToString(strategy), ", which its creator's node is not")};
}

void Actors::Notify(const Id& actor, Record& record, const rules::Notify& notify) {
  const ProcessId worker =
      notify.phase == rules::ActorPhase::kAlive && record.worker != nullptr ? record.worker->process() : kNoProcess;
  const wire::ActorState state{actor, static_cast<wire::ActorPhase>(notify.phase), worker, notify.failure};
  for (const ProcessId watcher : record.watchers) peers_.Send(watcher, state);
  if (notify.phase != rules::ActorPhase::kDead) return;
  record.callers.clear();
  record.spec = {};
  directory_.Empty(actor);
  if (record.worker == nullptr) TellGone(actor, record);
}

void Actors::TellGone(const Id& actor, const Record& record) {
  for (const ProcessId watcher : record.watchers) {
    peers_.Send(watcher, wire::ActorState{actor, wire::ActorPhase::kGone, kNoProcess, {}});
  }
}

void Actors::Granted(const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus) {
  const auto it = records_.find(actor);
  if (it == records_.end()) return leases_.EndActor(lease);
  it->second.lease = lease;
  it->second.gpus = gpus;
  const std::uint64_t ticket =
      pool_.Acquire(it->second.job, [this, actor](Worker* worker, const Status& why) { Place(actor, worker, why); });
  if (const auto again = records_.find(actor); again != records_.end() && ticket != 0) again->second.acquiring = ticket;
}

void Actors::Place(const Id& actor, Worker* worker, const Status& why) {
  const auto it = records_.find(actor);
  if (it == records_.end()) {
    if (worker != nullptr) pool_.Release(*worker);
    return;
  }
  Record& record = it->second;
  record.acquiring = 0;
  ActorActions actions;
  if (worker == nullptr) {
    ReturnLease(record);
    if (table_.Placed(actor)) table_.WorkerDied(actor, ToFailure(why), &actions);
  } else if (!table_.Placed(actor)) {
    pool_.Release(*worker);
    ReturnLease(record);
  } else {
    record.worker = worker;
    worker->actor = actor;
    worker->lease = record.lease;
    worker->peer->connection->Send(wire::ActorStart{actor, table_.Get(actor)->epoch, record.job, record.options,
                                                    record.spec, record.owner, record.options.need.Get("GPU") > 0,
                                                    record.gpus});
  }
  Perform(actions);
  Tidy(actor);
}

void Actors::Introduce(const Record& record, ProcessId caller, const Caller& at) {
  const Peer* peer = peers_.Find(caller);
  if (peer == nullptr || record.worker == nullptr) return;
  record.worker->peer->connection->Send(wire::ActorCaller{caller, at.queue, at.lane}, 0, {peer->arena.get()});
}

void Actors::ReturnLease(Record& record) {
  if (record.lease != 0) leases_.EndActor(std::exchange(record.lease, 0));
}

void Actors::Tidy(const Id& actor) {
  const auto it = records_.find(actor);
  if (it != records_.end() && table_.Get(actor) == nullptr && it->second.worker == nullptr) records_.erase(it);
}

// ---- what is ----

bool Actors::IsDetached(const Id& actor) const {
  const rules::ActorTable::Actor* found = table_.Get(actor);
  return found != nullptr && found->policy.detached && found->phase != rules::ActorPhase::kDead;
}

bool Actors::HasDetached(const Id& job) const {
  for (const auto& [id, actor] : table_.actors()) {
    if (actor.job == job && actor.policy.detached && actor.phase != rules::ActorPhase::kDead) return true;
  }
  return false;
}

std::string Actors::Describe(const Id& actor) const {
  const auto it = records_.find(actor);
  const std::string name = it == records_.end() ? "" : it->second.options.class_name;
  return Cat("actor ", name, name.empty() ? "" : " ", ToString(actor));
}

}  // namespace manta::node
