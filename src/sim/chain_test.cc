#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "sim/chain_run.h"
#include "types/text.h"

namespace manta::sim {
namespace {

std::string First(const ChainFigures& figures) {
  return figures.violations.empty() ? std::string() : figures.violations.front();
}

ChainModel ModelOf(std::uint64_t seed) {
  ChainModel model;
  model.seed = seed;
  model.members = 2 + static_cast<std::uint32_t>(seed % 3);
  return model;
}
// With a second process that may be the master, which has its configuration in etcd.
ChainModel StandbyOf(std::uint64_t seed) {
  ChainModel model = ModelOf(seed);
  model.standby = true;
  return model;
}

// MANTA_CHAIN_SEEDS=100000 for a longer search, MANTA_CHAIN_FIRST to begin elsewhere.
std::uint64_t FromEnvironment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(ChainRun, WithoutFaultsEverythingIsAnsweredAndNothingIsFilledTwice) {
  ChainModel model;
  model.fault_us = 0;
  model.loss = model.doubled = model.slow = 0;
  const ChainFigures figures = RunChain(model);
  EXPECT_EQ(First(figures), "");
  EXPECT_GT(figures.writes, 100U);
  EXPECT_GT(figures.reads, 100U);
  EXPECT_EQ(figures.unknown + figures.refills, figures.unknown);
}

TEST(ChainRun, TheSameSeedGivesTheSameTraceAndAnotherSeedAnother) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const ChainFigures one = RunChain(ModelOf(seed));
    const ChainFigures two = RunChain(ModelOf(seed));
    EXPECT_EQ(one.trace, two.trace);
    EXPECT_EQ(one.events, two.events);
    EXPECT_NE(RunChain(ModelOf(seed + 3)).trace, one.trace);
    EXPECT_EQ(RunChain(StandbyOf(seed)).trace, RunChain(StandbyOf(seed)).trace);
  }
}

void SearchSeeds(ChainModel (*model_of)(std::uint64_t), std::uint64_t usual) {
  const std::uint64_t first = FromEnvironment("MANTA_CHAIN_FIRST", 1);
  const std::uint64_t seeds = FromEnvironment("MANTA_CHAIN_SEEDS", usual);
  ChainFigures all;
  const std::clock_t begin = std::clock();
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const ChainFigures figures = RunChain(model_of(seed));
    ASSERT_EQ(First(figures), "") << "seed " << seed;
    all.Add(figures);
  }
  const double took = std::max(1.0, static_cast<double>(std::clock() - begin)) / CLOCKS_PER_SEC;
  const std::string told =
      Cat(seeds, " seeds: ", all.Describe(), "; ", static_cast<std::uint64_t>(all.seconds / took), " times real time");
  testing::Test::RecordProperty("figures", told);
  std::printf("%s\n", told.c_str());
  // It is no use if nothing happens.
  EXPECT_GT(all.writes, 50 * seeds) << told;
  EXPECT_GT(all.reads, 50 * seeds) << told;
  EXPECT_GT(all.crashes, 4 * seeds) << told;
  EXPECT_GT(all.partitions, 3 * seeds) << told;
  EXPECT_GT(all.copied, seeds) << told;
  if (model_of(1).standby) {
    EXPECT_GT(all.openings, 2 * seeds) << told;
  }
}

TEST(ChainRun, ThousandsOfSeedsLoseNothingApplyNothingTwiceAndHaveOneTail) { SearchSeeds(ModelOf, 3'000); }

TEST(ChainRun, ThousandsOfSeedsWithAStandbyLoseNothingApplyNothingTwiceAndHaveOneTail) {
  SearchSeeds(StandbyOf, 2'000);
}

struct Planted {
  const char* name;
  bool rules::ChainFaults::* fault;
  ChainModel (*model_of)(std::uint64_t);
};
class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFound) {
  constexpr std::uint64_t kSeeds = 2'000;
  for (std::uint64_t seed = 1; seed <= kSeeds; ++seed) {
    ChainModel model = GetParam().model_of(seed);
    model.faults.*GetParam().fault = true;
    model.rest_us = 500'000;
    const ChainFigures figures = RunChain(model);
    if (figures.violations.empty()) continue;
    RecordProperty("seed", static_cast<int>(seed));
    if (std::getenv("MANTA_CHAIN_SEEDS") != nullptr) {
      std::printf("%s: seed %lu: %s\n", GetParam().name, static_cast<unsigned long>(seed), First(figures).c_str());
    }
    // And it is found again, the same way.
    EXPECT_EQ(RunChain(model).violations, figures.violations);
    return;
  }
  FAIL() << GetParam().name << " was not found in " << kSeeds << " seeds";
}

#define PLANTED(name) \
  Planted { #name, &rules::ChainFaults::name, ModelOf }
#define PLANTED_AT_SEAT(name) \
  Planted { #name, &rules::ChainFaults::name, StandbyOf }
INSTANTIATE_TEST_SUITE_P(ChainRun, PlantedFault,
                         testing::Values(PLANTED(read_without_lease), PLANTED(lease_from_receipt),
                                         PLANTED(read_not_rechecked), PLANTED(act_before_grant),
                                         PLANTED(forward_before_stored), PLANTED(answer_at_head),
                                         PLANTED(apply_retries), PLANTED(forget_on_follow), PLANTED(accept_old_epochs),
                                         PLANTED(accept_gaps), PLANTED(trust_joiner), PLANTED(serve_before_filled),
                                         PLANTED(grant_at_once), PLANTED(switch_before_filled),
                                         PLANTED(tell_before_saved), PLANTED(retry_under_new_number),
                                         PLANTED(keep_lease_over_epochs), PLANTED_AT_SEAT(grant_without_seat),
                                         PLANTED_AT_SEAT(save_without_compare), PLANTED_AT_SEAT(take_held_seat)),
                         [](const auto& what) { return std::string(what.param.name); });
#undef PLANTED
#undef PLANTED_AT_SEAT

}  // namespace
}  // namespace manta::sim
