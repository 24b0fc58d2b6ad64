// The lineage ring is where an owner writes down what it calls and what came of it (lineage/record.h), for the daemon
// to put on disk. It lies at a fixed place in the owner's arena, which the daemon holds, too: what is in the ring
// survives the owner's death. All zeros is an empty ring.
//
//   owner:   bytes; then `tail`                    daemon: reads up to `tail`, writes them to the file; then `head`;
//   Commit:  ++asked; wakes the daemon; waits      syncs the file; then `done` and a wake
//
// `tail` is always the end of a record, so whatever the daemon takes is whole records. One writer (under the owner's
// mutex), one reader (a thread of the daemon).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "shm/arena.h"

namespace manta::shm {

inline constexpr std::uint64_t kLineageRing = 8ULL << 20;  // at 5 M calls/s, some 150 ms of a daemon that does not come
inline constexpr std::uint64_t kLineageMemory = kLineageRing + 4096;
inline constexpr std::uint64_t kLineageOffset = kArenaBytes - kLineageMemory;  // above all chunks
static_assert(kLineageOffset >= kChunksEnd);

struct LineageMemory {
  alignas(64) std::atomic<std::uint64_t> tail;  // the owner: bytes written, ever
  std::atomic<std::uint64_t> chapter;           // the owner: where the last chapter begins; written before `tail`
  std::atomic<std::uint64_t> failed;            // the owner: calls that failed, ever
  std::atomic<std::uint32_t> asked;             // any thread of the owner: commits
  alignas(64) std::atomic<std::uint64_t> head;  // the daemon: bytes taken, ever
  std::atomic<std::uint32_t> done;              // the daemon: commits that are on disk; a futex
  std::atomic<std::uint32_t> error;             // the daemon: errno of the last write, 0 if it went well
  alignas(4096) std::byte ring[kLineageRing];
};
static_assert(sizeof(LineageMemory) == kLineageMemory);

class LineageWriter {
 public:
  LineageWriter() = default;
  explicit LineageWriter(LineageMemory* memory) : memory_(memory) {
    tail_ = memory_->tail.load(std::memory_order_relaxed);
    head_ = memory_->head.load(std::memory_order_acquire);
  }

  // Room for `bytes` in one piece, to be written in place; nullptr: there is none here, try Put.
  std::byte* Begin(std::uint64_t bytes) {
    const std::uint64_t at = tail_ % kLineageRing;
    if (kLineageRing - at < bytes || !HasRoom(bytes)) return nullptr;
    return memory_->ring + at;
  }
  void End(std::uint64_t bytes) { memory_->tail.store(tail_ += bytes, std::memory_order_release); }
  // Copies a whole record, around the ring's end if need be. False: it is full.
  bool Put(std::span<const std::byte> record) {
    if (!HasRoom(record.size())) return false;
    const std::uint64_t at = tail_ % kLineageRing;
    const std::uint64_t first = std::min<std::uint64_t>(record.size(), kLineageRing - at);
    std::memcpy(memory_->ring + at, record.data(), first);
    if (first < record.size()) std::memcpy(memory_->ring, record.data() + first, record.size() - first);
    End(record.size());
    return true;
  }
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  [[nodiscard]] LineageMemory& memory() { return *memory_; }

 private:
  bool HasRoom(std::uint64_t bytes) {
    if (tail_ + bytes - head_ <= kLineageRing) return true;
    head_ = memory_->head.load(std::memory_order_acquire);
    return tail_ + bytes - head_ <= kLineageRing;
  }

  LineageMemory* memory_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
};

// What the daemon sees of it: a piece of the stream, in one or two parts.
struct LineagePiece {
  std::uint64_t position = 0;  // in the stream
  bool chapter = false;        // it begins one
  std::span<const std::byte> parts[2];

  [[nodiscard]] std::uint64_t size() const { return parts[0].size() + parts[1].size(); }
};

class LineageReader {
 public:
  LineageReader() = default;
  explicit LineageReader(LineageMemory* memory) : memory_(memory) {}

  // The next piece, up to the end or to where the last chapter begins. Empty: there is nothing, or the ring makes no
  // sense (its owner is broken).
  [[nodiscard]] LineagePiece Next() const {
    LineagePiece piece;
    piece.position = head_;
    const std::uint64_t tail = memory_->tail.load(std::memory_order_acquire);
    if (tail == head_ || tail - head_ > kLineageRing) return piece;
    const std::uint64_t chapter = memory_->chapter.load(std::memory_order_relaxed);
    piece.chapter = chapter == head_;
    const std::uint64_t end = chapter > head_ && chapter < tail ? chapter : tail;
    const std::uint64_t at = head_ % kLineageRing;
    const std::uint64_t first = std::min(end - head_, kLineageRing - at);
    piece.parts[0] = {memory_->ring + at, first};
    piece.parts[1] = {memory_->ring, end - head_ - first};
    return piece;
  }
  // It is in the file: the owner may write over it.
  void Taken(const LineagePiece& piece) {
    head_ += piece.size();
    memory_->head.store(head_, std::memory_order_release);
  }
  [[nodiscard]] LineageMemory& memory() const { return *memory_; }

 private:
  LineageMemory* memory_ = nullptr;
  std::uint64_t head_ = 0;
};

}  // namespace manta::shm
