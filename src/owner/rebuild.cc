// Lineage: values that were lost with their node are made again by running their tasks again, lost inputs first.
//
// What is kept. When a call ends and a result of it lies in the store, its entry keeps what the call needs to run
// again: the spec, which has small arguments in it, and an edge to every entry that the arguments name (`inputs` by
// value, `mentions` by Ref). Edges count as lineage, not as Refs. An entry without Refs that has lineage is shelved
// (Stage::kShelved). Results that lie in the owner's memory cannot be lost, and keep nothing.
//
// What is freed. A shelved value that can be made again is freed at once. One that cannot (a Put, an actor's answer,
// another process's object) is kept for the sake of what was made from it, within a quarter of the store.
// What is beyond the limit of memory goes to disk (shelf.cc).
// An object that others hold keeps its lineage until the daemon says that nobody does (Unheld).
//
// How a loss is found. The daemon tells of a node's death (NodeGone); a reader finds that nobody has the value (Look);
// a task's worker does (ArgumentLost); another process does (ObjectLost). In each case the entry is `missing` first,
// and is made again when somebody wants it. Then it is pending like any other future, so that all who wait share one
// rebuild. rules/lineage.h decides which tasks run.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/clock.h"
#include "owner/owner.h"
#include "rules/lineage.h"

namespace manta::owner {
namespace {

template <typename Deque>
void Prune(Deque* records) {
  std::erase_if(*records, [](const auto& record) {
    return record.entry->generation != record.generation || record.entry->stage != Stage::kShelved;
  });
}

}  // namespace

struct Owner::Graph {
  Owner& owner;

  [[nodiscard]] rules::Presence PresenceOf(Entry* value) const {
    using rules::Presence;
    if (value->session != owner.session_) return Presence::kHopeless;
    rules::ValueFacts facts;
    facts.done = value->done();
    facts.failed = value->state.load(std::memory_order_relaxed) == State::kFailed;
    facts.missing = value->missing();
    facts.rebuildable = (value->flags & Entry::kRebuildable) != 0;
    facts.rebuilds = value->extra == nullptr ? 0 : value->extra->rebuilds;
    const Presence presence = rules::PresenceOf(facts);
    return presence == Presence::kMissing && !owner.MoveIn(TaskOf(value)) ? Presence::kHopeless : presence;
  }
  [[nodiscard]] static Entry* TaskOf(Entry* value) {
    return value->extra != nullptr && value->extra->first != nullptr ? value->extra->first : value;
  }
  [[nodiscard]] static Entry* InputOf(Entry* task, std::size_t i) {
    if (task->extra == nullptr) return nullptr;
    const Extra& extra = *task->extra;
    if (i < extra.inputs.size()) return extra.inputs[i];
    i -= extra.inputs.size();
    return i < extra.mentions.size() ? extra.mentions[i] : nullptr;
  }
};

// ---- what is kept ----

// The call is over.
void Owner::KeepLineage(Entry* entry, bool actor) {
  const auto stored = [](const Entry* result) {
    return result != nullptr && (result->where == Where::kStore || !result->done());
  };
  // Refs that it brought have owners that may die (orphans.cc).
  const auto borrows = [](const Entry* result) {
    if (result == nullptr || result->extra == nullptr) return false;
    const std::vector<Entry*>& inner = result->extra->contained;
    return std::any_of(inner.begin(), inner.end(), [](const Entry* e) { return e->origin == Origin::kBorrowed; });
  };
  bool keep = stored(entry) || borrows(entry);
  if (entry->extra != nullptr) {
    for (const Entry* sibling : entry->extra->siblings) keep = keep || stored(sibling) || borrows(sibling);
  }
  const int planned = entry->plan == nullptr ? TaskOptions{}.retries : entry->plan->options.retries;
  keep = keep && !actor && planned != 0 && entry->spec != 0;
  const bool kept = (entry->flags & Entry::kRebuildable) != 0;
  if (keep) entry->flags |= Entry::kRebuildable;
  if (entry->extra == nullptr) return;
  Extra& extra = *entry->extra;
  if (keep) {
    LinkMaker(entry, entry);
    for (Entry* sibling : extra.siblings) LinkMaker(entry, sibling);
  }
  if (keep && !kept) {
    for (Entry* argument : extra.arguments) {
      ++argument->lineage;
      extra.mentions.push_back(argument);
    }
    for (Entry* sibling : extra.siblings) {
      sibling->flags |= Entry::kRebuildable;
      sibling->more().first = entry;
      ++entry->lineage;
    }
    extra.returns = extra.siblings;
  }
  for (Entry* input : extra.inputs) {
    if (keep && input->extra != nullptr) input->extra->rebuilds = 0;  // it was good for something
    Unref(input);
  }
  if (keep) return;
  ReleaseLineage(entry);
}

void Owner::ReleaseLineage(Entry* entry) {
  entry->flags &= static_cast<std::uint8_t>(~Entry::kRebuildable);
  DropRecord(entry);
  if (entry->extra == nullptr) return;
  Extra& extra = *entry->extra;
  for (Entry* input : extra.inputs) DropLineage(input);
  for (Entry* mention : extra.mentions) DropLineage(mention);
  extra.inputs.clear();
  extra.mentions.clear();
  if (Entry* maker = std::exchange(extra.maker, nullptr); maker != nullptr) DropLineage(maker);
  if (Entry* first = std::exchange(extra.first, nullptr); first != nullptr) {
    for (Entry*& slot : first->extra->returns) {
      if (slot == entry) slot = nullptr;
    }
    DropLineage(first);
  }
}

void Owner::DropLineage(Entry* entry) {
  if (--entry->lineage == 0 && entry->stage == Stage::kShelved) unneeded_.push_back({entry, entry->generation});
}

// What is in the file counts no more.
std::uint64_t Owner::SpecBytes(const Entry* entry) {
  if (entry->spec == 0) return 0;
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, log_.at(entry->spec), sizeof bytes);
  return bytes + sizeof(Entry) + sizeof(Extra);
}

