// HyperBand: trials fill brackets of successive halving, bracket after bracket. A trial that reaches its milestone
// waits with a checkpoint until all trials of its bracket are there; then the best go on and the others stop.
//
// Two differences from Ray 2.60, where a bracket could wait for ever: Ray does not look at a bracket again when a trial
// fails after the first halving, and it does not halve again when all remaining trials are past the next milestone.
#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "manta/tune/schedule.h"
#include "tune/search/archive.h"
#include "tune/search/bracket.h"

namespace manta::tune {
namespace {

class HyperBandScheduler : public Scheduler {
 public:
  HyperBandScheduler(HyperBand options, bool bohb) : options_(options), bohb_(bohb) {
    if (!(options.max_t >= 1) || !(options.reduction_factor > 1)) {
      throw std::invalid_argument("HyperBand needs max_t >= 1 and reduction_factor > 1. Correct these options.");
    }
    per_band_ = static_cast<int>(std::nearbyint(std::log(options.max_t) / std::log(options.reduction_factor))) + 1;
  }

  std::optional<Config> OnAdd(TrialNumber trial, const Config&) override {
    if (brackets_.empty() || brackets_.back().Filled()) NewBracket();
    std::size_t bracket = brackets_.size() - 1;
    places_[trial] = {bracket, next_order_};
    brackets_.back().Add(next_order_++, trial);
    open_.insert(bracket);
    return std::nullopt;
  }

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) override {
    if (!report.time || !report.value) return {};
    auto found = places_.find(trial);
    if (found == places_.end()) {
      throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the scheduler. Add it first.");
    }
    auto [index, order] = found->second;
    Bracket& bracket = brackets_[index];
    double score = options_.mode == Mode::kMax ? *report.value : -*report.value;
    bracket.Update(order, *report.time, std::isnan(score) ? -std::numeric_limits<double>::infinity() : score);
    if (bracket.Continues(order)) return {};
    Decision decision;
    if (bohb_) decision.budget = bracket.milestone();
    if (bohb_ && !WaitsForThisTrial(bracket, trial, states)) {
      decision.kind = Decision::Kind::kPause;
    } else {
      decision.kind = Process(index, trial, states, decision.orders);
    }
    return decision;
  }

  Orders OnComplete(TrialNumber trial, const Report&, const TrialStates& states) override {
    return OnRemove(trial, states);
  }

  Orders OnRemove(TrialNumber trial, const TrialStates& states) override {
    auto found = places_.find(trial);
    if (found == places_.end()) return {};
    auto [index, order] = found->second;
    places_.erase(found);
    Bracket& bracket = brackets_[index];
    bracket.Remove(order);
    Orders orders;
    if (!bracket.Finished() && !(bracket.halved() && bracket.live().empty())) {
      (void)Process(index, std::nullopt, states, orders);
    }
    return orders;
  }

  void OnPending(TrialNumber trial) override {
    auto found = places_.find(trial);
    if (found == places_.end()) return;
    (void)brackets_[found->second.first].MakeStartable(found->second.second);
    open_.insert(found->second.first);
  }

  std::optional<TrialNumber> Choose(const TrialStates& states, Orders& orders) override {
    auto chosen = Startable(states);
    if (chosen || !bohb_ || states.AnyRunning()) return chosen;
    // Nothing runs: brackets that were never filled are halved with the trials that they have.
    for (std::size_t index = 0; index < brackets_.size(); ++index) {
      const auto& live = brackets_[index].live();
      bool paused = std::ranges::any_of(
          live, [&](const auto& entry) { return states.Get(entry.second.trial) == TrialState::kPaused; });
      if (!paused) continue;
      (void)Process(index, std::nullopt, states, orders);
      chosen = Startable(states);
      if (chosen) return chosen;
    }
    return std::nullopt;
  }

