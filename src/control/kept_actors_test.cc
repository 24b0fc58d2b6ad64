#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "control/kept_actors_world.h"
#include "types/text.h"

namespace manta::control {
namespace {

std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

std::string First(const HomeFigures& figures) { return figures.violations.empty() ? "" : figures.violations.front(); }

// MANTA_HOMES_SEEDS=100000 for a longer search, MANTA_HOMES_FIRST to begin elsewhere.
TEST(KeptActors, WhateverBecomesOfHomesEveryCallActsOnceAndItsAnswerStaysTrue) {
  const std::uint64_t first = FromEnvironment("MANTA_HOMES_FIRST", 1);
  const std::uint64_t seeds = FromEnvironment("MANTA_HOMES_SEEDS", 300);
  HomeFigures all;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const HomeFigures figures = HomeWorld(seed, {}).Run();
    ASSERT_EQ(First(figures), "") << "again: MANTA_HOMES_SEEDS=1 MANTA_HOMES_FIRST=" << seed;
    all.Add(figures);
  }
  std::printf("%s\n", Cat(seeds, " seeds: ", all.Describe()).c_str());
  if (seeds < 100) return;
  // It is no use if nothing happens.
  EXPECT_GT(all.adopted, 2 * seeds);
  EXPECT_GT(all.left, seeds / 2);
  EXPECT_GT(all.stayed, 0U);
  EXPECT_GT(all.again, seeds);
  EXPECT_GT(all.crashed, seeds);
  EXPECT_GT(all.heads, seeds);
  EXPECT_GT(all.still, seeds / 10);
  EXPECT_GT(all.went_on, 0U);
}

TEST(KeptActors, TheSameSeedIsTheSameRun) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(HomeWorld(seed, {}).Run().Describe(), HomeWorld(seed, {}).Run().Describe());
  }
}

struct Planted {
  const char* name;
  bool HomeBugs::* bug;
};
class PlantedHomeBug : public testing::TestWithParam<Planted> {};

TEST_P(PlantedHomeBug, IsFound) {
  constexpr std::uint64_t kSeeds = 1'000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    HomeBugs bugs;
    bugs.*GetParam().bug = true;
    const HomeFigures figures = HomeWorld(seed, bugs).Run();
    if (figures.violations.empty()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    if (std::getenv("MANTA_HOMES_SEEDS") != nullptr) {
      std::printf("%s: seed %lu: %s\n", GetParam().name, static_cast<unsigned long>(seed), First(figures).c_str());
    }
    return;
  }
  FAIL() << GetParam().name << " was not found in " << kSeeds << " seeds";
}

#define PLANTED(name) \
  Planted { #name, &HomeBugs::name }
INSTANTIATE_TEST_SUITE_P(KeptActors, PlantedHomeBug,
                         testing::Values(PLANTED(answers_before_kept), PLANTED(leaves_alive), PLANTED(takes_refusals),
                                         PLANTED(forgets_the_end), PLANTED(forgets_what_it_has_run)),
                         [](const auto& what) { return std::string(what.param.name); });
#undef PLANTED

}  // namespace
}  // namespace manta::control
