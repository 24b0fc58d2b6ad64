#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "manta/tune/searchers.h"

namespace manta::tune {
namespace {

double X(const Config& config) { return std::get<double>(config.at("x")); }

// The share of proposals near x.
double Near(Searcher& searcher, TrialNumber from, double x) {
  int near = 0;
  for (TrialNumber trial = from; trial < from + 300; ++trial) {
    near += std::abs(X(std::get<Config>(searcher.Ask(trial))) - x) < 0.15 ? 1 : 0;
  }
  return near / 300.0;
}

TEST(Bohb, TheLargestBudgetWithEnoughResultsDecides) {
  // At budget 1 the best x is 0.2, at budget 3 it is 0.8. Few trials get to budget 3.
  auto searcher = MakeSearcher({{"x", Uniform(0, 1)}}, Bohb{.seed = 1});
  TrialNumber trial = 0;
  for (; trial < 60; ++trial) {
    double x = X(std::get<Config>(searcher->Ask(trial)));
    searcher->Report(trial, 1, std::abs(x - 0.2));
    searcher->Tell(trial, std::abs(x - 0.2));
  }
  EXPECT_GT(Near(*searcher, 1000, 0.2), 0.5);
  for (; trial < 120; ++trial) {
    double x = X(std::get<Config>(searcher->Ask(trial)));
    searcher->Report(trial, 1, std::abs(x - 0.2));
    searcher->Report(trial, 3, std::abs(x - 0.8));
    searcher->Tell(trial, std::abs(x - 0.8));
  }
  EXPECT_GT(Near(*searcher, 2000, 0.8), 0.5);
}

TEST(Bohb, AThirdOfTheTrialsIsRandom) {
  auto far = [](double fraction) {
    auto searcher = MakeSearcher({{"x", Uniform(0, 1)}}, Bohb{.seed = 1, .random_fraction = fraction});
    for (TrialNumber trial = 0; trial < 60; ++trial) {
      double x = X(std::get<Config>(searcher->Ask(trial)));
      searcher->Tell(trial, std::abs(x - 0.2));
    }
    int count = 0;
    for (TrialNumber trial = 100; trial < 400; ++trial) {
      count += X(std::get<Config>(searcher->Ask(trial))) > 0.6 ? 1 : 0;
    }
    return count / 300.0;
  };
  EXPECT_NEAR(far(1.0 / 3), 0.4 / 3, 0.05);
  EXPECT_NEAR(far(1), 0.4, 0.07);
}

TEST(Bohb, OptionsThatMakeNoSenseAreRefused) {
  Space space{{"x", Uniform(0, 1)}};
  EXPECT_THROW(MakeSearcher(space, Bohb{.top_n_percent = 0}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, Bohb{.num_samples = 0}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, Bohb{.random_fraction = 2}), std::invalid_argument);
}

TEST(Nsga2, TwoObjectivesApproachTheWholeParetoFront) {
  // The front of ZDT1 in four dimensions is f2 = 1 - sqrt(f1), where all keys but the first are 0.
  Space space{{"x", Uniform(0, 1)}, {"a", Uniform(0, 1)}, {"b", Uniform(0, 1)}, {"c", Uniform(0, 1)}};
  auto searcher = MakeSearcher(space, Nsga2{.seed = 1, .modes = {Mode::kMin, Mode::kMax}, .population = 20});
  double late = 0;
  double least = 1;
  double most = 0;
  for (TrialNumber trial = 0; trial < 600; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    double x = X(config);
    double sum = 0;
    for (const char* key : {"a", "b", "c"}) sum += std::get<double>(config.at(key));
    double g = 1 + 3 * sum;
    searcher->Tell(trial, {x, -g * (1 - std::sqrt(x / g))});
    if (trial < 500) continue;
    late += sum / 100;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_LT(late, 0.5) << "random points have 1.5";
  EXPECT_LT(least, 0.1);
  EXPECT_GT(most, 0.6);
  EXPECT_THROW(MakeSearcher(space, Nsga2{.population = 3}), std::invalid_argument);
}

}  // namespace
}  // namespace manta::tune
