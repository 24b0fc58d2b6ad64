#include "tune/trials/retention.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace manta::tune::trials {

std::vector<std::string> Retention::Add(Trial& trial, const Checkpoint& checkpoint) {
  KeptCheckpoint kept{.checkpoint = checkpoint};
  if (rules_.score_attribute.empty()) {
    kept.score = static_cast<double>(checkpoint.index);
  } else {
    std::optional<double> score = NumberOf(trial, rules_.score_attribute);
    kept.score = !score || std::isnan(*score)       ? -std::numeric_limits<double>::infinity()
                 : rules_.score_order == Mode::kMax ? *score
                                                    : -*score;
  }
  trial.next_checkpoint = std::max(trial.next_checkpoint, checkpoint.index + 1);
  trial.checkpoints.push_back(std::move(kept));
  return Trim(trial);
}

std::vector<std::string> Retention::Clone(Trial& trial, const Checkpoint& checkpoint) {
  Hold(checkpoint.path);
  trial.checkpoints.push_back(
      {.checkpoint = checkpoint, .score = -std::numeric_limits<double>::infinity(), .owned = false});
  return Trim(trial);
}

std::vector<std::string> Retention::DropLatest(Trial& trial) {
  std::vector<std::string> dropped;
  if (trial.checkpoints.empty()) return dropped;
  Unref(trial.checkpoints.back(), dropped);
  trial.checkpoints.pop_back();
  return dropped;
}

std::vector<std::string> Retention::DropAll(Trial& trial) {
  std::vector<std::string> dropped;
  for (const KeptCheckpoint& kept : trial.checkpoints) Unref(kept, dropped);
  trial.checkpoints.clear();
  return dropped;
}

void Retention::Hold(const std::string& path) { ++shared_[path]; }

std::vector<std::string> Retention::Trim(Trial& trial) {
  std::vector<std::string> dropped;
  auto& all = trial.checkpoints;
  // A clone is kept only while it is where a restart begins.
  for (std::size_t i = 0; i + 1 < all.size();) {
    if (all[i].owned) {
      ++i;
      continue;
    }
    Unref(all[i], dropped);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (!rules_.num_to_keep) return dropped;
  // Ray keeps the best num_to_keep and, beside them, the latest one.
  const auto keep = static_cast<std::size_t>(std::max<std::int64_t>(1, *rules_.num_to_keep));
  while (all.size() > keep) {
    auto worst = std::min_element(all.begin(), all.end(),
                                  [](const KeptCheckpoint& a, const KeptCheckpoint& b) { return a.score < b.score; });
    if (worst + 1 == all.end()) {  // the latest is the worst: one more stays
      if (all.size() == keep + 1) break;
      worst = std::min_element(all.begin(), all.end() - 1,
                               [](const KeptCheckpoint& a, const KeptCheckpoint& b) { return a.score < b.score; });
    }
    Unref(*worst, dropped);
    all.erase(worst);
  }
  return dropped;
}

// A folder is deleted when its own trial has dropped it and no clone of it is left.
void Retention::Unref(const KeptCheckpoint& kept, std::vector<std::string>& dropped) {
  const std::string& path = kept.checkpoint.path;
  auto found = shared_.find(path);
  if (kept.owned) {
    if (found == shared_.end())
      dropped.push_back(path);
    else
      orphans_.insert(path);
    return;
  }
  if (found == shared_.end() || --found->second > 0) return;
  shared_.erase(found);
  if (orphans_.erase(path) > 0) dropped.push_back(path);
}

}  // namespace manta::tune::trials
