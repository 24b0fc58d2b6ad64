// The Owner is the caller's half of the engine, one per process: it submits calls, keeps their futures,
// reads the answers of workers, retries what crashed, and lends values to others.
//
// Threads: any thread may submit and wait. State is guarded by one mutex (EntryTable::mutex), held for
// well under a microsecond at a time. Answers are read ("pumped") by whoever waits; a background thread
// does it only when nobody else has for a while, so that dependencies move while the program computes.
// The link's thread brings the daemon's messages.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "lineage/recall.h"
#include "lineage/record.h"
#include "manta/internal/core.h"
#include "manta/options.h"
#include "owner/class_queue.h"
#include "owner/daemon_link.h"
#include "owner/durable.h"
#include "owner/entry.h"
#include "owner/shelf_file.h"
#include "owner/task_log.h"
#include "owner/visit.h"
#include "rules/retry.h"
#include "shm/arena.h"
#include "shm/hand_over.h"
#include "shm/node_area.h"
#include "shm/spec.h"
#include "store/client.h"
#include "wire/secrets.h"

namespace manta::owner {

// Values up to this size live in memory of their own and travel inside calls and replies; larger ones
// live in the store.
inline constexpr std::size_t kSmallValue = 4096;

inline constexpr char kGone[] = "this Ref belongs to a cluster that was shut down";

// Who is calling: ids of calls are derived from it. One per thread.
struct Caller {
  Id parent;                // the running task, or the job
  std::uint64_t path = 0;   // which thread of it
  std::uint64_t calls = 0;  // made so far
  std::uint64_t puts = 0;   // of a task, made so far
  std::uint32_t session = 0;
  const Resources* need = nullptr;  // of the running task; nullptr in a driver
  std::uint64_t lease = 0;          // to be given back while the task sleeps
  bool can_block = false;
  std::int64_t polls_since_us = 0;  // waits too short to sleep, since then; 0: none
  // As shm::SpecHeader::kRerun and kFresh: what it calls has perhaps been called before.
  bool rerun = false;
  bool fresh = false;
  wire::Maker maker;  // the task that this worker serves, and for whom; empty in drivers and actors
};
Caller& ThisCaller();
// What a call made on this thread inherits of it: shm::SpecHeader::flags.
std::uint16_t RerunFlags();

// What a task or actor asks for, checked and counted.
Status ToResources(double cpus, double gpus, const std::map<std::string, double>& others, Resources* out);

// How a worker lends its hands: runs a spec on the calling thread, its results going straight to the
// entries. nullptr in a driver.
class InPlaceRunner {
 public:
  virtual ~InPlaceRunner() = default;
  [[nodiscard]] virtual bool RoomOnStack() const = 0;
  virtual void Run(const std::byte* spec, std::uint64_t bytes) = 0;
};

// Failure::type of a worker's answer that its task could not begin for want of an input; its cause is the input's id.
inline constexpr char kArgumentLost[] = "manta::ArgumentLost";

class Owner {
  using Lock = std::unique_lock<base::SpinMutex>;

 public:
  // How often threads look for themselves, in µs. It is a second line of defence: whoever waits is told, and a test
  // that makes these very long shows it.
  struct Pace {
    std::int64_t look_us = 100'000;  // a sleeper; ten times that, if another one listens for it
    std::int64_t tick_us = 1000;     // the background thread while calls are unfinished, give or take
  };
  struct Setup {
    std::shared_ptr<DaemonLink> link;
    std::shared_ptr<shm::Arena> arena;
    std::shared_ptr<shm::NodeArea> node;
    wire::Welcome welcome;
    std::shared_ptr<const lineage::Recall> recall;  // of a job that goes on after a crash
    Id job;                                         // empty in a worker until a task gives it one
    std::string space;
    InPlaceRunner* runner = nullptr;
    std::string (*function_name)(const void*) = nullptr;  // for messages
    Pace pace = {};
  };
  // Outlives the owner as long as somebody looks at a stored value or writes one.
  struct StoreHold {
    std::shared_ptr<shm::Arena> arena;
    std::shared_ptr<DaemonLink> link;
    store::StoreClient client;
    StoreHold(std::shared_ptr<shm::Arena> a, std::shared_ptr<DaemonLink> l, ProcessId self)
        : arena(std::move(a)), link(std::move(l)), client(*link, self, arena->at(shm::kPinBoardOffset)) {}
  };
  explicit Owner(Setup setup);
  ~Owner();
  Owner(const Owner&) = delete;
  Owner& operator=(const Owner&) = delete;