// No Ref is left, but what was made of it, or what others hold, may need it.
void Owner::Shelve(Entry* entry) {
  entry->stage = Stage::kShelved;
  const bool small = entry->where == Where::kInline || entry->where == Where::kHeap;
  if (small && (entry->flags & Entry::kRebuildable) != 0 && entry->contains) {
    // Kept for the sake of the Refs in it, which it must not hold any more: so the value goes, too.
    if (entry->where == Where::kHeap) std::free(entry->heap);
    entry->place = {};
    entry->where = Where::kStore;
    Miss(entry);
  }
  if ((entry->flags & Entry::kRebuildable) == 0 || entry->where != Where::kStore) {
    if (entry->where == Where::kStore && !entry->place.nowhere()) kept_bytes_ += entry->size;
    kept_.push_back({entry, entry->generation});
    return BoundLineage();
  }
  if (entry->extra != nullptr) {
    for (Entry* inner : entry->extra->contained) Unref(inner);
    for (ActorEntry* inner : entry->extra->contained_actors) UnrefActor(inner);
    entry->extra->contained.clear();
    entry->extra->contained_actors.clear();
  }
  if ((entry->flags & Entry::kEscaped) != 0) {
    if (entry->holds > 0) QueueDrop(entry->id, std::exchange(entry->holds, 0));
  } else if (!entry->place.nowhere()) {
    store().Free(entry->id, entry->place, true);
    Miss(entry);
  }
  shelved_bytes_ += SpecBytes(entry);
  shelved_.push_back({entry, entry->generation});
  BoundLineage();
}

