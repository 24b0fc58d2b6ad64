// Lineage beyond the limit of memory: the oldest of what is shelved (rebuild.cc) goes to a file (shelf_file.h): the
// spec, and the edges by name. The entry stays only while something in memory names it, so that of a long chain only
// the newest part is in memory. An input that has no record itself stays, counted by the record: one that is held, or
// cannot be made again. Whoever plans a rebuild reads records back as it comes to them.
#include <cstdio>
#include <cstring>
#include <utility>

#include "owner/owner.h"

namespace manta::owner {

// All that the call needs, but for the spec's memory, which the caller drops.
bool Owner::MoveOut(Entry* entry) {
  if (entry->extra != nullptr && entry->extra->first != nullptr) return true;  // another return has the call
  if (!on_disk_.contains(entry)) {
    ShelfFile::Record record;
    record.plan = entry->plan;
    const auto to_edges = [&](const std::vector<Entry*>& from, std::vector<ShelfFile::Edge>* to) {
      for (Entry* value : from) {
        const auto it = on_disk_.find(value);
        to->push_back({value->id, it == on_disk_.end() ? 0 : it->second});
        if ((value->flags & Entry::kMapped) != 0) continue;
        value->flags |= Entry::kMapped;  // the record has its name only
        by_id_[value->id] = value;
      }
    };
    if (entry->extra != nullptr) {
      to_edges(entry->extra->inputs, &record.inputs);
      to_edges(entry->extra->mentions, &record.mentions);
    }
    std::uint32_t bytes = 0;
    const std::byte* at = log_.at(entry->spec);
    std::memcpy(&bytes, at, sizeof bytes);
    record.spec.assign(at, at + bytes);
    const Result<std::uint64_t> place = shelf_.Write(record);
    if (!place.ok()) {
      if (shelf_trouble_.empty()) {
        std::fprintf(stderr,
                     "manta: more than %s of lineage (--lineage-memory), and %s; what only the oldest calls could "
                     "rebuild is lost with its node\n",
                     Bytes(setup_.welcome.lineage_memory).c_str(), place.status().message().c_str());
      }
      shelf_trouble_ = place.status().message();
      return false;
    }
    on_disk_[entry] = place.value();
    // The record has the counts of those that have none: so they are not dropped.
    for (const std::vector<ShelfFile::Edge>* list : {&record.inputs, &record.mentions}) {
      for (const ShelfFile::Edge& edge : *list) {
        if (edge.record == 0) ++by_id_[edge.id]->lineage;
      }
    }
  }
  if (entry->extra == nullptr) return true;
  Extra& extra = *entry->extra;
  for (Entry* input : extra.inputs) DropLineage(input);
  for (Entry* mention : extra.mentions) DropLineage(mention);
  extra.inputs.clear();
  extra.mentions.clear();
  if (extra.returns.empty()) delete std::exchange(entry->extra, nullptr);
  return true;
}

// True: its spec and edges are in memory (again).
bool Owner::MoveIn(Entry* task) {
  if (task->spec != 0) return true;
  const auto it = on_disk_.find(task);
  if (it == on_disk_.end()) return false;
  Result<ShelfFile::Record> record = shelf_.Read(it->second);
  const std::uint64_t offset = record.ok() ? log_.Append(record->spec.size()) : 0;
  if (offset == 0) {
    shelf_trouble_ = record.ok() ? "there is no room for what was in the file" : record.status().message();
    return false;
  }
  std::memcpy(log_.at(offset), record->spec.data(), record->spec.size());
  // As what names it, not as what it was: the entry is a new one.
  auto* header = reinterpret_cast<shm::SpecHeader*>(log_.at(offset));
  header->entry = task->index;
  header->generation = task->generation;
  task->spec = offset;
  task->plan = record->plan;
  Extra& extra = task->more();
  for (const ShelfFile::Edge& edge : record->inputs) extra.inputs.push_back(OnShelf(edge));
  for (const ShelfFile::Edge& edge : record->mentions) extra.mentions.push_back(OnShelf(edge));
  for (Entry* input : extra.inputs) ++input->lineage;
  for (Entry* mention : extra.mentions) ++mention->lineage;
  if (task->stage == Stage::kShelved) {
    shelved_bytes_ += SpecBytes(task);
    shelved_.push_back({task, task->generation});
  }
  return true;
}

// The entry of what a record names.
Entry* Owner::OnShelf(const ShelfFile::Edge& edge) {
  if (const auto it = by_id_.find(edge.id); it != by_id_.end()) return it->second;
  Entry* entry = table_.Allocate(edge.id, Origin::kTask, 0, session_);
  entry->place = {};
  entry->where = Where::kStore;
  entry->stage = Stage::kShelved;
  entry->flags = Entry::kMapped | Entry::kRebuildable;
  if (recorder_ != nullptr) RecordOf(entry) = 0;  // it was recorded when it was called
  by_id_[edge.id] = entry;
  if (edge.record != 0 && shelf_.Keep(edge.record).ok()) on_disk_[entry] = edge.record;
  entry->state.store(State::kReady, std::memory_order_release);
  any_missing_.store(true, std::memory_order_relaxed);
  return entry;
}

void Owner::DropRecord(Entry* entry) {
  if (on_disk_.empty()) return;
  const auto it = on_disk_.find(entry);
  if (it == on_disk_.end()) return;
  std::vector<Id> let_go;
  shelf_.Drop(it->second, &let_go);
  on_disk_.erase(it);
  for (const Id& id : let_go) {
    const auto named = by_id_.find(id);
    if (named != by_id_.end() && named->second->lineage > 0) DropLineage(named->second);
  }
}

}  // namespace manta::owner
