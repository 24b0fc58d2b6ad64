// Guests are the actors that run on this node and are at home on another (node/actors.h). Their home says when they
// begin and end; here they get their resources, their worker, and their callers.
//
//   Start --program and resources are here--> starting --ready--> serves callers --> dead, which the home is told
//
// When the connection to its home ends, a guest's worker is killed: the home starts another elsewhere.
//
// What outlives a guest's process (shm/journal.h) has a copy at its home, which is brought up to date before an answer
// leaves this node, and whole when the process dies. One that comes back, here or elsewhere, comes with that copy.
//
// It also lets callers of other nodes in, to guests and to the actors that are at home here: the caller's node asks,
// the worker is told whom to expect, and says where it waits.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "node/actors.h"
#include "node/cluster.h"
#include "node/far_leases.h"
#include "node/leases.h"
#include "node/peers.h"
#include "node/placer.h"
#include "node/worker_pool.h"
#include "wire/cluster_messages.h"
#include "wire/journal_messages.h"

namespace manta::node {

class Guests {
 public:
  Guests(Cluster& cluster, Peers& peers, WorkerPool& pool, Leases& leases, FarLeases& far_leases, Placer& placer,
         Actors& actors);
  ~Guests();
  Guests(const Guests&) = delete;
  Guests& operator=(const Guests&) = delete;

  void Granted(const Id& actor, std::uint64_t lease, const std::vector<std::uint32_t>& gpus);
  // The node is being drained: those that go on elsewhere as if nothing had happened end here.
  void MoveAway();
  // Its bundle is taken away.
  void Evict(const Id& actor, const Failure& why);

  // False, of these: it is no guest's.
  bool Ready(const Peer& peer, const wire::ActorReady& message);
  bool Failed(const Peer& peer, const wire::ActorFailed& message);
  void Copy(Peer& peer, std::uint64_t call, const wire::CopyJournal& message);
  bool WorkerDied(Worker& worker, const Failure& failure, std::uint64_t current);

  // A process of this node calls a guest. False: it does not run here, or not yet.
  bool Introduce(const Id& actor, std::uint32_t epoch, ProcessId caller, std::uint64_t queue, std::uint64_t lane);
  // The worker says where it waits for a caller of another node.
  void FarReady(const Peer& peer, const wire::FarReady& message);

  [[nodiscard]] NodeNumber HomeOf(const Id& actor) const;  // 0: it is no guest
  [[nodiscard]] std::size_t size() const { return guests_.size() + ending_; }

 private:
  struct Guest {
    NodeNumber home = 0;
    wire::FarStartActor order = {};
    std::uint64_t lease = 0;
    std::vector<std::uint32_t> gpus = {};
    std::uint64_t acquiring = 0;
    Worker* worker = nullptr;
    bool ready = false;
    bool moving = false;
    base::Fd journal = {};
  };
  struct Brought {
    NodeNumber home = 0;
    std::uint32_t epoch = 0;
    base::Fd journal;
  };
  struct Coming {  // a caller that a worker was told to expect
    Id actor;
    std::uint32_t epoch = 0;
    ProcessId caller = kNoProcess;
    ProcessId worker = kNoProcess;
  };

  void Start(NodeNumber from, const wire::FarStartActor& message);
  void Bring(NodeNumber from, const wire::FarJournal& message, std::uint64_t call);
  void BringForStart(NodeNumber from, const wire::FarJournal& message);
  void Refuse(NodeNumber to, const wire::FarStartActor& message, bool bounced, const Status& why);
  void Place(const Id& actor, std::uint32_t epoch, Worker* worker, const Status& why);
  void Stop(NodeNumber from, const wire::FarStopActor& message);
  void Attach(NodeNumber from, const wire::FarAttachActor& message);
  void NodeDown(NodeNumber node, const Status& why);
  [[nodiscard]] Guest* Find(const Id& actor, std::uint32_t epoch);
  // What it waits for, or has, goes back; its worker is the caller's.
  void GiveBack(const Id& actor, Guest& guest);

  Cluster& cluster_;
  Peers& peers_;
  WorkerPool& pool_;
  Leases& leases_;
  FarLeases& far_leases_;
  Placer& placer_;
  Actors& actors_;
  std::unordered_map<Id, Guest> guests_;
  std::size_t ending_ = 0;                   // dead, and their homes are not told yet
  std::map<std::uint64_t, Coming> coming_;   // by pass
  std::unordered_map<Id, Brought> brought_;  // journals of guests that will be started next
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
