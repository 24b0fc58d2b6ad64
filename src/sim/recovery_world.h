// RecoveryWorld is the cluster of sim/recovery_run.h, for its own sources only:
//   recovery_world.cc    time, processes, links, faults, the end
//   recovery_node.cc     the head and the daemons: membership, leases, stores, references
//   recovery_owner.cc    what a process does that submits tasks: lanes, values, rebuilding
//   recovery_actors.cc   actors: their home, their journals, their callers
//   recovery_program.cc  what the driver, tasks and methods do, and what must come out
//
// How processes talk. Messages between two processes arrive in the order in which they were sent, each after a delay of
// its own; between different pairs they overtake each other. Those of a node's processes to their daemon lie in its
// sockets until it reads them, also when the sender is dead by then. Two nodes have one link for all their processes;
// when it breaks, what is under way is lost, both sides learn it, each in its time, and to each the other is then as
// good as dead. A process that dies takes all it knew with it; what survives is what its daemon has.
#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/actor_replay.h"
#include "rules/actor_table.h"
#include "rules/lease_queue.h"
#include "rules/membership.h"
#include "rules/references.h"
#include "rules/retry.h"
#include "sim/random.h"
#include "sim/recovery_run.h"
#include "sim/timeline.h"

namespace manta::sim {

using Then = std::function<void()>;
using ThenValue = std::function<void(std::uint64_t value)>;

enum class TaskKind : std::uint8_t { kLeaf, kTree, kCaller, kBorrower };

struct TaskSpec {
  Id id;
  TaskKind kind = TaskKind::kLeaf;
  std::uint64_t seed = 0;
  std::vector<Id> inputs;   // by value
  std::uint32_t depth = 0;  // of a tree
  std::uint32_t actor = 0;  // of a caller: the first that it calls
  std::uint32_t calls = 0;
  Id lent;             // of a borrower
  bool large = false;  // its value lies in a store
  bool rerun = false;
};

enum class Method : std::uint8_t { kAdd, kForward, kRead };

struct ActorCall {
  Id id;
  Id origin;  // the task, call or driver that makes it
  std::uint32_t actor = 0;
  Method method = Method::kAdd;
  std::uint64_t amount = 0;
  std::uint32_t to = 0;       // kForward: the actor that is told, too
  std::int32_t limit = -1;    // of retries after deaths in it; negative: none
  std::int32_t retries = -1;  // of these, those that are left
  bool rerun = false;
  bool begun = false;
  bool once = false;

