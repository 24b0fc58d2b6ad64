// Sharing: Refs and handles that leave this process or come into it.
//
// Who keeps what alive: the daemon counts, for every object whose Ref has left its owner, the processes
// that hold it, and how often: each entry knows how many holds it stands for, and drops as many when it goes.
// A Ref inside a call's arguments is kept by the caller until the call is over; one inside
// a result is handed over by name before the result goes; one inside another object is held by that.
// So a Ref met while a task runs needs a hold of its own only if it outlives the task.
#include <utility>

#include "base/per_thread.h"
#include "manta/internal/embed.h"
#include "owner/owner.h"

namespace manta::owner {
namespace {

// Borrowed by the task that runs on this thread, each counted.
struct Borrowing {
  bool active = false;
  std::vector<Entry*> entries;
  std::vector<ActorEntry*> actors;
  std::vector<Entry*> looked_at;  // arguments that lie in the store; nobody else may know of them
};
Borrowing& ThisBorrowing() { return base::PerThread<Borrowing>(); }

}  // namespace

void Owner::Announce(std::span<Entry* const> entries, std::span<ActorEntry* const> actors) {
  static_cast<void>(actors);  // the daemon knows every actor since its creation
  std::string frames;
  const Lock lock(mutex_);
  for (Entry* entry : entries) AnnounceLocked(entry, &frames);
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
}

void Owner::AnnounceLocked(Entry* entry, std::string* frames) {
  if ((entry->flags & Entry::kEscaped) != 0 || entry->origin == Origin::kBorrowed || entry->session != session_) return;
  Want(entry);
  entry->flags |= Entry::kEscaped | Entry::kMapped;
  ++entry->holds;  // by what is sent now
  by_id_[entry->id] = entry;
  if (entry->done()) {
    PublishLocked(entry, false, frames);
  } else {
    wire::Expect message;
    message.objects.push_back(entry->id);
    message.maker = ThisCaller().maker;
    *frames += wire::EncodeFrame(message);
  }
}

void Owner::AnnounceContents(Entry* entry, std::string* frames) {
  if (entry->extra == nullptr) return;
  for (Entry* inner : entry->extra->contained) AnnounceLocked(inner, frames);
}

void Owner::PublishLocked(Entry* entry, bool expected, std::string* frames) {
  AnnounceContents(entry, frames);
  wire::Publish message;
  message.expected = expected;
  message.object = entry->id;
  if (!expected) message.maker = ThisCaller().maker;
  wire::Outcome& outcome = message.outcome;
  outcome.ready = true;
  switch (entry->where) {
    case Where::kFailure:
      outcome.failure = *entry->failure;
      break;
    case Where::kStore:
      outcome.place = entry->place;
      entry->flags |= Entry::kSharedPlace;
      break;
    case Where::kHeap:
      outcome.bytes.assign(reinterpret_cast<const char*>(entry->heap), entry->size);
      break;
    default:
      outcome.bytes.assign(reinterpret_cast<const char*>(entry->small), entry->size);
      break;
  }
  if (entry->extra != nullptr) {
    for (Entry* inner : entry->extra->contained) outcome.contained.push_back(inner->id);
    for (ActorEntry* inner : entry->extra->contained_actors) outcome.contained.push_back(inner->id);
    for (Entry* inner : entry->extra->contained) outcome.contained_owners.push_back(OwnerOf(inner));
    for (ActorEntry* inner : entry->extra->contained_actors) outcome.contained_owners.push_back(inner->owner());
    for (const ProcessId owner : outcome.contained_owners) {
      if (IsFar(owner)) far_holds_.store(true, std::memory_order_relaxed);
    }
  }
  *frames += wire::EncodeFrame(message);
}

Entry* Owner::Adopt(const Id& id, ProcessId owner, bool held) {
  const Lock lock(mutex_);
  return AdoptLocked(id, owner, held);
}

void Owner::AdoptAll(std::span<const shm::Contained> names, Entry** out) {
  const Lock lock(mutex_);
  for (const shm::Contained& name : names) {
    *out++ = name.id.empty() ? nullptr : AdoptLocked(name.id, name.owner, false);
  }
}

Entry* Owner::AdoptLocked(const Id& id, ProcessId owner, bool held) {
  Borrowing& borrowing = ThisBorrowing();
  const auto it = by_id_.find(id);
  Entry* entry = nullptr;
  if (it != by_id_.end()) {
    entry = it->second;
    // Another thread may just have let go of the last Ref, and wait for the mutex: it will see that it was not the
    // last.
    const bool dying = entry->refs.fetch_add(1, std::memory_order_relaxed) == 0;
    if (entry->stage == Stage::kShelved) {
      Revive(entry);
      entry->refs.fetch_sub(1, std::memory_order_relaxed);
    }
    if (held) ++entry->holds;
    if (entry->origin == Origin::kBorrowed && held) entry->owner = owner;  // another one, if the first is dead
    if (!dying || entry->origin != Origin::kBorrowed) return entry;
  } else {
    entry = table_.Allocate(id, Origin::kBorrowed, 1, session_);
    entry->owner = owner;
    entry->flags = Entry::kMapped;
    if (held) ++entry->holds;
    by_id_[id] = entry;
  }
  if (entry->holds > 0) return entry;
  if (borrowing.active) {
    entry->refs.fetch_add(1, std::memory_order_relaxed);
    borrowing.entries.push_back(entry);
  } else {
    entry->holds = 1;
    QueueHold(id, owner);
  }
  return entry;
}

ActorEntry* Owner::AdoptActor(const Id& id, NodeNumber home, const wire::ActorOptions* options, bool held) {
  const Lock lock(mutex_);
  return AdoptActorLocked(id, home, options, held);
}

ActorEntry* Owner::AdoptActorLocked(const Id& id, NodeNumber home, const wire::ActorOptions* options, bool held) {
  ActorEntry* actor = nullptr;
  const auto it = actors_.find(id);
  if (it != actors_.end()) {
    actor = it->second;
    actor->refs.fetch_add(1, std::memory_order_relaxed);
  } else {
    actor = new ActorEntry();
    actor->id = id;
    actor->home = home;
    actor->session = session_;
    actors_[id] = actor;
  }
  if (options != nullptr) {
    // A handle that came inside a value tells only what its calls need.
    wire::ActorOptions known = std::move(actor->options);
    actor->options = *options;
    if (actor->options.class_name.empty()) {
      actor->options.class_name = std::move(known.class_name);
      actor->options.about = std::move(known.about);
    }
  }
  if (held) ++actor->holds;
  if (actor->holds == 0) {
    Borrowing& borrowing = ThisBorrowing();
    if (borrowing.active) {
      actor->refs.fetch_add(1, std::memory_order_relaxed);
      borrowing.actors.push_back(actor);
    } else {
      actor->holds = 1;
      QueueHold(id, actor->owner());
    }
  }
  return actor;
}

void Owner::BeginBorrowing() { ThisBorrowing().active = true; }

void Owner::EndBorrowing(ProcessId answers) {
  Borrowing& borrowing = ThisBorrowing();
  borrowing.active = false;
  const bool far = IsFar(answers);
  if (borrowing.entries.empty() && borrowing.actors.empty() && borrowing.looked_at.empty() &&
      !any_pending_.load(std::memory_order_relaxed) && !(far && far_holds_.load(std::memory_order_relaxed))) {
    return;
  }
  std::string frames;
  {
    const Lock lock(mutex_);
    borrowing.entries.insert(borrowing.entries.end(), borrowing.looked_at.begin(), borrowing.looked_at.end());
    borrowing.looked_at.clear();
    for (Entry* entry : borrowing.entries) {
      if ((entry->refs.load(std::memory_order_acquire) > 1 || entry->lineage > 0) && entry->holds == 0) {
        entry->holds = 1;
        QueueHold(entry->id, OwnerOf(entry));
      }
      Unref(entry);
    }
    for (ActorEntry* actor : borrowing.actors) {
      if (actor->refs.load(std::memory_order_acquire) > 1 && actor->holds == 0) {
        actor->holds = 1;
        QueueHold(actor->id, actor->owner());
      }
      UnrefActor(actor);
    }
    SettleDoomed();
    SendQueued(&frames);
  }
  borrowing.entries.clear();
  borrowing.actors.clear();
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  if (far && far_holds_.exchange(false)) static_cast<void>(link().Call<wire::Done>(wire::HoldFar{}));
}

bool Owner::KeepBorrowed(const Id& actor) {
  const Borrowing& borrowing = ThisBorrowing();
  if (borrowing.entries.empty() && borrowing.actors.empty()) return false;
  wire::ActorKeeps message;
  message.actor = actor;
  {
    const Lock lock(mutex_);
    for (const Entry* entry : borrowing.entries) {
      message.objects.push_back(entry->id);
      message.owners.push_back(OwnerOf(entry));
    }
    for (const ActorEntry* other : borrowing.actors) {
      message.objects.push_back(other->id);
      message.owners.push_back(other->owner());
    }
  }
  static_cast<void>(link().Send(message));
  return true;
}

void Owner::KeepForActor(const Id& actor, std::span<Entry* const> entries, std::span<ActorEntry* const> actors) {
  wire::ActorKeeps message;
  message.actor = actor;
  message.all = true;
  {
    const Lock lock(mutex_);
    for (const Entry* entry : entries) {
      message.objects.push_back(entry->id);
      message.owners.push_back(OwnerOf(entry));
    }
    for (const ActorEntry* other : actors) {
      message.objects.push_back(other->id);
      message.owners.push_back(other->owner());
    }
  }
  static_cast<void>(link().Send(message));
}

bool Owner::OwnsAny(std::span<Entry* const> entries) {
  const Lock lock(mutex_);
  for (const Entry* entry : entries) {
    if (entry->origin != Origin::kBorrowed) return true;
  }
  return false;
}

void Owner::HandOver(std::span<Entry* const> entries, std::span<ActorEntry* const> actors, ProcessId receiver) {
  std::string frames;
  bool far = false;
  {
    const Lock lock(mutex_);
    SendQueued(&frames);
    wire::Hold message;
    message.holder = receiver;
    for (Entry* entry : entries) {
      AnnounceLocked(entry, &frames);
      message.objects.push_back(entry->id);
      message.owners.push_back(OwnerOf(entry));
      far = far || IsFar(message.owners.back());
    }
    for (ActorEntry* actor : actors) {
      message.objects.push_back(actor->id);
      message.owners.push_back(actor->owner());
      far = far || IsFar(message.owners.back());
    }
    frames += wire::EncodeFrame(message);
  }
  static_cast<void>(link().SendBytes(frames, {}));
  if (far && IsFar(receiver)) static_cast<void>(link().Call<wire::Done>(wire::HoldFar{}));
}

ProcessId Owner::OwnerOf(const Entry* entry) const {
  return entry->origin == Origin::kBorrowed ? entry->owner : self();
}

bool Owner::IsFar(ProcessId process) const { return process != kNoProcess && NodeOf(process) != NodeOf(self()); }

void Owner::Subscribe(std::span<Entry* const> entries) {
  wire::WaitObjects message;
  const Lock lock(mutex_);
  for (Entry* entry : entries) {
    if (entry->origin != Origin::kBorrowed || entry->done() || (entry->flags & Entry::kSubscribed) != 0) continue;
    entry->flags |= Entry::kSubscribed;
    message.objects.push_back(entry->id);
    message.owners.push_back(entry->owner);
  }
  if (!message.objects.empty()) static_cast<void>(link().Send(message));
}

void Owner::SubscribeLocked(Entry* entry, std::string* frames) {
  if (entry->origin != Origin::kBorrowed || entry->done() || (entry->flags & Entry::kSubscribed) != 0) return;
  entry->flags |= Entry::kSubscribed;
  wire::WaitObjects message;
  message.objects.push_back(entry->id);
  message.owners.push_back(entry->owner);
  *frames += wire::EncodeFrame(message);
}

Failure Owner::LostFailure(const Entry* entry, Failure failure) {
  if (failure.code == Code::kLost && entry->extra != nullptr && entry->extra->rebuilds > 0) {
    // It was there before, so we can say more than who has forgotten it.
    failure.message =
        Cat("object ", ToString(entry->id), " (", Bytes(entry->size), "), which was in the store of node ",
            entry->place.node, ", is lost, and its owner cannot make it again: ", failure.message,
            ". What a process stored by Put, or had its tasks make, is lost with that process, unless the task that it "
            "ran can run again: put it as durable, or let a task of a process that lives on make the value");
  }
  return failure;
}

void Owner::OnObjectReady(const wire::ObjectReady& message) {
  const auto it = by_id_.find(message.object);
  if (it == by_id_.end()) return;
  Entry* entry = it->second;
  if (entry->origin != Origin::kBorrowed || entry->done()) return;
  entry->flags &= static_cast<std::uint8_t>(~Entry::kSubscribed);
  const wire::Outcome& outcome = message.outcome;
  if (!outcome.failure.ok()) {
    if (outcome.failure.code == Code::kLost && RemakeBorrowed(entry)) return SettleDoomed();
    if (outcome.failure.code == Code::kLost && Rescue(entry, outcome.failure)) return;
    Fail(entry, LostFailure(entry, outcome.failure));
  } else {
    if (!outcome.place.nowhere()) {
      entry->place = outcome.place;
      entry->size = outcome.place.size;
      entry->where = Where::kStore;
    } else {
      SetValue(entry, std::as_bytes(std::span(outcome.bytes)));
    }
    if (entry->extra != nullptr && entry->extra->maker != nullptr) entry->extra->maker->more().rebuilds = 0;
    Succeed(entry);
  }
  SettleDoomed();
}

void Owner::QueueHold(const Id& id, ProcessId owner) {
  pending_.push_back({id, 0, owner});
  if (IsFar(owner)) far_holds_.store(true, std::memory_order_relaxed);
  any_pending_.store(true, std::memory_order_relaxed);
}

void Owner::QueueDrop(const Id& id, std::uint32_t holds) {
  pending_.push_back({id, holds, kNoProcess});
  any_pending_.store(true, std::memory_order_relaxed);
  WakeBackground();
}

void Owner::SendQueued(std::string* frames) {
  // Runs of holds and of drops, in the order in which they happened.
  for (std::size_t i = 0; i < pending_.size();) {
    wire::Hold hold;
    for (; i < pending_.size() && pending_[i].drops == 0; ++i) {
      hold.objects.push_back(pending_[i].id);
      hold.owners.push_back(pending_[i].owner);
    }
    if (!hold.objects.empty()) *frames += wire::EncodeFrame(hold);
    wire::Drop drop;
    for (; i < pending_.size() && pending_[i].drops > 0; ++i) {
      drop.objects.push_back(pending_[i].id);
      drop.counts.push_back(pending_[i].drops);
    }
    if (!drop.objects.empty()) *frames += wire::EncodeFrame(drop);
  }
  pending_.clear();
  any_pending_.store(false, std::memory_order_relaxed);
}

internal::View Owner::LookAtArgument(const shm::StoredItem& item, KeepAlive* keep, bool wait) {
  Entry* entry = nullptr;
  {
    const Lock lock(mutex_);
    Borrowing& borrowing = ThisBorrowing();
    const std::size_t before = borrowing.entries.size();
    entry = AdoptLocked(item.object, item.owner, false);
    if (borrowing.entries.size() > before) {
      borrowing.entries.pop_back();
      borrowing.looked_at.push_back(entry);
    }
    if (!entry->done()) {
      entry->place = item.place;
      entry->size = item.place.size;
      entry->where = Where::kStore;
      Succeed(entry);
    } else if (entry->origin == Origin::kBorrowed && entry->where == Where::kStore) {
      entry->place = item.place;  // it may have been made again since we heard of it
    }
  }
  const auto counted = internal::Handle<Entry>::Adopt(entry);
  for (;;) {
    bool again = false;
    Result<internal::View> view = Look(entry, keep, wait ? &again : nullptr);
    if (view.ok()) return *view;
    if (!wait && view.status().code() == Code::kLost) {
      throw internal::ForeignError(Code::kLost, view.status().message(), kArgumentLost, ToHex(item.object), false);
    }
    if (!again) throw LostError(view.status().message());
    WaitUntil([entry] { return entry->done(); }, -1, {});
  }
}

// ---- results of calls that this very process ran for itself ----

Entry* Owner::EntryOf(const shm::SpecHeader& header) {
  const Lock lock(mutex_);
  return table_.Find(header.entry, header.generation);
}

void Owner::DeliverValue(Entry* first, std::uint32_t index, std::span<const std::byte> bytes, bool last) {
  const Lock lock(mutex_);
  Entry* entry = Return(first, index);
  if (entry != nullptr && !entry->done()) {
    SetValue(entry, bytes);
    Succeed(entry);
  }
  if (last && !first->over()) Finish(first);
  SettleDoomed();
}

void Owner::DeliverPlace(Entry* first, std::uint32_t index, const Place& place, bool last) {
  const Lock lock(mutex_);
  Entry* entry = Return(first, index);
  if (entry != nullptr && !entry->done()) {
    entry->place = place;
    entry->size = place.size;
    entry->where = Where::kStore;
    Succeed(entry);
  } else if (entry == nullptr) {
    DiscardResult(first, index, place);
  }
  if (last && !first->over()) Finish(first);
  SettleDoomed();
}

void Owner::DeliverFailure(Entry* first, const Failure& failure, bool retryable) {
  const Lock lock(mutex_);
  RetryOrFail(first, failure, retryable ? rules::Ended::kAsksAgain : rules::Ended::kThrew);
  SettleDoomed();
}

void Owner::DeliverContained(Entry* first, std::uint32_t index, std::vector<Entry*>&& entries,
                             std::vector<ActorEntry*>&& actors) {
  const Lock lock(mutex_);
  Entry* entry = Return(first, index);
  if (entry == nullptr) return;
  SetContents(entry, std::move(entries), std::move(actors));
}

}  // namespace manta::owner
