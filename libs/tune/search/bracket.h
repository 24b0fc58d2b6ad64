// Bracket is one round of successive halving: its trials run to a milestone, the best 1/eta go on to the next
// milestone, the others stop. HyperBand fills brackets of different sizes.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "manta/tune/schedule.h"

namespace manta::tune {

class Bracket {
 public:
  // Trials are known by the order in which they were added, which decides between equal values.
  using Order = std::int64_t;
  struct Live {
    TrialNumber trial = 0;
    bool reported = false;
    double time = 0;
    double score = 0;  // the higher is better
    template <class Self, class Archive>
    static void Fields(Self& self, Archive& archive) {
      archive(self.trial, self.reported, self.time, self.score);
    }
  };
  struct Halved {
    std::vector<Order> good, bad;  // each from the worst to the best
  };

  Bracket() = default;
  Bracket(std::int64_t trials, double first_milestone, double max_t, double eta, int halvings, bool stop_last);

  void Add(Order order, TrialNumber trial);
  void Update(Order order, double time, double score);
  bool Contains(Order order) const { return live_.contains(order); }
  void Remove(Order order) { live_.erase(order), startable_.erase(order); }
  // The trial waits for its first start, or may go on after a pause.
  bool MakeStartable(Order order) { return startable_.insert(order).second; }

  bool Filled() const { return static_cast<std::int64_t>(live_.size()) == trials_; }
  bool MilestoneReached() const;  // by all trials
  bool Finished() const { return stop_last_ && halvings_ == 0 && MilestoneReached(); }
  // There is no further milestone, and the trials run until they end by themselves.
  bool Endless() const { return !stop_last_ && halvings_ == 0; }
  bool Continues(Order order) const { return Endless() || live_.at(order).time < milestone_; }
  Halved Halve();
  double Completion() const;

  double milestone() const { return milestone_; }
  bool halved() const { return halved_; }
  const std::map<Order, Live>& live() const { return live_; }
  const std::set<Order>& startable() const { return startable_; }

  template <class Self, class Archive>
  static void Fields(Self& self, Archive& archive) {
    archive(self.live_, self.startable_, self.trials_, self.milestone_, self.max_t_, self.eta_, self.halvings_,
            self.stop_last_, self.halved_, self.work_, self.progress_);
  }

 private:
  std::map<Order, Live> live_;
  std::set<Order> startable_;
  std::int64_t trials_ = 0;  // how many go on at this milestone
  double milestone_ = 0;
  double max_t_ = 0;
  double eta_ = 0;
  int halvings_ = 0;  // that are left
  bool stop_last_ = true;
  bool halved_ = false;
  double work_ = 0;
  double progress_ = 0;
};

}  // namespace manta::tune
