#include "store/keeper.h"

#include <algorithm>
#include <utility>

#include "store/keeper_segment.h"
#include "types/text.h"

namespace manta::store {
namespace {

constexpr std::uint64_t kSmallestStore = 1ULL << 20;
constexpr std::uint64_t kLargestNormal = 64ULL << 20;
constexpr std::int64_t kWaitingTickUs = 5'000;     // while requests wait: borrowers free without telling
constexpr std::int64_t kDeferredTickUs = 100'000;  // while freed objects are pinned

// Eight to a store, so that one process cannot borrow all of it, and whole huge pages where that is possible.
std::uint64_t SegmentBytes(const KeeperConfig& config) {
  if (config.segment_bytes != 0) {
    return std::clamp<std::uint64_t>(config.segment_bytes / kPage * kPage, 8 * kPage, config.capacity);
  }
  const std::uint64_t eighth = config.capacity / 8;
  if (eighth >= kHugePage) return std::min(eighth / kHugePage * kHugePage, kLargestNormal);
  return eighth / (64ULL << 10) * (64ULL << 10);
}

constexpr std::int64_t kRetiredTickUs = 1'000;        // while memory is being given back, in steps so that the loop
constexpr std::uint64_t kGiveBackStep = 64ULL << 20;  // has time for others

}  // namespace

Keeper::Keeper(KeeperConfig config)
    : config_(std::move(config)), memory_(config_.huge), spill_(config_.spill_folder, config_.disk) {
  config_.capacity = std::max(config_.capacity, kSmallestStore);
  segment_bytes_ = SegmentBytes(config_);
}

Keeper::~Keeper() = default;

void Keeper::ProcessJoined(ProcessId process, std::byte* pin_board) { boards_[process] = PinBoard(pin_board); }

void Keeper::ProcessDied(ProcessId process, const KeepPredicate& keep, std::int64_t now_us) {
  now_us_ = now_us;
  boards_.erase(process);
  std::erase_if(waiting_, [&](const Waiter& waiter) { return waiter.process == process; });
  std::unordered_set<std::uint32_t> left;
  for (const auto& [id, segment] : segments_) {
    if (!segment->lent() || segment->own != nullptr || segment->borrower != process) continue;
    segment->table.header().gate.store(kNoGate, std::memory_order_seq_cst);
    Keep(*segment, now_us);
    left.insert(id);
  }
  std::unordered_set<Pin> deferred;
  for (const Dying& row : deferred_) deferred.insert(PinOf(row.segment, row.row));
  std::vector<Dying> dying;
  for (const auto& [id, segment] : segments_) {
    segment->ForEach([&](const RowCopy& row) {
      if (row.state == RowState::kWriting && row.writer == LocalOf(process)) {
        FreeRow(*segment, row.row, row.generation, RowState::kWriting);
      } else if (row.state == RowState::kSealed && row.owner == LocalOf(process) && !keep(row.object)) {
        MarkDying(row.object, row.place(id, config_.number), &dying);
      } else if (row.state == RowState::kDying && left.count(id) != 0 && deferred.count(PinOf(id, row.row)) == 0) {
        dying.push_back(Dying{id, row.row, row.generation});  // it died while freeing that itself
      }
    });
    CacheIfEmpty(*segment, now_us);
  }
  for (auto stored = stored_.begin(); stored != stored_.end();) {
    if (stored->second.owner == LocalOf(process) && !keep(stored->first)) {
      Forget(stored->first, stored->second, &dying);
      stored = stored_.erase(stored);
    } else {
      ++stored;
    }
  }
  Release(dying, now_us);
  Release(std::exchange(deferred_, {}), now_us);  // its pins are gone
  RetireEmptyFiles();
  ServeWaiting(now_us);
}

void Keeper::SegmentRequest(ProcessId process, std::uint64_t bytes, std::int64_t now_us, LoanReply reply) {
  now_us_ = now_us;
  if (boards_.count(process) == 0) return reply(Unknown(process));
  if (NeedOf(bytes) > config_.capacity) {
    reply(Status(Code::kOutOfMemory, Cat("cannot store object (", Bytes(bytes), "): it is larger than node ",
                                         config_.node, "'s whole store of ", Bytes(config_.capacity),
                                         "; raise Config::store_bytes or split the object")));
    return;
  }
  Waiter waiter;
  waiter.process = process;
  waiter.bytes = bytes;
  waiter.loan = std::move(reply);
  waiter.since_us = now_us;
  waiter.deadline_us = now_us + config_.wait_us;
  // Those who asked before come first, however little this one wants: or a large one would starve.
  const bool first =
      std::none_of(waiting_.begin(), waiting_.end(), [](const Waiter& other) { return other.loan != nullptr; });
  if (!first || !Serve(waiter, now_us)) waiting_.push_back(std::move(waiter));
}

Result<Keeper::Opened> Keeper::OpenSegment(std::uint32_t id) {
  const Segment* segment = Find(id);
  if (segment == nullptr)
    return Status(Code::kLost, Cat("segment ", id, " of node ", config_.node, "'s store is gone"));
  Result<base::Fd> fd = SegmentMemory::ReadOnly(segment->file());
  if (!fd.ok()) return fd.status();
  Opened opened;
  opened.segment = id;
  opened.bytes = segment->table.shape().bytes;
  opened.offset = segment->disk.offset;
  opened.fd = std::move(*fd);
  return opened;
}

void Keeper::SegmentReturn(ProcessId process, std::uint32_t id, std::int64_t now_us) {
  now_us_ = now_us;
  Segment* segment = Find(id);
  if (segment == nullptr || !segment->lent() || segment->own != nullptr || segment->borrower != process) return;
  segment->table.header().gate.store(kNoGate, std::memory_order_seq_cst);
  Keep(*segment, now_us);
  ServeWaiting(now_us);
}

// Answers the request if it can be answered now.
bool Keeper::Serve(Waiter& waiter, std::int64_t now_us) {
  if (boards_.count(waiter.process) == 0) return true;  // died while an earlier answer was given
  if (waiter.loan != nullptr) {
    const Result<Segment*> found = FindRoom(waiter.process, waiter.bytes, now_us);
    if (!found.ok()) {
      waiter.loan(found.status());
      return true;
    }
    Segment* segment = found.value();
    const bool waited = now_us - waiter.since_us >= config_.disk_after_us;
    if (segment == nullptr && waited) segment = OnDisk(waiter.bytes, now_us);
    if (segment == nullptr) return false;
    Lend(*segment, waiter.process, now_us);
    waiter.loan(Loan{segment->id, segment->table.shape().bytes, segment->whole, segment->file()});
    return true;
  }
  const auto stored = stored_.find(waiter.object);
  if (stored != stored_.end()) {
    waiter.bytes = stored->second.piece.length;
    const Place at = stored->second.place;
    RowCopy row;
    Segment* segment = Find(at.segment);
    if (segment != nullptr && segment->table.Read(at.row, &row) && row.state == RowState::kSealed &&
        row.generation == at.generation && row.object == waiter.object) {
      segment->idle_us = now_us;
      waiter.place(at);
      return true;
    }
    Result<Place> place = BringBack(waiter.object, stored->second, now_us);
    if (place.ok() && place->nowhere()) *place = MapStored(waiter.object, stored->second, now_us);
    if (place.ok() && place->nowhere()) return false;
    waiter.place(std::move(place));
    return true;
  }
  Place place;
  for (const auto& [id, segment] : segments_) {
    segment->ForEach([&, segment_id = id](const RowCopy& row) {
      if (row.state == RowState::kSealed && row.object == waiter.object) place = row.place(segment_id, config_.number);
    });
    if (!place.nowhere()) break;
  }
  if (place.nowhere()) {
    waiter.place(Status(Code::kLost, Cat("object ", ToString(waiter.object), " is not in node ", config_.node,
                                         "'s store any more: it was freed, or its owner died")));
  } else {
    waiter.place(place);
  }
  return true;
}

void Keeper::ServeWaiting(std::int64_t now_us) {
  if (serving_ || waiting_.empty()) return;  // an answer may lead to another call
  serving_ = true;
  // Those who want to read come first: they let go of pins. Writers follow in the order they came.
  std::deque<Waiter> waiting = std::exchange(waiting_, {});
  std::stable_partition(waiting.begin(), waiting.end(), [](const Waiter& waiter) { return waiter.place != nullptr; });
  std::deque<Waiter> still;
  bool blocked = false;
  for (Waiter& waiter : waiting) {
    if (!blocked && Serve(waiter, now_us)) continue;
    blocked = waiter.loan != nullptr;
    still.push_back(std::move(waiter));
  }
  for (Waiter& waiter : waiting_) still.push_back(std::move(waiter));  // came meanwhile
  waiting_ = std::move(still);
  serving_ = false;
}

void Keeper::Tick(std::int64_t now_us) {
  now_us_ = now_us;
  Release(std::exchange(deferred_, {}), now_us);
  ServeWaiting(now_us);
  std::vector<Waiter> late;
  for (auto waiter = waiting_.begin(); waiter != waiting_.end();) {
    if (waiter->deadline_us <= now_us) {
      late.push_back(std::move(*waiter));
      waiter = waiting_.erase(waiter);
    } else {
      ++waiter;
    }
  }
  for (Waiter& waiter : late) {
    const Status failure = Shortage(waiter.bytes);
    if (waiter.loan != nullptr) {
      waiter.loan(failure);
    } else {
      waiter.place(failure);
    }
  }
  if (!late.empty()) ServeWaiting(now_us);
  GiveBackIdle(now_us);
  GiveBackRetired(kGiveBackStep);
}

std::int64_t Keeper::NextTick() const {
  if (!waiting_.empty()) return now_us_ + kWaitingTickUs;
  if (!retired_.empty()) return now_us_ + kRetiredTickUs;
  if (!deferred_.empty()) return now_us_ + kDeferredTickUs;
  return segments_.empty() ? -1 : std::max(sweep_us_, now_us_ + 1000);
}

Status Keeper::Unknown(ProcessId process) {
  return {Code::kInvalid, Cat("process ", process, " asks the store for memory before it has said Hello")};
}

Status Keeper::Shortage(std::uint64_t bytes) const {
  std::uint64_t used = 0;
  std::map<ProcessId, std::uint64_t> held;
  for (const auto& [id, segment] : segments_) {
    if (segment->on_disk()) continue;
    segment->ForEach([&](const RowCopy& row) {
      used += row.length;
      held[row.owner] += row.length;
    });
  }
  std::string holder;
  const auto most =
      std::max_element(held.begin(), held.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != held.end()) holder = Cat(" (process ", most->first, " holds ", Bytes(most->second), ")");
  const std::uint64_t free = config_.capacity > used ? config_.capacity - used : 0;
  const std::string head =
      Cat("cannot store object (", Bytes(bytes), "): node ", config_.node, "'s store has ", Bytes(free), " free of ",
          Bytes(config_.capacity), free >= bytes ? ", in no piece large enough," : "");
  const std::string tail = Cat("; raise Config::store_bytes or drop references", holder);
  if (!spill_failure_.ok()) {
    return {Code::kIo, Cat(head, " and spilling failed: ", spill_failure_.message(), tail)};
  }
  if (machine_short_) {
    return {Code::kOutOfMemory, Cat(head, ", but the machine or its control group only ", Bytes(AvailableMemory()),
                                    "; lower Config::store_bytes or give the machine more memory", holder)};
  }
  if (!spill_.enabled()) {
    return {Code::kOutOfMemory,
            Cat(head, " after evicting all it may, and spilling is off", tail, ", or set Config::spill_folder")};
  }
  if (!disk_failure_.ok()) {
    return {Code::kOutOfMemory,
            Cat(head, " after evicting and spilling all unpinned objects, and ", disk_failure_.message(), tail)};
  }
  return {Code::kOutOfMemory, Cat(head, " after evicting and spilling all unpinned objects", tail)};
}

KeeperStats Keeper::stats() const {
  KeeperStats stats;
  stats.capacity = config_.capacity;
  stats.segments = total_bytes_;
  for (const auto& [id, segment] : segments_) {
    if (segment->on_disk()) {
      segment->ForEach([&](const RowCopy&) { ++stats.spilled_objects; });
      continue;
    }
    segment->ForEach([&](const RowCopy& row) {
      stats.used += row.length;
      if (row.owner == kCopies) stats.copies += row.length;
      ++stats.objects;
    });
  }
  stats.spilled = spill_.bytes();
  for (const auto& [id, stored] : stored_) stats.spilled_objects += stored.place.nowhere() ? 1 : 0;
  stats.waiting = waiting_.size();
  stats.huge = memory_.huge();
  return stats;
}

std::vector<Keeper::Facts> Keeper::List() const {
  std::unordered_map<Pin, std::vector<ProcessId>> readers;
  std::vector<Pin> pins;
  for (const auto& [process, board] : boards_) {
    pins.clear();
    board.Collect(&pins);
    for (const Pin pin : pins) readers[pin].push_back(process);
  }
  std::vector<Facts> all;
  for (const auto& [id, segment] : segments_) {
    segment->ForEach([&, number = id](const RowCopy& row) {
      if (row.state != RowState::kSealed) return;
      Facts facts;
      facts.object = row.object;
      facts.bytes = row.length;
      facts.owner = row.owner;
      facts.copy = row.owner == kCopies;
      facts.spilled = segments_.at(number)->on_disk();
      if (const auto it = readers.find(PinOf(number, row.row)); it != readers.end()) facts.readers = it->second;
      all.push_back(std::move(facts));
    });
  }
  for (const auto& [id, stored] : stored_) {
    if (!stored.place.nowhere()) continue;
    Facts facts;
    facts.object = id;
    facts.bytes = stored.piece.length;
    facts.owner = LocalOf(stored.owner);
    facts.spilled = true;
    all.push_back(std::move(facts));
  }
  return all;
}

}  // namespace manta::store