// One count more, also for what is shelved.
void Owner::Revive(Entry* entry) {
  entry->refs.fetch_add(1, std::memory_order_relaxed);
  if (entry->stage != Stage::kShelved) return;
  Unshelve(entry);
  if ((entry->flags & Entry::kEscaped) != 0 && entry->holds == 0) {
    entry->holds = 1;
    QueueHold(entry->id, OwnerOf(entry));
  }
}

void Owner::Unshelve(Entry* entry) {
  entry->stage = Stage::kNone;
  if ((entry->flags & Entry::kRebuildable) != 0 && entry->where == Where::kStore) {
    shelved_bytes_ -= SpecBytes(entry);
  } else if (entry->where == Where::kStore && !entry->place.nowhere()) {
    kept_bytes_ -= entry->size;
  }
}

// Lineage is not to grow for ever: the oldest goes first.
void Owner::BoundLineage() {
  if (shelved_.size() >= shelved_prune_) {
    Prune(&shelved_);
    shelved_prune_ = 2 * shelved_.size() + 1024;
  }
  if (kept_.size() >= kept_prune_) {
    Prune(&kept_);
    kept_prune_ = 2 * kept_.size() + 1024;
  }
  while (shelved_bytes_ > setup_.welcome.lineage_memory && !shelved_.empty()) {
    const Shelved oldest = shelved_.front();
    shelved_.pop_front();
    Entry* entry = oldest.entry;
    if (entry->generation != oldest.generation || entry->stage != Stage::kShelved || entry->spec == 0) continue;
    if ((entry->flags & Entry::kRebuildable) == 0) continue;
    shelved_bytes_ -= SpecBytes(entry);
    const bool out = MoveOut(entry);
    if (!out) ReleaseLineage(entry);
    log_.Drop(std::exchange(entry->spec, 0));
    if (out) continue;
    Miss(entry);
    if (entry->lineage == 0) unneeded_.push_back({entry, entry->generation});
  }
  while (kept_bytes_ > setup_.welcome.store_bytes / 4 && !kept_.empty()) {
    const Shelved oldest = kept_.front();
    kept_.pop_front();
    Entry* entry = oldest.entry;
    if (entry->generation != oldest.generation || entry->stage != Stage::kShelved) continue;
    if (entry->where != Where::kStore || entry->place.nowhere()) continue;
    kept_bytes_ -= entry->size;
    if (entry->origin == Origin::kBorrowed || (entry->flags & Entry::kEscaped) != 0) {
      if (entry->holds > 0) QueueDrop(entry->id, std::exchange(entry->holds, 0));
    } else {
      store().Free(entry->id, entry->place, true);
    }
    Miss(entry);
  }
}

// ---- making it again ----

void Owner::Miss(Entry* entry) {
  entry->place.segment = 0;  // the node stays, for messages
  any_missing_.store(true, std::memory_order_relaxed);
}

// Back to a future.
void Owner::Blank(Entry* entry) {
  Extra& extra = entry->more();
  for (Entry* inner : extra.contained) Unref(inner);
  for (ActorEntry* inner : extra.contained_actors) UnrefActor(inner);
  extra.contained.clear();
  extra.contained_actors.clear();
  ++extra.rebuilds;
  entry->where = Where::kNone;
  entry->state.store(State::kPending, std::memory_order_release);
}

bool Owner::Rebuild(std::span<Entry* const> entries) {
  if (!any_missing_.load(std::memory_order_relaxed)) return false;
  bool any = false;
  const Lock lock(mutex_);
  for (Entry* entry : entries) {
    if (entry->session != session_ || !entry->missing()) continue;
    Want(entry);
    any = true;
  }
  SettleDoomed();
  return any;
}

// Somebody needs it. If it is missing, it is pending or failed afterwards.
void Owner::Want(Entry* entry) {
  if (!entry->missing() || entry->session != session_) return;
  if (!lost_.ok()) return Fail(entry, lost_);
  const rules::RebuildPlan<Entry*> plan = rules::PlanRebuild(Graph{*this}, entry);
  if (plan.hopeless != nullptr) return Fail(entry, Hopeless(entry, plan.hopeless));
  for (Entry* task : plan.tasks) Restart(task);
}

