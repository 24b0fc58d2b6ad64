// A Visit is a thread's stay inside the engine. While it lasts, the Owner that it found is not destroyed: Shutdown
// closes the door, makes everybody who waits inside come out with an error, and destroys the Owner when the last
// visitor has left. Visits nest; an inner one may find the door closed.
//
// It is two plain stores to a word of the thread's own, because every call of the API makes one. The full barrier
// that belongs between "I am inside" and "is somebody there?" is paid by Close, for all threads at once (membarrier).
#pragma once

#include <atomic>
#include <cstdint>

namespace manta::owner {

class Owner;

class Visit {
 public:
  Visit();
  ~Visit() { depth_.store(depth_.load(std::memory_order_relaxed) - 1, std::memory_order_release); }
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  // nullptr: there is none, or it is about to go.
  [[nodiscard]] Owner* owner() const { return owner_; }

  static void Open(Owner* owner);
  static void Close();  // who visits from now on finds nobody
  static bool IsOpen();
  static bool AnybodyElse();       // is inside: threads other than the caller's
  static void WaitForEverybody();  // else to leave

 private:
  std::atomic<std::uint32_t>& depth_;
  Owner* owner_;
};

}  // namespace manta::owner
