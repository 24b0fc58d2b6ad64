#include "tune/search/parzen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

namespace manta::tune {
namespace {

constexpr int kPerUnit = 256;          // entries of the table for each unit
constexpr float kReach = 6;            // beyond this the distribution function is 0 or 1 in single precision
constexpr float kLeastExponent = -80;  // below it single precision has denormal numbers, which are slow
constexpr float kNegligible = 1e-15F;  // a term so much smaller than the largest does not matter

using CdfTable = std::array<float, 2 * static_cast<int>(kReach) * kPerUnit + 2>;

CdfTable MakeCdfTable() {
  CdfTable table{};
  for (std::size_t i = 0; i < table.size(); ++i) {
    table[i] = static_cast<float>(NormalCdf(static_cast<double>(i) / kPerUnit - kReach));
  }
  return table;
}

// The normal distribution function by linear interpolation; its error is below 1e-6.
float TableCdf(float x) {
  static const CdfTable table = MakeCdfTable();
  float position = (std::clamp(x, -kReach, kReach) + kReach) * kPerUnit;
  auto index = static_cast<std::size_t>(position);
  float rest = position - static_cast<float>(index);
  return table[index] + rest * (table[index + 1] - table[index]);
}

float Mass(float low, float high, float mean, float inverse_width) {
  return std::max(TableCdf((high - mean) * inverse_width) - TableCdf((low - mean) * inverse_width), 1e-7F);
}

int CategoryOf(double u, int cells) { return std::min(static_cast<int>(u * cells), cells - 1); }

}  // namespace

void NeighbourWidths(std::span<const float> points, std::span<const int> order, float floor, std::span<float> widths) {
  float below = 1;  // the distance to the neighbour below; the first point has none
  for (std::size_t i = 0; i < order.size(); ++i) {
    float above = i + 1 < order.size() ? points[order[i + 1]] - points[order[i]] : 1;
    widths[order[i]] = std::clamp(std::min(below, above), floor, 1.0F);
    below = above;
  }
}

Parzen::Parzen(std::vector<const Encoding::Coordinate*> dimensions, PointTable points, const PointTable& widths,
               const Eigen::ArrayXf& weights, double prior_weight)
    : dimensions_(std::move(dimensions)), points_(std::move(points)), inverse_widths_(1 / widths) {
  double total = prior_weight;
  for (float weight : weights) cumulative_.push_back(total += weight);
  prior_share_ = prior_weight / total;
  smoothing_ = prior_weight / static_cast<double>(weights.size() + 1);
  log_factors_ = weights.log() - static_cast<float>(std::log(total));
  Eigen::ArrayXf scale = Eigen::ArrayXf::Ones(points_.rows());
  for (Eigen::Index j = 0; j < points_.cols(); ++j) {
    bool continuous = dimensions_[j]->cells == 0;
    (continuous ? continuous_ : discrete_).push_back(j);
    constexpr auto kPeak = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    if (continuous) scale *= kPeak * inverse_widths_.col(j);
    for (Eigen::Index k = 0; k < points_.rows() && dimensions_[j]->ordered; ++k) {
      float inverse = inverse_widths_(k, j);
      float mean = points_(k, j);
      bool inside = std::min(mean, 1 - mean) * inverse > 4;  // hardly any mass is outside of [0, 1]
      if (!inside) scale[k] /= Mass(0, 1, mean, inverse);
    }
    if (j % 8 != 7 && j + 1 != points_.cols()) continue;  // one logarithm for eight factors, which cannot overflow
    log_factors_ += scale.log();
    scale.setOnes();
  }
}

double Parzen::SampleOne(Stream& stream, Eigen::Index kernel, Eigen::Index j) const {
  float mean = points_(kernel, j);
  if (!dimensions_[j]->ordered) {
    int cells = dimensions_[j]->cells;
    double u = stream.Uniform() * (1 + smoothing_ * cells) - 1;  // negative: the kernel's own category
    return (CategoryOf(u < 0 ? mean : u / (smoothing_ * cells), cells) + 0.5) / cells;
  }
  float inverse = inverse_widths_(kernel, j);
  double low = TableCdf(-mean * inverse);
  double high = TableCdf((1 - mean) * inverse);
  return std::clamp(mean + NormalQuantile(low + stream.Uniform() * (high - low)) / inverse, 0.0, 1.0);
}

void Parzen::Sample(Stream& stream, std::span<double> point) const {
  double u = stream.Uniform();
  bool prior = u < prior_share_ || cumulative_.empty();
  Eigen::Index kernel = 0;
  if (!prior) {
    kernel = std::ranges::upper_bound(cumulative_, u * cumulative_.back()) - cumulative_.begin();
    kernel = std::min(kernel, points_.rows() - 1);
  }
  for (std::size_t j = 0; j < point.size(); ++j) {
    point[j] = prior ? stream.Uniform() : SampleOne(stream, kernel, static_cast<Eigen::Index>(j));
    if (dimensions_[j]->cells == 0) continue;
    auto [low, high] = Encoding::Cell(*dimensions_[j], point[j]);
    point[j] = (low + high) / 2;
  }
}

void Parzen::MultiplyDiscrete(Eigen::Index j, double x, Eigen::ArrayXf& factor) const {
  auto [from, to] = Encoding::Cell(*dimensions_[j], x);
  auto low = static_cast<float>(from);
  auto high = static_cast<float>(to);
  float inverse_cell = 1 / (high - low);
  if (!dimensions_[j]->ordered) {
    auto other = static_cast<float>(smoothing_ / (1 + smoothing_ * dimensions_[j]->cells)) * inverse_cell;
    auto same = other * static_cast<float>(1 + 1 / smoothing_);
    for (Eigen::Index k = 0; k < factor.size(); ++k) {
      factor[k] *= points_(k, j) >= low && points_(k, j) < high ? same : other;
    }
    return;
  }
  for (Eigen::Index k = 0; k < factor.size(); ++k) {
    if (factor[k] < kNegligible) continue;
    factor[k] *= Mass(low, high, points_(k, j), inverse_widths_(k, j)) * inverse_cell;
  }
}

double Parzen::LogDensity(std::span<const double> point) const {
  if (points_.rows() == 0) return 0;
  auto squared = [&](std::size_t c) {
    Eigen::Index j = continuous_[c];
    return ((points_.col(j) - static_cast<float>(point[j])) * inverse_widths_.col(j)).square();
  };
  Eigen::ArrayXf sum = Eigen::ArrayXf::Zero(points_.rows());
  std::size_t c = 0;  // four columns at a time: the sum is read and written less often
  for (; c + 4 <= continuous_.size(); c += 4) sum += squared(c) + squared(c + 1) + squared(c + 2) + squared(c + 3);
  for (; c < continuous_.size(); ++c) sum += squared(c);
  sum = log_factors_ - 0.5F * sum;
  float shift = std::max(sum.maxCoeff(), static_cast<float>(std::log(prior_share_)));
  sum = (sum - shift).max(kLeastExponent).exp();
  for (Eigen::Index j : discrete_) MultiplyDiscrete(j, point[j], sum);
  return shift + std::log(sum.sum() + prior_share_ * std::exp(-static_cast<double>(shift)));
}

}  // namespace manta::tune
