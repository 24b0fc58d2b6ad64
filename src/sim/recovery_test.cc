#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "sim/recovery_run.h"
#include "types/text.h"

namespace manta::sim {
namespace {

std::string First(const RecoveryFigures& figures) {
  return figures.violations.empty() ? std::string() : figures.violations.front();
}

// MANTA_RECOVERY_SEEDS=100000 for a longer search, MANTA_RECOVERY_FIRST to begin elsewhere.
std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RecoveryRun, WithoutFaultsNothingRunsTwice) {
  RecoveryModel model;
  model.fault_us = 0;
  model.slow = 0;
  const RecoveryFigures figures = RunRecovery(model);
  EXPECT_EQ(First(figures), "");
  EXPECT_GT(figures.tasks, 20U);
  EXPECT_EQ(figures.runs, figures.tasks + model.trees * 6) << "with those that trees submit";
  EXPECT_GT(figures.calls, 30U);
  EXPECT_EQ(figures.rebuilt + figures.replayed + figures.answered_again, 0U);
}

TEST(RecoveryRun, TheSameSeedGivesTheSameTraceAndAnotherSeedAnother) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RecoveryFigures one = RunRecovery(RecoveryModelOf(seed));
    const RecoveryFigures two = RunRecovery(RecoveryModelOf(seed));
    EXPECT_EQ(one.trace, two.trace);
    EXPECT_EQ(one.events, two.events);
    EXPECT_NE(RunRecovery(RecoveryModelOf(seed + 30)).trace, one.trace);
  }
}

TEST(RecoveryRun, ThousandsOfSeedsLoseNothingDoNothingTwiceAndLeaveNothing) {
  const std::uint64_t first = FromEnvironment("MANTA_RECOVERY_FIRST", 1);
  const std::uint64_t seeds = FromEnvironment("MANTA_RECOVERY_SEEDS", 3'000);
  RecoveryFigures all;
  const std::clock_t begin = std::clock();
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const RecoveryFigures figures = RunRecovery(RecoveryModelOf(seed));
    ASSERT_EQ(First(figures), "") << "again: manta-sim recovery --seeds 1 --seed " << seed;
    all.Add(figures);
  }
  const double took = std::max(1.0, static_cast<double>(std::clock() - begin)) / CLOCKS_PER_SEC;
  const std::string told =
      Cat(seeds, " seeds: ", all.Describe(), "; ", static_cast<std::uint64_t>(all.seconds / took), " times real time");
  testing::Test::RecordProperty("figures", told);
  std::printf("%s\n", told.c_str());
  // It is no use if nothing happens.
  EXPECT_GT(all.runs, all.tasks + all.tasks / 4) << told;
  EXPECT_GT(all.rebuilt, seeds) << told;
  EXPECT_GT(all.replayed, 10 * seeds) << told;
  EXPECT_GT(all.answered_again, 3 * seeds) << told;
  EXPECT_GT(all.refused, seeds / 20) << told;
  EXPECT_GT(all.workers_killed, seeds) << told;
  EXPECT_GT(all.actors_killed, 2 * seeds) << told;
  EXPECT_GT(all.nodes_killed, seeds) << told;
  EXPECT_GT(all.links_broken, seeds) << told;
  EXPECT_GT(all.fenced, 0U) << told;
  EXPECT_GT(all.went_on, seeds / 20) << told;
}

struct Planted {
  const char* name;
  bool RecoveryFaults::* fault;
};
class PlantedRecoveryFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedRecoveryFault, IsFound) {
  constexpr std::uint64_t kSeeds = 1'000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    RecoveryModel model = RecoveryModelOf(seed);
    model.faults.*GetParam().fault = true;
    model.rest_us = 30'000'000;
    const RecoveryFigures figures = RunRecovery(model);
    if (figures.violations.empty()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    if (std::getenv("MANTA_RECOVERY_SEEDS") != nullptr) {
      std::printf("%s: seed %lu: %s\n", GetParam().name, static_cast<unsigned long>(seed), First(figures).c_str());
    }
    // And it is found again, the same way.
    EXPECT_EQ(RunRecovery(model).violations, figures.violations);
    model.faults = {};
    EXPECT_EQ(First(RunRecovery(model)), "") << "it is not the fault that was found";
    return;
  }
  FAIL() << GetParam().name << " was not found in " << kSeeds << " seeds";
}

#define PLANTED(name) \
  Planted { #name, &RecoveryFaults::name }
INSTANTIATE_TEST_SUITE_P(RecoveryRun, PlantedRecoveryFault,
                         testing::Values(PLANTED(forget_answers), PLANTED(early_checkpoint), PLANTED(keep_records),
                                         PLANTED(answer_before_copy), PLANTED(local_answers_first),
                                         PLANTED(lose_last_journal), PLANTED(rerun_unmarked), PLANTED(resend_backwards),
                                         PLANTED(blame_all), PLANTED(begin_for_ever), PLANTED(grant_twice),
                                         PLANTED(forget_lost_leases), PLANTED(rebuild_without_inputs),
                                         PLANTED(keep_lost_places), PLANTED(drop_lent_early),
                                         PLANTED(free_without_reading), PLANTED(ignore_fence),
                                         PLANTED(deaf_while_still), PLANTED(children_of_the_dead)),
                         [](const auto& what) { return std::string(what.param.name); });
#undef PLANTED

}  // namespace
}  // namespace manta::sim
