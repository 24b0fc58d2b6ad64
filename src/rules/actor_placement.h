// Where an actor is to run: on the node that it is wanted on, if that has room now; else the global scheduler says.
// Pure functions, called by the actor's home.
//
// Why not the local queue first, as tasks: an actor keeps what it gets, so a wait may be for ever, and its state is
// where it is, so there is nothing to be near to but its creator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/cluster.h"
#include "types/resources.h"
#include "types/status.h"

namespace manta::rules {

struct NodeOffer {
  NodeId node = kNoNode;
  Resources total;
  bool draining = false;

  [[nodiscard]] bool CanHold(const Resources& need) const { return !draining && total.Covers(need); }
};

enum class ActorGoes : std::uint8_t {
  kHere,   // into this node's queue
  kThere,  // the wanted node is asked
  kUp,     // the global scheduler is asked
  kNowhere
};

// `self` decides; `wanted` is its creator's node, or where it ran before; `free` is what `self` has at once.
[[nodiscard]] ActorGoes FirstPlace(const Resources& need, NodeId self, NodeId wanted, const Resources& free,
                                   const std::vector<NodeOffer>& nodes);

// Why no node can hold it: what is asked for, and what each kind of node has.
[[nodiscard]] Status NoNodeHolds(const std::string& who, const Resources& need, const std::vector<NodeOffer>& nodes);

}  // namespace manta::rules
