// PlacementGroups finds nodes for groups of bundles (a bundle: resources to be had together on one node) and reserves
// them, all or nothing. The control process drives it; nodes keep the reservations. Pure: events in, actions out; the
// time comes as an argument.
//
//   Create -> kWaiting --(a plan fits what is known)--> kReserving --(all Reserved)--> kCommitting --(all Committed)-->
//   kReady
//                ^                                          | |
//                +--- one Refused, timed out, node down: release all, back off ---+ |
//                +--------------------------------- node down: only the lost bundles are placed again
//                -----------------+
//
// Strategies: kPack as few nodes as possible, kSpread as many as possible; kStrictPack one node or none, kStrictSpread
// a node for each bundle or none.
//
// Invariants, after every call:
//   (1) a group that waits holds nothing but bundles that were committed before and survived a node's death;
//   (2) per node, what asked, reserved and committed bundles take is at most what the node has;
//   (3) ready: every bundle is committed on a node that lives, and a strict strategy holds;
//   (4) every ReserveBundle is followed by CommitBundle or ReleaseBundle, unless its node died.
//
// Why two groups never deadlock: nobody holds a part while it waits for the rest (1), and a node answers Reserve at
// once or by its own deadline. Why nobody starves: groups are tried in order of arrival, the oldest retries at once and
// younger ones back off; and once the oldest has waited kPatienceUs, younger ones keep away from the nodes it could
// have if only they were empty. Until then a small group may pass a big one that does not fit.
//
// What is available: heartbeats say what bundles could get on a node, that is, all that neither actors nor bundles
// hold; sticky task leases do not count as taken, since the node revokes them for a reservation. A stale figure costs a
// refusal. A group that the living nodes could not hold even when empty is told so, with the numbers, once per change
// of the nodes, and waits for new ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "rules/cluster.h"
#include "types/id.h"
#include "types/resources.h"
#include "types/status.h"

namespace manta::rules {

using manta::GroupStrategy;
[[nodiscard]] const char* ToString(GroupStrategy strategy);

struct GroupSpec {
  GroupStrategy strategy = GroupStrategy::kPack;
  std::vector<Resources> bundles;
  std::string name;                                 // for messages
  std::vector<std::vector<LabelRule>> labels = {};  // by bundle, of its node; empty: anything

  MANTA_FIELDS(strategy, bundles, name, labels)
};

enum class GroupPhase : std::uint8_t { kWaiting, kReserving, kCommitting, kReady };

// Ask the node to set this aside; it answers Reserved or Refused with the same attempt. Ask again: the same answer.
struct ReserveBundle {
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
  NodeId node = kNoNode;
  Resources need;
};
// The reservation is for good; it answers Committed. May come twice.
struct CommitBundle {
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
  NodeId node = kNoNode;
};
// Give it back, whether it was answered or not, and end what runs in it. Needs no answer; may come twice.
struct ReleaseBundle {
  Id group;
  std::uint64_t attempt = 0;
  std::uint32_t bundle = 0;
  NodeId node = kNoNode;
};
struct GroupReady {
  Id group;
  std::vector<NodeId> nodes;  // by bundle
};
// Was ready and is no more, until the next GroupReady.
struct GroupLost {
  Id group;
  std::vector<std::uint32_t> bundles;
};
// It waits, and the living nodes could not hold it even when empty.
struct GroupInfeasible {
  Id group;
  std::string why;
};
using GroupAction = std::variant<ReserveBundle, CommitBundle, ReleaseBundle, GroupReady, GroupLost, GroupInfeasible>;
using GroupActions = std::vector<GroupAction>;

class PlacementGroups {
 public:
  static constexpr std::int64_t kAnswerUs = 5'000'000;  // a node that does not answer by then has refused
  static constexpr std::int64_t kBackOffUs = 10'000;    // doubled with every failure of a younger group …
  static constexpr std::int64_t kLongestBackOffUs = 1'000'000;
  static constexpr std::int64_t kPatienceUs = 5'000'000;
  static constexpr std::int64_t kRoundUs = 50'000;  // how often heartbeats make it look again at those that wait
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  // ---- events; each appends what is to be done now ----

