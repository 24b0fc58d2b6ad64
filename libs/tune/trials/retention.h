// Retention decides which checkpoints of a trial stay. The latest one always stays, because a restart begins there; of
// the others the best `num_to_keep` by score. A folder that another trial was cloned from stays while that trial may
// need it, so folders are counted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tune/trials/trial.h"

namespace manta::tune::trials {

struct CheckpointRules {                         // CheckpointConfig
  std::optional<std::int64_t> num_to_keep = {};  // none: all; at least 1
  std::string score_attribute = {};              // empty: the later, the better
  Mode score_order = Mode::kMax;
  std::int64_t frequency = 0;  // 0: only those that the trainable reports
  bool at_end = false;
};

class Retention {
 public:
  explicit Retention(CheckpointRules rules) : rules_(std::move(rules)) {}
  const CheckpointRules& rules() const { return rules_; }

  // Adds a checkpoint of the trial's own, and returns the paths of the folders that may be deleted now.
  std::vector<std::string> Add(Trial& trial, const Checkpoint& checkpoint);
  // The trial was cloned from the donor's checkpoint, which replaces its own as the place where it restarts.
  std::vector<std::string> Clone(Trial& trial, const Checkpoint& checkpoint);
  // The latest checkpoint cannot be read.
  std::vector<std::string> DropLatest(Trial& trial);
  // The trial begins anew.
  std::vector<std::string> DropAll(Trial& trial);

 private:
  void Hold(const std::string& path);
  std::vector<std::string> Trim(Trial& trial);
  void Unref(const KeptCheckpoint& kept, std::vector<std::string>& dropped);

  CheckpointRules rules_;
  std::unordered_map<std::string, int> shared_;  // folders that trials were cloned from, and by how many
  std::unordered_set<std::string> orphans_;      // of these, folders that their own trial has dropped
};

}  // namespace manta::tune::trials
