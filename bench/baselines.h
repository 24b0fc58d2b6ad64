// What the machine itself can do, measured beside every workload: a raw shared-memory ring between two
// processes, futex wakes, memory copies, malloc, fork and spawn. None of it uses Manta.
//
// Made before manta::Init, because of Echo. Used by one thread.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "echo.h"
#include "harness.h"

namespace bench {

inline constexpr std::size_t kGigabyte = std::size_t{1} << 30;

class Baselines {
 public:
  Baselines() = default;
  ~Baselines() { Release(); }
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

  [[nodiscard]] pid_t helper() const { return echo_.pid(); }
  // 1 GB of numbers for puts to read from; made when first asked for.
  std::span<std::uint64_t> Source();
  // GB/s of a plain copy of Source() into memory that nobody has touched, in huge pages: what a first put could reach.
  double FreshCopy();
  // Gives back Source and the copy target.
  void Release();

 private:
  double Copy(std::size_t threads);
  double MallocRate(std::size_t bytes, bool read, double seconds);

  Echo echo_;
  std::span<std::uint64_t> source_;
  std::span<std::uint64_t> target_;
};

// How many values of that size a workload and its baseline hold at a time: up to 32 MB.
[[nodiscard]] std::size_t ValuesAtOnce(std::size_t bytes);

// Reads every word; the compiler makes wide loads of it.
[[nodiscard]] std::uint64_t Sum(std::span<const std::uint64_t> words);

}  // namespace bench
