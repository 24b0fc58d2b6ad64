// ASHA as in its paper (Li et al., 2020): a trial is paused at each milestone. A free worker takes the best paused
// trial that is in the top 1/reduction_factor of its milestone, of the highest milestone first, and otherwise a new
// trial. What was paused too early is promoted when later trials show that it was good.
#include <cmath>
#include <limits>
#include <set>
#include <unordered_map>

#include "tune/search/archive.h"
#include "tune/search/asha.h"

namespace manta::tune {
namespace {

// The trials that reached a milestone: the best 1/reduction_factor, the others, and which of the best are waiting.
class Level {
 public:
  // The higher score is better; among equals the earlier trial.
  struct Entry {
    double score = 0;
    TrialNumber trial = 0;
    bool operator<(const Entry& other) const {
      return score != other.score ? score > other.score : trial < other.trial;
    }
    template <class Self, class Archive>
    static void Fields(Self& self, Archive& archive) {
      archive(self.score, self.trial);
    }
  };

  Level(double milestone, double factor) : milestone_(milestone), factor_(factor) {}
  double milestone() const { return milestone_; }
  const std::set<Entry>& ready() const { return ready_; }
  void Leave(const Entry& entry) { ready_.erase(entry), waiting_.erase(entry); }

  void Insert(const Entry& entry) {
    waiting_.insert(entry);
    Place(entry);
    auto wanted = static_cast<std::size_t>(static_cast<double>(best_.size() + others_.size()) / factor_);
    while (best_.size() > wanted) {
      ready_.erase(*best_.rbegin());
      others_.insert(best_.extract(std::prev(best_.end())));
    }
    while (best_.size() < wanted) {
      if (waiting_.contains(*others_.begin())) ready_.insert(*others_.begin());
      best_.insert(others_.extract(others_.begin()));
    }
  }

  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.best_, self.others_, self.waiting_, self.ready_);
  }

 private:
  void Place(const Entry& entry) {
    if (best_.empty() || *best_.rbegin() < entry) {
      others_.insert(entry);
    } else {
      best_.insert(entry);
      ready_.insert(entry);
    }
  }

  double milestone_, factor_;
  std::set<Entry> best_, others_;  // all that reached the milestone
  std::set<Entry> waiting_;        // those that did not go on from here
  std::set<Entry> ready_;          // those of the best that wait
};

class PromotingAsha : public Scheduler {
 public:
  explicit PromotingAsha(const Asha& options) : options_(options) {
    for (const auto& milestones : AshaMilestones(options)) {
      auto& levels = brackets_.emplace_back();
      for (auto at = milestones.rbegin(); at != milestones.rend(); ++at) {
        levels.emplace_back(*at, options.reduction_factor);
      }
    }
  }

  std::optional<Config> OnAdd(TrialNumber trial, const Config&) override {
    trials_[trial].bracket = AshaBracket(options_, trial);
    return std::nullopt;
  }

  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) override {
    if (!report.time || !report.value) return {};
    auto found = trials_.find(trial);
    if (found == trials_.end()) {
      throw std::invalid_argument("trial " + std::to_string(trial) + " is unknown to the scheduler. Add it first.");
    }
    again_.erase(trial);
    Leave(trial, found->second);
    if (*report.time >= options_.max_t && options_.stop_last_trials) return {Decision::Kind::kStop};
    if (!Record(trial, found->second, *report.time, *report.value)) return {};
    if (Promotable(states, trial) != trial) return {Decision::Kind::kPause};
    Leave(trial, found->second);
    return {};
  }

  Orders OnComplete(TrialNumber trial, const Report& report, const TrialStates& states) override {
    auto found = trials_.find(trial);
    if (found != trials_.end() && report.time && report.value) {
      (void)Record(trial, found->second, *report.time, *report.value);
    }
    return OnRemove(trial, states);
  }

  Orders OnRemove(TrialNumber trial, const TrialStates&) override {
    auto found = trials_.find(trial);
    if (found == trials_.end()) return {};
    Leave(trial, found->second);
    again_.erase(trial);
    trials_.erase(found);
    return {};
  }

  void OnPending(TrialNumber trial) override { again_.insert(trial); }

  std::optional<TrialNumber> Choose(const TrialStates& states, Orders& orders) override {
    for (TrialNumber trial : again_) {
      auto state = states.Get(trial);
      if (state == TrialState::kPending || state == TrialState::kPaused) return trial;
    }
    if (auto promoted = Promotable(states, std::nullopt)) return promoted;
    if (auto pending = states.FirstPending()) return pending;
    // Nothing will be promoted any more: a paused trial outside of the best stays there.
    if (states.MayAdd() || states.AnyRunning()) return std::nullopt;
    for (const auto& [trial, state] : trials_) {
      if (states.Get(trial) == TrialState::kPaused) orders.push_back({Order::Kind::kStop, trial});
    }
    return std::nullopt;
  }

  std::string Save() const override { return SaveFields(*this, "ASHA with promotion"); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, "ASHA with promotion"); }
  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    for (auto& levels : self.brackets_) {
      for (auto& level : levels) archive(level);
    }
    archive(self.trials_, self.again_);
  }

 private:
  struct State {
    std::size_t bracket = 0;
    std::size_t next = 0;                      // the first level that the trial has not reached
    std::optional<std::size_t> waits_at = {};  // the level where it was paused
    double score = 0;
    template <class Self, class Archive>
    static void Fields(Self& self, Archive& archive) {
      archive(self.bracket, self.next, self.waits_at, self.score);
    }
  };

  // False when the trial has reached no further milestone.
  bool Record(TrialNumber trial, State& state, double time, double value) {
    auto& levels = brackets_[state.bracket];
    if (state.next >= levels.size() || time < levels[state.next].milestone()) return false;
    while (state.next + 1 < levels.size() && time >= levels[state.next + 1].milestone()) ++state.next;
    double score = options_.mode == Mode::kMax ? value : -value;
    state.score = std::isnan(score) ? -std::numeric_limits<double>::infinity() : score;
    levels[state.next].Insert({state.score, trial});
    // There is nothing to be promoted to above the last milestone: the trial goes on.
    if (++state.next == levels.size()) {
      levels.back().Leave({state.score, trial});
      return false;
    }
    state.waits_at = state.next - 1;
    return true;
  }

  void Leave(TrialNumber trial, State& state) {
    if (!state.waits_at) return;
    brackets_[state.bracket][*state.waits_at].Leave({state.score, trial});
    state.waits_at.reset();
  }

  // The best trial that may go on, of the highest level. `reporting` is running, but would be paused otherwise.
  std::optional<TrialNumber> Promotable(const TrialStates& states, std::optional<TrialNumber> reporting) const {
    const Level* best = nullptr;
    std::optional<TrialNumber> chosen;
    for (const auto& levels : brackets_) {
      for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
        if (best != nullptr && level->milestone() <= best->milestone()) break;
        // Trials that were promoted and have not reported yet are still in the list; they are running.
        for (const auto& entry : level->ready()) {
          if (entry.trial != reporting && states.Get(entry.trial) != TrialState::kPaused) continue;
          best = &*level;
          chosen = entry.trial;
          break;
        }
      }
    }
    return chosen;
  }

  Asha options_;
  std::vector<std::vector<Level>> brackets_;  // the lowest level first
  std::map<TrialNumber, State> trials_;
  std::set<TrialNumber> again_;  // those that were interrupted
};

}  // namespace

std::unique_ptr<Scheduler> MakePromotingAsha(const Asha& options) { return std::make_unique<PromotingAsha>(options); }

}  // namespace manta::tune