  // The process's owner, or nullptr. Only with the mutex held: else it may be destroyed meanwhile; see Visit.
  static Owner* Current();
  // Makes this owner the process's, and opens the door. The destructor takes it back.
  void BecomeCurrent();
  // The door is closed: makes everybody who waits inside come out with an error.
  void Retire();

  // ---- values (values.cc) ----
  Result<Entry*> PutBegin(std::size_t size, std::byte** out);
  void PutEnd(Entry* entry, std::vector<Entry*>&& contained, std::vector<ActorEntry*>&& actors);
  static void PutAbort(Entry* entry);  // of any cluster, also one that is gone
  // Returns when the value, of a Put, is where it survives this process (durable.h).
  Status MakeDurable(Entry* entry);
  // Keeps the value, of a Put, in the job's folder for `manta replay`. Does nothing if the job leaves no lineage here.
  Status KeepForReplay(Entry* entry);
  // Of a ready entry. For values in the store, pins it and sets *keep. *again: it is lost, and being made again; wait
  // until it is done, and look again. Without `again` nothing is done about a loss.
  Result<internal::View> Look(Entry* entry, KeepAlive* keep, bool* again);
  // Would Look have to bring it from another node's store? Of a ready entry.
  [[nodiscard]] bool IsElsewhere(const Entry* entry);
  // Those that are ready and elsewhere are asked for, all at once, and not waited for.
  void FetchAhead(std::span<Entry* const> entries);
  // Waits until a copy is in this node's store. False: it is not there in time. One that cannot be brought counts as
  // there: whoever looks at it is told why.
  bool FetchHere(const Entry* entry, std::int64_t timeout_us);
  // The last count of that use of the entry is gone; with the mutex held.
  void Dispose(Entry* entry, std::uint32_t generation);

  // ---- calls (submit.cc) ----
  const Plan* Intern(const TaskOptions& options, Status* status);
  Status Submit(const internal::Site& site, internal::Arguments& arguments, internal::RefScope& scope, const Plan* plan,
                std::uint32_t returns, Entry** out);

  // ---- lineage (rebuild.cc) ----
  // Has those of them made again that are known to be missing. True: there were such.
  bool Rebuild(std::span<Entry* const> entries);

  // ---- lineage on disk (record.cc) ----
  // Returns when all that this process has seen is on disk.
  Status Commit();
  // Before the daemon hears that the job has ended: what happened is in the ring.
  void WriteDown();
  // For a call that the calling thread is about to run itself (InPlaceRunner): its futures, one for each return.
  std::vector<Entry*> BeginReplay(shm::SpecHeader* header);
  // A value under the name that it had when it was recorded; for as long as the process lives.
  void Plant(const Id& id, std::span<const std::byte> value);

  // ---- waiting (wait.cc) ----
  // Asks the daemon for those that other processes own.
  void Subscribe(std::span<Entry* const> entries);
  // Until done() or the deadline (monotonic µs; < 0: none). In a worker, `mine` may be run in place, which takes as
  // long as it takes: so if there is a deadline, only if the caller `comes_again` (one long wait, cut into slices).
  bool WaitUntil(const std::function<bool()>& done, std::int64_t deadline_us, std::span<Entry* const> mine,
                 bool comes_again = false);
  void Pump();

  // ---- failures (failures.cc) ----
  // `tree`: with all calls that it has made and that have not ended, and theirs.
  void Cancel(Entry* entry, bool force, bool tree = false);
  // Those that `parent`, which ran on this thread, has made: so many.
  void CancelChildren(const Id& parent, std::uint64_t calls);

  // The daemon's cluster's secrets, read when first needed; and the thread for connections to other nodes.
  Result<std::shared_ptr<wire::Secrets>> Secrets();
  Result<far::Thread*> FarThread();
  // None: no worker on another node has anything of ours to do, or so much that its answers had better gather.
  far::Thread* BusyFarThread();

