// Values: storing, looking at and letting go of them.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/digest.h"
#include "base/per_thread.h"
#include "owner/owner.h"

namespace manta::owner {
namespace {

// Puts that have begun on this thread; encoding a value may put another one. Each keeps the memory that it writes
// into, also when another thread shuts the cluster down meanwhile.
struct OpenPut {
  std::shared_ptr<Owner::StoreHold> store;
  store::Allocation room;
};
std::vector<OpenPut>& OpenPuts() { return base::PerThread<std::vector<OpenPut>>(); }

}  // namespace

// ---- names of what tasks put ----
//
// A task that runs again must make the values that it made before, because Refs to them are held by others. If it does
// something else, no Ref may lead to another value: so the digest of a value is part of its name. A value that differs
// has another name, the one that is looked for is not made, and its holders get a NondeterminismError
// (Owner::SettleOrphans). Drivers and actors do not pay for this: what they put is never made again.

Id Owner::NextPutId() {
  Caller& caller = ThisCaller();
  if (caller.maker.task.empty() || caller.session != session_) return NextId();
  return DeriveId(caller.parent, ~caller.path, caller.puts++);
}

void Owner::NameByContent(Entry* entry, std::span<const std::byte> value, std::span<Entry* const> contained) {
  // A Ref inside it is a name and the number of its owner (EncodeRef), which is another process the next time.
  std::uint64_t digest = 0;
  for (const Entry* inner : contained) {
    const void* found = memmem(value.data(), value.size(), &inner->id, sizeof inner->id);
    if (found == nullptr) continue;
    const std::size_t end = static_cast<const std::byte*>(found) - value.data() + sizeof inner->id;
    digest = base::DigestBytes(value.first(end), digest);
    value = value.subspan(std::min(end + sizeof(ProcessId), value.size()));
  }
  entry->id = DeriveId(entry->id, base::DigestBytes(value, digest), 0);
}

// ---- storing ----

Result<Entry*> Owner::PutBegin(std::size_t size, std::byte** out) {
  const Id id = NextPutId();
  store::Allocation room;
  std::byte* heap = nullptr;
  if (size > kSmallValue) {
    Result<store::Allocation> made = store().Allocate(id, self(), size);
    if (!made.ok()) return made.status();
    room = *made;
  } else if (size > Entry::kInlineBytes) {
    heap = static_cast<std::byte*>(std::malloc(size));
    if (heap == nullptr) return Status(Code::kOutOfMemory, Cat("no memory for a value of ", Bytes(size)));
  }
  Entry* entry = nullptr;
  const bool small = size <= kSmallValue;
  if (!small || link().lost()) {
    const Lock lock(mutex_);
    if (!lost_.ok()) {
      std::free(heap);
      return Status(lost_.code, lost_.message);
    }
    if (!small) entry = table_.Allocate(id, Origin::kPut, 1, session_);
  }
  if (small) entry = table_.AllocateSmall(id, session_);
  entry->size = size;
  if (!small) {
    OpenPuts().push_back({store_, room});
    *out = room.data;
  } else if (heap != nullptr) {
    entry->heap = heap;
    entry->where = Where::kHeap;
    *out = heap;
  } else {
    entry->where = Where::kInline;
    *out = entry->small;
  }
  return entry;
}

void Owner::PutEnd(Entry* entry, std::vector<Entry*>&& contained, std::vector<ActorEntry*>&& actors) {
  const Caller& caller = ThisCaller();
  const bool remade = !caller.maker.task.empty() && caller.session == session_ && entry->session == session_;
  if (remade && entry->where != Where::kNone) {
    NameByContent(entry, {entry->where == Where::kHeap ? entry->heap : entry->small, entry->size}, contained);
  }
  if (entry->where == Where::kNone) {
    store::Allocation room = OpenPuts().back().room;
    OpenPuts().pop_back();
    if (remade) {
      NameByContent(entry, {room.data, room.size}, contained);
      store::StoreClient::Rename(room, entry->id);
    }
    entry->place = store().Seal(room);
    entry->where = Where::kStore;
  }
  if (!contained.empty() || !actors.empty()) {
    const Lock lock(mutex_);
    SetContents(entry, std::move(contained), std::move(actors));
  }
  entry->state.store(State::kReady, std::memory_order_release);
}

void Owner::SetContents(Entry* entry, std::vector<Entry*>&& contained, std::vector<ActorEntry*>&& actors) {
  // Whoever reads the value here must find the very entries: nobody else has heard of them yet.
  for (Entry* inner : contained) {
    if ((inner->flags & Entry::kMapped) != 0 || inner->session != session_) continue;
    inner->flags |= Entry::kMapped;
    by_id_[inner->id] = inner;
  }
  entry->more().contained = std::move(contained);
  entry->more().contained_actors = std::move(actors);
  entry->contains = true;
}

void Owner::PutAbort(Entry* entry) {
  if (entry->where == Where::kNone) {
    OpenPut& put = OpenPuts().back();
    put.store->client.Abort(put.room);
    OpenPuts().pop_back();
  }
  internal::Release(entry);
}

Result<internal::View> Owner::Look(Entry* entry, KeepAlive* keep, bool* again) {
  if (again != nullptr) *again = false;
  switch (entry->where) {
    case Where::kInline:
      return internal::View{entry->small, entry->size};
    case Where::kHeap:
      return internal::View{entry->heap, entry->size};
    case Where::kFailure:
      return Status(entry->failure->code, entry->failure->message);
    default:
      break;
  }
  if (entry->session != session_) return Status(Code::kUnavailable, kGone);
  Place place;
  bool rebuilt = false;
  {
    const Lock lock(mutex_);
    Want(entry);
    if (!entry->done() || entry->where != Where::kStore) {
      SettleDoomed();
      if (again != nullptr) *again = true;
      return Status(Code::kLost, Cat("object ", ToString(entry->id), " is not there yet"));
    }
    place = entry->place;
    rebuilt = entry->extra != nullptr && entry->extra->rebuilds > 0;
  }
  Place moved;
  Result<store::View> view = store().Open(entry->id, place, &moved, OwnerOf(entry));
  if (!view.ok()) {
    if (view.status().code() == Code::kLost && again != nullptr) {
      const Lock lock(mutex_);
      *again = Lose(entry, place, view.status().message());
      SettleDoomed();
    }
    return view.status();
  }
  if (rebuilt || !(moved == place)) {
    const Lock lock(mutex_);
    if (entry->done() && entry->where == Where::kStore && entry->place == place) entry->place = moved;
    if (entry->extra != nullptr) entry->extra->rebuilds = 0;
  }
  // Counts the entry too: what somebody looks at is not freed.
  entry->refs.fetch_add(1, std::memory_order_relaxed);
  *keep = KeepAlive(view->data, [hold = store_, open = *view, entry](const void*) mutable {
    hold->client.Close(open);
    internal::Release(entry);
  });
  return internal::View{view->data, view->size};
}

bool Owner::IsElsewhere(const Entry* entry) {
  if (entry->where != Where::kStore || entry->session != session_) return false;
  const Lock lock(mutex_);
  return store().IsElsewhere(entry->id, entry->place);
}

void Owner::FetchAhead(std::span<Entry* const> entries) {
  wire::FetchAhead message;
  for (const Entry* entry : entries) {
    if (!entry->done() || !IsElsewhere(entry)) continue;
    const Lock lock(mutex_);
    message.objects.push_back(entry->id);
    message.places.push_back(entry->place);
    message.owners.push_back(OwnerOf(entry));
  }
  if (!message.objects.empty()) static_cast<void>(link().Send(message));
}

bool Owner::FetchHere(const Entry* entry, std::int64_t timeout_us) {
  if (!IsElsewhere(entry)) return true;
  wire::Fetch message;
  {
    const Lock lock(mutex_);
    message = {entry->id, entry->place, OwnerOf(entry)};
  }
  Result<wire::Fetched> fetched = link().Call<wire::Fetched>(message, {}, nullptr, timeout_us);
  if (!fetched.ok()) return fetched.status().code() != Code::kTimedOut;
  store().RememberCopy(message.object, fetched->place);
  return true;
}

void Owner::Dispose(Entry* entry, std::uint32_t generation) {
  doomed_.push_back({entry, generation});
  SettleDoomed();
}

void Owner::Unref(Entry* entry) {
  if (entry->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) doomed_.push_back({entry, entry->generation});
}

// Frees what has no count left. What it contained may follow, so this is a loop and not a recursion. What was doomed
// may have been wanted again since (Revive), and be doomed twice.
void Owner::SettleDoomed() {
  for (;;) {
    if (!doomed_.empty()) {
      const Doomed next = doomed_.back();
      doomed_.pop_back();
      Entry* entry = next.entry;
      if (entry->generation != next.generation || entry->refs.load(std::memory_order_relaxed) != 0) continue;
      if (entry->stage != Stage::kShelved) DisposeLocked(entry);
    } else if (!unneeded_.empty()) {
      const Doomed next = unneeded_.back();
      unneeded_.pop_back();
      Entry* entry = next.entry;
      if (entry->generation != next.generation || entry->stage != Stage::kShelved || entry->lineage != 0) continue;
      Unshelve(entry);
      DisposeLocked(entry);
    } else {
      // Frees go in batches. Who is idle must not sit on one, however large they are.
      if (background_idle_.load(std::memory_order_relaxed) && store().waiting_frees() > 0) WakeBackground();
      return;
    }
  }
}

void Owner::DisposeLocked(Entry* entry) {
  if (entry->session != session_) return table_.DisposeForeign(entry);
  // Others hold it, or something could be rebuilt from it.
  const bool lent = (entry->flags & (Entry::kEscaped | Entry::kRebuildable)) == (Entry::kEscaped | Entry::kRebuildable);
  if (entry->lineage > 0 || (lent && entry->where == Where::kStore && lost_.ok())) return Shelve(entry);
  if (entry->extra != nullptr || !on_disk_.empty()) ReleaseLineage(entry);
  if ((entry->flags & Entry::kMapped) != 0) {
    const auto it = by_id_.find(entry->id);
    if (it != by_id_.end() && it->second == entry) by_id_.erase(it);  // else a newer entry for the same object is there
  }
  const bool known = (entry->flags & Entry::kEscaped) != 0 || entry->holds > 0;
  if (entry->holds > 0) QueueDrop(entry->id, entry->holds);
  if (entry->where == Where::kStore && !entry->place.nowhere() && !known && entry->origin != Origin::kBorrowed) {
    store().Free(entry->id, entry->place, entry->origin != Origin::kPut || (entry->flags & Entry::kSharedPlace) != 0);
  }
  if (!durable_.empty()) ForgetDurable(entry);
  if (entry->spec != 0) log_.Drop(entry->spec);
  table_.Empty(entry, [this](Entry* inner) { Unref(inner); }, [this](ActorEntry* actor) { UnrefActor(actor); });
}

}  // namespace manta::owner
