// Actors as their callers see them.
#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "owner/owner.h"

namespace manta::owner {
namespace {
constexpr std::uint32_t kMostConcurrency = 1'000'000;  // threads are made when they are needed
}  // namespace

Result<ActorEntry*> Owner::CreateActor(const internal::Site& site, internal::Arguments& arguments,
                                       internal::RefScope& scope, const ActorSettings& settings,
                                       const std::string& class_name) {
  wire::CreateActor message;
  wire::ActorOptions& options = message.options;
  if (Status s = ToResources(settings.cpus, settings.gpus, settings.resources, &options.need); !s.ok()) return s;
  if (Status s = ToStrategy(settings.placement, &options.strategy); !s.ok()) return s;
  if (settings.concurrency == 0 || settings.concurrency > kMostConcurrency) {
    return Status(Code::kInvalid, Cat("an actor cannot run ", settings.concurrency, " calls at a time: 1 to ",
                                      kMostConcurrency, "; choose another concurrency"));
  }
  // Of one that runs calls side by side nobody can say in which order they acted.
  options.replay = settings.replay && settings.concurrency == 1;
  options.checkpoint_calls = settings.checkpoint_calls;
  options.checkpoint_us = settings.checkpoint_time.count();
  options.max_restarts = settings.max_restarts.value_or(settings.replay ? -1 : 0);
  options.max_call_retries = settings.max_call_retries.value_or(options.replay ? TaskOptions{}.retries : 0);
  if (options.max_restarts < -1 || options.max_call_retries < -1) {
    return Status(Code::kInvalid, "restarts and retries are counts, or -1 for no limit");
  }
  if (options.checkpoint_us < 0) return Status(Code::kInvalid, "the time between two checkpoints cannot be negative");
  options.name = settings.name;
  options.space = settings.space.empty() ? setup_.space : settings.space;
  options.detached = settings.detached;
  options.get_if_exists = settings.get_if_exists;
  options.concurrency = settings.concurrency;
  options.ordered = settings.ordered && settings.concurrency == 1;
  options.about = settings.about;
  int demangled = 0;
  char* readable = abi::__cxa_demangle(class_name.c_str(), nullptr, nullptr, &demangled);
  options.class_name = demangled == 0 ? readable : class_name;
  std::free(readable);

  shm::SpecHeader header;
  if (Status s = FillSpec(site, nullptr, 0, &header); !s.ok()) return s;
  header.id = NextId();
  message.actor = header.id;
  Announce(scope.entries, scope.actors);

  // The daemon keeps the arguments for restarts, so they must be there before it hears of the actor.
  std::vector<Entry*> values;
  values.reserve(arguments.holes.size());
  for (const internal::Arguments::Hole& hole : arguments.holes) values.push_back(hole.entry);
  Subscribe(values);
  std::size_t next = 0;
  do {
    next = 0;
    WaitUntil(
        [&] {
          while (next < values.size() && values[next]->done()) ++next;
          return next == values.size();
        },
        -1, values);
  } while (Rebuild(values));
  std::string body;
  std::size_t copied = 0;
  {
    const Lock lock(mutex_);
    if (!lost_.ok()) return Status(lost_.code, lost_.message);
    std::string frames;
    const auto hold = [&](const Id& id, ProcessId owner) {
      message.args.push_back(id);
      message.arg_owners.push_back(owner);
    };
    const auto append = [&](const void* data, std::size_t size) { body.append(static_cast<const char*>(data), size); };
    for (const internal::Arguments::Hole& hole : arguments.holes) {
      Entry* value = hole.entry;
      if (value->where == Where::kFailure) return Status(value->failure->code, value->failure->message);
      if (value->where == Where::kStore && value->session != session_) return Status(Code::kUnavailable, kGone);
      append(arguments.bytes.data() + copied, hole.at - copied);
      copied = hole.at + 8;
      if (value->where == Where::kStore) {
        AnnounceLocked(value, &frames);  // the actor holds it by name
        shm::StoredItem item;
        item.object = value->id;
        item.place = value->place;
        item.owner = OwnerOf(value);
        const std::uint64_t word = shm::ItemWord(shm::ItemKind::kStored, sizeof item);
        append(&word, 8);
        append(&item, sizeof item);
        hold(value->id, OwnerOf(value));
      } else {
        AnnounceContents(value, &frames);
        const std::uint64_t word = shm::ItemWord(shm::ItemKind::kValue, value->size);
        append(&word, 8);
        append(value->where == Where::kHeap ? value->heap : value->small, value->size);
        body.resize(shm::Padded(body.size()));
        if (value->extra != nullptr) {
          for (Entry* inner : value->extra->contained) hold(inner->id, OwnerOf(inner));
          for (ActorEntry* inner : value->extra->contained_actors) hold(inner->id, inner->owner());
        }
      }
    }
    if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
    for (Entry* entry : scope.entries) hold(entry->id, OwnerOf(entry));
    for (ActorEntry* actor : scope.actors) hold(actor->id, actor->owner());
  }
  body.append(reinterpret_cast<const char*>(arguments.bytes.data()) + copied, arguments.bytes.size() - copied);
  header.bytes = static_cast<std::uint32_t>(sizeof header + shm::Padded(body.size()));
  message.spec.assign(reinterpret_cast<const char*>(&header), sizeof header);
  message.spec += body;
  message.spec.resize(header.bytes);

  Result<wire::ActorCreated> created = link().Call<wire::ActorCreated>(message);
  if (!created.ok()) return created.status();
  return AdoptActor(created->actor, created->home, &created->options, true);
}

Result<ActorEntry*> Owner::FindActor(const std::string& name, const std::string& space) {
  wire::FindActor message;
  message.name = name;
  message.space = space.empty() ? setup_.space : space;
  Result<wire::ActorFound> found = link().Call<wire::ActorFound>(message);
  if (!found.ok()) return found.status();
  return AdoptActor(found->actor, found->home, &found->options, true);
}

Result<std::vector<wire::NameList::Entry>> Owner::ListNames(const std::string& space) {
  Result<wire::NameList> list = link().Call<wire::NameList>(wire::ListNames{space});
  if (!list.ok()) return list.status();
  return std::move(list->names);
}

Status Owner::KillActor(ActorEntry* actor, bool restart) {
  if (actor->session != session_) return Status(Code::kInvalid, "this handle belongs to a cluster that was shut down");
  if (!restart) {
    // What is called from now on must not be served by a process that has not heard of its end.
    const Lock lock(mutex_);
    actor->killed = true;
  }
  wire::KillActor message;
  message.actor = actor->id;
  message.restart = restart;
  message.home = actor->home;
  return link().Send(message);
}

Status Owner::AttachActor(ActorEntry* actor) {
  if (actor->queue == nullptr) {
    actor->queue = std::make_unique<ClassQueue>();
    actor->queue->actor = actor;
    all_queues_.push_back(actor->queue.get());
    if (Status s = MakeQueue(*actor->queue); !s.ok()) return s;
  }
  if (actor->lane == nullptr) {
    actor->lane = TakeLane();
    if (actor->lane == nullptr)
      return Status(Code::kOutOfMemory, Cat("one process cannot call over ", shm::kMaxLanes, " actors"));
    actor->lane->queue = actor->queue.get();
    actor->lane->active = true;
    active_lanes_.push_back(actor->lane);
  }
  return SendAttach(actor);
}

Status Owner::SendAttach(ActorEntry* actor) {
  wire::AttachActor message;
  message.actor = actor->id;
  message.queue = actor->queue->offset;
  message.lane = actor->lane->offset;
  message.home = actor->home;
  message.restarts = actor->restarts;
  actor->attached = true;
  return link().Send(message);
}

Status Owner::CallActor(ActorEntry* actor, const internal::Site& site, internal::Arguments& arguments,
                        internal::RefScope& scope, const Plan* plan, std::uint32_t returns, Entry** out) {
  if (actor->session != session_) return Status(Code::kInvalid, "this handle belongs to a cluster that was shut down");
  shm::SpecHeader header;
  if (Status s = FillSpec(site, plan, returns, &header); !s.ok()) return s;
  header.id = NextId();
  header.flags |= RerunFlags();
  if (!scope.entries.empty()) header.flags |= shm::SpecHeader::kLoose;
  if (!scope.entries.empty() || !scope.actors.empty()) Announce(scope.entries, scope.actors);
  const std::string_view name = plan == nullptr ? std::string_view() : std::string_view(plan->options.name);
  Lock lock(mutex_);
  if (!lost_.ok()) return Status(lost_.code, lost_.message);
  if (!actor->attached && !actor->killed && actor->phase != wire::ActorPhase::kDead) {
    if (Status s = AttachActor(actor); !s.ok()) return s;
  }
  Entry* entry = NewCall(header, plan, scope, out);
  entry->retries = static_cast<std::int16_t>(std::clamp<std::int64_t>(CallRetries(*actor, plan), -1, 30000));
  entry->queue = actor->queue.get();
  if (actor->phase == wire::ActorPhase::kDead || actor->killed) {
    entry->stage = Stage::kTakenBack;  // so that Finish knows it was under way
    entry->queue = nullptr;
    if (actor->failure.ok()) {
      FailCall(entry, Failure{Code::kActorDied,
                              Cat("actor ", actor->options.class_name, " (", ToString(actor->id), ") was killed"),
                              {},
                              {}});
    } else {
      FailCall(entry, actor->failure);
    }
    SettleDoomed();
    return {};
  }
  actor->refs.fetch_add(1, std::memory_order_relaxed);  // until the call is over
  // Usually nothing is held back, and an ordered call goes straight into the ring.
  if (actor->options.ordered && (!arguments.holes.empty() || !actor->order.empty())) actor->order.push_back(entry);
  const bool read = Launch(entry, header, name, arguments);
  lock.unlock();
  if (read) NotifyWaiters();
  return {};
}

// Sends the calls of an ordered actor that nothing holds back any more.
void Owner::CallOrder(ActorEntry* actor) {
  while (!actor->order.empty()) {
    Entry* entry = actor->order.front();
    if (!entry->done()) {
      if (entry->stage == Stage::kParked || entry->spec == 0) return;
      if (entry->stage == Stage::kNone) Push(entry);
    }
    actor->order.pop_front();
  }
}

void Owner::OnActorState(const wire::ActorState& state) {
  const auto it = actors_.find(state.actor);
  if (it == actors_.end()) return;
  ActorEntry* actor = it->second;
  Lane* lane = actor->lane;
  if (lane != nullptr && lane->far != nullptr && state.phase != wire::ActorPhase::kAlive) {
    // What its worker answered before counts, and may still be on its way.
    if (lane->far->link != nullptr && !lane->far->closed) {
      actor->unread.push_back(state);
      lane->far->over = true;
      lane->far->link->Close();
      return;
    }
    EndFar(*lane);
  }
  ApplyActorState(actor, state);
}

void Owner::ApplyActorState(ActorEntry* actor, const wire::ActorState& state) {
  if (state.phase == wire::ActorPhase::kGone) return ForgetActor(actor);
  if (actor->phase == wire::ActorPhase::kDead) return;
  actor->phase = state.phase;
  if (state.phase == wire::ActorPhase::kRestarting) {
    RestartActor(actor, state);
  } else if (state.phase == wire::ActorPhase::kDead) {
    actor->failure = state.failure;
    FailActor(actor);
  } else if (state.phase == wire::ActorPhase::kAlive && !state.address.empty() && actor->lane != nullptr) {
    Lane& lane = *actor->lane;
    if (lane.far != nullptr && !lane.far->closed) return;  // we are there already
    if (lane.far != nullptr) {
      // It lives: only the connection was lost, and with it whatever was on its way.
      EndFar(lane);
      wire::ActorState lost = state;
      lost.exact = false;
      lost.failure = Failure{Code::kWorkerCrashed,
                             Cat("the connection to actor ", actor->options.class_name, " (", ToString(actor->id),
                                 ") on another node broke, and it is not known what became of the call; set "
                                 "max_call_retries to have calls retried"),
                             {},
                             {}};
      ResendCalls(actor, lost);
    }
    StartFar(lane, state.worker, state.address, state.pass);
  }
  SettleDoomed();
}

// Its process died and another will take over.
void Owner::RestartActor(ActorEntry* actor, const wire::ActorState& state) {
  if (!actor->attached) return;
  ++actor->restarts;
  actor->lane->broken = 0;
  ResendCalls(actor, state);
  static_cast<void>(AttachActor(actor));
}

// What it had and did not answer is lost or sent again (rules/retry.h), in order, before what it had not seen.
void Owner::ResendCalls(ActorEntry* actor, const wire::ActorState& state) {
  ClassQueue& queue = *actor->queue;
  ReadLane(*actor->lane);
  std::vector<Entry*> sent;
  std::vector<Entry*> waiting;
  const auto find = [&](std::uint64_t spec, std::uint64_t position) -> Entry* {
    shm::SpecHeader header;
    std::memcpy(&header, log_.at(spec), sizeof header);
    Entry* entry = table_.Find(header.entry, header.generation);
    return entry != nullptr && !entry->over() && entry->stage == Stage::kRing && entry->position == position ? entry
                                                                                                             : nullptr;
  };
  for (const ClassQueue::Away& away : queue.away) {
    if (away.entry->generation == away.generation && !away.entry->over()) sent.push_back(away.entry);
  }
  queue.away.clear();
  queue.ring.ForClaimed(actor->lane->index, [&](std::uint64_t spec, std::uint64_t position) {
    if (Entry* entry = find(spec, position); entry != nullptr) sent.push_back(entry);
  });
  queue.ring.ForReady([&](std::uint64_t spec, std::uint64_t position) {
    if (Entry* entry = find(spec, position); entry != nullptr) waiting.push_back(entry);
  });
  actor->crash = state.failure;
  rules::ActorLoss loss;
  loss.replays = actor->options.replay;
  loss.exact = state.exact;
  loss.ahead = actor->lane->sent_far;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (shm::TaskToken(sent[i]->index, sent[i]->generation) == state.token) loss.died_in = i;
  }
  queue.ring = shm::QueueOwner(setup_.arena->at(queue.offset));
  const std::uint32_t index = actor->lane->index;
  const ProcessId worker = actor->lane->reader.memory().worker.load(std::memory_order_relaxed);
  actor->lane->reader = shm::LaneReader(setup_.arena->at(actor->lane->offset));
  actor->lane->reader.memory().index = index;
  actor->lane->sent_far = false;
  std::deque<ClassQueue::Waiting> rest = std::move(queue.backlog);
  queue.backlog.clear();
  FreeUnanswered(sent, worker);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (sent[i]->over()) continue;
    rules::OpenCall call = OpenCallOf(sent[i]);
    const rules::Fate fate = rules::AfterLoss(loss, i, &call);
    if (fate != rules::Fate::kAgain || !lost_.ok()) {
      GiveUp(sent[i], fate, state.failure, true);
      continue;
    }
    if (loss.replays) sent[i]->flags &= static_cast<std::uint8_t>(~Entry::kTimedOut);
    SendAgain(sent[i], call);
  }
  for (Entry* entry : waiting) {
    if (!entry->over()) Push(entry);
  }
  for (const ClassQueue::Waiting& next : rest) queue.backlog.push_back(next);
  Refill(queue);
}

