// The other process of the baselines: it echoes what comes through a raw ring in shared memory, answers
// futex wakes, and forks. Nothing of Manta is in it.
//
// Forked once, by the constructor, which must run before manta::Init and before the program has much memory:
// a later fork would leave the driver with copy-on-write pages and slow the workloads. It sleeps unless asked
// for something, and dies with the driver. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace bench {

struct EchoArea;  // shared by the two

class Echo {
 public:
  static constexpr std::size_t kSlotBytes = 64;
  static constexpr std::uint64_t kWindow = 1000;

  Echo();
  ~Echo();
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  // Each measures for so many seconds.
  double RingRate(double seconds);   // round trips per second, up to kWindow in flight
  double RingTrip(double seconds);   // p50 of one at a time, in seconds
  double FutexTrip(double seconds);  // p50 of waking a sleeper and being woken, after 1 ms of sleep, in seconds
  double Fork(double seconds);       // of a small process, until its end is seen, in seconds

  [[nodiscard]] pid_t pid() const { return helper_; }

 private:
  void Command(std::uint32_t command);  // wakes the other process
  void AwaitIdle();                     // and waits until it sleeps again

  EchoArea* area_;
  pid_t helper_;
};

}  // namespace bench
