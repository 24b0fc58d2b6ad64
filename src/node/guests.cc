#include "node/guests.h"

#include <utility>

#include "base/failpoint.h"
#include "node/actor_state.h"
#include "node/journal_sender.h"
#include "shm/journal_copy.h"
#include "wire/crypto.h"

namespace manta::node {

Guests::Guests(Cluster& cluster, Peers& peers, WorkerPool& pool, Leases& leases, FarLeases& far_leases, Placer& placer,
               Actors& actors)
    : cluster_(cluster),
      peers_(peers),
      pool_(pool),
      leases_(leases),
      far_leases_(far_leases),
      placer_(placer),
      actors_(actors) {
  NodeLinks& links = cluster_.links();
  links.On<wire::FarStartActor>(
      [this](NodeNumber from, const wire::FarStartActor& message, std::uint64_t) { Start(from, message); });
  links.On<wire::FarStopActor>(
      [this](NodeNumber from, const wire::FarStopActor& message, std::uint64_t) { Stop(from, message); });
  links.On<wire::FarAttachActor>(
      [this](NodeNumber from, const wire::FarAttachActor& message, std::uint64_t) { Attach(from, message); });
  links.On<wire::FarJournal>(
      [this](NodeNumber from, const wire::FarJournal& message, std::uint64_t call) { Bring(from, message, call); });
  links.WhenDown([this](NodeNumber node, const Status& why) { NodeDown(node, why); });
}

Guests::~Guests() { *alive_ = false; }

Guests::Guest* Guests::Find(const Id& actor, std::uint32_t epoch) {
  const auto it = guests_.find(actor);
  return it == guests_.end() || it->second.order.epoch != epoch ? nullptr : &it->second;
}

NodeNumber Guests::HomeOf(const Id& actor) const {
  const auto it = guests_.find(actor);
  return it == guests_.end() ? 0 : it->second.home;
}

void Guests::Refuse(NodeNumber to, const wire::FarStartActor& message, bool bounced, const Status& why) {
  Failure failure = ToFailure(why);
  failure.message = Cat("node ", cluster_.self().name, ": ", failure.message);
  cluster_.links().Send(to, wire::FarActorRefused{message.actor, message.epoch, bounced, failure});
  if (bounced) cluster_.LoadChanged();
}

// ---- the home's orders ----

// A copy of what a guest of another node did, or what one that comes here is to go on with.
void Guests::Bring(NodeNumber from, const wire::FarJournal& message, std::uint64_t call) {
  const auto answer = [this, alive = alive_, from, call](const Status& done) {
    if (!*alive || call == 0) return;
    if (done.ok()) return cluster_.links().Answer(from, call, wire::Done{});
    cluster_.links().Fail(from, call, done);
  };
  if (message.use == wire::JournalUse::kStart) {
    BringForStart(from, message);
    return answer({});
  }
  // Given up here, and perhaps started elsewhere: what it does counts for nothing, and nobody may hear of it.
  if (!actors_.TakeCopy(from, message)) return answer(Status(Code::kNotFound, "this actor is another node's now"));
  if (message.use == wire::JournalUse::kLast) return answer({});
  base::Failpoint("node.taking");
  actors_.Keep(message.actor, message.parts, answer);
}

void Guests::BringForStart(NodeNumber from, const wire::FarJournal& message) {
  Brought& brought = brought_[message.actor];
  if (brought.home != from || brought.epoch != message.epoch) brought = Brought{from, message.epoch, {}};
  if (!brought.journal.valid()) {
    Result<base::Fd> made = shm::Journal::Make();
    if (!made.ok()) return;  // Start will miss it
    brought.journal = std::move(*made);
  }
  if (!shm::Write(brought.journal.get(), message.parts).ok()) brought.journal = {};
}

void Guests::Copy(Peer& peer, std::uint64_t call, const wire::CopyJournal& message) {
  const auto it = guests_.find(message.actor);
  if (it == guests_.end()) return actors_.Copy(peer, call, message);  // at home here, and kept
  if (it->second.worker != peer.worker || peer.worker == nullptr) {
    return peer.connection->Fail(call, Status(Code::kNotFound, "this actor is not a guest of this node"));
  }
  const auto copied = [this, alive = alive_, process = peer.process, call](const Status& done) {
    Peer* asking = *alive ? peers_.Find(process) : nullptr;
    if (asking == nullptr) return;
    base::Failpoint("node.copied");
    if (!done.ok()) return asking->connection->Fail(call, done);
    asking->connection->Send(wire::Done{}, call);
  };
  const Guest& guest = it->second;
  if (!message.ranges.empty()) {
    return SendJournal(cluster_.links(), {guest.home, message.actor, guest.order.epoch, wire::JournalUse::kCopy},
                       guest.journal, message.ranges, copied);
  }
  cluster_.links().Call<wire::Done>(guest.home, wire::FarJournal{message.actor, guest.order.epoch, message.parts},
                                    [copied](const Result<wire::Done>& done) { copied(done.status()); });
}

void Guests::Start(NodeNumber from, const wire::FarStartActor& message) {
  base::Fd journal;
  if (const auto it = brought_.find(message.actor); it != brought_.end()) {
    if (it->second.home == from && it->second.epoch == message.epoch) journal = std::move(it->second.journal);
    brought_.erase(it);
  }
  const Resources& need = message.options.need;
  if (far_leases_.draining()) return Refuse(from, message, true, Status(Code::kUnavailable, "it is being drained"));
  const Strategy& strategy = message.options.strategy;
  if (!placer_.AllowsHere(strategy)) {
    return Refuse(from, message, true, Status(Code::kUnavailable, Cat("it does not run ", ToString(strategy))));
  }
  Resources free = leases_.queue().free();
  if (strategy.group.empty()) {
    if (const Status fits = leases_.Check(need, "an actor"); !fits.ok()) return Refuse(from, message, true, fits);
    free = leases_.FreeFor(kNoProcess, 0);
  }
  const Resources taken = strategy.group.empty() ? need : InBundle(need, strategy.group, strategy.bundle);
  if (!message.final && !free.Covers(taken)) {
    return Refuse(from, message, true, Status(Code::kUnavailable, "it is too busy"));
  }
  if (guests_.contains(message.actor)) {
    return Refuse(from, message, true, Status(Code::kUnavailable, "its former process has not ended yet"));
  }
  if (message.epoch > 0 && message.options.replay && !journal.valid()) {
    return Refuse(from, message, false, Status(Code::kActorDied, "the actor's journal did not come with it"));
  }
  if (message.ticket != 0) far_leases_.Arrived(message.ticket);
  Guest& fresh = guests_[message.actor];
  fresh.home = from;
  fresh.order = message;
  fresh.journal = std::move(journal);
  far_leases_.WhenJobIsHere(
      message.job, [this, alive = alive_, actor = message.actor, epoch = message.epoch](const Status& here) {
        Guest* guest = *alive ? Find(actor, epoch) : nullptr;
        if (guest == nullptr) return;
        const wire::ActorOptions& options = guest->order.options;
        const Status added =
            here.ok() ? leases_.AddActor(actor, guest->order.job.job, options.need, options.strategy) : here;
        if (added.ok()) return;
        const auto gone = guests_.extract(actor);
        Refuse(gone.mapped().home, gone.mapped().order, added.code() == Code::kNotFound, added);
      });
}

void Guests::Granted(const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus) {
  const auto it = guests_.find(actor);
  if (it == guests_.end()) return leases_.EndActor(lease);
  it->second.lease = lease;
  it->second.gpus = gpus;
  const std::uint32_t epoch = it->second.order.epoch;
  const std::uint64_t ticket =
      pool_.Acquire(it->second.order.job.job,
                    [this, actor, epoch](Worker* worker, const Status& why) { Place(actor, epoch, worker, why); });
  if (Guest* guest = Find(actor, epoch); guest != nullptr && ticket != 0) guest->acquiring = ticket;
}

void Guests::Place(const Id& actor, std::uint32_t epoch, Worker* worker, const Status& why) {
  Guest* guest = Find(actor, epoch);
  if (guest == nullptr) {
    if (worker != nullptr) pool_.Release(*worker);
    return;
  }
  guest->acquiring = 0;
  if (worker == nullptr) {
    GiveBack(actor, *guest);
    const auto gone = guests_.extract(actor);
    return Refuse(gone.mapped().home, gone.mapped().order, false, why);
  }
  const wire::FarStartActor& order = guest->order;
  guest->worker = worker;
  worker->actor = actor;
  worker->lease = guest->lease;
  const wire::ActorStart start{
      actor,       epoch,      order.job.job, order.options, order.spec, order.owner, order.options.need.Get("GPU") > 0,
      guest->gpus, guest->home};
  static_cast<void>(MakeJournal(order.options, &guest->journal));
  if (guest->journal.valid()) {
    worker->peer->connection->Send(start, 0, {guest->journal.get()});
    worker->peer->connection->Send(wire::CopyWanted{actor, true});
  } else {
    worker->peer->connection->Send(start);
  }
  base::Failpoint("node.starting");
  cluster_.links().Send(guest->home, wire::FarActorStarting{actor, epoch});
}

void Guests::Stop(NodeNumber from, const wire::FarStopActor& message) {
  Guest* guest = Find(message.actor, message.epoch);
  if (guest == nullptr || guest->home != from) return;
  if (guest->worker == nullptr) {
    GiveBack(message.actor, *guest);
    guests_.erase(message.actor);
  } else if (message.force) {
    const Failure killed{Code::kActorDied, Cat("actor ", guest->order.options.class_name, " was killed"), {}, {}};
    pool_.Kill(*guest->worker, message.failure.ok() ? killed : message.failure);
  } else {
    pool_.Leave(*guest->worker);
  }
}

void Guests::MoveAway() {
  for (auto& [actor, guest] : guests_) {
    const wire::ActorOptions& options = guest.order.options;
    const bool may = options.replay && options.concurrency == 1 && options.max_restarts != 0 &&
                     (options.strategy.node.empty() || options.strategy.soft);
    if (!may || !guest.ready || guest.worker == nullptr || std::exchange(guest.moving, true)) continue;
    pool_.Kill(*guest.worker, Failure{Code::kActorDied, Cat("node ", cluster_.self().name, " is drained"), {}, {}});
  }
}

void Guests::Evict(const Id& actor, const Failure& why) {
  const auto it = guests_.find(actor);
  if (it == guests_.end()) return;
  if (it->second.worker != nullptr) return pool_.Kill(*it->second.worker, why);
  GiveBack(actor, it->second);
  const auto gone = guests_.extract(it);
  Refuse(gone.mapped().home, gone.mapped().order, false, Status(why.code, why.message));
}

void Guests::GiveBack(const Id& actor, Guest& guest) {
  leases_.CancelActor(actor);
  if (guest.acquiring != 0) pool_.Cancel(guest.order.job.job, std::exchange(guest.acquiring, 0));
  if (guest.lease != 0 && guest.worker == nullptr) leases_.EndActor(std::exchange(guest.lease, 0));
}

void Guests::NodeDown(NodeNumber node, const Status& why) {
  std::vector<Id> lost;
  for (const auto& [id, guest] : guests_) {
    if (guest.home == node) lost.push_back(id);
  }
  for (const Id& id : lost) {
    auto gone = guests_.extract(id);
    GiveBack(id, gone.mapped());
    if (gone.mapped().worker != nullptr) {
      pool_.Kill(*gone.mapped().worker,
                 Failure{Code::kActorDied, Cat("the actor's home is out of reach: ", why.message()), {}, {}});
    }
  }
  std::erase_if(coming_, [&](const auto& entry) { return NodeOf(entry.second.caller) == node; });
  std::erase_if(brought_, [&](const auto& entry) { return entry.second.home == node; });
}

// ---- the worker's words ----

bool Guests::Ready(const Peer& peer, const wire::ActorReady& message) {
  const auto it = guests_.find(message.actor);
  if (it == guests_.end() || it->second.worker != peer.worker || peer.worker == nullptr) return false;
  it->second.ready = true;
  cluster_.links().Send(it->second.home,
                        wire::FarActorReady{message.actor, it->second.order.epoch, peer.worker->process()});
  return true;
}

bool Guests::Failed(const Peer& peer, const wire::ActorFailed& message) {
  const auto it = guests_.find(message.actor);
  if (it == guests_.end() || it->second.worker != peer.worker || peer.worker == nullptr) return false;
  cluster_.links().Send(it->second.home, wire::FarActorFailed{message.actor, it->second.order.epoch, message.failure});
  return true;
}

bool Guests::WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current) {
  const auto it = guests_.find(worker.actor);
  if (it == guests_.end() || it->second.worker != &worker) return false;
  Guest guest = std::move(it->second);
  guests_.erase(it);
  leases_.WorkerDied(worker, failure, 0);
  const Id actor = std::exchange(worker.actor, {});
  // The home has it all before it hears of the death, and starts another process with it.
  ++ending_;
  SendWholeJournal(cluster_.links(), {guest.home, actor, guest.order.epoch, wire::JournalUse::kLast}, guest.journal,
                   [this, alive = alive_, home = guest.home,
                    died = wire::FarActorDied{actor, guest.order.epoch, failure, current}](const Status&) {
                     if (!*alive) return;
                     --ending_;
                     cluster_.links().Send(home, died);
                   });
  return true;
}

