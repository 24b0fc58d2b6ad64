#include "tune/search/lbfgs.h"

#include <cmath>
#include <deque>

namespace manta::tune {
namespace {

constexpr std::size_t kMemory = 8;       // steps that the direction is computed from
constexpr double kArmijo = 1e-4;         // the share of the predicted decrease that a step must reach
constexpr double kFirstStep = 0.1;       // the length of the first step
constexpr double kSmallGradient = 1e-6;  // ends the search

struct Pair {
  Eigen::VectorXd step;
  Eigen::VectorXd change;  // of the gradient
  double inverse;
};

// The two-loop recursion.
Eigen::VectorXd Direction(const std::deque<Pair>& pairs, Eigen::VectorXd gradient) {
  if (pairs.empty()) return -kFirstStep / std::max(gradient.norm(), 1e-300) * gradient;
  std::vector<double> factors(pairs.size());
  for (std::size_t i = pairs.size(); i-- > 0;) {
    factors[i] = pairs[i].inverse * pairs[i].step.dot(gradient);
    gradient -= factors[i] * pairs[i].change;
  }
  gradient /= pairs.back().inverse * pairs.back().change.squaredNorm();
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    gradient += (factors[i] - pairs[i].inverse * pairs[i].change.dot(gradient)) * pairs[i].step;
  }
  return -gradient;
}

// Sets coordinates to 0 that are at a bound and whose gradient points outside.
Eigen::VectorXd Free(const Eigen::VectorXd& x, const Eigen::VectorXd& gradient, Eigen::VectorXd vector,
                     const Eigen::VectorXd& low, const Eigen::VectorXd& high) {
  for (Eigen::Index i = 0; i < x.size(); ++i) {
    if ((x[i] <= low[i] && gradient[i] > 0) || (x[i] >= high[i] && gradient[i] < 0)) vector[i] = 0;
  }
  return vector;
}

}  // namespace

Minimum MinimizeInBox(const Differentiable& function, Eigen::VectorXd x, const Eigen::VectorXd& low,
                      const Eigen::VectorXd& high, int evaluations) {
  x = x.cwiseMax(low).cwiseMin(high);
  Eigen::VectorXd gradient(x.size());
  Eigen::VectorXd next_gradient(x.size());
  double value = function(x, gradient);
  std::deque<Pair> pairs;
  for (int used = 1; used < evaluations && std::isfinite(value);) {
    Eigen::VectorXd free = Free(x, gradient, gradient, low, high);
    if (free.size() == 0 || free.norm() < kSmallGradient) break;
    Eigen::VectorXd direction = Free(x, gradient, Direction(pairs, free), low, high);
    if (direction.dot(gradient) >= 0) {
      pairs.clear();
      direction = Direction(pairs, free);
    }
    bool moved = false;
    for (double length = 1; used < evaluations && length > 1e-6; length *= 0.3) {
      Eigen::VectorXd next = (x + length * direction).cwiseMax(low).cwiseMin(high);
      double next_value = function(next, next_gradient);
      ++used;
      if (!std::isfinite(next_value) || next_value > value + kArmijo * gradient.dot(next - x)) continue;
      Pair pair{next - x, next_gradient - gradient, 0};
      double curvature = pair.step.dot(pair.change);
      if (curvature > 1e-12 * pair.change.squaredNorm()) {
        pair.inverse = 1 / curvature;
        pairs.push_back(std::move(pair));
        if (pairs.size() > kMemory) pairs.pop_front();
      }
      moved = (next - x).norm() > 1e-9;
      x = std::move(next);
      value = next_value;
      gradient = next_gradient;
      break;
    }
    if (!moved) break;
  }
  return {x, value};
}

}  // namespace manta::tune
