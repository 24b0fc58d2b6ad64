#include "shm/arena.h"

#include <unistd.h>

namespace manta::shm {
namespace {
constexpr std::uint32_t kArenaMagic = 0x414d5431;
std::uint64_t ChunksOf(std::uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }
}  // namespace

Result<Arena> Arena::Create() {
  Result<base::Fd> fd = MakeMemory("manta-arena", kArenaBytes);
  if (!fd.ok()) return fd.status();
  Result<Mapping> map = Mapping::Of(fd->get(), 0, kArenaBytes, true);
  if (!map.ok()) return map.status();
  Arena arena;
  arena.fd_ = std::move(*fd);
  arena.map_ = std::move(*map);
  auto* header = reinterpret_cast<ArenaHeader*>(arena.map_.data());
  header->version = 1;
  header->pid = static_cast<std::uint32_t>(getpid());
  header->magic = kArenaMagic;
  return arena;
}

Result<Arena> Arena::Open(base::Fd fd) {
  Result<Mapping> map = Mapping::Of(fd.get(), 0, kArenaBytes, true);
  if (!map.ok()) return map.status();
  if (reinterpret_cast<const ArenaHeader*>(map->data())->magic != kArenaMagic) {
    return Status(Code::kCorrupt, "a descriptor that should be a process's arena is something else");
  }
  Arena arena;
  arena.fd_ = std::move(fd);
  arena.map_ = std::move(*map);
  return arena;
}

std::uint64_t ChunkAllocator::Allocate(std::uint64_t bytes) {
  if (bytes > kArenaBytes) return 0;  // nor may rounding up wrap around
  const std::uint64_t chunks = ChunksOf(bytes);
  if (chunks < free_.size() && !free_[chunks].empty()) {
    const std::uint64_t offset = free_[chunks].back();
    free_[chunks].pop_back();
    used_ += chunks * kChunkBytes;
    return offset;
  }
  if (chunks * kChunkBytes > kChunksEnd - next_) return 0;
  const std::uint64_t offset = next_;
  next_ += chunks * kChunkBytes;
  used_ += chunks * kChunkBytes;
  return offset;
}

void ChunkAllocator::Free(std::uint64_t offset, std::uint64_t bytes) {
  const std::uint64_t chunks = ChunksOf(bytes);
  if (chunks >= free_.size()) free_.resize(chunks + 1);
  free_[chunks].push_back(offset);
  used_ -= chunks * kChunkBytes;
}

}  // namespace manta::shm
