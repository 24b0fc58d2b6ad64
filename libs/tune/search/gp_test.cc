#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "manta/tune/searchers.h"
#include "tune/search/acquisition.h"
#include "tune/search/gp_model.h"
#include "tune/search/lbfgs.h"
#include "tune/search/random.h"

namespace manta::tune {
namespace {

Space Mixed() {
  return {{"x", Uniform(0, 1)},
          {"y", Uniform(0, 1)},
          {"c", Choice({"a", "b", "c"})},
          {"z", When("c", {"a"}, Uniform(0, 1))}};
}

struct Data {
  Eigen::MatrixXd points;
  Eigen::VectorXd values;
};

Data Drawn(const Encoding& encoding, const GpFeatures& features, int n) {
  Data data{Eigen::MatrixXd(n, features.size()), Eigen::VectorXd(n)};
  Stream stream(3, 0, Purpose::kSample);
  for (int i = 0; i < n; ++i) {
    std::vector<double> unit(encoding.size());
    for (double& u : unit) u = stream.Uniform();
    unit = encoding.Encode(encoding.Decode(unit));
    data.points.row(i) = features.Of(unit);
    data.values[i] = std::sin(5 * unit[0]) + unit[1] * unit[1] + (unit[2] < 0.4 ? unit[3] : 0.3);
  }
  return data;
}

GpParameters Parameters(Eigen::Index d) {
  GpParameters parameters{Eigen::VectorXd(d), 0.3, -4};
  for (Eigen::Index j = 0; j < d; ++j) parameters.log_lengths[j] = -0.8 + 0.3 * static_cast<double>(j);
  return parameters;
}

TEST(Gp, TheGradientOfThePosteriorIsThatOfFiniteDifferences) {
  Encoding encoding(Mixed());
  GpFeatures features(encoding);
  Data data = Drawn(encoding, features, 17);
  GpPosterior posterior(features, data.points, data.values);
  Eigen::VectorXd at = Parameters(4).Packed();
  Eigen::VectorXd gradient;
  Eigen::VectorXd unused;
  (void)posterior(at, gradient);
  for (Eigen::Index i = 0; i < at.size(); ++i) {
    Eigen::VectorXd up = at;
    Eigen::VectorXd down = at;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(gradient[i], (posterior(up, unused) - posterior(down, unused)) / 2e-5, 1e-5) << i;
  }
}

// Values from SciPy: scipy.linalg.cho_solve on the Matern-5/2 covariance of three points in one dimension.
TEST(Gp, APredictionEqualsSciPys) {
  Encoding encoding({{"x", Uniform(0, 1)}});
  GpFeatures features(encoding);
  Eigen::MatrixXd points(3, 1);
  points << 0.1, 0.45, 0.8;
  GpModel model(features, points, Eigen::Vector3d(1, -0.5, 0.7),
                {Eigen::VectorXd::Constant(1, std::log(0.4)), 0.5, -5});
  GpModel::Prediction at = model.Predict(Eigen::VectorXd::Constant(1, 0.3));
  EXPECT_NEAR(at.mean, -0.0100979547526, 1e-9);
  EXPECT_NEAR(at.deviation, 0.308022683586, 1e-9);
  Eigen::VectorXd means;
  Eigen::VectorXd deviations;
  model.PredictAll(Eigen::MatrixXd::Constant(2, 1, 0.3), means, deviations);
  EXPECT_NEAR(means[1], at.mean, 1e-12);
  EXPECT_NEAR(deviations[1], at.deviation, 1e-9);
}

TEST(Gp, TheGradientOfAPredictionIsThatOfFiniteDifferences) {
  Encoding encoding(Mixed());
  GpFeatures features(encoding);
  Data data = Drawn(encoding, features, 12);
  GpModel model(features, data.points, data.values, Parameters(4));
  Eigen::VectorXd x = features.Of({0.3, 0.6, 0.1, 0.4});
  GpModel::Prediction at = model.Predict(x);
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    Eigen::VectorXd up = x;
    Eigen::VectorXd down = x;
    up[i] += 1e-5;
    down[i] -= 1e-5;
    EXPECT_NEAR(at.mean_gradient[i], (model.Predict(up).mean - model.Predict(down).mean) / 2e-5, 1e-6) << i;
    EXPECT_NEAR(at.deviation_gradient[i], (model.Predict(up).deviation - model.Predict(down).deviation) / 2e-5, 1e-6);
  }
}

struct Stored {
  double z;
  double log_ei;
  double log_pi;
};

// scipy.stats.norm with mpmath for the far tail.
TEST(Acquisition, ImprovementEqualsSciPysAlsoInTheTail) {
  for (Stored s : std::vector<Stored>{{2.0, 0.6973835457882, -0.02301290932896},
                                      {0.5, -0.3598276837451, -0.3689464152887},
                                      {-0.5, -1.620516264387, -1.175911761594},
                                      {-1.5, -3.529935920806, -2.705944400824},
                                      {-5.0, -16.74430116266, -15.06499839399},
                                      {-15.0, -118.8481706841, -116.1313848457},
                                      {-24.0, -295.2802232348, -292.0987210032},
                                      {-30.0, -457.7246537606, -454.3212439563},
                                      {-100.0, -5010.1295788, -5005.524208694}}) {
    auto ei = Acquire(Gp::Acquisition::kLogExpectedImprovement, 0, 1, s.z, 2);
    auto pi = Acquire(Gp::Acquisition::kProbability, 0, 1, s.z, 2);
    EXPECT_NEAR(ei.value, s.log_ei, 1e-5 * std::abs(s.log_ei) + 1e-9) << s.z;
    EXPECT_NEAR(pi.value, s.log_pi, 1e-6 * std::abs(s.log_pi) + 1e-9) << s.z;
  }
}

TEST(Acquisition, DerivativesAreThoseOfFiniteDifferences) {
  for (auto kind :
       {Gp::Acquisition::kLogExpectedImprovement, Gp::Acquisition::kProbability, Gp::Acquisition::kLowerBound}) {
    for (double mean : {-1.0, 0.4, 3.0, 20.0}) {
      auto at = [&](double m, double s) { return Acquire(kind, m, s, 0.2, 2).value; };
      AcquisitionValue value = Acquire(kind, mean, 0.5, 0.2, 2);
      EXPECT_NEAR(value.by_mean, (at(mean + 1e-5, 0.5) - at(mean - 1e-5, 0.5)) / 2e-5,
                  1e-4 * std::abs(value.by_mean) + 1e-6);
      EXPECT_NEAR(value.by_deviation, (at(mean, 0.5 + 1e-5) - at(mean, 0.5 - 1e-5)) / 2e-5,
                  1e-4 * std::abs(value.by_deviation) + 1e-6);
    }
  }
}

TEST(Lbfgs, FindsTheMinimumOfRosenbrockAlsoAtABound) {
  auto rosenbrock = [](const Eigen::VectorXd& x, Eigen::VectorXd& gradient) {
    double a = x[1] - x[0] * x[0];
    gradient[0] = -400 * a * x[0] - 2 * (1 - x[0]);
    gradient[1] = 200 * a;
    return 100 * a * a + (1 - x[0]) * (1 - x[0]);
  };
  Eigen::Vector2d low(-2, -2);
  Minimum free = MinimizeInBox(rosenbrock, Eigen::Vector2d(-1.2, 1), low, Eigen::Vector2d(2, 2), 200);
  EXPECT_LT((free.x - Eigen::Vector2d(1, 1)).norm(), 1e-4);
  Minimum bound = MinimizeInBox(rosenbrock, Eigen::Vector2d(-1.2, 1), low, Eigen::Vector2d(0.5, 2), 200);
  EXPECT_LT((bound.x - Eigen::Vector2d(0.5, 0.25)).norm(), 1e-4);
}

TEST(Gp, EveryAcquisitionFindsTheMinimum) {
  for (auto kind : {Gp::Acquisition::kLogExpectedImprovement, Gp::Acquisition::kLowerBound,
                    Gp::Acquisition::kProbability, Gp::Acquisition::kHedge}) {
    auto searcher = MakeSearcher({{"x", Uniform(0, 1)}, {"y", Uniform(0, 1)}}, Gp{.seed = 1, .acquisition = kind});
    double best = 1e9;
    for (TrialNumber trial = 0; trial < 30; ++trial) {
      Config config = std::get<Config>(searcher->Ask(trial));
      double value =
          std::pow(std::get<double>(config.at("x")) - 0.7, 2) + std::pow(std::get<double>(config.at("y")) - 0.2, 2);
      best = std::min(best, value);
      searcher->Tell(trial, value);
    }
    EXPECT_LT(best, 1e-3) << static_cast<int>(kind);
  }
  EXPECT_THROW(MakeSearcher({{"x", Uniform(0, 1)}}, Gp{.kappa = -1}), std::invalid_argument);
}

TEST(Gp, ASmallDiscreteSpaceIsTriedCompletelyBeforeAnythingIsRepeated) {
  auto searcher =
      MakeSearcher({{"n", RandInt(0, 5)}, {"c", Choice({"a", "b", "c"})}}, Gp{.seed = 1, .n_startup_trials = 2});
  std::vector<Config> seen;
  for (TrialNumber trial = 0; trial < 15; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    if (std::ranges::find(seen, config) == seen.end()) seen.push_back(config);
    searcher->Tell(trial, static_cast<double>(std::get<std::int64_t>(config.at("n"))));
  }
  EXPECT_GE(seen.size(), 13U);
}

}  // namespace
}  // namespace manta::tune
