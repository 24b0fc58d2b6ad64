// Segments in files: spilled objects that are read where they are, and room for writers when pinned objects fill the
// memory.
#include <algorithm>
#include <utility>

#include "store/keeper.h"
#include "store/keeper_segment.h"
#include "types/text.h"

namespace manta::store {

// The piece has a page for the header in front of the object, so that mapping it takes no disk space: it works although
// the disk is full. A piece keeps its segment's number and its row's generation, so that a process that still has an
// earlier mapping reads the same header, and a Place of an earlier mapping is never mistaken for one of this.
Place Keeper::MapStored(const Id& object, Stored& stored, std::int64_t now_us) {
  const std::uint64_t bytes = kPage + stored.piece.length;
  Result<shm::Mapping> map = shm::Mapping::Of(stored.piece.file->fd.get(), stored.piece.offset, bytes, true);
  if (!map.ok()) return {};  // too many mappings: idle ones go soon
  auto segment = std::make_unique<Segment>();
  segment->whole = true;
  segment->map = std::move(*map);
  segment->table = Table(segment->map.data(), ShapeOf(bytes, true));
  segment->disk = stored.piece;
  segment->idle_us = now_us;
  if (stored.segment == 0) {
    stored.segment = next_id_++;
    segment->table.Format(stored.segment, true, false);
  }
  segment->id = stored.segment;
  segment->table.header().retired.store(0, std::memory_order_seq_cst);
  RowCopy row;
  row.object = object;
  row.owner = stored.owner;
  row.offset = segment->table.shape().data;
  row.length = stored.piece.length;
  const std::uint32_t generation = segment->table.Begin(0, row);
  segment->table.Seal(0, generation);
  stored.place = Place{segment->id, 0, generation, config_.number, row.length};
  segments_[segment->id] = std::move(segment);
  return stored.place;
}

// A spilled object that nobody reads needs no mapping. False: somebody reads it. The caller retires the segment.
bool Keeper::Unmap(Segment& segment) {
  RowCopy row;
  if (!segment.table.Read(0, &row) || row.state != RowState::kSealed) return false;
  if (!segment.table.Move(0, row.generation, RowState::kSealed, RowState::kDying)) return false;
  if (Pins().contains(PinOf(segment.id, 0))) {
    segment.table.Move(0, row.generation, RowState::kDying, RowState::kSealed);
    return false;
  }
  segment.table.Move(0, row.generation, RowState::kDying, RowState::kFree);
  if (const auto stored = stored_.find(row.object); stored != stored_.end()) stored->second.place = Place{};
  return true;
}

// The object is freed: it leaves memory and disk, but not before its readers let go. The caller releases `dying`.
void Keeper::Forget(const Id& object, Stored& stored, std::vector<Dying>* dying) {
  Segment* mapped = stored.segment == 0 ? nullptr : Find(stored.segment);
  if (mapped != nullptr) {
    mapped->owns_disk = true;
    stored.piece = {};
  } else {
    spill_.Drop(stored.piece);
  }
  MarkDying(object, stored.place, dying);
  stored.segment = 0;
}

// A file is never lent again: it would keep writing slow after the shortage.
void Keeper::RetireEmptyFiles() {
  std::vector<std::uint32_t> empty;
  for (const auto& [id, segment] : segments_) {
    if (segment->on_disk() && segment->use == Segment::Use::kCached) empty.push_back(id);
  }
  for (const std::uint32_t id : empty) Retire(id);
}

Keeper::Segment* Keeper::OnDisk(std::uint64_t bytes, std::int64_t now_us) {
  if (!spill_.enabled() || !spill_failure_.ok()) return nullptr;
  bool whole = !Normal(bytes);
  Result<SpillFiles::Piece> piece = spill_.Make(NeedOf(bytes));
  if (!piece.ok() && !whole) {
    whole = true;  // there may be room for the object alone
    piece = spill_.Make(WholeSizeFor(bytes, kPage));
  }
  disk_failure_ = piece.ok() ? Status() : piece.status();
  if (!piece.ok()) return nullptr;
  Result<shm::Mapping> map = shm::Mapping::Of(piece->file->fd.get(), 0, piece->length, true);
  if (!map.ok()) {
    disk_failure_ = map.status();
    spill_.Drop(*piece);
    return nullptr;
  }
  auto segment = std::make_unique<Segment>();
  segment->id = next_id_++;
  segment->whole = whole;
  segment->map = std::move(*map);
  segment->table = Table(segment->map.data(), ShapeOf(piece->length, whole));
  segment->table.Format(segment->id, whole, false);
  segment->disk = std::move(*piece);
  segment->owns_disk = true;
  Segment* made = segment.get();
  segments_[made->id] = std::move(segment);
  Warn(bytes, now_us);
  return made;
}

void Keeper::Warn(std::uint64_t bytes, std::int64_t now_us) {
  if (on_warning_ == nullptr || now_us < warn_again_us_) return;
  warn_again_us_ = now_us + config_.wait_us;
  on_warning_(Cat("node ", config_.node, "'s store of ", Bytes(config_.capacity),
                  " is full of objects in use: an object of ", Bytes(bytes), " is written to '", spill_.folder(),
                  "' and read from there, which is slower; raise Config::store_bytes or drop references"));
}

}  // namespace manta::store
