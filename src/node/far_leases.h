// FarLeases lets owners of this node have workers on other nodes, and owners of other nodes have workers on this one.
// It carries out what rules::SpillOver decides: a request stays in this node's queue (node/leases.h) or goes up to the
// head, which names a node.
//
// A request of an owner here, while it is not simply the local queue's business:
//
//   kept (in the local queue) --waited too long--> placing --node named--> asked --granted--> given --> gone
//                                    ^                |  it is this node: kept, for good
//                                    +--- bounced, node died, head out of reach ---+
//
// One that waits in another node's queue asks the head again now and then: its place there is worth more than one in
// another queue, but not more than room.
//
// An owner of another node gets a number of this node (its stand-in), by which the local queue and the store know it,
// until it or its node is gone. What it asks for waits until its job's program is here.
//
// When the connection to a node ends: leases there are lost to our owners, what was only asked for is placed anew, and
// workers that served its owners are killed, because those do the same and run the lost tasks again.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "node/cluster.h"
#include "node/leases.h"
#include "node/peers.h"
#include "node/placer.h"
#include "node/programs.h"
#include "rules/node_load.h"
#include "rules/spill_over.h"
#include "wire/cluster_messages.h"

namespace manta::node {

class FarLeases {
 public:
  // What only the daemon can do.
  struct Host {
    std::function<bool(const Id& job)> knows_job;
    // A job of another node, whose program is here now.
    std::function<void(const wire::JobFacts& facts, base::Fd executable)> add_job;
    // A number for an owner of another node (kNoProcess: the node is full), and its end.
    std::function<ProcessId()> stand_in;
    std::function<void(ProcessId stand_in)> gone;
    // What is known of a job that runs here; nullptr: it does not, or it is about to end.
    std::function<const wire::JobFacts*(const Id& job)> facts;
    std::function<bool(const Id& job)> end_job;   // of another node; false: it is not here
    std::function<void(const Id& job)> job_gone;  // ours, elsewhere
    std::function<void(ProcessId stand_in, const wire::KillWorker& order)> kill_worker;
  };

  FarLeases(base::Loop& loop, Cluster& cluster, Peers& peers, Leases& leases, Programs& programs, Placer& placer,
            Host host);
  ~FarLeases();
  FarLeases(const FarLeases&) = delete;
  FarLeases& operator=(const FarLeases&) = delete;

  // ---- owners of this node ----

  void Request(Peer& peer, const wire::LeaseRequest& message);
  void Cancel(Peer& peer, const wire::LeaseCancel& message);
  void Broken(Peer& peer, const wire::LeaseBroken& message);
  void OwnerDied(ProcessId owner);
  // KillWorker for a worker on another node.
  void KillWorker(ProcessId owner, const wire::KillWorker& message);
  // Tells everybody who runs something for the job.
  void JobEnded(const Id& job);
  // What `for_node` needs to know to run the job.
  void WhenDescribed(const Id& job, NodeNumber for_node, const Programs::OnFacts& done);
  // `node` runs something for the job, or for the owner: it hears of their ends.
  void JobRunsOn(const Id& job, NodeNumber node) { job_nodes_[job].insert(node); }
  void OwnerUses(ProcessId owner, NodeNumber node) { asked_nodes_[owner].insert(node); }
  // Somebody whom JobEnded told has not said yet that it is over there.
  [[nodiscard]] bool EndsElsewhere(const Id& job) const { return ending_.contains(job); }

  // ---- owners of other nodes ----

  // kNoProcess: unknown.
  [[nodiscard]] ProcessId StandInOf(ProcessId owner) const;
  // The same, made if need be; kNoProcess: the node is full.
  ProcessId NeedStandIn(ProcessId owner);
  // When the job's program is here (kNotFound: ask elsewhere), or could not be had. Not at all, if the job ends before.
  void WhenJobIsHere(const wire::JobFacts& facts, std::function<void(const Status&)> done);
  // All that are known here: stand-in and owner.
  [[nodiscard]] std::vector<std::pair<ProcessId, ProcessId>> Owners() const;
  // For the next heartbeat.
  void Arrived(std::uint64_t ticket) { arrived_.push_back(ticket); }

  // ---- the node's load ----

  // For the heartbeat.
  void Describe(rules::Heartbeat* heartbeat);
  struct Counts {
    std::uint64_t requests = 0;   // of owners here
    std::uint64_t questions = 0;  // to the head
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  // Takes nothing new from now on; what waits here goes elsewhere.
  void StartDraining();
  [[nodiscard]] bool draining() const { return draining_; }
  // Serves nobody, and nobody here waits for another node.
  [[nodiscard]] bool Quiet() const { return serving_.empty() && far_.empty(); }
  void EndRound();

