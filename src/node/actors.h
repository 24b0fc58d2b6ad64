// Actors carries out what rules::ActorTable decides: gets an actor its resources and its worker, starts
// it there, introduces its callers to it, and tells everybody concerned what becomes of it.
#pragma once

#include <cstdint>
#include <map>
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
#include "wire/messages.h"

namespace manta::node {

class Actors {
 public:
  Actors(Peers& peers, WorkerPool& pool, Leases& leases, Directory& directory);

  void Create(Peer& peer, std::uint64_t call, const wire::CreateActor& message);
  void Ready(Peer& peer, const wire::ActorReady& message);
  void Failed(Peer& peer, const wire::ActorFailed& message);
  void Attach(Peer& peer, const wire::AttachActor& message);
  void Kill(Peer& peer, const wire::KillActor& message);
  void Find(Peer& peer, std::uint64_t call, const wire::FindActor& message);

  // Of a worker with an actor; its lease is ended here. `begun`: its constructor, at least.
  void WorkerDied(Worker& worker, const Failure& failure, bool begun);
  void ProcessDied(ProcessId process);
  // Ends the job's actors. Their workers are the caller's to end: idle ones may flush what they printed.
  void JobEnded(const Id& job, bool detached_too);
  // Where actors of placement groups wait, and who knows what this node is.
  void UsePlacer(Placer& placer) { placer_ = &placer; }

  // Nobody has a handle any more. False: this is no actor.
  bool HandlesGone(const Id& actor);

  [[nodiscard]] bool IsDetached(const Id& actor) const;
  [[nodiscard]] bool HasDetached(const Id& job) const;
  [[nodiscard]] std::size_t living() const { return table_.living(); }
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
    ProcessId owner = kNoProcess;
    Id job;
    std::uint64_t lease = 0;
    std::vector<std::uint32_t> gpus;
    std::uint64_t acquiring = 0;
    Worker* worker = nullptr;
    int false_starts = 0;                 // in a row
    std::set<ProcessId> watchers;         // who created or attached
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
  void Introduce(const Record& record, ProcessId caller, const Caller& at);
  void Notify(const Id& actor, Record& record, const rules::Notify& notify);
  void TellGone(const Id& actor, const Record& record);
  void ReturnLease(Record& record);
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
};

}  // namespace manta::node
