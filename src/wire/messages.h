// Every message between a process and its node's daemon, over one Unix socket each. This file is
// the protocol: a plain struct per message, encoded field by field by the codec of user values
// (manta/codec.h), framed by wire/frame.h. Both ends come from one build (Hello carries the version).
//
// "->" marks who sends: P any process (driver or worker), D driver, W worker, F fork server, N daemon.
// A message with a `call` number in its frame gets an answer with the same number: the struct named
// in its comment, or Failed. All others are one-way.
//
// Order: what one process sends arrives in that order. Between two processes the daemon promises
// this only: before it frees an object or ends an actor because its last holder let go, it reads
// everything already sent to it by everybody. So a worker that sends Hold before its reply (which
// goes through shared memory) is safe against the owner's Drop after that reply. Between nodes there is no such
// order: who replies to a process of another node says HoldFar first, and waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types/failure.h"
#include "types/group.h"
#include "types/id.h"
#include "types/place.h"
#include "types/resources.h"
#include "types/strategy.h"

namespace manta::wire {

inline constexpr std::uint32_t kVersion = 1;

enum class Kind : std::uint16_t {
  kFailed = 1,
  kHello,
  kWelcome,
  kGoodbye,
  kDone,
  kLeaseRequest,
  kLeaseCancel,
  kLeaseRefused,
  kLeaseGranted,
  kLeaseStart,
  kLeaseReturn,
  kLeaseEnded,
  kLeaseLost,
  kBlocked,
  kUnblock,
  kKillWorker,
  kExit,
  kCreateActor,
  kActorCreated,
  kActorStart,
  kActorReady,
  kActorFailed,
  kAttachActor,
  kActorCaller,
  kActorState,
  kKillActor,
  kFindActor,
  kActorFound,
  kExpect,
  kPublish,
  kWaitObjects,
  kObjectReady,
  kHold,
  kDrop,
  kSegmentRequest,
  kSegmentLent,
  kOpenSegment,
  kSegmentOpened,
  kRestore,
  kRestored,
  kFreeObjects,
  kSegmentReturn,
  kFork,
  kForked,
  kExited,
  kLogLines,
  kStatus,
  kStatusReply,
  kFarReady,
  kLeaseBroken,
  kHoldFar,
  kFetch,
  kFetched,
  kFetchAhead,
  kNodeGone,
  kObjectLost,
  kUnheld,
  kActorKeeps,
  kOrphaned,
  kUnmade,
  // placement groups and nodes
  kCreateGroup = 100,
  kGroupMade,
  kRemoveGroup,
  kFindGroup,
  kListGroups,
  kGroupList,
  kWatchGroup,
  kGroupChanged,
  kListNodes,
  kNodeList,
  kMemory,
  kMemoryReply,
  kListNames,
  kNameList,
};

// ---- life of a process ----

// Answer to any call that failed.
struct Failed {
  static constexpr Kind kKind = Kind::kFailed;
  Failure failure;
};

enum class Role : std::uint8_t { kDriver = 0, kWorker = 1, kTool = 2 };

// P -> N, first message, a call answered by Welcome. Descriptors: a driver sends its arena and its
// executable (opened O_PATH or read-only); a worker its arena; a tool nothing.
struct Hello {
  static constexpr Kind kKind = Kind::kHello;
  std::uint32_t version = kVersion;
  Role role = Role::kDriver;
  std::uint32_t pid = 0;
  Id job;                              // drawn at random by a driver; a worker sends an empty one
  std::string program;                 // the executable's path, for messages
  std::uint64_t program_hash = 0;      // of its build id; workers are pooled by it
  std::vector<std::string> arguments;  // argv of the driver, so that a worker's statics see the same
  std::string space = "default";       // a driver's namespace of actor names
  Resources quota = {};                // a driver's wish for its job (rules/job_quota.h); empty: no more than all have
  // Of a driver whose lineage is kept on disk (doc/lineage.md).
  std::string job_name;       // empty: it is not
  bool resume = false;        // go on with the job of that name, if there is one
  bool keep_lineage = false;  // also when the job has ended well
};
// N -> P. Descriptor: the node area.
struct Welcome {
  static constexpr Kind kKind = Kind::kWelcome;
  ProcessId process = kNoProcess;
  Resources total;
  std::uint64_t store_bytes = 0;
  std::string node;     // "n1"
  std::string address;  // how a tool or another driver finds this daemon
  // Of a node of a cluster; 0 and empty on the only node of a private one.
  NodeNumber number = 0;
  std::string secrets;  // folder of the cluster's secrets (wire/secrets.h)
  std::string listen;   // where this node's workers wait for owners of other nodes: "127.0.0.1:0"
  bool tls = false;
  std::string space = "default";  // the job's namespace of actor names
  Resources quota = {};           // what the job may have at a time, all over the cluster; of what is not named, all
  Id job;                         // a driver's: another than it drew, if it goes on with an earlier one
  bool resumed = false;           // it does
  std::string lineage;  // the job's folder, if lineage is kept there: write it to the ring (shm/lineage_ring.h)
  std::uint64_t lineage_memory = 256ULL << 20;  // the most that a process keeps to rebuild lost values from
  std::string spill;                            // the folder for what is beyond that; empty: there is none
  std::uint64_t spill_limit = ~0ULL;            // the most bytes of the node there
  std::string head;                             // of a cluster: where its control store is reached
};
// D -> N, a call answered by Done once the job's workers are gone and their last lines were sent.
struct Goodbye {
  static constexpr Kind kKind = Kind::kGoodbye;
  std::uint8_t unused = 0;
};
// N -> P: the answer to calls that have no other.
struct Done {
  static constexpr Kind kKind = Kind::kDone;
  std::uint8_t unused = 0;
};
// N -> W: finish what is running, flush output, leave.
struct Exit {
  static constexpr Kind kKind = Kind::kExit;
  std::uint8_t unused = 0;
};

// ---- leases: the right of an owner to have one worker serve one of its queues ----

// P -> N. One request asks for one worker. `queue` and `lane` are offsets in the owner's arena; the
// lane stays with this request until LeaseEnded, LeaseLost or LeaseRefused names it.
struct LeaseRequest {
  static constexpr Kind kKind = Kind::kLeaseRequest;
  std::uint64_t request = 0;  // unique within the owner
  Resources need;
  Strategy strategy;  // all tasks of a queue have the same
  std::int32_t priority = 0;
  std::uint64_t queue = 0;
  std::uint64_t lane = 0;
  bool stalled = false;  // what the queue's other leases run takes long, and nothing moves
  // For the choice of a node.
  std::uint64_t function = 0;              // rules::ClassId of the first task that waits
  std::uint64_t waiting = 0;               // tasks of the queue that nobody has claimed
  double mean_run_us = 0;                  // as far as the owner knows; 0: not at all
  std::vector<NodeNumber> input_nodes;     // who holds arguments of the first task in its store, …
  std::vector<std::uint64_t> input_bytes;  // … and how much each
};
// P -> N: the queue has run empty. Answered one-way by LeaseEnded{request} if it was still waiting;
// if it was granted meanwhile, nothing happens.
struct LeaseCancel {
  static constexpr Kind kKind = Kind::kLeaseCancel;
  std::uint64_t request = 0;
};
// N -> P: can never be granted on this cluster.
struct LeaseRefused {
  static constexpr Kind kKind = Kind::kLeaseRefused;
  std::uint64_t request = 0;
  Failure failure;
};
// N -> P
struct LeaseGranted {
  static constexpr Kind kKind = Kind::kLeaseGranted;
  std::uint64_t request = 0;
  ProcessId worker = kNoProcess;
  std::uint32_t pid = 0;
  // Of a worker on another node: where it waits for us, and by what it knows us. Its end is told by LeaseEnded or
  // LeaseLost as ever, but counts only when its connection is read to the end.
  std::string address = {};
  std::uint64_t pass = 0;
};
// P -> N: the worker of this lease, on another node, cannot be reached (any more). LeaseLost follows.
struct LeaseBroken {
  static constexpr Kind kKind = Kind::kLeaseBroken;
  std::uint64_t request = 0;
  std::string why;
};
// N -> W. Descriptor: the owner's arena, unless it is on another node.
struct LeaseStart {
  static constexpr Kind kKind = Kind::kLeaseStart;
  std::uint64_t lease = 0;
  ProcessId owner = kNoProcess;
  Id job;
  Resources need;
  std::uint64_t queue = 0;
  std::uint64_t lane = 0;
  bool with_gpus = false;
  std::vector<std::uint32_t> gpus;
  bool once = false;  // it ends with its first task: the next one is to run elsewhere
  // The owner is on another node: it will come by itself, and show this pass. Answered by FarReady.
  bool far = false;
  std::uint64_t pass = 0;
  ProcessId stored_for = kNoProcess;  // a process number of this node that stands for it in the store
};
// W -> N: `address` is where this worker waits for owners of other nodes.
struct FarReady {
  static constexpr Kind kKind = Kind::kFarReady;
  std::uint64_t lease = 0;  // 0: it answers an ActorCaller, with the same pass
  std::string address;
  Failure failure;  // it cannot listen
  std::uint64_t pass = 0;
};
// W -> N: between two tasks, because the daemon asked (Doorbell::kRevoke).
struct LeaseReturn {
  static constexpr Kind kKind = Kind::kLeaseReturn;
  std::uint64_t lease = 0;
  bool leaving = false;  // it wants no other: answered by Exit
};
// N -> P: the lane is free again; nobody serves it.
struct LeaseEnded {
  static constexpr Kind kKind = Kind::kLeaseEnded;
  std::uint64_t request = 0;
};
// N -> P: the worker died holding the lease. What it had claimed and not answered is lost.
struct LeaseLost {
  static constexpr Kind kKind = Kind::kLeaseLost;
  std::uint64_t request = 0;
  ProcessId worker = kNoProcess;
  Failure failure;          // kWorkerCrashed: which signal, last lines
  std::uint64_t token = 0;  // of the call that it ran then (Doorbell::current)
};
// W -> N: the task is about to sleep in Get; its CPUs (not its GPUs) may serve others.
struct Blocked {
  static constexpr Kind kKind = Kind::kBlocked;
  std::uint64_t lease = 0;  // 0: the actor of this worker
};
// W -> N, a call answered by Done when the CPUs are the task's again. Goes before new requests. `late`: its timeout has
// come, so it is answered at once, and the task goes on with what is free.
struct Unblock {
  static constexpr Kind kKind = Kind::kUnblock;
  std::uint64_t lease = 0;
  bool late = false;
};
// P -> N: kill this worker if it still serves a lease of mine (or is an actor's worker): a cancel by
// force or a task's timeout. With `stack` it gets SIGQUIT first and 200 ms to print its stack.
struct KillWorker {
  static constexpr Kind kKind = Kind::kKillWorker;
  ProcessId worker = kNoProcess;
  bool stack = false;
  Failure failure;  // what LeaseLost (or ActorState) shall say
  std::uint64_t token =
      0;  // only while it runs this call (shm::TaskToken); with shm::kCancelTree its children, too. 0: whatever it does
};

// ---- actors ----
//
// An actor's home is the node that decides about it: that of its job's driver (of a detached one the oldest node that
// lives). It may run on another (node/far_actors.h). Where owners of objects are named, an actor stands as
// OnNode(home, 0), on the only node of a private cluster as kNoProcess.

struct ActorOptions {
  Resources need;
  Strategy strategy;
  std::string name;
  std::string space = "default";
  bool detached = false;
  bool get_if_exists = false;
  std::int64_t max_restarts = 0;  // -1: no limit
  std::int64_t max_call_retries = 0;
  std::uint32_t concurrency = 1;
  bool ordered = true;
  std::string class_name;
  std::string about;  // what a front end wants whoever finds the actor to know; nobody else reads it
  // A restart repeats the calls since the last checkpoint, which is due after so many calls or so long; 0: see
  // rules/actor_replay.h. Without replay it comes back from its checkpoint, if it makes any.
  bool replay = false;
  std::uint64_t checkpoint_calls = 0;
  std::int64_t checkpoint_us = 0;
};
// P -> N, a call answered by ActorCreated, or Failed (name taken, infeasible). The sender becomes a
// holder of the actor, and the actor a holder of `args` until it is dead for good.
struct CreateActor {
  static constexpr Kind kKind = Kind::kCreateActor;
  Id actor;
  ActorOptions options;
  std::string spec;  // a shm::SpecHeader and its arguments, as in a log
  std::vector<Id> args;
  std::vector<ProcessId> arg_owners;  // of each; none at all: all are of this node
};
struct ActorCreated {
  static constexpr Kind kKind = Kind::kActorCreated;
  Id actor;  // another than asked for with get_if_exists
  ActorOptions options;
  NodeNumber home = 0;
};
// N -> W: run the constructor, then serve callers. Descriptor, if the actor is to outlive its process: its journal
// (shm/journal.h), which says what to load and to repeat in between.
struct ActorStart {
  static constexpr Kind kKind = Kind::kActorStart;
  Id actor;
  std::uint32_t epoch = 0;  // counts restarts
  Id job;
  ActorOptions options;
  std::string spec;
  ProcessId owner = kNoProcess;
  bool with_gpus = false;
  std::vector<std::uint32_t> gpus;
  NodeNumber home = 0;
};
// W -> N
struct ActorReady {
  static constexpr Kind kKind = Kind::kActorReady;
  Id actor;
  std::uint64_t replayed = 0;  // calls that were repeated
};
// W -> N: what is in the actor's journal has Refs and handles to these, which the actor holds from now on, beside its
// constructor's arguments; `all`: these and no others.
struct ActorKeeps {
  static constexpr Kind kKind = Kind::kActorKeeps;
  Id actor;
  std::vector<Id> objects;
  std::vector<ProcessId> owners;  // of each
  bool all = false;
};
// W -> N: the constructor threw, or what it journaled could not be repeated. The daemon then ends the worker and the
// actor.
struct ActorFailed {
  static constexpr Kind kKind = Kind::kActorFailed;
  Id actor;
  Failure failure;
};
// P -> N: I call this actor through this queue and lane of my arena. Passed on as ActorCaller when
// the actor runs. Forgotten when the actor's process dies: after ActorState{kRestarting} the caller
// attaches again (with a queue in which the calls to be retried come first). One that passed that word is void.
struct AttachActor {
  static constexpr Kind kKind = Kind::kAttachActor;
  Id actor;
  std::uint64_t queue = 0;
  std::uint64_t lane = 0;
  NodeNumber home = 0;
  std::uint32_t restarts = 0;  // that the caller has heard of since it first attached
};
// N -> W. Descriptor: the caller's arena, unless it is on another node.
struct ActorCaller {
  static constexpr Kind kKind = Kind::kActorCaller;
  ProcessId owner = kNoProcess;
  std::uint64_t queue = 0;
  std::uint64_t lane = 0;
  // As in LeaseStart. Answered by FarReady.
  bool far = false;
  std::uint64_t pass = 0;
  ProcessId stored_for = kNoProcess;
  bool reruns = true;  // its calls may be made again by others, or their answers get lost: they are kept for a while
};
// kDead: no call will be answered any more. kGone follows when its process has ended, too: only then does nobody look
// at the callers' queues and lanes any more.
enum class ActorPhase : std::uint8_t { kStarting = 0, kAlive = 1, kRestarting = 2, kDead = 3, kGone = 4 };
// N -> P, to every process that created or attached, at each change; at once upon AttachActor if dead.
struct ActorState {
  static constexpr Kind kKind = Kind::kActorState;
  Id actor;
  ActorPhase phase = ActorPhase::kStarting;
  ProcessId worker = kNoProcess;
  Failure failure;  // with kRestarting and kDead: why
  // With kAlive, after AttachActor: it runs on another node. Where it waits for us, and by what it knows us.
  std::string address;
  std::uint64_t pass = 0;
  // With kRestarting: the call that it died in (as in LeaseLost; 0: in none), if that is known.
  std::uint64_t token = 0;
  bool exact = true;
};
// P -> N. `restart`: let it come back if restarts are left. Otherwise it is dead for good.
struct KillActor {
  static constexpr Kind kKind = Kind::kKillActor;
  Id actor;
  bool restart = false;
  NodeNumber home = 0;
};
// P -> N, a call answered by ActorFound, or Failed{kNotFound}. The sender becomes a holder.
struct FindActor {
  static constexpr Kind kKind = Kind::kFindActor;
  std::string name;
  std::string space = "default";
};
struct ActorFound {
  static constexpr Kind kKind = Kind::kActorFound;
  Id actor;
  ActorOptions options;
  NodeNumber home = 0;
};

// P -> N, and N -> C: a call answered by NameList.
struct ListNames {
  static constexpr Kind kKind = Kind::kListNames;
  std::string space;  // empty: of all namespaces
};
struct NameList {
  static constexpr Kind kKind = Kind::kNameList;
  struct Entry {
    std::string space;
    std::string name;
  };
  std::vector<Entry> names;  // of the live actors
};

// ---- placement groups ----

// P -> N, and N -> C: a call answered by GroupMade, or Failed: kInvalid (an empty bundle, the name is taken), on a
// node of its own kInfeasible. The process sends id, name, strategy and bundles; its node adds the job.
struct CreateGroup {
  static constexpr Kind kKind = Kind::kCreateGroup;
  GroupFacts facts;
};
struct GroupMade {
  static constexpr Kind kKind = Kind::kGroupMade;
  GroupFacts facts;
};
// P -> N -> C, a call answered by Done, also if there is none.
struct RemoveGroup {
  static constexpr Kind kKind = Kind::kRemoveGroup;
  Id group;
};
// P -> N -> C, a call answered by GroupMade, or Failed{kNotFound}. By name, unless it has an id.
struct FindGroup {
  static constexpr Kind kKind = Kind::kFindGroup;
  Id group;
  std::string name;
  std::string space = "default";
};
// P -> N -> C, a call answered by GroupList.
struct ListGroups {
  static constexpr Kind kKind = Kind::kListGroups;
  std::uint8_t unused = 0;
};
struct GroupList {
  static constexpr Kind kKind = Kind::kGroupList;
  std::vector<GroupFacts> groups;
};
// P -> N: GroupChanged at once and upon every change, until it is removed.
struct WatchGroup {
  static constexpr Kind kKind = Kind::kWatchGroup;
  Id group;
};
// N -> P: upon WatchGroup.
struct GroupChanged {
  static constexpr Kind kKind = Kind::kGroupChanged;
  GroupFacts facts;
};

// P -> N, a call answered by NodeList: the nodes, and what is free there.
struct ListNodes {
  static constexpr Kind kKind = Kind::kListNodes;
  bool all = false;  // also nodes that left or died
};
struct NodeList {
  static constexpr Kind kKind = Kind::kNodeList;
  struct Node {
    NodeNumber number = 0;
    std::string name;
    bool draining = false;
    Labels labels;
    Resources total;
    Resources available;
    bool alive = true;
    std::string address;  // of the port where other nodes reach it: "10.0.0.7:40123"; empty: a private node
    std::string why;      // of a dead node
    std::uint64_t store_bytes = 0;
  };
  std::vector<Node> nodes;
};

// ---- objects whose Ref has left its owner ----

// What an object turned out to be.
struct Outcome {
  bool ready = false;
  Failure failure;                          // if not ok, nothing else counts
  Place place;                              // in the store, or
  std::string bytes;                        // the value itself
  std::vector<Id> contained;                // Refs and actor handles inside the value; the object holds them
  std::vector<ProcessId> contained_owners;  // of each. None at all: all are of this node
};
// Holders are counted: a process holds an object or actor while it was given more holds (by Expect, Publish,
// Hold, ActorCreated, ActorFound) than it has dropped. So it does not matter which is read first when
// somebody's Hold on its behalf and its own Drop of an earlier one cross.

// The task that put the object or started the one that makes it, and who called that: they can make it again if its
// owner dies. Empty: a driver or an actor did.
struct Maker {
  Id task;
  ProcessId owner = kNoProcess;
};

// P -> N: I own this object, its Ref is leaving me, and it is not ready. The sender is a holder.
struct Expect {
  static constexpr Kind kKind = Kind::kExpect;
  std::vector<Id> objects;
  Maker maker;  // of all of them
};
// P -> N: an object of mine whose Ref left, or leaves now. The sender is a holder, by this message or by its Expect.
struct Publish {
  static constexpr Kind kKind = Kind::kPublish;
  Id object;
  Outcome outcome;
  bool expected = false;  // the sender said Expect before: it is counted
  Maker maker;
};
// P -> N: tell me (ObjectReady, one each) when these are there. An object nobody announced yet is
// waited for as long as `owner` lives, then it is a Failure{kLost}.
struct WaitObjects {
  static constexpr Kind kKind = Kind::kWaitObjects;
  std::vector<Id> objects;
  std::vector<ProcessId> owners;
};
// N -> P: upon WaitObjects.
struct ObjectReady {
  static constexpr Kind kKind = Kind::kObjectReady;
  Id object;
  Outcome outcome;
};
// P -> N: one hold more for `holder` (0: the sender) of each of these objects or actors, as often as it stands here.
// The holder may be on another node; `owners` tells where each object is at home (none at all: on this node).
struct Hold {
  static constexpr Kind kKind = Kind::kHold;
  std::vector<Id> objects;
  ProcessId holder = kNoProcess;
  std::vector<ProcessId> owners = {};
};
// P -> N, a call answered by Done when all holds that this node's processes have asked for are known where the objects
// are at home, or that node is gone.
struct HoldFar {
  static constexpr Kind kKind = Kind::kHoldFar;
  std::uint8_t unused = 0;
};
// P -> N: so many holds less of each for the sender.
struct Drop {
  static constexpr Kind kKind = Kind::kDrop;
  std::vector<Id> objects;
  std::vector<std::uint32_t> counts;  // of each; exactly as many as objects
};

// ---- objects that were lost ----

// N -> P, to every process: what that node's store had is lost, but for `elsewhere`, of which other nodes have copies.
struct NodeGone {
  static constexpr Kind kKind = Kind::kNodeGone;
  NodeNumber node = 0;
  std::string why;
  std::vector<Id> elsewhere;
};
// P -> N: nobody has this object, which was said to be at this place. N -> P, to its owner: make it again, or Publish
// why not. Whoever says WaitObjects after it gets the outcome that follows, not the one that is lost.
struct ObjectLost {
  static constexpr Kind kKind = Kind::kObjectLost;
  Id object;
  Place place;
  ProcessId owner = kNoProcess;
  std::string why;
};
// N -> P, to who called the task that made this object (Maker), or to who holds it: its owner died before it was ready,
// or its value was lost after. Have the task run again, which announces it again under its new owner, or answer with
// Unmade; also if the task is over by then, and has not announced it (which is known only when all that was sent before
// is read).
struct Orphaned {
  static constexpr Kind kKind = Kind::kOrphaned;
  Id object;
  Id task;  // empty: who has the Ref from a task's result may know
  std::string why;
  std::uint64_t ask = 0;  // of this node
};
// P -> N
struct Unmade {
  static constexpr Kind kKind = Kind::kUnmade;
  Id object;
  std::string why;        // empty: the task ran when this was asked for and is over now; ask again
  std::uint64_t ask = 0;  // which it answers: the object may have been made and orphaned again meanwhile
  bool differs = false;   // the task was run again, and did something else than before
};
// N -> P, to the owner: nobody holds these any more, and their values in the store are freed.
struct Unheld {
  static constexpr Kind kKind = Kind::kUnheld;
  std::vector<Id> objects;
};

// ---- the store (see store/keeper.h) ----

// P -> N, a call answered by SegmentLent, perhaps later (when memory is short), or Failed.
struct SegmentRequest {
  static constexpr Kind kKind = Kind::kSegmentRequest;
  std::uint64_t bytes = 0;  // of the object that found no room
};
// N -> P. Descriptor: the segment, writable.
struct SegmentLent {
  static constexpr Kind kKind = Kind::kSegmentLent;
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
  bool whole = false;  // lent for one large object: goes back to the daemon when that is sealed
};
// P -> N, a call answered by SegmentOpened or Failed{kLost}.
struct OpenSegment {
  static constexpr Kind kKind = Kind::kOpenSegment;
  std::uint32_t segment = 0;
};
// N -> P. Descriptor: the file that the segment is in, read-only.
struct SegmentOpened {
  static constexpr Kind kKind = Kind::kSegmentOpened;
  std::uint32_t segment = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  // in the file; not 0: an object that is read where it was spilled
};
// P -> N, a call: the object is not at its Place any more (spilled). Answered by Restored or Failed.
struct Restore {
  static constexpr Kind kKind = Kind::kRestore;
  Id object;
};
struct Restored {
  static constexpr Kind kKind = Kind::kRestored;
  Place place;
};
// P -> N, a call: the object's bytes are in another node's store (Place::node). Answered by Fetched when a copy is in
// this node's, or Failed: kLost, or kOutOfMemory if it does not fit here. The copy may go at any time when nobody pins
// it: then ask again.
struct Fetch {
  static constexpr Kind kKind = Kind::kFetch;
  Id object;
  Place place;
  ProcessId owner = kNoProcess;
};
struct Fetched {
  static constexpr Kind kKind = Kind::kFetched;
  Place place;  // here
};
// P -> N: the same, because they will be needed soon. Those whose places are of this node are passed over.
struct FetchAhead {
  static constexpr Kind kKind = Kind::kFetchAhead;
  std::vector<Id> objects;
  std::vector<Place> places;
  std::vector<ProcessId> owners;
};
// P -> N: nobody needs these, nor copies of them (never escaped, or their worker died before answering). Places may be
// nowhere(): then whatever is stored under the id goes, on the node that the place names (0: this one).
struct FreeObjects {
  static constexpr Kind kKind = Kind::kFreeObjects;
  std::vector<Id> objects;
  std::vector<Place> places;
};
// P -> N: I write no more into it.
struct SegmentReturn {
  static constexpr Kind kKind = Kind::kSegmentReturn;
  std::uint32_t segment = 0;
};

// ---- fork server ----

// N -> F. Descriptors: the worker's socket, its stdout and its stderr.
struct Fork {
  static constexpr Kind kKind = Kind::kFork;
  std::uint64_t ticket = 0;
};
// F -> N. pid 0: fork failed (`error` is errno).
struct Forked {
  static constexpr Kind kKind = Kind::kForked;
  std::uint64_t ticket = 0;
  std::uint32_t pid = 0;
  std::int32_t error = 0;
};
// F -> N: as waitpid said.
struct Exited {
  static constexpr Kind kKind = Kind::kExited;
  std::uint32_t pid = 0;
  std::int32_t status = 0;
};

// ---- output and status ----

struct LogLine {
  std::uint32_t pid = 0;
  bool error_stream = false;
  std::string label;  // "square" or "Counter.Add"
  std::string text;   // without the newline
};
// N -> D
struct LogLines {
  static constexpr Kind kKind = Kind::kLogLines;
  std::vector<LogLine> lines;
};
// T -> N, a call answered by StatusReply.
struct StatusRequest {
  static constexpr Kind kKind = Kind::kStatus;
  std::uint8_t unused = 0;
};
struct StatusReply {
  static constexpr Kind kKind = Kind::kStatusReply;
  std::string node;
  std::uint32_t pid = 0;
  double uptime_seconds = 0;
  Resources total;
  Resources in_use;  // by workers that are running something, and by actors
  std::uint32_t drivers = 0;
  std::uint32_t workers = 0;
  std::uint32_t workers_busy = 0;
  std::uint32_t actors = 0;
  std::uint64_t tasks_queued = 0;    // of processes here, summed over all queues
  std::uint64_t tasks_running = 0;   // here, whoever submitted them
  std::uint64_t tasks_finished = 0;  // likewise; with calls of actors
  std::uint64_t store_bytes = 0;
  std::uint64_t store_used = 0;
  std::uint64_t store_objects = 0;
  std::uint64_t store_spilled = 0;
  // With other nodes, since this one started; no field goes down.
  std::uint64_t bytes_sent = 0;       // of objects, to other stores
  std::uint64_t bytes_fetched = 0;    // from there
  std::uint64_t lease_requests = 0;   // by owners here …
  std::uint64_t lease_questions = 0;  // … and how often the head (or a scheduler) was asked about one
  struct Job {                        // whose driver is here
    Id job;
    std::string program;
    Resources quota;   // empty: none
    Resources in_use;  // of it, on all nodes
  };
  std::vector<Job> jobs;
  std::uint64_t calls_replayed = 0;  // of actors that came back here
  std::string head;                  // of the cluster that the node is in; empty: a node on its own
};

// T -> N, a call answered by MemoryReply: every large object of this node.
struct MemoryRequest {
  static constexpr Kind kKind = Kind::kMemory;
  std::uint8_t unused = 0;
};
struct MemoryReply {
  static constexpr Kind kKind = Kind::kMemoryReply;
  struct Object {
    Id id;
    std::uint64_t bytes = 0;
    ProcessId owner = kNoProcess;
    std::uint32_t owner_pid = 0;         // 0: gone, or of another node
    std::uint32_t holders = 0;           // the owner's Refs count as one, if nobody else has one
    std::vector<std::uint32_t> readers;  // pids of those that look at it now
    bool spilled = false;
    bool copy = false;  // of another node's object
  };
  std::string node;
  std::uint64_t store_bytes = 0;
  std::uint64_t store_used = 0;
  std::vector<Object> objects;
};

}  // namespace manta::wire
