#include "tune/search/sequences.h"

#include <array>
#include <bit>
#include <numeric>
#include <span>

#include "tune/search/points.h"
#include "tune/search/sobol_numbers.h"

namespace manta::tune {
namespace {

constexpr int kBits = 30;             // as SciPy's default
constexpr int kScrambledDigits = 54;  // of base 2; larger bases need fewer

using Directions = std::array<std::array<std::uint32_t, kBits>, kMaxSequenceDimensions>;

constexpr Directions MakeDirections() {
  Directions result{};
  for (int bit = 0; bit < kBits; ++bit) result[0][bit] = 1U << (kBits - 1 - bit);
  for (int d = 1; d < kMaxSequenceDimensions; ++d) {
    const SobolRow& row = kSobolRows[d];
    int degree = std::bit_width(row.polynomial) - 1;
    std::array<std::uint32_t, kBits> m{};
    for (int bit = 0; bit < kBits; ++bit) {
      if (bit < degree) {
        m[bit] = row.initial[bit];
        continue;
      }
      std::uint32_t value = m[bit - degree] ^ (m[bit - degree] << degree);
      for (int k = 1; k < degree; ++k) {
        if ((row.polynomial >> (degree - k)) & 1) value ^= m[bit - k] << k;
      }
      m[bit] = value;
    }
    for (int bit = 0; bit < kBits; ++bit) result[d][bit] = m[bit] << (kBits - 1 - bit);
  }
  return result;
}

constexpr Directions kDirections = MakeDirections();

// Index and the result count in Gray code, as SciPy does: the i-th point has the directions of the bits of i ^ (i >>
// 1).
std::uint32_t SobolBits(std::uint64_t index, int dimension) {
  std::uint32_t bits = 0;
  auto gray = static_cast<std::uint32_t>((index ^ (index >> 1)) & ((1U << kBits) - 1));
  for (; gray != 0; gray &= gray - 1) bits ^= kDirections[dimension][std::countr_zero(gray)];
  return bits;
}

std::uint32_t Mix(std::uint32_t x) {  // a finalizer with full avalanche
  x ^= x >> 16;
  x *= 0x7feb352dU;
  x ^= x >> 15;
  x *= 0x846ca68bU;
  return x ^ (x >> 16);
}

// Flips each bit by a hash of the seed and of the more significant bits: a nested uniform scrambling.
std::uint32_t Scramble(std::uint32_t bits, std::uint32_t key) {
  std::uint32_t result = 0;
  for (int bit = 31; bit >= 0; --bit) {
    std::uint32_t above = bit == 31 ? 0 : bits >> (bit + 1);
    std::uint32_t flip = Mix(Mix(above ^ key) + static_cast<std::uint32_t>(bit)) & 1;
    result |= (((bits >> bit) & 1) ^ flip) << bit;
  }
  return result;
}

constexpr std::array<std::uint16_t, kMaxSequenceDimensions> MakePrimes() {
  std::array<std::uint16_t, kMaxSequenceDimensions> primes{};
  int count = 0;
  for (std::uint16_t n = 2; count < kMaxSequenceDimensions; ++n) {
    bool prime = true;
    for (int i = 0; i < count; ++i) prime = prime && n % primes[i] != 0;
    if (prime) primes[count++] = n;
  }
  return primes;
}

constexpr auto kPrimes = MakePrimes();

}  // namespace

std::vector<double> SobolPoint(std::uint64_t index, int dimensions) {
  std::vector<double> point(dimensions);
  for (int d = 0; d < dimensions; ++d) point[d] = SobolBits(index, d) * (1.0 / (1U << kBits));
  return point;
}

std::vector<double> ScrambledSobolPoint(std::uint64_t index, int dimensions, std::uint64_t seed) {
  std::vector<double> point(dimensions);
  for (int d = 0; d < dimensions; ++d) {
    std::uint32_t key = Stream(seed, d, Purpose::kScramble).Bits();
    point[d] = Scramble(SobolBits(index, d) << (32 - kBits), key) * 0x1p-32;
  }
  return point;
}

std::vector<double> HaltonPoint(std::uint64_t index, int dimensions) {
  std::vector<double> point(dimensions);
  for (int d = 0; d < dimensions; ++d) {
    double weight = 1.0 / kPrimes[d];
    for (std::uint64_t rest = index; rest != 0; rest /= kPrimes[d], weight /= kPrimes[d]) {
      point[d] += static_cast<double>(rest % kPrimes[d]) * weight;
    }
  }
  return point;
}

std::vector<double> ScrambledHaltonPoint(std::uint64_t index, int dimensions, std::uint64_t seed) {
  std::vector<double> point(dimensions);
  for (int d = 0; d < dimensions; ++d) {
    std::uint32_t base = kPrimes[d];
    Stream stream(seed, d, Purpose::kScramble);
    std::vector<std::uint32_t> digits(base);
    double weight = 1.0 / base;
    std::uint64_t rest = index;
    for (double used = kScrambledDigits; used > 0; used -= std::bit_width(base) - 1, weight /= base, rest /= base) {
      std::iota(digits.begin(), digits.end(), 0U);
      for (std::uint32_t i = base - 1; i > 0; --i) std::swap(digits[i], digits[stream.Below(i + 1)]);
      point[d] += digits[rest % base] * weight;
    }
    point[d] = std::min(point[d], 1 - 0x1p-53);
  }
  return point;
}

namespace {

template <class Options>
class Sequence : public PointsSearcher {
 public:
  using Function = std::vector<double> (*)(std::uint64_t, int);
  using Scrambled = std::vector<double> (*)(std::uint64_t, int, std::uint64_t);
  Sequence(const Space& space, const Options& options, Function plain, Scrambled scrambled)
      : PointsSearcher(space, options.seed, {options.mode}, options.points_to_evaluate, options.evaluated_rewards),
        scramble_(options.scramble),
        plain_(plain),
        scrambled_(scrambled) {
    if (encoding().size() > kMaxSequenceDimensions) {
      throw SpaceError("the space has " + std::to_string(encoding().size()) + " keys, a sequence has at most " +
                       std::to_string(kMaxSequenceDimensions) + " dimensions. Use random search.");
    }
  }

 protected:
  // The index is the trial's number, so that a trial's point does not depend on other trials.
  std::vector<double> Suggest(TrialNumber trial) override {
    auto index = static_cast<std::uint64_t>(trial);
    int dimensions = static_cast<int>(encoding().size());
    return scramble_ ? scrambled_(index, dimensions, seed()) : plain_(index, dimensions);
  }

 private:
  bool scramble_;
  Function plain_;
  Scrambled scrambled_;
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Sobol& options) {
  return std::make_unique<Sequence<Sobol>>(space, options, SobolPoint, ScrambledSobolPoint);
}

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Halton& options) {
  return std::make_unique<Sequence<Halton>>(space, options, HaltonPoint, ScrambledHaltonPoint);
}

}  // namespace manta::tune
