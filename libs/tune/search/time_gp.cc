#include "tune/search/time_gp.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace manta::tune {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Eigen::Map<const Vector> AsVector(const std::vector<double>& values) {
  return {values.data(), static_cast<Eigen::Index>(values.size())};
}

}  // namespace

TimeGp::TimeGp(std::vector<std::vector<double>> points, std::vector<double> values, const Kernel& kernel, double noise)
    : points_(std::move(points)), values_(std::move(values)), kernel_(kernel) {
  auto n = static_cast<Eigen::Index>(values_.size());
  Matrix covariance(n, n);
  for (Eigen::Index i = 0; i < n; ++i) {
    for (Eigen::Index j = 0; j <= i; ++j) {
      covariance(i, j) = covariance(j, i) =
          Covariance(points_[static_cast<std::size_t>(i)], points_[static_cast<std::size_t>(j)]);
    }
  }
  Eigen::LLT<Matrix> cholesky;
  for (;; noise *= 10) {
    cholesky.compute(covariance + noise * Matrix::Identity(n, n));
    if (cholesky.info() == Eigen::Success) break;
  }
  Matrix lower = cholesky.matrixL();
  Vector weights = cholesky.solve(AsVector(values_));
  factor_.assign(lower.data(), lower.data() + lower.size());
  weights_.assign(weights.data(), weights.data() + n);
  log_likelihood_ = -0.5 * AsVector(values_).dot(weights) - lower.diagonal().array().log().sum() -
                    0.5 * static_cast<double>(n) * std::log(2 * std::numbers::pi);
}

double TimeGp::Covariance(std::span<const double> a, std::span<const double> b) const {
  double distance = 0;
  for (std::size_t i = 1; i < a.size(); ++i) distance += (a[i] - b[i]) * (a[i] - b[i]);
  return kernel_.variance * std::exp(-distance / kernel_.length) *
         std::pow(1 - kernel_.epsilon, 0.5 * std::abs(a[0] - b[0]));
}

TimeGp::Prediction TimeGp::Predict(std::span<const double> point) const {
  auto n = static_cast<Eigen::Index>(values_.size());
  Vector covariances(n);
  for (Eigen::Index i = 0; i < n; ++i) covariances(i) = Covariance(points_[static_cast<std::size_t>(i)], point);
  Eigen::Map<const Matrix> lower(factor_.data(), n, n);
  Vector solved = lower.triangularView<Eigen::Lower>().solve(covariances);
  return {covariances.dot(AsVector(weights_)), std::max(0.0, kernel_.variance - solved.squaredNorm())};
}

// A pattern search over the logarithms: three parameters and a smooth function need no gradients.
TimeGp TimeGp::Fit(const std::vector<std::vector<double>>& points, const std::vector<double>& values, double noise) {
  constexpr std::array<double, 3> kLow = {1e-5, 1e-5, 1e-5};
  constexpr std::array<double, 3> kHigh = {1e5, 1e5, 0.5};
  TimeGp best(points, values, {}, noise);
  for (double step = 2; step > 0.05;) {
    bool improved = false;
    for (std::size_t i = 0; i < 3; ++i) {
      for (double factor : {std::exp(step), std::exp(-step)}) {
        Kernel kernel = best.kernel_;
        double* parameter = std::array{&kernel.variance, &kernel.length, &kernel.epsilon}[i];
        *parameter = std::clamp(*parameter * factor, kLow[i], kHigh[i]);
        TimeGp other(points, values, kernel, noise);
        if (other.log_likelihood_ <= best.log_likelihood_ + 1e-6) continue;
        best = std::move(other);
        improved = true;
        break;
      }
    }
    if (!improved) step /= 2;
  }
  return best;
}

}  // namespace manta::tune
