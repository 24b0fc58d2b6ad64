// GroupTable knows all placement groups of a cluster: their names, whose they are, and what became of them. It drives
// PlacementGroups and turns what that decides into orders for nodes and into facts that everybody may know. The head
// has one; a node of its own has one, too, with itself as the only node. Pure: the time comes as an argument.
//
// Invariants, after every call:
//   (1) no two groups have the same name in one space;
//   (2) facts.state is kReady exactly while PlacementGroups says so, and then each bundle has a node;
//   (3) each change of a group's facts is told once, in Out::changed, with a number higher than the last one's.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rules/placement_groups.h"
#include "types/group.h"
#include "types/status.h"

namespace manta::rules {

class GroupTable {
 public:
  struct Out {
    GroupActions orders;              // ReserveBundle, CommitBundle and ReleaseBundle only
    std::vector<GroupFacts> changed;  // to be told and stored; kRemoved: to be forgotten
  };

  // With `alone` no other node will ever come: a group that the node cannot hold is kInfeasible. Else kInvalid as
  // PlacementGroups::Create, or because the name is taken.
  Status Create(GroupFacts facts, bool alone, std::int64_t now_us, Out* out);
  // False: there is none.
  bool Remove(const Id& group, const std::string& why, std::int64_t now_us, Out* out);
  // Its groups go, unless detached; likewise of all jobs whose driver was on that node.
  void JobEnded(const Id& job, std::int64_t now_us, Out* out);
  void HomeGone(NodeId node, std::int64_t now_us, Out* out);
  // After a restart of whoever has this table.
  Status Restore(const GroupFacts& facts, std::int64_t now_us);

  // As in PlacementGroups.
  void SetLabels(NodeId node, const Labels& labels) { groups_.SetLabels(node, labels); }
  void NodeHeard(NodeId node, const Resources& total, const Resources& available, std::int64_t now_us, Out* out);
  void NodeDown(NodeId node, std::int64_t now_us, Out* out);
  void Reserved(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, std::int64_t now_us,
                Out* out);
  void Refused(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, const Resources& available,
               std::int64_t now_us, Out* out);
  void Committed(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, std::int64_t now_us,
                 Out* out);
  void Tick(std::int64_t now_us, Out* out);
  [[nodiscard]] std::int64_t NextTick(std::int64_t now_us) const { return groups_.NextTick(now_us); }

  [[nodiscard]] const GroupFacts* Find(const Id& group) const;
  [[nodiscard]] const GroupFacts* Find(const std::string& name, const std::string& space) const;
  [[nodiscard]] const std::map<Id, GroupFacts>& all() const { return facts_; }

 private:
  void Sort(GroupActions& actions, Out* out);
  void Changed(GroupFacts& facts, Out* out);

  PlacementGroups groups_;
  std::map<Id, GroupFacts> facts_;
  std::map<std::pair<std::string, std::string>, Id> names_;  // space and name
};

// What a task that asks for `need` in this bundle (-1: any) can have: the bundles that could hold it, when empty.
// kInvalid: there is no such bundle; kInfeasible: none is large enough.
[[nodiscard]] Result<std::vector<std::uint32_t>> AbleBundles(const GroupFacts& facts, std::int32_t bundle,
                                                             const Resources& need);

}  // namespace manta::rules
