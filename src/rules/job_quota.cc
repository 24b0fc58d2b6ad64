#include "rules/job_quota.h"

#include <algorithm>

namespace manta::rules {

Resources JobQuota::ShareOf(const Node& node) {
  Resources share = node.have;
  for (const Given& given : node.under_way) share.Add(given.more);
  return share;
}

Resources JobQuota::Heard(NodeId id, const Resources& have, const Resources& lacks, std::uint64_t seen) {
  Node& node = nodes_[id];
  const Resources before = ShareOf(node);
  std::erase_if(node.under_way, [&](const Given& given) { return given.lost || given.number <= seen; });
  // Not more than it was ever given, whatever it says.
  node.have = {};
  const Resources still = ShareOf(node);
  for (const auto& [name, amount] : have.amounts()) {
    node.have.Set(name,
                  std::clamp<std::int64_t>(amount, 0, std::max<std::int64_t>(before.Get(name) - still.Get(name), 0)));
  }
  node.lacks = lacks;
  Resources back = before;
  back.Subtract(ShareOf(node));
  here_.Add(back);
  ForgetIfEmpty(id);
  return back;
}

std::uint64_t JobQuota::Give(NodeId id, const Resources& more) {
  here_.Subtract(more);
  Node& node = nodes_[id];
  node.under_way.push_back({++last_number_, more, false});
  for (const auto& [name, amount] : more.amounts()) {
    node.lacks.Set(name, std::max<std::int64_t>(node.lacks.Get(name) - amount, 0));
  }
  return last_number_;
}

void JobQuota::LinkLost(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return;
  for (Given& given : it->second.under_way) given.lost = true;
  it->second.lacks = {};
  ForgetIfEmpty(id);
}

Resources JobQuota::NodeGone(NodeId id) {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return {};
  const Resources back = ShareOf(it->second);
  here_.Add(back);
  nodes_.erase(it);
  return back;
}

void JobQuota::ForgetIfEmpty(NodeId id) {
  const auto it = nodes_.find(id);
  if (it->second.have.empty() && it->second.under_way.empty() && it->second.lacks.empty()) nodes_.erase(it);
}

Resources JobQuota::Share(NodeId id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? Resources() : ShareOf(it->second);
}

Resources JobQuota::Lacks(NodeId id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? Resources() : it->second.lacks;
}

Resources JobQuota::Recall(NodeId id) const {
  const auto it = nodes_.find(id);
  if (it == nodes_.end()) return {};
  Resources wanted = home_lacks_;
  for (const auto& [other, node] : nodes_) {
    if (other != id) wanted.Add(node.lacks);
  }
  const Resources share = ShareOf(it->second);
  Resources recall;
  for (const auto& [name, amount] : wanted.amounts()) recall.Set(name, std::min(amount, share.Get(name)));
  return recall;
}

std::vector<NodeId> JobQuota::nodes() const {
  std::vector<NodeId> out;
  for (const auto& [id, node] : nodes_) out.push_back(id);
  return out;
}

}  // namespace manta::rules
