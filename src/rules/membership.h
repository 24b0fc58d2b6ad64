// Membership says which nodes of the cluster are alive: the control process feeds it registrations, whatever it hears
// from a node, and closed connections, and tells it the time. NodeLease is the node's half: whether the node may still
// act. Pure: no clock, no sockets; microseconds of a monotonic clock come as arguments.
//
//   Register -> kAlive --(silent for kSuspectUs)--> kSuspect --(heard)--> kAlive
//                  |                                   |
//                  +------ closed, left, fenced -------+--(silent for kDeadUs)--> kDead --(Register)--> kAlive, one
//                  higher
//
// Invariants: (1) incarnations of a node only grow; a dead incarnation never lives again, and its death is told once.
//             (2) at most one incarnation of a node is alive or suspect.
//             (3) what an incarnation that is not the living one says changes nothing (Heard is false: fence it).
//             (4) nobody dies of silence before kDeadUs of our own attention: time in which we did not look (a stalled
//                 control process) does not count against the nodes.
//
// Never because a node is merely busy: any message counts as hearing it; a suspect is probed, and mantad answers probes
// and sends heartbeats from a thread that does nothing else.
//
// Why NodeLease is shorter than kDeadUs: a node that is cut off stops acting (no new task, no output) before anybody
// replaces it, so no effect happens twice. Its lease counts from when it *sent* the heartbeat that was answered, which
// is before control heard it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rules/cluster.h"

namespace manta::rules {

enum class NodePhase : std::uint8_t { kAlive, kSuspect, kDead };

struct NodeCameUp {
  NodeId node = kNoNode;
  std::uint64_t incarnation = 0;
};
// Ask it for a sign of life.
struct ProbeNode {
  NodeId node = kNoNode;
  std::uint64_t incarnation = 0;
};
// Close its connection, tell everybody, re-place what it held.
struct NodeDied {
  NodeId node = kNoNode;
  std::uint64_t incarnation = 0;
  std::string why;
};
using MembershipAction = std::variant<NodeCameUp, ProbeNode, NodeDied>;
using MembershipActions = std::vector<MembershipAction>;

class Membership {
 public:
  static constexpr std::int64_t kSuspectUs = 1'000'000;
  static constexpr std::int64_t kDeadUs = 2'850'000;  // noticed within 3 s, whenever we look
  // A pause between two calls of Tick that is longer than this was our own fault.
  static constexpr std::int64_t kLongestRoundUs = 500'000;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Node {
    std::uint64_t incarnation = 0;
    NodePhase phase = NodePhase::kDead;
    std::int64_t heard_us = 0;
  };

  // ---- events; each appends what is to be done now ----

  // A node joins, for the first time or again; its former incarnation, if it lives, dies now. The new incarnation.
  std::uint64_t Register(NodeId node, std::int64_t now_us, MembershipActions* actions);
  // After a restart of control, from its tables: the node has kDeadUs from now to be heard.
  void Restore(NodeId node, std::uint64_t incarnation, bool alive, std::int64_t now_us);
  // A message of it came. False: this incarnation is not the living one; tell it so and close.
  [[nodiscard]] bool Heard(NodeId node, std::uint64_t incarnation, std::int64_t now_us);
  // Its connection ended without a farewell: its process is gone or was cut off; at once.
  void Closed(NodeId node, std::uint64_t incarnation, MembershipActions* actions);
  // It said farewell (drained or stopped).
  void Left(NodeId node, std::uint64_t incarnation, MembershipActions* actions);
  // Call at NextTick, and not less often than every kLongestRoundUs.
  void Tick(std::int64_t now_us, MembershipActions* actions);

  // ---- what is ----

  [[nodiscard]] std::int64_t NextTick() const;  // kNever: no node lives
  // Whether this incarnation may act. Suspects may.
  [[nodiscard]] bool Lives(NodeId node, std::uint64_t incarnation) const;
  [[nodiscard]] const Node* Find(NodeId node) const;
  [[nodiscard]] const std::map<NodeId, Node>& nodes() const { return nodes_; }

 private:
  void Die(NodeId id, Node* node, std::string why, MembershipActions* actions);

  std::map<NodeId, Node> nodes_;
  std::optional<std::int64_t> last_tick_us_;
};

// The node's half. Only mantad's loop calls it.
class NodeLease {
 public:
  // Less than Membership::kDeadUs, by more than clocks drift in that time and a task takes to be stopped.
  static constexpr std::int64_t kLengthUs = 2'500'000;

  // Control answered the heartbeat that was sent at `sent_us` (or the registration).
  void Answered(std::int64_t sent_us) { Extend(sent_us); }
  // The attempt to connect that began at `tried_us` was refused by control's machine: control is down, so nobody could
  // declare us dead then, and when it is back it gives everybody kDeadUs. Running tasks go on as long as this is
  // confirmed again and again; an attempt that hangs confirms nothing.
  void Refused(std::int64_t tried_us) { Extend(tried_us); }
  // Control says that this incarnation is dead. For good.
  void Fenced() { fenced_ = true; }

  [[nodiscard]] bool MayAct(std::int64_t now_us) const { return !fenced_ && until_us_ && now_us < *until_us_; }

 private:
  void Extend(std::int64_t from_us) { until_us_ = std::max(until_us_.value_or(from_us), from_us + kLengthUs); }

  std::optional<std::int64_t> until_us_;
  bool fenced_ = false;
};

}  // namespace manta::rules
