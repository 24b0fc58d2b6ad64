// PinBoard is where a process says which stored objects it is reading in place: an array of slots in its
// arena (shm::kPinBoardOffset), which the daemon maps too. A pin is one store, no system call, no message.
//
// Why no stale byte is ever read: all four accesses are sequentially consistent.
//   reader:  slot = place;       then reads the row's word; goes on only if it is still sealed, same generation
//   freer:   word = dying;       then scans the boards; frees only what no slot names
// Whichever comes second in the one order sees the other. A pin that outlives its check (the reader lost)
// is taken back at once; it can only delay a free.
//
// Threads: Pin and Unpin from any thread of the process, lock-free; the scan from anywhere.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "shm/arena.h"
#include "types/place.h"
#include "types/status.h"

namespace manta::store {

// What a slot holds: a row of a segment. Never 0, since segments count from 1.
using Pin = std::uint64_t;
[[nodiscard]] constexpr Pin PinOf(std::uint32_t segment, std::uint32_t row) {
  return static_cast<Pin>(segment) << 32 | row;
}

class PinBoard {
 public:
  static constexpr std::uint64_t kBytes = (shm::kPinSlots + 1) * 8;  // the slots and their high-water mark

  PinBoard() = default;
  // `memory`: Arena::at(shm::kPinBoardOffset), or any zeroed kBytes aligned to 8.
  explicit PinBoard(std::byte* memory)
      : slots_(reinterpret_cast<std::atomic<Pin>*>(memory)),
        high_(reinterpret_cast<std::atomic<std::uint64_t>*>(memory) + shm::kPinSlots) {}

  // Takes a slot for the row. The caller must check the row afterwards. Fails with kOutOfMemory when this
  // process reads kPinSlots objects at once.
  Result<std::uint32_t> Take(std::uint32_t segment, std::uint32_t row);
  void Release(std::uint32_t slot);

  [[nodiscard]] bool Holds(Pin pin) const;
  // Appends every pin to `out`.
  void Collect(std::vector<Pin>* out) const;
  [[nodiscard]] std::uint32_t count() const;
  // Forgets every pin: of a process that died.
  void Clear();

 private:
  [[nodiscard]] std::uint32_t high() const;

  std::atomic<Pin>* slots_ = nullptr;
  std::atomic<std::uint64_t>* high_ = nullptr;  // slots at and above were never used
};

}  // namespace manta::store
