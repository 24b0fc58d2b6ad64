// Quotas sees to it that no job has more at a time, all over the cluster, than it may (rules/job_quota.h says how): on
// the driver's node it keeps the book, on others this node's share of it. What a share means to requests is
// rules::LeaseQueue's business; here is what nodes say to each other about it.
//
// A node that has some of a job's quota and nobody who could use it gives it back at the end of the round. What is
// recalled waits in the queue as a bundle's need would, and so makes a task of that job return when its time is over.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/loop.h"
#include "node/cluster.h"
#include "node/leases.h"
#include "rules/job_quota.h"
#include "wire/cluster_messages.h"

namespace manta::node {

// What the job may have: what it asked for, and no more than `most`, which all may have.
[[nodiscard]] Resources EffectiveQuota(const Resources& asked, const Resources& most);

class Quotas {
 public:
  Quotas(base::Loop& loop, Leases& leases) : loop_(loop), leases_(leases) {}
  ~Quotas();
  Quotas(const Quotas&) = delete;
  Quotas& operator=(const Quotas&) = delete;

  void Join(Cluster& cluster);

  // A job whose driver is here. An empty quota is none.
  void AddHome(const Id& job, const Resources& quota);
  // A job of another node that runs something here, or is about to. Again: nothing happens.
  void AddFar(const Id& job, NodeNumber home, const Resources& quota);
  void Remove(const Id& job);
  void NodeGone(NodeNumber node);

  // kInfeasible: it could never have that. `who` begins the message.
  [[nodiscard]] static Status Check(const Resources& need, const Resources& quota, const std::string& who);
  // Of the quota of a job whose driver is here, on all nodes.
  [[nodiscard]] Resources InUse(const Id& job) const;

  void EndRound();

 private:
  struct Asked {  // in the queue, on behalf of a node
    std::uint64_t request = 0;
    Resources need;
  };
  struct Home {
    explicit Home(const Resources& quota) : book(quota) {}
    rules::JobQuota book;
    std::map<NodeNumber, Asked> asked;
    std::map<NodeNumber, Resources> recalled;  // as they were told
  };
  struct Far {
    NodeNumber home = 0;
    Resources quota;
    Resources have;
    std::uint64_t seen = 0;
    Resources lacks;   // as the home was told
    Resources recall;  // still to be given back
    std::uint64_t recalling = 0;
    bool report = false;
    bool ended = false;  // the job; what is left of its share goes as it comes free
  };

  void OnState(NodeNumber from, const wire::QuotaState& message);
  void OnShare(NodeNumber from, const wire::QuotaShare& message);
  void LinkDown(NodeNumber node);
  void Serve(const Id& job, Home& home);
  void Recall(const Id& job, Home& home);
  void Look(const Id& job, Far& far, bool patient);
  void GiveBackPiece(const Id& job);
  void LookLater();

  base::Loop& loop_;
  Leases& leases_;
  Cluster* cluster_ = nullptr;
  std::map<Id, Home> homes_;
  std::map<Id, Far> fars_;
  std::uint64_t looked_ = 0;  // Leases::changes() then
  bool again_ = false;
  bool patient_ = false;
  base::Loop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
