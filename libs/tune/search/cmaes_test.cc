#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "manta/tune/searchers.h"
#include "tune/search/cmaes_model.h"

namespace manta::tune {
namespace {

Encoding Cube(int dimensions) {
  std::vector<Space::Parameter> parameters;
  for (int i = 0; i < dimensions; ++i) parameters.emplace_back("x" + std::to_string(i), Uniform(0, 1));
  return Encoding(Space(parameters));
}

double Coordinate(const Config& config, int i) { return std::get<double>(config.at("x" + std::to_string(i))); }

// Four generations of fixed points; the numbers are those of the Python package cmaes 0.13.
TEST(CmaModel, AnUpdateEqualsTheReference) {
  Encoding encoding = Cube(3);
  CmaModel model(encoding, Eigen::Vector3d(0.5, 0.4, 0.6), {.population = 7, .sigma = 0.2});
  for (int g = 0; g < 4; ++g) {
    std::vector<CmaModel::Point> points;
    for (int i = 0; i < 7; ++i) {
      Eigen::VectorXd x(3);
      for (int j = 0; j < 3; ++j) x[j] = 0.5 + 0.08 * std::sin(1 + 3 * i + j * 1.7 + g * 0.9) - 0.01 * g * (j + 1);
      double value = std::pow(x[0] - 0.3, 2) + 10 * std::pow(x[1] - 0.35, 2) + 3 * std::pow(x[2] - 0.7, 2);
      points.push_back({x, value});
    }
    model.Update(points);
  }
  Eigen::Vector3d mean(0.438887536055, 0.372607513252, 0.458478765694);
  Eigen::Matrix3d covariance;
  covariance << 0.933617879868, -0.117744368487, 0.0354958685485, -0.117744368487, 0.611462433682, 0.401773036557,
      0.0354958685485, 0.401773036557, 0.709893426914;
  EXPECT_LT((model.mean() - mean).norm(), 1e-9);
  EXPECT_LT((model.covariance() - covariance).norm(), 1e-8);
  EXPECT_NEAR(model.sigma(), 0.122331962413, 1e-9);
}

TEST(CmaModel, APopulationOfFailuresChangesNothing) {
  Encoding encoding = Cube(2);
  CmaModel model(encoding, Eigen::Vector2d(0.5, 0.5), {});
  Stream stream(1, 0, Purpose::kCandidates);
  std::vector<CmaModel::Point> points;
  for (int i = 0; i < model.population(); ++i) points.push_back({model.Sample(stream), INFINITY});
  model.Update(points);
  EXPECT_EQ(model.mean(), Eigen::Vector2d(0.5, 0.5));
}

TEST(CmaModel, SamplesAtACornerStayInsideOfTheCube) {
  Encoding encoding = Cube(6);
  CmaModel model(encoding, Eigen::VectorXd::Zero(6), {.sigma = 1});
  Stream stream(1, 0, Purpose::kCandidates);
  for (int i = 0; i < 100; ++i) {
    Eigen::VectorXd x = model.Sample(stream);
    EXPECT_GE(x.minCoeff(), 0);
    EXPECT_LE(x.maxCoeff(), 1);
  }
}

TEST(CmaEs, AnIntegerKeepsChanging) {
  // The number moves the search to the bottom of x first; the integer's best value is found only by leaving its cell.
  auto searcher = MakeSearcher({{"x0", Uniform(0, 1)}, {"n", RandInt(0, 50)}}, CmaEs{.seed = 2});
  double best = 1e9;
  std::set<std::int64_t> late;
  for (TrialNumber trial = 0; trial < 400; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    auto n = std::get<std::int64_t>(config.at("n"));
    double value = 100 * std::pow(Coordinate(config, 0) - 0.3, 2) + std::abs(static_cast<double>(n) - 41);
    best = std::min(best, value);
    if (trial >= 200 && trial < 300) late.insert(n);
    searcher->Tell(trial, value);
  }
  EXPECT_LT(best, 1e-4);
  EXPECT_GT(late.size(), 1U);
}

TEST(CmaEs, BeginsAtX0WithSigma0) {
  Space space{{"x0", Uniform(-5, 5)}, {"x1", Uniform(-5, 5)}};
  auto searcher = MakeSearcher(space, CmaEs{.x0 = {{"x0", 4.0}}, .sigma0 = 0.001});
  for (TrialNumber trial = 0; trial < 6; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    EXPECT_NEAR(Coordinate(config, 0), 4, 0.06);
    EXPECT_NEAR(Coordinate(config, 1), 0, 0.06);
  }
  EXPECT_THROW(MakeSearcher(space, CmaEs{.x0 = {{"x0", 6.0}}}), SpaceError);
  EXPECT_THROW(MakeSearcher(space, CmaEs{.sigma0 = 0}), std::invalid_argument);
  EXPECT_THROW(MakeSearcher(space, CmaEs{.population = 3}), std::invalid_argument);
}

TEST(CmaEs, RestartsLeaveALocalMinimum) {
  // A wide basin around 0.8 ends at 0.5; the narrow one around 0.1 ends at 0.
  auto best = [](CmaEs::Restart restart) {
    auto searcher = MakeSearcher({{"x0", Uniform(0, 1)}, {"x1", Uniform(0, 1)}},
                                 CmaEs{.seed = 1, .x0 = {{"x0", 0.8}, {"x1", 0.8}}, .restart = restart});
    double found = 1e9;
    for (TrialNumber trial = 0; trial < 5000; ++trial) {
      Config config = std::get<Config>(searcher->Ask(trial));
      double wide = std::hypot(Coordinate(config, 0) - 0.8, Coordinate(config, 1) - 0.8);
      double narrow = std::hypot(Coordinate(config, 0) - 0.1, Coordinate(config, 1) - 0.1);
      double value = std::min(0.5 + wide * wide, 6 * narrow * narrow);
      found = std::min(found, value);
      searcher->Tell(trial, value);
    }
    return found;
  };
  EXPECT_NEAR(best(CmaEs::Restart::kNone), 0.5, 1e-6);
  EXPECT_LT(best(CmaEs::Restart::kIpop), 0.01);
  EXPECT_LT(best(CmaEs::Restart::kBipop), 0.01);
}

TEST(CmaEs, ManyDimensionsUseTheDiagonal) {
  std::vector<Space::Parameter> parameters;
  for (int i = 0; i < 120; ++i) parameters.emplace_back("x" + std::to_string(i), Uniform(0, 1));
  auto searcher = MakeSearcher(Space(parameters), CmaEs{.seed = 1, .x0 = {{"x0", 0.9}}});
  double first = 0;
  double best = 1e9;
  for (TrialNumber trial = 0; trial < 3000; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    double value = 0;
    for (const auto& entry : config) value += std::pow(std::get<double>(entry.second) - 0.4, 2);
    if (trial == 0) first = value;
    best = std::min(best, value);
    searcher->Tell(trial, value);
  }
  EXPECT_LT(best, first / 20);
}

}  // namespace
}  // namespace manta::tune