  [[nodiscard]] std::uint64_t Digest() const {
    return Mix(amount * 31 + static_cast<std::uint64_t>(method) * 7 + to + 1);
  }
};

// Where a large value lies.
struct Spot {
  NodeNumber node = 0;
  std::uint64_t serial = 0;
};

// What a task answered.
struct TaskResult {
  std::uint64_t value = 0;
  Spot spot;  // serial 0: the value itself came
  Id lost;    // not empty: this input is nowhere, and the task has not begun
};

// One value of an owner, and the task that makes it.
struct OwnedValue {
  TaskSpec spec;
  bool done = false;
  bool missing = false;  // done, and not where it was
  bool escaped = false;  // the daemon counts holders
  bool kept = false;     // its task can run again, and holds its inputs' lineage
  std::uint64_t value = 0;
  Spot spot;
  std::uint64_t holds = 0;  // as SimNode::owner_holds will be
  std::uint32_t refs = 0;
  std::uint32_t lineage = 0;  // of those made from it
  std::uint32_t rebuilds = 0;
  std::uint32_t got = 0;      // since it was last sent
  std::uint32_t lacking = 0;  // inputs
  bool waits = false;         // for a worker
  std::vector<std::uint32_t> dependents;
  std::vector<Then> waiters;
};

struct Lane {
  NodeNumber node = 0;
  std::uint32_t task = 0;   // 0: idle
  std::uint64_t since = 0;  // counts uses, to see whether it was idle all the time
};

struct Owning {
  std::map<std::uint32_t, OwnedValue> values;
  std::unordered_map<Id, std::uint32_t> by_id;
  std::uint32_t last = 0;
  std::deque<std::uint32_t> queue;
  std::map<ProcessId, Lane> lanes;            // by worker
  std::map<std::uint64_t, NodeNumber> asked;  // requests for leases
  std::uint64_t last_request = 0;
};

// A caller's side of one actor.
struct ActorLine {
  bool attached = false;
  ProcessId worker = kNoProcess;  // none: it is not there, as far as is known
  std::uint32_t epoch = 0;
  struct Pending {
    ActorCall call;
    bool sent = false;
    ThenValue then;
  };
  std::deque<Pending> pending;
};

struct Journal {
  bool has_state = false;
  std::uint64_t state = 0;
  struct Record {
    ActorCall call;
    std::uint64_t answer = 0;
  };
  std::vector<Record> calls;  // since the state
  std::vector<Record> answers;
};

// What makes a process an actor.
struct Acting {
  std::uint32_t actor = 0;
  std::uint32_t epoch = 0;
  bool ready = false;
  bool busy = false;
  bool copied = true;  // its home has all of the journal
  std::uint64_t state = 0;
  rules::ActorReplay replay;
  struct Arrived {
    ProcessId caller = kNoProcess;
    ActorCall call;
    std::uint64_t link = 0;  // the epoch of the link by which it came, and by which its answer goes, or not at all
    bool refused = false;
  };
  Id running;           // the call that it dies in, if it does
  bool doomed = false;  // it will, in the next
  std::deque<Arrived> queue;
};

struct Process {
  ProcessId pid = kNoProcess;
  std::uint64_t lease = 0;
  ProcessId serves = kNoProcess;  // of a worker: whose tasks
  bool busy = false;
  bool blocked = false;
  bool short_of_cpus = false;  // it resumed with less than it asked for, which the rules allow
  bool leaving = false;
  std::optional<TaskSpec> task;
  std::vector<std::uint64_t> inputs;
  std::uint32_t souvenirs = 0;  // Refs that it keeps for a while after its answer
  Then resume;
  std::map<std::uint64_t, std::pair<NodeNumber, ThenValue>> fetches;  // what is asked of other nodes' stores
  std::map<std::uint64_t, ThenValue> reads;                           // what is asked of owners
  std::map<std::uint64_t, Then> holds;                                // not yet known at home
  std::uint64_t last_question = 0;
  Owning owning;
  std::map<std::uint32_t, ActorLine> lines;
  std::unique_ptr<Acting> acting;
};

// An actor on a node, which has its journal for as long as the node lives.
struct Guest {
  std::uint32_t epoch = 0;
  std::uint64_t request = 0;
  std::uint64_t lease = 0;
  ProcessId pid = kNoProcess;
  Journal journal;
};

// An actor at its home, which is the driver's node.
struct ActorHome {
  Id id;
  std::uint64_t every_calls = 0;  // a checkpoint; 0: it cannot be saved
  NodeNumber host = 0;            // that was asked, or has it
  std::uint32_t epoch = 0;
  ProcessId pid = kNoProcess;
  // How the last one died.
  bool exact = false;
  Id died_in;
  Journal copy;
  std::set<ProcessId> callers;
};

struct Stored {
  Id id;
  std::uint64_t value = 0;
  ProcessId owner = kNoProcess;
  ProcessId maker = kNoProcess;
};

struct SimNode {
  bool up = false;
  std::uint64_t life = 0;
  std::uint64_t incarnation = 0;  // 0: not registered
  std::int64_t offset_us = 0;
  double rate = 1;
  bool head_cut = false;
  bool still = false;  // the head has not answered: nothing happens here until it does, …
  std::int64_t still_since_us = 0;
  std::deque<Then> held;  // … and this is what would have
  std::unique_ptr<rules::NodeLease> lease;
  std::unique_ptr<rules::LeaseQueue> leases;
  rules::References references;
  std::set<ProcessId> far_holders;
  std::map<Id, std::uint64_t> owner_holds;  // how often the owner of an object has begun to hold it
  std::map<std::uint64_t, Stored> store;
  std::map<std::uint64_t, ProcessId> workers;       // by lease
  std::map<std::uint64_t, std::uint32_t> requests;  // of actors, by request
  std::map<std::uint32_t, Guest> guests;            // by actor
  std::uint64_t last_request = 0;
  std::map<ProcessId, std::deque<Then>> sockets;  // what its processes have sent to it
  std::map<NodeNumber, std::uint64_t> view;       // nodes that live, by what the head said last
  std::int64_t tick_us = -1;
  bool reading = false;  // all that is in its sockets
};

// Between two nodes, the lower number first.
struct NodeLink {
  bool cut = false;
  bool broken = false;  // nothing passes, whoever has noticed
  std::uint64_t epoch = 1;
  bool up[2] = {false, false};  // as each side sees it
};

class RecoveryWorld {
 public:
  explicit RecoveryWorld(const RecoveryModel& model);
  RecoveryFigures Run();

