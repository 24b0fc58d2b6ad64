#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "manta/tune/population.h"
#include "tune/search/time_gp.h"
#include "tune/search/traces.h"

namespace manta::tune {
namespace {

const std::vector<std::vector<double>> kPoints = {
    {0, 0.1, 0.2}, {0.2, 0.5, 0.9}, {0.4, 0.3, 0.4}, {0.7, 0.8, 0.1}, {1.0, 0.9, 0.6}};
const std::vector<double> kValues = {0.5, -1.0, 0.2, 1.5, -0.3};

TEST(TimeGp, PredictsAsScikitLearnWithRaysKernel) {
  TimeGp one(kPoints, kValues, {1, 1, 0.1}, 1e-4);
  auto at = one.Predict(std::vector{0.9, 0.4, 0.3});
  EXPECT_NEAR(at.mean, 0.5698347558693382, 1e-9);
  EXPECT_NEAR(at.variance, 0.04495322754250064, 1e-9);
  EXPECT_NEAR(one.log_likelihood(), -5.78945449811591, 1e-9);
  TimeGp two(kPoints, kValues, {2, 0.3, 0.4}, 1e-4);
  at = two.Predict(std::vector{0.9, 0.4, 0.3});
  EXPECT_NEAR(at.mean, 0.5659531072869942, 1e-9);
  EXPECT_NEAR(at.variance, 0.5014970971092262, 1e-9);
  EXPECT_NEAR(two.log_likelihood(), -6.710880247955741, 1e-9);
}

TEST(TimeGp, FitReachesTheLikelihoodThatScikitLearnReaches) {
  EXPECT_GE(TimeGp::Fit(kPoints, kValues, 1e-4).log_likelihood(), -5.205575681579079 - 0.01);
}

TEST(TimeGp, EqualPointsAreNoProblem) {
  TimeGp gp({{0, 0.5}, {0, 0.5}, {0, 0.5}}, {1, 1, 1}, {}, 1e-20);
  EXPECT_NEAR(gp.Predict(std::vector{0.0, 0.5}).mean, 1, 0.1);
}

// The score rises by 1 - (lr - 0.7)^2 per step, so the best value is 0.7.
struct Race {
  static constexpr int kTrials = 4;
  Pb2 options{.mode = Mode::kMax, .perturbation_interval = 1, .bounds = {{"lr", {0.0, 1.0}}}, .synch = true, .seed = 3};
  std::unique_ptr<Scheduler> scheduler;
  TraceStates states;
  double lr[kTrials], score[kTrials] = {};
  std::vector<double> chosen;
  Race() : scheduler(MakeScheduler(options)) {
    for (int i = 0; i < kTrials; ++i) {
      lr[i] = 0.1 + 0.1 * i;
      (void)scheduler->OnAdd(i, {{"lr", lr[i]}});
      states.of[i] = TrialState::kRunning;
    }
  }
  void Run(int from, int to) {
    for (int time = from; time < to; ++time) {
      for (int i = 0; i < kTrials; ++i) {
        score[i] += 1 - (lr[i] - 0.7) * (lr[i] - 0.7);
        Decision decision = scheduler->OnResult(i, time, score[i], states);
        states.of[i] = TrialState::kPaused;
        if (decision.exploit) Clone(i, *decision.exploit);
        for (const Order& order : decision.orders) Clone(order.trial, order.exploit.value());
      }
      while (auto trial = scheduler->Choose(states)) states.of[*trial] = TrialState::kRunning;
    }
  }
  void Clone(TrialNumber trial, const Exploit& exploit) {
    lr[trial] = std::get<double>(exploit.config.at("lr"));
    score[trial] = score[exploit.donor];
    chosen.push_back(lr[trial]);
  }
};

TEST(Pb2, TheModelFindsTheBestValueOutsideOfTheStartingOnes) {
  Race race;
  race.Run(1, 20);
  ASSERT_EQ(race.chosen.size(), 19U);
  std::vector<double> errors;
  for (double lr : race.chosen) {
    EXPECT_TRUE(lr >= 0 && lr <= 1) << lr;
    errors.push_back(std::abs(lr - 0.7));
  }
  // Now and then a bound is tried; the others are close. Ray's PB2 behaves so, too.
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.05) << ::testing::PrintToString(race.chosen);
}

TEST(Pb2, ContinuesExactlyAfterSaveAndLoad) {
  Race one;
  Race two;
  one.Run(1, 8);
  two.Run(1, 8);
  std::string saved = two.scheduler->Save();
  two.scheduler = MakeScheduler(two.options);
  two.scheduler->Load(saved);
  one.Run(8, 14);
  two.Run(8, 14);
  EXPECT_EQ(one.chosen, two.chosen);
  EXPECT_FALSE(one.chosen.empty());
}

TEST(Pb2, WholeNumbersStayWholeAndMissingKeysAreDrawn) {
  auto pb2 =
      MakeScheduler(Pb2{.mode = Mode::kMax, .perturbation_interval = 1, .bounds = {{"n", {2, 9}}, {"x", {3, 4}}}});
  TraceStates states;
  for (int i = 0; i < 2; ++i) {
    auto config = pb2->OnAdd(i, {{"n", std::int64_t{4 + i}}}).value();
    EXPECT_GE(std::get<double>(config.at("x")), 3);
    EXPECT_LE(std::get<double>(config.at("x")), 4);
    states.of[i] = TrialState::kRunning;
  }
  bool changed = false;
  for (int time = 1; time < 6; ++time) {
    (void)pb2->OnResult(0, time, time, states);
    Decision decision = pb2->OnResult(1, time, 0, states);
    if (!decision.exploit) continue;
    auto n = std::get<std::int64_t>(decision.exploit->config.at("n"));
    EXPECT_TRUE(n >= 2 && n <= 9) << n;
    changed = true;
  }
  EXPECT_TRUE(changed);
}

TEST(Pb2, BadBoundsAreRefused) {
  EXPECT_THROW(MakeScheduler(Pb2{}), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(Pb2{.bounds = {{"lr", {1, 0}}}}), std::invalid_argument);
  auto pb2 = MakeScheduler(Pb2{.perturbation_interval = 1, .bounds = {{"lr", {0, 1}}}});
  (void)pb2->OnAdd(0, {{"lr", "fast"}});
  EXPECT_THROW((void)pb2->OnResult(0, 1, 1, TraceStates()), std::invalid_argument);
}

}  // namespace
}  // namespace manta::tune
