// Stream is a sequence of random numbers that is a function of (seed, trial, purpose) alone: Philox4x32-10, a
// counter-based generator (Salmon et al., 2011). No state is shared between streams, so the numbers of one trial do not
// depend on when other trials are asked for.
#pragma once

#include <array>
#include <cstdint>

namespace manta::tune {

enum class Purpose : std::uint32_t { kSample, kCandidates, kModel, kScramble, kBracket, kExplore };

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

class Stream {
 public:
  Stream(std::uint64_t seed, std::int64_t trial, Purpose purpose);
  std::uint32_t Bits();
  double Uniform();                      // [0, 1), 53 bits
  double Normal();                       // by the inverse of the distribution function: one uniform number each
  std::uint32_t Below(std::uint32_t n);  // [0, n), unbiased; n > 0

 private:
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> block_{};
  unsigned used_ = 4;
};

double NormalCdf(double x);
double NormalQuantile(double p);  // p in [0, 1]; the ends give -inf and inf

}  // namespace manta::tune
