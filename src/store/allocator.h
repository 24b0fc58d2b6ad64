// SegmentAllocator hands out the rows and bytes of one segment to its lender. Everything it knows is in
// private memory; the shared table is its record for others, and what it is rebuilt from when a segment
// changes hands.
//
// Freed blocks are kept by size class and reused last-in-first-out, while they are in cache; only when a
// request finds no block of its class and no untouched room are neighbours merged. Why not merge at once: a
// put of 1 KB takes 50 ns to copy, and an ordered tree costs more than that.
//
// Invariant: free blocks, live blocks and the current run never overlap and fill the data area.
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "store/segment.h"

namespace manta::store {

struct Block {
  std::uint32_t row = 0;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;  // taken; at least what was asked for
};

class SegmentAllocator {
 public:
  SegmentAllocator() = default;
  // Learns what is taken from the table; rows that make no sense are taken for free.
  explicit SegmentAllocator(const Table& table);

  // The bytes that an object of `bytes` takes.
  [[nodiscard]] static std::uint64_t RoundedUp(std::uint64_t bytes);
  [[nodiscard]] bool Allocate(std::uint64_t bytes, Block* block);
  void Free(std::uint32_t row);
  // The bytes of rows that the keeper freed meanwhile (SegmentHeader::freed).
  void TakeFreed(const Table& table);

  [[nodiscard]] std::uint64_t free_bytes() const { return free_bytes_; }
  [[nodiscard]] std::uint32_t live() const { return live_; }
  [[nodiscard]] std::uint32_t high_rows() const { return high_rows_; }
  [[nodiscard]] std::uint64_t capacity() const { return shape_.room(); }
  // Would a request for this many bytes fail for certain? Cheap.
  [[nodiscard]] bool Hopeless(std::uint64_t bytes) const { return bytes > free_bytes_ || bytes >= failed_; }

 private:
  struct Run {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
  };
  static bool Smaller(const Run& a, const Run& b) { return a.bytes < b.bytes; }
  [[nodiscard]] bool Carve(std::uint64_t bytes, std::uint64_t* offset);
  void PushRun(const Run& run);
  void Merge();

  SegmentShape shape_;
  std::vector<std::uint32_t> free_rows_;
  std::uint32_t high_rows_ = 0;
  std::vector<Run> taken_;                        // by row; bytes 0: not taken
  std::vector<std::vector<std::uint64_t>> bins_;  // offsets of free blocks, by size class
  Run current_;                                   // free room being carved
  std::vector<Run> runs_;                         // the other free room: a heap, the largest on top
  std::uint64_t unmerged_ = 0;                    // bytes freed since the last Merge
  std::uint64_t free_bytes_ = 0;
  std::uint64_t failed_ = ~0ULL;  // the least request that failed since the last Free
  std::uint32_t live_ = 0;
};

}  // namespace manta::store
