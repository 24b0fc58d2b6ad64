// Population is what population based training and PB2 share: when trials are compared, which of them clone another
// trial, and the turns that they take when there are more trials than the machine can run.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/population.h"
#include "tune/search/random.h"

namespace manta::tune {

struct PopulationOptions {
  Mode mode = Mode::kMin;
  double perturbation_interval = 60;
  double burn_in_period = 0;
  double quantile_fraction = 0.25;
  std::function<Config(Config)> custom_explore;
  bool log_config = true;
  bool require_attrs = true;
  bool synch = false;
  std::uint64_t seed = 0;
};

class Population : public Scheduler {
 public:
  explicit Population(PopulationOptions options);  // throws std::invalid_argument
  std::optional<Config> OnAdd(TrialNumber trial, const Config& config) final;
  Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) final;
  Orders OnComplete(TrialNumber trial, const Report&, const TrialStates& states) final {
    return OnRemove(trial, states);
  }
  Orders OnRemove(TrialNumber trial, const TrialStates& states) final;
  std::optional<TrialNumber> Choose(const TrialStates& states, Orders& orders) final;

 protected:
  // Adds the keys that the configuration of a new trial lacks.
  virtual void Fill(Config& config, Stream& random) = 0;
  // The configuration with which the trial goes on from the donor.
  virtual Config Explore(TrialNumber trial, TrialNumber donor, const Config& donor_config, Stream& random) = 0;
  // A trial reached a time of comparison. The higher score is better.
  virtual void OnScore(TrialNumber, const Config&, double /*time*/, double /*score*/) {}

  const PopulationOptions& population_options() const { return options_; }
  void Restore();  // rebuilds the orders after Load

  template <class Self, class Archive>
  static void PopulationFields(Self& self, Archive& archive) {
    archive(self.members_, self.trial_of_, self.next_order_, self.next_synch_, self.longest_ended_);
  }

 private:
  // The order in which trials were added decides between equal scores and equal times.
  using AddOrder = std::int64_t;
  struct Member {
    AddOrder order = 0;
    Config config;
    std::optional<double> score = {};
    bool saved = false;  // has a checkpoint of its last comparison, because it was among the best
    double last_perturbation = 0;
    double last_train = 0;
    std::int64_t iteration = 0;
    std::uint64_t explored = 0;
    template <class Self, class Archive>
    static void Fields(Self& self, Archive& archive) {
      archive(self.order, self.config, self.score, self.saved, self.last_perturbation, self.last_train, self.iteration,
              self.explored);
    }
  };

  Decision Decide(TrialNumber trial, Member& member, const Report& report, const TrialStates& states);
  Decision DecideTogether(TrialNumber trial, double time, const TrialStates& states);
  Orders PerturbAll(double time, std::optional<TrialNumber> reporting, Decision* own, const TrialStates& states);
  bool AllWait(std::optional<TrialNumber> except) const;
  std::optional<Exploit> SaveOrExploit(TrialNumber trial, Member& member, const TrialStates& states);
  std::optional<Exploit> ExploitOne(TrialNumber trial, Member& member, const TrialStates& states);
  void SetTrainTime(Member& member, double time);
  void SetScore(Member& member, std::optional<double> score);
  std::size_t InQuantile() const;  // how many trials the lower and the upper quantile have
  std::size_t Rank(const Member& member) const;
  bool Ranked(const Member& member) const;

  PopulationOptions options_;
  std::map<TrialNumber, Member> members_;  // the live trials
  std::map<AddOrder, TrialNumber> trial_of_;
  std::vector<std::pair<double, AddOrder>> ranking_;   // by score, the worst first; without nan
  std::set<std::pair<double, AddOrder>> train_times_;  // the least trained first
  AddOrder next_order_ = 0;
  double next_synch_ = 0;
  double longest_ended_ = 0;  // the training time of ended trials
};

}  // namespace manta::tune