 private:
  static constexpr NodeNumber kHome = 1;
  static constexpr std::int64_t kBeatUs = 300'000;
  static constexpr std::int64_t kStillUs = 10'000'000;  // a node that stands still ends after this

  // ---- time, processes, links (recovery_world.cc) ----
  [[nodiscard]] std::int64_t Now(NodeNumber node) const;
  [[nodiscard]] std::int64_t Delay(std::int64_t typical_us);
  [[nodiscard]] bool Chance(double part) { return random_.Unit() <= part; }
  [[nodiscard]] SimNode& node(NodeNumber number) { return *nodes_[number]; }
  [[nodiscard]] Process* Find(ProcessId pid);
  [[nodiscard]] Process& Start(NodeNumber node);
  [[nodiscard]] static ProcessId DaemonOf(NodeNumber node) { return OnNode(node, 0); }
  void Violation(const std::string& what);
  // `what` happens on a node, then or when that goes on.
  void On(NodeNumber number, std::int64_t delay_us, Then what);
  // From a process or daemon to another; `what` happens there, if it is there then.
  void Send(ProcessId from, ProcessId to, Then what);
  void ToDaemon(ProcessId from, Then what);  // its own
  void ReadSocket(NodeNumber node, ProcessId from);
  void ReadAll(NodeNumber node);
  [[nodiscard]] NodeLink& LinkOf(NodeNumber a, NodeNumber b);
  [[nodiscard]] bool Reaches(NodeNumber from, NodeNumber to);
  void BreakLink(NodeNumber a, NodeNumber b, std::int64_t cut_us);
  void LinkDown(NodeNumber self, NodeNumber other);
  void TryLinks();
  void Exit(ProcessId pid);  // at once; its daemon learns it
  void KillAll(NodeNumber node);
  void ScheduleFault();
  void Fault();
  void CrashNode(NodeNumber number, std::int64_t down_us);
  [[nodiscard]] ProcessId SomeProcess(bool actor);
  void Heal();
  [[nodiscard]] bool AtRest();
  [[nodiscard]] std::string WhatIsLeft();

