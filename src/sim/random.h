// Random is a small seeded generator (xoshiro256**): the same seed gives the same numbers on every machine and with
// every standard library, which std:: distributions do not promise. Not for secrets.
#pragma once

#include <cmath>
#include <cstdint>

#include "types/id.h"

namespace manta::sim {

// GCC and clang have it on every 64-bit machine; the pedantic warning is about its name.
__extension__ using Wide = unsigned __int128;

class Random {
 public:
  explicit Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) {
      seed += 0x9e3779b97f4a7c15ULL;
      word = Mix(seed);
    }
  }

  std::uint64_t Next() {
    const std::uint64_t out = Rotate(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = Rotate(state_[3], 45);
    return out;
  }
  // Below `limit`, which is not 0.
  std::uint64_t Below(std::uint64_t limit) {
    return static_cast<std::uint64_t>((static_cast<Wide>(Next()) * limit) >> 64);
  }
  // In (0, 1].
  double Unit() { return static_cast<double>((Next() >> 11) + 1) * 0x1p-53; }
  double Exponential(double mean) { return -mean * std::log(Unit()); }
  // Heavy-tailed, of that mean: most are short, one in a hundred lasts ten times the mean.
  double Heavy(double mean) {
    constexpr double kShape = 1.5;
    const double least = mean * (kShape - 1) / kShape;
    return std::fmin(least / std::pow(Unit(), 1 / kShape), 100 * mean);
  }

 private:
  static std::uint64_t Rotate(std::uint64_t x, int by) { return (x << by) | (x >> (64 - by)); }
  std::uint64_t state_[4] = {};
};

}  // namespace manta::sim
