#include "tune/search/cmaes_model.h"

#include <Eigen/Eigenvalues>
#include <algorithm>
#include <cmath>
#include <numeric>

namespace manta::tune {
namespace {

constexpr int kTries = 100;             // to draw a point inside of the cube
constexpr double kLeastStep = 1e-8;     // of a coordinate, relative to the cube's edge
constexpr double kMaxCondition = 1e14;  // of the covariance matrix
constexpr double kFlat = 1e-12;         // best values of so many generations that differ less are equal

}  // namespace

CmaModel::CmaModel(const Encoding& encoding, Eigen::VectorXd mean, Settings settings)
    : encoding_(&encoding), diagonal_(settings.diagonal), mean_(std::move(mean)), sigma_(settings.sigma) {
  auto d = static_cast<double>(mean_.size());
  population_ = settings.population > 0 ? settings.population : 4 + static_cast<int>(3 * std::log(std::max(d, 1.0)));
  first_sigma_ = sigma_;
  int mu = population_ / 2;
  weights_.resize(population_);
  for (int i = 0; i < population_; ++i) weights_[i] = std::log((population_ + 1) / 2.0) - std::log(i + 1);
  auto effective = [](const auto& part) { return part.sum() * part.sum() / part.squaredNorm(); };
  mu_eff_ = effective(weights_.head(mu));
  double mu_eff_minus = effective(weights_.tail(population_ - mu));
  double boost = diagonal_ ? (d + 2) / 3 : 1;  // the diagonal has fewer numbers to learn
  c_1_ = std::min(0.5, boost * 2 / ((d + 1.3) * (d + 1.3) + mu_eff_));
  c_mu_ = std::min(1 - c_1_ - 1e-8, boost * 2 * (mu_eff_ - 2 + 1 / mu_eff_) / ((d + 2) * (d + 2) + mu_eff_));
  c_sigma_ = (mu_eff_ + 2) / (d + mu_eff_ + 5);
  d_sigma_ = 1 + 2 * std::max(0.0, std::sqrt((mu_eff_ - 1) / (d + 1)) - 1) + c_sigma_;
  c_c_ = (4 + mu_eff_ / d) / (d + 4 + 2 * mu_eff_ / d);
  expected_norm_ = std::sqrt(d) * (1 - 1 / (4 * d) + 1 / (21 * d * d));
  double negative =
      std::min({1 + c_1_ / c_mu_, 1 + 2 * mu_eff_minus / (mu_eff_ + 2), (1 - c_1_ - c_mu_) / (d * c_mu_)});
  double positive_sum = weights_.head(mu).sum();
  double negative_sum = -weights_.tail(population_ - mu).cwiseMin(0.0).sum();
  for (int i = 0; i < population_; ++i) {
    weights_[i] *= weights_[i] >= 0 ? 1 / positive_sum : std::max(negative, 0.0) / negative_sum;
  }
  path_sigma_ = Eigen::VectorXd::Zero(mean_.size());
  path_c_ = path_sigma_;
  stretch_ = Eigen::VectorXd::Ones(mean_.size());
  covariance_ = diagonal_ ? Eigen::MatrixXd(Eigen::VectorXd::Ones(mean_.size()))
                          : Eigen::MatrixXd::Identity(mean_.size(), mean_.size());
  Decompose();
}

void CmaModel::Decompose() {
  if (diagonal_) {
    lengths_ = covariance_.col(0).cwiseMax(1e-300).cwiseSqrt();
    return;
  }
  if (covariance_.rows() == 0) return;
  Eigen::SelfAdjointEigenSolver<Eigen::MatrixXd> solver(covariance_);
  basis_ = solver.eigenvectors();
  lengths_ = solver.eigenvalues().cwiseMax(1e-20).cwiseSqrt();
}

Eigen::VectorXd CmaModel::Sample(Stream& stream) const {
  Eigen::VectorXd x(mean_.size());
  for (int attempt = 0; attempt < kTries; ++attempt) {
    Eigen::VectorXd z(mean_.size());
    for (double& number : z) number = stream.Normal();
    z = lengths_.cwiseProduct(z);
    if (!diagonal_ && z.size() > 0) z = basis_ * z;
    x = mean_ + sigma_ * stretch_.cwiseProduct(z);
    if (x.size() == 0 || (x.minCoeff() >= 0 && x.maxCoeff() <= 1)) return x;
  }
  return x.cwiseMax(0.0).cwiseMin(1.0);
}

void CmaModel::Update(std::vector<Point> points) {
  auto d = static_cast<double>(mean_.size());
  std::ranges::stable_sort(points, {}, &Point::value);
  if (mean_.size() == 0 || std::isinf(points[0].value)) return;  // nothing was learned
  recent_bests_.push_back(points[0].value);
  // The steps, and the same in the coordinates in which the distribution is round.
  std::vector<Eigen::VectorXd> steps;
  std::vector<Eigen::VectorXd> rounds;
  double longest = std::sqrt(d) + 2 * d / (d + 2);
  for (const Point& point : points) {
    Eigen::VectorXd step = (point.x - mean_).cwiseQuotient(stretch_) / sigma_;
    Eigen::VectorXd round = diagonal_ ? Eigen::VectorXd(step.cwiseQuotient(lengths_))
                                      : Eigen::VectorXd((basis_.transpose() * step).cwiseQuotient(lengths_));
    double scale = std::min(1.0, longest / std::max(round.norm(), 1e-300));
    steps.emplace_back(scale * step);
    rounds.emplace_back(scale * round);
  }
  Eigen::VectorXd mean_step = Eigen::VectorXd::Zero(mean_.size());
  Eigen::VectorXd mean_round = mean_step;
  for (int i = 0; i < population_ / 2; ++i) {
    mean_step += weights_[i] * steps[i];
    mean_round += weights_[i] * rounds[i];
  }
  mean_ += sigma_ * stretch_.cwiseProduct(mean_step);
  mean_ = mean_.cwiseMax(0.0).cwiseMin(1.0);

  if (!diagonal_) mean_round = basis_ * mean_round;
  path_sigma_ = (1 - c_sigma_) * path_sigma_ + std::sqrt(c_sigma_ * (2 - c_sigma_) * mu_eff_) * mean_round;
  ++generation_;
  double norm = path_sigma_.norm();
  double bound = (1.4 + 2 / (d + 1)) * expected_norm_;
  bool moving = norm / std::sqrt(1 - std::pow(1 - c_sigma_, 2 * generation_)) < bound;
  path_c_ = (1 - c_c_) * path_c_ + (moving ? std::sqrt(c_c_ * (2 - c_c_) * mu_eff_) : 0) * mean_step;

  double keep = 1 - c_1_ - c_mu_ * weights_.sum() + (moving ? 0 : c_1_ * c_c_ * (2 - c_c_));
  covariance_ *= keep;
  auto add = [&](double weight, const Eigen::VectorXd& step) {
    if (diagonal_) {
      covariance_.col(0) += weight * step.cwiseAbs2();
    } else {
      covariance_ += weight * step * step.transpose();
    }
  };
  add(c_1_, path_c_);
  for (int i = 0; i < population_; ++i) {
    double weight = weights_[i];
    if (weight < 0) weight *= d / std::max(rounds[i].squaredNorm(), 1e-12);  // keeps the matrix positive definite
    add(c_mu_ * weight, steps[i]);
  }
  sigma_ *= std::exp(std::min(1.0, c_sigma_ / d_sigma_ * (norm / expected_norm_ - 1)));
  sigma_ = std::min(sigma_, 10 * first_sigma_);
  Decompose();
  KeepMargins();
}

void CmaModel::KeepMargins() {
  double least = 1 / (static_cast<double>(mean_.size()) * population_);
  for (Eigen::Index j = 0; j < mean_.size(); ++j) {
    const Encoding::Coordinate& coordinate = encoding_->coordinates()[j];
    if (coordinate.cells < 2) continue;
    double variance = diagonal_ ? covariance_(j, 0) : covariance_(j, j);
    double width = sigma_ * stretch_[j] * std::sqrt(std::max(variance, 1e-300));
    auto [low, high] = Encoding::Cell(coordinate, mean_[j]);
    if (low <= 0 || high >= 1) {  // one neighbour only: the mean moves to it
      double farthest = NormalQuantile(1 - least) * width;
      if (low <= 0) mean_[j] = std::max(mean_[j], high - farthest);
      if (high >= 1) mean_[j] = std::min(mean_[j], low + farthest);
      continue;
    }
    double below = NormalCdf((low - mean_[j]) / width);
    double above = NormalCdf((mean_[j] - high) / width);
    double inside = 1 - below - above;
    double raised_below = std::max(below, least / 2);
    double raised_above = std::max(above, least / 2);
    double excess = (1 - raised_below - raised_above - inside) / (raised_below + raised_above + inside - 1.5 * least);
    double z_low = NormalQuantile(1 - raised_below - excess * (raised_below - least / 2));
    double z_high = NormalQuantile(1 - raised_above - excess * (raised_above - least / 2));
    if (!(z_low + z_high > 1e-9)) continue;
    mean_[j] = (low * z_high + high * z_low) / (z_low + z_high);
    stretch_[j] *= (high - low) / (z_low + z_high) / width;
  }
}

bool CmaModel::Converged() const {
  if (mean_.size() == 0) return false;
  double widest = 0;
  for (Eigen::Index j = 0; j < mean_.size(); ++j) {
    if (encoding_->coordinates()[j].cells > 0) continue;
    widest = std::max(widest, sigma_ * std::sqrt(diagonal_ ? covariance_(j, 0) : covariance_(j, j)));
  }
  std::size_t window = 10 + 30 * static_cast<std::size_t>(mean_.size()) / static_cast<std::size_t>(population_);
  bool flat = false;
  if (recent_bests_.size() >= window) {
    auto [least, most] =
        std::minmax_element(recent_bests_.end() - static_cast<std::ptrdiff_t>(window), recent_bests_.end());
    flat = *most - *least <= kFlat * std::max(1.0, std::abs(*least));
  }
  double condition = lengths_.maxCoeff() / lengths_.minCoeff();
  return widest < kLeastStep || flat || condition * condition > kMaxCondition;
}

}  // namespace manta::tune
