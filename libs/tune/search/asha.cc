// ASHA: a trial that reaches a rung (a budget level) stops when its value is below the cut-off of those recorded there.
#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "manta/tune/schedule.h"
#include "tune/search/random.h"

namespace manta::tune {
namespace {

// The running quantile of a growing set, interpolated as NumPy's percentile does. Both halves are ordered, so that an
// insertion and a query take logarithmic time however many trials a rung has.
class Quantile {
 public:
  explicit Quantile(double fraction) : fraction_(fraction) {}
  bool empty() const { return lower_.empty(); }

  void Insert(double value) {
    if (lower_.empty() || value <= *lower_.rbegin()) {
      lower_.insert(value);
    } else {
      upper_.insert(value);
    }
    auto wanted = static_cast<std::size_t>(Position()) + 1;
    while (lower_.size() > wanted) upper_.insert(lower_.extract(std::prev(lower_.end())));
    while (lower_.size() < wanted) lower_.insert(upper_.extract(upper_.begin()));
  }

  double Get() const {
    double below = *lower_.rbegin();
    double part = Position() - std::floor(Position());
    if (part == 0 || upper_.empty()) return below;
    double gap = *upper_.begin() - below;
    return part >= 0.5 ? *upper_.begin() - gap * (1 - part) : below + gap * part;
  }

 private:
  double Position() const { return static_cast<double>(lower_.size() + upper_.size() - 1) * fraction_; }

  double fraction_;
  std::multiset<double> lower_;
  std::multiset<double> upper_;
};

struct Rung {
  double milestone;
  Quantile values;
  std::unordered_set<TrialNumber> recorded;
};

class AshaScheduler : public Scheduler {
 public:
  explicit AshaScheduler(Asha options) : options_(options) {
    if (!(options.max_t > 0) || options.max_t < options.grace_period || !(options.grace_period > 0) ||
        !(options.reduction_factor > 1) || options.brackets < 1) {
      throw std::invalid_argument(
          "ASHA needs 0 < grace_period <= max_t, reduction_factor > 1 and brackets >= 1. Correct these options.");
    }
    double fraction = (1 - 1 / options.reduction_factor) * 100 / 100;
    for (int s = 0; s < options.brackets; ++s) {
      auto& rungs = brackets_.emplace_back();
      double levels = std::log(options.max_t / options.grace_period) / std::log(options.reduction_factor) - s + 1;
      for (int k = static_cast<int>(levels) - 1; k >= 0; --k) {
        rungs.push_back({options.grace_period * std::pow(options.reduction_factor, k + s), Quantile(fraction), {}});
      }
    }
  }

  // Ray draws the bracket with a probability that falls by e for each rung that it has less than the longest.
  void OnAdd(TrialNumber trial) override {
    std::size_t longest = brackets_[0].size();
    double sum = 0;
    auto weight = [&](const std::vector<Rung>& rungs) {
      return std::exp(static_cast<double>(rungs.size()) - static_cast<double>(longest));
    };
    for (const auto& rungs : brackets_) sum += weight(rungs);
    double drawn = Stream(options_.seed, trial, Purpose::kBracket).Uniform() * sum;
    std::size_t bracket = 0;
    while (bracket + 1 < brackets_.size() && drawn >= weight(brackets_[bracket])) drawn -= weight(brackets_[bracket++]);
    bracket_of_[trial] = bracket;
  }

  Decision OnResult(TrialNumber trial, double time, double value, const TrialStates&) override {
    if (time >= options_.max_t && options_.stop_last_trials) return {Decision::Kind::kStop};
    return Record(trial, time, value);
  }

  void OnComplete(TrialNumber trial, double time, double value) override {
    (void)Record(trial, time, value);
    bracket_of_.erase(trial);
  }

  void OnRemove(TrialNumber trial) override { bracket_of_.erase(trial); }

 private:
  Decision Record(TrialNumber trial, double time, double value) {
    auto found = bracket_of_.find(trial);
    if (found == bracket_of_.end()) {
      throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the scheduler. Add it first.");
    }
    double score = options_.mode == Mode::kMax ? value : -value;
    for (Rung& rung : brackets_[found->second]) {  // the highest first
      if (time < rung.milestone) continue;
      if (rung.recorded.contains(trial)) {
        if (!options_.stop_last_trials) break;
        continue;
      }
      bool stop = !rung.values.empty() && score < rung.values.Get();
      rung.recorded.insert(trial);
      if (!std::isnan(score)) rung.values.Insert(score);
      return {stop ? Decision::Kind::kStop : Decision::Kind::kContinue};
    }
    return {};
  }

  Asha options_;
  std::vector<std::vector<Rung>> brackets_;
  std::unordered_map<TrialNumber, std::size_t> bracket_of_;
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(Asha options) { return std::make_unique<AshaScheduler>(options); }

}  // namespace manta::tune
