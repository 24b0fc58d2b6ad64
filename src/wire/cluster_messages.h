// Every message between machines: a node's daemon with the head (control) and with other daemons, and an owner with a
// worker on another node. Plain structs in the codec and frames of all other messages; kinds from 300 up. What a
// process says to its own node's daemon is in wire/messages.h.
//
// "->" marks who sends: N a node's daemon, C the head, O an owner (any process that submits), W a worker.
// A message with a `call` number in its frame gets one answer with the same number: the struct named in its comment,
// or Failed. All others are one-way. What one end of a connection sends arrives in that order.
//
// Every connection begins with the handshake of wire/handshake.h; what follows depends on its role:
//   kNode to the head: NodeHello, then heartbeats and questions. kNode to another node: FarHello, then leases and
//   objects. kNode to a scheduler: FarHello, then questions. A scheduler to the head (as kNode): SchedulerHello.
//   kOwner to a worker: OwnerHello, then calls and replies. kTool to the head: NodesRequest, Drain,
//   StopCluster.
//
// Between two nodes both ends may ask: there the number of an answer's call has kAnswerBit set.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "types/failure.h"
#include "types/id.h"
#include "types/place.h"
#include "types/resources.h"
#include "wire/messages.h"

namespace manta::wire {

enum class ClusterKind : std::uint16_t {
  // node and head
  kNodeHello = 300,
  kNodeWelcome,
  kHeartbeat,
  kHeartbeatSeen,
  kClusterView,
  kPlace,
  kPlaced,
  kFenced,
  kDrain,
  kFarewell,
  kProbe,
  kWithdraw,
  kNodesRequest,
  kStopCluster,
  kNewToken,
  // node and head: names of actors
  kClaimName = 320,
  kFindName,
  kNamedActor,
  kReleaseName,
  // node and head: placement groups
  kGroupsView = 325,
  kReserveBundle,
  kCommitBundle,
  kReleaseBundle,
  kBundleAnswer,
  kJobGone,
  // node and node
  kFarHello = 340,
  kFarLease,
  kFarLeaseCancel,
  kFarLeaseGranted,
  kFarLeaseRefused,
  kFarLeaseEnded,
  kFarLeaseLost,
  kFarLeaseBroken,
  kFarOwnerGone,
  kFarKillWorker,
  kFarJobEnded,
  kFarLogLines,
  kFetchProgram,
  kProgramPart,
  kFarJobBegun,
  kDescribeJob,
  kJobDescribed,
  kFarJobGone,
  // node and node: objects
  kFarHold = 360,
  kFarDrop,
  kFarSync,
  kFarSynced,
  kFarWait,
  kFarObjectReady,
  kFarKeep,
  kFarFree,
  kFarWant,
  kFarForgo,
  kFarFetchFrom,
  kFarStopFetch,
  kFarCopyLost,
  kFarFetched,
  kFarFetchFailed,
  kFarCopyDropped,
  kFarObjectLost,
  kFarAdopt,
  // store to store
  kFetchPart = 380,
  kPart,
  // owner and worker
  kOwnerHello = 400,
  kOwnerWelcome,
  kFarCalls,
  kFarReplies,
  kFarCancel,
  kFarReturned,
  kFarStarted,
  kFarTakeBack,
  kFarBye,
  // node and node: actors
  kFarCreateActor = 420,
  kFarActorMade,
  kFarGetActor,
  kFarKillActor,
  kFarWatchActor,
  kFarActorState,
  kFarStartActor,
  kFarStopActor,
  kFarActorRefused,
  kFarActorStarting,
  kFarActorReady,
  kFarActorFailed,
  kFarActorDied,
  kFarAttachActor,
  kFarActorAttached,
  // node and node: quotas of jobs
  kQuotaState = 440,
  kQuotaShare,
  // schedulers beside the head
  kSchedulerHello = 450,
  kSchedulerWelcome,
  kNodeBeat,
};

// ---- node and head ----

// What everybody may know of a node.
struct NodeFacts {
  enum class State : std::uint8_t { kAlive = 0, kSuspect = 1, kDraining = 2, kLeft = 3, kDead = 4 };

