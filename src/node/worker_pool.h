// WorkerPool has the node's workers: it forks them (through one fork server per job), keeps idle ones,
// most recently used first, and sees them die.
//
// Pools are per job, not per program: two drivers of one program differ in arguments, environment and
// working directory, and a worker shows its statics those of its driver.
//
//   kStarting --Hello--> kIdle <--Release/Acquire--> kTaken --> gone
// kTaken: serves a lease or is an actor. A worker in any state may die; kLeaving ones were told to.
//
// A worker is gone when the fork server said how it ended (mostly within a millisecond), or when its
// socket closed, it was killed for that, and still nothing was said. Before `died` is called, everything it sent and
// printed has been read.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/loop.h"
#include "node/fork_server.h"
#include "node/output.h"
#include "node/peers.h"
#include "types/failure.h"
#include "types/id.h"

namespace manta::node {

struct Worker {
  enum class State { kStarting, kIdle, kTaken, kLeaving, kGone };

  std::uint64_t ticket = 0;
  Id job;
  State state = State::kStarting;
  std::uint32_t pid = 0;
  base::Fd pidfd;
  Peer* peer = nullptr;
  std::unique_ptr<ProcessOutput> output;
  std::int64_t idle_since_us = 0;
  // What it does while kTaken.
  std::uint64_t lease = 0;  // also an actor's
  Id actor;                 // empty: none
  // How it ends.
  Failure kill_failure;  // why the daemon or an owner had it killed; ok: nobody did
  std::optional<int> exit_status;
  bool orphan = false;       // its fork server is gone: nobody will say how it ended
  bool was_running = false;  // when it died: for the message
  base::Loop::TimerId timer = 0;

  [[nodiscard]] ProcessId process() const { return peer == nullptr ? kNoProcess : peer->process; }
};

class WorkerPool {
 public:
  struct Events {
    Peers::OnFrame frame;
    // The last word on a worker, which is destroyed afterwards.
    std::function<void(Worker& worker, const Failure& failure)> died;
    std::function<void(const Id& job, std::vector<wire::LogLine> lines)> lines;
    std::function<bool(const Id& job)> ready;  // for more lines
    // Is it running something? May the idle one go (it owns nothing)?
    std::function<bool(const Worker& worker)> running;
    std::function<bool(const Worker& worker)> dispensable;
  };
  struct Limits {
    std::size_t idle = 1;                // idle workers kept for good
    std::int64_t idle_us = 1'000'000;    // others go after this
    std::int64_t start_us = 30'000'000;  // for a worker to say Hello
    std::int64_t status_us = 1'000'000;  // between a socket's end and its process's: a core may be dumped
  };
  // Exactly one of the two: a worker, now kTaken, or why there is none.
  using OnWorker = std::function<void(Worker* worker, const Status& why)>;

  WorkerPool(base::Loop& loop, Peers& peers, Limits limits, Events events);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  void AddJob(const Id& job, Program program);
  // Ends its fork server, and with it whatever is left of its workers.
  void RemoveJob(const Id& job);
  // Has `count` workers, at least, idle or on their way.
  void Prestart(const Id& job, std::size_t count);

  // Calls back at once (returns 0) or later (returns a ticket to cancel it with). An unknown job fails.
  std::uint64_t Acquire(const Id& job, OnWorker on_worker);
  void Cancel(const Id& job, std::uint64_t ticket);
  void Release(Worker& worker);

  // It has said Hello.
  void Started(Worker& worker);
  // Asks it to leave; it finishes what it runs.
  void Leave(Worker& worker);
  // The first failure given is the one that `died` tells.
  void Kill(Worker& worker, const Failure& failure);
  // Tells it to stop (SIGSTOP), and whether it stands still already. If not, ask again: a process that waits for a
  // core, or in the kernel, stops when it comes out. Undone by SIGCONT, also before it has stopped.
  bool Stop(const Worker& worker) const;
  void Signal(const Worker& worker, int number) const;
  // All processes of this node but drivers: SIGSTOP, SIGCONT. One that is just being forked does nothing unasked.
  void SignalAll(int number) const;

  [[nodiscard]] Worker* FindByProcess(ProcessId process) const;
  [[nodiscard]] std::vector<Worker*> OfJob(const Id& job) const;
  [[nodiscard]] std::size_t size() const { return workers_.size(); }

 private:
  struct Waiting {
    std::uint64_t ticket = 0;
    OnWorker on_worker;
  };
  struct Job {
    Id id;
    Program program;
    std::unique_ptr<ForkServer> server;
    std::vector<std::unique_ptr<ForkServer>> dead;  // destroyed from the loop, not from their own callback
    std::list<Worker*> idle;                        // most recently used first
    std::deque<Waiting> waiting;
    std::size_t starting = 0;
    int failures = 0;       // to start, in a row
    int kills = 0;          // of starting processes from outside, in a row
    bool retrying = false;  // a timer or a caller will start workers: nobody else may
    bool proven = false;    // its fork server has brought up a worker
  };

  Status Spawn(Job& job);
  Status StartServer(Job& job);
  void SpawnForWaiting(Job& job);
  void Hand(Job& job, Worker& worker);
  void FailWaiting(Job& job, const Status& why);
  // After kMaxFailures in a row all that wait fail. A start that was `killed` from outside says nothing about the
  // program, so it is tried again after a growing pause, without limit.
  void StartFailed(Job& job, const Status& why, bool killed);
  void SpawnLater(Job& job, std::int64_t after_us);
  void OnForked(const Id& job, const wire::Forked& message);
  void OnExited(const Id& job, const wire::Exited& message);
  void OnServerDied(const Id& job, const Status& why, bool killed);
  void OnClosed(Worker& worker, const Status& why);
  void Finish(Worker& worker);
  [[nodiscard]] Failure Explain(const Worker& worker);
  [[nodiscard]] std::string WantOfMemory(const Worker& worker);  // empty: that was not the reason
  void Trim();
  void ArmTrim();
  [[nodiscard]] Job* FindJob(const Id& job);

  base::Loop& loop_;
  Peers& peers_;
  const Limits limits_;
  const Events events_;
  std::uint64_t next_ticket_ = 1;
  std::unordered_map<Id, std::unique_ptr<Job>> jobs_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Worker>> workers_;  // by ticket
  std::size_t idle_count_ = 0;
  base::Loop::TimerId trim_timer_ = 0;
  std::uint64_t memory_kills_ = 0;                  // by the kernel, as last seen
  std::int64_t memory_killed_us_ = -3'600'000'000;  // when there were more of them
};

}  // namespace manta::node