  std::string Save() const override { return SaveFields(*this, Name()); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, Name()); }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.brackets_, self.band_of_, self.bands_, self.places_, self.open_, self.next_order_, self.in_band_);
  }

 private:
  std::string_view Name() const { return bohb_ ? "HyperBand for BOHB" : "HyperBand"; }

  // The brackets of a band differ in how many trials they start and how often they halve. Ray begins with the bracket
  // that never halves, for BOHB with the largest. Brackets whose first milestone would be 0 are left out.
  void NewBracket() {
    double eta = options_.reduction_factor;
    for (;;) {
      if (in_band_ == per_band_) in_band_ = 0;
      if (in_band_ == 0) ++bands_;
      int s = bohb_ ? per_band_ - in_band_ - 1 : in_band_;
      ++in_band_;
      double first = std::trunc(options_.max_t * std::pow(eta, -s));
      if (first == 0) continue;
      auto trials = static_cast<std::int64_t>(std::ceil(static_cast<double>(per_band_) / (s + 1) * std::pow(eta, s)));
      brackets_.emplace_back(trials, first, options_.max_t, eta, s, options_.stop_last_trials);
      band_of_.push_back(bands_ - 1);
      return;
    }
  }

  static bool WaitsForThisTrial(const Bracket& bracket, TrialNumber trial, const TrialStates& states) {
    return bracket.Filled() && std::ranges::all_of(bracket.live(), [&](const auto& entry) {
             return entry.second.trial == trial || states.Get(entry.second.trial) == TrialState::kPaused;
           });
  }

  // Halves the bracket if all of its trials have reached the milestone. `reporting` is the only trial that may run.
  Decision::Kind Process(std::size_t index, std::optional<TrialNumber> reporting, const TrialStates& states,
                         Orders& orders) {
    Bracket& bracket = brackets_[index];
    auto action = Decision::Kind::kPause;
    while (bracket.MilestoneReached()) {
      if (bracket.Finished()) {
        for (auto [order, live] : std::map(bracket.live())) {
          if (live.trial != reporting && states.Get(live.trial) == TrialState::kPaused) Stop(bracket, order, orders);
        }
        return Decision::Kind::kStop;
      }
      auto [good, bad] = bracket.Halve();
      for (auto order : bad) {
        if (EndOne(bracket, order, reporting, orders)) action = Decision::Kind::kStop;
      }
      for (auto order : good) {
        TrialNumber trial = bracket.live().at(order).trial;
        if (bracket.Continues(order)) {
          if (trial == reporting) {
            action = Decision::Kind::kContinue;
          } else if (states.Get(trial) == TrialState::kPaused) {
            if (bracket.MakeStartable(order)) orders.push_back({Order::Kind::kResume, trial});
            open_.insert(index);
          }
        } else if (bracket.Finished()) {
          if (EndOne(bracket, order, reporting, orders)) action = Decision::Kind::kStop;
        }
      }
      if (bracket.live().empty() || bracket.Endless()) break;
    }
    return action;
  }

  // True if the trial is the one that reports, which the decision itself ends.
  bool EndOne(Bracket& bracket, Bracket::Order order, std::optional<TrialNumber> reporting, Orders& orders) {
    TrialNumber trial = bracket.live().at(order).trial;
    if (trial != reporting) {
      Stop(bracket, order, orders);
      return false;
    }
    bracket.Remove(order);
    places_.erase(trial);
    return true;
  }

  void Stop(Bracket& bracket, Bracket::Order order, Orders& orders) {
    TrialNumber trial = bracket.live().at(order).trial;
    orders.push_back({Order::Kind::kStop, trial});
    bracket.Remove(order);
    places_.erase(trial);
  }

  // The first band that has a trial to start; in it the bracket with the least work done, for BOHB the first one.
  std::optional<TrialNumber> Startable(const TrialStates& states) {
    for (auto at = open_.begin(); at != open_.end();) {
      std::vector<std::size_t> band;
      std::int64_t number = band_of_[*at];
      while (at != open_.end() && band_of_[*at] == number) {
        if (brackets_[*at].startable().empty()) {
          at = open_.erase(at);
        } else {
          band.push_back(*at++);
        }
      }
      if (!bohb_) {
        std::ranges::stable_sort(band, {}, [&](std::size_t index) { return brackets_[index].Completion(); });
      }
      for (std::size_t index : band) {
        for (auto order : brackets_[index].startable()) {
          TrialNumber trial = brackets_[index].live().at(order).trial;
          auto state = states.Get(trial);  // running trials that have not reported yet are in the list, too
          if (state == TrialState::kPending || state == TrialState::kPaused) return trial;
        }
      }
    }
    return std::nullopt;
  }

  HyperBand options_;
  bool bohb_;
  int per_band_;
  std::vector<Bracket> brackets_;
  std::vector<std::int64_t> band_of_;  // of each bracket
  std::int64_t bands_ = 0;
  int in_band_ = 0;  // brackets of the last band, with those left out
  std::unordered_map<TrialNumber, std::pair<std::size_t, Bracket::Order>> places_;
  std::set<std::size_t> open_;  // brackets that may have a trial to start
  Bracket::Order next_order_ = 0;
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(HyperBand options) {
  return std::make_unique<HyperBandScheduler>(options, false);
}

std::unique_ptr<Scheduler> MakeScheduler(HyperBandForBohb options) {
  return std::make_unique<HyperBandScheduler>(
      HyperBand{options.mode, options.max_t, options.reduction_factor, options.stop_last_trials}, true);
}

}  // namespace manta::tune
