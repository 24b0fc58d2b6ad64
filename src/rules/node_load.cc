#include "rules/node_load.h"

#include <algorithm>

namespace manta::rules {

std::size_t NodeLoad::Index(ClassId id, const Resources& need) {
  const auto [it, made] = by_id_.try_emplace(id, classes_.size());
  if (made) classes_.push_back({id, need, 0, {}, kGuessUs});
  return it->second;
}

void NodeLoad::Queued(std::size_t index, std::int64_t delta) {
  std::int64_t& queued = classes_[index].queued;
  queued = std::max<std::int64_t>(queued + delta, 0);
}

double NodeLoad::MeanRunUs(std::size_t index) const { return classes_[index].mean.Or(classes_[index].hint_us); }

double NodeLoad::Backlog(const std::string& resource) const {
  double sum = 0;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i].queued == 0) continue;
    sum += static_cast<double>(classes_[i].queued) * MeanRunUs(i) * static_cast<double>(classes_[i].need.Get(resource));
  }
  return sum;
}

std::map<std::string, double> NodeLoad::Backlogs() const {
  std::map<std::string, double> out;
  for (std::size_t i = 0; i < classes_.size(); ++i) {
    if (classes_[i].queued == 0) continue;
    for (const auto& [name, amount] : classes_[i].need.amounts()) {
      out[name] += static_cast<double>(classes_[i].queued) * MeanRunUs(i) * static_cast<double>(amount);
    }
  }
  return out;
}

double NodeLoad::WaitUs(std::size_t index, const Resources& free) const {
  const Class& one = classes_[index];
  double wait = 0;
  for (const auto& [name, amount] : one.need.amounts()) {
    const std::int64_t total = total_.Get(name);
    if (free.Get(name) >= amount || total <= 0) continue;
    const double own_turn = static_cast<double>(amount) * MeanRunUs(index);
    wait = std::max(wait, (Backlog(name) + own_turn) / static_cast<double>(total));
  }
  return wait;
}

std::vector<ClassLoad> NodeLoad::Classes() const {
  std::vector<ClassLoad> out;
  for (const Class& one : classes_) {
    if (one.queued > 0 || one.mean.known()) out.push_back({one.id, one.queued, one.mean.Or(0)});
  }
  return out;
}

}  // namespace manta::rules
