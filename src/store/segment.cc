#include "store/segment.h"

#include <algorithm>
#include <ctime>

namespace manta::store {
namespace {
constexpr std::uint64_t RoundUp(std::uint64_t value, std::uint64_t step) { return (value + step - 1) / step * step; }
// One row for this many bytes: a segment full of the smallest values that go to the store wastes half of
// it, and a table takes 3%.
constexpr std::uint64_t kBytesPerRow = 2048;

// Good to some milliseconds, and a few nanoseconds to read.
std::uint64_t CoarseMicros() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 + static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}
}  // namespace

SegmentShape ShapeOf(std::uint64_t bytes, bool whole) {
  SegmentShape shape;
  shape.bytes = bytes;
  shape.rows = whole ? 1 : static_cast<std::uint32_t>(std::max<std::uint64_t>(1, bytes / kBytesPerRow));
  shape.data = RoundUp(kTableOffset + shape.rows * sizeof(Row), kPage);
  return shape;
}

std::uint64_t WholeSizeFor(std::uint64_t bytes, std::uint64_t step) {
  if (bytes > (1ULL << 62)) return 1ULL << 62;  // no machine has that; keeps the sum from wrapping
  return RoundUp(bytes + ShapeOf(step, true).data, step);
}

void Table::Format(std::uint32_t id, bool whole, bool huge) {
  SegmentHeader& h = header();
  h.id = id;
  h.rows = shape_.rows;
  h.whole = whole ? 1 : 0;
  h.huge = huge ? 1 : 0;
  h.bytes = shape_.bytes;
  h.data = shape_.data;
  h.magic = kSegmentMagic;
}

std::uint32_t Table::used_rows() const {
  return std::min(header().high_rows.load(std::memory_order_acquire), shape_.rows);
}

bool Table::Read(std::uint32_t index, RowCopy* copy) const {
  if (index >= shape_.rows) return false;
  const Row& row = this->row(index);
  // A sequence lock whose sequence is the word: acquire loads keep the second look at it behind the fields.
  // Bounded, because a process gone mad may change it for ever.
  std::uint64_t word = row.word.load(std::memory_order_seq_cst);
  for (int tries = 0; tries < 1000; ++tries) {
    const RowState state = StateOf(word);
    if (state != RowState::kWriting && state != RowState::kSealed && state != RowState::kDying) return false;
    copy->row = index;
    copy->generation = GenerationOf(word);
    copy->state = state;
    copy->object.hi = row.object_hi.load(std::memory_order_acquire);
    copy->object.lo = row.object_lo.load(std::memory_order_acquire);
    const std::uint64_t parties = row.parties.load(std::memory_order_acquire);
    copy->owner = static_cast<std::uint32_t>(parties >> 32);
    copy->writer = static_cast<std::uint32_t>(parties);
    copy->offset = row.offset.load(std::memory_order_acquire);
    copy->length = row.length.load(std::memory_order_acquire);
    copy->sealed_us = row.sealed_us.load(std::memory_order_acquire);
    const std::uint64_t again = row.word.load(std::memory_order_seq_cst);
    if (again == word) return Inside(copy->offset, copy->length);
    word = again;
  }
  return false;
}

bool Table::Inside(std::uint64_t offset, std::uint64_t length) const {
  return offset % kAlignment == 0 && offset >= shape_.data && offset <= shape_.bytes && length <= shape_.bytes - offset;
}

bool Table::Move(std::uint32_t index, std::uint32_t generation, RowState from, RowState to) const {
  std::uint64_t expected = RowWord(generation, from);
  const std::uint64_t next = RowWord(to == RowState::kFree ? generation + 1 : generation, to);
  return row(index).word.compare_exchange_strong(expected, next, std::memory_order_seq_cst);
}

std::uint32_t Table::Begin(std::uint32_t index, const RowCopy& what) const {
  Row& row = this->row(index);
  const std::uint32_t generation = GenerationOf(row.word.load(std::memory_order_relaxed));
  row.word.store(RowWord(generation, RowState::kWriting), std::memory_order_relaxed);
  // Release, so that whoever reads one of these also sees that the word has changed.
  row.object_hi.store(what.object.hi, std::memory_order_release);
  row.object_lo.store(what.object.lo, std::memory_order_release);
  row.parties.store(static_cast<std::uint64_t>(what.owner) << 32 | what.writer, std::memory_order_release);
  row.offset.store(what.offset, std::memory_order_release);
  row.length.store(what.length, std::memory_order_release);
  // Last: rows at and above the mark are not looked at.
  SegmentHeader& h = header();
  if (index >= h.high_rows.load(std::memory_order_relaxed)) h.high_rows.store(index + 1, std::memory_order_release);
  return generation;
}

void Table::Rename(std::uint32_t index, const Id& object) const {
  Row& row = this->row(index);
  row.object_hi.store(object.hi, std::memory_order_release);
  row.object_lo.store(object.lo, std::memory_order_release);
}

bool Table::Seal(std::uint32_t index, std::uint32_t generation) const {
  row(index).sealed_us.store(CoarseMicros(), std::memory_order_release);
  return Move(index, generation, RowState::kWriting, RowState::kSealed);
}

bool Table::FreeForBorrower(std::uint32_t index, std::uint32_t generation, RowState from) const {
  if (!Move(index, generation, from, RowState::kFree)) return false;
  std::atomic<std::uint32_t>& top = header().freed;
  std::uint32_t next = top.load(std::memory_order_relaxed);
  // The borrower only ever empties the stack, so this ends; a borrower gone mad loses a row, not our time.
  for (int tries = 0; tries < 1000; ++tries) {
    row(index).next_freed.store(next, std::memory_order_relaxed);
    if (top.compare_exchange_weak(next, index + 1, std::memory_order_release, std::memory_order_relaxed)) break;
  }
  return true;
}

}  // namespace manta::store
