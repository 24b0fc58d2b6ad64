#include <algorithm>
#include <utility>

#include "store/keeper.h"
#include "store/keeper_segment.h"

namespace manta::store {
namespace {
constexpr std::int64_t kSpillPauseUs = 500'000;  // after a failure: a full disk does not empty in a millisecond
}

std::unordered_set<Pin> Keeper::Pins() const {
  std::vector<Pin> pins;
  for (const auto& [process, board] : boards_) board.Collect(&pins);
  return {pins.begin(), pins.end()};
}

bool Keeper::MarkDying(const Id& object, const Place& place, std::vector<Dying>* dying) {
  Segment* segment = Find(place.segment);
  RowCopy row;
  if (segment == nullptr || !segment->table.Read(place.row, &row)) return false;
  if (row.object != object || row.generation != place.generation || row.state != RowState::kSealed) return false;
  if (!segment->table.Move(place.row, place.generation, RowState::kSealed, RowState::kDying)) return false;
  dying->push_back(Dying{place.segment, place.row, place.generation});
  return true;
}

void Keeper::FreeRow(Segment& segment, std::uint32_t row, std::uint32_t generation, RowState from) {
  if (row >= segment.table.shape().rows) return;
  if (segment.lent()) {
    segment.table.FreeForBorrower(row, generation, from);
  } else {
    segment.table.Move(row, generation, from, RowState::kFree);
  }
}

// Frees the rows that nobody pins; the others wait for their readers.
void Keeper::Release(const std::vector<Dying>& dying, std::int64_t now_us) {
  if (dying.empty()) return;
  const std::unordered_set<Pin> pins = Pins();
  std::unordered_set<std::uint32_t> touched;
  for (const Dying& row : dying) {
    Segment* segment = Find(row.segment);
    if (segment == nullptr) continue;
    if (pins.count(PinOf(row.segment, row.row)) != 0) {
      deferred_.push_back(row);
      continue;
    }
    FreeRow(*segment, row.row, row.generation, RowState::kDying);
    touched.insert(row.segment);
  }
  for (const std::uint32_t id : touched) {
    Segment& segment = *Find(id);
    CacheIfEmpty(segment, now_us);
    if (segment.on_disk() && segment.use == Segment::Use::kCached) Retire(id);  // never lent again
  }
}

void Keeper::FreeObjects(const std::vector<Id>& objects, const std::vector<Place>& places, std::int64_t now_us) {
  now_us_ = now_us;
  std::vector<Dying> dying;
  std::unordered_set<Id> search;
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const Place place = i < places.size() ? places[i] : Place{};
    adopted_.erase(objects[i]);
    const bool found = MarkDying(objects[i], place, &dying);
    const auto stored = stored_.find(objects[i]);
    if (stored != stored_.end()) {
      Forget(objects[i], stored->second, &dying);
      stored_.erase(stored);
    } else if (!found && place.nowhere()) {
      search.insert(objects[i]);
    }
  }
  if (!search.empty()) {
    for (const auto& [id, segment] : segments_) {
      segment->ForEach([&](const RowCopy& row) {
        if (row.state == RowState::kSealed && search.count(row.object) != 0)
          MarkDying(row.object, row.place(id, config_.number), &dying);
      });
    }
  }
  Release(dying, now_us);
  ServeWaiting(now_us);
}

std::vector<std::pair<Id, Place>> Keeper::ObjectsOf(ProcessId owner) const {
  std::vector<std::pair<Id, Place>> out;
  for (const auto& [id, segment] : segments_) {
    segment->ForEach([&, number = id](const RowCopy& row) {
      if (row.state == RowState::kSealed && row.owner == LocalOf(owner)) {
        out.emplace_back(row.object, row.place(number, config_.number));
      }
    });
  }
  for (const auto& [id, stored] : stored_) {
    if (!stored.place.nowhere() || LocalOf(stored.owner) != LocalOf(owner)) continue;
    // Whoever asks for it there is told that it is elsewhere, and has it brought back.
    out.emplace_back(id, Place{~0U, 0, 0, config_.number, stored.piece.length});
  }
  return out;
}

