#include "rules/placement_groups.h"

#include <algorithm>
#include <functional>
#include <set>
#include <tuple>

#include "types/text.h"

namespace manta::rules {
namespace {

using Room = std::map<NodeId, Resources>;

constexpr char kLabelMark[] = "\x01labels of bundle ";  // no user's resource begins like this

Resources Sum(const std::vector<Resources>& all) {
  Resources out;
  for (const Resources& one : all) out.Add(one);
  return out;
}

// How many times `need` fits; at most a thousand.
std::int64_t Times(const Resources& room, const Resources& need) {
  std::int64_t times = 1'000;
  for (const auto& [name, amount] : need.amounts())
    times = std::min(times, std::max<std::int64_t>(room.Get(name), 0) / amount);
  return times;
}

// Puts bundles on nodes one by one, largest first, taking a choice back when it leads nowhere, within a budget: whether
// bundles of several resources fit is a hard question, and a group that fits only by a trick may wait.
class Packer {
 public:
  Packer(const std::vector<Resources>& bundles, std::vector<NodeId>* nodes, Room* room, bool spread)
      : bundles_(bundles), nodes_(*nodes), room_(*room), spread_(spread) {
    for (std::size_t i = 0; i < bundles.size(); ++i) {
      if (nodes_[i] == kNoNode) {
        order_.push_back(i);
      } else {
        ++used_[nodes_[i]];
      }
    }
    const auto size = [&](std::size_t i) {
      std::int64_t sum = 0;
      for (const auto& [name, amount] : bundles[i].amounts()) sum += amount * (name == "CPU" ? 1 : 1'000);
      return sum;
    };
    std::stable_sort(order_.begin(), order_.end(), [&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  }
  bool Run() { return Put(0); }

 private:
  bool Put(std::size_t at) {
    if (at == order_.size()) return true;
    const std::size_t bundle = order_[at];
    // (preference, node), the least first.
    std::vector<std::tuple<std::int64_t, std::int64_t, NodeId>> choices;
    for (const auto& [node, room] : room_) {
      const std::int64_t times = Times(room, bundles_[bundle]);
      if (times == 0) continue;
      const auto it = used_.find(node);
      const std::int64_t used = it == used_.end() ? 0 : it->second;
      // Packing: where we are already, the tightest first; then where most of it fits. Spreading: where we are least.
      if (spread_) {
        choices.emplace_back(used, -times, node);
      } else {
        choices.emplace_back(used > 0 ? 0 : 1, used > 0 ? times : -times, node);
      }
    }
    std::sort(choices.begin(), choices.end());
    for (const auto& choice : choices) {
      if (--budget_ < 0) return false;
      const NodeId node = std::get<2>(choice);
      room_[node].Subtract(bundles_[bundle]);
      ++used_[node];
      nodes_[bundle] = node;
      if (Put(at + 1)) return true;
      nodes_[bundle] = kNoNode;
      if (--used_[node] == 0) used_.erase(node);
      room_[node].Add(bundles_[bundle]);
    }
    return false;
  }

  const std::vector<Resources>& bundles_;
  std::vector<NodeId>& nodes_;
  Room& room_;
  const bool spread_;
  std::vector<std::size_t> order_;
  std::map<NodeId, std::int64_t> used_;
  int budget_ = 2'000;
};

// A node for each bundle: augmenting paths, so that a plan is found whenever there is one.
bool Match(const std::vector<Resources>& bundles, std::vector<NodeId>* nodes, const Room& room) {
  std::map<NodeId, std::size_t> taken;
  std::set<NodeId> fixed;
  for (const NodeId node : *nodes) {
    if (node != kNoNode) fixed.insert(node);
  }
  const std::function<bool(std::size_t, std::set<NodeId>*)> place = [&](std::size_t bundle, std::set<NodeId>* seen) {
    for (const auto& [node, free] : room) {
      if (fixed.contains(node) || seen->contains(node) || !free.Covers(bundles[bundle])) continue;
      seen->insert(node);
      const auto it = taken.find(node);
      if (it != taken.end() && !place(it->second, seen)) continue;
      taken[node] = bundle;
      return true;
    }
    return false;
  };
  for (std::size_t i = 0; i < bundles.size(); ++i) {
    if ((*nodes)[i] != kNoNode) continue;
    std::set<NodeId> seen;
    if (!place(i, &seen)) return false;
  }
  for (const auto& [node, bundle] : taken) (*nodes)[bundle] = node;
  return true;
}

}  // namespace

const char* ToString(GroupStrategy strategy) {
  switch (strategy) {
    case GroupStrategy::kPack:
      return "PACK";
    case GroupStrategy::kSpread:
      return "SPREAD";
    case GroupStrategy::kStrictPack:
      return "STRICT_PACK";
    case GroupStrategy::kStrictSpread:
      return "STRICT_SPREAD";
  }
  return "?";
}

// ---- plans ----

void PlacementGroups::CountLabels(const Group& group, std::vector<Resources>* bundles, Room* room) const {
  static const Labels none;
  const std::vector<std::vector<LabelRule>>& rules = group.spec.labels;
  for (std::size_t i = 0; i < std::min(rules.size(), bundles->size()); ++i) {
    if (rules[i].empty()) continue;
    const std::string name = Cat(kLabelMark, i);
    (*bundles)[i].Set(name, 1);
    for (auto& [node, free] : *room) {
      const auto it = labels_.find(node);
      if (Matches(it == labels_.end() ? none : it->second, rules[i])) free.Set(name, kUnit);
    }
  }
}

std::optional<std::vector<NodeId>> PlacementGroups::Plan(const Group& group, Room room) const {
  std::vector<Resources> bundles = group.spec.bundles;
  CountLabels(group, &bundles, &room);
  std::vector<NodeId> nodes(bundles.size(), kNoNode);
  for (std::size_t i = 0; i < bundles.size(); ++i) {
    if (group.slots[i].hold == Hold::kCommitted) nodes[i] = group.slots[i].node;
  }
  switch (group.spec.strategy) {
    case GroupStrategy::kStrictPack: {
      const Resources sum = Sum(bundles);
      // The tightest, so that roomy nodes stay roomy.
      std::int64_t best = std::numeric_limits<std::int64_t>::max();
      NodeId found = kNoNode;
      for (const auto& [node, free] : room) {
        if (!free.Covers(sum)) continue;
        const std::int64_t times = Times(free, sum);
        if (times < best) {
          best = times;
          found = node;
        }
      }
      if (found == kNoNode) return std::nullopt;
      std::fill(nodes.begin(), nodes.end(), found);
      return nodes;
    }
    case GroupStrategy::kStrictSpread:
      if (!Match(bundles, &nodes, room)) return std::nullopt;
      return nodes;
    case GroupStrategy::kPack:
    case GroupStrategy::kSpread: {
      Resources missing;
      for (std::size_t i = 0; i < bundles.size(); ++i) {
        if (nodes[i] == kNoNode) missing.Add(bundles[i]);
      }
      Resources all;
      for (const auto& [node, free] : room) {
        for (const auto& [name, amount] : free.amounts()) {
          if (amount > 0) all.Set(name, all.Get(name) + amount);
        }
      }
      if (!all.Covers(missing)) return std::nullopt;
      if (!Packer(bundles, &nodes, &room, group.spec.strategy == GroupStrategy::kSpread).Run()) return std::nullopt;
      return nodes;
    }
  }
  return std::nullopt;
}

PlacementGroups::Room PlacementGroups::RoomNow() const {
  Room room;
  for (const auto& [id, node] : nodes_) {
    Resources free = node.total;
    free.Subtract(node.held);
    Resources& least = room[id];
    for (const auto& [name, amount] : free.amounts()) least.Set(name, std::min(amount, node.available.Get(name)));
  }
  return room;
}

PlacementGroups::Room PlacementGroups::RoomIfEmpty(const Group& group) const {
  Room room;
  for (const auto& [id, node] : nodes_) room[id] = node.total;
  for (std::size_t i = 0; i < group.slots.size(); ++i) {
    if (group.slots[i].hold == Hold::kCommitted) room[group.slots[i].node].Subtract(group.spec.bundles[i]);
  }
  return room;
}

std::string PlacementGroups::WhyInfeasible(const Group& group) const {
  const Room room = RoomIfEmpty(group);
  if (Plan(group, room)) return {};
  const std::vector<Resources>& bundles = group.spec.bundles;
  std::string text = Cat("placement group ", group.spec.name.empty() ? "" : group.spec.name + " ", "(",
                         ToString(group.spec.strategy), ", ", bundles.size(), " bundles) waits: ");
  Resources most;
  Resources all;
  for (const auto& [id, node] : nodes_) {
    all.Add(node.total);
    for (const auto& [name, amount] : node.total.amounts()) most.Set(name, std::max(most.Get(name), amount));
  }
  const auto nowhere = [&](const Resources& need) {
    return std::none_of(nodes_.begin(), nodes_.end(),
                        [&](const auto& entry) { return entry.second.total.Covers(need); });
  };
  for (std::size_t i = 0; i < bundles.size(); ++i) {
    if (!nowhere(bundles[i])) continue;
    return text + Cat("bundle ", i, " asks for ", ToString(bundles[i]), ", and the most that one of ", nodes_.size(),
                      " nodes has is ", ToString(most), "; ask for less or start such a node");
  }
  for (std::size_t i = 0; i < group.spec.labels.size(); ++i) {
    const std::vector<LabelRule>& rules = group.spec.labels[i];
    const bool somewhere =
        std::any_of(labels_.begin(), labels_.end(), [&](const auto& entry) { return Matches(entry.second, rules); });
    if (rules.empty() || somewhere) continue;
    std::string wanted;
    for (const LabelRule& rule : rules) wanted += Cat(wanted.empty() ? "" : " and ", ToString(rule));
    return text + Cat("bundle ", i, " asks for a node with ", wanted, ", and none of ", nodes_.size(),
                      " nodes has such labels; change bundle_label_selector or start such a node");
  }
  if (group.spec.strategy == GroupStrategy::kStrictPack) {
    return text + Cat("on one node they ask for ", ToString(Sum(bundles)), ", and the most that one of ", nodes_.size(),
                      " nodes has is ", ToString(most), "; use PACK or start a larger node");
  }
  if (group.spec.strategy == GroupStrategy::kStrictSpread) {
    const auto able = std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
      return std::any_of(bundles.begin(), bundles.end(),
                         [&](const Resources& need) { return entry.second.total.Covers(need); });
    });
    return text + Cat("each wants a node of its own, and ", able, " of ", nodes_.size(),
                      " nodes can hold any of them; use SPREAD or start more nodes");
  }
  return text + Cat("together they ask for ", ToString(Sum(bundles)), ", and the ", nodes_.size(), " nodes have ",
                    ToString(all), ", at most ", ToString(most), " on one; ask for less or start more nodes");
}

// ---- nodes ----

void PlacementGroups::SetLabels(NodeId node, const Labels& labels) {
  Labels& known = labels_[node];
  if (known == labels) return;
  known = labels;
  ++version_;
}

void PlacementGroups::NodeHeard(NodeId id, const Resources& total, const Resources& available, std::int64_t now_us,
                                GroupActions* actions) {
  Node& node = nodes_[id];
  // Many nodes beat often: only a new total is worth a look at once.
  const bool grown = node.total != total;
  stale_ |= node.available != available;
  node.total = total;
  node.available = available;
  if (grown) ++version_;
  if (grown || (stale_ && now_us - settled_us_ >= kRoundUs)) Settle(now_us, actions);
}

void PlacementGroups::NodeDown(NodeId id, std::int64_t now_us, GroupActions* actions) {
  labels_.erase(id);
  if (nodes_.erase(id) == 0) return;
  ++version_;
  for (auto& [group_id, group] : groups_) {
    std::vector<std::uint32_t> lost;
    bool unfinished = false;
    for (std::uint32_t i = 0; i < group.slots.size(); ++i) {
      Slot& slot = group.slots[i];
      if (slot.node != id) continue;
      if (slot.hold == Hold::kCommitted) lost.push_back(i);
      unfinished |= slot.hold == Hold::kAsked || slot.hold == Hold::kReserved;
      slot = Slot();  // nobody is left there to release it
    }
    if (lost.empty() && !unfinished) continue;
    if (group.phase == GroupPhase::kReady) {
      actions->push_back(GroupLost{group_id, lost});
      group.phase = GroupPhase::kWaiting;
      group.waits_since_us = now_us;
      group.failures = 0;
      group.not_before_us = now_us;
      waiting_[group.arrival] = group_id;
    } else if (group.phase != GroupPhase::kWaiting) {
      GiveUp(group_id, &group, now_us, actions);
    }
  }
  Settle(now_us, actions);
}

// ---- groups ----

Status PlacementGroups::Create(const Id& id, const GroupSpec& spec, std::int64_t now_us, GroupActions* actions) {
  if (groups_.contains(id)) return {Code::kInvalid, Cat("placement group ", ToString(id), " exists already")};
  if (spec.bundles.empty()) return {Code::kInvalid, "a placement group needs at least one bundle"};
  for (std::size_t i = 0; i < spec.bundles.size(); ++i) {
    const auto& amounts = spec.bundles[i].amounts();
    if (amounts.empty() ||
        std::any_of(amounts.begin(), amounts.end(), [](const auto& one) { return one.second <= 0; })) {
      return {Code::kInvalid, Cat("bundle ", i, " of a placement group asks for ", ToString(spec.bundles[i]),
                                  "; every amount must be above zero, and there must be one")};
    }
  }
  Group& group = groups_[id];
  group.spec = spec;
  group.slots.resize(spec.bundles.size());
  group.arrival = ++arrivals_;
  group.waits_since_us = now_us;
  group.not_before_us = now_us;
  waiting_[group.arrival] = id;
  Settle(now_us, actions);
  return {};
}

Status PlacementGroups::RestoreGroup(const Id& id, const GroupSpec& spec, std::uint64_t attempt,
                                     const std::vector<NodeId>& nodes, std::int64_t now_us) {
  if (groups_.contains(id) || nodes.size() != spec.bundles.size()) {
    return {Code::kInvalid, Cat("placement group ", ToString(id), " exists already or its record has ", nodes.size(),
                                " nodes for ", spec.bundles.size(), " bundles")};
  }
  Group& group = groups_[id];
  group.spec = spec;
  group.slots.resize(spec.bundles.size());
  group.arrival = ++arrivals_;
  group.waits_since_us = now_us;
  group.not_before_us = now_us;
  attempts_ = std::max(attempts_, attempt);
  bool whole = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i] == kNoNode) {
      whole = false;
      continue;
    }
    Take(&group.slots[i], nodes[i], spec.bundles[i], attempt);
    group.slots[i].hold = Hold::kCommitted;
  }
  group.attempt = attempt;
  group.phase = whole ? GroupPhase::kReady : GroupPhase::kWaiting;
  if (!whole) waiting_[group.arrival] = id;
  return {};
}

