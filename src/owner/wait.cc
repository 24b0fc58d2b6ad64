// Waiting: reading answers, spinning, sleeping, and what the background thread does meanwhile.
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "base/clock.h"
#include "owner/owner.h"
#include "rules/actor_replay.h"

namespace manta::owner {
namespace {

// As long as two futex wakes take: by then sleeping would have been as quick.
constexpr std::int64_t kSpinUs = 80;
// A task that waits with timeouts holds up its own children for so long at most.
constexpr std::int64_t kHoldUpUs = 10'000;
// Who is rung so often so soon after it has gone to sleep, and not for its own sake, had better not be rung: it naps.
constexpr int kInVain = 4;
constexpr std::int64_t kSoonUs = 50;
constexpr std::int64_t kNapUs = 50;

template <typename F>
void ForContained(std::span<const std::byte> bytes, F f) {
  for (std::size_t at = 0; at + sizeof(shm::Contained) <= bytes.size(); at += sizeof(shm::Contained)) {
    shm::Contained inner;
    std::memcpy(&inner, bytes.data() + at, sizeof inner);
    f(inner);
  }
}

}  // namespace

Entry* Owner::Return(Entry* first, std::uint32_t index) {
  if (index == 0) return first;
  if (first->extra == nullptr || index > first->extra->siblings.size()) return nullptr;
  return first->extra->siblings[index - 1];
}

void Owner::SetValue(Entry* entry, std::span<const std::byte> bytes) {
  entry->size = bytes.size();
  if (bytes.size() <= Entry::kInlineBytes) {
    if (!bytes.empty()) std::memcpy(entry->small, bytes.data(), bytes.size());
    entry->where = Where::kInline;
    return;
  }
  entry->heap = static_cast<std::byte*>(std::malloc(bytes.size()));
  if (entry->heap == nullptr) std::abort();  // nothing sensible is left to do without memory for a small value
  std::memcpy(entry->heap, bytes.data(), bytes.size());
  entry->where = Where::kHeap;
}

void Owner::OnReply(Lane& lane, const shm::ReplyHeader& header, const std::byte* payload) {
  using shm::ReplyHeader;
  const std::span<const std::byte> bytes(payload, header.size);
  const bool contained = header.kind == shm::ReplyKind::kContained;
  Entry* first = table_.Find(header.entry, header.generation);
  const bool known = first != nullptr && first->origin == Origin::kTask && first->session == session_;
  Entry* entry = known ? Return(first, header.index) : nullptr;
  if (header.run != 0 && known) Ran(lane, first, header.run);
  const bool unwanted = known && (first->flags & (Entry::kTimedOut | Entry::kCancelled)) != 0;
  if (contained && (entry == nullptr || entry->done() || unwanted)) {
    // Nobody wants the result any more; what its worker made us hold for it must be dropped all the same.
    ForContained(bytes, [this](const shm::Contained& inner) {
      if (!TakeContained(inner)) QueueDrop(inner.id, 1);
    });
  }
  const bool place = header.kind == shm::ReplyKind::kPlace && bytes.size() == sizeof(Place);
  if (entry == nullptr) {
    if (!known || first->over()) return;
    if (place) {
      Place nobodys;
      std::memcpy(&nobodys, bytes.data(), sizeof nobodys);
      DiscardResult(first, header.index, nobodys);
    }
    if ((header.flags & ReplyHeader::kLast) != 0) Finish(first);
    return;
  }
  const bool last = (header.flags & ReplyHeader::kLast) != 0;
  if ((first->flags & Entry::kTimedOut) != 0) {
    // Too late: the signal that asks for its stack has woken it up.
    first->flags &= static_cast<std::uint8_t>(~Entry::kTimedOut);
    FreeUnanswered({&first, 1}, lane.worker);
    return RetryOrFail(first, lane.timeout_failure, rules::Ended::kDiedInIt);
  }
  if (header.kind == shm::ReplyKind::kFailure) {
    if (first->over()) return;
    Failure failure;
    try {
      failure = Decode<Failure>(bytes);
    } catch (const Error& error) {
      failure = Failure{Code::kCorrupt, Cat("a worker's error report does not decode: ", error.what()), {}, {}};
    }
    const ActorEntry* actor = first->queue->actor;
    if (actor != nullptr && failure.type == rules::kNotBegunAgain && !actor->crash.ok()) {
      return RetryOrFail(first, actor->crash, rules::Ended::kRefused);
    }
    const bool again = (header.flags & ReplyHeader::kRetryable) != 0;
    return RetryOrFail(first, failure, again ? rules::Ended::kAsksAgain : rules::Ended::kThrew);
  }
  if ((first->flags & Entry::kCancelled) != 0 && !first->over()) {
    // It did not heed the cancel. That its results depend on how soon it would have helps nobody.
    if (place && !entry->done()) {
      Place nobodys;
      std::memcpy(&nobodys, bytes.data(), sizeof nobodys);
      DiscardResult(first, header.index, nobodys);
    }
    if (last) RetryOrFail(first, {}, rules::Ended::kThrew);
    return;
  }
  if (!entry->done()) {
    if (contained) {
      entry->contains = true;
      ForContained(bytes, [&](const shm::Contained& inner) {
        if (LocalOf(inner.owner) == 0) {
          entry->more().contained_actors.push_back(AdoptActorLocked(inner.id, NodeOf(inner.owner), nullptr, true));
        } else {
          entry->more().contained.push_back(AdoptLocked(inner.id, inner.owner, true));
          std::string frames;
          if (!first->more().orphans.empty()) SubscribeLocked(entry->more().contained.back(), &frames);
          if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
        }
      });
      return;
    }
    const std::byte* value = nullptr;
    if (header.kind == shm::ReplyKind::kPlace) {
      if (!place) return;
      std::memcpy(&entry->place, bytes.data(), sizeof(Place));
      entry->size = entry->place.size;
      entry->where = Where::kStore;
    } else {
      SetValue(entry, bytes);
      value = payload;
    }
    Succeed(entry, value);
  }
  if (last) Finish(first);
}

bool Owner::ReadLane(Lane& lane) {
  if (!lane.reader.Ready()) return false;
  // All there is: what we left, nobody would ring for again.
  const bool sane = lane.reader.Read(
      UINT32_MAX, [&](const shm::ReplyHeader& header, const std::byte* payload) { OnReply(lane, header, payload); });
  if (!sane && lane.worker != kNoProcess) {
    // Its worker has written nonsense into our memory: it is beyond help.
    wire::KillWorker message;
    message.worker = lane.worker;
    message.failure = Failure{Code::kWorkerCrashed,
                              Cat("worker ", lane.pid,
                                  " wrote nonsense into shared memory and was killed: look for writes "
                                  "through wild pointers in its tasks (make asan helps)"),
                              {},
                              {}};
    lane.active = false;
    static_cast<void>(link().Send(message));
  }
  return true;
}

bool Owner::PumpLocked() {
  bool any = false;
  for (std::size_t i = 0; i < active_lanes_.size(); ++i) {
    if (active_lanes_[i]->active && ReadLane(*active_lanes_[i])) {
      any = true;
      ClassQueue* queue = active_lanes_[i]->queue;
      if (!queue->backlog.empty()) Refill(*queue);
    }
  }
  if (any) {
    SettleDoomed();
    bell_->completed.store(completed_, std::memory_order_relaxed);
  }
  return any;
}

void Owner::Pump() {
  bool any = false;
  {
    const Lock lock(mutex_);
    any = PumpLocked();
  }
  pumped_.fetch_add(1, std::memory_order_relaxed);
  if (any) NotifyWaiters();
}

// Wakes only those who need not sleep again: being woken in vain costs more than many tasks.
void Owner::NotifyWaiters() {
  if (following_.load(std::memory_order_seq_cst) == 0) return;
  const std::lock_guard lock(wait_mutex_);
  for (Follower* follower : followers_) {
    if (follower->done()) follower->wake.notify_one();
  }
}

void Owner::Follow(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done, std::int64_t wait_us) {
  Follower self{done, {}};
  followers_.push_back(&self);
  following_.store(static_cast<std::uint32_t>(followers_.size()), std::memory_order_seq_cst);
  // Entries become ready under the mutex, and then NotifyWaiters looks for followers. Having been inside since we
  // counted ourselves, we see what was made ready before; whoever makes it later sees us. Without it, a
  // processor may look for followers before others can see the entry ready (x86 does not, for the unlocking).
  {
    const Lock seen(mutex_);
  }
  if (!done()) self.wake.wait_for(lock, std::chrono::microseconds(wait_us));
  std::erase(followers_, &self);
  following_.store(static_cast<std::uint32_t>(followers_.size()), std::memory_order_seq_cst);
}

// Whoever leaves. Also one who did not lead: it may have been chosen to, and not have known when it left.
void Owner::PassOnLead(bool* leads) {
  if (std::exchange(*leads, false)) leader_ = false;
  if (!leader_ && !followers_.empty()) followers_.front()->wake.notify_one();
}

bool Owner::WaitUntil(const std::function<bool()>& done, std::int64_t deadline_us, std::span<Entry* const> mine,
                      bool comes_again) {
  const bool in_place = setup_.runner != nullptr && (deadline_us < 0 || comes_again);
  if (done()) return true;
  Pump();
  for (;;) {
    if (done()) return true;
    if (!in_place || !RunInPlace(mine)) break;
  }
  if (SpinUntil(done, deadline_us)) return true;
  const std::int64_t now = base::NowMicros();
  if (deadline_us >= 0 && now >= deadline_us && !PolledForLong(now)) return done();
  return Sleep(done, deadline_us, mine, in_place);
}

bool Owner::SharesCore() {
  for (Lane* lane : active_lanes_) {
    if (!lane->active || lane->far != nullptr) continue;
    const ProcessId worker = lane->reader.memory().worker.load(std::memory_order_relaxed);  // an actor's, too
    if (worker == kNoProcess) continue;
    const shm::Doorbell& bell = setup_.node->bell(worker);
    if (!bell.SharesCore()) continue;
    // A woken worker that has not run yet says that it sleeps; it was rung.
    if (lane->reader.memory().asleep.load(std::memory_order_relaxed) == 0 || bell.Rung()) return true;
  }
  return false;
}

// Looks for kSpinUs, with the core's other threads running in between if one of them is a worker of ours
// (shm/hand_over.h). A spin needs a token; a yield does not, since it keeps no other thread waiting.
bool Owner::SpinUntil(const std::function<bool()>& done, std::int64_t deadline_us) {
  std::int64_t now = base::NowMicros();
  std::int64_t until = now + kSpinUs;
  if (deadline_us >= 0) until = std::min(until, deadline_us);
  std::int64_t balanced = now;
  bool token = false;   // held, to spin
  bool yields = false;  // may yield
  bool shares = false;
  bool ready = false;
  bell_->RunsHere();
  far::Thread::Turn far(BusyFarThread());
  for (int i = 1; now < until; ++i) {
    if (far) far.Work();
    if (mutex_.try_lock()) {
      const bool any = PumpLocked();
      if (i % 16 == 1 || shares) shares = SharesCore();
      mutex_.unlock();
      if (any) NotifyWaiters();
      ready = done();
      if (ready) break;
    }
    if (shares) {
      yields = yields || hand_over_.YieldsPay();
      if (!yields || !hand_over_.Yield()) break;
      bell_->RunsHere();
    } else {
      token = token || setup_.node->TakeSpinToken(*bell_);
      if (!token) break;
      base::Relax();
      if (i % 16 != 0) continue;
    }
    now = base::NowMicros();
    if (now - balanced < 20) continue;
    balanced = now;
    bell_->RunsHere();
    const Lock lock(mutex_);
    for (ClassQueue* queue : all_queues_) Balance(*queue, now, false);
  }
  if (token) setup_.node->ReturnSpinToken(*bell_);
  pumped_.fetch_add(1, std::memory_order_relaxed);
  return ready;
}

// A task that asks again and again, with hardly any time to wait, never sleeps, and on a full node what it waits for
// never gets a CPU. So now and then it gives up its own, and goes on at once with what is left.
bool Owner::PolledForLong(std::int64_t now_us) {
  Caller& caller = ThisCaller();
  if (!caller.can_block) return false;
  if (caller.polls_since_us == 0) caller.polls_since_us = now_us;
  return now_us - caller.polls_since_us >= kHoldUpUs;
}

bool Owner::Sleep(const std::function<bool()>& done, std::int64_t deadline_us, std::span<Entry* const> mine,
                  bool in_place) {
  {
    const Lock lock(mutex_);
    const std::int64_t now = base::NowMicros();
    for (ClassQueue* queue : all_queues_) Balance(*queue, now, true);
  }
  Caller& caller = ThisCaller();
  const bool blocks = caller.can_block;
  caller.polls_since_us = 0;
  // One of an actor's many threads cannot give up the actor's CPUs. If its child can have no others, it is run here
  // after a while, timeout or not: late is better than never.
  const bool stuck =
      setup_.runner != nullptr && !in_place && !blocks && caller.need != nullptr && !caller.need->empty();
  std::int64_t patience_us = base::NowMicros() + kHoldUpUs;
  const std::uint32_t state = bell_->state.load(std::memory_order_relaxed);
  if (blocks) {
    wire::Blocked message;
    message.lease = caller.lease;
    static_cast<void>(link().Send(message));
    bell_->state.store(shm::Doorbell::kWaiting, std::memory_order_relaxed);
  }
  bool finished = false;
  bool leads = false;
  int in_vain = 0;  // woken in a row, soon and for the answers of others
  std::unique_lock lock(wait_mutex_);
  while (!(finished = done())) {
    const std::int64_t now = base::NowMicros();
    if (deadline_us >= 0 && now >= deadline_us) break;
    if (stuck && now >= patience_us) {
      patience_us = now + 10 * kHoldUpUs;
      PassOnLead(&leads);
      lock.unlock();
      const bool ran = RunInPlace(mine);
      lock.lock();
      if (ran) continue;
    }
    const bool follows = leader_ && !leads;
    std::int64_t wait = (follows ? 10 : 1) * setup_.pace.look_us;
    if (deadline_us >= 0) wait = std::min(wait, deadline_us - now);
    if (stuck) wait = std::min(wait, patience_us - now);
    if (follows) {
      Follow(lock, done, wait);
      continue;
    }
    leader_ = leads = true;
    lock.unlock();
    if (in_vain >= kInVain) {
      // Nobody rings meanwhile, which spares the workers a system call for each answer.
      const timespec nap{0, kNapUs * 1000};
      nanosleep(&nap, nullptr);
    }
    const std::uint32_t ticket = bell_->PrepareSleep();
    Pump();
    if (!done() && !(in_place && !blocks && RunInPlace(mine))) {
      bell_->Sleep(ticket, wait);
      Pump();
      in_vain = base::NowMicros() - now < kSoonUs + (in_vain >= kInVain ? 4 * kNapUs : 0) ? in_vain + 1 : 0;
    }
    lock.lock();
  }
  PassOnLead(&leads);
  lock.unlock();
  if (blocks) {
    wire::Unblock message;
    message.lease = caller.lease;
    message.late = !finished;
    static_cast<void>(link().Call<wire::Done>(message));
    bell_->state.store(state, std::memory_order_relaxed);
  }
  return finished;
}

// A task that waits for its own child, which nobody has started, runs it here and now: no hand-over,
// no new worker, and no deadlock however deep.
bool Owner::RunInPlace(std::span<Entry* const> mine) {
  const Caller& caller = ThisCaller();
  if (caller.need == nullptr || !setup_.runner->RoomOnStack()) return false;
  for (std::size_t i = mine.size(); i-- > 0;) {
    Entry* entry = mine[i];
    if (entry->done()) continue;
    std::uint64_t spec = 0;
    std::uint64_t bytes = 0;
    {
      const Lock lock(mutex_);
      if (entry->origin != Origin::kTask || entry->session != session_ || entry->done()) continue;
      if (entry->queue == nullptr || entry->queue->actor != nullptr || !(entry->queue->need == *caller.need)) continue;
      if (!entry->queue->strategy.empty()) continue;     // it says where it runs
      if (!entry->queue->input_nodes.empty()) continue;  // its arguments are elsewhere, and it goes there
      if (!TakeBack(entry)) continue;
      spec = entry->spec;
      std::memcpy(&bytes, log_.at(spec), 4);
    }
    setup_.runner->Run(log_.at(spec), bytes);
    // No worker rings for it, and other threads may wait for it too.
    bell_->Ring();
    NotifyWaiters();
    return true;
  }
  return false;
}

bool Owner::TakeBack(Entry* entry) {
  if (entry->stage == Stage::kBacklog ||
      (entry->stage == Stage::kRing && entry->queue->ring.TryTake(entry->position))) {
    entry->stage = Stage::kTakenBack;
    return true;
  }
  return false;
}

bool Owner::Housekeep(std::int64_t now_us) {
  std::string frames;
  bool waiting = false;
  {
    const Lock lock = PatientLock();
    const bool sleeps = bell_->sleeping.load(std::memory_order_relaxed) != 0;
    for (ClassQueue* queue : all_queues_) {
      Balance(*queue, now_us, sleeps);
      // Nobody takes it, and we do not wait for the daemon: look again soon.
      waiting |= queue->waiting() > 0 && queue->requests == 0;
    }
    CheckTimeouts(now_us);
    if (recorder_ != nullptr) {
      Settle();
      if (recorder_->Flush()) behind_.store(false, std::memory_order_relaxed);
    }
    SendQueued(&frames);
  }
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  if (store().waiting_frees() > 0) store().Flush();
  return waiting;
}

// Looks every millisecond or so while calls are unfinished, and acts only if nobody else did.
void Owner::Background() {
  pthread_setname_np(pthread_self(), "manta-owner");
  std::uint64_t seen = 0;
  const std::int64_t normal = setup_.pace.tick_us;
  std::int64_t tick = normal;
  int quiet = 0;
  std::unique_lock lock(background_mutex_);
  while (!stopping_.load()) {
    if (background_idle_.load()) {
      background_wake_.wait(lock, [this] { return stopping_.load() || !background_idle_.load(); });
      quiet = 0;
    } else {
      background_wake_.wait_for(lock, std::chrono::microseconds(tick));
    }
    if (stopping_.load()) return;
    lock.unlock();
    const std::uint64_t pumped = pumped_.load(std::memory_order_relaxed);
    bool read = false;
    if (pumped == seen) {
      const Lock guard = PatientLock();
      read = PumpLocked();
    }
    if (read) {
      bell_->Ring();  // what we read, nobody will ring for again
      NotifyWaiters();
    }
    const bool moved = read || pumped != seen;
    seen = pumped;
    tick = moved || recorder_ != nullptr ? normal : std::min(tick * 2, 5 * normal);  // lineage does not wait for long
    if (Housekeep(base::NowMicros())) tick = normal / 4;
    {
      // Idle is decided under the mutex: who submits after that wakes us.
      const Lock guard = PatientLock();
      const bool unfinished =
          submitted_ != completed_ || !pending_.empty() || (recorder_ != nullptr && !recorder_->settled());
      quiet = unfinished || store().waiting_frees() > 0 ? 0 : quiet + 1;
      if (quiet >= 4) background_idle_.store(true);
    }
    lock.lock();
  }
}

}  // namespace manta::owner