// Frees the copies in the segment whose newest copy is the oldest of all. False: there is none that nobody reads.
bool Keeper::EvictCopies(std::int64_t now_us) {
  const std::unordered_set<Pin> pins = Pins();
  std::uint64_t oldest = ~0ULL;
  Segment* chosen = nullptr;
  for (const auto& [id, segment] : segments_) {
    if (segment->use == Segment::Use::kCached) continue;
    std::uint64_t newest = 0;
    bool any = false;
    segment->ForEach([&](const RowCopy& row) {
      if (row.owner != kCopies || row.state != RowState::kSealed || pins.contains(PinOf(id, row.row))) return;
      if (adopted_.contains(row.object)) return;
      newest = std::max(newest, row.sealed_us);
      any = true;
    });
    if (!any || newest >= oldest) continue;
    oldest = newest;
    chosen = segment.get();
  }
  if (chosen == nullptr) return false;
  std::vector<Dying> dying;
  std::vector<Id> evicted;
  chosen->ForEach([&](const RowCopy& row) {
    if (row.owner != kCopies || pins.contains(PinOf(chosen->id, row.row)) || adopted_.contains(row.object)) return;
    if (MarkDying(row.object, row.place(chosen->id, config_.number), &dying)) evicted.push_back(row.object);
  });
  Release(dying, now_us);
  if (on_evicted_ && !evicted.empty()) on_evicted_(evicted);
  return !evicted.empty();
}

// Spills the segment whose newest object is the oldest of all. False: there is none that can be emptied.
bool Keeper::SpillOldest(std::int64_t now_us) {
  if (!spill_.enabled() || (!spill_failure_.ok() && now_us < spill_again_us_)) return false;
  spill_failure_ = Status();
  const std::unordered_set<Pin> pins = Pins();
  std::vector<std::pair<std::uint64_t, std::uint32_t>> candidates;
  for (const auto& [id, segment] : segments_) {
    if (segment->use == Segment::Use::kCached || segment->on_disk()) continue;
    if (segment->lent() && segment->JustLent(now_us)) continue;
    std::uint64_t newest = 0;
    bool movable = true;
    std::size_t sealed = 0;
    segment->ForEach([&](const RowCopy& row) {
      movable = movable && row.state == RowState::kSealed && pins.count(PinOf(id, row.row)) == 0;
      newest = std::max(newest, row.sealed_us);
      ++sealed;
    });
    if (movable && sealed > 0) candidates.emplace_back(newest, id);
  }
  std::sort(candidates.begin(), candidates.end());
  for (const auto& [newest, id] : candidates) {
    Segment& segment = *Find(id);
    if (segment.lent() && !TakeBack(segment, now_us)) continue;
    if (Spill(segment, now_us)) return true;
    if (!spill_failure_.ok()) return false;  // the next one would fail the same way
  }
  return false;
}