  NodeNumber number = 0;
  std::uint64_t incarnation = 0;
  std::string name;
  std::string address;  // where other nodes reach it: "10.0.0.7:40123"
  std::string local;    // where processes of its machine reach it: "@manta-1000-4711"
  std::string machine;  // the same text: the same machine (and boot)
  std::uint32_t pid = 0;
  Resources total;
  std::map<std::string, std::string> labels;
  std::uint64_t store_bytes = 0;
  State state = State::kAlive;
  std::string why;      // of kLeft and kDead
  Resources available;  // as its last heartbeat said; only in the answer to NodesRequest

  [[nodiscard]] bool lives() const { return state < State::kLeft; }
};
// N -> C, first message, a call answered by NodeWelcome, Fenced or Failed. With a number 0 it is new and gets one,
// never used before; otherwise it comes back after a lost connection, as the incarnation it was.
struct NodeHello {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kNodeHello);
  NodeFacts facts;
};
// C -> N; a whole ClusterView follows.
struct NodeWelcome {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kNodeWelcome);
  NodeNumber number = 0;
  std::uint64_t incarnation = 0;
  Resources job_quota = {};  // the most that a job may have at a time, all over the cluster; of what is not named, all
  // For so long a node that no head answers stands still, and waits for it or another one; then it ends.
  std::int64_t wait_us = 0;
};
// N -> C, every 100 ms and at once after a big change. Its body is a rules::Heartbeat.
inline constexpr Kind kHeartbeat = static_cast<Kind>(ClusterKind::kHeartbeat);
// C -> N, for each.
struct HeartbeatSeen {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kHeartbeatSeen);
  std::uint64_t sequence = 0;
};
// C -> N: a heartbeat at once, please.
struct Probe {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kProbe);
  std::uint8_t unused = 0;
};
// A scheduler beside the head's own.
struct SchedulerFacts {
  std::uint32_t replica = 0;  // never used twice while the head runs
  std::string address;
  std::uint32_t pid = 0;
};
// C -> N, and to schedulers: what has changed; with `whole`, all nodes that live. Also the answer to NodesRequest.
struct ClusterView {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kClusterView);
  bool whole = false;
  std::vector<NodeFacts> nodes;
  std::vector<SchedulerFacts> schedulers = {};  // always all
  Resources job_quota = {};                     // as in NodeWelcome
};
// N -> C or a scheduler, a call whose body is a rules::PlaceRequest; answered by kPlaced, or by Failed (kInfeasible: no
// node that lives can hold it).
inline constexpr Kind kPlace = static_cast<Kind>(ClusterKind::kPlace);
// C or a scheduler -> N. The body is a std::vector<rules::Placement>.
inline constexpr Kind kPlaced = static_cast<Kind>(ClusterKind::kPlaced);
// N -> C or a scheduler: what was placed under this ticket did not stay there: it bounced, was cancelled, or its owner
// is gone.
struct Withdraw {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kWithdraw);
  std::uint64_t ticket = 0;
};
// C -> N: you are dead to the others (`why`), or the cluster is stopped: end all you run, and go.
struct Fenced {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFenced);
  bool stop = false;
  std::string why;
};
// T -> C, a call answered by Done when the node has left, or Failed{kNotFound}; and C -> N, one-way: take nothing new,
// let what runs end, say Farewell and go.
struct Drain {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kDrain);
  std::string node;  // its name or its number
};
// N -> C: I go, in order.
struct Farewell {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarewell);
  std::string why;
};
// T -> C, a call answered by ClusterView.
struct NodesRequest {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kNodesRequest);
  bool all = false;  // also those that left or died
};
// T -> C, a call answered by Done when every node has been told.
struct StopCluster {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kStopCluster);
  std::uint8_t unused = 0;
};
// C -> N: the cluster's token was changed; take it over. To every node that is connected then, and to those that come
// back while the one before is still good. Never in plain beyond this machine, as nothing is.
struct NewToken {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kNewToken);
  std::string token;              // 32 bytes
  std::int64_t good_seconds = 0;  // for which the one before is accepted
};

// ---- schedulers beside the head ----
//
// A scheduler is told by the head what the head knows: every view, and every heartbeat. Nodes ask it with kPlace, after
// a FarHello that is answered by the same. It shares nothing with other schedulers.

// S -> C, first message, a call answered by SchedulerWelcome, or Failed. A whole ClusterView follows.
struct SchedulerHello {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kSchedulerHello);
  std::string address;  // where nodes reach it
  std::uint32_t pid = 0;
};
struct SchedulerWelcome {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kSchedulerWelcome);
  std::uint32_t replica = 0;
};
// C -> S. The body is a rules::Heartbeat, as the head has heard it.
inline constexpr Kind kNodeBeat = static_cast<Kind>(ClusterKind::kNodeBeat);