void Owner::Restart(Entry* task) {
  static_cast<void>(MoveIn(task));  // it was, by whoever planned this; a task that runs has its spec
  Extra& extra = task->more();
  const bool runs = !task->over();  // it has a result less than it will have answered: Finish looks again
  if (!runs) {
    Revive(task);
    extra.siblings = extra.returns;
    for (Entry* sibling : extra.siblings) {
      if (sibling != nullptr) Revive(sibling);
    }
  }
  std::vector<Id> freed;
  std::vector<Place> places;
  for (std::size_t i = 0; i <= extra.siblings.size(); ++i) {
    Entry* result = Return(task, static_cast<std::uint32_t>(i));
    if (result == nullptr || !result->done() || result->where != Where::kStore) continue;
    if (runs && !result->missing()) continue;
    if (!result->place.nowhere()) {
      freed.push_back(result->id);  // it is made once more, all the same
      places.push_back(result->place);
    }
    Blank(result);
  }
  if (!freed.empty()) link().Free(std::move(freed), std::move(places));
  if (runs) return;
  task->flags &= static_cast<std::uint8_t>(~(Entry::kCancelled | Entry::kTimedOut | Entry::kBegun));
  task->retries =
      static_cast<std::int16_t>(task->plan == nullptr ? TaskOptions{}.retries : task->plan->options.retries);
  task->queue = task->plan == nullptr ? plain_ : task->plan->queue;
  ++submitted_;
  bell_->submitted.store(submitted_, std::memory_order_relaxed);
  MarkSpec(task, shm::SpecHeader::kRerun, shm::SpecHeader::kFresh);
  for (Entry* input : extra.inputs) Revive(input);
  std::string frames;
  for (Entry* mention : extra.mentions) {
    Revive(mention);
    extra.arguments.push_back(mention);
    AnnounceLocked(mention, &frames);
  }
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  Resend(task);
  if (background_idle_.load(std::memory_order_relaxed)) WakeBackground();
}

// Sends a call that has a spec once more, when its inputs are there: with their new places.
void Owner::Resend(Entry* task) {
  Extra& extra = task->more();
  for (Entry* input : extra.inputs) Want(input);
  task->stage = Stage::kParked;
  extra.missing = 0;
  std::string frames;
  for (Entry* input : extra.inputs) {
    if (input->done()) continue;
    ++extra.missing;
    task->refs.fetch_add(1, std::memory_order_relaxed);
    input->more().dependents.push_back(task);
    SubscribeLocked(input, &frames);
  }
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  if (extra.missing > 0) return;
  task->stage = Stage::kNone;
  std::byte* at = log_.at(task->spec);
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, at, sizeof bytes);
  Result<shm::SpecReader> reader = shm::SpecReader::Open(at, bytes);
  std::size_t next = 0;
  while (reader.ok() && next < extra.inputs.size()) {
    const Result<shm::SpecReader::Item> item = reader->Next();
    if (!item.ok()) break;
    if (item.value().kind != shm::ItemKind::kStored) continue;
    Entry* input = extra.inputs[next++];
    if (input->where == Where::kFailure) return FailCall(task, *input->failure);
    if (input->where != Where::kStore) {
      return FailCall(task, Failure{Code::kLost,
                                    Cat(DescribeTask(task), " cannot run again: its input ", ToString(input->id),
                                        " was lost, and has only ", Bytes(input->size),
                                        " since it was made again: the task that makes it gives other results each "
                                        "time; SetRetries(0) says that it must not run twice"),
                                    {},
                                    {}});
    }
    shm::StoredItem stored;
    std::memcpy(&stored, item.value().data, sizeof stored);
    stored.place = input->place;
    stored.owner = OwnerOf(input);
    input->flags |= Entry::kSharedPlace;
    // Nobody reads the spec now: the call is not in a queue.
    std::memcpy(at + (item.value().data - at), &stored, sizeof stored);
  }
  Push(task);
}

