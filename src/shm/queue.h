// The queue of one owner and one class of tasks, in the owner's arena. The owner pushes; every worker
// leased for it claims. A slot's claim word {sequence, state, lane} is changed only by compare-and-swap
// once it is ready, so a claim, the owner's take-back and a cancel exclude one another without a lock,
// and after a crash the owner reads from the words exactly what a dead worker had claimed.
//
// Life of a slot: empty -> ready (owner) -> claimed (worker) -> done (that worker, after its answer)
//                                        -> taken (owner: cancelled, or run in place)
// The owner uses a slot again once it is no longer ready. If it is then still `claimed`, the task runs
// long: Push reports it as displaced and the owner remembers who has it.
//
// A worker copies the slot before it claims it (afterwards the owner may overwrite it).
//
// Order: with one worker, that of Push. Several workers share out the slots by cache lines, because a line in which
// two of them claim in turn travels between their cores for every task: a worker that meets another's slot goes on at
// the next line, and comes back for what was left behind when it finds nothing ahead, or every kLookBack claims.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>

namespace manta::shm {

inline constexpr std::uint32_t kQueueSlots = 8192;
inline constexpr std::uint32_t kMaxLanes = 4096;  // of one owner
inline constexpr std::uint64_t kLineSlots = 4;    // in a cache line
inline constexpr std::uint64_t kLookBack = 64;    // claims
inline constexpr std::uint64_t kHeadEvery = 16;   // claims after which the hint is written: the owner reads its line

enum class SlotState : std::uint8_t { kEmpty = 0, kReady = 1, kClaimed = 2, kDone = 3, kTaken = 4 };

struct Claim {
  std::uint64_t sequence = 0;  // position in the queue, modulo 2^44
  SlotState state = SlotState::kEmpty;
  std::uint32_t lane = 0;
};
[[nodiscard]] constexpr std::uint64_t Pack(const Claim& c) {
  return (c.sequence << 20) | (static_cast<std::uint64_t>(c.state) << 16) | c.lane;
}
[[nodiscard]] constexpr Claim Unpack(std::uint64_t word) {
  return Claim{word >> 20, static_cast<SlotState>((word >> 16) & 15), static_cast<std::uint32_t>(word & 0xffff)};
}

struct QueueMemory {
  struct Slot {
    std::atomic<std::uint64_t> claim;
    std::atomic<std::uint64_t> spec;  // offset in the owner's arena
  };
  alignas(64) std::atomic<std::uint64_t> head;  // a hint: nothing before it is ready, but perhaps nothing behind
  alignas(64) std::atomic<std::uint64_t> tail;  // the owner's next position
  alignas(64) Slot slots[kQueueSlots];
};

class QueueOwner {
 public:
  QueueOwner() = default;
  explicit QueueOwner(void* memory) : q_(new(memory) QueueMemory()) {
    for (std::uint64_t i = 0; i < kQueueSlots; ++i) q_->slots[i].claim.store(0, std::memory_order_relaxed);
  }

  struct Displaced {
    bool yes = false;
    std::uint64_t spec = 0;
    std::uint32_t lane = 0;
  };
  // false: full. *position names the slot for TryTake. Only one thread at a time.
  bool Push(std::uint64_t spec, std::uint64_t* position, Displaced* displaced) {
    QueueMemory::Slot& slot = q_->slots[tail_ % kQueueSlots];
    displaced->yes = false;
    if (tail_ >= kQueueSlots) {
      const Claim old = Unpack(slot.claim.load(std::memory_order_acquire));
      if (old.state == SlotState::kReady) return false;
      if (old.state == SlotState::kClaimed) *displaced = {true, slot.spec.load(std::memory_order_relaxed), old.lane};
      // A worker finishing this very task changes claimed to done by compare-and-swap, which our
      // overwriting makes fail: harmless, the owner sees the answer in the lane.
    }
    slot.spec.store(spec, std::memory_order_relaxed);
    slot.claim.store(Pack({Sequence(tail_), SlotState::kReady, 0}), std::memory_order_seq_cst);
    *position = tail_++;
    q_->tail.store(tail_, std::memory_order_release);
    return true;
  }

