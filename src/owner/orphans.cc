// What dead processes owned. A process owns what it put and what its tasks make; if it dies, values that are there
// stay, and what was not ready, or is lost later, is made again by the task that the process ran then: that one makes
// the same calls, and so the same ids (types/id.h), in another process.
//
// Who knows that task. Its worker says so when Refs leave it (wire::Maker); the daemon asks who called it (Orphaned).
// That one has the task if it still runs, or if it keeps its lineage, which it does as long as it has a Ref that came
// out of the task's result (Extra::maker). When the owner's whole node is gone, with what its daemon knew, whoever
// has such a Ref does the same on its own.
//
// The new owner announces the object as the first one did, and those who wait are told. A task that runs again and does
// not announce it is not deterministic: it made other calls, or put other values, which have other names (values.cc).
// Then the object is lost, with a NondeterminismError, unless it was put as durable (durable.h).
#include <algorithm>
#include <cstring>

#include "owner/owner.h"
#include "rules/lineage.h"

namespace manta::owner {

// The call is over, and can run again: what its result has Refs to needs it.
void Owner::LinkMaker(Entry* task, Entry* result) {
  if (result == nullptr || result->extra == nullptr) return;
  for (Entry* inner : result->extra->contained) {
    if (inner->origin != Origin::kBorrowed || inner->session != session_ || inner->more().maker != nullptr) continue;
    inner->extra->maker = task;
    ++task->lineage;
  }
}

Entry* Owner::FindTask(const Id& id) {
  if (const auto it = by_id_.find(id); it != by_id_.end()) {
    return it->second->origin == Origin::kTask ? it->second : nullptr;
  }
  Entry* found = nullptr;
  table_.ForEach([&](Entry* entry) {
    if (entry->id == id && entry->origin == Origin::kTask && entry->session == session_) found = entry;
  });
  return found;
}

void Owner::OnOrphaned(const wire::Orphaned& message) {
  Entry* task = nullptr;
  if (!message.task.empty()) {
    task = FindTask(message.task);
  } else if (const auto it = by_id_.find(message.object); it != by_id_.end() && it->second->extra != nullptr) {
    task = it->second->extra->maker;
  }
  std::string why = "who called the task that made it has let go of what that could be run again from";
  if (task == nullptr || !Remake(task, message.object, message.ask, &why)) {
    static_cast<void>(link().Send(wire::Unmade{message.object, why, message.ask}));
  }
  SettleDoomed();
}

// Has the task run again, unless it runs anyway; SettleOrphans follows when it is over. False: it cannot.
bool Owner::Remake(Entry* task, const Id& object, std::uint64_t ask, std::string* why) {
  if (!lost_.ok()) return false;
  if (!task->over()) {
    std::vector<Extra::Orphan>& orphans = task->more().orphans;
    std::erase_if(orphans, [&](const Extra::Orphan& orphan) { return orphan.object == object; });
    orphans.push_back({object, ask, true});
    return true;
  }
  if ((task->flags & Entry::kRebuildable) == 0 || !MoveIn(task)) {
    *why =
        Cat(DescribeTask(task), ", which made it, cannot run again: it may run only once (retries: 0), or its record ",
            "has made room for later ones");
    return false;
  }
  if (rules::GivenUp(task->more().rebuilds)) {
    *why = Cat(DescribeTask(task), ", which made it, was run again ", task->extra->rebuilds, " times for such values");
    return false;
  }
  const std::uint32_t rebuilds = ++task->extra->rebuilds;
  task->extra->orphans.push_back({object, ask, false});
  Restart(task);
  task->extra->rebuilds = rebuilds;  // not once more for its own result
  return true;
}

// A borrowed object is lost, as its owner's node is: nobody there can ask us, so we see to it ourselves.
bool Owner::RemakeBorrowed(Entry* entry) {
  if (entry->extra == nullptr || entry->extra->maker == nullptr || !IsFar(entry->owner)) return false;
  std::string why;
  return Remake(entry->extra->maker, entry->id, 0, &why);
}

// Refs in an answer to a call whose result is there already: it ran again. True: the hold that came with it is kept.
bool Owner::TakeContained(const shm::Contained& inner) {
  const auto it = by_id_.find(inner.id);
  if (it == by_id_.end()) return false;
  Entry* entry = it->second;
  if (entry->origin != Origin::kBorrowed || entry->done() || entry->stage == Stage::kShelved) return false;
  entry->owner = inner.owner;
  ++entry->holds;
  entry->flags &= static_cast<std::uint8_t>(~Entry::kSubscribed);
  std::string frames;
  SubscribeLocked(entry, &frames);
  static_cast<void>(link().SendBytes(frames, {}));
  return true;
}

// The task is over: those that it was run again for are announced by now, or never will be.
void Owner::SettleOrphans(Entry* task) {
  const std::vector<Extra::Orphan> orphans = std::exchange(task->extra->orphans, {});
  const bool differs = task->state.load(std::memory_order_relaxed) != State::kFailed;
  const std::string why =
      !differs
          ? Cat(DescribeTask(task), ", which made it, was run again and failed: ", task->failure->message)
          : Cat(DescribeTask(task),
                ", which made it, was run again and did not make it: its puts, calls or their values differ from "
                "those of the first run. A task that gives Refs away must do the same each time: no clocks, random "
                "numbers or other outside input, unless it comes as an argument; or put the value as durable");
  for (const auto& [object, ask, running] : orphans) {
    static_cast<void>(link().Send(wire::Unmade{object, running ? std::string() : why, ask, !running && differs}));
    const auto it = by_id_.find(object);
    if (it == by_id_.end()) continue;
    Entry* entry = it->second;
    if (entry->origin != Origin::kBorrowed || entry->done() || (entry->flags & Entry::kSubscribed) != 0) continue;
    const Failure lost{Code::kLost,
                       Cat("object ", ToString(object), " is lost with its owner, which died; ", why),
                       differs ? std::string(kNondeterminism) : std::string(),
                       {}};
    if (!Rescue(entry, lost)) Fail(entry, lost);
  }
}

// ---- durable values ----

Result<DurableValues*> Owner::Durable() {
  if (setup_.welcome.head.empty()) return Status(Code::kNotFound, "there is no cluster");
  if (stopping_.load()) return Status(Code::kUnavailable, kGone);  // nobody would end it
  const Result<far::Thread*> thread = FarThread();
  if (!thread.ok()) return thread.status();
  const Result<std::shared_ptr<wire::Secrets>> secrets = Secrets();
  if (!secrets.ok()) return secrets.status();
  const std::lock_guard lock(far_mutex_);
  if (durable_values_ == nullptr) {
    durable_values_ = std::make_unique<DurableValues>(*thread.value(), setup_.welcome.head, secrets.value(),
                                                      setup_.runner == nullptr ? setup_.welcome.number : 0);
  }
  return durable_values_.get();
}

Status Owner::MakeDurable(Entry* entry) {
  if (entry->contains) {
    return Status(Code::kInvalid,
                  "Put: a durable value cannot have Refs or actor handles in it: what they name may not outlive it");
  }
  const std::string& folder = setup_.welcome.lineage;
  if (setup_.welcome.head.empty() && folder.empty()) {
    return Status(Code::kInvalid,
                  "Put: there is no place for a durable value: give the job a name (Config::job), or run it in a "
                  "cluster (manta start --head)");
  }
  KeepAlive keep;
  const Result<internal::View> view = Look(entry, &keep, nullptr);
  if (!view.ok()) return view.status();
  const std::span<const std::byte> value(view.value().data, view.value().size);
  Id job;
  {
    const Lock lock(mutex_);
    job = setup_.job;
  }
  Status kept;
  if (setup_.welcome.head.empty()) {
    kept = KeepInFolder(folder, entry->id, value);
  } else {
    const Result<DurableValues*> values = Durable();
    if (!values.ok()) return values.status();
    kept = values.value()->Keep(job, entry->id, value);
  }
  if (!kept.ok())
    return Status(kept.code(), Cat("Put: the value (", Bytes(value.size()), ") is not durable: ", kept.message()));
  const Lock lock(mutex_);
  durable_[entry->id] = job;
  if ((entry->flags & Entry::kMapped) == 0) {  // and so not plain(): ForgetDurable must see it go
    entry->flags |= Entry::kMapped;
    by_id_[entry->id] = entry;
  }
  return {};
}

Status Owner::KeepForReplay(Entry* entry) {
  const std::string& folder = setup_.welcome.lineage;
  if (folder.empty()) return {};
  KeepAlive keep;
  const Result<internal::View> view = Look(entry, &keep, nullptr);
  if (!view.ok()) return view.status();
  return KeepInFolder(folder, entry->id, {view.value().data, view.value().size});
}

// Its last Ref is gone. If Refs have left this process, others may need it until the job ends; if a task had it as an
// argument, `manta replay` may.
void Owner::ForgetDurable(const Entry* entry) {
  const auto it = durable_.find(entry->id);
  if (it == durable_.end() || entry->origin != Origin::kPut) return;
  if ((entry->flags & Entry::kEscaped) == 0) {
    if (durable_values_ != nullptr) {
      durable_values_->Forget(it->second, it->first);
    } else if ((entry->flags & Entry::kSharedPlace) == 0) {
      ForgetInFolder(setup_.welcome.lineage, it->first);
    }
  }
  durable_.erase(it);
}

// A borrowed object is lost, but may have been put as durable: then this process owns it from now on.
bool Owner::Rescue(Entry* entry, const Failure& failure) {
  const Result<DurableValues*> values = Durable();
  if (!values.ok()) return false;
  entry->refs.fetch_add(1, std::memory_order_relaxed);
  values.value()->Find(setup_.job, entry->id, [this, entry, failure](Result<std::vector<std::byte>> value) {
    Rescued(entry, failure, std::move(value));
  });
  return true;
}

void Owner::Rescued(Entry* entry, const Failure& failure, Result<std::vector<std::byte>> value) {
  Place place;
  Status status = value.status();
  if (value.ok() && value->size() > kSmallValue) {
    Result<store::Allocation> room = store().Allocate(entry->id, self(), value->size());
    status = room.status();
    if (room.ok()) {
      std::memcpy(room->data, value->data(), value->size());
      place = store().Seal(*room);
    }
  }
  {
    const Lock lock(mutex_);
    if (entry->done() || entry->origin != Origin::kBorrowed) {
      if (!place.nowhere()) store().Free(entry->id, place, false);
    } else if (!status.ok()) {
      Failure full = LostFailure(entry, failure);
      if (status.code() != Code::kNotFound)
        full.message += Cat(" (and if it was put as durable: ", status.message(), ")");
      Fail(entry, std::move(full));
    } else {
      ReleaseLineage(entry);
      // Holds stay: if the daemon heard that nobody has it, it would free what is stored here under its name.
      entry->origin = Origin::kPut;
      if (place.nowhere()) {
        SetValue(entry, *value);
      } else {
        entry->place = place;
        entry->size = place.size;
        entry->where = Where::kStore;
      }
      Succeed(entry);
    }
    Unref(entry);
    SettleDoomed();
  }
  NotifyWaiters();
}

}  // namespace manta::owner
