#include "owner/entry.h"

#include <cstdlib>

#include "base/per_thread.h"
#include "owner/class_queue.h"

namespace manta::owner {

EntryTable& EntryTable::Get() {
  static auto* table = new EntryTable();  // never destroyed: Refs in statics outlive main
  return *table;
}

namespace {

void Begin(Entry* entry, const Id& id, Origin origin, std::uint32_t refs, std::uint32_t session) {
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
  entry->generation.Next();
}

void End(Entry* entry) {
  if (entry->where == Where::kHeap) std::free(entry->heap);
  if (entry->where == Where::kFailure) delete entry->failure;
  entry->generation.Next();
}

}  // namespace

// At least one batch and at most two, once it has been used.
struct EntryTable::Stock {
  std::vector<Entry*> entries;

  Stock() { entries.reserve(2 * kBatch); }
  ~Stock() { GiveBack(0); }
  Stock(const Stock&) = delete;
  Stock& operator=(const Stock&) = delete;

  void GiveBack(std::size_t down_to) {
    EntryTable& table = Get();
    const std::lock_guard lock(table.mutex);
    for (; entries.size() > down_to; entries.pop_back()) table.free_small_.push_back(entries.back());
  }
  void Fill() {
    EntryTable& table = Get();
    const std::lock_guard lock(table.mutex);
    if (table.free_small_.size() < kBatch) table.AddSlab(true);
    for (; entries.size() < kBatch; table.free_small_.pop_back()) entries.push_back(table.free_small_.back());
  }
};

Entry* EntryTable::AllocateSmall(const Id& id, std::uint32_t session) {
  Stock& stock = base::PerThread<Stock>();
  if (stock.entries.empty()) stock.Fill();
  Entry* entry = stock.entries.back();
  stock.entries.pop_back();
  Begin(entry, id, Origin::kPut, 1, session);
  return entry;
}

void EntryTable::FreeSmall(Entry* entry) {
  Stock& stock = base::PerThread<Stock>();
  if (stock.entries.size() == 2 * kBatch) stock.GiveBack(kBatch);
  End(entry);
  stock.entries.push_back(entry);
}

void EntryTable::AddSlab(bool small) {
  auto slab = std::make_unique_for_overwrite<Entry[]>(kSlab);
  const auto first = static_cast<std::uint32_t>(slabs_.size()) * kSlab;
  std::vector<Entry*>& free = small ? free_small_ : free_;
  free.reserve(free.size() + kSlab);
  for (std::uint32_t i = kSlab; i-- > 0;) {
    slab[i].index = first + i;
    slab[i].generation.Reset();  // even: free
    slab[i].small_put = small;
    free.push_back(&slab[i]);
  }
  slabs_.push_back({std::move(slab), small});
}

Entry* EntryTable::Allocate(const Id& id, Origin origin, std::uint32_t refs, std::uint32_t session) {
  if (free_.empty()) AddSlab(false);
  Entry* entry = free_.back();
  free_.pop_back();
  Begin(entry, id, origin, refs, session);
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
  End(entry);
  if (entry->small_put) {
    free_small_.push_back(entry);
    return;
  }
  --live_;
  free_.push_back(entry);
}

}  // namespace manta::owner
