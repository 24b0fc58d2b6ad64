// Actors carries out what rules::ActorTable decides for the actors that are at home on this node: gets an actor its
// resources and its worker, starts it there, introduces its callers to it, and tells everybody concerned what becomes
// of it. In a cluster its worker may be on another node, and so may be who asks: that is the business of
// ActorsElsewhere (node/far_actors.h), without which this node is the only one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/directory.h"
#include "node/leases.h"
#include "node/peers.h"
#include "node/placer.h"
#include "node/worker_pool.h"
#include "rules/actor_table.h"
#include "rules/actor_watchers.h"
#include "wire/cluster_messages.h"
#include "wire/journal_messages.h"

namespace manta::node {

// What Actors needs of other nodes.
class ActorsElsewhere {
 public:
  virtual ~ActorsElsewhere() = default;
  // Looks for a node for it. False: it is to wait in this node's queue.
  virtual bool Place(const Id& actor) = 0;
  virtual void StopPlacing(const Id& actor) = 0;
  virtual void Stop(NodeNumber host, const wire::FarStopActor& order) = 0;
  virtual void Tell(NodeNumber node, const wire::FarActorState& state) = 0;
  // A process of this node wants to call an actor that runs on another; it is told when it may.
  virtual void Attach(ProcessId caller, const Id& actor, NodeNumber host, std::uint32_t epoch) = 0;
  // For good. Its name is free, and its job may be over.
  virtual void Died(const Id& actor, const wire::ActorOptions& options, const Id& job) = 0;
  // Is it to outlive this node (node/kept_actors.h)? Then what it does is kept before anybody sees an answer.
  virtual bool Keeps(const Id& actor) = 0;
  virtual void Keep(const Id& actor, std::uint32_t epoch, const std::vector<JournalPart>& parts,
                    std::function<void(const Status&)> done) = 0;
};

class Actors {
 public:
  // Of an actor's life that began somewhere.
  struct Order {
    wire::ActorOptions options;
    std::string spec;
    ProcessId owner = kNoProcess;
    Id job;
    std::uint32_t epoch = 0;
    NodeNumber wanted = 0;  // where it was, or its creator is
  };

  Actors(Peers& peers, WorkerPool& pool, Leases& leases, Directory& directory);

  void Create(Peer& peer, std::uint64_t call, const wire::CreateActor& message);
  void Ready(Peer& peer, const wire::ActorReady& message);
  void Failed(Peer& peer, const wire::ActorFailed& message);
  void Keeps(Peer& peer, const wire::ActorKeeps& message);
  void Attach(Peer& peer, const wire::AttachActor& message);
  void Kill(Peer& peer, const wire::KillActor& message);
  void Find(Peer& peer, std::uint64_t call, const wire::FindActor& message);
  void ListNames(const Peer& peer, std::uint64_t call, const wire::ListNames& message) const;

  // Of a worker with an actor; its lease is ended here. `current`: the call that it was in, kConstructing, or 0.
  void WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current);
  void ProcessDied(ProcessId process);
  // Ends the job's actors. Their workers are the caller's to end: idle ones may flush what they printed.
  void JobEnded(const Id& job, bool detached_too);
  // Where actors of placement groups wait, and who knows what this node is.
  void UsePlacer(Placer& placer) { placer_ = &placer; }

  // Nobody has a handle any more. False: this is no actor.
  bool HandlesGone(const Id& actor);

  // ---- in a cluster ----

  void SetNode(NodeNumber self) { self_ = self; }
  // What becomes of leases of actors that are at home elsewhere.
  struct GuestEvents {
    Leases::OnActorGranted granted;
    Leases::OnActorEvicted evicted;
  };
  void Join(ActorsElsewhere& elsewhere, GuestEvents guests) {
    elsewhere_ = &elsewhere;
    guest_events_ = std::move(guests);
  }
  // As Create, for a creator anywhere, which is held by the caller. The name is the head's to give: none is checked.
  Result<Id> Make(const wire::CreateActor& message, ProcessId creator, const Id& job);
  // One whose home is lost, in its life `epoch`, with what it has done.
  Status Adopt(const wire::CreateActor& message, ProcessId creator, const Id& job, std::uint32_t epoch,
               base::Fd journal, const std::string& why);
  // The living actor's options, for who is about to hold it; kNotFound.
  Result<wire::ActorOptions> Get(const Id& actor);
  // Of a named one that is at home here.
  Result<Id> FindHere(const std::string& name, const std::string& space) { return table_.Find(name, space); }
  void Kill(const Id& actor, bool restart);
  // What to start; nothing if it does not wait for a place.
  [[nodiscard]] std::optional<Order> Waiting(const Id& actor) const;
  void WaitHere(const Id& actor);  // in this node's queue
  // It has a worker there. False: it does not wait for one (any more).
  bool PlacedOn(const Id& actor, NodeNumber host, std::uint32_t epoch);
  void ReadyOn(NodeNumber host, const wire::FarActorReady& message);
  void FailedOn(NodeNumber host, const wire::FarActorFailed& message);
  // `exact`: `token` is the call that it died in.
  void DiedOn(NodeNumber host, const wire::FarActorDied& message, bool exact);
  void CouldNotStart(const Id& actor, const Failure& why, bool for_good);
  // What has become of its journal there. False: it does not run there.
  bool TakeCopy(NodeNumber host, const wire::FarJournal& message);
  // Calls back when what is to outlive this node does: at once, if nothing is.
  void Keep(const Id& actor, const std::vector<JournalPart>& parts, std::function<void(const Status&)> done);
  // Of an actor that runs here.
  void Copy(Peer& peer, std::uint64_t call, const wire::CopyJournal& message);
  [[nodiscard]] bool Knows(const Id& actor) const { return records_.contains(actor); }
  // For the node where it will run; nullptr: there is none.
  [[nodiscard]] const base::Fd* JournalOf(const Id& actor) const;
  // Another node has callers of it; it is told what it is.
  void Watch(NodeNumber node, const Id& actor);
  // Processes of this node that watched one which is at home here now.
  void Watch(const Id& actor, rules::ActorWatchers watchers);
  void NodeDown(NodeNumber node, const std::string& why);
  // That runs here and is ready; nullptr: none.
  [[nodiscard]] Worker* WorkerOf(const Id& actor, std::uint32_t epoch) const;
  [[nodiscard]] std::size_t elsewhere() const;  // of those that live, on other nodes

