// ActorSpread chooses the node of an actor that asks for no resources: the node with the fewest such actors for each of
// its CPUs. Without it such an actor fits everywhere, so all of them would run on their creator's node.
// Pure bookkeeping of one home (node/far_actors.h), for the actors of all jobs that are at home there. The home's loop
// calls it.
//
// Invariant: every actor counts at one node at most; a node's count is zero when none of its actors is left.
//
// Why counts, and not the load that heartbeats report: an idle actor loads nothing, so a program that creates its
// actors first and calls them later would find all nodes equally idle. Why the creator's node among equals: a single
// actor stays near its caller. Other homes' actors are not counted: a home does not know them.
#pragma once

#include <cstddef>
#include <unordered_map>
#include <vector>

#include "rules/actor_placement.h"
#include "types/id.h"

namespace manta::rules {

class ActorSpread {
 public:
  // A node without CPUs is chosen only if every node is without; `wanted` is chosen among equals, then the lowest
  // number. kNoNode: all nodes are draining, or there is none. The actor itself is not counted.
  [[nodiscard]] NodeId Choose(const Id& actor, NodeId wanted, const std::vector<NodeOffer>& nodes) const;

  // It runs there, or is about to; it has left the node where it counted before.
  void Put(const Id& actor, NodeId node);
  void Remove(const Id& actor);

  [[nodiscard]] bool Counts(const Id& actor) const { return where_.contains(actor); }
  [[nodiscard]] std::size_t On(NodeId node) const;

 private:
  std::unordered_map<Id, NodeId> where_;
  std::unordered_map<NodeId, std::size_t> counts_;
};

}  // namespace manta::rules
