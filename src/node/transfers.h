// Transfers brings copies of other nodes' objects into this node's store, serves this node's to others, and frees
// objects wherever they are.
//
//   a process --Fetch--> here --FarWant--> the object's home, which plans (node/copies.h)
//   home --FarFetchFrom--> here --FetchPart--> the source's threads (node/transfer_threads.h)
//   the bytes arrive; here --Fetched--> the processes that asked, and --FarFetched--> home
//
// Requests for one object share one transfer. A source that fails is replaced by another as long as the home knows of
// one; parts that came stay. What is fetched ahead waits its turn; what a process waits for does not.
//
// A copy is the store's to evict when memory is short; the home is told.
//
// Threads: the loop's. The keeper, the nodes and the loop outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/loop.h"
#include "node/copies.h"
#include "node/far_nodes.h"
#include "node/mailbox.h"
#include "node/transfer_threads.h"
#include "store/keeper.h"
#include "wire/cluster_messages.h"

namespace manta::node {

class Transfers {
 public:
  using Reply = std::function<void(Result<Place> here)>;

  static constexpr std::size_t kAheadAtOnce = 16;
  static constexpr int kAttempts = 5;  // without a part arriving in between

  static Result<std::unique_ptr<Transfers>> Create(base::Loop& loop, FarNodes& nodes, store::Keeper& keeper,
                                                   TransferOptions options);
  ~Transfers();
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  void Fetch(const Id& object, const Place& place, ProcessId owner, Reply reply);
  void FetchAhead(const wire::FetchAhead& message);
  // FreeObjects of a process here, or of the directory: wherever they are.
  void Free(const std::vector<Id>& objects, const std::vector<Place>& places);
  // It owned what may have copies; `keep` as for the keeper.
  void OwnerGone(ProcessId owner, const store::Keeper::KeepPredicate& keep) { copies_.OwnerGone(owner, keep); }
  // Of the objects that are stored here for owners of other nodes: is it to stay though its owner is gone?
  [[nodiscard]] bool Kept(const Id& object) const { return kept_.contains(object); }

  // From other nodes.
  void FarWant(NodeNumber from, const wire::FarWant& message) { copies_.Want(from, message); }
  void FarForgo(NodeNumber from, const wire::FarForgo& message) { copies_.Forgo(from, message.object); }
  void FarFetched(NodeNumber from, const wire::FarFetched& message) { copies_.Fetched(from, message); }
  void FarFetchFailed(NodeNumber from, const wire::FarFetchFailed& message) { copies_.Failed(from, message); }
  void FarCopyDropped(NodeNumber from, const wire::FarCopyDropped& message) { copies_.Dropped(from, message.objects); }
  void FarFetchFrom(NodeNumber from, const wire::FarFetchFrom& message);
  void FarStopFetch(NodeNumber from, const wire::FarStopFetch& message);
  void FarCopyLost(NodeNumber from, const wire::FarCopyLost& message);
  void FarFree(NodeNumber from, const wire::FarFree& message) { FreeHere(message.objects, message.places, from); }
  void FarKeep(NodeNumber from, const wire::FarKeep& message);
  void NodeDown(NodeNumber node, const std::string& why);
  // A connection of role kTransfer.
  void Accepted(wire::Link link) { threads_->Serve(std::move(link)); }

  [[nodiscard]] const TransferCounters& counters() const { return threads_->counters(); }
  // How fast large objects came since the last call: bytes, and the time of each added up.
  struct Speed {
    std::uint64_t bytes = 0;
    std::int64_t us = 0;
  };
  [[nodiscard]] Speed TakeSpeed() { return std::exchange(speed_, {}); }
  [[nodiscard]] std::size_t fetching() const { return fetching_.size(); }
  [[nodiscard]] const Copies& copies() const { return copies_; }
  [[nodiscard]] bool HasCopy(const Id& object) const { return !threads_->FindCopy(object).nowhere(); }

 private:
  struct Fetching {
    Place place;
    ProcessId owner = kNoProcess;
    NodeNumber home = 0;
    std::vector<Reply> replies;
    struct Other {
      Place place;
      Reply reply;
    };
    std::vector<Other> others;  // who look for it elsewhere: it was lost and made again
    std::shared_ptr<Incoming> incoming;
    std::shared_ptr<TransferThreads::Pull> pull;  // that runs
    NodeNumber from = 0;                          // as planned, …
    std::uint64_t transfer = 0;                   // … 0: no plan now
    bool again = false;                           // a new plan came while a pull ran
    int failures = 0;
    std::size_t missing = 0;  // parts, at the last failure
    base::Loop::TimerId pause = 0;
    bool ahead = false;
    std::int64_t since_us = 0;  // when the first pull began
  };
  struct Ahead {
    Id object;
    Place place;
    ProcessId owner = kNoProcess;
  };

  Transfers(base::Loop& loop, FarNodes& nodes, store::Keeper& keeper);
  void Begin(const Id& object, const Place& place, ProcessId owner, Reply reply, bool ahead);
  void BeginAhead();
  void StartPull(const Id& object, Fetching& fetching);
  void Ended(const Id& object, const TransferThreads::Ended& ended);
  void Complain(const Id& object, Fetching& fetching, bool gone, const Status& why);
  void Finish(const Id& object, const Result<Place>& result);
  void FreeHere(const std::vector<Id>& objects, const std::vector<Place>& places, NodeNumber from);
  void Evicted(const std::vector<Id>& objects);
  // To an object's home, which may be this node.
  template <typename M, typename F>
  void ToHome(NodeNumber home, const M& message, const F& here) {
    if (home == nodes_.self()) {
      here(message);
    } else {
      nodes_.Send(home, message);
    }
  }

  base::Loop& loop_;
  FarNodes& nodes_;
  store::Keeper& keeper_;
  std::unique_ptr<Mailbox> mailbox_;
  std::unique_ptr<TransferThreads> threads_;
  Copies copies_;
  std::unordered_map<Id, Fetching> fetching_;
  std::unordered_map<Id, NodeNumber> homes_;  // of the copies that are here
  std::unordered_map<Id, NodeNumber> kept_;   // whose owner is gone: by home
  std::deque<Ahead> ahead_;
  std::size_t ahead_running_ = 0;
  Speed speed_;
};

}  // namespace manta::node
