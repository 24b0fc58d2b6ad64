#include "tune/search/sequences.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "manta/tune/search.h"

namespace manta::tune {
namespace {

// A hash of the bits of the first 1,000 points in 64 dimensions, as computed from SciPy 1.17's points.
template <class Function>
std::uint64_t HashOf(Function point) {
  std::uint64_t hash = 0;
  for (std::uint64_t index = 0; index < 1000; ++index) {
    for (double x : point(index, 64)) hash = (hash * 0x100000001b3) ^ std::bit_cast<std::uint64_t>(x);
  }
  return hash;
}

struct Stored {
  std::uint64_t index;
  int dimension;
  double value;
};

TEST(Sobol, ThePlainPointsEqualSciPysBitForBit) {
  for (Stored s : std::vector<Stored>{{1, 0, 0x1p-1},
                                      {2, 1, 0x1p-2},
                                      {3, 2, 0x1.8p-1},
                                      {5, 7, 0x1.8p-2},
                                      {100, 5, 0x1.7cp-1},
                                      {511, 63, 0x1.01p-1},
                                      {999, 31, 0x1.54p-4},
                                      {777, 0, 0x1.628p-1},
                                      {640, 17, 0x1.f58p-1},
                                      {998, 62, 0x1.24p-4}}) {
    EXPECT_EQ(SobolPoint(s.index, 64)[s.dimension], s.value) << s.index << " " << s.dimension;
  }
  EXPECT_EQ(HashOf(SobolPoint), 0xdd1e800000000000U);
}

TEST(Halton, ThePlainPointsEqualSciPysBitForBit) {
  for (Stored s : std::vector<Stored>{{2, 1, 0x1.5555555555555p-1},
                                      {5, 7, 0x1.0d79435e50d79p-2},
                                      {100, 5, 0x1.77ab2bedd28e6p-1},
                                      {511, 63, 0x1.494407c814230p-1},
                                      {998, 62, 0x1.00ddd1069ff52p-2}}) {
    EXPECT_EQ(HaltonPoint(s.index, 64)[s.dimension], s.value) << s.index << " " << s.dimension;
  }
  EXPECT_EQ(HashOf(HaltonPoint), 0x1dc3c95cbbe1f6eaU);
}

TEST(Sobol, ScramblingKeepsOnePointInEveryInterval) {
  for (int d = 0; d < 8; ++d) {
    std::vector<bool> seen(256);
    for (std::uint64_t i = 0; i < 256; ++i) {
      seen[static_cast<std::size_t>(ScrambledSobolPoint(i, 8, 5)[d] * 256)] = true;
    }
    EXPECT_EQ(std::ranges::count(seen, true), 256) << d;
  }
  EXPECT_NE(ScrambledSobolPoint(0, 2, 5), ScrambledSobolPoint(0, 2, 6));
}

TEST(Halton, ScramblingKeepsOnePointInEveryInterval) {
  std::vector<bool> seen(81);
  for (std::uint64_t i = 0; i < 81; ++i) seen[static_cast<std::size_t>(ScrambledHaltonPoint(i, 2, 5)[1] * 81)] = true;
  EXPECT_EQ(std::ranges::count(seen, true), 81);
}

TEST(Sobol, ASearcherTriesItsPointsFirstAndSkipsThoseWithAReward) {
  auto searcher = MakeSearcher(
      {{"x", Uniform(0, 1)}},
      Sobol{.points_to_evaluate = {{{"x", 0.1}}, {{"x", 0.2}}}, .evaluated_rewards = {3.0}, .scramble = false});
  EXPECT_EQ(std::get<Config>(searcher->Ask(0)).at("x"), Value(0.2));
  EXPECT_EQ(std::get<Config>(searcher->Ask(1)).at("x"), Value(0.5));
  EXPECT_THROW(MakeSearcher({{"x", Uniform(0, 1)}}, Sobol{.evaluated_rewards = {1.0}}), std::invalid_argument);
}

}  // namespace
}  // namespace manta::tune
