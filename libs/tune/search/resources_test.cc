#include "manta/tune/resources.h"

#include <gtest/gtest.h>

#include "tune/search/traces.h"

namespace manta::tune {
namespace {

TEST(ResourceChanging, FreeCpusAreSharedEvenlyAndGivenBack) {
  auto scheduler = MakeScheduler(ResourceChanging{}, nullptr);
  TraceStates states;
  states.cpus = 4;
  for (TrialNumber trial : {0, 1}) {
    (void)scheduler->OnAdd(trial);
    states.of[trial] = TrialState::kRunning;
  }
  Decision grown = scheduler->OnResult(0, 1, 0.5, states);
  EXPECT_EQ(grown.kind, Decision::Kind::kPause);
  EXPECT_EQ(grown.resources, (Bundles{{{"CPU", 2}}}));
  states.of[0] = TrialState::kPaused;
  EXPECT_EQ(scheduler->Choose(states), 0);
  states.of[0] = TrialState::kRunning;
  EXPECT_EQ(scheduler->OnResult(0, 2, 0.5, states).kind, Decision::Kind::kContinue);
  states.cpus = 2;  // a node was lost
  EXPECT_EQ(scheduler->OnResult(0, 3, 0.5, states).resources, (Bundles{{{"CPU", 1}}}));
}

TEST(ResourceChanging, FreeCpusGoToTheBestTrialAsFurtherBundles) {
  ResourceChanging options;
  options.base = {{{"CPU", 1}, {"disk", 1}}};
  options.allocation = DistributeResourcesToTopJob{{.add_bundles = true, .increase_by = {{"CPU", 1}}}, Mode::kMin};
  auto scheduler = MakeScheduler(options, nullptr);
  TraceStates states;
  states.cpus = 4;
  for (TrialNumber trial : {0, 1}) {
    (void)scheduler->OnAdd(trial);
    states.of[trial] = TrialState::kRunning;
  }
  (void)scheduler->OnResult(1, Report{1, 0.1, 0}, states);
  EXPECT_EQ(scheduler->OnResult(0, 1, 0.5, states).kind, Decision::Kind::kContinue);
  EXPECT_EQ(scheduler->OnResult(1, 2, 0.1, states).resources,
            (Bundles{{{"CPU", 1}, {"disk", 1}}, {{"CPU", 1}}, {{"CPU", 1}}}));
}

TEST(ResourceChanging, AFunctionOfTheUserDecidesWhereTheBaseSchedulerContinues) {
  ResourceChanging options;
  options.allocation = AllocateResources([](TrialNumber, const Report& report, const Bundles&) {
    return std::optional<Bundles>({{{"CPU", static_cast<double>(report.iteration)}}});
  });
  auto scheduler = MakeScheduler(options, MakeScheduler(Asha{.max_t = 3}));
  TraceStates states;
  (void)scheduler->OnAdd(0);
  EXPECT_EQ(scheduler->OnResult(0, 1, 1, states).kind, Decision::Kind::kContinue);  // has one CPU
  EXPECT_EQ(scheduler->OnResult(0, 2, 1, states).resources, (Bundles{{{"CPU", 2}}}));
  EXPECT_EQ(scheduler->OnResult(0, 3, 1, states).kind, Decision::Kind::kStop);
}

TEST(ResourceChanging, APausedTrialOfAHyperBandBracketStartsAgain) {
  auto scheduler = MakeScheduler(ResourceChanging{}, MakeScheduler(HyperBand{}));
  TraceStates states;
  states.cpus = 2;
  (void)scheduler->OnAdd(0);
  states.of[0] = TrialState::kRunning;
  EXPECT_TRUE(scheduler->OnResult(0, 1, 1, states).resources);
  states.of[0] = TrialState::kPaused;
  EXPECT_EQ(scheduler->Choose(states), 0);
}

TEST(ResourceChanging, OneBundleGrowsOnlyAlone) {
  ResourceChanging options;
  options.base = {{{"CPU", 1}}, {{"CPU", 1}}};
  EXPECT_THROW(MakeScheduler(options, nullptr), std::invalid_argument);
  options.allocation = DistributeResources{.add_bundles = true, .increase_by = {{"disk", 1}}};
  EXPECT_THROW(MakeScheduler(options, nullptr), std::invalid_argument);
}

}  // namespace
}  // namespace manta::tune