  // ---- actors (actors.cc) ----
  Result<ActorEntry*> CreateActor(const internal::Site& site, internal::Arguments& arguments, internal::RefScope& scope,
                                  const ActorSettings& settings, const std::string& class_name);
  Status CallActor(ActorEntry* actor, const internal::Site& site, internal::Arguments& arguments,
                   internal::RefScope& scope, const Plan* plan, std::uint32_t returns, Entry** out);
  Result<ActorEntry*> FindActor(const std::string& name, const std::string& space);
  // The live named actors; an empty space: of all namespaces.
  Result<std::vector<wire::NameList::Entry>> ListNames(const std::string& space);
  // With the mutex held, after one count has become weak or a strong one has gone: if only weak counts are left, the
  // daemon no longer counts this process as a holder.
  void DropIfWeak(ActorEntry* actor);
  Status KillActor(ActorEntry* actor, bool restart);
  void Dispose(ActorEntry* actor);  // with the mutex held

  // ---- placement groups and nodes (groups.cc) ----
  Result<GroupFacts> CreateGroup(GroupFacts facts);
  Status RemoveGroup(const Id& group);
  Result<GroupFacts> FindGroup(const Id& group);
  Result<GroupFacts> FindGroup(const std::string& name, const std::string& space);
  Result<std::vector<GroupFacts>> ListGroups();
  // True: it is ready. False: not within the time. kNotFound: it was removed.
  Result<bool> AwaitGroup(const Id& group, std::int64_t timeout_us);
  Result<std::vector<wire::NodeList::Node>> ListNodes(bool all);

  // ---- sharing (sharing.cc) ----
  // These refs and handles are about to leave in some bytes: the daemon must know them.
  void Announce(std::span<Entry* const> entries, std::span<ActorEntry* const> actors);
  // An entry for a Ref that arrived in some bytes; counted. `held`: the sender gave us a hold, now the entry's.
  Entry* Adopt(const Id& id, ProcessId owner, bool held);
  // Several at once, without holds: at most so many, for the mutex is held meanwhile. An empty id gives nullptr.
  static constexpr std::size_t kMostAdopted = 16;
  void AdoptAll(std::span<const shm::Contained> names, Entry** out);
  ActorEntry* AdoptActor(const Id& id, NodeNumber home, const wire::ActorOptions* options, bool held);
  // Makes the daemon count us for everything borrowed since BeginBorrowing that is still in use.
  void BeginBorrowing();
  // `answers`: the process that will be answered next. One of another node could let go of what was borrowed
  // before our holds are known there; then this waits until they are.
  void EndBorrowing(ProcessId answers = kNoProcess);
  // The journal of this process's actor has what was borrowed since BeginBorrowing: the actor holds it beyond this
  // process. False: there is nothing.
  bool KeepBorrowed(const Id& actor);
  // … and from now on it has these only.
  void KeepForActor(const Id& actor, std::span<Entry* const> entries, std::span<ActorEntry* const> actors);
  // Would any of them be lost with this process?
  [[nodiscard]] bool OwnsAny(std::span<Entry* const> entries);
  // A value with these inside goes to `receiver`: makes it a holder of each. Before the bytes go.
  void HandOver(std::span<Entry* const> entries, std::span<ActorEntry* const> actors, ProcessId receiver);
  // Delivers a result produced on this very thread (see InPlaceRunner).
  void DeliverValue(Entry* first, std::uint32_t index, std::span<const std::byte> bytes, bool last);
  void DeliverPlace(Entry* first, std::uint32_t index, const Place& place, bool last);
  void DeliverFailure(Entry* first, const Failure& failure, bool retryable);
  // Attaches what an in-place result contains to its entry.
  void DeliverContained(Entry* first, std::uint32_t index, std::vector<Entry*>&& entries,
                        std::vector<ActorEntry*>&& actors);
  Entry* EntryOf(const shm::SpecHeader& header);
  // An argument that lies in the store. Throws what Get would. If it is lost: `wait` until its owner has made it again,
  // or throw a ForeignError of type kArgumentLost, which its owner understands.
  internal::View LookAtArgument(const shm::StoredItem& item, KeepAlive* keep, bool wait);
  [[nodiscard]] shm::Arena& arena() { return *setup_.arena; }

  void OnMessage(wire::Frame& frame);   // link's thread
  void OnLost(const std::string& why);  // the daemon is gone

