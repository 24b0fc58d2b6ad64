#include "node/placer.h"

#include <algorithm>

#include "base/clock.h"

namespace manta::node {

// ---- this node ----

bool Placer::AllowsHere(const Strategy& strategy) const {
  if (!strategy.group.empty()) return groups_.Holds(strategy);
  if (!strategy.node.empty() && !strategy.soft && !NamesNode(strategy.node, name(), number())) return false;
  return Matches(labels(), strategy.labels);
}

bool Placer::PrefersOthers(const Strategy& strategy) const {
  if (strategy.spread) return true;
  if (!strategy.node.empty() && !NamesNode(strategy.node, name(), number())) return true;
  return !strategy.prefer.empty() && !Matches(labels(), strategy.prefer);
}

bool Placer::PinnedHere(const Strategy& strategy) const {
  return !strategy.node.empty() && !strategy.soft && NamesNode(strategy.node, name(), number());
}

Status Placer::WhyNotHere(const Strategy& strategy) const {
  if (AllowsHere(strategy)) return {};
  return {Code::kInfeasible, Cat("a task is to run ", ToString(strategy), ", but this cluster has one node, ", name(),
                                 ", with labels: ", ToString(labels()))};
}

// ---- any node ----

void Placer::Place(const Strategy& strategy, rules::PlaceRequest request, OnPlaced done) {
  if (!strategy.group.empty()) {
    const Resources taken = InBundle(request.need, strategy.group, strategy.bundle);
    groups_.WhenReady(strategy, request.need,
                      [this, alive = alive_, refused = request.refused, taken,
                       done = std::move(done)](const Result<std::vector<NodeNumber>>& nodes) {
                        if (!*alive) return;
                        if (!nodes.ok()) return done(nodes.status());
                        const rules::Placement placement =
                            Choose(nodes.value(), refused, leases_.queue().free().Covers(taken));
                        if (placement.node != rules::kNoNode) return done(placement);
                        done(Status(Code::kUnavailable, "the nodes of its placement group are gone; it is made anew"));
                      });
    return;
  }
  if (cluster_ == nullptr) {
    if (Status status = WhyNotHere(strategy); !status.ok()) return done(status);
    return done(rules::Placement{Groups::kAlone, 1, 0, 0, true});
  }
  request.labels = strategy.labels;
  request.prefer = strategy.prefer;
  request.node = strategy.node;
  request.soft_affinity = strategy.soft;
  request.spread = strategy.spread ? rules::Spread::kYes : rules::Spread::kNo;
  cluster_->Place(request, [done = std::move(done)](const Result<std::vector<rules::Placement>>& placed) {
    if (!placed.ok()) return done(placed.status());
    if (placed.value().empty()) return done(Status(Code::kUnavailable, "the head has named no node"));
    done(placed.value().front());
  });
}

bool Placer::WaitsForANode(const Id& job, const std::string& asked, const Status& why, bool forever,
                           std::int64_t* since_us) {
  if (!forever && patience_.limit_us <= 0) return false;
  const std::int64_t now = base::NowMicros();
  if (*since_us == 0) *since_us = now;
  if (!forever && now - *since_us >= patience_.limit_us) return false;
  constexpr std::size_t kMostWarned = 1'000;
  if (warned_.size() >= kMostWarned) warned_.clear();
  if (warned_.emplace(job, asked).second && patience_.warn) {
    const std::string limit =
        forever ? std::string() : Cat(" for at most ", static_cast<double>(patience_.limit_us) / 1e6, " s");
    patience_.warn(job, Cat("a request waits", limit, " for a node that can hold it: ", why.message()));
  }
  return true;
}

// This node if it has room at once, then the others in turn, then this node.
rules::Placement Placer::Choose(const std::vector<NodeNumber>& nodes, const std::vector<rules::NodeId>& refused,
                                bool room_here) {
  std::vector<NodeNumber> living;
  std::vector<NodeNumber> open;
  bool here = false;
  for (const NodeNumber node : nodes) {
    if (cluster_ != nullptr && cluster_->Find(node) == nullptr) continue;
    living.push_back(node);
    if (std::find(refused.begin(), refused.end(), node) != refused.end()) continue;
    if (node == groups_.self()) {
      here = true;
    } else {
      open.push_back(node);
    }
  }
  rules::Placement placement;
  placement.count = 1;
  if (living.empty()) return placement;
  placement.final = living.size() == 1;
  if (here && (room_here || open.empty())) {
    placement.node = groups_.self();
  } else if (!open.empty()) {
    placement.node = open[turn_++ % open.size()];
  } else {
    placement.node = living[turn_++ % living.size()];
    placement.final = true;
  }
  return placement;
}

// ---- a node of its own ----

void Placer::RequestAlone(Peer& peer, const wire::LeaseRequest& message) {
  if (message.strategy.group.empty()) {
    const Status status = WhyNotHere(message.strategy);
    if (status.ok()) return leases_.Request(peer, message);
    return peer.connection->Send(wire::LeaseRefused{message.request, ToFailure(status)});
  }
  const rules::LeaseKey key{peer.process, message.request};
  parked_[key] = message;
  rules::PlaceRequest request;
  request.need = message.need;
  Place(message.strategy, std::move(request), [this, alive = alive_, key](const Result<rules::Placement>& placed) {
    if (!*alive) return;
    const auto it = parked_.find(key);
    if (it == parked_.end()) return;
    const wire::LeaseRequest parked = std::move(it->second);
    parked_.erase(it);
    Peer* owner = peers_.Find(key.owner);
    if (owner == nullptr) return;
    if (placed.ok()) return leases_.Request(*owner, parked);
    owner->connection->Send(wire::LeaseRefused{key.request, ToFailure(placed.status())});
  });
}

bool Placer::CancelAlone(Peer& peer, std::uint64_t request) {
  if (parked_.erase({peer.process, request}) == 0) return false;
  peer.connection->Send(wire::LeaseEnded{request});
  return true;
}

void Placer::OwnerDied(ProcessId owner) {
  std::erase_if(parked_, [&](const auto& entry) { return entry.first.owner == owner; });
}

}  // namespace manta::node
