// Groups is a node's half of placement groups. It sets bundles aside as it is told (two phases: reserve, commit), ends
// what runs in them when they are released, knows what became of every group, and answers processes that make, find,
// await or remove one.
//
// A node of a cluster is told by the head (control/groups.h). A node of its own has the same rules::GroupTable, and
// tells itself, under the number kAlone.
//
// A bundle is a lease of the node's own, as an actor's; what it holds goes into the queue again under names that only
// tasks and actors of the group ask for (types/strategy.h). It is given back when the last of them is gone: nothing is
// ever handed out twice.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "node/cluster.h"
#include "node/leases.h"
#include "node/peers.h"
#include "rules/group_table.h"
#include "wire/cluster_messages.h"

namespace manta::node {

class Groups {
 public:
  static constexpr NodeNumber kAlone = 1;
  static constexpr std::int64_t kReserveUs = 4'000'000;  // for tasks to end; less than PlacementGroups::kAnswerUs

  // Does the job run, or one of its kind that may be gone? For groups of this node's programs.
  using KnowsJob = std::function<bool(const Id& job)>;
  // The nodes of the bundles that could hold it, each once; or why there is none: kNotFound (removed, or never made),
  // kInvalid (no such bundle), kInfeasible (none is large enough), kUnavailable (the head is out of reach).
  using OnReady = std::function<void(Result<std::vector<NodeNumber>>)>;

  Groups(base::Loop& loop, Peers& peers, Leases& leases, KnowsJob knows_job);
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // This is a node of that cluster. Before the first message.
  void Join(Cluster& cluster) { cluster_ = &cluster; }
  // A bundle is about to be set aside for a job that has a quota.
  using HasQuota = std::function<void(const Id& job, NodeNumber home, const Resources& quota)>;
  void OnQuota(HasQuota callback) { on_quota_ = std::move(callback); }
  // Of a node on its own: in a cluster the head knows the labels.
  void SetLabels(const Labels& labels) { table_.SetLabels(kAlone, labels); }
  // False: it is not about groups.
  bool OnHeadFrame(const wire::Frame& frame);

  // ---- processes ----

  void Create(Peer& peer, std::uint64_t call, wire::CreateGroup message, NodeNumber home, const Resources& quota);
  void Remove(Peer& peer, std::uint64_t call, const wire::RemoveGroup& message);
  void Find(Peer& peer, std::uint64_t call, const wire::FindGroup& message);
  void List(Peer& peer, std::uint64_t call);
  void Watch(Peer& peer, const wire::WatchGroup& message);
  void ProcessDied(ProcessId process);
  void JobEnded(const Id& job);

  // ---- who wants to run in a group ----

  // Calls `done` when the group is ready, perhaps at once.
  void WhenReady(const Strategy& strategy, const Resources& need, OnReady done);
  // Is such a bundle here, for tasks to come?
  [[nodiscard]] bool Holds(const Strategy& strategy) const;
  [[nodiscard]] NodeNumber self() const { return cluster_ == nullptr ? kAlone : cluster_->self().number; }

  // Bundles are given back as soon as nobody uses them; there will be no new ones.
  void StartDraining() { draining_ = true; }
  void EndRound();

 private:
  using Key = std::tuple<Id, std::uint32_t, std::uint64_t>;  // group, bundle, attempt
  struct Held {
    enum class State : std::uint8_t { kAsked, kReserved, kCommitted, kEnding };
    State state = State::kAsked;
    Resources need;
    std::uint64_t request = 0;
    std::uint64_t lease = 0;
    std::vector<std::uint32_t> gpus;
    base::Loop::TimerId deadline = 0;
  };
  struct Waiter {
    Strategy strategy;
    Resources need;
    OnReady done;
  };

  // bundles of this node
  void Reserve(const wire::ReserveBundle& order);
  void Commit(const Id& group, std::uint64_t attempt, std::uint32_t bundle);
  void Release(const Id& group, std::uint64_t attempt, std::uint32_t bundle, const std::string& why);
  void End(const Key& key, Held& held, const std::string& why);
  bool TryGiveBack(const Key& key, Held& held);
  [[nodiscard]] bool OnlyOne(const Key& key) const;  // of its group here, but for those that end
  void Answer(const Key& key, wire::BundleAnswer::What what);
  void Answered(const wire::BundleAnswer& answer);

  // what is known of groups
  void Learn(const GroupFacts& facts);
  void Whole(const wire::GroupsView& view);
  void Removed(const Id& group, const std::string& name, const std::string& why);
  void Tell(ProcessId process, const GroupFacts& facts);

  // alone
  void Carry(rules::GroupTable::Out&& out);
  void Hear();
  void Arm();

  template <typename Reply, typename M>
  void Forward(Peer& peer, std::uint64_t call, const M& message, const std::function<void(const Reply&)>& first = {});

  base::Loop& loop_;
  Peers& peers_;
  Leases& leases_;
  const KnowsJob knows_job_;
  HasQuota on_quota_;
  Cluster* cluster_ = nullptr;
  rules::GroupTable table_;  // used only alone
  base::Loop::TimerId timer_ = 0;
  std::map<Key, Held> held_;
  std::size_t ending_ = 0;
  bool draining_ = false;
  std::unordered_map<Id, GroupFacts> known_;
  std::unordered_map<Id, std::set<ProcessId>> watchers_;
  std::unordered_map<Id, std::vector<Waiter>> waiting_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::node
