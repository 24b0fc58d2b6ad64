#include <algorithm>
#include <utility>

#include "store/keeper.h"
#include "store/keeper_segment.h"

namespace manta::store {
namespace {
constexpr std::uint64_t kManyPages = 16;
constexpr std::uint64_t kPercent = 100;
constexpr std::uint64_t kGoodFit = 85;    // percent of a segment that objects use
constexpr std::uint64_t kBetterFit = 10;  // that a segment for the object alone must gain, for its request is slower
}  // namespace

Keeper::Segment* Keeper::Find(std::uint32_t id) const {
  const auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second.get();
}

std::uint64_t Keeper::NeedOf(std::uint64_t bytes) const {
  if (Normal(bytes)) return segment_bytes_;
  return WholeSize(bytes);
}

// Huge pages where rounding up to them wastes little.
std::uint64_t Keeper::WholeSize(std::uint64_t bytes) const {
  return WholeSizeFor(bytes, segment_bytes_ >= kManyPages * kHugePage ? kHugePage : 64ULL << 10);
}

// Does the object share a segment with others? Not if it takes more than half of one, nor if objects of its size leave
// much of the segment unused: of 8 MiB, three objects of 2 MiB and the table leave a quarter.
bool Keeper::Normal(std::uint64_t bytes) const {
  if (bytes <= segment_bytes_ / kManyPages) return true;
  if (bytes > segment_bytes_ / 2) return false;
  const std::uint64_t room = ShapeOf(segment_bytes_, false).room();
  // The allocator rounds all but the last up to a size class.
  const std::uint64_t fit = 1 + (room - bytes) / SegmentAllocator::RoundedUp(bytes);
  const std::uint64_t used = fit * bytes * kPercent / segment_bytes_;
  return used >= kGoodFit || bytes * kPercent / WholeSize(bytes) < used + kBetterFit;
}

Result<Keeper::Segment*> Keeper::NewSegment(std::uint64_t bytes, bool whole) {
  Result<base::Fd> fd = memory_.Make(bytes);
  if (!fd.ok()) return fd.status();
  Result<shm::Mapping> map = shm::Mapping::Of(fd->get(), 0, bytes, true);
  if (!map.ok()) return map.status();
  auto segment = std::make_unique<Segment>();
  segment->id = next_id_++;
  segment->fd = std::move(*fd);
  segment->map = std::move(*map);
  segment->whole = whole;
  segment->table = Table(segment->map.data(), ShapeOf(bytes, whole));
  segment->table.Format(segment->id, whole, memory_.huge() && bytes % kHugePage == 0);
  total_bytes_ += bytes;
  Segment* made = segment.get();
  segments_[made->id] = std::move(segment);
  return made;
}

// Others may have it mapped: they see the mark when they look next. Its memory counts until it is given back.
void Keeper::Retire(std::uint32_t id) {
  const auto found = segments_.find(id);
  if (found == segments_.end()) return;
  Segment& segment = *found->second;
  segment.table.header().gate.store(kNoGate, std::memory_order_seq_cst);
  segment.table.header().retired.store(1, std::memory_order_seq_cst);
  if (!segment.on_disk()) {
    retired_.push_back(Retired{std::move(segment.fd), segment.table.shape().bytes, kPage});
  } else if (segment.owns_disk) {
    // Others may map the file for long: its bytes go now, the header with its mark stays as long as the file.
    SegmentMemory::GiveBack(segment.file(), segment.disk.offset + kPage,
                            segment.disk.offset + segment.table.shape().bytes);
    spill_.Drop(segment.disk);
  }
  segments_.erase(found);
}

// Gives back about `budget` bytes of what was retired. False: there is nothing.
bool Keeper::GiveBackRetired(std::uint64_t budget) {
  if (retired_.empty()) return false;
  while (!retired_.empty() && budget > 0) {
    Retired& oldest = retired_.front();
    const std::uint64_t step = std::min(budget, oldest.bytes - oldest.done);
    SegmentMemory::GiveBack(oldest.fd.get(), oldest.done, oldest.done + step);
    oldest.done += step;
    budget -= step;
    if (oldest.done < oldest.bytes) break;
    total_bytes_ -= oldest.bytes;
    retired_.pop_front();
  }
  return true;
}

bool Keeper::DropCached(std::uint64_t need, bool at_least_one) {
  bool dropped = false;
  while (total_bytes_ + need > config_.capacity || (at_least_one && !dropped)) {
    if (GiveBackRetired(~0ULL)) {
      dropped = true;
      continue;
    }
    Segment* oldest = nullptr;
    for (const auto& [id, segment] : segments_) {
      if (segment->use != Segment::Use::kCached) continue;
      if (oldest == nullptr || segment->idle_us < oldest->idle_us) oldest = segment.get();
    }
    if (oldest == nullptr) break;
    Retire(oldest->id);
  }
  return dropped;
}

Keeper::Segment* Keeper::BestCached(ProcessId process, std::uint64_t need, bool whole) {
  Segment* best = nullptr;
  for (const auto& [id, segment] : segments_) {
    if (segment->use != Segment::Use::kCached || segment->whole != whole || segment->on_disk()) continue;
    const std::uint64_t bytes = segment->table.shape().bytes;
    if (bytes < need || bytes > need + need / 4) continue;  // not a gigabyte for half of one
    const bool mapped = segment->last_borrower == process;
    if (best == nullptr || (mapped && best->last_borrower != process) ||
        (mapped == (best->last_borrower == process) && bytes < best->table.shape().bytes)) {
      best = segment.get();
    }
  }
  return best;
}

// A segment that holds objects and has room for more: a kept one or, if `lent`, one that is taken back from
// another process for it.
Keeper::Segment* Keeper::WithRoom(ProcessId process, std::uint64_t bytes, bool lent, std::int64_t now_us) {
  std::vector<std::pair<std::uint64_t, Segment*>> candidates;
  for (const auto& [id, segment] : segments_) {
    if (segment->whole || segment->on_disk()) continue;
    if (segment->use != (lent ? Segment::Use::kLent : Segment::Use::kKept)) continue;
    // Who borrows it has found no room there; but from the transfers' own, copies may have been evicted since.
    if (lent && ((segment->borrower == process && LocalOf(process) != kCopies) || segment->JustLent(now_us))) continue;
    SegmentAllocator allocator(segment->table);
    Block block;
    const std::uint64_t room = allocator.free_bytes();
    if (room >= allocator.capacity() / 4 && allocator.Allocate(bytes, &block))
      candidates.emplace_back(room, segment.get());
  }
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  for (const auto& [room, segment] : candidates) {
    if (!lent || TakeBack(*segment, now_us)) return segment;
  }
  return nullptr;
}

bool Keeper::TakeBackEmpty(std::int64_t now_us) {
  for (const auto& [id, segment] : segments_) {
    if (segment->lent() && !segment->JustLent(now_us) && segment->Empty() && TakeBack(*segment, now_us) &&
        segment->use == Segment::Use::kCached) {
      return true;
    }
  }
  return false;
}

Result<Keeper::Segment*> Keeper::FindRoom(ProcessId process, std::uint64_t bytes, std::int64_t now_us) {
  const bool whole = !Normal(bytes);
  const std::uint64_t need = NeedOf(bytes);
  for (;;) {
    if (Segment* cached = BestCached(process, need, whole)) return cached;
    if (!whole) {
      if (Segment* kept = WithRoom(process, bytes, false, now_us)) return kept;
    }
    machine_short_ = false;
    if (total_bytes_ + need <= config_.capacity) {
      if (AvailableMemory() >= need) return NewSegment(need, whole);
      machine_short_ = true;  // then the store must do with what it has
    }
    if (DropCached(need, machine_short_)) continue;
    if (TakeBackEmpty(now_us)) continue;
    if (EvictCopies(now_us)) continue;
    if (!whole) {
      if (Segment* lent = WithRoom(process, bytes, true, now_us)) return lent;
    }
    if (!SpillOldest(now_us)) return static_cast<Segment*>(nullptr);
  }
}

void Keeper::Lend(Segment& segment, ProcessId process, std::int64_t now_us) {
  SegmentHeader& header = segment.table.header();
  segment.use = Segment::Use::kLent;
  segment.borrower = process;
  segment.last_borrower = process;
  segment.gate = Gate(process, next_lease_);
  next_lease_ = next_lease_ % 0x7fffffffU + 1;
  segment.lent_us = now_us;
  segment.idle_us = now_us;
  segment.uses = header.uses.load(std::memory_order_relaxed);
  header.freed.store(0, std::memory_order_relaxed);
  header.gate.store(segment.gate, std::memory_order_seq_cst);
  if (process == kNoProcess) segment.own = std::make_unique<SegmentAllocator>(segment.table);
}

bool Keeper::TakeBack(Segment& segment, std::int64_t now_us) {
  std::atomic<std::uint64_t>& gate = segment.table.header().gate;
  std::uint64_t seen = segment.gate;
  if (!gate.compare_exchange_strong(seen, kNoGate, std::memory_order_seq_cst)) {
    if (seen == (segment.gate | kGateBusy)) return false;  // it is allocating this instant
    gate.store(kNoGate, std::memory_order_seq_cst);        // scribbled over
  }
  Keep(segment, now_us);
  return true;
}

// The segment is the keeper's: its gate is closed. What its borrower left there must make sense from now on.
void Keeper::Keep(Segment& segment, std::int64_t now_us) {
  segment.use = Segment::Use::kKept;
  segment.borrower = kNoProcess;
  segment.gate = kNoGate;
  segment.own.reset();
  segment.table.header().freed.store(0, std::memory_order_relaxed);
  const std::uint32_t end = segment.table.used_rows();
  RowCopy copy;
  for (std::uint32_t row = 0; row < end; ++row) {
    std::uint64_t word = segment.table.row(row).word.load(std::memory_order_seq_cst);
    if (StateOf(word) == RowState::kFree || segment.table.Read(row, &copy)) continue;
    segment.table.row(row).word.compare_exchange_strong(word, RowWord(GenerationOf(word) + 1, RowState::kFree),
                                                        std::memory_order_seq_cst);
  }
  CacheIfEmpty(segment, now_us);
}

void Keeper::CacheIfEmpty(Segment& segment, std::int64_t now_us) {
  if (segment.use != Segment::Use::kKept || !segment.Empty()) return;
  segment.use = Segment::Use::kCached;
  segment.idle_us = now_us;
}

// Memory nobody has used for a while goes back to the machine: empty loans become cached, cached ones go.
void Keeper::GiveBackIdle(std::int64_t now_us) {
  if (now_us < sweep_us_) return;
  sweep_us_ = now_us + std::max<std::int64_t>(config_.idle_us / 4, 1000);
  std::vector<std::uint32_t> idle;
  for (const auto& [id, segment] : segments_) {
    if (segment->on_disk() && !segment->lent()) {
      CacheIfEmpty(*segment, now_us);
      if (!segment->owns_disk && now_us - segment->idle_us >= config_.idle_us && Unmap(*segment)) idle.push_back(id);
    } else if (segment->lent()) {
      const std::uint64_t uses = segment->table.header().uses.load(std::memory_order_relaxed);
      if (std::exchange(segment->uses, uses) != uses) segment->idle_us = now_us;
      if (now_us - segment->idle_us >= config_.idle_us && segment->Empty()) TakeBack(*segment, now_us);
    } else if (segment->use == Segment::Use::kKept) {
      CacheIfEmpty(*segment, now_us);
    } else if (now_us - segment->idle_us >= config_.idle_us) {
      idle.push_back(id);
    }
  }
  for (const std::uint32_t id : idle) Retire(id);
  RetireEmptyFiles();
}

}  // namespace manta::store
