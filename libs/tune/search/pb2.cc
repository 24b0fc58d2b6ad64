// PB2 (Parker-Holder et al., 2020): the worst clone the best as in population based training, and a model of how much
// the score rises per unit of time, given the values, chooses the values with which the clone goes on.
//
// Ray fits its model to histories of several lengths beyond 200 points; here it is always the newest 200.
#include <algorithm>
#include <cmath>

#include "tune/search/archive.h"
#include "tune/search/population.h"
#include "tune/search/time_gp.h"

namespace manta::tune {
namespace {

constexpr std::size_t kModelPoints = 200;
constexpr std::size_t kMostRows = 10'000;  // the older half is dropped beyond
constexpr double kNoise = 1e-4;

struct Row {
  TrialNumber trial = 0;
  double time = 0;
  double score = 0;
  std::vector<double> values;  // in the order of the bounds
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.trial, self.time, self.score, self.values);
  }
};

// How the score rose between two comparisons of one trial with the same values.
struct Rise {
  TrialNumber trial;
  double time, score, before, rate;
  std::vector<double> values;
};

std::vector<Rise> Rises(std::vector<Row> rows) {
  std::ranges::stable_sort(rows, {}, &Row::time);
  std::map<std::pair<TrialNumber, std::vector<double>>, const Row*> last;
  std::vector<Rise> rises;
  for (const Row& row : rows) {
    const Row*& previous = last[{row.trial, row.values}];
    if (previous != nullptr && row.time > previous->time) {
      double rate = (row.score - previous->score) / (row.time - previous->time);
      if (!std::isnan(rate)) rises.push_back({row.trial, row.time, row.score, previous->score, rate, row.values});
    }
    previous = &row;
  }
  return rises;
}

struct Range {
  double low = 0;
  double high = 0;
  double Unit(double x) const { return (x - low) / (high - low + 1e-8); }
};

template <class Get>
Range RangeOf(std::span<const Rise> rises, Get get) {
  auto [low, high] = std::ranges::minmax(rises, {}, get);
  return {get(low), get(high)};
}

std::vector<double> Standardized(std::span<const Rise> rises) {
  auto n = static_cast<double>(rises.size());
  double mean = 0;
  double square = 0;
  for (const Rise& rise : rises) mean += rise.rate / n;
  for (const Rise& rise : rises) square += (rise.rate - mean) * (rise.rate - mean) / n;
  std::vector<double> values;
  for (const Rise& rise : rises)
    values.push_back(std::clamp((rise.rate - mean) / (std::sqrt(square) + 1e-8), -2.0, 2.0));
  return values;
}

// The upper confidence bound. Values that were chosen a moment ago for other trials are in the second model only, which
// gives the variance: where others go already, there is less to learn.
class Acquisition {
 public:
  Acquisition(TimeGp mean, TimeGp variance, std::vector<double> fixed)
      : mean_(std::move(mean)),
        variance_(std::move(variance)),
        fixed_(std::move(fixed)),
        kappa_(std::sqrt(0.2 + std::max(0.0, std::log(0.4 * static_cast<double>(mean_.size()))))) {}

  double At(std::span<const double> unit) const {
    std::vector<double> point = fixed_;
    point.insert(point.end(), unit.begin(), unit.end());
    return mean_.Predict(point).mean + kappa_ * variance_.Predict(point).variance;
  }

  // Random points, and a pattern search from the best of them.
  std::vector<double> Best(std::size_t dimensions, Stream& random) const {
    std::vector<std::pair<double, std::vector<double>>> starts;
    for (int i = 0; i < 100; ++i) {
      std::vector<double> unit(dimensions);
      for (double& x : unit) x = random.Uniform();
      double value = At(unit);
      starts.emplace_back(value, std::move(unit));
    }
    std::ranges::stable_sort(starts, std::greater<>(), [](const auto& start) { return start.first; });
    std::pair<double, std::vector<double>> best = starts[0];
    for (std::size_t i = 0; i < 3; ++i) {
      auto [value, unit] = Climb(starts[i]);
      if (value > best.first) best = {value, unit};
    }
    return best.second;
  }

 private:
  std::pair<double, std::vector<double>> Climb(std::pair<double, std::vector<double>> at) const {
    for (double step = 0.1; step > 1e-3;) {
      bool improved = false;
      for (std::size_t i = 0; i < at.second.size(); ++i) {
        for (double move : {step, -step}) {
          auto unit = at.second;
          unit[i] = std::clamp(unit[i] + move, 0.0, 1.0);
          double value = At(unit);
          if (value <= at.first) continue;
          at = {value, std::move(unit)};
          improved = true;
          break;
        }
      }
      if (!improved) step /= 2;
    }
    return at;
  }

  TimeGp mean_, variance_;
  std::vector<double> fixed_;
  double kappa_;
};