 private:
  using Key = rules::LeaseKey;
  // A request of an owner here that is not, or not only, the local queue's.
  struct Far {
    enum class State : std::uint8_t { kPlacing, kAsked, kGiven };
    State state = State::kPlacing;
    Id job;
    wire::LeaseRequest message;
    bool local = false;  // waits in the local queue meanwhile
    NodeNumber node = 0;
    std::uint64_t number = 0;  // FarLease::request
    std::uint64_t ticket = 0;
    ProcessId worker = kNoProcess;
    std::vector<rules::NodeId> refused;
    bool sent = false;            // FarLease
    bool moves = false;           // withdrawn there, because there is room elsewhere
    int lost = 0;                 // workers, before they could be reached
    std::int64_t lacking_us = 0;  // when it was first said that no node can hold it; 0: it was not
    std::int64_t look_us = 0;     // since the last look elsewhere; the next one comes after twice as long
    base::Loop::TimerId retry = 0;
  };
  // A request in the local queue that may still go up.
  struct Kept {
    Id job;
    wire::LeaseRequest message;
    std::int64_t ask_at_us = 0;
  };
  struct Owner {  // of another node
    ProcessId owner = kNoProcess;
    NodeNumber node = 0;
  };
  struct Coming {  // a job whose program is on its way
    std::vector<std::pair<NodeNumber, wire::FarLease>> waiting;
    std::vector<std::function<void(const Status&)>> others;
  };
  struct Waiting {  // tasks of one queue
    std::size_t index = 0;
    std::int64_t tasks = 0;
    std::set<std::uint64_t> requests;
  };

  // up
  [[nodiscard]] bool GoesUp(ProcessId owner, const Id& job, const wire::LeaseRequest& message, std::size_t index);
  void Place(const Key& key);
  void ArmLook();
  void Placed(const Key& key, const Result<rules::Placement>& placed);
  [[nodiscard]] bool FitsHere(const wire::LeaseRequest& message) const;
  // That are placed elsewhere or on their way.
  [[nodiscard]] std::uint64_t RequestsOf(ProcessId owner, std::uint64_t queue) const;
  void Stay(const Key& key);
  void PlaceLater(const Key& key, std::int64_t after_us);
  void AskNode(const Key& key, const rules::Placement& placement);
  void SendFarLease(const Key& key, const rules::Placement& placement, const Result<wire::JobFacts>& facts);
  // While it waits there: perhaps there is room elsewhere.
  void LookElsewhere(const Key& key);
  [[nodiscard]] rules::PlaceRequest RequestOf(const Far& far) const;
  void Refuse(const Key& key, const Failure& why);
  void Forget(const Key& key);
  void LookAtKept();
  [[nodiscard]] Far* FindByNumber(NodeNumber from, std::uint64_t number, Key* key);
  void Anew(const Key& key, bool at_once);

  // down
  void Register();
  void RegisterAnswers();
  Coming& Expect(const wire::JobFacts& facts);
  void ProgramCame(const Id& job, const wire::JobFacts& facts, Result<base::Fd> executable);
  void OnFarLease(NodeNumber from, const wire::FarLease& message);
  void Accept(NodeNumber from, const wire::FarLease& message);
  void Bounce(NodeNumber from, const wire::FarLease& message, const std::string& why);
  void OwnerGone(ProcessId owner, bool kill, const Failure& why);
  void EndedOn(NodeNumber node, const Id& job);
  void NodeDown(NodeNumber node, const Status& why);
  [[nodiscard]] NodeNumber NodeOfStandIn(ProcessId stand_in) const;
  void Over(const Key& key);

  // load
  std::size_t Count(ProcessId owner, std::uint64_t queue, std::uint64_t request, std::uint64_t function,
                    const Resources& need, std::int64_t tasks, double mean_run_us);
  void Recount();

  base::Loop& loop_;
  Cluster& cluster_;
  Peers& peers_;
  Leases& leases_;
  Programs& programs_;
  Placer& placer_;
  const Host host_;
  rules::NodeLoad load_;
  const rules::SpillOver spill_over_;
  bool draining_ = false;
  std::map<Key, Far> far_;
  std::unordered_map<std::uint64_t, Key> by_number_;
  std::uint64_t next_number_ = 1;
  std::map<Key, Kept> kept_;
  base::Loop::TimerId look_timer_ = 0;
  std::unordered_map<ProcessId, std::set<NodeNumber>> asked_nodes_;  // of an owner here
  std::unordered_map<Id, std::set<NodeNumber>> job_nodes_;           // who runs something for a job of ours
  std::unordered_map<Id, std::set<NodeNumber>> ending_;              // the same, told that it has ended
  std::map<ProcessId, Owner> owners_;                                // by stand-in
  std::unordered_map<ProcessId, ProcessId> stand_ins_;               // by owner
  std::map<std::pair<NodeNumber, std::uint64_t>, Key> serving_;      // FarLease::request to the local queue's key
  std::unordered_map<Id, Coming> coming_;
  std::map<std::pair<ProcessId, std::uint64_t>, Waiting> waiting_;
  bool recounted_ = false;  // in this round
  bool was_full_ = false;
  std::vector<std::uint64_t> arrived_;  // tickets
  Counts counts_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
