#include "sim/soak.h"

#include <gtest/gtest.h>

namespace manta::sim {
namespace {

TEST(Soak, GoesOnWhileItIsLet) {
  int left = 40;
  const SoakFigures<ChainFigures> soak = SoakChain(1'000, {}, [&] { return --left > 0; });
  EXPECT_EQ(soak.seeds, 40U);
  EXPECT_FALSE(soak.failed.has_value()) << soak.all.violations.front();
  EXPECT_GT(soak.all.openings, 0U) << "none with a standby";
  EXPECT_GT(soak.all.writes, 1'000U);
}

TEST(Soak, EndsAtTheFirstSeedThatFailsWhichReplays) {
  rules::ChainFaults faults;
  faults.answer_at_head = true;
  const SoakFigures<ChainFigures> soak = SoakChain(1, faults, [] { return true; });
  ASSERT_TRUE(soak.failed.has_value());
  EXPECT_EQ(*soak.failed, soak.seeds);
  EXPECT_TRUE(soak.replays);
  EXPECT_FALSE(soak.all.violations.empty());
}

TEST(Soak, FindsARecoveryThatGoesWrong) {
  int left = 20;
  const SoakFigures<RecoveryFigures> good = SoakRecovery(1'000, {}, [&] { return --left > 0; });
  EXPECT_EQ(good.seeds, 20U);
  EXPECT_FALSE(good.failed.has_value()) << good.all.violations.front();
  RecoveryFaults faults;
  faults.forget_answers = true;
  const SoakFigures<RecoveryFigures> bad = SoakRecovery(1, faults, [] { return true; });
  ASSERT_TRUE(bad.failed.has_value());
  EXPECT_TRUE(bad.replays);
}

}  // namespace
}  // namespace manta::sim
