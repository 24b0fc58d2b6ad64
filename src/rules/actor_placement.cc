#include "rules/actor_placement.h"

#include <algorithm>
#include <map>

#include "types/text.h"

namespace manta::rules {

ActorGoes FirstPlace(const Resources& need, NodeId self, NodeId wanted, const Resources& free,
                     const std::vector<NodeOffer>& nodes) {
  bool here = false;
  bool there = false;
  bool others = false;
  for (const NodeOffer& offer : nodes) {
    if (!offer.CanHold(need)) continue;
    here |= offer.node == self;
    there |= offer.node == wanted && offer.node != self;
    others |= offer.node != self;
  }
  if (there) return ActorGoes::kThere;
  if (here && (free.Covers(need) || !others)) return ActorGoes::kHere;
  return here || others ? ActorGoes::kUp : ActorGoes::kNowhere;
}

Status NoNodeHolds(const std::string& who, const Resources& need, const std::vector<NodeOffer>& nodes) {
  std::map<std::string, std::size_t> kinds;
  std::size_t draining = 0;
  for (const NodeOffer& offer : nodes) {
    if (offer.draining) {
      ++draining;
    } else {
      ++kinds[ToString(offer.total)];
    }
  }
  std::string text = Cat(who, " asks for ", ToString(need), ", which no node of the cluster has:");
  for (const auto& [total, count] : kinds) {
    text += Cat(text.back() == ':' ? " " : ", ", count, count == 1 ? " node has " : " nodes have ", total);
  }
  if (draining > 0) text += Cat(kinds.empty() ? " " : ", ", draining, draining == 1 ? " is" : " are", " being drained");
  return {Code::kInfeasible, text + "; ask for less, or start a node that has it"};
}

}  // namespace manta::rules