bool PlacementGroups::Remove(const Id& id, std::int64_t now_us, GroupActions* actions) {
  const auto it = groups_.find(id);
  if (it == groups_.end()) return false;
  Group& group = it->second;
  for (std::uint32_t i = 0; i < group.slots.size(); ++i) {
    Slot& slot = group.slots[i];
    if (slot.hold == Hold::kNothing) continue;
    actions->push_back(ReleaseBundle{id, slot.attempt, i, slot.node});
    Drop(&slot, group.spec.bundles[i]);
  }
  waiting_.erase(group.arrival);
  groups_.erase(it);
  Settle(now_us, actions);
  return true;
}

void PlacementGroups::Take(Slot* slot, NodeId node, const Resources& need, std::uint64_t attempt) {
  *slot = {node, Hold::kAsked, attempt};
  Node& entry = nodes_[node];
  entry.held.Add(need);
  entry.available.Subtract(need);
}

void PlacementGroups::Drop(Slot* slot, const Resources& need) {
  const auto it = nodes_.find(slot->node);
  if (it != nodes_.end()) {
    it->second.held.Subtract(need);
    it->second.available.Add(need);
  }
  *slot = Slot();
}

void PlacementGroups::GiveUp(const Id& id, Group* group, std::int64_t now_us, GroupActions* actions) {
  for (std::uint32_t i = 0; i < group->slots.size(); ++i) {
    Slot& slot = group->slots[i];
    // Of the attempt that failed, also what was committed already; what was committed in an earlier one stays.
    if (slot.hold == Hold::kNothing || slot.attempt != group->attempt) continue;
    actions->push_back(ReleaseBundle{id, slot.attempt, i, slot.node});
    Drop(&slot, group->spec.bundles[i]);
  }
  group->phase = GroupPhase::kWaiting;
  waiting_[group->arrival] = id;
  const bool oldest = waiting_.begin()->first == group->arrival;
  const std::uint32_t doublings = std::min<std::uint32_t>(group->failures, 10);
  ++group->failures;
  group->not_before_us = now_us + (oldest ? kBackOffUs : std::min(kBackOffUs << (doublings + 1), kLongestBackOffUs));
}

