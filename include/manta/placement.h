// Where a task or an actor may run, as its options say: on one node, spread over all, where labels match, or in a
// placement group. Plain data. A wish that no node can fulfil fails the task on a private node (InfeasibleError, which
// says what was asked and what there is); in a cluster it waits for a node that can (doc/api.md).
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace manta {

// About one label of a node (`manta start --labels zone=a,disk=ssd`). NotIn holds for a node without the label, too.
struct LabelRule {
  enum class Is : std::uint8_t { kIn, kNotIn, kPresent, kAbsent };

  std::string key{};
  Is is = Is::kIn;
  std::vector<std::string> values{};

  static LabelRule Equals(std::string key, std::string value) { return {std::move(key), Is::kIn, {std::move(value)}}; }
  static LabelRule In(std::string key, std::vector<std::string> values) {
    return {std::move(key), Is::kIn, std::move(values)};
  }
  static LabelRule NotIn(std::string key, std::vector<std::string> values) {
    return {std::move(key), Is::kNotIn, std::move(values)};
  }
  static LabelRule Exists(std::string key) { return {std::move(key), Is::kPresent, {}}; }
  static LabelRule Absent(std::string key) { return {std::move(key), Is::kAbsent, {}}; }

  friend auto operator<=>(const LabelRule&, const LabelRule&) = default;
};

// Set through Task(f).OnNode(…), Spread(), Labels(…), PreferLabels(…), InBundle(…).
struct Placement {
  std::string node{};               // name ("n2") or number ("2"); empty: any
  bool soft = false;                // another will do when that one is gone or cannot hold it
  bool spread = false;              // node after node, not the own one first
  std::vector<LabelRule> labels{};  // all must hold
  std::vector<LabelRule> prefer{};  // while a node is there for which these hold as well, and has room
  std::string group{};              // PlacementGroup::id()
  std::int32_t bundle = -1;         // of the group; -1: any

  friend auto operator<=>(const Placement&, const Placement&) = default;
};

// How the bundles of a placement group (manta/placement_group.h) are shared out. kPack: on as few nodes as possible;
// kSpread: on as many. The strict ones: on one node or not at all; each bundle on a node of its own or not at all.
enum class GroupStrategy : std::uint8_t { kPack, kSpread, kStrictPack, kStrictSpread };

}  // namespace manta
