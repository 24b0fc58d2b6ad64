// The median stopping rule: a trial stops when its best value is worse than the median of the other trials' running
// means.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "manta/tune/schedule.h"
#include "tune/search/archive.h"

namespace manta::tune {
namespace {

// The sum in NumPy's order: eight sums side by side in blocks of at most 128 numbers. Only with it are means that are
// equal in theory equal in practice exactly when Ray's are.
double SumAsNumPy(const double* values, std::size_t n) {
  if (n < 8) return std::accumulate(values, values + n, 0.0);
  if (n > 128) {
    std::size_t half = n / 2 - n / 2 % 8;
    return SumAsNumPy(values, half) + SumAsNumPy(values + half, n - half);
  }
  double sums[8];
  std::copy_n(values, 8, sums);
  std::size_t i = 8;
  for (; i < n - n % 8; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) sums[j] += values[i + j];
  }
  double sum = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
  return std::accumulate(values + i, values + n, sum);
}

// One trial's results. Sums of values from the grace period on make a running mean a binary search.
class Results {
 public:
  void Add(double time, double value, double grace_period, bool max) {
    ordered_ = ordered_ && (times_.empty() || time >= times_.back());
    // Comparisons with nan are false, as in Python's max and min: a first nan stays the best.
    if (times_.empty() || (max ? value > best_ : value < best_)) best_ = value;
    bool counts = time >= grace_period;
    times_.push_back(time);
    values_.push_back(value);
    sums_.push_back((sums_.empty() ? 0 : sums_.back()) + (counts ? value : 0));
    counts_.push_back((counts_.empty() ? 0 : counts_.back()) + (counts ? 1 : 0));
  }
  double last_time() const { return times_.back(); }
  double best() const { return best_; }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.times_, self.values_, self.sums_, self.counts_, self.best_, self.ordered_);
  }

  // The mean of the results between the grace period and the time; nan if there are none. The quick way differs from
  // the exact one in the last digits.
  double Mean(double time, double grace_period, bool exact) const {
    if (ordered_ && !exact) {
      auto n = std::ranges::upper_bound(times_, time) - times_.begin();
      return n == 0 || counts_[n - 1] == 0 ? std::numeric_limits<double>::quiet_NaN() : sums_[n - 1] / counts_[n - 1];
    }
    std::vector<double> values;
    for (std::size_t i = 0; i < times_.size(); ++i) {
      if (times_[i] >= grace_period && times_[i] <= time) values.push_back(values_[i]);
    }
    if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
    return SumAsNumPy(values.data(), values.size()) / static_cast<double>(values.size());
  }

 private:
  std::vector<double> times_, values_, sums_;
  std::vector<int> counts_;
  double best_ = 0;
  bool ordered_ = true;  // false after a trial was restored to an earlier time
};

double Median(std::vector<double> values) {
  auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

class MedianScheduler : public Scheduler {
 public:
  explicit MedianScheduler(MedianStopping options) : options_(options) {}

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) override {
    if (!report.time || !report.value || stopped_.contains(trial)) return {};
    double time = *report.time;
    bool max = options_.mode == Mode::kMax;
    Results& own = results_[trial];
    if (std::isfinite(*report.value)) largest_ = std::max(largest_, std::abs(*report.value));
    own.Add(time, *report.value, options_.grace_period, max);
    if (time < options_.grace_period) return {};
    std::vector<double> means = OtherMeans(trial, time, false);
    if (static_cast<int>(means.size()) < options_.min_samples_required) return WithoutSamples(trial, time, states);
    double median = Median(std::move(means));
    bool close = std::abs(own.best() - median) <= 1e-9 * largest_;
    if (close) median = Median(OtherMeans(trial, time, true));
    bool better = max ? own.best() > median : own.best() < median;
    if (better || own.best() == median) return {};
    stopped_.insert(trial);
    return {options_.hard_stop ? Decision::Kind::kStop : Decision::Kind::kPause};
  }

  Orders OnComplete(TrialNumber trial, const Report& report, const TrialStates&) override {
    if (report.time && report.value) {
      results_[trial].Add(*report.time, *report.value, options_.grace_period, options_.mode == Mode::kMax);
    }
    return {};
  }

  std::string Save() const override { return SaveFields(*this, "median stopping rule"); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, "median stopping rule"); }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.results_, self.last_pause_, self.stopped_, self.largest_);
  }

 private:
  std::vector<double> OtherMeans(TrialNumber trial, double time, bool exact) const {
    std::vector<double> means;
    for (const auto& [other, results] : results_) {
      if (other == trial || results.last_time() < time) continue;
      double mean = results.Mean(time, options_.grace_period, exact);
      if (std::isfinite(mean)) means.push_back(mean);
    }
    return means;
  }

  // The trial yields to waiting trials, so that there will be samples to compare it with.
  Decision WithoutSamples(TrialNumber trial, double time, const TrialStates& states) {
    auto paused = last_pause_.find(trial);
    if (paused != last_pause_.end() && time - paused->second <= options_.min_time_slice) return {};
    if (!states.FirstPending() && !states.FirstPaused()) return {};
    last_pause_[trial] = time;
    return {Decision::Kind::kPause};
  }

  MedianStopping options_;
  std::unordered_map<TrialNumber, Results> results_;
  std::unordered_map<TrialNumber, double> last_pause_;
  std::unordered_set<TrialNumber> stopped_;
  double largest_ = 0;  // value so far, by its amount
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(MedianStopping options) { return std::make_unique<MedianScheduler>(options); }

}  // namespace manta::tune
