// Copies is what an object's home knows of its copies on other nodes: who has one, who wants one, and who fetches it
// from whom. Drives rules::Broadcast with the messages of wire/cluster_messages.h ("copies").
//
// Every object that anybody ever fetched is known here until it is freed or its owner is gone; then all copies are
// freed.
//
// Threads: the loop's.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "node/far_nodes.h"
#include "rules/broadcast.h"
#include "types/id.h"
#include "types/place.h"
#include "wire/cluster_messages.h"

namespace manta::node {

class Copies {
 public:
  // What concerns this very node comes back through these.
  struct Here {
    std::function<void(const wire::FarFetchFrom&)> fetch_from;
    std::function<void(const wire::FarStopFetch&)> stop_fetch;
    std::function<void(const wire::FarCopyLost&)> copy_lost;
    std::function<void(const std::vector<Id>& objects, const std::vector<Place>& places)> free;
  };

  Copies(FarNodes& nodes, Here here) : nodes_(nodes), here_(std::move(here)) {}

  // From any node, this one included.
  void Want(NodeNumber from, const wire::FarWant& message);
  void Forgo(NodeNumber from, const Id& object);
  void Fetched(NodeNumber from, const wire::FarFetched& message);
  void Failed(NodeNumber from, const wire::FarFetchFailed& message);
  void Dropped(NodeNumber from, const std::vector<Id>& objects);

  // Nobody needs these any more: frees them wherever they are.
  void Free(const std::vector<Id>& objects, const std::vector<Place>& places);
  // What the process owned, but for what `keep` names.
  void OwnerGone(ProcessId owner, const std::function<bool(const Id&)>& keep);
  void NodeDown(NodeNumber node);

  // Of what was made on that node: copies of these are on others.
  [[nodiscard]] std::vector<Id> ElsewhereOf(NodeNumber made) const;

  [[nodiscard]] std::size_t size() const { return known_.size(); }
  [[nodiscard]] const rules::Broadcast& plan() const { return plan_; }

 private:
  struct Known {
    Place place;  // where it was made
    ProcessId owner = kNoProcess;
  };
  void Do(const rules::BroadcastActions& actions);
  // Tells all holders but `made`, which the caller deals with.
  void FreeCopies(const Id& object, NodeNumber made, std::unordered_map<NodeNumber, wire::FarFree>* orders);
  void Send(const std::unordered_map<NodeNumber, wire::FarFree>& orders);
  void Forget(const Id& object);

  FarNodes& nodes_;
  Here here_;
  rules::Broadcast plan_;
  std::unordered_map<Id, Known> known_;
  std::unordered_set<NodeNumber> down_;  // not heard of since: what was made there is not there
  std::unordered_map<ProcessId, std::unordered_set<Id>> by_owner_;
};

}  // namespace manta::node
