#include "tune/search/points.h"

#include <cmath>

namespace manta::tune {

PointsSearcher::PointsSearcher(const Space& space, std::uint64_t seed, std::vector<Mode> modes,
                               std::vector<Config> points, const std::vector<double>& rewards)
    : HistorySearcher(modes), encoding_(space), seed_(seed) {
  if (rewards.size() > points.size()) {
    throw std::invalid_argument("there are " + std::to_string(rewards.size()) + " evaluated_rewards and " +
                                std::to_string(points.size()) +
                                " points_to_evaluate. Give at most one reward for each point.");
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    std::vector<double> unit = encoding_.Encode(points[i]);  // refuses bad values now
    if (i < rewards.size()) {
      if (std::isfinite(rewards[i])) known_.push_back({unit, modes[0] == Mode::kMax ? -rewards[i] : rewards[i]});
    } else {
      points_.push_back(points[i]);
    }
  }
}

std::vector<double> PointsSearcher::Draw(TrialNumber trial) const {
  Stream stream(seed_, trial, Purpose::kSample);
  std::vector<double> unit(encoding_.size());
  for (double& u : unit) u = stream.Uniform();
  return unit;
}

Answer PointsSearcher::Propose(TrialNumber trial) {
  if (trials().size() >= points_.size()) return encoding_.Decode(Suggest(trial));
  std::vector<double> unit = encoding_.Encode(points_[trials().size()]);
  std::vector<double> drawn = Draw(trial);
  for (std::size_t i = 0; i < unit.size(); ++i) {
    if (std::isnan(unit[i])) unit[i] = drawn[i];
  }
  return encoding_.Decode(unit);
}

}  // namespace manta::tune