// ---- node and head: names of actors ----
//
// A name belongs to one actor of a namespace; the head decides, in the order in which it is asked, and has it on disk
// before it answers. Names of a node that is gone are free.

// N -> C, a call answered by NamedActor: the sender, this actor's home, is about to make it.
struct ClaimName {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kClaimName);
  std::string space;
  std::string name;
  Id actor;
  std::string class_name;  // for messages
};
// N -> C, a call answered by NamedActor or Failed{kNotFound}.
struct FindName {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFindName);
  std::string space;
  std::string name;
};
// Whose name it is.
struct NamedActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kNamedActor);
  Id actor;
  NodeNumber home = 0;
  std::string class_name;
};
// N -> C: the actor is dead. Nothing happens if the name is another's by now.
struct ReleaseName {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kReleaseName);
  std::string space;
  std::string name;
  Id actor;
};

// ---- node and head: placement groups ----
//
// What processes ask for (CreateGroup, RemoveGroup, FindGroup, ListGroups of wire/messages.h) their nodes pass on to
// the head, as calls. rules/placement_groups.h decides; two phases, so that a group has all its bundles or none.

// C -> N: what has changed; with `whole`, all there are. A node gives back what it has set aside for others than these.
struct GroupsView {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kGroupsView);
  bool whole = false;
  std::vector<GroupFacts> groups;
};
// C -> N: set this aside. Answered one-way by BundleAnswer, when tasks that have it returned it.
struct ReserveBundle {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kReserveBundle);
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
  Resources need;
  // For whom, if that job has a quota; it counts there.
  Id job;
  NodeNumber home = 0;
  Resources quota;
};
// C -> N: it is for good; tasks may come. Answered one-way by BundleAnswer.
struct CommitBundle {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kCommitBundle);
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
};
// C -> N: give it back, and end what runs in it.
struct ReleaseBundle {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kReleaseBundle);
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
};
// N -> C
struct BundleAnswer {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kBundleAnswer);
  enum class What : std::uint8_t { kReserved = 0, kCommitted = 1, kRefused = 2 };
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
  What what = What::kRefused;
  Resources available;  // with kRefused: what bundles could have there now
};
// N -> C: a job of mine has ended; so do its groups.
struct JobGone {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kJobGone);
  Id job;
};

// ---- node and node: leases ----

inline constexpr std::uint64_t kAnswerBit = 1ULL << 63;

