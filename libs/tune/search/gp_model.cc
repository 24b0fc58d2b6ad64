#include "tune/search/gp_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tune/search/lbfgs.h"

namespace manta::tune {
namespace {

const double kRoot5 = std::sqrt(5.0);
constexpr double kJitter = 1e-8;

// Normal densities of the parameters' logarithms.
struct Prior {
  double mean;
  double deviation;
  double low;
  double high;
};
Prior LengthPrior(Eigen::Index coordinates) {
  return {std::log(0.5) + 0.5 * std::log(static_cast<double>(coordinates)) - 1, 1, std::log(0.02), std::log(30.0)};
}
constexpr Prior kVariancePrior = {0, 1, -4, 5};
constexpr Prior kNoisePrior = {-10, 2.5, -14, 0};

double Penalty(const Prior& prior, double x, double& gradient) {
  double z = (x - prior.mean) / prior.deviation;
  gradient += z / prior.deviation;
  return 0.5 * z * z;
}

}  // namespace

GpFeatures::GpFeatures(const Encoding& encoding) : encoding_(&encoding) {
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const Encoding::Coordinate& coordinate = encoding.coordinates()[i];
    first_.push_back(static_cast<Eigen::Index>(owner_.size()));
    int count = coordinate.ordered ? 1 : coordinate.cells;
    if (!coordinate.domain.parent.empty()) ++count;  // whether the key exists
    owner_.insert(owner_.end(), static_cast<std::size_t>(count), static_cast<Eigen::Index>(i));
  }
}

Eigen::VectorXd GpFeatures::Of(const std::vector<double>& unit) const {
  Eigen::VectorXd features = Eigen::VectorXd::Zero(size());
  for (std::size_t i = 0; i < unit.size(); ++i) {
    const Encoding::Coordinate& coordinate = encoding_->coordinates()[i];
    bool exists = !std::isnan(unit[i]);
    if (coordinate.ordered) {
      features[first_[i]] = exists ? unit[i] : 0.5;
      if (!exists) features[first_[i] + 1] = 1;
    } else if (exists) {
      int category = std::min(static_cast<int>(unit[i] * coordinate.cells), coordinate.cells - 1);
      features[first_[i] + category] = std::sqrt(0.5);
    } else {
      features[first_[i] + coordinate.cells] = 1;
    }
  }
  return features;
}

Eigen::VectorXd GpParameters::Packed() const {
  Eigen::VectorXd packed(log_lengths.size() + 2);
  packed << log_lengths, log_variance, log_noise;
  return packed;
}

GpParameters GpParameters::Unpacked(const Eigen::VectorXd& packed) {
  Eigen::Index d = packed.size() - 2;
  return {packed.head(d), packed[d], packed[d + 1]};
}

GpPosterior::GpPosterior(const GpFeatures& features, const Eigen::MatrixXd& points, Eigen::VectorXd values)
    : coordinates_(features.coordinates()), values_(std::move(values)) {
  Eigen::Index n = points.rows();
  squares_ = Eigen::MatrixXd::Zero(n * (n - 1) / 2, coordinates_);
  for (Eigen::Index f = 0; f < features.size(); ++f) {
    Eigen::Index row = 0;
    for (Eigen::Index j = 0; j < n; ++j) {  // the columns of the lower triangle, one after the other
      Eigen::Index below = n - 1 - j;
      squares_.col(features.owner(f)).segment(row, below).array() +=
          (points.col(f).tail(below).array() - points(j, f)).square();
      row += below;
    }
  }
}

Eigen::VectorXd GpPosterior::Low() const {
  Eigen::VectorXd bounds(coordinates_ + 2);
  bounds << Eigen::VectorXd::Constant(coordinates_, LengthPrior(coordinates_).low), kVariancePrior.low, kNoisePrior.low;
  return bounds;
}

Eigen::VectorXd GpPosterior::High() const {
  Eigen::VectorXd bounds(coordinates_ + 2);
  bounds << Eigen::VectorXd::Constant(coordinates_, LengthPrior(coordinates_).high), kVariancePrior.high,
      kNoisePrior.high;
  return bounds;
}

double GpPosterior::operator()(const Eigen::VectorXd& packed, Eigen::VectorXd& gradient) const {
  Eigen::Index n = values_.size();
  Eigen::ArrayXd inverse_squares = (-2 * packed.head(coordinates_).array()).exp();
  double variance = std::exp(packed[coordinates_]);
  double noise = std::exp(packed[coordinates_ + 1]);
  Eigen::ArrayXd square = squares_ * inverse_squares.matrix();
  Eigen::ArrayXd distance = kRoot5 * square.sqrt();
  Eigen::ArrayXd decay = variance * (-distance).exp();
  Eigen::ArrayXd kernel = (1 + distance + 5.0 / 3 * square) * decay;
  Eigen::MatrixXd covariance(n, n);
  for (Eigen::Index j = 0, row = 0; j < n; row += n - 1 - j, ++j) {
    covariance(j, j) = variance + noise + kJitter;
    covariance.col(j).tail(n - 1 - j) = kernel.segment(row, n - 1 - j);
  }
  Eigen::LLT<Eigen::Ref<Eigen::MatrixXd>> factor(covariance);  // in place
  if (factor.info() != Eigen::Success) return std::numeric_limits<double>::infinity();
  Eigen::VectorXd weights = factor.solve(values_);
  double result = 0.5 * values_.dot(weights);
  for (Eigen::Index i = 0; i < n; ++i) result += std::log(covariance(i, i));

  // The derivative by a parameter is half the sum of (inverse - weights weights') times the derivative of the kernel.
  Eigen::MatrixXd lower = Eigen::MatrixXd::Identity(n, n);
  covariance.triangularView<Eigen::Lower>().solveInPlace(lower);
  Eigen::MatrixXd inverse = Eigen::MatrixXd::Zero(n, n);
  inverse.selfadjointView<Eigen::Lower>().rankUpdate(lower.transpose());
  Eigen::ArrayXd outer(kernel.size());
  for (Eigen::Index j = 0, row = 0; j < n; row += n - 1 - j, ++j) {
    outer.segment(row, n - 1 - j) = inverse.col(j).tail(n - 1 - j) - weights[j] * weights.tail(n - 1 - j);
  }
  gradient.resize(packed.size());
  Eigen::ArrayXd slope = outer * (5.0 / 3) * (1 + distance) * decay;
  gradient.head(coordinates_) = (squares_.transpose() * slope.matrix()).array() * inverse_squares;
  double trace = inverse.trace() - weights.squaredNorm();
  gradient[coordinates_] = (outer * kernel).sum() + 0.5 * variance * trace;
  gradient[coordinates_ + 1] = 0.5 * noise * trace;

  Prior length = LengthPrior(coordinates_);
  for (Eigen::Index j = 0; j < coordinates_; ++j) result += Penalty(length, packed[j], gradient[j]);
  result += Penalty(kVariancePrior, packed[coordinates_], gradient[coordinates_]);
  return result + Penalty(kNoisePrior, packed[coordinates_ + 1], gradient[coordinates_ + 1]);
}

