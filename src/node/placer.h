// Placer finds the node for a task or an actor, as its Strategy asks: by the group's bundles, or by asking the head.
// And it says whether this node will do, so that whoever may run here need not ask.
//
// On a node of its own there is nothing to choose; requests for a group wait here until it is ready.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "node/cluster.h"
#include "node/groups.h"
#include "node/leases.h"
#include "node/peers.h"
#include "rules/global_scheduler.h"

namespace manta::node {

class Placer {
 public:
  struct Self {
    std::string name;
    Labels labels;
  };
  // A request that no node of the cluster can hold waits for a node that can.
  struct Patience {
    std::int64_t limit_us = 0;                                           // 0: such a request fails at once
    std::function<void(const Id& job, const std::string& line)> warn{};  // prints it where the job's driver runs
  };
  using OnPlaced = std::function<void(Result<rules::Placement>)>;

  Placer(Peers& peers, Leases& leases, Groups& groups, Self self)
      : peers_(peers), leases_(leases), groups_(groups), self_(std::move(self)) {}
  ~Placer() { *alive_ = false; }
  Placer(const Placer&) = delete;
  Placer& operator=(const Placer&) = delete;

  void Join(Cluster& cluster, Patience patience) {
    cluster_ = &cluster;
    patience_ = std::move(patience);
  }

  // ---- this node ----

  // May it run here, but for resources? Of groups: is such a bundle here?
  [[nodiscard]] bool AllowsHere(const Strategy& strategy) const;
  // Would another node be better, if it is there?
  [[nodiscard]] bool PrefersOthers(const Strategy& strategy) const;
  // Only here, whatever the load.
  [[nodiscard]] bool PinnedHere(const Strategy& strategy) const;

  // ---- any node ----

  // The node for one task or actor. `request` has what it needs, its inputs and who refused it; what it wishes is
  // filled in here. Waits for a group that is not ready yet. Fails with kInfeasible, kInvalid or kNotFound if it can
  // never be had, kUnavailable if the head is out of reach. A placement in a group has no ticket.
  void Place(const Strategy& strategy, rules::PlaceRequest request, OnPlaced done);

  // The request got kInfeasible as `why`. True: ask again after kLackingUs, a node that can hold it may come. False:
  // its time is up. `since_us`: when it was called infeasible first; 0 before the first call. `forever`: without limit.
  // The job's driver sees one line for all requests that ask for the same.
  [[nodiscard]] bool WaitsForANode(const Id& job, const std::string& asked, const Status& why, bool forever,
                                   std::int64_t* since_us);
  [[nodiscard]] bool patient() const { return patience_.limit_us > 0; }
  static constexpr std::int64_t kLackingUs = 250'000;

  // ---- a node of its own ----

  // A lease request with a strategy; refused, or passed on to Leases, perhaps later.
  void RequestAlone(Peer& peer, const wire::LeaseRequest& message);
  // True: it waited here.
  bool CancelAlone(Peer& peer, std::uint64_t request);
  void OwnerDied(ProcessId owner);

 private:
  // kInfeasible: what was asked and what there is.
  [[nodiscard]] Status WhyNotHere(const Strategy& strategy) const;
  [[nodiscard]] rules::Placement Choose(const std::vector<NodeNumber>& nodes, const std::vector<rules::NodeId>& refused,
                                        bool room_here);
  [[nodiscard]] NodeNumber number() const { return cluster_ == nullptr ? 0 : cluster_->self().number; }
  [[nodiscard]] const Labels& labels() const { return cluster_ == nullptr ? self_.labels : cluster_->self().labels; }
  [[nodiscard]] const std::string& name() const { return cluster_ == nullptr ? self_.name : cluster_->self().name; }

  Peers& peers_;
  Leases& leases_;
  Groups& groups_;
  const Self self_;
  Cluster* cluster_ = nullptr;
  std::map<rules::LeaseKey, wire::LeaseRequest> parked_;
  std::size_t turn_ = 0;
  Patience patience_;
  std::set<std::pair<Id, std::string>> warned_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