  [[nodiscard]] store::StoreClient& store() { return store_->client; }
  [[nodiscard]] DaemonLink& link() { return *setup_.link; }
  [[nodiscard]] shm::Doorbell& bell() { return *bell_; }
  [[nodiscard]] shm::NodeArea& node() { return *setup_.node; }
  [[nodiscard]] const wire::Welcome& welcome() const { return setup_.welcome; }
  [[nodiscard]] const std::string& space() const { return setup_.space; }
  [[nodiscard]] ProcessId self() const { return setup_.welcome.process; }
  [[nodiscard]] std::uint32_t session() const { return session_; }
  void SetJob(const Id& job) {
    const Lock lock(mutex_);
    setup_.job = job;
  }
  [[nodiscard]] Id job() {
    const Lock lock(mutex_);
    return setup_.job;
  }
  // Called for messages that are not the owner's business (a worker's leases, a driver's output).
  std::function<void(wire::Frame&)> other_messages;

 private:
  Id NextId();
  // Of a put: in a task another one than that of any call, so that a put more does not change the names of calls.
  Id NextPutId();
  // The name of a value that a task puts, once the value is written: see values.cc.
  void NameByContent(Entry* entry, std::span<const std::byte> value, std::span<Entry* const> contained);

  // All below with the mutex held.
  Status FillSpec(const internal::Site& site, const Plan* plan, std::uint32_t returns, shm::SpecHeader* header);
  // The call's entries; it keeps what `scope` counted.
  Entry* NewCall(const shm::SpecHeader& header, const Plan* plan, internal::RefScope& scope, Entry** out);
  // Sends a new call on its way, or parks it until its arguments are there. True: it also read answers, of which the
  // waiters must hear (NotifyWaiters) once the mutex is free.
  [[nodiscard]] bool Launch(Entry* entry, shm::SpecHeader& header, std::string_view name,
                            internal::Arguments& arguments);
  // Writes header, name and arguments into the log and pushes the call.
  Status Write(Entry* entry, shm::SpecHeader header, std::string_view name, std::span<const std::byte> arguments,
               const CallOrigin& origin);
  void Park(Entry* entry, const shm::SpecHeader& header, std::string_view name, internal::Arguments& arguments);
  void Unpark(Entry* entry);
  // The queue for a call of `queue` whose arguments are at hand: the same one, unless more of them is on another node.
  ClassQueue& Located(ClassQueue& queue, std::span<Entry* const> arguments);
  Status MakeQueue(ClassQueue& queue);
  void Push(Entry* entry);
  bool PushToRing(ClassQueue& queue, Entry* entry);
  void Refill(ClassQueue& queue);
  // `sleeps`: this process leaves its core to others.
  void AskForWorkers(ClassQueue& queue, bool sleeps = false);
  [[nodiscard]] static bool MayAsk(const ClassQueue& queue);
  // Which code a spec runs: the unit whose run time is averaged.
  [[nodiscard]] std::uint64_t FunctionOf(std::uint64_t spec) const;
  // A worker says how long one of these ran.
  void Ran(Lane& lane, const Entry* entry, std::uint16_t run);
  void RequestLease(ClassQueue& queue, bool stalled);
  bool Wake(Lane& lane);
  void CancelRequests(ClassQueue& queue);
  void Balance(ClassQueue& queue, std::int64_t now_us, bool sleeps);
  Lane* TakeLane();
  void ReleaseLane(Lane* lane);
  bool PumpLocked();
  bool ReadLane(Lane& lane);
  void OnReply(Lane& lane, const shm::ReplyHeader& header, const std::byte* payload);
  void SetValue(Entry* entry, std::span<const std::byte> bytes);
  void SetContents(Entry* entry, std::vector<Entry*>&& contained, std::vector<ActorEntry*>&& actors);
  // `value`: where its bytes came from, if they stand in the entry, too.
  void Succeed(Entry* entry, const std::byte* value = nullptr);
  void Fail(Entry* entry, Failure failure);
  void FailCall(Entry* entry, const Failure& failure);  // all its returns
  void Finish(Entry* entry);                            // the call is over: lets go of arguments
  // As rules/retry.h says.
  void RetryOrFail(Entry* entry, const Failure& failure, rules::Ended ended);
  [[nodiscard]] rules::OpenCall OpenCallOf(const Entry* entry);
  void SendAgain(Entry* entry, const rules::OpenCall& call);
  void GiveUp(Entry* entry, rules::Fate fate, Failure failure, bool died);
  // `worker`: that crashed; what it may have stored for the calls is freed.
  void FreeUnanswered(std::span<Entry* const> calls, ProcessId worker);
  void WakeDependents(Entry* entry);
  void LoseLane(Lane& lane, const Failure& failure);
  void CheckTimeouts(std::int64_t now_us);
  Entry* Return(Entry* first, std::uint32_t index);
  bool TakeBack(Entry* entry);
  void CallOrder(ActorEntry* actor);
  Status AttachActor(ActorEntry* actor);
  Status SendAttach(ActorEntry* actor);
  void OnActorState(const wire::ActorState& state);
  void ApplyActorState(ActorEntry* actor, const wire::ActorState& state);
  void OnGroupChanged(const wire::GroupChanged& message);
  void AskToSpread(ClassQueue& queue, std::uint64_t waiting);
  void FailActor(ActorEntry* actor);
  void ForgetActor(ActorEntry* actor);
  void Unref(Entry* entry);  // drops a count with the mutex held
  void UnrefActor(ActorEntry* actor);
  void DisposeLocked(Entry* entry);
  void SettleDoomed();
  void FailQueue(ClassQueue& queue, const Failure& failure);
  Entry* AdoptLocked(const Id& id, ProcessId owner, bool held);
  ActorEntry* AdoptActorLocked(const Id& id, NodeNumber home, const wire::ActorOptions* options, bool held);
  void AnnounceLocked(Entry* entry, std::string* frames);
  void PublishLocked(Entry* entry, bool expected, std::string* frames);
  void AnnounceContents(Entry* entry, std::string* frames);
  void SubscribeLocked(Entry* entry, std::string* frames);
  void QueueHold(const Id& id, ProcessId owner);
  [[nodiscard]] ProcessId OwnerOf(const Entry* entry) const;
  [[nodiscard]] bool IsFar(ProcessId process) const;
  void QueueDrop(const Id& id, std::uint32_t holds);
  void WakeBackground();
  void RestartActor(ActorEntry* actor, const wire::ActorState& state);
  void ResendCalls(ActorEntry* actor, const wire::ActorState& state);
  void MarkSpec(Entry* entry, std::uint16_t set,
                std::uint16_t clear = 0);  // flags of its call, before it is sent again
  void SendQueued(std::string* frames);    // holds and drops that wait for the daemon
  void OnObjectReady(const wire::ObjectReady& message);
  static Failure LostFailure(const Entry* entry, Failure failure);
  std::string NameOf(Entry* entry);
  std::string DescribeTask(Entry* entry);