  // Takes the task at `position` back unless a worker has it.
  bool TryTake(std::uint64_t position) {
    std::uint64_t ready = Pack({Sequence(position), SlotState::kReady, 0});
    return q_->slots[position % kQueueSlots].claim.compare_exchange_strong(
        ready, Pack({Sequence(position), SlotState::kTaken, 0}), std::memory_order_seq_cst);
  }

  // Calls f(spec, position) for every slot claimed through `lane` and not done.
  template <typename F>
  void ForClaimed(std::uint32_t lane, F f) {
    ForSlots([&](const Claim& c, std::uint64_t spec, std::uint64_t position) {
      if (c.state == SlotState::kClaimed && c.lane == lane) f(spec, position);
    });
  }
  // The same for every slot that nobody has claimed.
  template <typename F>
  void ForReady(F f) {
    ForSlots([&](const Claim& c, std::uint64_t spec, std::uint64_t position) {
      if (c.state == SlotState::kReady) f(spec, position);
    });
  }

  // How many are waiting, at most (those taken back or claimed out of order count).
  [[nodiscard]] std::uint64_t backlog() { return tail_ - head(); }
  // The first that nobody has claimed.
  [[nodiscard]] std::uint64_t head() {
    std::uint64_t head = std::max(head_, q_->head.load(std::memory_order_relaxed));
    if (tail_ > kQueueSlots) head = std::max(head, tail_ - kQueueSlots);
    while (head < tail_) {
      const Claim c = Unpack(q_->slots[head % kQueueSlots].claim.load(std::memory_order_acquire));
      if (c.sequence == Sequence(head) && c.state == SlotState::kReady) break;
      ++head;
    }
    return head_ = std::min(head, tail_);
  }
  [[nodiscard]] std::uint64_t tail() const { return tail_; }
  [[nodiscard]] QueueMemory& memory() { return *q_; }
  [[nodiscard]] static constexpr std::uint64_t Sequence(std::uint64_t position) {
    return position & ((1ULL << 44) - 1);
  }

 private:
  template <typename F>
  void ForSlots(F f) {
    const std::uint64_t first = tail_ > kQueueSlots ? tail_ - kQueueSlots : 0;
    for (std::uint64_t p = first; p < tail_; ++p) {
      const QueueMemory::Slot& slot = q_->slots[p % kQueueSlots];
      f(Unpack(slot.claim.load(std::memory_order_acquire)), slot.spec.load(std::memory_order_relaxed), p);
    }
  }

  QueueMemory* q_ = nullptr;
  std::uint64_t tail_ = 0;
  std::uint64_t head_ = 0;
};

class QueueWorker {
 public:
  QueueWorker() = default;
  QueueWorker(void* memory, std::uint32_t lane) : q_(static_cast<QueueMemory*>(memory)), lane_(lane) {}

  struct Task {
    std::uint64_t spec = 0;
    std::uint64_t position = 0;
    std::uint64_t next = 0;  // the spec that is likely to be claimed next, to be fetched meanwhile; 0: not known
  };
  // Claims a ready task. false: nothing is ready.
  bool TryClaim(Task* task) {
    const std::uint64_t head = q_->head.load(std::memory_order_relaxed);
    const bool behind = head >= cursor_ || cursor_ - head >= kQueueSlots;
    if (!behind && !(left_behind_ && claims_ % kLookBack == 0)) {
      if (ClaimFrom(cursor_, share_lines_, task)) return true;
      if (!left_behind_) {
        AdvanceHead(cursor_);
        return false;
      }
    }
    // Every slot from the hint on: when one is found beyond the cursor, or none, nothing is left behind. (The cursor
    // may have to go back: a line that was skipped may have been written in part.)
    const std::uint64_t before = cursor_;
    cursor_ = head;
    const bool found = ClaimFrom(head, false, task);
    if (found && task->position < before) {
      cursor_ = before;
      return true;
    }
    left_behind_ = false;
    if (!found) AdvanceHead(cursor_);
    return found;
  }

