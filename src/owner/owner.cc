#include "owner/owner.h"

#include "base/clock.h"
#include "wire/cancel_messages.h"

namespace manta::owner {
namespace {

std::atomic<Owner*> g_current{nullptr};
std::atomic<std::uint32_t> g_sessions{0};

}  // namespace

Caller& ThisCaller() {
  thread_local Caller caller;
  return caller;
}

Owner* Owner::Current() { return g_current.load(std::memory_order_acquire); }

void Owner::BecomeCurrent() {
  {
    const Lock lock(mutex_);
    g_current.store(this, std::memory_order_release);
  }
  Visit::Open(this);
}

namespace {

constexpr std::int64_t kOverUs = 10'000'000;  // for a far worker's connection to end after its lease has

const Failure& Gone() {
  static const auto* gone = new Failure{Code::kUnavailable, kGone, {}, {}};
  return *gone;
}

}  // namespace

void Owner::Retire() { OnLost(kGone); }

Owner::Owner(Setup setup)
    : setup_(std::move(setup)),
      table_(EntryTable::Get()),
      mutex_(table_.mutex),
      session_(g_sessions.fetch_add(1) + 1),
      bell_(&setup_.node->bell(setup_.welcome.process)),
      store_(std::make_shared<StoreHold>(setup_.arena, setup_.link, setup_.welcome.process)),
      log_(*setup_.arena, chunks_),
      shelf_(setup_.welcome.spill, shm::DiskShare(setup_.welcome.spill_limit, *setup_.node, setup_.welcome.process)) {
  StartRecording();
  lanes_.push_back(nullptr);
  Status status;
  plain_ = Intern(TaskOptions{}, &status)->queue;
  background_ = std::thread([this] { Background(); });
}

Owner::~Owner() {
  stopping_.store(true);
  {
    const std::lock_guard lock(background_mutex_);
    background_wake_.notify_all();
  }
  background_.join();
  durable_values_.reset();
  if (far_thread_ != nullptr) {
    // Connections come and end until the thread has stopped, and with them lanes lose what is theirs, under the lock.
    std::vector<std::unique_ptr<wire::Dial>> dials;
    {
      const Lock lock(mutex_);
      for (const std::unique_ptr<Lane>& lane : lanes_) {
        if (lane != nullptr && lane->far != nullptr) dials.push_back(std::move(lane->far->dial));
      }
    }
    far_thread_->Post([gone = std::make_shared<decltype(dials)>(std::move(dials))] { gone->clear(); });
    far_thread_->Stop();  // not reset: what runs on it until then looks for it here
    far_thread_.reset();
  }
  // Refs may outlive us: what they name is now a failure, or a value that needs nobody. What is done stays as it is,
  // because it is read without a lock; Look refuses what lay in the store.
  const Lock lock(mutex_);
  if (g_current.load(std::memory_order_relaxed) == this) g_current.store(nullptr, std::memory_order_release);
  std::vector<Entry*> unfinished;    // still counted by their task
  std::vector<ActorEntry*> callees;  // counted by calls
  std::vector<Entry*> shelved;
  table_.ForEach([&](Entry* entry) {
    if (entry->session != session_) return;
    if (entry->origin == Origin::kTask && (entry->stage != Stage::kNone || entry->queue != nullptr)) {
      unfinished.push_back(entry);
      if (entry->stage == Stage::kShelved) unfinished.pop_back();
      if (entry->queue != nullptr && entry->queue->actor != nullptr) callees.push_back(entry->queue->actor);
    }
    // Nothing is made again any more.
    if (entry->stage == Stage::kShelved) shelved.push_back(entry);
    entry->lineage = 0;
    if (entry->extra != nullptr) {
      Extra& extra = *entry->extra;
      if (entry->queue != nullptr)
        extra.arguments.insert(extra.arguments.end(), extra.inputs.begin(), extra.inputs.end());
      extra.inputs.clear();
      extra.mentions.clear();
      extra.returns.clear();
      extra.first = nullptr;
      extra.maker = nullptr;
      extra.orphans.clear();
    }
    entry->stage = Stage::kNone;
    entry->queue = nullptr;
    entry->spec = 0;
    entry->flags = 0;
    // A Put that has begun is its thread's, which will find us gone.
    if (entry->done() || entry->origin == Origin::kPut) return;
    entry->failure = new Failure(Gone());
    entry->where = Where::kFailure;
    entry->state.store(State::kFailed, std::memory_order_release);
  });
  // A thread may drop the last Ref of a plain one just now (Entry::plain).
  table_.ForEachSmall([&](Entry* entry) {
    if (entry->session != session_ || entry->plain()) return;
    std::atomic_ref(entry->lineage).store(0, std::memory_order_relaxed);
    std::atomic_ref(entry->flags).store(0, std::memory_order_relaxed);
  });
  for (auto& [id, actor] : actors_) {
    actor->phase = wire::ActorPhase::kDead;
    actor->failure = Gone();
    actor->order.clear();
    actor->queue.reset();
    actor->lane = nullptr;
    actor->refs.fetch_add(1, std::memory_order_relaxed);  // until we have seen all of them
  }
  for (ActorEntry* actor : callees) actor->refs.fetch_sub(1, std::memory_order_relaxed);
  for (Entry* entry : shelved) table_.DisposeForeign(entry);
  for (Entry* entry : unfinished) {
    if (entry->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) table_.DisposeForeign(entry);
  }
  for (auto& [id, actor] : actors_) {
    if (actor->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete actor;
  }
}

Id Owner::NextId() {
  Caller& caller = ThisCaller();
  if (caller.session != session_) {
    const Lock lock(mutex_);
    caller = Caller{};
    caller.session = session_;
    // In a worker this is a thread outside of any call, such as the event loop of an actor's coroutines. The job's own
    // ids are the driver's, and every worker counts its threads from 0: each worker derives from an id of its own.
    caller.parent = setup_.runner == nullptr ? setup_.job : DeriveId(setup_.job, self(), 0);
    caller.path = next_path_++;
  }
  return DeriveId(caller.parent, caller.path, caller.calls++);
}

void Owner::OnLost(const std::string& why) {
  {
    const Lock lock(mutex_);
    lost_ = Failure{Code::kUnavailable, why, {}, {}};
    table_.ForEach([&](Entry* entry) {
      if (entry->session != session_) return;
      if (entry->origin == Origin::kTask) {
        if (!entry->over() || !entry->done()) FailCall(entry, lost_);
      } else if (entry->origin == Origin::kBorrowed && !entry->done()) {
        Fail(entry, lost_);
      }
    });
    SettleDoomed();
  }
  bell_->Ring();
  NotifyWaiters();
}

// `lost`: how its worker died, if it did.
void Owner::EndLease(std::uint64_t request, const Failure* lost, std::uint64_t token) {
  const Lock lock(mutex_);
  const auto it = lanes_by_request_.find(request);
  if (it == lanes_by_request_.end()) return;
  Lane& lane = *it->second;
  if (lane.far != nullptr) lane.far->died_in = token;
  if (lane.far != nullptr && !lane.far->closed) {
    // What the worker sent before may still be on its way.
    lane.far->over = true;
    if (lost != nullptr) {
      lane.far->lost = *lost;
      if (lane.far->link != nullptr) lane.far->link->Close();
    }
    if (lane.far->link != nullptr) {
      lane.far->link->CloseLater(kOverUs);
      return;
    }
  }
  ReleaseLease(lane, lost);
}

void Owner::ReleaseLease(Lane& lane, const Failure* lost) {
  ClassQueue& queue = *lane.queue;
  // After an orderly end nothing is left to be lost, unless the connection broke before its last words had come.
  Failure broken;
  if (lost == nullptr && lane.far != nullptr) {
    broken =
        Failure{Code::kWorkerCrashed, Cat("the connection to worker ", lane.pid, " on another node broke"), {}, {}};
    lost = &broken;
  }
  if (lost == nullptr) ReadLane(lane);
  if (std::erase(queue.lanes, &lane) == 0) --queue.requests;
  if (lost != nullptr) LoseLane(lane, *lost);
  ReleaseLane(&lane);
  AskForWorkers(queue);
}

void Owner::OnMessage(wire::Frame& frame) {
  using wire::Kind;
  if (frame.kind == wire::CancelObject::kKind) {
    const Result<wire::CancelObject> message = frame.As<wire::CancelObject>();
    if (!message.ok()) return;
    Entry* entry = nullptr;
    {
      const Lock lock(mutex_);
      const auto it = by_id_.find(message.value().object);
      if (it == by_id_.end() || it->second->origin == Origin::kBorrowed) return;
      entry = it->second;
      Revive(entry);
    }
    Cancel(entry, message.value().force, message.value().tree);
    return internal::Release(entry);
  }
  switch (frame.kind) {
    case Kind::kLeaseGranted: {
      Result<wire::LeaseGranted> message = frame.As<wire::LeaseGranted>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      const auto it = lanes_by_request_.find(message->request);
      if (it == lanes_by_request_.end()) return;
      Lane& lane = *it->second;
      lane.worker = message->worker;
      lane.pid = message->pid;
      if (!message->address.empty()) StartFar(lane, message->worker, message->address, message->pass);
      --lane.queue->requests;
      lane.queue->lanes.push_back(&lane);
      AskForWorkers(*lane.queue);  // there may be work for one more
      return;
    }
    case Kind::kLeaseRefused: {
      Result<wire::LeaseRefused> message = frame.As<wire::LeaseRefused>();
      if (!message.ok()) return;
      {
        const Lock lock(mutex_);
        const auto it = lanes_by_request_.find(message->request);
        if (it == lanes_by_request_.end()) return;
        ClassQueue& queue = *it->second->queue;
        --queue.requests;
        ReleaseLane(it->second);
        if (!queue.lanes.empty()) {
          queue.refused_us = base::NowMicros();
        } else if (queue.requests == 0) {  // else wait for the other answer
          FailQueue(queue, message->failure);
        }
      }
      break;
    }
    case Kind::kLeaseEnded: {
      Result<wire::LeaseEnded> message = frame.As<wire::LeaseEnded>();
      if (!message.ok()) return;
      EndLease(message->request, nullptr, 0);
      break;
    }
    case Kind::kLeaseLost: {
      Result<wire::LeaseLost> message = frame.As<wire::LeaseLost>();
      if (!message.ok()) return;
      EndLease(message->request, &message->failure, message->token);
      break;
    }
    case Kind::kActorState: {
      Result<wire::ActorState> message = frame.As<wire::ActorState>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnActorState(*message);
      break;
    }
    case Kind::kGroupChanged: {
      Result<wire::GroupChanged> message = frame.As<wire::GroupChanged>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnGroupChanged(*message);
      break;
    }
    case Kind::kNodeGone: {
      Result<wire::NodeGone> message = frame.As<wire::NodeGone>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnNodeGone(*message);
      break;
    }
    case Kind::kObjectLost: {
      Result<wire::ObjectLost> message = frame.As<wire::ObjectLost>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnObjectLost(*message);
      break;
    }
    case Kind::kOrphaned: {
      Result<wire::Orphaned> message = frame.As<wire::Orphaned>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      PumpLocked();  // what has been answered is over
      OnOrphaned(*message);
      break;
    }
    case Kind::kUnheld: {
      Result<wire::Unheld> message = frame.As<wire::Unheld>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnUnheld(*message);
      return;
    }
    case Kind::kObjectReady: {
      Result<wire::ObjectReady> message = frame.As<wire::ObjectReady>();
      if (!message.ok()) return;
      const Lock lock(mutex_);
      OnObjectReady(*message);
      break;
    }
    default:
      if (other_messages) other_messages(frame);
      return;
  }
  bell_->Ring();
  NotifyWaiters();
}

}  // namespace manta::owner
