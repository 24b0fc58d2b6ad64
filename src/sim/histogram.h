// Histogram counts durations in buckets that grow by 1/16 each: a quantile is right within 6%, from a nanosecond to
// years, in a few kilobytes.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace manta::sim {

class Histogram {
 public:
  void Add(std::int64_t ns) {
    const auto value = static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 0));
    ++buckets_[Bucket(value)];
    ++count_;
    sum_ += static_cast<double>(value);
    most_ = std::max(most_, value);
  }
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double MeanUs() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_) / 1e3; }
  [[nodiscard]] double MostUs() const { return static_cast<double>(most_) / 1e3; }
  // The upper end of the bucket; 0 <= part <= 1.
  [[nodiscard]] double QuantileUs(double part) const {
    const auto rank = static_cast<std::uint64_t>(part * static_cast<double>(count_));
    std::uint64_t seen = 0;
    for (std::uint32_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen > rank) return std::min(static_cast<double>(Upper(i)), static_cast<double>(most_)) / 1e3;
    }
    return MostUs();
  }

 private:
  static constexpr std::uint32_t kBits = 4;
  static std::uint32_t Bucket(std::uint64_t value) {
    if (value < (1U << kBits)) return static_cast<std::uint32_t>(value);
    const auto shift = static_cast<std::uint32_t>(std::bit_width(value)) - kBits - 1;
    return (shift << kBits) + static_cast<std::uint32_t>(value >> shift);
  }
  static std::uint64_t Upper(std::uint32_t bucket) {
    if (bucket < (2U << kBits)) return bucket;
    const std::uint32_t shift = (bucket >> kBits) - 1;
    return ((static_cast<std::uint64_t>(bucket & ((1U << kBits) - 1)) + (1U << kBits) + 1) << shift) - 1;
  }

  std::array<std::uint64_t, 64U << kBits> buckets_{};
  std::uint64_t count_ = 0;
  std::uint64_t most_ = 0;
  double sum_ = 0;
};

}  // namespace manta::sim
