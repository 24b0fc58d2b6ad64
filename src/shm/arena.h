// An Arena is one process's share of memory with others: its queues, its log of tasks, the lanes in
// which workers answer it, and its pin board. One sparse file per process; the daemon holds it too,
// so what is written there survives the process.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "shm/mapping.h"
#include "types/id.h"
#include "types/status.h"

namespace manta::shm {

inline constexpr std::uint64_t kArenaBytes = 16ULL << 30;  // address space, not memory
inline constexpr std::uint64_t kPinBoardOffset = 4096;     // see store/pins.h
inline constexpr std::uint32_t kPinSlots = 4096;           // 8 bytes each
inline constexpr std::uint64_t kChunksOffset = 64ULL << 10;
inline constexpr std::uint64_t kChunkBytes = 64ULL << 10;
inline constexpr std::uint64_t kChunksEnd = kArenaBytes - (16ULL << 20);  // above: shm/lineage_ring.h

struct ArenaHeader {
  std::uint32_t magic;
  std::uint32_t version;
  std::uint32_t pid;
};

class Arena {
 public:
  static Result<Arena> Create();           // one's own
  static Result<Arena> Open(base::Fd fd);  // another process's

  [[nodiscard]] std::byte* at(std::uint64_t offset) const { return map_.data() + offset; }
  [[nodiscard]] int fd() const { return fd_.get(); }
  // Is [offset, offset+bytes) inside, and aligned to 8? Offsets come from other processes.
  [[nodiscard]] static bool Valid(std::uint64_t offset, std::uint64_t bytes) {
    return (offset & 7) == 0 && bytes <= kArenaBytes && offset >= kChunksOffset && offset <= kArenaBytes - bytes;
  }

 private:
  base::Fd fd_;
  Mapping map_;
};

// Hands out runs of chunks of one's own arena and takes them back; most recently used first, so that
// memory stays warm. Not thread-safe.
class ChunkAllocator {
 public:
  // `bytes` rounded up to whole chunks. 0: the arena is used up.
  std::uint64_t Allocate(std::uint64_t bytes);
  void Free(std::uint64_t offset, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t used_bytes() const { return used_; }

 private:
  std::uint64_t next_ = kChunksOffset;
  std::uint64_t used_ = 0;
  std::vector<std::vector<std::uint64_t>> free_;  // by number of chunks
};

}  // namespace manta::shm
