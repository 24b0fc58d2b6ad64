#include "node/actors.h"

#include <cstdio>

#include "base/log.h"
#include "node/actor_state.h"
#include "shm/arena.h"
#include "shm/journal_copy.h"

namespace manta::node {

using rules::ActorActions;

namespace {
// Workers that an actor may lose in a row before its constructor begins. One is lost with its fork server, before we
// hear of that; more than a few say that something else is wrong.
constexpr int kMostFalseStarts = 5;
}  // namespace

Actors::Actors(Peers& peers, WorkerPool& pool, Leases& leases, Directory& directory)
    : peers_(peers), pool_(pool), leases_(leases), directory_(directory) {
  leases_.OnActor(
      [this](const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus) {
        if (!records_.contains(actor) && guest_events_.granted) return guest_events_.granted(actor, lease, gpus);
        Granted(actor, lease, gpus);
      },
      [this](const Id& actor, const Failure& why) {
        if (!records_.contains(actor) && guest_events_.evicted) return guest_events_.evicted(actor, why);
        Evict(actor, why);
      });
}

// ---- messages ----

void Actors::Create(Peer& peer, std::uint64_t call, const wire::CreateActor& message) {
  const wire::ActorOptions& options = message.options;
  const std::string who = "actor " + (options.class_name.empty() ? ToString(message.actor) : options.class_name);
  if (options.get_if_exists && !options.name.empty()) {
    if (const Result<Id> there = table_.Find(options.name, options.space); there.ok()) {
      directory_.HoldOne(there.value(), peer.process);
      Record& record = records_[there.value()];
      record.watchers.Add(peer.process);
      return peer.connection->Send(wire::ActorCreated{there.value(), record.options, self_}, call);
    }
  }
  if (Status status = leases_.Check(options.need, who); !status.ok()) return peer.connection->Fail(call, status);
  if (Status status = CheckHere(options.strategy, who); !status.ok()) return peer.connection->Fail(call, status);
  const Result<Id> made = Make(message, peer.process, peer.job);
  if (!made.ok()) return peer.connection->Fail(call, made.status());
  directory_.HoldOne(made.value(), peer.process);
  peer.connection->Send(wire::ActorCreated{made.value(), options, self_}, call);
}

Result<Id> Actors::Make(const wire::CreateActor& message, ProcessId creator, const Id& job) {
  const wire::ActorOptions& options = message.options;
  ActorActions actions;
  const rules::ActorPolicy policy{options.class_name, options.name,          options.space,
                                  options.detached,   options.get_if_exists, options.max_restarts};
  const Result<Id> made = table_.Create(message.actor, job, policy, &actions);
  if (!made.ok()) return made.status();
  Record& record = records_[message.actor];
  record.options = options;
  record.spec = message.spec;
  record.owner = creator;
  record.job = job;
  record.wanted = NodeOf(creator);
  if (NodeOf(creator) == self_) record.watchers.Add(creator);
  record.args = message.args;
  record.arg_owners = message.arg_owners;
  directory_.SetContained(message.actor, message.args, message.arg_owners);
  Perform(actions);
  return message.actor;
}

Status Actors::Adopt(const wire::CreateActor& message, ProcessId creator, const Id& job, std::uint32_t epoch,
                     base::Fd journal, const std::string& why) {
  const wire::ActorOptions& options = message.options;
  const rules::ActorPolicy policy{options.class_name, options.name,          options.space,
                                  options.detached,   options.get_if_exists, options.max_restarts};
  const Failure lost{Code::kWorkerCrashed, why, {}, {}};
  if (records_.contains(message.actor)) return Status(Code::kInvalid, Cat(Describe(message.actor), " is here already"));
  Record& record = records_[message.actor];
  record.options = options;
  record.spec = message.spec;
  record.owner = creator;
  record.job = job;
  if (options.replay || options.checkpoint_calls > 0 || options.checkpoint_us > 0) record.journal = std::move(journal);
  record.exact = false;
  ActorActions actions;
  Status adopted = table_.Adopt(message.actor, job, policy, epoch, lost, &actions);
  if (!adopted.ok()) {
    records_.erase(message.actor);
    return adopted;
  }
  Perform(actions);
  return {};
}

void Actors::Keep(const Id& actor, const std::vector<JournalPart>& parts, std::function<void(const Status&)> done) {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  if (elsewhere_ == nullptr || known == nullptr || !elsewhere_->Keeps(actor)) return done({});
  elsewhere_->Keep(actor, known->epoch, parts, std::move(done));
}

void Actors::Copy(Peer& peer, std::uint64_t call, const wire::CopyJournal& message) {
  const auto it = records_.find(message.actor);
  if (it == records_.end() || it->second.worker != peer.worker || peer.worker == nullptr) {
    return peer.connection->Fail(call, Status(Code::kNotFound, "this actor does not run here"));
  }
  Keep(message.actor, message.parts, [this, process = peer.process, call](const Status& kept) {
    Peer* asking = peers_.Find(process);
    if (asking == nullptr) return;
    if (!kept.ok()) return asking->connection->Fail(call, kept);
    asking->connection->Send(wire::Done{}, call);
  });
}

void Actors::Ready(Peer& peer, const wire::ActorReady& message) {
  if (peer.worker == nullptr || peer.worker->actor != message.actor || message.actor.empty()) return;
  calls_replayed_ += message.replayed;
  ActorActions actions;
  table_.Ready(message.actor, &actions);
  Perform(actions);
  const auto it = records_.find(message.actor);
  if (it == records_.end() || it->second.worker != peer.worker) return;
  for (const auto& [caller, at] : it->second.callers) Introduce(message.actor, it->second, caller, at);
}

void Actors::Failed(Peer& peer, const wire::ActorFailed& message) {
  if (peer.worker == nullptr || peer.worker->actor != message.actor || message.actor.empty()) return;
  ActorActions actions;
  table_.ConstructorFailed(message.actor, message.failure, &actions);
  Perform(actions);
  Tidy(message.actor);
}

void Actors::Keeps(Peer& peer, const wire::ActorKeeps& message) {
  const auto it = records_.find(message.actor);
  if (peer.worker == nullptr || it == records_.end() || it->second.worker != peer.worker) return;
  if (message.owners.size() != message.objects.size()) return;
  if (!message.all) return directory_.AddContained(message.actor, message.objects, message.owners);
  std::vector<Id> objects = it->second.args;
  std::vector<ProcessId> owners = it->second.arg_owners;
  owners.resize(objects.size(), OnNode(self_, 1));  // of this node
  objects.insert(objects.end(), message.objects.begin(), message.objects.end());
  owners.insert(owners.end(), message.owners.begin(), message.owners.end());
  directory_.SetContained(message.actor, objects, owners);
}

void Actors::Attach(Peer& peer, const wire::AttachActor& message) {
  const rules::ActorTable::Actor* actor = table_.Get(message.actor);
  if (actor == nullptr || actor->phase == rules::ActorPhase::kDead) {
    const Failure unknown{
        Code::kActorDied,
        Cat("actor ", ToString(message.actor), " is not known here: it ended, and nobody had a handle"),
        {},
        {}};
    peer.connection->Send(
        ActorIs(message.actor, wire::ActorPhase::kDead, kNoProcess, actor == nullptr ? unknown : actor->failure));
    const auto it = records_.find(message.actor);
    if (it == records_.end() || (it->second.worker == nullptr && it->second.host == 0)) {
      peer.connection->Send(ActorIs(message.actor, wire::ActorPhase::kGone));
    } else {
      it->second.watchers.Add(peer.process);
    }
    return;
  }
  if (!shm::Arena::Valid(message.queue, 8) || !shm::Arena::Valid(message.lane, 8)) {
    peer.connection->Close(Status(Code::kCorrupt, "an actor's queue or lane is outside the arena"));
    return;
  }
  Record& record = records_[message.actor];
  if (!record.watchers.Attach(peer.process, message.restarts)) return;
  const Caller at{message.queue, message.lane};
  record.callers[peer.process] = at;
  if (actor->phase != rules::ActorPhase::kAlive) return;  // introduced when it is ready
  Introduce(message.actor, record, peer.process, at);
  if (record.worker == nullptr) return;
  // Whoever comes late has missed the change: it needs to know whom to ring.
  peer.connection->Send(ActorIs(message.actor, wire::ActorPhase::kAlive, record.worker->process(), {}));
}

void Actors::Kill(Peer&, const wire::KillActor& message) { Kill(message.actor, message.restart); }

void Actors::Kill(const Id& actor, bool restart) {
  ActorActions actions;
  table_.Kill(actor, restart, &actions);
  Perform(actions);
  Tidy(actor);
}

void Actors::Find(Peer& peer, std::uint64_t call, const wire::FindActor& message) {
  const Result<Id> found = table_.Find(message.name, message.space);
  if (!found.ok()) return peer.connection->Fail(call, found.status());
  directory_.HoldOne(found.value(), peer.process);
  Record& record = records_[found.value()];
  record.watchers.Add(peer.process);
  peer.connection->Send(wire::ActorFound{found.value(), record.options, self_}, call);
}

void Actors::ListNames(const Peer& peer, std::uint64_t call, const wire::ListNames& message) const {
  wire::NameList list;
  for (const auto& [name, actor] : table_.names()) {
    if (message.space.empty() || message.space == name.first) list.names.push_back({name.first, name.second});
  }
  peer.connection->Send(list, call);
}

// ---- deaths ----

void Actors::WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current) {
  const Id actor = worker.actor;
  const auto it = records_.find(actor);
  leases_.WorkerDied(worker, failure, 0);
  worker.actor = {};
  if (it == records_.end() || it->second.worker != &worker) return;
  it->second.worker = nullptr;
  it->second.lease = 0;
  it->second.wanted = self_;
  if (it->second.held) return Stopped(it->second);
  ActorActions actions;
  if (current == 0 && ++it->second.false_starts <= kMostFalseStarts) {
    table_.NeverBegan(actor, &actions);
  }
  if (actions.empty()) {
    it->second.false_starts = 0;
    it->second.callers.clear();
    it->second.died_in = current;
    it->second.exact = it->second.options.concurrency == 1;
    const rules::ActorTable::Actor* known = table_.Get(actor);
    if (known == nullptr || known->phase == rules::ActorPhase::kDead) TellGone(actor, it->second);
    table_.WorkerDied(actor, failure, &actions);
  }
  Perform(actions);
  Tidy(actor);
}