GpParameters FitGp(const GpFeatures& features, const Eigen::MatrixXd& points, const Eigen::VectorXd& values) {
  constexpr int kEvaluations = 25;
  GpPosterior posterior(features, points, values);
  Eigen::Index d = features.coordinates();
  Minimum best{Eigen::VectorXd(), std::numeric_limits<double>::infinity()};
  Prior prior = LengthPrior(d);
  struct Start {
    double length;
    double noise;
  };
  for (Start start : {Start{prior.mean, -9}, Start{prior.mean - 1.2, -5}}) {
    GpParameters parameters{Eigen::VectorXd::Constant(d, start.length), 0, start.noise};
    Minimum found = MinimizeInBox(posterior, parameters.Packed(), posterior.Low(), posterior.High(), kEvaluations);
    if (found.value < best.value || best.x.size() == 0) best = std::move(found);
  }
  return GpParameters::Unpacked(best.x);
}

GpModel::GpModel(const GpFeatures& features, const Eigen::MatrixXd& points, const Eigen::VectorXd& values,
                 const GpParameters& parameters)
    : inverse_lengths_(features.size()), variance_(std::exp(parameters.log_variance)) {
  for (Eigen::Index f = 0; f < features.size(); ++f) {
    inverse_lengths_[f] = std::exp(-parameters.log_lengths[features.owner(f)]);
  }
  Eigen::Index n = points.rows();
  scaled_ = (points * inverse_lengths_.asDiagonal()).transpose();
  Eigen::MatrixXd covariance(n, n);
  double noise = std::exp(parameters.log_noise) + kJitter;
  for (Eigen::Index j = 0; j < n; ++j) {
    Eigen::ArrayXd square = (scaled_.rightCols(n - j).colwise() - scaled_.col(j)).colwise().squaredNorm();
    Eigen::ArrayXd distance = kRoot5 * square.sqrt();
    covariance.col(j).tail(n - j) = variance_ * (1 + distance + 5.0 / 3 * square) * (-distance).exp();
    covariance(j, j) = variance_ + noise;
  }
  factor_.compute(covariance);
  weights_ = factor_.solve(values);
  best_ = n == 0 ? 0 : (values - noise * weights_).minCoeff();
}

GpModel::Prediction GpModel::Predict(const Eigen::VectorXd& point) const {
  Eigen::VectorXd x = point.cwiseProduct(inverse_lengths_);
  Eigen::MatrixXd difference = (-scaled_).colwise() + x;
  Eigen::ArrayXd square = difference.colwise().squaredNorm();
  Eigen::ArrayXd distance = kRoot5 * square.sqrt();
  Eigen::ArrayXd decay = variance_ * (-distance).exp();
  Eigen::VectorXd kernel = (1 + distance + 5.0 / 3 * square) * decay;
  Eigen::VectorXd slope = -5.0 / 3 * (1 + distance) * decay;  // times the difference: the kernel's gradient
  Eigen::VectorXd solved = factor_.solve(kernel);
  Prediction result;
  result.mean = kernel.dot(weights_);
  result.deviation = std::sqrt(std::max(variance_ - kernel.dot(solved), 1e-12 * variance_));
  result.mean_gradient = (difference * slope.cwiseProduct(weights_)).cwiseProduct(inverse_lengths_);
  result.deviation_gradient =
      (difference * slope.cwiseProduct(solved)).cwiseProduct(inverse_lengths_) / -result.deviation;
  return result;
}

void GpModel::PredictAll(const Eigen::MatrixXd& points, Eigen::VectorXd& means, Eigen::VectorXd& deviations) const {
  Eigen::MatrixXd kernels(scaled_.cols(), points.rows());
  Eigen::MatrixXd x = (points * inverse_lengths_.asDiagonal()).transpose();
  for (Eigen::Index i = 0; i < points.rows(); ++i) {
    Eigen::ArrayXd square = (scaled_.colwise() - x.col(i)).colwise().squaredNorm();
    Eigen::ArrayXd distance = kRoot5 * square.sqrt();
    kernels.col(i) = variance_ * (1 + distance + 5.0 / 3 * square) * (-distance).exp();
  }
  means = kernels.transpose() * weights_;
  factor_.matrixL().solveInPlace(kernels);
  deviations = (variance_ - kernels.colwise().squaredNorm().transpose().array()).max(1e-12 * variance_).sqrt();
}

}  // namespace manta::tune