  // ---- head and daemons (recovery_node.cc) ----
  void StartHead();
  void CrashHead(std::int64_t down_us);
  void StallHead(std::int64_t length_us);
  [[nodiscard]] bool HeadHears(NodeNumber number) { return head_up_ && !head_stalls_ && !node(number).head_cut; }
  void ConnectionClosed(NodeNumber number, std::uint64_t incarnation);
  void HeadTick(std::uint64_t life);
  void Carry(const rules::MembershipActions& actions);
  void TellView(NodeNumber number);
  void StartNode(NodeNumber number);
  void StopNode(NodeNumber number);  // it forgets all
  void Register(NodeNumber number, std::uint64_t life);
  void Beat(NodeNumber number, std::uint64_t life);
  void Fence(NodeNumber number);
  void GoOn(NodeNumber number);
  void SetView(NodeNumber number, const std::map<NodeNumber, std::uint64_t>& view);
  void Unreachable(NodeNumber self, NodeNumber other);
  void ProcessDied(NodeNumber number, ProcessId pid, std::uint64_t lease, ProcessId served);
  void ProcessGone(NodeNumber number, ProcessId pid);
  void AskedForLease(NodeNumber number, const rules::LeaseWant& want);
  void PerformLeases(NodeNumber number, const rules::LeaseActions& actions);
  void StartWorker(NodeNumber number, const rules::Grant& grant);
  void ScheduleTick(NodeNumber number);
  void CheckCpus(NodeNumber number);
  void FreeIf(NodeNumber number, const std::function<bool(const Stored&)>& which);
  void HoldFor(NodeNumber number, const Id& object, ProcessId process);
  void DropFor(NodeNumber number, const Id& object, ProcessId process);
  void TakeUnheld(NodeNumber number);
  // From a process, at the directory of another process's node; `known` when it is counted there.
  void Hold(Process& process, const Id& object, ProcessId owner, Then known);
  void Drop(Process& process, const Id& object, ProcessId owner);

  // ---- owners (recovery_owner.cc) ----
  std::uint32_t Submit(Process& process, TaskSpec spec);
  void Unref(Process& process, std::uint32_t value);
  void DropLineage(Process& process, std::uint32_t value);
  void Settle(Process& process, std::uint32_t value);
  void Destroy(Process& process, std::uint32_t value);
  void Unheld(Process& process, const Id& id, std::uint64_t holds);
  void HoldOwn(Process& process, OwnedValue* entry);
  void Revive(Process& process, OwnedValue* entry);
  void FreeSpot(Process& process, const Spot& spot);
  void Want(Process& process, std::uint32_t value);
  void Restart(Process& process, std::uint32_t task);
  void Resend(Process& process, std::uint32_t task);
  void Pump(Process& process);
  void AskForLease(Process& process);
  void Assign(Process& process, ProcessId worker, std::uint32_t task);
  void LaneCame(Process& process, std::uint64_t request, ProcessId worker);
  void LaneIdle(Process& process, ProcessId worker);
  void LoseLane(Process& process, ProcessId worker, rules::Ended ended);
  void Answered(Process& process, ProcessId worker, const Id& task, const TaskResult& result);
  void Lose(Process& process, std::uint32_t value, const Spot& spot);
  void Get(Process& process, std::uint32_t value, const ThenValue& then);
  void Fetch(Process& process, const Spot& spot, const ThenValue& then, const Then& lost);
  void NodeLost(Process& process, NodeNumber other);
  void EndOwning(Process& process);

  // ---- workers and what runs on them (recovery_program.cc) ----
  void Receive(Process& worker, const TaskSpec& task, const std::vector<std::pair<std::uint64_t, Spot>>& inputs);
  void FetchInputs(Process& worker, std::vector<std::pair<std::uint64_t, Spot>> inputs, std::size_t next);
  void RunTask(Process& worker);
  void RunTree(Process& worker);
  void RunCaller(Process& worker);
  void RunBorrower(Process& worker);
  void ReadLent(Process& worker, const Id& object, const ThenValue& then);
  void LetGoLater(Process& worker, const Id& object);
  void Finish(Process& worker, std::uint64_t value);
  void Reply(Process& worker, const TaskResult& result);
  void LeaveIfAsked(Process& worker);
  void Block(Process& worker);
  void Unblock(Process& worker, Then resume);
  void StartDriver();
  void DriverSubmits(std::vector<TaskSpec> specs, std::int64_t at_us);
  void DriverCalls(std::uint32_t actor, std::uint32_t next);
  void DriverDone();
  [[nodiscard]] std::uint64_t Expected(const TaskSpec& spec);
  void SawValue(const TaskSpec& spec, std::uint64_t value, const char* where);
  void Saw(const ActorCall& call, std::uint64_t answer);
  void CheckActors();