  // Whether to leave the line to another worker that is at it: right for tasks so short that the line's way between
  // the cores counts.
  void ShareByLines(bool yes) { share_lines_ = yes; }

  // Is there something to claim? Only a look.
  [[nodiscard]] bool Ready() {
    std::uint64_t at = q_->head.load(std::memory_order_relaxed);
    if (at < cursor_ && cursor_ - at < kQueueSlots && !left_behind_) at = cursor_;
    const Claim c = Unpack(q_->slots[at % kQueueSlots].claim.load(std::memory_order_seq_cst));
    return c.state != SlotState::kEmpty && c.sequence >= QueueOwner::Sequence(at);
  }

  // After the answer is in the lane.
  void Done(const Task& task) {
    const std::uint64_t here = QueueOwner::Sequence(task.position);
    std::uint64_t mine = Pack({here, SlotState::kClaimed, lane_});
    q_->slots[task.position % kQueueSlots].claim.compare_exchange_strong(mine, Pack({here, SlotState::kDone, lane_}),
                                                                         std::memory_order_release);
  }

 private:
  bool ClaimFrom(std::uint64_t at, bool skip, Task* task) {
    bool found = false;
    for (std::uint32_t seen = 0; seen <= kQueueSlots; ++seen) {
      QueueMemory::Slot& slot = q_->slots[at % kQueueSlots];
      std::uint64_t word = slot.claim.load(std::memory_order_seq_cst);
      const Claim c = Unpack(word);
      const std::uint64_t here = QueueOwner::Sequence(at);
      if (c.sequence != here) {
        if (c.state != SlotState::kEmpty && c.sequence > here) {  // overtaken by a whole round
          const std::uint64_t tail = q_->tail.load(std::memory_order_acquire);
          at = tail > kQueueSlots && at < tail - kQueueSlots ? tail - kQueueSlots : at + 1;
          continue;
        }
        break;  // not written yet
      }
      if (c.state == SlotState::kReady) {
        const std::uint64_t spec = slot.spec.load(std::memory_order_relaxed);
        if (slot.claim.compare_exchange_strong(word, Pack({here, SlotState::kClaimed, lane_}),
                                               std::memory_order_seq_cst)) {
          *task = {spec, at, Next(at + 1)};
          found = true;
          ++at;
          break;
        }
        continue;  // somebody else took it: look at this slot again
      }
      if (c.state == SlotState::kEmpty) break;
      if (skip && c.lane != lane_ && c.state != SlotState::kTaken) {
        at = (at / kLineSlots + 1) * kLineSlots;
        left_behind_ = true;
      } else {
        ++at;  // claimed, done or taken
      }
    }
    cursor_ = at;
    if (found && ++claims_ % kHeadEvery == 0 && !left_behind_) AdvanceHead(cursor_);
    return found;
  }

  [[nodiscard]] std::uint64_t Next(std::uint64_t at) const {
    if (at % kLineSlots == 0) return 0;  // would fetch a line that its owner may be writing
    const QueueMemory::Slot& slot = q_->slots[at % kQueueSlots];
    const Claim c = Unpack(slot.claim.load(std::memory_order_relaxed));
    const bool ready = c.state == SlotState::kReady && c.sequence == QueueOwner::Sequence(at);
    return ready ? slot.spec.load(std::memory_order_relaxed) : 0;
  }

  // The hint never goes back, or a worker that slept would make all others look at old slots again.
  void AdvanceHead(std::uint64_t to) {
    std::uint64_t now = q_->head.load(std::memory_order_relaxed);
    while (now < to && !q_->head.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
    }
  }

  QueueMemory* q_ = nullptr;
  std::uint32_t lane_ = 0;
  std::uint64_t cursor_ = 0;
  std::uint64_t claims_ = 0;
  bool share_lines_ = false;
  bool left_behind_ = false;  // slots before the cursor may be ready
};

}  // namespace manta::shm
