// Daemon is a node: it listens, welcomes processes and passes each message to whom it concerns.
//
//   Peers       who is connected              Leases     which worker serves which queue
//   WorkerPool  processes of this node        Actors     dedicated workers and their callers
//   Directory   objects that left their owner Keeper     the memory of large objects
//   Groups      bundles set aside             Placer     which node for whom
//   LineageKeeper  what jobs with a name did, on disk
//
// One thread, one loop, and no state outside these. A private daemon lives as long as its driver's
// connection; any other until Shutdown (SIGTERM).
//
// A node of a cluster (Config::cluster) also has
//   Cluster     its membership, and links to the other nodes
//   FarLeases   workers there for owners here, and the other way round
//   FarActors   actors there for callers here; Guests, the other way round
//   Programs    executables on their way between nodes
// It numbers its processes under its node's number, and ends all it runs when it is cut off.
//
// A job is a driver and everything started for it; on another node than the driver's, what was started there. When the
// driver leaves (Goodbye) or dies, its workers end: those that run something at once, idle ones after they flushed what
// they printed. What serves a detached actor stays; in a cluster that is a job of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "node/actors.h"
#include "node/cluster.h"
#include "node/directory.h"
#include "node/far_actors.h"
#include "node/far_leases.h"
#include "node/far_nodes.h"
#include "node/groups.h"
#include "node/guests.h"
#include "node/leases.h"
#include "node/lineage_keeper.h"
#include "node/peers.h"
#include "node/placer.h"
#include "node/programs.h"
#include "node/quotas.h"
#include "node/transfers.h"
#include "node/worker_pool.h"
#include "shm/node_area.h"
#include "store/keeper.h"
#include "wire/local_listener.h"

namespace manta::node {

struct Config {
  std::string node = "n1";
  std::string address;  // "@name" of an abstract Unix socket; empty: @manta-<uid>-<pid>
  Resources total;
  std::uint64_t store_bytes = 1ULL << 30;
  std::string spill_folder;  // empty: none
  std::uint64_t spill_limit = ~0ULL;
  std::uint64_t lineage_memory = 256ULL << 20;  // of each process; see wire::Welcome
  std::string state_folder;                     // where jobs with a name have their folders; empty: they are refused
  int private_fd = -1;                          // connection of the one driver this daemon lives for
  WorkerPool::Limits pool;                      // `idle` is set from the CPUs
  ClusterConfig cluster;
  std::map<std::string, std::string> labels;
  std::int64_t infeasible_us = 0;     // that a request which no node of the cluster can hold waits for one that can
  Resources job_quota;                // the most that a job may have; of a cluster, its head says so
  std::int64_t join_us = 10'000'000;  // for the head to answer
  // That a driver which resumes a job waits for the end of the one before, which may not have been noticed yet.
  std::int64_t resume_us = 10'000'000;
};

class Daemon {
 public:
  // Listens, or says why not (the address is taken, …).
  static Result<std::unique_ptr<Daemon>> Create(Config config);
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until the driver of a private daemon leaves, or Shutdown.
  void Run() { loop_->Run(); }
  // Ends every job; then Run returns.
  void Shutdown();

  [[nodiscard]] base::Loop& loop() { return *loop_; }
  [[nodiscard]] const std::string& address() const { return config_.address; }
  // Why the node had to end, cut off from its cluster; empty: nothing of that sort.
  [[nodiscard]] const std::string& fenced() const { return fenced_; }
  [[nodiscard]] Cluster* cluster() { return cluster_.get(); }  // nullptr: a node on its own

  // ---- objects of other nodes (far_messages.cc) ----

  // This is the node `nodes.self()` of a cluster: before the first process is welcomed. `nodes` lives until
  // StopSharing.
  Status ShareObjects(FarNodes& nodes, TransferOptions options);
  // `nodes` is no longer used; for the end.
  void StopSharing();
  // The kinds of messages between nodes that are about objects, and what they do. A failure ends the connection.
  [[nodiscard]] static std::vector<wire::Kind> ObjectKinds();
  Status OnObjectFrame(NodeNumber from, const wire::Frame& frame);
  void ObjectsNodeDown(NodeNumber node, const std::string& why);
  // nullptr: the only node.
  [[nodiscard]] Transfers* transfers() { return transfers_.get(); }

 private:
  struct Job {
    Id id;
    wire::JobFacts facts;
    bool far = false;               // the driver is on another node
    std::string space = "default";  // of actor names
    std::string program = {};       // for messages
    Resources quota = {};           // what it may have at a time, on all nodes; empty: all
    Id output_job;                  // of a detached actor: its creator's, to whose driver …
    NodeNumber output_node = 0;     // … on this node goes what it prints
    ProcessId driver = kNoProcess;  // kNoProcess: far, or gone and only detached actors are left
    std::uint64_t goodbye = 0;      // call to answer when its workers are gone
    bool resumed = false;           // it goes on with an earlier run
    bool ending = false;
    bool leaving_scheduled = false;
    base::Loop::TimerId timer = 0;
  };

  Daemon(Config config, std::unique_ptr<base::Loop> loop, shm::NodeArea area);