class Pb2Scheduler : public Population {
 public:
  explicit Pb2Scheduler(Pb2 options)
      : Population({.mode = options.mode,
                    .perturbation_interval = options.perturbation_interval,
                    .quantile_fraction = options.quantile_fraction,
                    .custom_explore = std::move(options.custom_explore),
                    .log_config = options.log_config,
                    .require_attrs = options.require_attrs,
                    .synch = options.synch,
                    .seed = options.seed}) {
    if (options.bounds.empty()) throw std::invalid_argument("PB2 changes nothing. Give hyperparam_bounds.");
    for (const auto& [path, range] : options.bounds) {
      if (!(range.first <= range.second)) {
        throw std::invalid_argument(path + ": the lower bound " + std::to_string(range.first) +
                                    " is above the upper bound " + std::to_string(range.second) +
                                    ". Exchange the two bounds.");
      }
      paths_.push_back(path);
      bounds_.push_back({range.first, range.second});
    }
  }

  std::string Save() const override { return SaveFields(*this, "PB2"); }
  void Load(std::string_view bytes) override {
    LoadFields(*this, bytes, "PB2");
    Restore();
  }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    PopulationFields(self, archive);
    archive(self.rows_, self.latest_, self.explored_at_, self.current_);
  }

 protected:
  void Fill(Config& config, Stream& random) override {
    for (std::size_t i = 0; i < paths_.size(); ++i) {
      double drawn = bounds_[i].low + (bounds_[i].high - bounds_[i].low) * random.Uniform();
      if (!config.contains(paths_[i])) config[paths_[i]] = drawn;
    }
  }

  void OnScore(TrialNumber trial, const Config& config, double time, double score) override {
    AddRow({trial, time, score, Values(config)});
  }

  Config Explore(TrialNumber trial, TrialNumber donor, const Config& donor_config, Stream& random) override {
    if (latest_ > explored_at_) current_.clear();
    Config config = donor_config;
    auto rises = Rises(rows_);
    auto last = std::ranges::find(rises.rbegin(), rises.rend(), donor, &Rise::trial);
    if (last != rises.rend()) {
      std::size_t n = std::min(rises.size(), kModelPoints);
      auto chosen = Select(std::span(rises).last(n), *last, random);
      for (std::size_t i = 0; i < paths_.size(); ++i) {
        // Ray computes in single precision and cuts whole numbers off.
        auto value = static_cast<double>(static_cast<float>(chosen[i]));
        Value& entry = config.at(paths_[i]);
        if (std::holds_alternative<std::int64_t>(entry)) {
          entry = static_cast<std::int64_t>(value);
        } else {
          entry = value;
        }
      }
      AddRow({trial, last->time, last->score, Values(config)});
    }
    if (latest_ > explored_at_) current_.clear();
    explored_at_ = std::max(explored_at_, latest_);
    current_.push_back(Values(config));
    return config;
  }

 private:
  void AddRow(Row row) {
    latest_ = std::max(latest_, row.time);
    rows_.push_back(std::move(row));
    if (rows_.size() > kMostRows) rows_.erase(rows_.begin(), rows_.begin() + kMostRows / 2);
  }

  std::vector<double> Values(const Config& config) const {
    std::vector<double> values;
    for (const std::string& path : paths_) {
      auto found = config.find(path);
      const auto* whole = found == config.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
      const auto* real = found == config.end() ? nullptr : std::get_if<double>(&found->second);
      if (whole == nullptr && real == nullptr) {
        throw std::invalid_argument(path + ": PB2 needs a number in the configuration of every trial. Correct the " +
                                    "space or custom_explore_fn.");
      }
      values.push_back(whole != nullptr ? static_cast<double>(*whole) : *real);
    }
    return values;
  }

  std::vector<double> Unit(const std::vector<double>& fixed, const std::vector<double>& values) const {
    std::vector<double> point = fixed;
    for (std::size_t i = 0; i < values.size(); ++i) point.push_back(bounds_[i].Unit(values[i]));
    return point;
  }

  std::vector<double> Select(std::span<const Rise> rises, const Rise& donor, Stream& random) const {
    Range times = RangeOf(rises, [](const Rise& rise) { return rise.time; });
    Range scores = RangeOf(rises, [](const Rise& rise) { return rise.before; });
    std::vector<std::vector<double>> points;
    for (const Rise& rise : rises) {
      points.push_back(Unit({times.Unit(rise.time), scores.Unit(rise.before)}, rise.values));
    }
    std::vector<double> values = Standardized(rises);
    std::vector<double> fixed = {times.Unit(donor.time), scores.Unit(donor.before)};
    TimeGp mean = TimeGp::Fit(points, values, kNoise);
    TimeGp variance = mean;
    if (!current_.empty()) {
      for (const auto& taken : current_) points.push_back(Unit(fixed, taken));
      values.resize(points.size(), 0);
      variance = TimeGp::Fit(points, values, kNoise);
    }
    auto best = Acquisition(std::move(mean), std::move(variance), fixed).Best(paths_.size(), random);
    for (std::size_t i = 0; i < best.size(); ++i)
      best[i] = bounds_[i].low + best[i] * (bounds_[i].high - bounds_[i].low);
    return best;
  }

  std::vector<std::string> paths_;
  std::vector<Range> bounds_;
  std::vector<Row> rows_;
  double latest_ = 0;                         // the latest time of a row
  double explored_at_ = 0;                    // the latest time at the last exploration
  std::vector<std::vector<double>> current_;  // chosen since then
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(Pb2 options) { return std::make_unique<Pb2Scheduler>(std::move(options)); }

}  // namespace manta::tune
