// ASHA: a trial that reaches a rung (a budget level) stops when its value is below the cut-off of those recorded there.
#include "tune/search/asha.h"

#include <cmath>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "manta/tune/schedule.h"
#include "tune/search/archive.h"
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

  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.lower_, self.upper_);
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

  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.values, self.recorded);
  }
};

class AshaScheduler : public Scheduler {
 public:
  explicit AshaScheduler(Asha options) : options_(options) {
    double fraction = (1 - 1 / options.reduction_factor) * 100 / 100;
    for (const auto& milestones : AshaMilestones(options)) {
      auto& rungs = brackets_.emplace_back();
      for (double milestone : milestones) rungs.push_back({milestone, Quantile(fraction), {}});
    }
  }

  std::optional<Config> OnAdd(TrialNumber trial, const Config&) override {
    bracket_of_[trial] = AshaBracket(options_, trial);
    return std::nullopt;
  }

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates&) override {
    if (!report.time || !report.value) return {};
    if (*report.time >= options_.max_t && options_.stop_last_trials) return {Decision::Kind::kStop};
    auto found = bracket_of_.find(trial);
    if (found == bracket_of_.end()) {
      throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the scheduler. Add it first.");
    }
    return Record(trial, found->second, *report.time, *report.value);
  }

  Orders OnComplete(TrialNumber trial, const Report& report, const TrialStates&) override {
    auto found = bracket_of_.find(trial);
    if (found == bracket_of_.end()) return {};
    if (report.time && report.value) (void)Record(trial, found->second, *report.time, *report.value);
    bracket_of_.erase(trial);
    return {};
  }

  Orders OnRemove(TrialNumber trial, const TrialStates&) override {
    bracket_of_.erase(trial);
    return {};
  }

  std::string Save() const override { return SaveFields(*this, "ASHA"); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, "ASHA"); }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    for (auto& rungs : self.brackets_) {
      for (auto& rung : rungs) archive(rung);
    }
    archive(self.bracket_of_);
  }

 private:
  Decision Record(TrialNumber trial, std::size_t bracket, double time, double value) {
    double score = options_.mode == Mode::kMax ? value : -value;
    for (Rung& rung : brackets_[bracket]) {  // the highest first
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

std::vector<std::vector<double>> AshaMilestones(const Asha& options) {
  if (!(options.max_t > 0) || options.max_t < options.grace_period || !(options.grace_period > 0) ||
      !(options.reduction_factor > 1) || options.brackets < 1) {
    throw std::invalid_argument(
        "ASHA needs 0 < grace_period <= max_t, reduction_factor > 1 and brackets >= 1. Correct these options.");
  }
  std::vector<std::vector<double>> brackets;
  for (int s = 0; s < options.brackets; ++s) {
    auto& milestones = brackets.emplace_back();
    double levels = std::log(options.max_t / options.grace_period) / std::log(options.reduction_factor) - s + 1;
    for (int k = static_cast<int>(levels) - 1; k >= 0; --k) {
      milestones.push_back(options.grace_period * std::pow(options.reduction_factor, k + s));
    }
  }
  return brackets;
}

std::size_t AshaBracket(const Asha& options, TrialNumber trial) {
  if (options.brackets == 1) return 0;
  std::vector<double> weights;
  double sum = 0;
  auto brackets = AshaMilestones(options);
  for (const auto& milestones : brackets) {
    weights.push_back(std::exp(static_cast<double>(milestones.size()) - static_cast<double>(brackets[0].size())));
    sum += weights.back();
  }
  double drawn = Stream(options.seed, trial, Purpose::kBracket).Uniform() * sum;
  std::size_t bracket = 0;
  while (bracket + 1 < weights.size() && drawn >= weights[bracket]) drawn -= weights[bracket++];
  return bracket;
}

std::unique_ptr<Scheduler> MakeScheduler(Asha options) {
  if (options.promote) return MakePromotingAsha(options);
  return std::make_unique<AshaScheduler>(options);
}

}  // namespace manta::tune
