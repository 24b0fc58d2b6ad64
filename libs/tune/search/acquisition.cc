#include "tune/search/acquisition.h"

#include <cmath>
#include <numbers>

#include "tune/search/random.h"

namespace manta::tune {
namespace {

constexpr double kLogRootTwoPi = 0.91893853320467274178;
constexpr double kFarTail = -25;  // below it the series is as exact as the formula

// log of the distribution function, and density / distribution function.
double LogCdf(double z, double& ratio) {
  double log_density = -0.5 * z * z - kLogRootTwoPi;
  double log_cdf = z > kFarTail ? std::log(NormalCdf(z))
                                : log_density - std::log(-z) + std::log1p(-1 / (z * z) + 3 / (z * z * z * z));
  ratio = std::exp(log_density - log_cdf);
  return log_cdf;
}

// log(density(z) + z cdf(z)), and cdf(z) divided by that sum.
double LogImprovement(double z, double& ratio) {
  double log_density = -0.5 * z * z - kLogRootTwoPi;
  double result = 0;
  if (z > -1) {
    result = std::log(std::exp(log_density) + z * NormalCdf(z));
  } else if (z > kFarTail) {
    // cdf / density = sqrt(pi / 2) exp(z^2 / 2) erfc(-z / sqrt 2)
    double mills = std::sqrt(std::numbers::pi / 2) * std::exp(0.5 * z * z) * std::erfc(-z / std::numbers::sqrt2);
    result = log_density + std::log1p(z * mills);
  } else {
    result = log_density - 2 * std::log(-z) + std::log1p(-3 / (z * z));
  }
  double unused = 0;
  ratio = std::exp(LogCdf(z, unused) - result);
  return result;
}

}  // namespace

AcquisitionValue Acquire(Gp::Acquisition kind, double mean, double deviation, double best, double kappa) {
  double z = (best - mean) / deviation;
  double ratio = 0;
  switch (kind) {
    case Gp::Acquisition::kLowerBound:
      return {kappa * deviation - mean, -1, kappa};
    case Gp::Acquisition::kProbability: {
      double value = LogCdf(z, ratio);
      return {value, -ratio / deviation, -ratio * z / deviation};
    }
    default: {
      double value = LogImprovement(z, ratio) + std::log(deviation);
      return {value, -ratio / deviation, (1 - ratio * z) / deviation};
    }
  }
}

}  // namespace manta::tune