void Actors::ProcessDied(ProcessId process) {
  for (auto& [id, record] : records_) {
    record.watchers.Remove(process);
    record.callers.erase(process);
  }
}

void Actors::JobEnded(const Id& job, bool detached_too) {
  ActorActions actions;
  table_.DriverDied(job, &actions);
  if (detached_too) {
    leaving_ = true;
    std::vector<Id> detached;
    for (const auto& [id, actor] : table_.actors()) {
      // One that is kept goes on elsewhere.
      const bool goes_on = elsewhere_ != nullptr && elsewhere_->Keeps(id);
      if (actor.job == job && actor.phase != rules::ActorPhase::kDead && !goes_on) detached.push_back(id);
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
      if (elsewhere_ != nullptr) elsewhere_->StopPlacing(cancel->actor);
      leases_.CancelActor(cancel->actor);
      if (it->second.acquiring != 0) pool_.Cancel(it->second.job, std::exchange(it->second.acquiring, 0));
      ReturnLease(it->second);
    } else if (const auto* stop = std::get_if<rules::StopWorker>(&action)) {
      const auto it = records_.find(stop->actor);
      if (it == records_.end()) continue;
      if (it->second.host != 0) {
        const rules::ActorTable::Actor* actor = table_.Get(stop->actor);
        const Failure why = actor == nullptr ? Failure() : actor->failure;
        elsewhere_->Stop(it->second.host, wire::FarStopActor{stop->actor, it->second.epoch, stop->force, why});
        continue;
      }
      if (it->second.worker == nullptr || leave_workers_) continue;
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

wire::FarActorState Actors::StateOf(const Id& actor, const Record& record, wire::ActorPhase phase,
                                    const Failure& failure) const {
  wire::FarActorState out;
  out.state = ActorIs(actor, phase, kNoProcess, failure);
  if (phase == wire::ActorPhase::kAlive) {
    out.host = record.host != 0 ? record.host : self_;
    out.state.worker = record.worker != nullptr ? record.worker->process() : record.far_worker;
  }
  out.state.token = record.died_in;
  out.state.exact = record.exact;
  const rules::ActorTable::Actor* known = table_.Get(actor);
  out.epoch = known == nullptr ? 0 : known->epoch;
  return out;
}

// In a group it waits until that is ready, and its bundle here.
void Actors::RequestLease(const Id& actor) {
  if (leaving_) return;
  if (elsewhere_ != nullptr) {
    if (!elsewhere_->Place(actor)) WaitHere(actor);
    return;
  }
  const wire::ActorOptions& options = records_[actor].options;
  if (options.strategy.group.empty() || placer_ == nullptr) {
    if (const Status status = leases_.AddActor(actor, records_[actor].job, options.need, options.strategy);
        !status.ok()) {
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
    if (status.ok()) {
      status = leases_.AddActor(actor, it->second.job, it->second.options.need, it->second.options.strategy);
    }
    if (!status.ok()) GiveUp(actor, ToFailure(status));
  });
}

// It will never have what it waits for.
void Actors::GiveUp(const Id& actor, const Failure& why) { CouldNotStart(actor, why, true); }

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
  const wire::FarActorState told = StateOf(actor, record, static_cast<wire::ActorPhase>(notify.phase), notify.failure);
  const bool restarts = notify.phase == rules::ActorPhase::kRestarting;
  for (const ProcessId watcher : restarts ? record.watchers.Restarted() : record.watchers.All()) {
    peers_.Send(watcher, told.state);
  }
  for (const NodeNumber node : record.nodes) elsewhere_->Tell(node, told);
  if (restarts && elsewhere_ != nullptr && elsewhere_->Keeps(actor)) {
    elsewhere_->Keep(actor, told.epoch, {}, nullptr);
  }
  if (notify.phase != rules::ActorPhase::kDead) return;
  record.callers.clear();
  record.spec = {};
  record.journal = {};
  directory_.Empty(actor);
  if (record.worker == nullptr && record.host == 0) TellGone(actor, record);
  if (elsewhere_ != nullptr) elsewhere_->Died(actor, record.options, record.job);
}

void Actors::TellGone(const Id& actor, const Record& record) {
  const wire::FarActorState told = StateOf(actor, record, wire::ActorPhase::kGone, {});
  for (const ProcessId watcher : record.watchers.All()) peers_.Send(watcher, told.state);
  for (const NodeNumber node : record.nodes) elsewhere_->Tell(node, told);
}

void Actors::WaitHere(const Id& actor) {
  const wire::ActorOptions& options = records_[actor].options;
  const Status status = leases_.AddActor(actor, records_[actor].job, options.need, options.strategy);
  if (!status.ok()) GiveUp(actor, ToFailure(status));  // never wait for what does not come
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
  } else if (record.options.replay && table_.Get(actor)->epoch > 0 && !record.journal.valid()) {
    pool_.Release(*worker);
    ReturnLease(record);
    table_.ConstructorFailed(
        actor,
        Failure{
            Code::kActorDied,
            Cat(Describe(actor),
                " cannot come back: the calls that it would have to repeat, and its saved state, were on another node"),
            {},
            {}},
        &actions);
  } else {
    record.worker = worker;
    worker->actor = actor;
    worker->lease = record.lease;
    const wire::ActorStart start{
        actor,        table_.Get(actor)->epoch,           record.job,  record.options, record.spec,
        record.owner, record.options.need.Get("GPU") > 0, record.gpus, self_};
    if (const Status made = MakeJournal(record.options, &record.journal); !made.ok()) {
      base::LogWarning("%s will not outlive its process: %s", Describe(actor).c_str(), made.message().c_str());
    }
    if (record.journal.valid()) {
      worker->peer->connection->Send(start, 0, {record.journal.get()});
      if (elsewhere_ != nullptr && elsewhere_->Keeps(actor)) {
        worker->peer->connection->Send(wire::CopyWanted{actor});
      }
    } else {
      worker->peer->connection->Send(start);
    }
  }
  Perform(actions);
  Tidy(actor);
}

void Actors::Introduce(const Id& actor, const Record& record, ProcessId caller, const Caller& at) {
  if (record.host != 0) return elsewhere_->Attach(caller, actor, record.host, record.epoch);
  const Peer* peer = peers_.Find(caller);
  if (peer == nullptr || record.worker == nullptr) return;
  wire::ActorCaller told{caller, at.queue, at.lane};
  told.reruns = peer->worker != nullptr;
  record.worker->peer->connection->Send(told, 0, {peer->arena.get()});
}

void Actors::ReturnLease(Record& record) {
  if (record.lease != 0) leases_.EndActor(std::exchange(record.lease, 0));
}

void Actors::Tidy(const Id& actor) {
  const auto it = records_.find(actor);
  if (it == records_.end() || table_.Get(actor) != nullptr) return;
  if (it->second.worker == nullptr && it->second.host == 0) records_.erase(it);
}

// ---- in a cluster ----

Result<wire::ActorOptions> Actors::Get(const Id& actor) {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  if (known == nullptr || known->phase == rules::ActorPhase::kDead) {
    return Status(Code::kNotFound, Cat(Describe(actor), " has ended"));
  }
  table_.WillBeHeld(actor);
  return records_[actor].options;
}

std::optional<Actors::Order> Actors::Waiting(const Id& actor) const {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  const auto it = records_.find(actor);
  if (known == nullptr || !known->waits || it == records_.end()) return std::nullopt;
  const Record& record = it->second;
  return Order{record.options, record.spec, record.owner, record.job, known->epoch, record.wanted};
}

bool Actors::PlacedOn(const Id& actor, NodeNumber host, std::uint32_t epoch) {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  if (known == nullptr || known->epoch != epoch || !table_.Placed(actor)) return false;
  records_[actor].host = host;
  records_[actor].epoch = epoch;
  return true;
}

Actors::Record* Actors::HostedOn(const Id& actor, NodeNumber host, std::uint32_t epoch) {
  const auto it = records_.find(actor);
  if (it == records_.end() || it->second.host != host || it->second.epoch != epoch) return nullptr;
  return &it->second;
}

void Actors::ReadyOn(NodeNumber host, const wire::FarActorReady& message) {
  Record* record = HostedOn(message.actor, host, message.epoch);
  if (record == nullptr) return;
  record->far_worker = message.worker;
  ActorActions actions;
  table_.Ready(message.actor, &actions);
  if (actions.empty()) return;
  Perform(actions);
  for (const auto& [caller, at] : record->callers) Introduce(message.actor, *record, caller, at);
}

void Actors::FailedOn(NodeNumber host, const wire::FarActorFailed& message) {
  if (HostedOn(message.actor, host, message.epoch) == nullptr) return;
  ActorActions actions;
  table_.ConstructorFailed(message.actor, message.failure, &actions);
  Perform(actions);
  Tidy(message.actor);
}

void Actors::DiedOn(NodeNumber host, const wire::FarActorDied& message, bool exact) {
  Record* record = HostedOn(message.actor, host, message.epoch);
  if (record == nullptr) return;
  record->host = 0;
  record->far_worker = kNoProcess;
  static_cast<void>(MakeJournal(record->options, &record->journal));  // nothing that it did was seen elsewhere
  record->wanted = exact ? host : 0;                                  // if that is out of reach, anywhere
  if (record->held) return Stopped(*record);
  ActorActions actions;
  if (exact && message.token == 0 && ++record->false_starts <= kMostFalseStarts) {
    table_.NeverBegan(message.actor, &actions);
    if (!actions.empty()) return Perform(actions);
  }
  record->false_starts = 0;
  record->callers.clear();
  record->died_in = message.token;
  record->exact = exact && record->options.concurrency == 1;
  const rules::ActorTable::Actor* known = table_.Get(message.actor);
  if (known == nullptr || known->phase == rules::ActorPhase::kDead) TellGone(message.actor, *record);
  table_.WorkerDied(message.actor, message.failure, &actions);
  Perform(actions);
  Tidy(message.actor);
}

bool Actors::TakeCopy(NodeNumber host, const wire::FarJournal& message) {
  Record* record = HostedOn(message.actor, host, message.epoch);
  if (record == nullptr) return false;
  Status status = MakeJournal(record->options, &record->journal);
  if (status.ok()) status = shm::Write(record->journal.get(), message.parts);
  if (!status.ok()) {
    base::LogWarning("%s will not outlive its node: %s", Describe(message.actor).c_str(), status.message().c_str());
    record->journal = {};
  }
  return true;
}

const base::Fd* Actors::JournalOf(const Id& actor) const {
  const auto it = records_.find(actor);
  return it == records_.end() || !it->second.journal.valid() ? nullptr : &it->second.journal;
}

void Actors::CouldNotStart(const Id& actor, const Failure& why, bool for_good) {
  if (!table_.Placed(actor)) return;
  ActorActions actions;
  if (for_good) {
    table_.ConstructorFailed(actor, why, &actions);
  } else {
    table_.WorkerDied(actor, why, &actions);
  }
  Perform(actions);
  Tidy(actor);
}

void Actors::Watch(NodeNumber node, const Id& actor) {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  const auto it = records_.find(actor);
  if (known == nullptr || it == records_.end()) {
    const Failure unknown{
        Code::kActorDied, Cat("actor ", ToString(actor), " is not known: it ended, and nobody had a handle"), {}, {}};
    wire::FarActorState told;
    told.state = ActorIs(actor, wire::ActorPhase::kDead, kNoProcess, unknown);
    elsewhere_->Tell(node, told);
    told.state.phase = wire::ActorPhase::kGone;
    return elsewhere_->Tell(node, told);
  }
  Record& record = it->second;
  elsewhere_->Tell(node, StateOf(actor, record, static_cast<wire::ActorPhase>(known->phase), known->failure));
  if (known->phase == rules::ActorPhase::kDead && record.worker == nullptr && record.host == 0) {
    return elsewhere_->Tell(node, StateOf(actor, record, wire::ActorPhase::kGone, {}));
  }
  record.nodes.insert(node);
}

void Actors::Watch(const Id& actor, rules::ActorWatchers watchers) {
  if (const auto it = records_.find(actor); it != records_.end()) it->second.watchers = std::move(watchers);
}

void Actors::NodeDown(NodeNumber node, const std::string& why) {
  std::vector<Id> lost;
  for (auto& [id, record] : records_) {
    record.nodes.erase(node);
    if (record.host == node) lost.push_back(id);
  }
  const Failure failure{Code::kWorkerCrashed, Cat("its node is out of reach: ", why), {}, {}};
  for (const Id& id : lost) DiedOn(node, wire::FarActorDied{id, records_[id].epoch, failure, 0}, false);
}

Worker* Actors::WorkerOf(const Id& actor, std::uint32_t epoch) const {
  const rules::ActorTable::Actor* known = table_.Get(actor);
  if (known == nullptr || known->phase != rules::ActorPhase::kAlive || known->epoch != epoch) return nullptr;
  return records_.at(actor).worker;
}

std::size_t Actors::elsewhere() const {
  std::size_t count = 0;
  for (const auto& [id, record] : records_) {
    const rules::ActorTable::Actor* known = table_.Get(id);
    if (record.host != 0 && known != nullptr && known->phase != rules::ActorPhase::kDead) ++count;
  }
  return count;
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
