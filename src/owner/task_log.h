// TaskLog is where an owner writes its calls: once, as a record in its arena, which is the queue's
// payload and the lineage at the same time. The daemon holds the arena too, so a record survives the
// owner's death; it stays until the last Ref to the call's results is gone.
//
// Guarded by EntryTable::mutex.
#pragma once

#include <cstdint>
#include <vector>

#include "shm/arena.h"

namespace manta::owner {

class TaskLog {
 public:
  TaskLog(shm::Arena& arena, shm::ChunkAllocator& chunks) : arena_(arena), chunks_(chunks) {}

  // Room for a record of `bytes` (a multiple of 8). 0: the arena is used up.
  std::uint64_t Append(std::uint64_t bytes);
  // One more needs the record.
  void Keep(std::uint64_t offset) { ++segments_[by_chunk_[offset / shm::kChunkBytes]].live; }
  // One less does.
  void Drop(std::uint64_t offset);
  // Gives everything back.
  void Clear();

  [[nodiscard]] std::byte* at(std::uint64_t offset) { return arena_.at(offset); }

 private:
  static constexpr std::uint64_t kSegment = 4 * shm::kChunkBytes;
  struct Segment {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t used = 0;
    std::uint64_t live = 0;  // records not dropped
  };
  std::uint32_t Open(std::uint64_t bytes);
  void Close(std::uint32_t segment);

  shm::Arena& arena_;
  shm::ChunkAllocator& chunks_;
  std::vector<Segment> segments_{1};     // [0] is nobody's
  std::vector<std::uint32_t> unused_;    // places in segments_
  std::vector<std::uint32_t> by_chunk_;  // chunk number -> segment
  std::uint32_t current_ = 0;
};

}  // namespace manta::owner