  // A node's labels, before its first NodeHeard and when they change. Decides nothing by itself.
  void SetLabels(NodeId node, const Labels& labels);
  // A node's totals and what bundles could get there, at its first and every further heartbeat.
  void NodeHeard(NodeId node, const Resources& total, const Resources& available, std::int64_t now_us,
                 GroupActions* actions);
  // Died, or drains: its bundles are lost.
  void NodeDown(NodeId node, std::int64_t now_us, GroupActions* actions);

  // kInvalid: no bundle, an empty or negative one, or the id is taken.
  Status Create(const Id& group, const GroupSpec& spec, std::int64_t now_us, GroupActions* actions);
  // False if there is none.
  bool Remove(const Id& group, std::int64_t now_us, GroupActions* actions);
  // After a restart of control: a bundle that the tables say is committed on `node`. Create the group first with
  // RestoreGroup; what is not restored is placed anew.
  Status RestoreGroup(const Id& group, const GroupSpec& spec, std::uint64_t attempt, const std::vector<NodeId>& nodes,
                      std::int64_t now_us);

  // Answers. An outdated one is answered with ReleaseBundle.
  void Reserved(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, std::int64_t now_us,
                GroupActions* actions);
  void Refused(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, const Resources& available,
               std::int64_t now_us, GroupActions* actions);
  void Committed(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node, std::int64_t now_us,
                 GroupActions* actions);
  void Tick(std::int64_t now_us, GroupActions* actions);
  // When Tick could decide something without a further event; kNever if never. After `now_us`.
  [[nodiscard]] std::int64_t NextTick(std::int64_t now_us) const;

  // ---- what is ----

  enum class Hold : std::uint8_t { kNothing, kAsked, kReserved, kCommitted };
  struct Slot {
    NodeId node = kNoNode;
    Hold hold = Hold::kNothing;
    std::uint64_t attempt = 0;
  };
  struct Group {
    GroupSpec spec;
    GroupPhase phase = GroupPhase::kWaiting;
    std::uint64_t arrival = 0;
    std::int64_t waits_since_us = 0;
    std::int64_t not_before_us = 0;  // back-off
    std::int64_t asked_us = 0;
    std::uint32_t failures = 0;
    std::uint64_t attempt = 0;
    std::vector<Slot> slots;    // by bundle
    std::string infeasible;     // as told last
    std::uint64_t checked = 0;  // for which set of nodes that is known
  };
  [[nodiscard]] const Group* Find(const Id& group) const;
  [[nodiscard]] const std::map<Id, Group>& groups() const { return groups_; }
  // Asked, reserved and committed there.
  [[nodiscard]] Resources Held(NodeId node) const;

 private:
  struct Node {
    Resources total;
    Resources available;
    Resources held;
  };
  using Room = std::map<NodeId, Resources>;

  void Settle(std::int64_t now_us, GroupActions* actions);
  bool Start(const Id& id, Group* group, const Room& room, std::int64_t now_us, GroupActions* actions);
  void GiveUp(const Id& id, Group* group, std::int64_t now_us, GroupActions* actions);
  void Take(Slot* slot, NodeId node, const Resources& need, std::uint64_t attempt);
  void Drop(Slot* slot, const Resources& need);
  [[nodiscard]] Slot* Current(const Id& group, std::uint64_t attempt, std::uint32_t bundle, NodeId node);
  [[nodiscard]] Room RoomNow() const;
  [[nodiscard]] Room RoomIfEmpty(const Group& group) const;  // were there no other groups, tasks and actors
  // Nodes by bundle, for those without one; nothing if no plan was found.
  [[nodiscard]] std::optional<std::vector<NodeId>> Plan(const Group& group, Room room) const;
  // Turns the label rules of bundles into resources: bundle i needs one that only nodes whose labels match have.
  void CountLabels(const Group& group, std::vector<Resources>* bundles, Room* room) const;
  [[nodiscard]] std::string WhyInfeasible(const Group& group) const;

  std::map<NodeId, Node> nodes_;
  std::map<NodeId, Labels> labels_;
  std::map<Id, Group> groups_;
  std::map<std::uint64_t, Id> waiting_;  // by arrival
  std::uint64_t version_ = 1;            // of the set of nodes and their totals
  std::int64_t settled_us_ = 0;
  bool stale_ = false;  // a heartbeat changed something since
  std::uint64_t arrivals_ = 0;
  std::uint64_t attempts_ = 0;
};

}  // namespace manta::rules