// N -> N, the dialling node's first message; the other's first is the same, and only then may either send more. Of two
// nodes that dial each other at once, the one with the lower number closes the connection that it accepted.
struct FarHello {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarHello);
  NodeNumber node = 0;
  std::uint64_t incarnation = 0;
};
// How a node that has never seen the job starts workers for it.
struct JobFacts {
  Id job;
  NodeNumber home = 0;         // the driver's node: where its output goes, and who has the program
  std::string program;         // path on the driver's machine, for messages
  std::string program_sha256;  // hex, of the executable file: its name in every node's cache
  std::uint64_t program_bytes = 0;
  // Set instead of the hash between nodes of one machine: which file it is that `program` names (device, inode, times).
  std::string file;
  std::string directory;               // the driver's working directory, used where it exists
  std::uint64_t program_hash = 0;      // Hello::program_hash
  std::vector<std::string> arguments;  // as in Hello
  std::vector<std::string> environment;
  std::string space = "default";  // as in Hello
  Resources quota = {};           // as in Welcome
};
// N -> N: a worker of yours for an owner of mine. Answered one-way by FarLeaseGranted or FarLeaseRefused, perhaps much
// later; FarLeaseEnded or FarLeaseLost when it is over.
struct FarLease {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLease);
  std::uint64_t request = 0;  // unique within the sending node
  ProcessId owner = kNoProcess;
  std::uint64_t queue = 0;  // of the owner: leases of one queue are of one kind
  Resources need;
  Strategy strategy;
  std::int32_t priority = 0;
  std::uint64_t function = 0;  // rules::ClassId
  double mean_run_us = 0;      // as in LeaseRequest
  std::uint64_t waiting = 1;   // tasks of its queue: its part of them, if other requests of the queue are on their way
  std::uint64_t ticket = 0;    // of the global scheduler
  bool final = false;          // not to be refused for load
  double expected_wait_us = 0;
  JobFacts job;
};
// N -> N: not any more, if it still waits.
struct FarLeaseCancel {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseCancel);
  std::uint64_t request = 0;
};
// N -> N. `address` and `pass`: where the worker waits for its owner, and by what it knows it.
struct FarLeaseGranted {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseGranted);
  std::uint64_t request = 0;
  ProcessId worker = kNoProcess;
  std::uint32_t pid = 0;
  std::string address;
  std::uint64_t pass = 0;
};
// N -> N. `bounced`: too busy; ask elsewhere. Else it cannot be done here at all.
struct FarLeaseRefused {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseRefused);
  std::uint64_t request = 0;
  bool bounced = false;
  Failure failure;
};
// N -> N: the worker serves that request no more.
struct FarLeaseEnded {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseEnded);
  std::uint64_t request = 0;
};
// N -> N: the worker died, as in LeaseLost.
struct FarLeaseLost {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseLost);
  std::uint64_t request = 0;
  ProcessId worker = kNoProcess;
  Failure failure;
  std::uint64_t token = 0;  // as in LeaseLost
};
// N -> N: the owner cannot reach the worker (any more): end it as lost.
struct FarLeaseBroken {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLeaseBroken);
  std::uint64_t request = 0;
  std::string why;
};
// N -> N: this process of mine is gone; so is all that it asked for.
struct FarOwnerGone {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarOwnerGone);
  ProcessId owner = kNoProcess;
};
// N -> N: KillWorker of an owner of mine, about a worker of yours.
struct FarKillWorker {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarKillWorker);
  ProcessId owner = kNoProcess;
  KillWorker order;
};
// N -> N: I run something for this job of yours. Answered by FarJobEnded, at once or when it ends.
struct FarJobBegun {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarJobBegun);
  Id job;
};
// N -> N: end what you run for this job of mine. Answered by FarJobGone.
struct FarJobEnded {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarJobEnded);
  Id job;
};
// N -> N: nothing of your job runs here any more, and what it printed was sent before this.
struct FarJobGone {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarJobGone);
  Id job;
};
// N -> N: what workers printed, for the job's driver.
struct FarLogLines {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarLogLines);
  Id job;
  LogLines lines;
};

// N -> N, a call answered by JobDescribed (with the program's hash): the asking node passes the job on to a third.
struct DescribeJob {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kDescribeJob);
  Id job;
};
struct JobDescribed {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kJobDescribed);
  JobFacts facts;
};
// N -> N, a call answered by ProgramPart or Failed{kNotFound}: bytes of a program that a job of yours runs.
struct FetchProgram {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFetchProgram);
  std::string sha256;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};
struct ProgramPart {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kProgramPart);
  std::uint64_t offset = 0;
  std::string bytes;
};

// ---- node and node: what a job may have ----
//
// The driver's node shares a job's quota out to the nodes that run something for it (rules/job_quota.h).

// N -> home (the driver's node): how much of the quota I have, and what lacks, beyond it, for the first that waits here
// for nothing else (empty: nothing). `seen`: the last QuotaShare that counts in `have`.
struct QuotaState {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kQuotaState);
  Id job;
  Resources have;
  Resources lacks;
  std::uint64_t seen = 0;
};
// home -> N: this much more for you. `recall`: give back so much when you can, because others lack it
// (empty: not any more). Answered by QuotaState.
struct QuotaShare {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kQuotaShare);
  Id job;
  std::uint64_t number = 0;
  Resources more;
  Resources recall;
};

// ---- node and node: who holds which object ----
//
// An object's home is its owner's node. There each other node counts as one holder, whatever number of its processes
// hold it: the process number OnNode(node, 0) stands for it. Holds are counted, as in wire/messages.h: a node is given
// one by each FarHold that names it, and FarDrop takes back so many.

