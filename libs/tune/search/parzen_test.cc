#include "tune/search/parzen.h"

#include <gtest/gtest.h>

#include <cmath>

#include "manta/tune/searchers.h"
#include "tune/search/pareto.h"

namespace manta::tune {
namespace {

Parzen Make(const Encoding& encoding, const std::vector<std::vector<float>>& points, float width) {
  auto n = static_cast<Eigen::Index>(points.size());
  auto d = static_cast<Eigen::Index>(encoding.size());
  PointTable table(n, d);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j < d; ++j) table(i, j) = points[i][j];
  }
  std::vector<const Encoding::Coordinate*> coordinates;
  for (const auto& coordinate : encoding.coordinates()) coordinates.push_back(&coordinate);
  PointTable widths = PointTable::Constant(n, d, width);
  return {coordinates, table, widths, Eigen::ArrayXf::Ones(n), 1.0};
}

// scipy.stats.truncnorm: the mean of pdf(0.3 | 0.2, 0.1), pdf(0.3 | 0.95, 0.1), both truncated to [0, 1], and 1.
TEST(Parzen, ADensityEqualsSciPysTruncatedNormalDistributions) {
  Encoding encoding({{"x", Uniform(0, 1)}});
  Parzen density = Make(encoding, {{0.2F}, {0.95F}}, 0.1F);
  std::vector<double> x = {0.3};
  EXPECT_NEAR(std::exp(density.LogDensity(x)), 1.1586791424, 2e-5);
  x = {0.99};
  EXPECT_NEAR(std::exp(density.LogDensity(x)), 2.1086533299, 2e-5);
}

TEST(Parzen, ADensityIntegratesToOneOverMixedCells) {
  Encoding encoding({{"n", LogRandInt(1, 21)}, {"c", Choice({"a", "b", "c"})}, {"x", Uniform(0, 1)}});
  Parzen density = Make(encoding, {{0.1F, 0.17F, 0.4F}, {0.5F, 0.83F, 0.9F}, {0.9F, 0.17F, 0.1F}}, 0.2F);
  double total = 0;
  for (double u = 0; u < 1;) {  // cell after cell of n
    auto [low, high] = Encoding::Cell(encoding.coordinates()[0], u + 1e-9);
    for (int c = 0; c < 3; ++c) {
      for (int i = 0; i < 50; ++i) {
        std::vector<double> point = {(low + high) / 2, (c + 0.5) / 3, (i + 0.5) / 50};
        total += std::exp(density.LogDensity(point)) * (high - low) / 3 / 50;
      }
    }
    u = high;
  }
  EXPECT_NEAR(total, 1, 1e-3);
}

TEST(Parzen, SamplesFollowTheDensity) {
  Encoding encoding({{"x", Uniform(0, 1)}, {"c", Choice({"a", "b"})}});
  Parzen density = Make(encoding, {{0.05F, 0.25F}, {0.1F, 0.25F}, {0.08F, 0.25F}}, 0.05F);
  Stream stream(1, 0, Purpose::kCandidates);
  int near = 0;
  int first = 0;
  std::vector<double> point(2);
  for (int i = 0; i < 4000; ++i) {
    density.Sample(stream, point);
    near += point[0] < 0.3 ? 1 : 0;
    first += point[1] < 0.5 ? 1 : 0;
  }
  // Of the four parts three are near 0; a category has its own kernel and a smoothing of 1/4 for each value.
  EXPECT_NEAR(near / 4000.0, 0.75 + 0.25 * 0.3, 0.03);
  EXPECT_NEAR(first / 4000.0, 0.75 * 1.25 / 1.5 + 0.125, 0.03);
}

TEST(Parzen, AKernelIsAsWideAsTheDistanceToTheNearestPointButNotBelowTheFloor) {
  std::vector<float> points = {0.5F, 0.1F, 0.8F, 0.52F};
  std::vector<int> order = {1, 0, 3, 2};
  std::vector<float> widths(4);
  NeighbourWidths(points, order, 0.05F, widths);
  EXPECT_FLOAT_EQ(widths[0], 0.05F);
  EXPECT_FLOAT_EQ(widths[1], 0.4F);
  EXPECT_FLOAT_EQ(widths[2], 0.28F);
  EXPECT_FLOAT_EQ(widths[3], 0.05F);
}

