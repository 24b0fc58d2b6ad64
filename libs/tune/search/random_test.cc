#include "tune/search/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace manta::tune {
namespace {

TEST(Random, PhiloxGivesThePublishedNumbers) {  // the known answers of Random123
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}),
            (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (std::array<std::uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, AStreamDependsOnSeedTrialAndPurposeOnly) {
  auto first = [](std::uint64_t seed, std::int64_t trial, Purpose purpose) {
    return Stream(seed, trial, purpose).Uniform();
  };
  EXPECT_EQ(first(1, 2, Purpose::kSample), first(1, 2, Purpose::kSample));
  EXPECT_NE(first(1, 2, Purpose::kSample), first(2, 2, Purpose::kSample));
  EXPECT_NE(first(1, 2, Purpose::kSample), first(1, 3, Purpose::kSample));
  EXPECT_NE(first(1, 2, Purpose::kSample), first(1, 2, Purpose::kModel));
}

TEST(Random, TheNormalQuantileEqualsSciPys) {
  EXPECT_NEAR(NormalQuantile(0.3), -0.5244005127080409, 1e-14);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963984540054, 1e-14);
  EXPECT_NEAR(NormalQuantile(1e-10), -6.361340902404056, 1e-12);
}

TEST(Random, BelowIsEven) {
  Stream stream(7, 0, Purpose::kSample);
  std::vector<int> counts(3);
  for (int i = 0; i < 30000; ++i) ++counts[stream.Below(3)];
  for (int count : counts) EXPECT_NEAR(count, 10000, 400);
}

}  // namespace
}  // namespace manta::tune