// N -> N, two uses. To the home: one hold more of each for the node `holder` = OnNode(node, 0). To the node of the
// process `holder`: it was given one hold of each; where that node is not the home, the home has been told.
struct FarHold {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarHold);
  std::vector<Id> objects;
  std::vector<ProcessId> owners;  // of each
  ProcessId holder = kNoProcess;
};
// N -> home: so many holds less for the sender. Goes only after every other home has confirmed the sender's FarHolds:
// what is let go of here may be all that keeps something else alive that was found in it.
struct FarDrop {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarDrop);
  std::vector<Id> objects;
  std::vector<std::uint32_t> counts;
};
// N -> N: have you got all until here? Answered one-way by FarSynced with the same number.
struct FarSync {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarSync);
  std::uint64_t sequence = 0;
};
struct FarSynced {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarSynced);
  std::uint64_t sequence = 0;
};
// N -> home: WaitObjects, of any process here; FarObjectReady, one each.
struct FarWait {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarWait);
  std::vector<Id> objects;
  std::vector<ProcessId> owners;
};
// home -> N: upon FarWait.
struct FarObjectReady {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarObjectReady);
  Id object;
  Outcome outcome;
};
// N -> home: ObjectLost, of a process here.
struct FarObjectLost {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarObjectLost);
  ObjectLost lost;
};
// home -> N: these are in your store, their owner is about to be gone, and others still need them.
struct FarKeep {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarKeep);
  std::vector<Id> objects;
};

// N -> N, a call answered by Done when copies of all that can be had are in your store: I am about to leave.
struct FarAdopt {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarAdopt);
  std::vector<Id> objects;
  std::vector<Place> places;
  std::vector<ProcessId> owners;
};

// ---- node and node: copies ----
//
// Whoever wants a copy asks the object's home, which plans who fetches from whom (rules/broadcast.h).

// N -> N: free what you have of these. A place that is not of the receiver's store: its copy, if it has one.
struct FarFree {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarFree);
  std::vector<Id> objects;
  std::vector<Place> places;
};
// N -> home. `place`: where the object was made. Answered by FarFetchFrom or FarCopyLost, sooner or later.
struct FarWant {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarWant);
  Id object;
  Place place;
  ProcessId owner = kNoProcess;
};
// N -> home: not any more.
struct FarForgo {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarForgo);
  Id object;
};
// home -> N: get it from that node. Answered by FarFetched or FarFetchFailed.
struct FarFetchFrom {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarFetchFrom);
  Id object;
  NodeNumber from = 0;
  std::uint64_t transfer = 0;
};
// home -> N: not from there; FarFetchFrom or FarCopyLost may follow.
struct FarStopFetch {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarStopFetch);
  Id object;
  std::uint64_t transfer = 0;
};
// home -> N: nobody has it.
struct FarCopyLost {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarCopyLost);
  Id object;
};
// N -> home: has it all.
struct FarFetched {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarFetched);
  Id object;
  std::uint64_t transfer = 0;
};
// N -> home: that source does not answer, or does not have it (`gone`).
struct FarFetchFailed {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarFetchFailed);
  Id object;
  std::uint64_t transfer = 0;
  NodeNumber from = 0;
  bool gone = false;
  std::string why;
};
// N -> home: its copy made room for something else.
struct FarCopyDropped {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarCopyDropped);
  std::vector<Id> objects;
};

// ---- node and node: actors ----
//
// Home: the node that decides about an actor; host: where its worker is; a caller's node tells its processes what
// becomes of it. Each may be the other. A host's end of the connection to the home ends the actor's worker, so
// that the home may start another.

