#include "tune/search/random.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace manta::tune {

std::array<std::uint32_t, 4> Philox(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t a = std::uint64_t{0xD2511F53} * counter[0];
    std::uint64_t b = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

Stream::Stream(std::uint64_t seed, std::int64_t trial, Purpose purpose)
    : counter_{0, static_cast<std::uint32_t>(purpose), static_cast<std::uint32_t>(trial),
               static_cast<std::uint32_t>(static_cast<std::uint64_t>(trial) >> 32)},
      key_{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

std::uint32_t Stream::Bits() {
  if (used_ == 4) {
    block_ = Philox(counter_, key_);
    ++counter_[0];
    used_ = 0;
  }
  return block_[used_++];
}

double Stream::Uniform() {
  std::uint64_t high = Bits();
  std::uint64_t bits = (high << 32) | Bits();
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

double Stream::Normal() { return NormalQuantile(Uniform() + 0x1p-54); }

std::uint32_t Stream::Below(std::uint32_t n) {
  std::uint32_t threshold = (0U - n) % n;  // Lemire's method: products below this would favour some values
  for (;;) {
    std::uint64_t product = std::uint64_t{Bits()} * n;
    if (static_cast<std::uint32_t>(product) >= threshold) return static_cast<std::uint32_t>(product >> 32);
  }
}

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }

// A rational approximation, then two steps of Halley's method, which reach full precision also in the tail.
double NormalQuantile(double p) {
  if (p <= 0) return -std::numeric_limits<double>::infinity();
  if (p >= 1) return std::numeric_limits<double>::infinity();
  if (p > 0.5) return -NormalQuantile(1 - p);
  // Start: a rational approximation in t = sqrt(-2 log p) with an error below 5e-4 (Hastings).
  double t = std::sqrt(-2 * std::log(p));
  double x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t;
  for (int i = 0; i < 2; ++i) {  // Halley's method: the error becomes its cube
    double error = (NormalCdf(x) - p) * std::sqrt(2 * std::numbers::pi) * std::exp(0.5 * x * x);
    x -= error / (1 + 0.5 * x * error);
  }
  return x;
}

}  // namespace manta::tune
