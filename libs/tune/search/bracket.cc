#include "tune/search/bracket.h"

#include <algorithm>
#include <cmath>

namespace manta::tune {

Bracket::Bracket(std::int64_t trials, double first_milestone, double max_t, double eta, int halvings, bool stop_last)
    : trials_(trials),
      milestone_(first_milestone),
      max_t_(max_t),
      eta_(eta),
      halvings_(halvings),
      stop_last_(stop_last) {
  auto n = static_cast<double>(trials);
  double r = first_milestone;
  for (int i = 0; i <= halvings; ++i) {
    work_ += n * r;
    n = std::ceil(n / eta);
    r = std::trunc(std::min(r * eta, max_t - first_milestone));
  }
}

void Bracket::Add(Order order, TrialNumber trial) {
  live_[order] = {.trial = trial};
  startable_.insert(order);
}

void Bracket::Update(Order order, double time, double score) {
  Live& live = live_.at(order);
  progress_ += time - live.time;
  live.reported = true;
  live.time = time;
  live.score = score;
  startable_.erase(order);
}

bool Bracket::MilestoneReached() const {
  return std::ranges::all_of(live_, [&](const auto& entry) { return entry.second.time >= milestone_; });
}

Bracket::Halved Bracket::Halve() {
  halved_ = true;
  Halved result;
  for (const auto& [order, live] : live_) result.good.push_back(order);
  if (halvings_ == 0) return result;
  --halvings_;
  trials_ = static_cast<std::int64_t>(std::ceil(static_cast<double>(trials_) / eta_));
  milestone_ = std::trunc(std::min(milestone_ * eta_, max_t_));
  std::ranges::stable_sort(result.good, {}, [&](Order order) { return live_.at(order).score; });
  auto bad = std::max<std::int64_t>(0, static_cast<std::int64_t>(result.good.size()) - trials_);
  result.bad.assign(result.good.begin(), result.good.begin() + bad);
  result.good.erase(result.good.begin(), result.good.begin() + bad);
  return result;
}

double Bracket::Completion() const { return Finished() ? 1 : std::min(progress_ / work_, 1.0); }

}  // namespace manta::tune
