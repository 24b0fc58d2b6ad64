// Lineage: which tasks must run again so that a value that was lost, or was freed while something could still be
// rebuilt from it, is there once more. Lost inputs come first, to any depth.
//
// Pure: a function of what the graph says now; no clock, sockets or locks. Whoever owns the graph (owner/rebuild.cc, or
// the simulator) carries the plan out at once, before the graph changes.
//
// A Graph has, for nodes of a type that is hashable and null by default:
//   Presence PresenceOf(Node value)
//   Node TaskOf(Node value)               the task that makes it; several values may have one task
//   Node InputOf(Node task, size_t i)     the i-th value that the task needs; null: there are no more
//
// Invariants of a plan: (1) each task stands in it once; (2) after every task whose results it needs, as far as those
// must be made; (3) nothing is in it that `wanted` does not need; (4) if something that is needed cannot be made,
// nothing runs at all, and that value is named.
//
// Cost: O(tasks that run + their inputs). A loop and not a recursion: chains of a million tasks are planned, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <utility>
#include <vector>

namespace manta::rules {

enum class Presence : std::uint8_t {
  kHere = 0,      // it can be read
  kComing = 1,    // its task runs or waits already
  kMissing = 2,   // lost or freed, and its task can run again
  kHopeless = 3,  // lost or freed for good, or it failed
};

// A value that is rebuilt so often and never read in between is given up: the machine, or the value, is the problem.
inline constexpr std::uint32_t kMostRebuilds = 16;
[[nodiscard]] constexpr bool GivenUp(std::uint32_t rebuilds) { return rebuilds >= kMostRebuilds; }

// What is known of a value.
struct ValueFacts {
  bool done = false;  // it was there, or failed
  bool failed = false;
  bool missing = false;      // it was there, and is not any more
  bool rebuildable = false;  // its task can run again
  // Since somebody read it. One for each time that its task runs again, whatever for.
  std::uint32_t rebuilds = 0;
};

[[nodiscard]] constexpr Presence PresenceOf(const ValueFacts& value) {
  if (!value.done) return Presence::kComing;
  if (value.failed) return Presence::kHopeless;
  if (!value.missing) return Presence::kHere;
  return value.rebuildable && !GivenUp(value.rebuilds) ? Presence::kMissing : Presence::kHopeless;
}

template <typename Node>
struct RebuildPlan {
  std::vector<Node> tasks;  // in an order in which they can be started
  Node hopeless{};          // what cannot be made, if anything: then there are no tasks
};

template <typename Node, typename Graph>
RebuildPlan<Node> PlanRebuild(const Graph& graph, Node wanted) {
  RebuildPlan<Node> plan;
  std::unordered_set<Node> seen;  // tasks
  struct Visit {
    Node task;
    std::size_t next = 0;
  };
  std::vector<Visit> path;
  // False: all is in vain.
  const auto need = [&](Node value) {
    switch (graph.PresenceOf(value)) {
      case Presence::kHere:
      case Presence::kComing:
        return true;
      case Presence::kHopeless:
        plan.hopeless = value;
        return false;
      case Presence::kMissing:
        break;
    }
    const Node task = graph.TaskOf(value);
    if (seen.insert(task).second) path.push_back(Visit{task});
    return true;
  };
  bool possible = need(wanted);
  while (possible && !path.empty()) {
    const Node input = graph.InputOf(path.back().task, path.back().next++);
    if (input != Node{}) {
      possible = need(input);
      continue;
    }
    plan.tasks.push_back(path.back().task);
    path.pop_back();
  }
  if (!possible) plan.tasks.clear();
  return plan;
}

}  // namespace manta::rules
