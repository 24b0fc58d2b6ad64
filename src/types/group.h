// What everybody may know of a placement group. Plain data, as it travels and as it is stored.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "manta/placement.h"
#include "types/id.h"
#include "types/resources.h"

namespace manta {

enum class GroupState : std::uint8_t { kWaiting = 0, kReady = 1, kRemoved = 2 };

struct GroupFacts {
  Id group;
  Id job;
  NodeNumber home = 0;  // the job's driver's node: the group ends with either, unless detached
  std::string name;
  std::string space = "default";
  GroupStrategy strategy = GroupStrategy::kPack;
  std::vector<Resources> bundles;
  bool detached = false;
  GroupState state = GroupState::kWaiting;
  std::uint64_t changes = 0;      // counts them
  std::vector<NodeNumber> nodes;  // by bundle, where it is; 0: nowhere now
  std::uint64_t attempt = 0;      // the last one by which a bundle came there
  Resources quota = {};           // of the job (wire::Welcome::quota)
  std::string why;                // kWaiting: why it cannot be had; kRemoved: why it was removed
  // By bundle, what the labels of its node must be; empty: anything.
  std::vector<std::vector<LabelRule>> labels = {};
};

// "placement group 'trainers' (3fa91c02)".
[[nodiscard]] std::string NameOf(const GroupFacts& facts);

}  // namespace manta
