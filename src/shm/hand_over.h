// HandOver is how a process waits for a peer on its own core.
//
// Problem: a caller that spins keeps a worker on the same core from running, and a worker that spins keeps the caller
// from reading the answer. Each then waits for the other's whole spin time: 226 µs for a call that takes 3 µs.
//
// A process therefore writes into its doorbell on which core it runs (Doorbell::RunsHere), and a waiter compares
// (Doorbell::SharesCore). A waiter that shares its core with the peer yields the core between two looks instead of
// spinning. The kernel still counts two runnable threads, so it moves one of them as soon as another core is idle.
//
// sched_yield serves all threads of the core, not only the peer. If a third thread computes there, a yield lasts for
// that thread's whole time slice. So after a yield that lasted kLongYieldUs the next waits go to sleep at once (a futex
// wake preempts a computing thread); their number doubles up to kMostSleeps and falls back after a short yield.
//
// Any thread may call it: the two counts are hints.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace manta::shm {

class HandOver {
 public:
  static constexpr std::int64_t kLongYieldUs = 300;  // less than a time slice, more than a short call
  static constexpr std::uint32_t kFewestSleeps = 16;
  static constexpr std::uint32_t kMostSleeps = 1024;

  // Begins a wait beside the peer: true if yields are worth a try, false if the waiter shall sleep at once.
  [[nodiscard]] bool YieldsPay() {
    const std::uint32_t left = sleeps_left_.load(std::memory_order_relaxed);
    if (left == 0) return true;
    sleeps_left_.store(left - 1, std::memory_order_relaxed);
    return false;
  }
  // Yields once. False: it took long, and the waiter shall sleep now.
  bool Yield();
  // What Yield does with the time that it measured.
  bool Yielded(std::int64_t took_us) {
    if (took_us < kLongYieldUs) {
      next_sleeps_.store(kFewestSleeps, std::memory_order_relaxed);
      return true;
    }
    const std::uint32_t next = next_sleeps_.load(std::memory_order_relaxed);
    sleeps_left_.store(next, std::memory_order_relaxed);
    next_sleeps_.store(std::min(2 * next, kMostSleeps), std::memory_order_relaxed);
    return false;
  }

 private:
  std::atomic<std::uint32_t> sleeps_left_{0};
  std::atomic<std::uint32_t> next_sleeps_{kFewestSleeps};
};

}  // namespace manta::shm