// N -> home, a call answered by FarActorMade, or Failed: CreateActor of a process of mine.
struct FarCreateActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarCreateActor);
  ProcessId creator = kNoProcess;
  CreateActor order;
  JobFacts job;  // the creator's
};
// The asking node was given a hold, unless `exists`: then the name is an actor's at home on `home`, to be asked for.
struct FarActorMade {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorMade);
  Id actor;
  ActorOptions options;
  NodeNumber home = 0;
  bool exists = false;
};
// N -> home, a call answered by ActorFound (the asking node was given a hold) or Failed{kNotFound}.
struct FarGetActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarGetActor);
  Id actor;
};
// N -> home: KillActor.
struct FarKillActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarKillActor);
  Id actor;
  bool restart = false;
};
// N -> home: tell me what becomes of it, and now what it is. Until kGone.
struct FarWatchActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarWatchActor);
  Id actor;
};
// home -> N. `state` is for the processes there; its address is empty.
struct FarActorState {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorState);
  ActorState state;
  NodeNumber host = 0;  // with kAlive
  std::uint32_t epoch = 0;
};
// home -> N: be its host. Answered one-way by FarActorRefused; or by FarActorStarting when it has its worker, then by
// FarActorReady or FarActorFailed; at the end always by FarActorDied.
struct FarStartActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarStartActor);
  Id actor;
  std::uint32_t epoch = 0;
  ActorOptions options;
  std::string spec;
  ProcessId owner = kNoProcess;
  std::uint64_t ticket = 0;  // of the global scheduler
  bool final = false;        // not to be refused for load
  JobFacts job;
};
// home -> host: end it. `force`: at once; else after what it runs. Also while it only waits there.
struct FarStopActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarStopActor);
  Id actor;
  std::uint32_t epoch = 0;
  bool force = false;
  Failure failure;
};
// `bounced`: too busy; ask elsewhere. Else it cannot be done there at all.
struct FarActorRefused {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorRefused);
  Id actor;
  std::uint32_t epoch = 0;
  bool bounced = false;
  Failure failure;
};
// host -> home: it has a worker.
struct FarActorStarting {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorStarting);
  Id actor;
  std::uint32_t epoch = 0;
};
// host -> home: its constructor has ended.
struct FarActorReady {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorReady);
  Id actor;
  std::uint32_t epoch = 0;
  ProcessId worker = kNoProcess;
};
// host -> home: its constructor failed.
struct FarActorFailed {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorFailed);
  Id actor;
  std::uint32_t epoch = 0;
  Failure failure;
};
// host -> home: its worker is gone.
struct FarActorDied {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorDied);
  Id actor;
  std::uint32_t epoch = 0;
  Failure failure;
  std::uint64_t token = 0;  // the call that it died in
};
// N -> host: this process of mine wants to call it. Answered one-way by FarActorAttached when the worker expects it;
// not at all if it does not run there any more, of which the home will tell.
struct FarAttachActor {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarAttachActor);
  Id actor;
  std::uint32_t epoch = 0;
  ProcessId caller = kNoProcess;
};
struct FarActorAttached {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarActorAttached);
  Id actor;
  std::uint32_t epoch = 0;
  ProcessId caller = kNoProcess;
  ProcessId worker = kNoProcess;
  std::string address;
  std::uint64_t pass = 0;
  Failure failure;  // it cannot listen
};

// ---- store to store, on connections of role kTransfer ----

// N -> N: the dialler asks for parts of an object, several at a time; answered by Part, in that order.
struct FetchPart {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFetchPart);
  Id object;
  Place place;  // where it was made; if that is another node, the receiver's copy is meant
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};
// N -> N. If `failure` is ok, the bytes follow the frame, and 8 bytes of checksum (node/transfer_wire.h) unless the
// connection is encrypted, which guards them better.
struct Part {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kPart);
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  Failure failure;
};

// ---- owner and worker ----

// O -> W, first message, a call answered by OwnerWelcome or Failed.
struct OwnerHello {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kOwnerHello);
  std::uint64_t pass = 0;
  ProcessId owner = kNoProcess;
};
struct OwnerWelcome {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kOwnerWelcome);
  ProcessId worker = kNoProcess;
};
// O -> W. The body is specs (shm/spec.h: SpecHeader, name, arguments), one after the other, exactly as they stand in
// shared memory.
inline constexpr Kind kFarCalls = static_cast<Kind>(ClusterKind::kFarCalls);
// W -> O. The body is reply records (shm/lane.h: ReplyHeader, payload, padded to 8), likewise.
inline constexpr Kind kFarReplies = static_cast<Kind>(ClusterKind::kFarReplies);
// O -> W: shm::TaskTokens. A call that has not begun comes back (FarReturned); one that runs is asked to stop.
struct FarCancel {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarCancel);
  std::uint64_t token = 0;
};
// W -> O: these did not begin, and will not.
struct FarReturned {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarReturned);
  std::vector<std::uint64_t> tokens;
};
// W -> O: a call has begun that has a timeout, or must not run twice.
struct FarStarted {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarStarted);
  std::uint64_t token = 0;
};
// O -> W: give back what has not begun (others are idle).
struct FarTakeBack {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarTakeBack);
  std::uint8_t unused = 0;
};
// W -> O: no more calls, please; then O -> W, as its last word. The worker returns what came in between, and closes.
struct FarBye {
  static constexpr Kind kKind = static_cast<Kind>(ClusterKind::kFarBye);
  std::uint8_t unused = 0;
};

}  // namespace manta::wire
