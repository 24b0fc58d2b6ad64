#include "store/pins.h"

#include <algorithm>

#include "types/text.h"

namespace manta::store {
namespace {
// Threads start far apart and come back to the slot they used last, so that they share no cache line.
std::uint32_t& Hint() {
  static std::atomic<std::uint32_t> threads{0};
  thread_local std::uint32_t hint = threads.fetch_add(1, std::memory_order_relaxed) * 16 % shm::kPinSlots;
  return hint;
}
}  // namespace

Result<std::uint32_t> PinBoard::Take(std::uint32_t segment, std::uint32_t row) {
  const Pin pin = PinOf(segment, row);
  std::uint32_t& hint = Hint();
  for (std::uint32_t tried = 0, slot = hint; tried < shm::kPinSlots; ++tried, slot = (slot + 1) % shm::kPinSlots) {
    if (slots_[slot].load(std::memory_order_relaxed) != 0) continue;
    // Before the pin: a scan that misses the mark comes before it, and the reader's check after sees `dying`.
    std::uint64_t mark = high_->load(std::memory_order_relaxed);
    while (mark <= slot && !high_->compare_exchange_weak(mark, slot + 1, std::memory_order_seq_cst)) {
    }
    Pin expected = 0;
    if (slots_[slot].compare_exchange_strong(expected, pin, std::memory_order_seq_cst)) {
      hint = slot;
      return slot;
    }
  }
  return Status(Code::kOutOfMemory, Cat("this process reads ", shm::kPinSlots,
                                        " stored objects in place at once, which is the limit; let go of some of the "
                                        "values, or copy them"));
}

void PinBoard::Release(std::uint32_t slot) {
  slots_[slot].store(0, std::memory_order_release);
  Hint() = slot;
}

std::uint32_t PinBoard::high() const {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(high_->load(std::memory_order_seq_cst), shm::kPinSlots));
}

bool PinBoard::Holds(Pin pin) const {
  const std::uint32_t end = high();
  for (std::uint32_t slot = 0; slot < end; ++slot) {
    if (slots_[slot].load(std::memory_order_seq_cst) == pin) return true;
  }
  return false;
}

void PinBoard::Collect(std::vector<Pin>* out) const {
  const std::uint32_t end = high();
  for (std::uint32_t slot = 0; slot < end; ++slot) {
    const Pin pin = slots_[slot].load(std::memory_order_seq_cst);
    if (pin != 0) out->push_back(pin);
  }
}

std::uint32_t PinBoard::count() const {
  std::vector<Pin> pins;
  Collect(&pins);
  return static_cast<std::uint32_t>(pins.size());
}

void PinBoard::Clear() {
  for (std::uint32_t slot = 0; slot < shm::kPinSlots; ++slot) slots_[slot].store(0, std::memory_order_relaxed);
}

}  // namespace manta::store
