// What the machine itself can do, measured beside every workload: a raw shared-memory ring between two
// processes, futex wakes, memory copies, malloc, fork and spawn. None of it uses Manta.
//
// The other process is forked once, by the constructor, which must run before manta::Init and before the
// program has much memory: a later fork would leave the driver with copy-on-write pages and slow the workloads.
// It sleeps (futex) unless asked for something, and dies with the driver. One thread at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "harness.h"

namespace bench {

inline constexpr std::size_t kGigabyte = std::size_t{1} << 30;

struct EchoArea;  // shared with the other process

class Baselines {
 public:
  Baselines();
  ~Baselines();
  Baselines(const Baselines&) = delete;
  Baselines& operator=(const Baselines&) = delete;

  // As columns beside a metric, in the metric's unit.
  Baseline RingPerSecond(double calls = 1);  // so many calls, in a window of 1,000, are one operation
  Baseline RingMs(double calls);             // how long so many calls take
  Baseline RingTripUs();                     // window of one, p50
  Baseline FutexTripUs();                    // two wakes of sleepers after 1 ms of idleness, p50
  Baseline CopyGBs(std::size_t threads);     // 1 GB into memory that is there already
  Baseline ReadGBs();                        // 1 GB, one thread
  Baseline MallocPerSecond(std::size_t bytes, bool read = false);  // malloc + copy in (+ copy out) + free
  Baseline MallocMs(std::size_t bytes, double calls);
  Baseline ForkMs();  // of a small process, until its end is seen
  Baseline ForkPerSecond();
  Baseline SpawnMs();          // posix_spawn of `true`, until its end is seen
  Baseline SpinningPercent();  // CPU use of one spinning thread
  Baseline RingSlotBytes();    // 64

  [[nodiscard]] pid_t helper() const { return helper_; }
  // 1 GB of numbers for puts to read from; made when first asked for.
  std::span<std::uint64_t> Source();
  // Gives back Source and the copy target.
  void Release();

 private:
  double RingRate(double seconds);
  double RingTrip(double seconds);
  double FutexTrip(double seconds);
  double Copy(std::size_t threads);
  double MallocRate(std::size_t bytes, bool read, double seconds);
  double Fork(double seconds);
  void Command(std::uint32_t command);  // wakes the other process
  void AwaitIdle();                     // and waits until it sleeps again

  EchoArea* area_;
  pid_t helper_;
  std::span<std::uint64_t> source_;
  std::span<std::uint64_t> target_;
};

// Reads every word; the compiler makes wide loads of it.
[[nodiscard]] std::uint64_t Sum(std::span<const std::uint64_t> words);

}  // namespace bench
