// How calls end: well, badly, again, or cancelled.
#include <cstring>
#include <unordered_set>
#include <vector>

#include "base/clock.h"
#include "base/program.h"
#include "owner/named.h"
#include "owner/owner.h"
#include "rules/actor_replay.h"
#include "wire/cancel_messages.h"
#include "wire/cluster_messages.h"

namespace manta::owner {

void Owner::Succeed(Entry* entry, const std::byte* value) {
  if (recorder_ != nullptr) RecordOutcome(entry, value);
  entry->state.store(State::kReady, std::memory_order_release);
  if ((entry->flags & Entry::kEscaped) != 0) {
    std::string frames;
    PublishLocked(entry, true, &frames);
    static_cast<void>(link().SendBytes(frames, {}));
  }
  WakeDependents(entry);
}

void Owner::Fail(Entry* entry, Failure failure) {
  entry->failure = new Failure(std::move(failure));
  entry->where = Where::kFailure;
  if (recorder_ != nullptr) RecordOutcome(entry, nullptr);
  entry->state.store(State::kFailed, std::memory_order_release);
  if ((entry->flags & Entry::kEscaped) != 0 && entry->origin != Origin::kBorrowed) {
    std::string frames;
    PublishLocked(entry, true, &frames);
    static_cast<void>(link().SendBytes(frames, {}));
  }
  WakeDependents(entry);
}

void Owner::FailCall(Entry* entry, const Failure& failure) {
  if (entry->extra != nullptr) {
    const std::vector<Entry*> siblings = entry->extra->siblings;
    for (Entry* sibling : siblings) {
      if (sibling != nullptr && !sibling->done()) Fail(sibling, failure);
    }
  }
  if (!entry->done()) Fail(entry, failure);
  Finish(entry);
}

void Owner::WakeDependents(Entry* entry) {
  if (entry->extra == nullptr || entry->extra->dependents.empty()) return;
  const std::vector<Entry*> dependents = std::move(entry->extra->dependents);
  entry->extra->dependents.clear();
  for (Entry* dependent : dependents) {
    if (dependent->stage == Stage::kParked && --dependent->extra->missing == 0) Unpark(dependent);
    Unref(dependent);
  }
}

// The call is over: its arguments may go, and the count that the task itself held.
void Owner::Finish(Entry* entry) {
  if (entry->stage == Stage::kNone && entry->queue == nullptr) return;  // finished before
  ++completed_;
  bell_->completed.store(completed_, std::memory_order_relaxed);
  ClassQueue* queue = entry->queue;
  entry->stage = Stage::kNone;
  entry->queue = nullptr;
  if (queue != nullptr && !queue->away.empty()) {
    std::erase_if(queue->away, [&](const ClassQueue::Away& away) { return away.entry == entry; });
  }
  if (entry->extra != nullptr && !entry->extra->orphans.empty()) SettleOrphans(entry);
  bool incomplete = false;  // a return was lost after it was answered, and before this
  if (entry->extra != nullptr || entry->where == Where::kStore) {
    KeepLineage(entry, queue != nullptr && queue->actor != nullptr);
  }
  if (entry->extra != nullptr) {
    Extra& extra = *entry->extra;
    for (Entry* argument : extra.arguments) Unref(argument);
    for (ActorEntry* actor : extra.actor_arguments) UnrefActor(actor);
    for (const Extra::Hole& hole : extra.holes) Unref(hole.entry);
    for (Entry* sibling : extra.siblings) {
      if (sibling == nullptr) continue;
      incomplete = incomplete || !sibling->done();
      Unref(sibling);
    }
    incomplete = incomplete || (!extra.returns.empty() && !entry->done());
    extra.arguments.clear();
    extra.actor_arguments.clear();
    extra.holes.clear();
    extra.siblings.clear();
    extra.parked = {};
    if (extra.contained.empty() && extra.contained_actors.empty() && extra.dependents.empty() && extra.inputs.empty() &&
        extra.mentions.empty() && extra.returns.empty() && extra.first == nullptr && extra.maker == nullptr &&
        extra.orphans.empty() && extra.rebuilds == 0) {
      delete entry->extra;
      entry->extra = nullptr;
    }
  }
  if (incomplete && (entry->flags & Entry::kRebuildable) != 0) Restart(entry);
  Unref(entry);
  if (queue != nullptr && queue->actor != nullptr) {
    ActorEntry* actor = queue->actor;
    if (!actor->order.empty()) {
      std::erase(actor->order, entry);
      CallOrder(actor);
    }
    UnrefActor(actor);
  }
}

// As rules/retry.h sees it.
rules::OpenCall Owner::OpenCallOf(const Entry* entry) {
  rules::OpenCall call;
  call.retries = entry->retries;
  call.cancelled = (entry->flags & Entry::kCancelled) != 0;
  if (entry->spec == 0) return call;
  shm::SpecHeader header;
  std::memcpy(&header, log_.at(entry->spec), sizeof header);
  call.rerun = (header.flags & shm::SpecHeader::kRerun) != 0;
  call.fresh = (header.flags & shm::SpecHeader::kFresh) != 0;
  call.once = (header.flags & shm::SpecHeader::kOnce) != 0;
  // What a far worker says of an actor's call is for its timeout only: its journal knows better.
  call.begun = entry->queue->actor == nullptr ? (entry->flags & Entry::kBegun) != 0
                                              : (header.flags & shm::SpecHeader::kBegun) != 0;
  return call;
}

void Owner::SendAgain(Entry* entry, const rules::OpenCall& call) {
  using shm::SpecHeader;
  entry->retries = static_cast<std::int16_t>(call.retries);
  const bool begun = call.begun && entry->queue->actor != nullptr;
  MarkSpec(entry,
           static_cast<std::uint16_t>((call.rerun ? SpecHeader::kRerun : 0) | (call.fresh ? SpecHeader::kFresh : 0) |
                                      (begun ? SpecHeader::kBegun : 0) | (call.once ? SpecHeader::kOnce : 0)),
           SpecHeader::kRerun | SpecHeader::kFresh);
  Push(entry);
}

void Owner::GiveUp(Entry* entry, rules::Fate fate, Failure failure, bool died) {
  if (fate == rules::Fate::kCancelled) {
    return FailCall(entry, Failure{Code::kCancelled, Cat(DescribeTask(entry), " was cancelled"), {}, {}});
  }
  entry->flags &= static_cast<std::uint8_t>(~Entry::kTimedOut);
  if (died) {
    const int planned = entry->plan == nullptr ? TaskOptions{}.retries : entry->plan->options.retries;
    const ActorEntry* actor = entry->queue->actor;
    const std::int64_t limit = actor != nullptr ? CallRetries(*actor, entry->plan) : planned;
    failure.message = Cat(DescribeTask(entry), ": ", failure.message,
                          limit > 0 ? Cat("\n(it was started ", limit + 1, " times)") : "");
    if (actor != nullptr && failure.code == Code::kWorkerCrashed) failure.type = rules::kNotBegunAgain;
  }
  FailCall(entry, failure);
}

void Owner::RetryOrFail(Entry* entry, const Failure& failure, rules::Ended ended) {
  if (entry->over()) return;
  rules::OpenCall call = OpenCallOf(entry);
  const rules::Fate fate = rules::AfterEnd(ended, &call);
  if (fate != rules::Fate::kCancelled && failure.code == Code::kLost && failure.type == kArgumentLost) {
    return ArgumentLost(entry, failure);
  }
  if (fate == rules::Fate::kAgain && lost_.ok()) return SendAgain(entry, call);
  GiveUp(entry, fate, failure, ended != rules::Ended::kThrew && ended != rules::Ended::kAsksAgain);
}

// What a dead worker may have stored for calls of which no answer came is nobody's.
void Owner::FreeUnanswered(std::span<Entry* const> calls, ProcessId worker) {
  std::vector<Id> objects;
  for (Entry* entry : calls) {
    const std::size_t siblings = entry->extra == nullptr ? 0 : entry->extra->siblings.size();
    for (std::uint32_t i = 0; i <= siblings; ++i) {
      const Entry* result = Return(entry, i);
      if (result != nullptr && !result->done()) objects.push_back(result->id);
    }
  }
  if (objects.empty()) return;
  std::vector<Place> places(objects.size());
  for (Place& place : places) place.node = NodeOf(worker);
  link().Free(std::move(objects), std::move(places));
}

void Owner::LoseLane(Lane& lane, const Failure& failure) {
  ReadLane(lane);  // what it answered before it died counts
  ClassQueue& queue = *lane.queue;
  std::vector<Entry*> lost;
  if (queue.offset != 0) {
    queue.ring.ForClaimed(lane.index, [&](std::uint64_t spec, std::uint64_t position) {
      shm::SpecHeader header;
      std::memcpy(&header, log_.at(spec), sizeof header);
      Entry* entry = table_.Find(header.entry, header.generation);
      // Started again since: then its newest slot is another one.
      if (entry == nullptr || entry->over() || entry->stage != Stage::kRing || entry->position != position) return;
      lost.push_back(entry);
    });
  }
  for (const ClassQueue::Away& away : queue.away) {
    if (away.lane == lane.index && away.entry->generation == away.generation && !away.entry->over()) {
      lost.push_back(away.entry);
    }
  }
  std::erase_if(queue.away, [&](const ClassQueue::Away& away) { return away.lane == lane.index; });
  for (Entry* entry : lost) {
    // A far worker has many calls at a time, and says in which it died.
    const bool in_it = lane.far == nullptr || lane.far->died_in == shm::TaskToken(entry->index, entry->generation);
    if (in_it) FreeUnanswered({&entry, 1}, lane.worker);
    RetryOrFail(entry, failure, in_it ? rules::Ended::kDiedInIt : rules::Ended::kDiedBesideIt);
  }
  SettleDoomed();
}

void Owner::MarkSpec(Entry* entry, std::uint16_t set, std::uint16_t clear) {
  if (entry->spec == 0) return;
  // Nobody reads the spec now: who had the call is gone.
  auto* header = reinterpret_cast<shm::SpecHeader*>(log_.at(entry->spec));
  header->flags = static_cast<std::uint16_t>((header->flags & ~clear) | set);
}

void Owner::FailQueue(ClassQueue& queue, const Failure& failure) {
  std::vector<Entry*> waiting;
  table_.ForEach([&](Entry* entry) {
    if (entry->session == session_ && entry->origin == Origin::kTask && entry->queue == &queue &&
        entry->stage != Stage::kParked) {
      waiting.push_back(entry);
    }
  });
  for (Entry* entry : waiting) {
    if (TakeBack(entry)) FailCall(entry, failure);
  }
  SettleDoomed();
}

void Owner::CancelChildren(const Id& parent, std::uint64_t calls) {
  std::unordered_set<Id> ids;
  for (std::uint64_t i = 0; i < calls; ++i) ids.insert(DeriveId(parent, 0, i));
  if (ids.empty()) return;
  std::vector<Entry*> found;
  {
    const Lock lock(mutex_);
    table_.ForEach([&](Entry* entry) {
      if (entry->session != session_ || entry->origin != Origin::kTask || entry->done() || !ids.contains(entry->id))
        return;
      entry->refs.fetch_add(1, std::memory_order_relaxed);
      found.push_back(entry);
    });
  }
  for (Entry* entry : found) {
    Cancel(entry, false, true);
    internal::Release(entry);
  }
}

void Owner::Cancel(Entry* entry, bool force, bool tree) {
  Pump();  // what has been answered is over
  {
    const Lock lock(mutex_);
    if (entry->session != session_ || entry->done()) return;
    if (entry->origin == Origin::kBorrowed) {
      static_cast<void>(link().Send(wire::CancelObject{entry->id, entry->owner, force, tree}));
      return;
    }
    if (entry->origin == Origin::kSibling) {
      table_.ForEach([&](Entry* other) {
        if (other->session != session_ || other->extra == nullptr || other->origin != Origin::kTask) return;
        for (Entry* sibling : other->extra->siblings) {
          if (sibling == entry) entry = other;
        }
      });
    }
    if (entry->origin != Origin::kTask || entry->queue == nullptr) return;
    entry->flags |= Entry::kCancelled;
    if (entry->stage == Stage::kParked || TakeBack(entry)) {
      FailCall(entry, Failure{Code::kCancelled, Cat(DescribeTask(entry), " was cancelled before it started"), {}, {}});
      SettleDoomed();
    } else {
      // It runs somewhere. Which lane has it stands in its slot, or among those away.
      std::uint32_t index = 0;
      if (entry->stage == Stage::kRing) {
        const shm::Claim claim =
            shm::Unpack(entry->queue->ring.memory().slots[entry->position % shm::kQueueSlots].claim.load(
                std::memory_order_acquire));
        if (claim.sequence == shm::QueueOwner::Sequence(entry->position)) index = claim.lane;
      }
      for (const ClassQueue::Away& away : entry->queue->away) {
        if (away.entry == entry) index = away.lane;
      }
      if (index == 0 || index >= lanes_.size() || !lanes_[index]->active) return;
      Lane& lane = *lanes_[index];
      const std::uint64_t token = shm::TaskToken(entry->index, entry->generation) | (tree ? shm::kCancelTree : 0);
      lane.reader.memory().cancel.store(token, std::memory_order_release);
      if (lane.far != nullptr && lane.far->link != nullptr) {
        lane.far->link->Send(wire::FarCancel{token});
      }
      if (force && entry->queue->actor == nullptr) {
        wire::KillWorker message;
        message.worker = lane.reader.memory().worker.load(std::memory_order_relaxed);
        message.failure = Failure{Code::kCancelled, "cancelled by force", {}, {}};
        message.token = token;
        static_cast<void>(link().Send(message));
      }
    }
  }
  bell_->Ring();
  NotifyWaiters();
}

void Owner::CheckTimeouts(std::int64_t now_us) {
  for (Lane* lane : active_lanes_) {
    if (lane->queue == nullptr || !lane->queue->timed || !lane->active) continue;
    shm::LaneMemory& memory = lane->reader.memory();
    const std::uint64_t token = memory.running.load(std::memory_order_acquire);
    if (token == 0 || token == lane->timed_out) continue;
    const std::int64_t started = memory.started_us.load(std::memory_order_relaxed);
    Entry* entry = table_.Find(static_cast<std::uint32_t>(token >> 32), static_cast<std::uint32_t>(token));
    if (entry == nullptr || entry->done() || entry->plan == nullptr) continue;
    const std::int64_t limit = entry->plan->options.timeout.count();
    if (limit == 0 || now_us - started < limit) continue;
    lane->timed_out = token;
    entry->flags |= Entry::kTimedOut;
    wire::KillWorker message;
    message.worker = memory.worker.load(std::memory_order_relaxed);
    message.stack = true;
    if (lane->queue->actor == nullptr || lane->queue->actor->options.concurrency == 1) message.token = token;
    message.failure = Failure{Code::kTimedOut,
                              Cat("it ran for ", (now_us - started) / 1000, " ms, over its timeout of ", limit / 1000,
                                  " ms, and was stopped; raise SetTimeout, or look at the stack it printed"),
                              {},
                              {}};
    lane->timeout_failure = message.failure;
    static_cast<void>(link().Send(message));
  }
}

std::string Owner::NameOf(Entry* entry) {
  if (entry->plan != nullptr && !entry->plan->options.name.empty()) return entry->plan->options.name;
  if (entry->spec == 0 || setup_.function_name == nullptr) return "task";
  shm::SpecHeader header;
  std::memcpy(&header, log_.at(entry->spec), sizeof header);
  if ((header.flags & shm::SpecHeader::kStableName) != 0) {
    const NamedCode::Code* code = NamedCode::Get().Find(header.target);
    return code == nullptr ? "task" : code->name;
  }
  const bool own = (header.flags & (shm::SpecHeader::kNoTarget | shm::SpecHeader::kVirtual)) != 0;
  const base::Module* module = base::ModuleByHash(own ? header.module : header.target_module);
  if (module == nullptr) return "task";
  return setup_.function_name(reinterpret_cast<const void*>(module->base + (own ? header.trampoline : header.target)));
}

std::string Owner::DescribeTask(Entry* entry) { return Cat("task ", NameOf(entry), " (", ToString(entry->id), ")"); }

}  // namespace manta::owner