  // Lineage (rebuild.cc). With the mutex held.
  void KeepLineage(Entry* entry, bool actor);
  void ReleaseLineage(Entry* entry);
  void DropLineage(Entry* entry);
  void Shelve(Entry* entry);
  void Revive(Entry* entry);
  void Unshelve(Entry* entry);
  void BoundLineage();
  // To the file, and back. False: that did not work.
  bool MoveOut(Entry* entry);
  bool MoveIn(Entry* task);
  Entry* OnShelf(const ShelfFile::Edge& edge);
  void DropRecord(Entry* entry);
  [[nodiscard]] std::uint64_t SpecBytes(const Entry* entry);
  struct Graph;
  void Want(Entry* entry);
  void Restart(Entry* task);
  void Resend(Entry* task);
  void Blank(Entry* entry);
  void Miss(Entry* entry);
  bool Lose(Entry* entry, const Place& place, const std::string& why);
  void ArgumentLost(Entry* task, const Failure& failure);
  void DiscardResult(Entry* first, std::uint32_t index, const Place& place);
  Failure Hopeless(Entry* wanted, Entry* culprit);
  void OnNodeGone(const wire::NodeGone& message);
  void OnObjectLost(const wire::ObjectLost& message);
  void OnUnheld(const wire::Unheld& message);