  // ---- another home, because this node leaves (moving_homes.cc) ----

  // Those that are kept, run, and would lose nothing but their process. `place`: is there another node that can have
  // it?
  [[nodiscard]] std::vector<Id> MayMove(const std::function<bool(const wire::ActorOptions&)>& place) const;
  // Ends its process and starts no other; calls back when that is gone.
  void Hold(const Id& actor, const Failure& why, std::function<void()> stopped);
  // Of one that was held: it was killed for good meanwhile, or cannot come back.
  void Bury(const Id& actor, const Failure& why);
  // Of one that was held: it is at home elsewhere. Who is to know that:
  struct Moved {
    wire::ActorOptions options;
    Id job;
    rules::ActorWatchers watchers;
    std::set<NodeNumber> nodes;
  };
  Moved Move(const Id& actor);

  [[nodiscard]] bool IsDetached(const Id& actor) const;
  [[nodiscard]] bool HasDetached(const Id& job) const;
  [[nodiscard]] std::size_t living() const { return table_.living(); }
  [[nodiscard]] std::uint64_t calls_replayed() const { return calls_replayed_; }
  // As living actors are called in messages: "actor Counter 3fa9".
  [[nodiscard]] std::string Describe(const Id& actor) const;

 private:
  struct Caller {
    std::uint64_t queue = 0;
    std::uint64_t lane = 0;
  };
  struct Record {
    wire::ActorOptions options;
    std::string spec;
    std::vector<Id> args;  // what the spec has Refs to
    std::vector<ProcessId> arg_owners;
    base::Fd journal;  // what outlives its process (shm/journal.h); none: nothing does
    ProcessId owner = kNoProcess;
    Id job;
    std::uint64_t lease = 0;
    std::vector<std::uint32_t> gpus;
    std::uint64_t acquiring = 0;
    Worker* worker = nullptr;
    NodeNumber host = 0;      // where its worker is, if that is not this node
    std::uint32_t epoch = 0;  // of that worker
    NodeNumber wanted = 0;
    ProcessId far_worker = kNoProcess;
    std::uint64_t died_in = 0;            // the call, …
    bool exact = true;                    // … if that is known
    std::set<NodeNumber> nodes;           // with processes that attached
    bool held = false;                    // it is about to move
    std::function<void()> stopped;        // of its process, if it is held
    int false_starts = 0;                 // in a row
    rules::ActorWatchers watchers;        // who created or attached
    std::map<ProcessId, Caller> callers;  // of the current process only
  };

  void Perform(const rules::ActorActions& actions);
  void RequestLease(const Id& actor);
  void GiveUp(const Id& actor, const Failure& why);
  // Its bundle is taken away.
  void Evict(const Id& actor, const Failure& why);
  [[nodiscard]] Status CheckHere(const Strategy& strategy, const std::string& who) const;
  void Granted(const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus);
  void Place(const Id& actor, Worker* worker, const Status& why);
  void Introduce(const Id& actor, const Record& record, ProcessId caller, const Caller& at);
  [[nodiscard]] wire::FarActorState StateOf(const Id& actor, const Record& record, wire::ActorPhase phase,
                                            const Failure& failure) const;
  [[nodiscard]] Record* HostedOn(const Id& actor, NodeNumber host, std::uint32_t epoch);
  void Notify(const Id& actor, Record& record, const rules::Notify& notify);
  void TellGone(const Id& actor, const Record& record);
  void ReturnLease(Record& record);
  static void Stopped(Record& record);
  // Forgets what the table has forgotten.
  void Tidy(const Id& actor);

  Peers& peers_;
  WorkerPool& pool_;
  Leases& leases_;
  Directory& directory_;
  rules::ActorTable table_;
  std::unordered_map<Id, Record> records_;
  Placer* placer_ = nullptr;
  bool leave_workers_ = false;  // inside JobEnded
  bool leaving_ = false;        // this node: nothing begins any more
  std::uint64_t calls_replayed_ = 0;
  NodeNumber self_ = 0;
  ActorsElsewhere* elsewhere_ = nullptr;  // this is the only node
  GuestEvents guest_events_;
};

}  // namespace manta::node
