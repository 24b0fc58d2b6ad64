// Workers on other nodes: the owner claims calls from its own queue on their behalf, sends them in batches over one
// connection each, and takes the replies as if they had come through a lane in shared memory. So balancing, retries and
// crashes work as they do on one node.
#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "owner/owner.h"
#include "wire/cluster_messages.h"

namespace manta::owner {
namespace {

// Calls under way to one worker: as much as it does in this time, so that it never waits for us, and no more, so that
// little has to come back when others are idle. By its own account (ReplyHeader::run): measured here it would hold the
// way there and back, too, and on a busy machine the window would close, which makes the way count even more.
constexpr double kAheadUs = 2000;
constexpr double kCallUs = 1;  // beside the call itself: to take it from the queue, and to answer
constexpr std::uint32_t kFewest = 2;
constexpr std::uint32_t kFirst = 16;  // while nothing is known
constexpr std::uint32_t kMost = 4096;
constexpr std::uint64_t kTogether = 64;       // in one message, if so many are there
constexpr std::size_t kMostBytes = 1U << 20;  // of a batch, and of what the socket has not taken
constexpr int kMostBroken = 3;                // connections to an actor in a row
// Who waits for so few calls at most reads the answers itself. With more under way, the thread's delay lets answers
// gather, and one message for many calls costs less.
constexpr std::uint32_t kSoon = 4;
constexpr std::int64_t kSilentUs = 5000;  // without an answer for so long, what it has not begun comes back

}  // namespace

Result<std::shared_ptr<wire::Secrets>> Owner::Secrets() {
  const std::lock_guard lock(far_mutex_);
  if (secrets_ == nullptr) {
    Result<std::shared_ptr<wire::Secrets>> opened = wire::Secrets::Open(setup_.welcome.secrets);
    if (!opened.ok()) return opened.status();
    secrets_ = *opened;
  }
  return secrets_;
}

Result<far::Thread*> Owner::FarThread() {
  const std::lock_guard lock(far_mutex_);
  if (far_thread_ == nullptr) {
    Result<std::unique_ptr<far::Thread>> started = far::Thread::Start();
    if (!started.ok()) return started.status();
    far_thread_ = std::move(*started);
  }
  return far_thread_.get();
}

far::Thread* Owner::BusyFarThread() {
  const Lock lock(mutex_);
  std::uint32_t sent = 0;
  for (const Lane* lane : active_lanes_) {
    if (lane->far != nullptr) sent += lane->far->sent;
  }
  return sent > 0 && sent <= kSoon ? far_thread_.get() : nullptr;
}

Lane* Owner::FindFar(std::uint32_t index, std::uint64_t serial) {
  Lane* lane = lanes_[index].get();
  return lane->far != nullptr && lane->far->serial == serial ? lane : nullptr;
}

void Owner::StartFar(Lane& lane, ProcessId worker, const std::string& address, std::uint64_t pass) {
  lane.far = std::make_unique<FarLane>();
  lane.sent_far = true;
  FarLane& far = *lane.far;
  far.serial = next_far_++;
  far.claims = shm::QueueWorker(setup_.arena->at(lane.queue->offset), lane.index);
  lane.reader.memory().worker.store(worker, std::memory_order_relaxed);
  Result<far::Thread*> thread = FarThread();
  Result<std::shared_ptr<wire::Secrets>> secrets = Secrets();
  if (!thread.ok() || !secrets.ok()) {
    return FarBroken(lane, thread.ok() ? secrets.status() : thread.status());
  }
  wire::DialOptions options;
  options.role = wire::LinkRole::kOwner;
  options.secrets = *secrets;
  (*thread)->Post([this, index = lane.index, serial = far.serial, address, pass, options, loop = *thread] {
    auto dial = std::make_unique<wire::Dial>(
        loop->loop(), address, options,
        [this, index, serial, pass](Result<wire::Link> link) { OnFarConnected(index, serial, pass, std::move(link)); });
    const Lock lock(mutex_);
    if (stopping_.load()) return;  // who ends has taken all that there are, and the loop goes with this thread
    if (Lane* found = FindFar(index, serial); found != nullptr) found->far->dial = std::move(dial);
  });
}

void Owner::OnFarConnected(std::uint32_t index, std::uint64_t serial, std::uint64_t pass,
                           Result<wire::Link> connected) {
  Lock lock(mutex_);
  Lane* lane = FindFar(index, serial);
  if (lane == nullptr) return;
  // We are inside the Dial's own callback: it goes when this is over.
  far_thread_->Post([dial = std::shared_ptr<wire::Dial>(std::move(lane->far->dial))] {});
  if (!connected.ok()) {
    FarBroken(*lane, connected.status());
    lock.unlock();
    bell_->Ring();  // an actor's calls may have failed by that
    NotifyWaiters();
    return;
  }
  auto link = std::make_shared<far::Link>(*far_thread_, std::move(connected->stream));
  lane->far->link = link;
  link->Start([this, index, serial](wire::Frame& frame) { OnFarFrame(index, serial, frame); },
              [this, index, serial](const Status& why) { OnFarClosed(index, serial, why); });
  link->Send(wire::OwnerHello{pass, self()}, 1);
  if (lane->far->over) {
    link->Close();
    return;
  }
  ++lane->queue->far_lanes;
  Feed(*lane);
}

// The worker cannot be reached (any more), and nobody has said why.
void Owner::FarBroken(Lane& lane, const Status& why) {
  if (lane.queue->actor == nullptr) {
    static_cast<void>(link().Send(wire::LeaseBroken{lane.request, why.message()}));
    return;
  }
  // If it is dead, we are told. If it is not, we are told how to reach it, and then what was lost is sent again.
  ActorEntry* actor = lane.queue->actor;
  lane.far->closed = true;
  if (++lane.broken < kMostBroken) {
    static_cast<void>(SendAttach(actor));
    return;
  }
  EndFar(lane);
  actor->failure = Failure{Code::kActorDied,
                           Cat("actor ", actor->options.class_name, " (", ToString(actor->id),
                               ") cannot be reached: ", why.message(), " (tried ", lane.broken, " times)"),
                           {},
                           {}};
  actor->phase = wire::ActorPhase::kDead;
  FailActor(actor);
  SettleDoomed();
}

void Owner::EndFar(Lane& lane) {
  if (lane.far == nullptr) return;
  if (lane.far->dial != nullptr) {
    // Destroyed where it runs.
    far_thread_->Post([dial = std::shared_ptr<wire::Dial>(std::move(lane.far->dial))] {});
  }
  if (lane.far->link != nullptr) lane.far->link->Close();
  lane.far = nullptr;
}

// Sends as many calls as the worker should have.
void Owner::Feed(Lane& lane) {
  FarLane& far = *lane.far;
  if (far.link == nullptr || far.bye || far.over || far.closed || !far.link->open()) return;
  if (far.link->outgoing() > kMostBytes || far.took_back) return;  // busy with something long: others shall have them
  const bool one = lane.queue->strategy.spread;
  if (one && far.spent) return;
  // An actor may run several at a time.
  const double side_by_side = lane.queue->actor == nullptr ? 1 : lane.queue->actor->options.concurrency;
  const double ahead = side_by_side * kAheadUs / (far.call_us.Or(0) + kCallUs);
  const std::uint32_t window =
      one                    ? 1
      : !far.call_us.known() ? kFirst
                             : static_cast<std::uint32_t>(std::clamp(ahead, kFewest * side_by_side, double{kMost}));
  if (far.sent >= window) return;
  // By halves: while it has plenty to do, many calls in one message cost less than many messages.
  if (far.sent > window / 2) return;
  std::string calls;
  shm::QueueWorker::Task task;
  const bool idle = far.sent == 0;
  while (far.sent < window && calls.size() < kMostBytes && far.claims.TryClaim(&task)) {
    std::uint32_t bytes = 0;
    std::memcpy(&bytes, log_.at(task.spec), sizeof bytes);
    calls.append(reinterpret_cast<const char*>(log_.at(task.spec)), bytes);
    ++far.sent;
  }
  if (calls.empty()) return;
  far.spent = one;
  if (idle) {
    far.heard_us = base::NowMicros();
    far.took_back = false;
  }
  far.link->Send(wire::EncodeFrame(wire::kFarCalls, 0, std::as_bytes(std::span(calls)), 0));
}

// A call was submitted. Where others are under way already it waits for more to be sent with, until an answer comes or
// somebody waits (BalanceFar).
void Owner::FeedAll(ClassQueue& queue) {
  for (Lane* lane : queue.lanes) {
    if (lane->far == nullptr) continue;
    if (lane->far->sent == 0 || queue.ring.backlog() >= kTogether) Feed(*lane);
  }
}

void Owner::BalanceFar(Lane& lane, std::int64_t now_us) {
  FarLane& far = *lane.far;
  Feed(lane);
  if (far.link == nullptr || far.sent < 2 || far.took_back || now_us - far.heard_us < kSilentUs) return;
  far.took_back = true;
  far.link->Send(wire::FarTakeBack{});
}

void Owner::OnFarFrame(std::uint32_t index, std::uint64_t serial, wire::Frame& frame) {
  {
    const Lock lock(mutex_);
    Lane* lane = FindFar(index, serial);
    if (lane == nullptr) return;
    if (frame.kind == wire::kFarReplies) {
      OnFarReplies(*lane, frame.body);
    } else if (Result<wire::FarReturned> returned = frame.As<wire::FarReturned>(); returned.ok()) {
      OnFarReturned(*lane, returned->tokens);
    } else if (Result<wire::FarStarted> started = frame.As<wire::FarStarted>(); started.ok()) {
      lane->reader.memory().started_us.store(base::NowMicros(), std::memory_order_relaxed);
      lane->reader.memory().running.store(started->token, std::memory_order_release);
      Entry* entry =
          table_.Find(static_cast<std::uint32_t>(started->token >> 32), static_cast<std::uint32_t>(started->token));
      if (entry != nullptr && entry->session == session_) entry->flags |= Entry::kBegun;
    } else if (frame.As<wire::OwnerWelcome>().ok()) {
      lane->broken = 0;
    } else if (frame.As<wire::FarBye>().ok()) {
      lane->far->bye = true;
      lane->far->link->Send(wire::FarBye{});
    } else if (Result<wire::Failed> failed = frame.As<wire::Failed>(); failed.ok()) {
      // It does not know us: the lease ended while we were on our way.
      lane->far->bye = true;
    }
    SettleDoomed();
    bell_->completed.store(completed_, std::memory_order_relaxed);
  }
  bell_->Ring();
  NotifyWaiters();
}

void Owner::OnFarReplies(Lane& lane, std::string_view records) {
  FarLane& far = *lane.far;
  std::uint32_t ended = 0;
  std::size_t at = 0;
  while (records.size() - at >= sizeof(shm::ReplyHeader)) {
    shm::ReplyHeader header;
    std::memcpy(&header, records.data() + at, sizeof header);
    if (header.bytes < sizeof header || (header.bytes & 7) != 0 || header.bytes > records.size() - at ||
        header.size > header.bytes - sizeof header) {
      far.link->Close();  // nonsense
      return;
    }
    if ((header.flags & shm::ReplyHeader::kLast) != 0) {
      ++ended;
      const std::uint64_t token = shm::TaskToken(header.entry, header.generation);
      std::uint64_t running = token;
      lane.reader.memory().running.compare_exchange_strong(running, 0);
      if (header.run != 0) far.call_us.Add(static_cast<double>(shm::UnpackRun(header.run)) / 1000);
      Entry* entry = table_.Find(header.entry, header.generation);
      if (entry != nullptr && entry->origin == Origin::kTask && entry->stage == Stage::kRing) {
        far.claims.Done({entry->spec, entry->position});
      }
    }
    OnReply(lane, header, reinterpret_cast<const std::byte*>(records.data()) + at + sizeof header);
    at += header.bytes;
  }
  const std::int64_t now = base::NowMicros();
  far.heard_us = now;
  far.took_back = false;
  far.sent -= std::min(far.sent, ended);
  ClassQueue& queue = *lane.queue;
  if (!queue.backlog.empty()) Refill(queue);
  Feed(lane);
}

// Calls that the worker has not begun: as if they had never been claimed.
void Owner::OnFarReturned(Lane& lane, const std::vector<std::uint64_t>& tokens) {
  FarLane& far = *lane.far;
  far.sent -= std::min<std::uint32_t>(far.sent, static_cast<std::uint32_t>(tokens.size()));
  if (far.sent == 0) far.took_back = false;  // it was not even busy
  for (const std::uint64_t token : tokens) {
    Entry* entry = table_.Find(static_cast<std::uint32_t>(token >> 32), static_cast<std::uint32_t>(token));
    if (entry == nullptr || entry->over() || entry->queue != lane.queue) continue;
    if (entry->stage == Stage::kRing) far.claims.Done({entry->spec, entry->position});
    std::erase_if(lane.queue->away, [&](const ClassQueue::Away& away) { return away.entry == entry; });
    if ((entry->flags & Entry::kCancelled) != 0) {
      FailCall(entry, Failure{Code::kCancelled, Cat(DescribeTask(entry), " was cancelled before it started"), {}, {}});
    } else if (lane.queue->actor != nullptr) {
      // It cannot go behind those that came later.
      FailCall(entry, Failure{Code::kOutOfMemory,
                              Cat(DescribeTask(entry), ": the actor's worker has no memory for another waiting call"),
                              {},
                              {}});
    } else {
      Push(entry);
    }
  }
}

void Owner::OnFarClosed(std::uint32_t index, std::uint64_t serial, const Status& why) {
  {
    const Lock lock(mutex_);
    Lane* lane = FindFar(index, serial);
    if (lane == nullptr) return;
    FarLane& far = *lane->far;
    far.closed = true;
    if (lane->queue->far_lanes > 0) --lane->queue->far_lanes;
    if (ActorEntry* actor = lane->queue->actor; actor != nullptr) {
      if (actor->unread.empty()) {
        FarBroken(*lane, why.ok() ? Status(Code::kUnavailable, "its worker closed the connection") : why);
      } else {
        EndFar(*lane);
        for (const wire::ActorState& state : std::exchange(actor->unread, {})) ApplyActorState(actor, state);
      }
    } else if (far.over) {
      ReleaseLease(*lane, far.lost.ok() ? nullptr : &far.lost);
    } else if (!far.bye) {
      static_cast<void>(
          link().Send(wire::LeaseBroken{lane->request, why.ok() ? "the worker closed the connection" : why.message()}));
    }
    SettleDoomed();
  }
  bell_->Ring();
  NotifyWaiters();
}

}  // namespace manta::owner
