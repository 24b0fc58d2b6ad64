// JobQuota is the book of one job's quota, kept by the node of its driver: of what the job may have at a time, all over
// the cluster, how much each node may hand out. Pure: no clock, no sockets; the node's loop calls it.
//
// A quota is shared out, not counted: a node gives a job's tasks only what is in its own share, and the shares add up
// to the quota. So nothing is ever exceeded, whatever is late or lost, and who has a share need not ask. All of it
// begins at home (the driver's node); another node says what it lacks (wire::QuotaState), and gets it out of the home's
// share, or out of what others give back: at once what they do not use, else when a task of theirs ends.
//
// Why the driver's node and not the head: it begins and ends with the job, so there is nothing to be kept or to come
// back to after a restart of the head; a job that runs on its driver's node only, as most do at most times, costs no
// message; and the head is not asked for what it decides about placement only.
//
// A node's own word counts: `have` in what it says is its share then. What is given to it counts as its own from the
// moment it is sent; with a connection everything that was under way on it is lost, and is known to be so when the node
// speaks again.
//
// Invariants, after every call: (1) here + all shares == total; (2) nothing is negative; (3) nobody is asked to give
// back what only it lacks itself, nor more than it has.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "rules/cluster.h"
#include "types/resources.h"

namespace manta::rules {

class JobQuota {
 public:
  explicit JobQuota(Resources total) : total_(total), here_(std::move(total)) {}

  // ---- events ----

  // A node spoke. Returned is what came back home by that.
  Resources Heard(NodeId node, const Resources& have, const Resources& lacks, std::uint64_t seen);
  // Out of what is here, which must cover it. The number by which the node will say that it has it.
  std::uint64_t Give(NodeId node, const Resources& more);
  // The connection to it is lost: what is under way never arrives.
  void LinkLost(NodeId node);
  // It is dead, and so is all that it ran. Returned is what came back home.
  Resources NodeGone(NodeId node);
  // What the first that waits at home lacks.
  void HomeLacks(const Resources& lacks) { home_lacks_ = lacks; }

  // ---- what is ----

  [[nodiscard]] const Resources& total() const { return total_; }
  [[nodiscard]] const Resources& here() const { return here_; }
  [[nodiscard]] Resources Share(NodeId node) const;
  [[nodiscard]] Resources Lacks(NodeId node) const;
  // What the node is to give back, because others lack it.
  [[nodiscard]] Resources Recall(NodeId node) const;
  [[nodiscard]] std::vector<NodeId> nodes() const;  // that have something, or lack something

 private:
  struct Given {
    std::uint64_t number = 0;
    Resources more;
    bool lost = false;
  };
  struct Node {
    Resources have;
    std::vector<Given> under_way;
    Resources lacks;
  };
  [[nodiscard]] static Resources ShareOf(const Node& node);
  void ForgetIfEmpty(NodeId node);

  const Resources total_;
  Resources here_;
  Resources home_lacks_;
  std::map<NodeId, Node> nodes_;
  std::uint64_t last_number_ = 0;
};

}  // namespace manta::rules