// Tries those that wait, in order of arrival.
void PlacementGroups::Settle(std::int64_t now_us, GroupActions* actions) {
  settled_us_ = now_us;
  stale_ = false;
  if (waiting_.empty()) return;
  Room room = RoomNow();
  bool first = true;
  const std::map<std::uint64_t, Id> line = waiting_;
  for (const auto& [arrival, id] : line) {
    Group& group = groups_.at(id);
    if (now_us >= group.not_before_us && Start(id, &group, room, now_us, actions)) {
      room = RoomNow();
      continue;
    }
    if (group.checked != version_) {
      std::string why = WhyInfeasible(group);
      if (!why.empty() && why != group.infeasible) actions->push_back(GroupInfeasible{id, why});
      group.infeasible = std::move(why);
      group.checked = version_;
    }
    if (!group.infeasible.empty()) continue;  // holds up nobody
    if (first && now_us - group.waits_since_us >= kPatienceUs) {
      // What it would have on empty nodes, other groups' bundles staying where they are if that is possible.
      Room others = RoomIfEmpty(group);
      Room less = others;
      for (auto& [node, free] : less) {
        free = nodes_.at(node).total;
        free.Subtract(nodes_.at(node).held);
      }
      auto plan = Plan(group, less);
      if (!plan) plan = Plan(group, others);
      for (std::size_t i = 0; plan && i < plan->size(); ++i) {
        if (group.slots[i].hold == Hold::kNothing) room[(*plan)[i]].Subtract(group.spec.bundles[i]);
      }
    }
    first = false;
  }
}