// ---- callers ----

bool Guests::Introduce(const Id& actor, std::uint32_t epoch, ProcessId caller, std::uint64_t queue,
                       std::uint64_t lane) {
  const Guest* guest = Find(actor, epoch);
  const Peer* peer = peers_.Find(caller);
  if (guest == nullptr || !guest->ready || peer == nullptr) return false;
  wire::ActorCaller told{caller, queue, lane};
  told.reruns = peer->worker != nullptr;
  guest->worker->peer->connection->Send(told, 0, {peer->arena.get()});
  peers_.Send(caller, ActorIs(actor, wire::ActorPhase::kAlive, guest->worker->process(), {}));
  return true;
}

void Guests::Attach(NodeNumber from, const wire::FarAttachActor& message) {
  if (NodeOf(message.caller) != from) return;
  const Guest* guest = Find(message.actor, message.epoch);
  const Worker* worker =
      guest != nullptr && guest->ready ? guest->worker : actors_.WorkerOf(message.actor, message.epoch);
  if (worker == nullptr) return;
  wire::ActorCaller told;
  told.owner = message.caller;
  told.far = true;
  told.stored_for = far_leases_.NeedStandIn(message.caller);
  if (told.stored_for == kNoProcess) {
    wire::FarActorAttached refused{message.actor, message.epoch, message.caller, worker->process(), {}, 0, {}};
    refused.failure =
        Failure{Code::kUnavailable, Cat("node ", cluster_.self().name, " has no room for another process"), {}, {}};
    return cluster_.links().Send(from, refused);
  }
  std::erase_if(coming_, [&](const auto& entry) { return pool_.FindByProcess(entry.second.worker) == nullptr; });
  wire::FillRandom(std::as_writable_bytes(std::span(&told.pass, 1)));
  told.pass |= 1;
  coming_[told.pass] = Coming{message.actor, message.epoch, message.caller, worker->process()};
  worker->peer->connection->Send(told);
}

void Guests::FarReady(const Peer& peer, const wire::FarReady& message) {
  const auto it = coming_.find(message.pass);
  if (it == coming_.end() || it->second.worker != peer.process) return;
  const Coming coming = it->second;
  coming_.erase(it);
  if (cluster_.Find(NodeOf(coming.caller)) == nullptr) return;
  cluster_.links().Send(NodeOf(coming.caller),
                        wire::FarActorAttached{coming.actor, coming.epoch, coming.caller, coming.worker,
                                               message.address, message.pass, message.failure});
}

}  // namespace manta::node
