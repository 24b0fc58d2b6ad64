#include "base/digest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "types/id.h"

namespace manta::base {
namespace {

constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15ULL;
constexpr std::size_t kLanes = 8;

// A bijection of `lane` for each `word`, so that one changed word always changes the lane.
std::uint64_t Step(std::uint64_t lane, std::uint64_t word) { return std::rotl((lane ^ word) * kOdd, 29); }

}  // namespace

std::uint64_t DigestBytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = Mix(seed ^ Mix(left + 1));
  if (left >= kLanes * 8) {
    std::array<std::uint64_t, kLanes> lanes{};
    for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = hash + i * kOdd;
    for (; left >= kLanes * 8; left -= kLanes * 8, at += kLanes * 8) {
      std::array<std::uint64_t, kLanes> words;
      std::memcpy(words.data(), at, sizeof words);
      for (std::size_t i = 0; i < kLanes; ++i) lanes[i] = Step(lanes[i], words[i]);
    }
    for (const std::uint64_t lane : lanes) hash = Step(hash, Mix(lane));
  }
  while (left > 0) {
    std::uint64_t word = 0;
    const std::size_t size = std::min<std::size_t>(8, left);
    std::memcpy(&word, at, size);
    hash = Step(hash, word);
    at += size;
    left -= size;
  }
  return Mix(hash);
}

}  // namespace manta::base
