// Values: storing, looking at and letting go of them.
#include <cstdlib>
#include <cstring>

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

Result<Entry*> Owner::PutBegin(std::size_t size, std::byte** out) {
  const Id id = NextId();
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
  {
    const Lock lock(mutex_);
    if (!lost_.ok()) {
      std::free(heap);
      return Status(lost_.code, lost_.message);
    }
    entry = table_.Allocate(id, Origin::kPut, 1, session_);
  }
  entry->size = size;
  if (size > kSmallValue) {
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
  if (entry->where == Where::kNone) {
    store::Allocation room = OpenPuts().back().room;
    OpenPuts().pop_back();
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

Result<internal::View> Owner::Look(Entry* entry, KeepAlive* keep) {
  switch (entry->where) {
    case Where::kInline:
      return internal::View{entry->small, entry->size};
    case Where::kHeap:
      return internal::View{entry->heap, entry->size};
    case Where::kStore:
      break;
    default:
      return Status(Code::kInvalid, "this Ref has no value to look at");
  }
  if (entry->session != session_) return Status(Code::kUnavailable, kGone);
  Place place;
  {
    const Lock lock(mutex_);
    place = entry->place;
  }
  Place moved;
  Result<store::View> view = store().Open(entry->id, place, &moved, OwnerOf(entry));
  if (!view.ok()) return view.status();
  if (!(moved == place)) {
    const Lock lock(mutex_);
    entry->place = moved;
  }
  // Counts the entry too: what somebody looks at is not freed.
  entry->refs.fetch_add(1, std::memory_order_relaxed);
  *keep = KeepAlive(view->data, [hold = store_, open = *view, entry](const void*) mutable {
    hold->client.Close(open);
    internal::Release(entry);
  });
  return internal::View{view->data, view->size};
}

void Owner::Dispose(Entry* entry) {
  doomed_.push_back(entry);
  SettleDoomed();
}

void Owner::Unref(Entry* entry) {
  if (entry->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) doomed_.push_back(entry);
}

// Frees what has no count left. What it contained may follow, so this is a loop and not a recursion.
void Owner::SettleDoomed() {
  while (!doomed_.empty()) {
    Entry* entry = doomed_.back();
    doomed_.pop_back();
    DisposeLocked(entry);
  }
}

void Owner::DisposeLocked(Entry* entry) {
  if (entry->session != session_) return table_.DisposeForeign(entry);
  if ((entry->flags & Entry::kMapped) != 0) {
    const auto it = by_id_.find(entry->id);
    if (it != by_id_.end() && it->second == entry) by_id_.erase(it);  // else a newer entry for the same object is there
  }
  const bool known = (entry->flags & Entry::kEscaped) != 0 || entry->holds > 0;
  if (entry->holds > 0) QueueDrop(entry->id, entry->holds);
  if (entry->where == Where::kStore && !known && entry->origin != Origin::kBorrowed) {
    store().Free(entry->id, entry->place, entry->origin != Origin::kPut || (entry->flags & Entry::kSharedPlace) != 0);
  }
  if (entry->spec != 0) log_.Drop(entry->spec);
  table_.Empty(entry, [this](Entry* inner) { Unref(inner); }, [this](ActorEntry* actor) { UnrefActor(actor); });
}

}  // namespace manta::owner
