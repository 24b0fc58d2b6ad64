// Strategy says where a task or actor may run, as it travels: in a request for a lease, to the head, to another node.
// Part of what makes tasks of one kind: those with different strategies do not share a queue.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "manta/placement.h"
#include "types/id.h"
#include "types/resources.h"
#include "types/status.h"

namespace manta {

using Labels = std::map<std::string, std::string>;

// Sets the labels that every node has: its name, under Manta's and Ray's keys.
void AddNodeIdLabels(const std::string& name, Labels* labels);

struct Strategy {
  std::string node;  // name or number; empty: any
  bool soft = false;
  bool spread = false;
  std::vector<LabelRule> labels;
  std::vector<LabelRule> prefer;
  Id group;                  // empty: none
  std::int32_t bundle = -1;  // any

  [[nodiscard]] bool empty() const {
    return node.empty() && !spread && labels.empty() && prefer.empty() && group.empty();
  }
  friend auto operator<=>(const Strategy&, const Strategy&) = default;
};

// kInvalid: a group's id that is none, a label rule without key or values, a bundle below -1, wishes that contradict.
Status ToStrategy(const Placement& placement, Strategy* out);
// "on node n2, with zone in {a, b}"; empty for an empty one.
[[nodiscard]] std::string ToString(const Strategy& strategy);
[[nodiscard]] std::string ToString(const LabelRule& rule);  // "zone in {a, b}"
[[nodiscard]] std::string ToString(const Labels& labels);   // "zone=a, disk=ssd"; "none"

[[nodiscard]] bool Matches(const Labels& labels, const std::vector<LabelRule>& wanted);
// Is that node meant? By name or number.
[[nodiscard]] bool NamesNode(const std::string& node, const std::string& name, NodeNumber number);

// ---- resources of bundles ----
//
// What a bundle has is counted beside the node's own resources, under names that nobody else can ask for: "CPU" of
// bundle 2 as CPU of that bundle and, so that a task may have any bundle of the group, as CPU of the group. Each task
// or actor in a bundle also takes a bit of a marker, by which it is known even if it needs nothing.

inline constexpr char kBundleMark = '\x1f';  // in such names; users cannot have it in theirs

// What a task in `bundle` (-1: any) takes instead of `need`.
[[nodiscard]] Resources InBundle(const Resources& need, const Id& group, std::int32_t bundle);
// What setting the bundle aside adds to its node.
[[nodiscard]] Resources BundlePool(const Resources& has, const Id& group, std::int32_t bundle);
[[nodiscard]] bool IsBundled(const std::string& resource);
[[nodiscard]] Resources Plain(const Resources& resources);  // without those of bundles and quotas
// The base name: "CPU" of any bundle is CPU.
[[nodiscard]] std::string BaseName(const std::string& resource);

// ---- quotas of jobs ----
//
// What a job may have at a time is one more resource of the nodes, under names of its own ("CPU" of that job), which
// its tasks, actors and bundles need beside what they need of the node (rules/job_quota.h).

inline constexpr char kQuotaMark = '\x1e';  // in such names

// Of each resource that `quota` limits, what `need` takes of it. Empty: nothing is limited.
[[nodiscard]] Resources OfQuota(const Resources& need, const Resources& quota, const Id& job);
[[nodiscard]] bool IsQuota(const std::string& resource);
// The job's part of these, by plain names.
[[nodiscard]] Resources QuotaOf(const Resources& resources, const Id& job);

}  // namespace manta
