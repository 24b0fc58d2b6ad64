#include "rules/membership.h"

#include <algorithm>

#include "types/text.h"

namespace manta::rules {

std::uint64_t Membership::Register(NodeId node, std::int64_t now_us, MembershipActions* actions) {
  Node& entry = nodes_[node];
  if (!last_tick_us_) last_tick_us_ = now_us;  // from now on we are expected to look
  if (entry.phase != NodePhase::kDead) Die(node, &entry, "it registered again", actions);
  ++entry.incarnation;
  entry.phase = NodePhase::kAlive;
  entry.heard_us = now_us;
  actions->push_back(NodeCameUp{node, entry.incarnation});
  return entry.incarnation;
}

void Membership::Restore(NodeId node, std::uint64_t incarnation, bool alive, std::int64_t now_us) {
  Node& entry = nodes_[node];
  if (!last_tick_us_) last_tick_us_ = now_us;
  if (incarnation < entry.incarnation) return;
  entry = {incarnation, alive ? NodePhase::kAlive : NodePhase::kDead, now_us};
}

bool Membership::Heard(NodeId node, std::uint64_t incarnation, std::int64_t now_us) {
  if (!Lives(node, incarnation)) return false;
  Node& entry = nodes_[node];
  entry.heard_us = std::max(entry.heard_us, now_us);
  entry.phase = NodePhase::kAlive;
  return true;
}

void Membership::Closed(NodeId node, std::uint64_t incarnation, MembershipActions* actions) {
  if (Lives(node, incarnation)) Die(node, &nodes_[node], "its connection closed", actions);
}

void Membership::Left(NodeId node, std::uint64_t incarnation, MembershipActions* actions) {
  if (Lives(node, incarnation)) Die(node, &nodes_[node], "it left", actions);
}

void Membership::Tick(std::int64_t now_us, MembershipActions* actions) {
  // What we did not see because we did not look is not the nodes' silence.
  if (last_tick_us_ && now_us - *last_tick_us_ > kLongestRoundUs) {
    const std::int64_t stall = now_us - *last_tick_us_ - kLongestRoundUs;
    for (auto& [id, node] : nodes_) node.heard_us = std::min(node.heard_us + stall, now_us);
  }
  last_tick_us_ = now_us;
  for (auto& [id, node] : nodes_) {
    if (node.phase == NodePhase::kDead) continue;
    const std::int64_t silence = now_us - node.heard_us;
    if (silence >= kDeadUs) {
      Die(id, &node, Cat("it was silent for ", silence / 1000, " ms, and ", kDeadUs / 1000, " are allowed"), actions);
    } else if (silence >= kSuspectUs && node.phase == NodePhase::kAlive) {
      node.phase = NodePhase::kSuspect;
      actions->push_back(ProbeNode{id, node.incarnation});
    }
  }
}

std::int64_t Membership::NextTick() const {
  std::int64_t next = kNever;
  for (const auto& [id, node] : nodes_) {
    if (node.phase == NodePhase::kDead) continue;
    next = std::min(next, node.heard_us + (node.phase == NodePhase::kAlive ? kSuspectUs : kDeadUs));
  }
  // Not later than what tells our own stalls from theirs.
  if (next != kNever && last_tick_us_) next = std::min(next, *last_tick_us_ + kLongestRoundUs);
  return next;
}

bool Membership::Lives(NodeId node, std::uint64_t incarnation) const {
  const Node* entry = Find(node);
  return entry != nullptr && entry->incarnation == incarnation && entry->phase != NodePhase::kDead;
}

const Membership::Node* Membership::Find(NodeId node) const {
  const auto it = nodes_.find(node);
  return it == nodes_.end() ? nullptr : &it->second;
}

void Membership::Die(NodeId id, Node* node, std::string why, MembershipActions* actions) {
  node->phase = NodePhase::kDead;
  actions->push_back(NodeDied{id, node->incarnation, std::move(why)});
}

}  // namespace manta::rules
