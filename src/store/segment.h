// The layout of a segment: a piece of shared memory that holds stored objects. The daemon (keeper.h)
// makes segments and lends each to one process at a time, which allocates inside it without asking.
//
//   SegmentHeader | rows of the allocation table, 64 bytes each | data, 64-byte aligned
//
// A row describes one object. Its `word` is {generation, state}; every change of it is one
// compare-and-swap, so that writer, keeper and readers in other processes agree without a lock:
//   free -> writing -> sealed   the lender
//   sealed -> dying -> free     the keeper, or the lender for an object nobody else has seen; the
//                               generation goes up, so that a stale Place never reads other bytes
//   dying -> sealed             whoever marked it found a reader's pin and gives up (a spill only)
//
// The gate says who may allocate in the segment: {process, lease, busy}. The lender holds it busy while
// it allocates; the keeper takes the segment back by replacing an idle gate. So an idle or stopped
// process needs not be asked, and a lender that was away finds out at its next allocation.
//
// Nobody trusts a table: every process that was ever lent a segment may have scribbled in it. Read rows
// through Table, which checks offset and length against the true size.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "types/id.h"
#include "types/place.h"

namespace manta::store {

inline constexpr std::uint32_t kSegmentMagic = 0x534d5431;
inline constexpr std::uint64_t kAlignment = 64;
inline constexpr std::uint64_t kHugePage = 2ULL << 20;
inline constexpr std::uint64_t kTableOffset = 256;
inline constexpr std::uint64_t kPage = 4096;

enum class RowState : std::uint32_t { kFree = 0, kWriting = 1, kSealed = 2, kDying = 3 };

[[nodiscard]] constexpr std::uint64_t RowWord(std::uint32_t generation, RowState state) {
  return static_cast<std::uint64_t>(generation) << 32 | static_cast<std::uint32_t>(state);
}
[[nodiscard]] constexpr std::uint32_t GenerationOf(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
[[nodiscard]] constexpr RowState StateOf(std::uint64_t word) { return static_cast<RowState>(word & 0xffffffffU); }

struct alignas(64) Row {
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> object_hi;
  std::atomic<std::uint64_t> object_lo;
  std::atomic<std::uint64_t> parties;  // owner << 32 | writer
  std::atomic<std::uint64_t> offset;   // from the segment's start
  std::atomic<std::uint64_t> length;
  std::atomic<std::uint64_t> sealed_us;   // when; coarse
  std::atomic<std::uint32_t> next_freed;  // row + 1 of the next one in SegmentHeader::freed
};
static_assert(sizeof(Row) == 64);

// The gate while `process` may allocate under its `lease`-th loan. kNoGate: nobody may.
inline constexpr std::uint64_t kNoGate = 0;
inline constexpr std::uint64_t kGateBusy = 1;
[[nodiscard]] constexpr std::uint64_t Gate(ProcessId process, std::uint32_t lease) {
  return static_cast<std::uint64_t>(LocalOf(process)) << 32 | static_cast<std::uint64_t>(lease) << 1;
}
[[nodiscard]] constexpr std::uint32_t GateProcess(std::uint64_t gate) { return static_cast<std::uint32_t>(gate >> 32); }

struct SegmentHeader {
  // Fixed when made.
  std::uint32_t magic;
  std::uint32_t id;
  std::uint32_t rows;
  std::uint32_t whole;  // 1: made for one large object
  std::uint32_t huge;   // 1: backed by huge pages
  std::uint64_t bytes;
  std::uint64_t data;  // offset of the data area
  // The lender's line.
  alignas(64) std::atomic<std::uint64_t> gate;
  std::atomic<std::uint64_t> uses;        // allocations ever: tells the keeper that nobody is idle
  std::atomic<std::uint32_t> high_rows;   // rows at and above were never used
  std::atomic<std::uint64_t> high_bytes;  // bytes at and above were never touched
  // The keeper's line.
  alignas(64) std::atomic<std::uint32_t> freed;  // stack of rows freed by the keeper for the lender; row + 1
  std::atomic<std::uint32_t> retired;            // 1: the memory was given back; unmap
};
static_assert(sizeof(SegmentHeader) <= kTableOffset);

// What a row said at one instant.
struct RowCopy {
  std::uint32_t row = 0;
  std::uint32_t generation = 0;
  RowState state = RowState::kFree;
  Id object;
  std::uint32_t owner = 0;   // LocalOf
  std::uint32_t writer = 0;  // LocalOf
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t sealed_us = 0;

  [[nodiscard]] Place place(std::uint32_t segment, NodeNumber node = 0) const {
    return Place{segment, row, generation, node, length};
  }
};

// Shape of a segment, derived from its size alone so that no reader needs to believe the header.
struct SegmentShape {
  std::uint64_t bytes = 0;
  std::uint32_t rows = 0;
  std::uint64_t data = 0;

  [[nodiscard]] std::uint64_t room() const { return bytes - data; }
};
[[nodiscard]] SegmentShape ShapeOf(std::uint64_t bytes, bool whole);
// The least size of a whole segment that holds an object of `bytes`, a multiple of `step`.
[[nodiscard]] std::uint64_t WholeSizeFor(std::uint64_t bytes, std::uint64_t step);

// A segment's header and rows in this process's mapping, read without trust. Does not own the mapping.
// Any thread may call.
class Table {
 public:
  Table() = default;
  Table(std::byte* base, SegmentShape shape) : base_(base), shape_(shape) {}

  // Writes a fresh header. The memory must be zero.
  void Format(std::uint32_t id, bool whole, bool huge);
  [[nodiscard]] SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  [[nodiscard]] Row& row(std::uint32_t index) const { return reinterpret_cast<Row*>(base_ + kTableOffset)[index]; }
  [[nodiscard]] std::byte* base() const { return base_; }
  [[nodiscard]] const SegmentShape& shape() const { return shape_; }
  // Rows worth looking at; never more than there are.
  [[nodiscard]] std::uint32_t used_rows() const;

  // A consistent copy of the row. False: it is free, or makes no sense.
  [[nodiscard]] bool Read(std::uint32_t index, RowCopy* copy) const;
  // Does [offset, offset+length) lie in the data area, aligned?
  [[nodiscard]] bool Inside(std::uint64_t offset, std::uint64_t length) const;
  // {generation, from} -> {generation, to}, or {generation + 1, kFree}. False: it was something else.
  bool Move(std::uint32_t index, std::uint32_t generation, RowState from, RowState to) const;
  // Makes a free row describe an object that is being written; only the borrower may. Returns its generation.
  std::uint32_t Begin(std::uint32_t index, const RowCopy& what) const;
  // Gives what is being written another name; only the borrower may.
  void Rename(std::uint32_t index, const Id& object) const;
  // Publishes it.
  bool Seal(std::uint32_t index, std::uint32_t generation) const;
  // Makes the row free and tells the borrower. False: it was not in that state.
  bool FreeForBorrower(std::uint32_t index, std::uint32_t generation, RowState from) const;

 private:
  std::byte* base_ = nullptr;
  SegmentShape shape_;
};

}  // namespace manta::store
