#include "control/rhythm.h"

#include <gtest/gtest.h>

namespace manta::control {
namespace {

constexpr std::int64_t kSoon = 150;

TEST(RhythmTest, AnAnswerIsLookedForUntilOneComesLate) {
  Rhythm rhythm(kSoon);
  EXPECT_EQ(rhythm.Asked(1'000'000, true), kSoon);
  EXPECT_EQ(rhythm.Answered(1'000'000 + kSoon, 1'000'000), 0);
  EXPECT_EQ(rhythm.Asked(2'000'000, true), 0);
  EXPECT_EQ(rhythm.Answered(2'000'000 + kSoon - 1, 2'000'000), 0);
  EXPECT_EQ(rhythm.Asked(3'000'000, true), kSoon);
}

TEST(RhythmTest, TheNextRequestIsLookedForOfAClientWhoAskedAtOnceTheLastTime) {
  Rhythm rhythm(kSoon);
  std::int64_t now = 1'000'000;
  (void)rhythm.Asked(now, true);
  EXPECT_EQ(rhythm.Answered(now += 100, now), 0) << "nobody knows yet whether it asks again";
  (void)rhythm.Asked(now += 20, true);
  EXPECT_GT(rhythm.Answered(now += 100, now), 0);
  (void)rhythm.Asked(now += 5'000, true);
  EXPECT_EQ(rhythm.Answered(now += 100, now), 0) << "it thought for 5 ms";
}

TEST(RhythmTest, WithoutATimeNothingIsLookedFor) {
  Rhythm rhythm(0);
  std::int64_t now = 1'000'000;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(rhythm.Asked(now += 20, true), 0);
    EXPECT_EQ(rhythm.Answered(now += 100, now), 0);
  }
}

TEST(RhythmTest, RequestsBesideOthersSayNothingAboutTheClient) {
  Rhythm rhythm(kSoon);
  (void)rhythm.Asked(1'000'000, true);
  (void)rhythm.Asked(1'000'001, false);
  EXPECT_EQ(rhythm.Answered(1'000'100, 1'000'001), 0);
}

}  // namespace
}  // namespace manta::control
