// PointsSearcher tries points_to_evaluate first and then asks the searcher for a point of the unit cube. Points that
// have a reward are known results: they are not tried, and the searcher learns from them.
#pragma once

#include <vector>

#include "tune/search/encoding.h"
#include "tune/search/history.h"
#include "tune/search/random.h"

namespace manta::tune {

class PointsSearcher : public HistorySearcher {
 public:
  PointsSearcher(const Space& space, std::uint64_t seed, std::vector<Mode> modes, std::vector<Config> points,
                 const std::vector<double>& rewards);

 protected:
  struct Known {
    std::vector<double> unit;
    double value;  // lower is better
  };
  Answer Propose(TrialNumber trial) final;
  // A point of the unit cube for the trial. Must not change the state of the searcher.
  virtual std::vector<double> Suggest(TrialNumber trial) = 0;

  // A point drawn from the space for the trial.
  std::vector<double> Draw(TrialNumber trial) const;
  const Encoding& encoding() const { return encoding_; }
  const std::vector<Known>& known() const { return known_; }
  std::uint64_t seed() const { return seed_; }

 private:
  Encoding encoding_;
  std::uint64_t seed_;
  std::vector<Config> points_;  // those without a reward
  std::vector<Known> known_;
};

}  // namespace manta::tune
