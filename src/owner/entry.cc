#include "owner/entry.h"

#include <cstdlib>

#include "owner/class_queue.h"

namespace manta::owner {

EntryTable& EntryTable::Get() {
  static auto* table = new EntryTable();  // never destroyed: Refs in statics outlive main
  return *table;
}

Entry* EntryTable::Allocate(const Id& id, Origin origin, std::uint32_t refs, std::uint32_t session) {
  if (free_.empty()) {
    auto slab = std::make_unique_for_overwrite<Entry[]>(kSlab);
    const auto first = static_cast<std::uint32_t>(slabs_.size()) * kSlab;
    free_.reserve(free_.size() + kSlab);
    for (std::uint32_t i = kSlab; i-- > 0;) {
      slab[i].index = first + i;
      slab[i].generation = 0;  // even: free
      free_.push_back(&slab[i]);
    }
    slabs_.push_back(std::move(slab));
  }
  Entry* entry = free_.back();
  free_.pop_back();
  ++entry->generation;
  entry->refs.store(refs, std::memory_order_relaxed);
  entry->state.store(State::kPending, std::memory_order_relaxed);
  entry->origin = origin;
  entry->where = Where::kNone;
  entry->stage = Stage::kNone;
  entry->id = id;
  entry->size = 0;
  entry->spec = 0;
  entry->position = 0;
  entry->queue = nullptr;
  entry->plan = nullptr;
  entry->extra = nullptr;
  entry->session = session;
  entry->retries = 0;
  entry->flags = 0;
  entry->contains = false;
  entry->holds = 0;
  entry->lineage = 0;
  ++live_;
  return entry;
}

void EntryTable::DisposeForeign(Entry* entry) {
  std::vector<Entry*> doomed{entry};
  while (!doomed.empty()) {
    Entry* next = doomed.back();
    doomed.pop_back();
    Empty(
        next,
        [&](Entry* inner) {
          if (inner->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) doomed.push_back(inner);
        },
        [](ActorEntry* actor) {
          if (actor->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete actor;
        });
  }
}

void EntryTable::Free(Entry* entry) {
  if (entry->where == Where::kHeap) std::free(entry->heap);
  if (entry->where == Where::kFailure) delete entry->failure;
  ++entry->generation;
  --live_;
  free_.push_back(entry);
}

}  // namespace manta::owner
