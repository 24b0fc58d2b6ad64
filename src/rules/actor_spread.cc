#include "rules/actor_spread.h"

#include <tuple>

namespace manta::rules {

NodeId ActorSpread::Choose(const Id& actor, NodeId wanted, const std::vector<NodeOffer>& nodes) const {
  const auto self = where_.find(actor);
  NodeId best = kNoNode;
  std::tuple<bool, double, bool, NodeId> least;
  for (const NodeOffer& offer : nodes) {
    if (offer.draining) continue;
    const double cpus = static_cast<double>(offer.total.Get("CPU")) / kUnit;
    const std::size_t others = On(offer.node) - (self != where_.end() && self->second == offer.node ? 1 : 0);
    const double load = static_cast<double>(others + 1) / (cpus > 0 ? cpus : 1);
    const std::tuple cost(cpus <= 0, load, offer.node != wanted, offer.node);
    if (best != kNoNode && cost >= least) continue;
    best = offer.node;
    least = cost;
  }
  return best;
}

void ActorSpread::Put(const Id& actor, NodeId node) {
  Remove(actor);
  where_.emplace(actor, node);
  ++counts_[node];
}

void ActorSpread::Remove(const Id& actor) {
  const auto it = where_.find(actor);
  if (it == where_.end()) return;
  const auto count = counts_.find(it->second);
  if (--count->second == 0) counts_.erase(count);
  where_.erase(it);
}

std::size_t ActorSpread::On(NodeId node) const {
  const auto it = counts_.find(node);
  return it == counts_.end() ? 0 : it->second;
}

}  // namespace manta::rules
