// A lane is how one worker answers one owner: a ring of reply records in the owner's arena, and a few
// words about what the worker is doing. One writer (the worker, under its own lock if it runs several
// threads), one reader (the owner). A record counts once `tail` covers it: a worker killed while writing
// leaves nothing behind.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

#include "types/id.h"

namespace manta::shm {

// kContained: the names of Refs and handles inside the value, which follows in a record of its own.
enum class ReplyKind : std::uint8_t { kValue = 1, kPlace = 2, kFailure = 3, kSkip = 4, kContained = 5 };

struct ReplyHeader {
  static constexpr std::uint8_t kLast = 1;       // the task's last record
  static constexpr std::uint8_t kRetryable = 2;  // a failure that RetryOn matches

  std::uint32_t bytes = 0;  // of the record; a multiple of 8
  std::uint32_t entry = 0;
  std::uint32_t generation = 0;
  std::uint32_t index = 0;  // which return value
  ReplyKind kind = ReplyKind::kValue;
  std::uint8_t flags = 0;
  std::uint16_t run = 0;   // how long the call ran, packed (PackRun); 0: not measured. With kLast
  std::uint32_t size = 0;  // of the payload
};
static_assert(sizeof(ReplyHeader) == 24);

// A time in 16 bits, to 1 in 1024: 11 bits, and how far they are shifted. Up to an hour; never 0.
[[nodiscard]] constexpr std::uint16_t PackRun(std::int64_t ns) {
  std::uint64_t rest = ns < 1 ? 1 : static_cast<std::uint64_t>(ns);
  std::uint16_t shift = 0;
  for (; rest > 2047; rest >>= 1) ++shift;
  return shift > 31 ? 0xffff : static_cast<std::uint16_t>(shift << 11 | rest);
}
[[nodiscard]] constexpr std::int64_t UnpackRun(std::uint16_t run) {
  return static_cast<std::int64_t>(run & 2047) << (run >> 11);
}

struct Contained {
  Id id;
  ProcessId owner = kNoProcess;  // of an actor: OnNode(its home, 0)
};

inline constexpr std::uint64_t kLaneBytes = 256ULL << 10;
inline constexpr std::uint64_t kLaneRing = kLaneBytes - 512;

// Names a task of this owner, never the same twice in a row.
[[nodiscard]] constexpr std::uint64_t TaskToken(std::uint32_t entry, std::uint32_t generation) {
  return (static_cast<std::uint64_t>(entry) << 32) | generation;
}

// With the token of a task asked to stop: what it has started shall stop, too. Tables have fewer places than 2^31.
inline constexpr std::uint64_t kCancelTree = 1ULL << 63;

struct LaneMemory {
  alignas(64) std::atomic<std::uint64_t> tail;    // the worker: bytes written, ever
  alignas(64) std::atomic<std::uint64_t> head;    // the owner: bytes read, ever
  alignas(64) std::atomic<std::uint64_t> worker;  // ProcessId of who serves it
  std::atomic<std::uint32_t> asleep;              // that worker sleeps, waiting for this lane's queue
  std::uint32_t index;                            // the owner's number for it, as in claim words
  std::atomic<std::uint64_t> running;             // TaskToken of a timed task while it runs
  std::atomic<std::int64_t> started_us;
  alignas(64) std::atomic<std::uint64_t> cancel;  // TaskToken of the task asked to stop, perhaps with kCancelTree
  alignas(64) std::byte ring[kLaneRing];
};
static_assert(sizeof(LaneMemory) <= kLaneBytes);

class LaneWriter {
 public:
  LaneWriter() = default;
  explicit LaneWriter(void* memory) : lane_(static_cast<LaneMemory*>(memory)) {
    tail_ = lane_->tail.load(std::memory_order_acquire);
    head_ = lane_->head.load(std::memory_order_acquire);
  }

  // Room for a record with a payload of `size` bytes, or nullptr while the ring is full. The payload
  // goes behind the header; nothing is visible until Publish.
  ReplyHeader* Begin(std::size_t size) {
    const std::uint64_t bytes = sizeof(ReplyHeader) + ((size + 7) & ~7ULL);
    std::uint64_t at = tail_ % kLaneRing;
    const std::uint64_t skip = kLaneRing - at < bytes ? kLaneRing - at : 0;
    if (tail_ + skip + bytes - head_ > kLaneRing) {
      head_ = lane_->head.load(std::memory_order_acquire);
      if (tail_ + skip + bytes - head_ > kLaneRing) return nullptr;
    }
    if (skip > 0) {
      // Only the kind matters, and a gap of 8 or 16 bytes has room for no header: the reader skips
      // to the end of the ring whenever less than a header is left.
      if (skip >= sizeof(ReplyHeader)) {
        auto* gap = new (lane_->ring + at) ReplyHeader();
        gap->bytes = static_cast<std::uint32_t>(skip);
        gap->kind = ReplyKind::kSkip;
      }
      tail_ += skip;
      at = 0;
    }
    auto* header = new (lane_->ring + at) ReplyHeader();
    header->bytes = static_cast<std::uint32_t>(bytes);
    header->size = static_cast<std::uint32_t>(size);
    return header;
  }
  void Commit(const ReplyHeader* header) { tail_ += header->bytes; }  // one record is complete
  void Publish() { lane_->tail.store(tail_, std::memory_order_seq_cst); }

  [[nodiscard]] LaneMemory& memory() { return *lane_; }

 private:
  LaneMemory* lane_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
};

class LaneReader {
 public:
  LaneReader() = default;
  // No `()` behind LaneMemory: they would zero the whole ring, at every lease, though only what `tail` covers is read.
  explicit LaneReader(void* memory) : lane_(new(memory) LaneMemory) { lane_->index = 0; }

  [[nodiscard]] bool Ready() const { return lane_->tail.load(std::memory_order_seq_cst) != head_; }

  // Calls f(header, payload) for every record that is there, at most `limit`. false: the ring makes no
  // sense (its writer is broken); nothing further is read from it.
  template <typename F>
  bool Read(std::uint32_t limit, F f) {
    const std::uint64_t tail = lane_->tail.load(std::memory_order_acquire);
    if (tail - head_ > kLaneRing) return false;
    while (head_ != tail && limit-- > 0) {
      const std::uint64_t at = head_ % kLaneRing;
      const std::uint64_t left = kLaneRing - at;
      if (left < sizeof(ReplyHeader)) {
        if (tail - head_ < left) return false;
        head_ += left;
        continue;
      }
      ReplyHeader header;
      std::memcpy(&header, lane_->ring + at, sizeof header);
      if (header.bytes < sizeof header || (header.bytes & 7) != 0 || header.bytes > left ||
          header.bytes > tail - head_ ||
          (header.kind != ReplyKind::kSkip && header.size > header.bytes - sizeof header)) {
        return false;
      }
      if (header.kind != ReplyKind::kSkip) f(header, lane_->ring + at + sizeof header);
      head_ += header.bytes;
    }
    lane_->head.store(head_, std::memory_order_release);
    return true;
  }

  [[nodiscard]] LaneMemory& memory() { return *lane_; }

 private:
  LaneMemory* lane_ = nullptr;
  std::uint64_t head_ = 0;
};

}  // namespace manta::shm