// Dead for good. Its process may live on for a moment, and look at the queue: that stays until kGone.
void Owner::FailActor(ActorEntry* actor) {
  ClassQueue* queue = actor->queue.get();
  if (queue == nullptr) return;
  if (actor->lane != nullptr) {
    ReadLane(*actor->lane);
    actor->lane->active = false;
  }
  std::vector<Entry*> calls;
  table_.ForEach([&](Entry* entry) {
    // Also one of whose results the first is there.
    if (entry->session == session_ && entry->origin == Origin::kTask && entry->queue == queue) calls.push_back(entry);
  });
  for (Entry* entry : calls) FailCall(entry, actor->failure);
  actor->order.clear();
  queue->backlog.clear();
  queue->away.clear();
  std::erase(all_queues_, queue);
}

void Owner::ForgetActor(ActorEntry* actor) {
  if (actor->queue != nullptr && actor->queue->offset != 0) {
    chunks_.Free(actor->queue->offset, sizeof(shm::QueueMemory));
  }
  if (actor->lane != nullptr) ReleaseLane(std::exchange(actor->lane, nullptr));
  actor->queue.reset();
  if (actor->refs.load() == 0) {
    actors_.erase(actor->id);
    delete actor;
  }
}

void Owner::UnrefActor(ActorEntry* actor) {
  if (actor->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) return Dispose(actor);
  DropIfWeak(actor);
}

void Owner::DropIfWeak(ActorEntry* actor) {
  const std::uint32_t weak = actor->weak.load(std::memory_order_acquire);
  if (weak == 0 || actor->holds == 0 || actor->refs.load(std::memory_order_acquire) > weak) return;
  QueueDrop(actor->id, std::exchange(actor->holds, 0));
}

// No handle is left here. The daemon ends the actor if there is none anywhere; its queue and lane stay
// until it says so, because its worker still looks at them.
void Owner::Dispose(ActorEntry* actor) {
  if (actor->refs.load(std::memory_order_acquire) != 0) return;  // found again meanwhile
  if (actor->holds > 0) QueueDrop(actor->id, std::exchange(actor->holds, 0));
  if (actor->queue == nullptr) {
    actors_.erase(actor->id);
    delete actor;
  }
}

}  // namespace manta::owner