bool PlacementGroups::Start(const Id& id, Group* group, const Room& room, std::int64_t now_us, GroupActions* actions) {
  const auto plan = Plan(*group, room);
  if (!plan) return false;
  group->attempt = ++attempts_;
  group->phase = GroupPhase::kReserving;
  group->asked_us = now_us;
  group->infeasible.clear();
  waiting_.erase(group->arrival);
  for (std::uint32_t i = 0; i < plan->size(); ++i) {
    Slot& slot = group->slots[i];
    if (slot.hold != Hold::kNothing) continue;
    Take(&slot, (*plan)[i], group->spec.bundles[i], group->attempt);
    actions->push_back(ReserveBundle{id, group->attempt, i, slot.node, group->spec.bundles[i]});
  }
  return true;
}

// ---- answers ----

PlacementGroups::Slot* PlacementGroups::Current(const Id& id, std::uint64_t attempt, std::uint32_t bundle,
                                                NodeId node) {
  const auto it = groups_.find(id);
  if (it == groups_.end() || bundle >= it->second.slots.size()) return nullptr;
  Slot& slot = it->second.slots[bundle];
  return slot.hold != Hold::kNothing && slot.attempt == attempt && slot.node == node ? &slot : nullptr;
}

void PlacementGroups::Reserved(const Id& id, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                               std::int64_t now_us, GroupActions* actions) {
  Slot* slot = Current(id, attempt, bundle, node);
  if (slot == nullptr) {
    actions->push_back(ReleaseBundle{id, attempt, bundle, node});
    return;
  }
  if (slot->hold != Hold::kAsked) return;  // told twice
  slot->hold = Hold::kReserved;
  Group& group = groups_.at(id);
  const bool all = std::all_of(group.slots.begin(), group.slots.end(), [](const Slot& one) {
    return one.hold == Hold::kReserved || one.hold == Hold::kCommitted;
  });
  if (!all) return;
  group.phase = GroupPhase::kCommitting;
  group.asked_us = now_us;
  for (std::uint32_t i = 0; i < group.slots.size(); ++i) {
    if (group.slots[i].hold == Hold::kReserved) actions->push_back(CommitBundle{id, attempt, i, group.slots[i].node});
  }
}