  // ---- actors (recovery_actors.cc) ----
  void CreateActors();
  void CarryActors(const rules::ActorActions& actions);
  void PlaceActor(std::uint32_t actor);
  void ActorGranted(NodeNumber host, std::uint32_t actor, std::uint64_t lease);
  void PlacedOn(NodeNumber host, std::uint32_t actor, std::uint32_t epoch);
  void StartGuest(NodeNumber host, std::uint32_t actor, std::uint32_t epoch, const Journal& journal);
  void EndGuest(NodeNumber host, std::uint32_t actor, std::uint32_t epoch);
  void GuestDied(NodeNumber host, std::uint32_t actor, const Id& died_in);
  void DiedAt(NodeNumber host, std::uint32_t actor, std::uint32_t epoch, const Journal* journal, const Id& died_in);
  void HostLost(NodeNumber host);
  void TellCaller(std::uint32_t actor, ProcessId caller);
  void Recover(Process& process, std::size_t next);
  void BuildIndex(Process& process);
  void Recovered(Process& process);
  void ServeNext(Process& process);
  void RunCall(Process& process, const ActorCall& call, const ThenValue& then);
  void Ran(Process& process, const Acting::Arrived& arrived, std::uint64_t answer, bool run);
  void Checkpoint(Process& process, std::uint64_t last_amount);
  void CopyJournal(Process& process, Then copied);
  void AnswerCall(Process& process, const Acting::Arrived& arrived, std::uint64_t answer);
  [[nodiscard]] std::uint64_t EpochOf(ProcessId a, ProcessId b);  // of the link between them
  [[nodiscard]] Journal& JournalOf(Process& process);
  void Call(Process& process, const ActorCall& call, ThenValue then);
  void Attach(Process& process, std::uint32_t actor);
  void LoseCalls(Process& process, std::uint32_t actor, bool exact, const Id& died_in);
  void SendCalls(Process& process, std::uint32_t actor);
  void ActorRestarts(Process& process, std::uint32_t actor, std::uint32_t epoch, bool exact, const Id& died_in);
  void ActorIs(Process& process, std::uint32_t actor, std::uint32_t epoch, ProcessId worker);
  void CallAnswered(Process& process, std::uint32_t actor, const Id& call, std::uint64_t answer, bool refused);
  [[nodiscard]] std::uint32_t ActorOf(const Id& id) const;

  const RecoveryModel model_;
  Random random_;
  Timeline time_;
  bool trouble_ = true;
  RecoveryFigures figures_;

  std::vector<std::unique_ptr<SimNode>> nodes_;  // by number; none at 0
  std::map<std::pair<NodeNumber, NodeNumber>, NodeLink> links_;
  std::map<ProcessId, std::unique_ptr<Process>> processes_;
  std::uint32_t last_local_ = 0;
  std::uint64_t last_serial_ = 0;
  std::map<std::pair<ProcessId, ProcessId>, std::int64_t> last_sent_;  // when the last message arrives

  bool head_up_ = false;
  bool head_stalls_ = false;
  std::uint64_t head_life_ = 0;
  rules::Membership membership_;
  std::map<NodeNumber, std::pair<std::uint64_t, bool>> saved_;  // the head's table: incarnation, alive

  rules::ActorTable table_;  // at home
  std::vector<ActorHome> homes_;

  const Id job_{7, 7};
  ProcessId driver_ = kNoProcess;
  std::uint32_t open_ = 0;  // things that the driver waits for
  bool last_ = false;       // it asks the actors for the last time
  bool done_ = false;
  std::map<Id, TaskSpec> specs_;  // all that were ever submitted
  std::map<Id, std::uint64_t> expected_;
  struct Told {
    ActorCall call;
    std::uint64_t answer = 0;
  };
  std::map<Id, Told> told_;                                       // answers, by call
  std::map<Id, std::uint64_t> call_numbers_;                      // by call: in the order in which they were made first
  std::map<std::uint32_t, std::map<Id, std::uint64_t>> amounts_;  // what must be in each actor, by call
  std::map<Id, std::int32_t> deaths_;                             // by call: how often its actor died in it …
  std::map<Id, std::int32_t> known_deaths_;                       // … and its caller heard of it
};

}  // namespace manta::sim
