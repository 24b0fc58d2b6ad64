#include "store/client.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "types/text.h"

namespace manta::store {
namespace {

constexpr int kAllocateAttempts = 1000;  // a loan may be taken back before it is used; each one waits its turn
constexpr int kOpenAttempts = 64;        // a restored object may be spilled again before it is pinned
constexpr std::size_t kFreeBatch = 64;
constexpr std::size_t kMaxCopies = 4096;  // remembered

// Faulting small pages one by one costs 2.7 µs each; in steps a fraction of that. Steps are small where pages
// are, so that the first put of a process does not pay for megabytes it may never use.
constexpr std::uint64_t kSmallStep = 256ULL << 10;

// From this size on it is better done while the object is written, piece by piece and by two cores: see
// internal::CopyLarge.
constexpr std::uint64_t kTooMuch = 64ULL << 20;

// Old kernels do not know it; then the pages come one by one.
void Populate(std::byte* base, std::uint64_t from, std::uint64_t to, int how) {
  from = from / kPage * kPage;
  if (to > from) (void)madvise(base + from, to - from, how);
}

}  // namespace

StoreClient::StoreClient(KeeperLink& link, ProcessId self, std::byte* pin_board)
    : link_(link), self_(self), node_(NodeOf(self)), pins_(pin_board) {}

StoreClient::~StoreClient() = default;

bool StoreClient::Enter(Lent& lent) {
  std::uint64_t expected = lent.gate;
  return lent.table.header().gate.compare_exchange_strong(expected, lent.gate | kGateBusy, std::memory_order_seq_cst);
}

void StoreClient::Leave(Lent& lent) { lent.table.header().gate.store(lent.gate, std::memory_order_release); }

StoreClient::Attempt StoreClient::TryLent(Lent& lent, const Id& object, ProcessId owner, std::uint64_t bytes,
                                          Allocation* out) {
  // A whole segment has one row: not to be spent on something small.
  if (lent.whole && bytes < lent.allocator.capacity() / 4) return Attempt::kNoRoom;
  SegmentHeader& header = lent.table.header();
  if (lent.allocator.Hopeless(bytes) && header.freed.load(std::memory_order_relaxed) == 0) return Attempt::kNoRoom;
  if (!Enter(lent)) return Attempt::kTakenBack;
  lent.allocator.TakeFreed(lent.table);
  Block block;
  if (!lent.allocator.Allocate(bytes, &block)) {
    Leave(lent);
    return Attempt::kNoRoom;
  }
  RowCopy what;
  what.object = object;
  what.owner = LocalOf(owner);
  what.writer = LocalOf(self_);
  what.offset = block.offset;
  what.length = bytes;
  out->generation = lent.table.Begin(block.row, what);
  out->data = lent.table.base() + block.offset;
  out->size = bytes;
  out->object = object;
  out->segment = lent.segment;
  out->row = block.row;
  out->table = lent.table;
  header.uses.store(header.uses.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const std::uint64_t end = block.offset + block.bytes;
  if (end > header.high_bytes.load(std::memory_order_relaxed)) {
    header.high_bytes.store(end, std::memory_order_relaxed);
  }
  Leave(lent);
  return Attempt::kDone;
}

bool StoreClient::TryAllLent(const Id& object, ProcessId owner, std::uint64_t bytes, Allocation* out) {
  for (std::size_t i = 0; i < lent_.size();) {
    switch (TryLent(*lent_[i], object, owner, bytes, out)) {
      case Attempt::kDone:
        if (i != 0) std::swap(lent_[0], lent_[i]);
        return true;
      case Attempt::kNoRoom:
        ++i;
        break;
      case Attempt::kTakenBack:
        lent_.erase(lent_.begin() + static_cast<std::ptrdiff_t>(i));
        break;
    }
  }
  return false;
}

Result<Allocation> StoreClient::Allocate(const Id& object, ProcessId owner, std::uint64_t bytes) {
  for (int attempt = 0; attempt < kAllocateAttempts; ++attempt) {
    Allocation out;
    std::byte* base = nullptr;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    {
      const std::lock_guard lock(lent_mutex_);
      if (TryAllLent(object, owner, bytes, &out)) {
        const Lent& lent = *lent_[0];
        const std::uint64_t end = static_cast<std::uint64_t>(out.data - out.table.base()) + bytes;
        if (end > lent.mapped->touched) {
          const std::uint64_t step = lent.table.header().huge != 0 ? kHugePage : kSmallStep;
          base = out.table.base();
          from = lent.mapped->touched;
          to = std::min((end + step - 1) / step * step, lent.table.shape().bytes);
          lent.mapped->touched = to;
        }
      }
    }
    if (out.data != nullptr) {
      // Without the lock: the row keeps the segment, and a thread that comes too early faults by itself.
      if (base != nullptr && to - from < kTooMuch) Populate(base, from, to, MADV_POPULATE_WRITE);
      return out;
    }
    UnmapRetired();
    Flush();  // what is let go of here may be the room that is missing
    Result<LentSegment> lent = link_.Request(bytes);
    if (!lent.ok()) return lent.status();
    if (Status adopted = Adopt(std::move(*lent)); !adopted.ok()) return adopted;
  }
  return Status(Code::kOutOfMemory,
                Cat("cannot store object ", ToString(object), " (", Bytes(bytes), "): other processes took ",
                    kAllocateAttempts, " segments away before it could be written; raise Config::store_bytes"));
}

Status StoreClient::Adopt(LentSegment lent) {
  const std::lock_guard lock(lent_mutex_);
  Mapped* mapped = nullptr;
  {
    const std::lock_guard map_lock(map_mutex_);
    mapped = &maps_[lent.segment];
    if (mapped->write.data() == nullptr) {
      Result<shm::Mapping> map = shm::Mapping::Of(lent.fd.get(), 0, lent.bytes, true);
      if (!map.ok()) {
        if (mapped->read.data() == nullptr) maps_.erase(lent.segment);
        return map.status();
      }
      mapped->write = std::move(*map);
    }
    mapped->table = Table(mapped->write.data(), ShapeOf(lent.bytes, lent.whole));
  }
  std::erase_if(lent_, [&](const std::unique_ptr<Lent>& old) { return old->segment == lent.segment; });
  const std::uint64_t gate = mapped->table.header().gate.load(std::memory_order_acquire) & ~kGateBusy;
  if (GateProcess(gate) != LocalOf(self_) || gate == kNoGate) return {};  // taken back already: ask again
  auto fresh = std::make_unique<Lent>();
  fresh->segment = lent.segment;
  fresh->gate = gate;
  fresh->whole = lent.whole;
  fresh->table = mapped->table;
  fresh->mapped = mapped;
  fresh->allocator = SegmentAllocator(mapped->table);
  lent_.insert(lent_.begin(), std::move(fresh));
  return {};
}

void StoreClient::Rename(Allocation& allocation, const Id& object) {
  allocation.object = object;
  allocation.table.Rename(allocation.row, object);
}

Place StoreClient::Seal(Allocation& allocation) {
  allocation.table.Seal(allocation.row, allocation.generation);
  const Place place{allocation.segment, allocation.row, allocation.generation, node_, allocation.size};
  allocation = Allocation{};
  return place;
}

void StoreClient::Abort(Allocation& allocation) {
  if (allocation.data == nullptr) return;
  // Sealed first, so that if the segment has changed hands the daemon can free it like any other object.
  const Id object = allocation.object;
  const Place place = Seal(allocation);
  Free(object, place, false);
}

StoreClient::Lent* StoreClient::FindLent(std::uint32_t segment) {
  for (const std::unique_ptr<Lent>& lent : lent_) {
    if (lent->segment == segment) return lent.get();
  }
  return nullptr;
}

Result<View> StoreClient::TryOpen(const Id& object, const Place& place) {
  // The lock keeps the mapping until the pin does.
  const std::lock_guard lock(map_mutex_);
  const auto found = maps_.find(place.segment);
  if (found == maps_.end()) return Status(Code::kNotFound, "");
  const Table& table = found->second.table;
  const Result<std::uint32_t> slot = pins_.Take(place.segment, place.row);
  if (!slot.ok()) return slot.status();
  RowCopy row;
  if (table.Read(place.row, &row) && row.state == RowState::kSealed && row.generation == place.generation &&
      row.object == object && row.length == place.size) {
    return View{table.base() + row.offset, row.length, slot.value()};
  }
  pins_.Release(slot.value());
  return Status(Code::kLost, "");
}

Status StoreClient::MapForReading(std::uint32_t segment) {
  UnmapRetired();
  Result<OpenedSegment> opened = link_.Open(segment);
  if (!opened.ok()) return opened.status();
  Result<shm::Mapping> map = shm::Mapping::Of(opened->fd.get(), opened->offset, opened->bytes, false);
  if (!map.ok()) return map.status();
  const auto* header = reinterpret_cast<const SegmentHeader*>(map->data());
  if (opened->bytes < kPage || header->magic != kSegmentMagic) {
    return {Code::kCorrupt, Cat("segment ", segment, " does not look like one")};
  }
  const SegmentShape shape = ShapeOf(opened->bytes, header->whole != 0);
  // Only what was written before: touching more would make pages.
  Populate(map->data(), 0, std::min(header->high_bytes.load(std::memory_order_relaxed), shape.bytes),
           MADV_POPULATE_READ);
  const std::lock_guard lock(map_mutex_);
  Mapped& mapped = maps_[segment];
  if (mapped.table.base() == nullptr) {  // else another thread was faster
    mapped.read = std::move(*map);
    mapped.table = Table(mapped.read.data(), shape);
  }
  return {};
}

Result<Place> KeeperLink::Fetch(const Id& object, const Place& place, ProcessId /*owner*/) {
  return Status(Code::kLost, Cat("object ", ToString(object), " (", Bytes(place.size), ") is on node ", place.node,
                                 ", which cannot be reached from here"));
}

bool StoreClient::IsWritable(const void* data) {
  const std::lock_guard lock(map_mutex_);
  return std::any_of(maps_.begin(), maps_.end(), [data](const auto& entry) {
    const shm::Mapping& map = entry.second.write;
    return data >= map.data() && data < map.data() + map.size();
  });
}

Place StoreClient::CopyOf(const Id& object) {
  const std::lock_guard lock(map_mutex_);
  const auto found = copies_.find(object);
  return found == copies_.end() ? Place{} : found->second;
}

void StoreClient::RememberCopy(const Id& object, const Place& place) {
  const std::lock_guard lock(map_mutex_);
  if (copies_.size() >= kMaxCopies) copies_.clear();
  copies_[object] = place;
}

Result<View> StoreClient::Open(const Id& object, const Place& place, Place* moved, ProcessId owner) {
  const bool far = !place.nowhere() && place.node != node_;
  Place at = far ? CopyOf(object) : place;
  for (int attempt = 0; attempt < kOpenAttempts; ++attempt) {
    Result<View> view = Status(Code::kLost, "");
    if (!at.nowhere()) view = TryOpen(object, at);
    if (!view.ok() && view.status().code() == Code::kNotFound) {
      const Status mapped = MapForReading(at.segment);
      if (mapped.ok()) continue;
      if (mapped.code() != Code::kLost) return mapped;
    } else if (view.ok()) {
      if (moved != nullptr) *moved = far ? place : at;
      return view;
    } else if (view.status().code() != Code::kLost) {
      return view;
    }
    Flush();
    const Result<Place> found = far ? link_.Fetch(object, place, owner) : link_.Restore(object);
    if (!found.ok()) return found.status();
    at = found.value();
    if (far) RememberCopy(object, at);
  }
  return Status(Code::kOutOfMemory, Cat("cannot read object ", ToString(object), " (", Bytes(place.size),
                                        "): it was brought ", far ? "here" : "back from disk", " ", kOpenAttempts,
                                        " times and made room for others each time; raise Config::store_bytes"));
}

void StoreClient::Close(View& view) {
  if (!view.open()) return;
  pins_.Release(view.slot);
  view = View{};
}

bool StoreClient::FreeHere(const Id& object, const Place& place) {
  const std::lock_guard lock(lent_mutex_);
  Lent* lent = FindLent(place.segment);
  if (lent == nullptr || place.node != node_ || place.row >= lent->table.shape().rows || !Enter(*lent)) return false;
  const Table& table = lent->table;
  RowCopy row;
  bool freed = false;
  if (table.Read(place.row, &row) && row.object == object &&
      table.Move(place.row, place.generation, RowState::kSealed, RowState::kDying)) {
    if (pins_.Holds(PinOf(place.segment, place.row))) {
      table.Move(place.row, place.generation, RowState::kDying, RowState::kSealed);
    } else {
      freed = table.Move(place.row, place.generation, RowState::kDying, RowState::kFree);
      lent->allocator.Free(place.row);
    }
  }
  Leave(*lent);
  return freed;
}

void StoreClient::Free(const Id& object, const Place& place, bool shared) {
  if (!shared && FreeHere(object, place)) return;
  std::size_t waiting = 0;
  {
    const std::lock_guard lock(free_mutex_);
    free_ids_.push_back(object);
    free_places_.push_back(place);
    waiting = free_ids_.size();
    waiting_.store(waiting, std::memory_order_relaxed);
  }
  if (waiting >= kFreeBatch) Flush();
}

void StoreClient::Flush() {
  std::vector<Id> ids;
  std::vector<Place> places;
  {
    const std::lock_guard lock(free_mutex_);
    ids.swap(free_ids_);
    places.swap(free_places_);
    waiting_.store(0, std::memory_order_relaxed);
  }
  if (!ids.empty()) link_.Free(std::move(ids), std::move(places));
}

void StoreClient::ReturnEmpty() {
  std::vector<std::uint32_t> empty;
  {
    const std::lock_guard lock(lent_mutex_);
    std::erase_if(lent_, [&](const std::unique_ptr<Lent>& lent) {
      if (!Enter(*lent)) return true;
      lent->allocator.TakeFreed(lent->table);
      const bool nothing = lent->allocator.live() == 0;
      Leave(*lent);
      if (nothing) empty.push_back(lent->segment);
      return nothing;
    });
  }
  for (const std::uint32_t segment : empty) link_.Return(segment);
}

void StoreClient::UnmapRetired() {
  const std::lock_guard lock(lent_mutex_);
  const std::lock_guard map_lock(map_mutex_);
  // A segment in a spill file loses its header with its bytes.
  const auto gone = [](const Table& table) {
    return table.header().retired.load(std::memory_order_acquire) != 0 || table.header().magic != kSegmentMagic;
  };
  std::erase_if(lent_, [&](const std::unique_ptr<Lent>& lent) { return gone(lent->table); });
  std::erase_if(maps_, [&](const auto& entry) { return gone(entry.second.table); });
}

}  // namespace manta::store
