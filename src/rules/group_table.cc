#include "rules/group_table.h"

#include <algorithm>

#include "types/text.h"

namespace manta::rules {

Status GroupTable::Create(GroupFacts facts, bool alone, std::int64_t now_us, Out* out) {
  if (!facts.name.empty()) {
    const auto taken = names_.find({facts.space, facts.name});
    if (taken != names_.end()) {
      return {Code::kInvalid, Cat("a placement group named '", facts.name, "' exists already in namespace '",
                                  facts.space, "'; choose another name, or look it up")};
    }
  }
  const Id id = facts.group;
  GroupActions actions;
  const GroupSpec spec{facts.strategy, facts.bundles, facts.name, facts.labels};
  if (Status status = groups_.Create(id, spec, now_us, &actions); !status.ok()) return status;
  if (alone) {
    for (const GroupAction& action : actions) {
      const auto* infeasible = std::get_if<GroupInfeasible>(&action);
      if (infeasible == nullptr || infeasible->group != id) continue;
      Status status(Code::kInfeasible, infeasible->why);
      groups_.Remove(id, now_us, &actions);
      Sort(actions, out);
      return status;
    }
  }
  facts.state = GroupState::kWaiting;
  facts.changes = 0;
  facts.nodes.assign(facts.bundles.size(), kNoNode);
  facts.attempt = 0;
  facts.why.clear();
  if (!facts.name.empty()) names_[{facts.space, facts.name}] = id;
  Changed(facts_[id] = std::move(facts), out);
  Sort(actions, out);
  return {};
}

Status GroupTable::Restore(const GroupFacts& facts, std::int64_t now_us) {
  const GroupSpec spec{facts.strategy, facts.bundles, facts.name, facts.labels};
  if (Status status = groups_.RestoreGroup(facts.group, spec, facts.attempt, facts.nodes, now_us); !status.ok()) {
    return status;
  }
  facts_[facts.group] = facts;
  if (!facts.name.empty()) names_[{facts.space, facts.name}] = facts.group;
  return {};
}

bool GroupTable::Remove(const Id& group, const std::string& why, std::int64_t now_us, Out* out) {
  const auto it = facts_.find(group);
  if (it == facts_.end()) return false;
  GroupFacts facts = std::move(it->second);
  facts_.erase(it);
  if (!facts.name.empty()) names_.erase({facts.space, facts.name});
  facts.state = GroupState::kRemoved;
  facts.why = why;
  Changed(facts, out);
  GroupActions actions;
  groups_.Remove(group, now_us, &actions);
  Sort(actions, out);
  return true;
}

void GroupTable::JobEnded(const Id& job, std::int64_t now_us, Out* out) {
  std::vector<Id> gone;
  for (const auto& [id, facts] : facts_) {
    if (!facts.detached && facts.job == job) gone.push_back(id);
  }
  for (const Id& id : gone) Remove(id, "the program that made it has ended, and it is not detached", now_us, out);
}

void GroupTable::HomeGone(NodeId node, std::int64_t now_us, Out* out) {
  std::vector<Id> gone;
  for (const auto& [id, facts] : facts_) {
    if (!facts.detached && facts.home == node) gone.push_back(id);
  }
  for (const Id& id : gone) Remove(id, "the node of the program that made it is gone", now_us, out);
}

// ---- passed on ----

void GroupTable::NodeHeard(NodeId node, const Resources& total, const Resources& available, std::int64_t now_us,
                           Out* out) {
  GroupActions actions;
  groups_.NodeHeard(node, total, available, now_us, &actions);
  Sort(actions, out);
}

void GroupTable::NodeDown(NodeId node, std::int64_t now_us, Out* out) {
  GroupActions actions;
  groups_.NodeDown(node, now_us, &actions);
  Sort(actions, out);
}

void GroupTable::Reserved(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                          std::int64_t now_us, Out* out) {
  GroupActions actions;
  groups_.Reserved(group, attempt, bundle, node, now_us, &actions);
  Sort(actions, out);
}

void GroupTable::Refused(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                         const Resources& available, std::int64_t now_us, Out* out) {
  GroupActions actions;
  groups_.Refused(group, attempt, bundle, node, available, now_us, &actions);
  Sort(actions, out);
}

void GroupTable::Committed(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                           std::int64_t now_us, Out* out) {
  GroupActions actions;
  groups_.Committed(group, attempt, bundle, node, now_us, &actions);
  Sort(actions, out);
}

void GroupTable::Tick(std::int64_t now_us, Out* out) {
  GroupActions actions;
  groups_.Tick(now_us, &actions);
  Sort(actions, out);
}

// ---- what follows ----

void GroupTable::Sort(GroupActions& actions, Out* out) {
  for (GroupAction& action : actions) {
    if (const auto* ready = std::get_if<GroupReady>(&action)) {
      const auto it = facts_.find(ready->group);
      const PlacementGroups::Group* group = groups_.Find(ready->group);
      if (it == facts_.end() || group == nullptr) continue;
      GroupFacts& facts = it->second;
      facts.state = GroupState::kReady;
      facts.nodes = ready->nodes;
      facts.attempt = group->attempt;
      facts.why.clear();
      Changed(facts, out);
    } else if (const auto* lost = std::get_if<GroupLost>(&action)) {
      const auto it = facts_.find(lost->group);
      if (it == facts_.end()) continue;
      it->second.state = GroupState::kWaiting;
      for (const std::uint32_t bundle : lost->bundles) it->second.nodes[bundle] = kNoNode;
      Changed(it->second, out);
    } else if (const auto* infeasible = std::get_if<GroupInfeasible>(&action)) {
      const auto it = facts_.find(infeasible->group);
      if (it == facts_.end()) continue;
      it->second.why = infeasible->why;
      Changed(it->second, out);
    } else {
      out->orders.push_back(std::move(action));
    }
  }
  actions.clear();
}

void GroupTable::Changed(GroupFacts& facts, Out* out) {
  ++facts.changes;
  out->changed.push_back(facts);
}

const GroupFacts* GroupTable::Find(const Id& group) const {
  const auto it = facts_.find(group);
  return it == facts_.end() ? nullptr : &it->second;
}

const GroupFacts* GroupTable::Find(const std::string& name, const std::string& space) const {
  const auto it = names_.find({space, name});
  return it == names_.end() ? nullptr : Find(it->second);
}

Result<std::vector<std::uint32_t>> AbleBundles(const GroupFacts& facts, std::int32_t bundle, const Resources& need) {
  const auto count = static_cast<std::int32_t>(facts.bundles.size());
  if (bundle >= count) {
    return Status(Code::kInvalid,
                  Cat(NameOf(facts), " has ", count, " bundles, numbered from 0: there is no bundle ", bundle));
  }
  std::vector<std::uint32_t> able;
  Resources most;
  for (std::int32_t i = 0; i < count; ++i) {
    if (bundle >= 0 && i != bundle) continue;
    const Resources& has = facts.bundles[static_cast<std::size_t>(i)];
    for (const auto& [name, amount] : has.amounts()) most.Set(name, std::max(most.Get(name), amount));
    if (has.Covers(need)) able.push_back(static_cast<std::uint32_t>(i));
  }
  if (!able.empty()) return able;
  return Status(Code::kInfeasible,
                Cat("a task asks for ", ToString(need), ", but ",
                    bundle >= 0 ? Cat("bundle ", bundle, " of ", NameOf(facts), " has ", ToString(most))
                                : Cat("the largest bundles of ", NameOf(facts), " have ", ToString(most)),
                    " in all; ask for less (SetCpus, SetResource), or make the bundle larger"));
}

}  // namespace manta::rules