  // daemon.cc: who is there
  Status Listen();
  void Accept(base::Fd socket);
  void OnFrame(Peer& peer, wire::Frame& frame);
  void OnClosed(Peer& peer, const Status& why);
  void Hello(Peer& peer, wire::Frame& frame);
  // *job_lives: a job of that name has not ended, and nothing has changed; `fds` are only then still good.
  Status Join(Peer& peer, const wire::Hello& hello, std::vector<base::Fd>& fds, bool* job_lives);
  void Refuse(Peer& peer, std::uint64_t call, const Status& why);
  void ProcessGone(Peer& peer, const std::string& who);
  void EndRound();

  // membership.cc: as a node of a cluster
  Status JoinCluster();
  void NodeChanged(const wire::NodeFacts& node);
  void Fenced(bool stop, const std::string& why);
  void Drain();
  void LeaveWhenDrained();
  // What is stored here for owners of other nodes goes to them; then the node leaves.
  void MoveObjects();
  void Adopt(NodeNumber from, std::uint64_t call, const wire::FarAdopt& message);
  ProcessId StandIn();
  void StandInGone(ProcessId stand_in);
  void AddFarJob(const wire::JobFacts& facts, base::Fd executable);
  void AddDetachedJob(const Id& id, const wire::JobFacts& creators, base::Fd executable);
  static Program ProgramOf(const wire::JobFacts& facts, base::Fd executable);
  bool EndFarJob(const Id& id);
  void SendLines(const Id& job, std::vector<wire::LogLine> lines);
  [[nodiscard]] bool ReadyForLines(const Id& job) const;
  void FillWelcome(const Peer& peer, wire::Welcome* welcome) const;

  // messages.cc: what they say
  void Dispatch(Peer& peer, wire::Frame& frame);
  void SegmentRequest(Peer& peer, std::uint64_t call, const wire::SegmentRequest& message);
  void OpenSegment(Peer& peer, std::uint64_t call, const wire::OpenSegment& message);
  void Restore(Peer& peer, std::uint64_t call, const wire::Restore& message);
  void Fetch(Peer& peer, std::uint64_t call, const wire::Fetch& message);
  void FreeObjects(const std::vector<Id>& objects, const std::vector<Place>& places);
  // May somebody still ask for an object whose owner is gone?
  [[nodiscard]] bool Needed(const Id& id) const { return directory_.Known(id) || (transfers_ && transfers_->Kept(id)); }
  void KillWorker(Peer& peer, const wire::KillWorker& message);
  void KillWorkerOf(ProcessId owner, const wire::KillWorker& message);
  void KillInCall(ProcessId owner, const wire::KillWorker& message, int tries);
  void StatusRequest(Peer& peer, std::uint64_t call);
  void MemoryRequest(Peer& peer, std::uint64_t call);
  void ListNodes(Peer& peer, std::uint64_t call, bool all);
  void ListNames(Peer& peer, std::uint64_t call, const wire::ListNames& message);
  void CreateGroup(Peer& peer, std::uint64_t call, const wire::CreateGroup& message);

  // jobs.cc: how a job ends
  void AddJob(Peer& peer, const wire::Hello& hello, base::Fd executable);
  // Its folder, if it has a name; *id: the job's that it goes on with.
  Status OpenLineage(const wire::Hello& hello, Id* id, bool* resumed, bool* job_lives);
  void WorkerDied(Worker& worker, const Failure& failure);
  void EndJob(Job& job);
  void CheckJob(const Id& id);
  void JobGone(const Id& id);
  void StopWhenSent(std::int64_t deadline_us);
  // Does it run for the sake of a detached actor?
  [[nodiscard]] bool Kept(const Worker& worker) const;
  [[nodiscard]] bool IsRunning(const Worker& worker) const;
  [[nodiscard]] bool JobIsEnding(const Id& id) const;
  [[nodiscard]] const Resources& MostForAJob() const;
  [[nodiscard]] Resources QuotaOfJob(const Id& id) const;

  Config config_;
  std::int64_t started_us_ = 0;
  std::unique_ptr<base::Loop> loop_;
  mutable shm::NodeArea area_;
  Peers peers_;
  WorkerPool pool_;
  Leases leases_;
  Quotas quotas_;
  Directory directory_;
  Actors actors_;
  Groups groups_;
  Placer placer_;
  store::Keeper keeper_;
  LineageKeeper lineage_;
  FarNodes* nodes_ = nullptr;         // nullptr: this is the only one
  std::unique_ptr<FarNodes> linked_;  // the cluster's, if nodes_ are those
  std::unique_ptr<Transfers> transfers_;
  std::unordered_map<Id, Job> jobs_;
  std::unique_ptr<wire::LocalListener> listener_;
  bool ending_ = false;
  bool rouse_ = false;              // a process has died in this round
  std::uint64_t private_peer_ = 0;  // its serial
  std::uint64_t finished_ = 0;      // tasks that processes ran which are gone
  std::string fenced_;
  base::Loop::TimerId drain_timer_ = 0;
  bool moving_ = false;                                                 // what the store has for others
  std::size_t movers_ = 0;                                              // nodes that fetch it
  std::unordered_map<ProcessId, std::unique_ptr<std::byte[]>> boards_;  // pin boards of stand-ins
  std::unique_ptr<Cluster> cluster_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<FarLeases> far_;
  std::unique_ptr<Guests> guests_;
  std::unique_ptr<FarActors> far_actors_;
  base::Loop::TimerId keeper_timer_ = 0;
  std::int64_t keeper_due_us_ = -1;
};

}  // namespace manta::node