void PlacementGroups::Refused(const Id& id, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                              const Resources& available, std::int64_t now_us, GroupActions* actions) {
  const Slot* slot = Current(id, attempt, bundle, node);
  if (slot == nullptr || slot->hold == Hold::kCommitted) return;
  GiveUp(id, &groups_.at(id), now_us, actions);
  const auto it = nodes_.find(node);
  if (it != nodes_.end()) it->second.available = available;
  Settle(now_us, actions);
}

void PlacementGroups::Committed(const Id& id, std::uint64_t attempt, std::uint32_t bundle, NodeId node,
                                std::int64_t /*now_us*/, GroupActions* actions) {
  Slot* slot = Current(id, attempt, bundle, node);
  if (slot == nullptr) {
    actions->push_back(ReleaseBundle{id, attempt, bundle, node});
    return;
  }
  Group& group = groups_.at(id);
  if (slot->hold != Hold::kReserved || group.phase != GroupPhase::kCommitting) return;
  slot->hold = Hold::kCommitted;
  GroupReady ready{id, {}};
  for (const Slot& one : group.slots) {
    if (one.hold != Hold::kCommitted) return;
    ready.nodes.push_back(one.node);
  }
  group.phase = GroupPhase::kReady;
  group.failures = 0;
  actions->push_back(std::move(ready));
}