// ---- how a loss is found ----

// The value is not at `place`, nor anywhere else. True: it is on its way, or something else by now; look again.
bool Owner::Lose(Entry* entry, const Place& place, const std::string& why) {
  if (entry->session != session_) return false;
  if (!entry->done() || entry->where != Where::kStore) return true;
  if (entry->origin == Origin::kBorrowed) {
    if (!(entry->place == place)) return true;
    if (!lost_.ok() || entry->owner == self() || rules::GivenUp(entry->more().rebuilds)) return false;
    Blank(entry);
    entry->flags &= static_cast<std::uint8_t>(~Entry::kSubscribed);
    std::string frames = wire::EncodeFrame(wire::ObjectLost{entry->id, place, entry->owner, why});
    SubscribeLocked(entry, &frames);
    static_cast<void>(link().SendBytes(frames, {}));
    return true;
  }
  if (entry->place == place) Miss(entry);
  Want(entry);
  return true;
}

// A worker could not get at an input, and has not begun.
void Owner::ArgumentLost(Entry* task, const Failure& failure) {
  Extra& extra = task->more();
  std::erase_if(task->queue->away, [&](const ClassQueue::Away& away) { return away.entry == task; });
  Entry* lost = nullptr;
  std::size_t index = 0;
  for (; index < extra.inputs.size() && lost == nullptr; ++index) {
    if (ToHex(extra.inputs[index]->id) == failure.cause) lost = extra.inputs[index];
  }
  if (lost == nullptr || task->queue->actor != nullptr) return FailCall(task, failure);
  // Where the worker looked for it stands in the spec.
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, log_.at(task->spec), sizeof bytes);
  Result<shm::SpecReader> reader = shm::SpecReader::Open(log_.at(task->spec), bytes);
  while (reader.ok()) {
    const Result<shm::SpecReader::Item> item = reader->Next();
    if (!item.ok()) break;
    if (item.value().kind != shm::ItemKind::kStored || --index > 0) continue;
    shm::StoredItem stored;
    std::memcpy(&stored, item.value().data, sizeof stored);
    if (!Lose(lost, stored.place, failure.message)) return FailCall(task, failure);
    break;
  }
  Resend(task);
}

// A result that nobody wants: a return that was let go of before its task ran again.
void Owner::DiscardResult(Entry* first, std::uint32_t index, const Place& place) {
  link().Free({ReturnId(first->id, index)}, {place});
}

void Owner::OnNodeGone(const wire::NodeGone& message) {
  gone_[message.node] = NodeLoss{base::NowMicros(), message.why};
  const std::unordered_set<Id> elsewhere(message.elsewhere.begin(), message.elsewhere.end());
  table_.ForEach([&](Entry* entry) {
    if (entry->session != session_ || entry->origin == Origin::kBorrowed || !entry->done()) return;
    if (entry->where != Where::kStore || entry->place.nowhere() || entry->place.node != message.node) return;
    if (elsewhere.contains(entry->id)) return;
    if (entry->stage == Stage::kShelved && (entry->flags & Entry::kRebuildable) == 0) kept_bytes_ -= entry->size;
    Miss(entry);
  });
}