  // What dead processes owned (orphans.cc). With the mutex held.
  void LinkMaker(Entry* task, Entry* result);
  void OnOrphaned(const wire::Orphaned& message);
  bool Remake(Entry* task, const Id& object, std::uint64_t ask, std::string* why);
  bool RemakeBorrowed(Entry* entry);
  bool TakeContained(const shm::Contained& inner);
  void SettleOrphans(Entry* task);
  Entry* FindTask(const Id& id);
  Result<DurableValues*> Durable();
  bool Rescue(Entry* entry, const Failure& failure);
  void ForgetDurable(const Entry* entry);
  void Rescued(Entry* entry, const Failure& failure, Result<std::vector<std::byte>> value);  // without the mutex

  // Lineage on disk (record.cc).
  void StartRecording();
  // Which record is the entry's; 0: none. What was called has its place (NewCall): then recorded_ need not be asked to
  // grow.
  std::uint64_t& RecordOf(const Entry* entry) {
    if (entry->index >= recorded_.size()) recorded_.resize(entry->index + 1024);
    return recorded_[entry->index];
  }
  void RecordCall(const Entry* entry, const CallOrigin& origin, const shm::SpecHeader& header, std::string_view name,
                  std::span<const std::byte> arguments);
  void RecordOutcome(const Entry* entry, const std::byte* value);
  void Recorded();
  void Settle();
  // The call was made, and ended, before a crash: then it is over.
  bool Recalled(Entry* entry, const shm::SpecHeader& header, internal::Arguments& arguments);
  Status AwaitRoomToRecord();  // without the mutex

  void EndLease(std::uint64_t request, const Failure* lost, std::uint64_t token);
  void ReleaseLease(Lane& lane, const Failure* lost);

  // Workers on other nodes (far.cc). With the mutex held, but for the handlers, which run on the far thread.
  void StartFar(Lane& lane, ProcessId worker, const std::string& address, std::uint64_t pass);
  void FarBroken(Lane& lane, const Status& why);
  void EndFar(Lane& lane);
  void Feed(Lane& lane);
  void FeedAll(ClassQueue& queue);
  void BalanceFar(Lane& lane, std::int64_t now_us);
  void OnFarConnected(std::uint32_t index, std::uint64_t serial, std::uint64_t pass, Result<wire::Link> link);
  void OnFarFrame(std::uint32_t index, std::uint64_t serial, wire::Frame& frame);
  void OnFarClosed(std::uint32_t index, std::uint64_t serial, const Status& why);
  void OnFarReplies(Lane& lane, std::string_view records);
  void OnFarReturned(Lane& lane, const std::vector<std::uint64_t>& tokens);
  Lane* FindFar(std::uint32_t index, std::uint64_t serial);
  void Background();
  Lock PatientLock() {  // for the background thread
    mutex_.lock_patiently();
    return {mutex_, std::adopt_lock};
  }
  bool Housekeep(std::int64_t now_us);  // true: work waits
  bool RunInPlace(std::span<Entry* const> mine);
  [[nodiscard]] bool SharesCore();  // with a worker that is awake; with the mutex held
  bool SpinUntil(const std::function<bool()>& done, std::int64_t deadline_us);
  void NotifyWaiters();
  void Follow(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, std::int64_t wait_us);
  void PassOnLead(bool* leads);  // with wait_mutex_ held
  bool Sleep(const std::function<bool()>& done, std::int64_t deadline_us, std::span<Entry* const> mine, bool in_place);
  static bool PolledForLong(std::int64_t now_us);

  Setup setup_;
  EntryTable& table_;
  base::SpinMutex& mutex_;
  const std::uint32_t session_;
  shm::Doorbell* bell_;
  std::shared_ptr<StoreHold> store_;
  shm::ChunkAllocator chunks_;
  TaskLog log_;

