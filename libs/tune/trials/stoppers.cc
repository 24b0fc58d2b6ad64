#include "tune/trials/stoppers.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <unordered_map>
#include <utility>

namespace manta::tune::trials {
namespace {

double Deviation(const std::vector<double>& values) {
  double mean = 0;
  for (double value : values) mean += value;
  mean /= static_cast<double>(values.size());
  double sum = 0;
  for (double value : values) sum += (value - mean) * (value - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

class Never : public Stopper {
 public:
  bool StopTrial(const Trial&) override { return false; }
};

class Thresholds : public Stopper {
 public:
  explicit Thresholds(std::map<std::string, double> thresholds) : thresholds_(std::move(thresholds)) {}
  bool StopTrial(const Trial& trial) override {
    for (const auto& [key, threshold] : thresholds_) {
      if (std::optional<double> value = NumberOf(trial, key); value && *value >= threshold) return true;
    }
    return false;
  }

 private:
  std::map<std::string, double> thresholds_;
};

class Iterations : public Stopper {
 public:
  explicit Iterations(std::int64_t limit) : limit_(limit) {}
  bool StopTrial(const Trial& trial) override { return trial.iteration >= limit_; }

 private:
  std::int64_t limit_;
};

class Seconds : public Stopper {
 public:
  explicit Seconds(double limit) : limit_(limit) {}
  bool StopTrial(const Trial&) override { return false; }
  bool StopAll(double elapsed) override { return elapsed >= limit_; }
  double deadline() const override { return limit_; }

 private:
  double limit_;
};

class OfTrial : public Stopper {
 public:
  explicit OfTrial(TrialPlateau options) : options_(std::move(options)) {}
  bool StopTrial(const Trial& trial) override {
    std::optional<double> value = NumberOf(trial, options_.metric);
    if (!value) return false;
    Window& window = windows_[trial.number];
    ++window.count;
    window.values.push_back(*value);
    if (window.values.size() > static_cast<std::size_t>(options_.num_results)) window.values.pop_front();
    if (window.count < options_.grace_period || window.values.size() < static_cast<std::size_t>(options_.num_results)) {
      return false;
    }
    if (options_.metric_threshold) {
      const bool beyond =
          options_.mode == Mode::kMin ? *value < *options_.metric_threshold : *value > *options_.metric_threshold;
      if (!beyond) return false;
    }
    const bool flat = Deviation({window.values.begin(), window.values.end()}) < options_.std;
    if (flat) windows_.erase(trial.number);
    return flat;
  }

 private:
  struct Window {
    std::int64_t count = 0;
    std::deque<double> values;
  };
  TrialPlateau options_;
  std::unordered_map<TrialNumber, Window> windows_;
};

class OfRun : public Stopper {
 public:
  explicit OfRun(ExperimentPlateau options) : options_(std::move(options)) {}
  bool StopTrial(const Trial& trial) override {
    std::optional<double> value = NumberOf(trial, options_.metric);
    if (!value || std::isnan(*value)) return stopped_;
    const double cost = options_.mode == Mode::kMin ? *value : -*value;
    best_.insert(std::upper_bound(best_.begin(), best_.end(), cost), cost);
    if (best_.size() > static_cast<std::size_t>(options_.top)) best_.pop_back();
    const bool flat = best_.size() == static_cast<std::size_t>(options_.top) && Deviation(best_) <= options_.std;
    flat_ = flat ? flat_ + 1 : 0;
    if (flat_ > options_.patience) stopped_ = true;
    return stopped_;
  }
  bool StopAll(double) override { return stopped_; }

 private:
  ExperimentPlateau options_;
  std::vector<double> best_;  // ascending cost
  int flat_ = 0;              // results in a row after which the best values were flat
  bool stopped_ = false;
};

class Any : public Stopper {
 public:
  explicit Any(std::vector<std::unique_ptr<Stopper>> stoppers) : stoppers_(std::move(stoppers)) {}
  // Every stopper sees every result.
  bool StopTrial(const Trial& trial) override {
    bool stop = false;
    for (auto& stopper : stoppers_) stop = stopper->StopTrial(trial) || stop;
    return stop;
  }
  bool StopAll(double elapsed) override {
    return std::any_of(stoppers_.begin(), stoppers_.end(), [&](auto& stopper) { return stopper->StopAll(elapsed); });
  }
  double deadline() const override {
    double first = std::numeric_limits<double>::infinity();
    for (const auto& stopper : stoppers_) first = std::min(first, stopper->deadline());
    return first;
  }

 private:
  std::vector<std::unique_ptr<Stopper>> stoppers_;
};

}  // namespace

double Stopper::deadline() const { return std::numeric_limits<double>::infinity(); }

std::unique_ptr<Stopper> StopAtThreshold(std::map<std::string, double> thresholds) {
  return std::make_unique<Thresholds>(std::move(thresholds));
}
std::unique_ptr<Stopper> StopAfterIterations(std::int64_t iterations) {
  return std::make_unique<Iterations>(iterations);
}
std::unique_ptr<Stopper> StopAfterSeconds(double seconds) { return std::make_unique<Seconds>(seconds); }
std::unique_ptr<Stopper> StopNever() { return std::make_unique<Never>(); }
std::unique_ptr<Stopper> StopOnPlateau(TrialPlateau options) { return std::make_unique<OfTrial>(std::move(options)); }
std::unique_ptr<Stopper> StopOnPlateau(ExperimentPlateau options) {
  return std::make_unique<OfRun>(std::move(options));
}
std::unique_ptr<Stopper> StopOnAny(std::vector<std::unique_ptr<Stopper>> stoppers) {
  return std::make_unique<Any>(std::move(stoppers));
}

}  // namespace manta::tune::trials