// Moves all objects of a kept segment to disk. False: some stayed, because they are read or being written,
// or because the disk is full.
bool Keeper::Spill(Segment& segment, std::int64_t now_us) {
  std::vector<RowCopy> rows;
  bool movable = true;
  segment.ForEach([&](const RowCopy& row) {
    if (row.state != RowState::kSealed) movable = false;
    rows.push_back(row);
  });
  if (!movable) return false;
  std::size_t marked = 0;
  while (marked < rows.size() &&
         segment.table.Move(rows[marked].row, rows[marked].generation, RowState::kSealed, RowState::kDying)) {
    ++marked;
  }
  // Readers who came before the marks are on the boards by now; those who come after see the marks.
  const std::unordered_set<Pin> pins = Pins();
  movable = marked == rows.size() && std::none_of(rows.begin(), rows.end(), [&](const RowCopy& row) {
              return pins.count(PinOf(segment.id, row.row)) != 0;
            });
  std::vector<Dying> given_way;
  std::size_t done = 0;
  for (; movable && done < rows.size(); ++done) {
    const RowCopy& row = rows[done];
    Stored& stored = stored_[row.object];
    // Its own file is still good. Another copy under the same id (a task that ran twice) gives way.
    if (stored.piece.file == nullptr || stored.place != row.place(segment.id, config_.number)) {
      Result<SpillFiles::Piece> piece = spill_.Write(segment.table.base() + row.offset, row.length);
      if (!piece.ok()) {
        spill_failure_ = piece.status();
        spill_again_us_ = now_us + kSpillPauseUs;
        if (stored.piece.file == nullptr) stored_.erase(row.object);
        break;
      }
      if (stored.piece.file != nullptr) Forget(row.object, stored, &given_way);
      stored.piece = std::move(*piece);
      stored.owner = row.owner;
    }
    stored.place = Place{};
    segment.table.Move(row.row, row.generation, RowState::kDying, RowState::kFree);
  }
  for (std::size_t i = done; i < marked; ++i) {
    segment.table.Move(rows[i].row, rows[i].generation, RowState::kDying, RowState::kSealed);
  }
  CacheIfEmpty(segment, now_us);
  Release(given_way, now_us);
  return done == rows.size() && movable;
}

void Keeper::Restore(ProcessId process, const Id& object, std::int64_t now_us, PlaceReply reply) {
  now_us_ = now_us;
  if (boards_.count(process) == 0) return reply(Unknown(process));
  Waiter waiter;
  waiter.process = process;
  waiter.object = object;
  waiter.place = std::move(reply);
  waiter.deadline_us = now_us + config_.wait_us;
  if (!Serve(waiter, now_us)) waiting_.push_back(std::move(waiter));
}

// Room in a segment that the keeper has lent itself. False: none now, or `*failure`.
bool Keeper::Reserve(std::uint64_t bytes, std::int64_t now_us, Segment** segment, Block* block, Status* failure) {
  for (const auto& [id, own] : segments_) {
    if (own->own == nullptr || own->whole != !Normal(bytes)) continue;
    own->own->TakeFreed(own->table);
    if (!own->own->Allocate(bytes, block)) continue;
    *segment = own.get();
    return true;
  }
  Result<Segment*> found = FindRoom(kNoProcess, bytes, now_us);
  if (!found.ok()) *failure = found.status();
  if (!found.ok() || *found == nullptr) return false;
  Lend(**found, kNoProcess, now_us);
  *segment = *found;
  return (*found)->own->Allocate(bytes, block);
}

Result<Place> Keeper::BringBack(const Id& object, Stored& stored, std::int64_t now_us) {
  Segment* segment = nullptr;
  Block block;
  Status failure;
  if (!Reserve(stored.piece.length, now_us, &segment, &block, &failure)) {
    if (!failure.ok()) return failure;
    return Place{};
  }
  RowCopy row;
  row.object = object;
  row.owner = stored.owner;
  row.offset = block.offset;
  row.length = stored.piece.length;
  const Table& table = segment->table;
  const std::uint32_t generation = table.Begin(block.row, row);
  SegmentHeader& header = table.header();
  header.uses.store(header.uses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  header.high_bytes.store(std::max(header.high_bytes.load(std::memory_order_relaxed), block.offset + block.bytes),
                          std::memory_order_relaxed);
  if (Status read = SpillFiles::Read(stored.piece, table.base() + block.offset); !read.ok()) {
    table.Move(block.row, generation, RowState::kWriting, RowState::kFree);
    segment->own->Free(block.row);
    return Status(read.code(), Cat("object ", ToString(object), " is lost: ", read.message()));
  }
  table.Seal(block.row, generation);
  stored.place = Place{segment->id, block.row, generation, config_.number, row.length};
  return stored.place;
}

}  // namespace manta::store