  std::map<std::tuple<Resources, std::int32_t, Strategy>, std::unique_ptr<ClassQueue>> queues_;
  std::map<std::pair<ClassQueue*, NodeNumber>, std::unique_ptr<ClassQueue>> located_;
  std::unordered_map<std::uint64_t, rules::Average> run_us_;  // of functions, by FunctionOf
  std::vector<ClassQueue*> all_queues_;                       // of tasks and of actors
  ClassQueue* plain_ = nullptr;                               // tasks with default options
  std::vector<std::unique_ptr<Lane>> lanes_;                  // by index; [0] unused
  std::vector<Lane*> free_lanes_;
  std::vector<Lane*> active_lanes_;
  std::unordered_map<std::uint64_t, Lane*> lanes_by_request_;
  std::uint64_t next_request_ = 1;
  std::uint64_t next_path_ = 0;
  std::unordered_map<Id, Entry*> by_id_;
  std::unordered_map<Id, ActorEntry*> actors_;
  struct WatchedGroup {
    std::atomic<GroupState> state{GroupState::kWaiting};  // read without the mutex; what follows is written before
    std::string why;                                      // it was removed
  };
  std::unordered_map<Id, std::shared_ptr<WatchedGroup>> watched_groups_;
  struct HoldOrDrop {
    Id id;
    std::uint32_t drops = 0;       // 0: a hold
    ProcessId owner = kNoProcess;  // of what is held
  };
  std::vector<HoldOrDrop> pending_;       // to be told to the daemon, in this order
  std::atomic<bool> any_pending_{false};  // for a look without the mutex
  std::atomic<bool> far_holds_{false};    // of other nodes' objects, since the last HoldFar
  struct Doomed {
    Entry* entry = nullptr;
    std::uint32_t generation = 0;
  };
  std::vector<Doomed> doomed_;    // their last count went while the mutex was held
  std::vector<Doomed> unneeded_;  // shelved, and the last that needed them went
  std::uint64_t submitted_ = 0;
  std::uint64_t completed_ = 0;
  Failure lost_;  // the daemon is gone: why

  // Lineage.
  struct Shelved {
    Entry* entry = nullptr;
    std::uint32_t generation = 0;
  };
  std::deque<Shelved> shelved_;  // tasks, in that order; some may have gone meanwhile
  std::deque<Shelved> kept_;     // values that cannot be made again, and are shelved
  std::size_t shelved_prune_ = 1024;
  std::size_t kept_prune_ = 1024;
  std::uint64_t shelved_bytes_ = 0;                          // of specs and entries
  ShelfFile shelf_;                                          // what is beyond the limit
  std::unordered_map<const Entry*, std::uint64_t> on_disk_;  // entries that have a record there
  std::string shelf_trouble_;                                // why there is none, if there should be
  std::uint64_t kept_bytes_ = 0;                             // of values
  std::atomic<bool> any_missing_{false};
  struct NodeLoss {
    std::int64_t at_us = 0;
    std::string why;
  };
  std::unordered_map<NodeNumber, NodeLoss> gone_;

  // Lineage on disk.
  std::unique_ptr<lineage::Encoder> recorder_;  // none: it is not
  std::vector<std::uint64_t> recorded_;         // by an entry's index: its record, and which return of it
  shm::Doorbell* keeper_bell_ = nullptr;        // the daemon's
  std::atomic<bool> behind_{false};             // records wait for room in the ring
  // What is only counted is to be written down, and was; who has the mutex looks (Recorded).
  std::atomic<std::uint32_t> settles_asked_{0};
  std::atomic<std::uint32_t> settles_done_{0};

  // Waiting. One thread at a time (the leader) sleeps on the doorbell and reads the answers for all; the others sleep
  // each on their own, and are woken when what they wait for is there, or to lead.
  struct Follower {
    const std::function<bool()>& done;  // called by others, too, with wait_mutex_ held
    std::condition_variable wake;
  };
  std::mutex wait_mutex_;
  bool leader_ = false;
  std::vector<Follower*> followers_;
  std::atomic<std::uint32_t> following_{0};  // followers_.size(), for a look without the mutex
  std::atomic<std::uint64_t> pumped_{0};     // times somebody looked
  shm::HandOver hand_over_;                  // to workers on the waiter's core

  std::mutex far_mutex_;  // guards the next three while they are made
  std::shared_ptr<wire::Secrets> secrets_;
  std::unique_ptr<far::Thread> far_thread_;
  std::unique_ptr<DurableValues> durable_values_;
  std::unordered_map<Id, Id> durable_;  // what was put as such and is still here: its job
  std::uint64_t next_far_ = 1;

  std::mutex background_mutex_;
  std::condition_variable background_wake_;
  std::atomic<bool> background_idle_{true};
  std::atomic<bool> stopping_{false};
  std::thread background_;
};

}  // namespace manta::owner
