#include "tune/search/tpe_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "tune/search/parzen.h"

namespace manta::tune {
namespace {

constexpr int kFullWeight = 25;  // so many of the latest points have the full weight, earlier ones less and less

// Measured on Branin, Hartmann6 and Rosenbrock: the kernels of good points may become narrow, so that the search
// converges; those of the others must stay wide, or the ratio rewards the gaps between them.
float LeastWidth(int n, bool good) {
  auto kernels = static_cast<float>(n);
  return good ? 1 / std::min(100.0F, 2 + std::pow(kernels, 1.4F)) : 1 / std::min(20.0F, 2 + kernels);
}

Eigen::ArrayXf Weights(int n) {
  Eigen::ArrayXf weights = Eigen::ArrayXf::Ones(n);
  int ramp = n - kFullWeight;
  float low = 1 / static_cast<float>(n);
  for (int i = 0; i < ramp; ++i) {
    weights[i] = ramp == 1 ? low : low + (1 - low) * static_cast<float>(i) / static_cast<float>(ramp - 1);
  }
  return weights;
}

}  // namespace

TpeModel::TpeModel(const Encoding& encoding, Settings settings)
    : encoding_(encoding), settings_(settings), columns_(encoding.size()), sorted_(encoding.size()) {
  std::map<std::string, std::size_t> known;
  for (std::size_t i = 0; i < encoding.size(); ++i) {
    const Encoding::Coordinate& coordinate = encoding.coordinates()[i];
    std::string condition = coordinate.domain.parent;
    for (const Value& value : coordinate.domain.parent_values) condition += '\n' + Describe(value);
    auto [place, fresh] = known.try_emplace(condition, groups_.size());
    if (fresh) groups_.emplace_back();
    Group& group = groups_[place->second];
    group.columns.push_back(i);
    group.coordinates.push_back(&coordinate);
    group.conditional = !coordinate.domain.parent.empty();
  }
}

int TpeModel::Add(const std::vector<double>& unit) {
  auto point = static_cast<int>(hidden_.size());
  for (std::size_t j = 0; j < unit.size(); ++j) {
    auto x = static_cast<float>(unit[j]);
    columns_[j].push_back(x);
    if (std::isnan(x)) continue;
    auto place = std::ranges::upper_bound(sorted_[j], x, {}, [&](int i) { return columns_[j][i]; });
    sorted_[j].insert(place, point);
  }
  hidden_.push_back(0);
  values_.emplace_back();
  return point;
}

void TpeModel::Rank(int point, const Objectives& values) {
  values_[point] = values;
  hidden_[point] = 0;
  auto place = values.size() > 1
                   ? ranked_.end()
                   : std::ranges::upper_bound(ranked_, values[0], {}, [](const auto& entry) { return entry.first[0]; });
  ranked_.insert(place, {values, point});
}

bool TpeModel::Exists(const Group& group, int point) const { return !std::isnan(columns_[group.columns[0]][point]); }

// The points with values, best first.
std::vector<int> TpeModel::Best() const {
  std::vector<int> points;
  points.reserve(ranked_.size());
  if (!ranked_.empty() && ranked_[0].first.size() > 1) {
    std::vector<Objectives> values;
    values.reserve(ranked_.size());
    for (const auto& entry : ranked_) values.push_back(entry.first);
    for (int i : OrderByFronts(values)) points.push_back(ranked_[i].second);
  } else {
    for (const auto& entry : ranked_) points.push_back(entry.second);
  }
  return points;
}

// Marks the best points among those in which the group exists.
std::vector<char> TpeModel::Good(const Group& group) const {
  std::vector<int> best = Best();
  std::erase_if(best, [&](int point) { return !Exists(group, point); });
  double share = std::ceil(settings_.good_share * static_cast<double>(best.size()) - 1e-9);
  best.resize(std::min(static_cast<std::size_t>(share), static_cast<std::size_t>(settings_.max_good)));
  std::vector<char> good(hidden_.size());
  for (int point : best) good[point] = 1;
  return good;
}

Parzen TpeModel::Density(const Group& group, const std::vector<char>& good, bool want_good) const {
  std::vector<int> rows(hidden_.size(), -1);  // the row of each point in the table
  int n = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    bool wanted = (good[i] != 0) == want_good && hidden_[i] == 0;
    if (wanted && Exists(group, static_cast<int>(i))) rows[i] = n++;
  }
  auto d = static_cast<Eigen::Index>(group.columns.size());
  PointTable points(n, d);
  PointTable widths(n, d);
  std::vector<int> order;
  order.reserve(n);
  for (Eigen::Index j = 0; j < d; ++j) {
    order.clear();
    for (int i : sorted_[group.columns[j]]) {
      if (rows[i] < 0) continue;
      points(rows[i], j) = columns_[group.columns[j]][i];
      order.push_back(rows[i]);
    }
    NeighbourWidths({points.col(j).data(), order.size()}, order, LeastWidth(n, want_good),
                    {widths.col(j).data(), order.size()});
  }
  return {group.coordinates, std::move(points), widths, Weights(n), settings_.prior_weight};
}

void TpeModel::ProposeGroup(const Group& group, Stream& stream, std::vector<double>& unit) const {
  std::vector<char> good = Good(group);
  Parzen likely = Density(group, good, true);
  Parzen unlikely = Density(group, good, false);
  std::vector<double> candidate(group.columns.size());
  double best = -std::numeric_limits<double>::infinity();
  for (int i = 0; i < settings_.candidates; ++i) {
    likely.Sample(stream, candidate);
    double score = likely.LogDensity(candidate) - unlikely.LogDensity(candidate);
    if (!(score > best)) continue;
    best = score;
    for (std::size_t j = 0; j < candidate.size(); ++j) unit[group.columns[j]] = candidate[j];
  }
}

std::vector<double> TpeModel::Propose(Stream& stream) const {
  std::vector<double> unit(encoding_.size(), std::numeric_limits<double>::quiet_NaN());
  for (const Group& group : groups_) {
    if (group.conditional && !encoding_.Decode(unit).contains(group.coordinates[0]->path)) continue;
    ProposeGroup(group, stream, unit);
  }
  return unit;
}

}  // namespace manta::tune