void Owner::OnObjectLost(const wire::ObjectLost& message) {
  const auto it = by_id_.find(message.object);
  if (it == by_id_.end() || it->second->origin == Origin::kBorrowed) {
    wire::Publish publish;
    publish.expected = true;
    publish.object = message.object;
    publish.outcome.ready = true;
    publish.outcome.failure =
        Failure{Code::kLost,
                Cat("object ", ToString(message.object), " (", Bytes(message.place.size), ") is lost: ", message.why,
                    "; its owner has let go of what it could be rebuilt from"),
                {},
                {}};
    static_cast<void>(link().Send(publish));
    return;
  }
  Entry* entry = it->second;
  Revive(entry);
  std::string frames;
  const bool known = (entry->flags & Entry::kEscaped) != 0;
  if (!Lose(entry, message.place, message.why) || !known) {
    AnnounceLocked(entry, &frames);
  } else if (entry->done() && !entry->missing()) {
    PublishLocked(entry, true, &frames);
  }
  if (!frames.empty()) static_cast<void>(link().SendBytes(frames, {}));
  Unref(entry);
  SettleDoomed();
}

void Owner::OnUnheld(const wire::Unheld& message) {
  for (const Id& id : message.objects) {
    const auto it = by_id_.find(id);
    if (it == by_id_.end() || it->second->origin == Origin::kBorrowed) continue;
    Entry* entry = it->second;
    if ((entry->flags & Entry::kEscaped) == 0 || (entry->flags & Entry::kRebuildable) == 0) continue;
    if (entry->stage != Stage::kShelved) continue;  // it was wanted again meanwhile; then it is missing when it is read
    entry->flags &= static_cast<std::uint8_t>(~Entry::kEscaped);
    if (entry->where == Where::kStore) Miss(entry);
    if (entry->lineage == 0) unneeded_.push_back({entry, entry->generation});
  }
  SettleDoomed();
}

// Why `wanted` cannot be made again: `culprit` cannot, which it needs or is.
Failure Owner::Hopeless(Entry* wanted, Entry* culprit) {
  if (culprit->state.load(std::memory_order_relaxed) == State::kFailed) {
    Failure failure = *culprit->failure;
    if (culprit != wanted) {
      failure.message = Cat("object ", ToString(wanted->id), " (", Bytes(wanted->size),
                            ") is lost and cannot be rebuilt, because its input ", ToString(culprit->id),
                            " failed: ", failure.message);
    }
    return failure;
  }
  std::string what = Cat("object ", ToString(culprit->id), " (", Bytes(culprit->size));
  if (culprit->origin == Origin::kPut) {
    what += ", stored by Put)";
  } else if (culprit->origin == Origin::kBorrowed) {
    what += ", another process's)";
  } else {
    what += Cat(", made by ", DescribeTask(culprit), ")");
  }
  const NodeNumber node = culprit->where == Where::kStore ? culprit->place.node : 0;
  if (const auto gone = gone_.find(node); gone != gone_.end()) {
    what += Cat(" was in the store of node ", node, ", which has been gone for ",
                (base::NowMicros() - gone->second.at_us) / 1000, " ms (", gone->second.why, ")");
  } else {
    what += " is in no store any more";
  }
  if (culprit->extra != nullptr && rules::GivenUp(culprit->extra->rebuilds)) {
    what += Cat("; it was rebuilt ", culprit->extra->rebuilds, " times and lost each time before anybody read it");
  } else if (culprit->origin == Origin::kPut) {
    what += "; only the result of a task can be rebuilt: put it as durable, or let a task make the value";
  } else if (culprit->plan != nullptr && culprit->plan->options.retries == 0) {
    what += "; its task may run only once (retries: 0)";
  } else if (culprit->origin != Origin::kBorrowed) {
    what += Cat("; what it could be rebuilt from is not known any more: it is an actor's answer, or over ",
                Bytes(setup_.welcome.lineage_memory),
                " of later tasks came after it (Config::lineage_memory, manta start --lineage-memory) and ",
                shelf_trouble_.empty() ? "it is not on disk" : shelf_trouble_);
  }
  if (culprit != wanted) {
    what = Cat("object ", ToString(wanted->id), " (", Bytes(wanted->size),
               ") is lost and cannot be rebuilt, because its input cannot: ", what);
  } else {
    what = Cat("lost: ", what);
  }
  return Failure{Code::kLost, std::move(what), {}, {}};
}

}  // namespace manta::owner
