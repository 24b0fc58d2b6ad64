// SpinMutex is a mutex for sections of well under a microsecond: it spins briefly before it lets the
// kernel put the thread to sleep, because being woken costs 42 µs here.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace manta::base {

inline void Relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class SpinMutex {
 public:
  void lock() {
    for (int round = 0;; ++round) {
      if (try_lock()) return;
      for (int i = 0; i < 200; ++i) {
        if (state_.load(std::memory_order_relaxed) == 0) break;
        Relax();
      }
      if (round < 8) continue;
      // The holder was probably moved off its core.
      if (state_.exchange(2, std::memory_order_acquire) == 0) return;
      state_.wait(2, std::memory_order_relaxed);
    }
  }
  // For a thread that is in no hurry. Who holds it may have been moved off this very core for it: the core is given
  // back at once. If it is held again and again, this thread queues up like any other.
  void lock_patiently() {
    for (int i = 0; i < 10; ++i) {
      if (try_lock()) return;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    lock();
  }
  bool try_lock() {
    int free = 0;
    return state_.load(std::memory_order_relaxed) == 0 &&
           state_.compare_exchange_strong(free, 1, std::memory_order_acquire);
  }
  void unlock() {
    if (state_.exchange(0, std::memory_order_release) == 2) state_.notify_all();
  }

 private:
  std::atomic<int> state_{0};  // 0 free, 1 held, 2 held and somebody sleeps
};

}  // namespace manta::base