TEST(Encoding, ACellHoldsExactlyTheUnitsOfItsValue) {
  Encoding encoding({{"n", LogRandInt(1, 21)}, {"q", QUniform(0, 1, 0.25)}, {"c", Choice({"a", "b", "c"})}});
  for (const auto& coordinate : encoding.coordinates()) {
    for (double u = 0.0005; u < 1; u += 0.01) {
      auto [low, high] = Encoding::Cell(coordinate, u);
      EXPECT_LE(low, u);
      EXPECT_GE(high, u);
      Value value = Encoding::At(coordinate, u);
      EXPECT_EQ(Encoding::At(coordinate, low + 1e-9), value) << coordinate.path << u;
      EXPECT_EQ(Encoding::At(coordinate, high - 1e-9), value) << coordinate.path << u;
      if (low > 0) {
        EXPECT_NE(Encoding::At(coordinate, low - 1e-9), value) << coordinate.path << u;
      }
    }
  }
}

TEST(Pareto, FrontsAndCrowdingOrderPoints) {
  std::vector<Objectives> points = {{1, 5}, {2, 3}, {4, 1}, {2, 4}, {5, 5}, {1.5, 4.5}};
  EXPECT_EQ(Fronts(points), (std::vector<int>{0, 0, 0, 1, 2, 0}));
  std::vector<int> order = OrderByFronts(points);
  EXPECT_EQ(order, (std::vector<int>{0, 2, 1, 5, 3, 4}));
  EXPECT_TRUE(Dominates({1, 1}, {1, 2}));
  EXPECT_FALSE(Dominates({1, 1}, {1, 1}));
}

TEST(Tpe, TwoObjectivesSpreadOverTheParetoFront) {
  // Both objectives are best for y = 0; x trades them off.
  auto searcher =
      MakeSearcher({{"x", Uniform(0, 1)}, {"y", Uniform(0, 1)}}, Tpe{.seed = 1, .modes = {Mode::kMin, Mode::kMax}});
  double late = 0;
  double least = 1;
  double most = 0;
  for (TrialNumber trial = 0; trial < 120; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    double x = std::get<double>(config.at("x"));
    double y = std::get<double>(config.at("y"));
    searcher->Tell(trial, {x + y, x - y});
    if (trial < 80) continue;
    late += y / 40;
    least = std::min(least, x);
    most = std::max(most, x);
  }
  EXPECT_LT(late, 0.2);
  EXPECT_LT(least, 0.3);
  EXPECT_GT(most, 0.7);
}

TEST(Tpe, OptionsThatMakeNoSenseAreRefused) {
  Space space{{"x", Uniform(0, 1)}};
  EXPECT_THROW(MakeSearcher(space, Tpe{.n_startup_trials = -1}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, Tpe{.n_ei_candidates = 0}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, Tpe{.prior_weight = 0}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, Tpe{.points_to_evaluate = {{{"x", 0.5}}},
                                       .evaluated_rewards = {1.0},
                                       .modes = {Mode::kMin, Mode::kMin}}),
               std::invalid_argument);
}

TEST(Tpe, RunningTrialsRepelNewOnesOnlyWithTheConstantLiar) {
  auto spread = [](bool liar) {
    auto searcher = MakeSearcher({{"x", Uniform(0, 1)}}, Tpe{.seed = 3, .constant_liar = liar});
    TrialNumber trial = 0;
    for (; trial < 60; ++trial) {
      Config config = std::get<Config>(searcher->Ask(trial));
      searcher->Tell(trial, std::abs(std::get<double>(config.at("x")) - 0.5));
    }
    double distance = 0;
    for (; trial < 80; ++trial) {
      distance += std::abs(std::get<double>(std::get<Config>(searcher->Ask(trial)).at("x")) - 0.5);
    }
    return distance;
  };
  EXPECT_GT(spread(true), 1.5 * spread(false));
}

}  // namespace
}  // namespace manta::tune