void PlacementGroups::Tick(std::int64_t now_us, GroupActions* actions) {
  for (auto& [id, group] : groups_) {
    if (group.phase != GroupPhase::kReserving && group.phase != GroupPhase::kCommitting) continue;
    if (now_us - group.asked_us >= kAnswerUs) GiveUp(id, &group, now_us, actions);
  }
  Settle(now_us, actions);
}

std::int64_t PlacementGroups::NextTick(std::int64_t now_us) const {
  std::int64_t next = kNever;
  const auto at = [&](std::int64_t when) {
    if (when > now_us) next = std::min(next, when);
  };
  if (stale_ && !waiting_.empty()) at(std::max(settled_us_ + kRoundUs, now_us + 1));
  for (const auto& [id, group] : groups_) {
    if (group.phase == GroupPhase::kReserving || group.phase == GroupPhase::kCommitting) {
      at(group.asked_us + kAnswerUs);
    } else if (group.phase == GroupPhase::kWaiting) {
      at(group.not_before_us);
      at(group.waits_since_us + kPatienceUs);
    }
  }
  return next;
}

const PlacementGroups::Group* PlacementGroups::Find(const Id& id) const {
  const auto it = groups_.find(id);
  return it == groups_.end() ? nullptr : &it->second;
}

Resources PlacementGroups::Held(NodeId id) const {
  const auto it = nodes_.find(id);
  return it == nodes_.end() ? Resources() : it->second.held;
}

}  // namespace manta::rules
