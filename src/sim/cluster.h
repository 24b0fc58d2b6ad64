// Cluster is the simulated cluster: the real rules (LeaseQueue, NodeLoad and SpillOver on every node, GlobalScheduler
// replicas) driven by virtual time, with workers, owners, the network and the control store as models. One object runs
// one Model once. Not for other rooms: they see model.h.
//
// The unit of work is as in the engine: a lease serves many tasks of its queue (one owner, one class, on one node), so
// a task costs one event, its end, in which the worker takes the next; rules are asked per lease, batch or heartbeat.
//
// Invariants: every submitted task is in exactly one queue, parcel or worker, or has ended (or was refused for good);
// CPUs in use never exceed a node's, since only its LeaseQueue gives them. The same model and seed give the same events
// in the same order: nothing depends on addresses, hashes or the real time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/global_scheduler.h"
#include "rules/lease_queue.h"
#include "rules/node_load.h"
#include "rules/spill_over.h"
#include "sim/event_heap.h"
#include "sim/histogram.h"
#include "sim/model.h"
#include "sim/random.h"

namespace manta::sim {

// Tasks that were submitted together.
struct Together {
  std::int64_t submitted_ns = 0;
  std::int64_t count = 0;
};

// A ring that grows: tasks cost no allocation of their own.
class Fifo {
 public:
  [[nodiscard]] bool empty() const { return head_ == tail_; }
  void PushBack(const Together& one) {
    if (!empty() && At(tail_ - 1).submitted_ns == one.submitted_ns) {
      At(tail_ - 1).count += one.count;
      return;
    }
    if (tail_ - head_ == ring_.size()) Grow();
    At(tail_++) = one;
  }
  Together& Front() { return At(head_); }
  Together& Back() { return At(tail_ - 1); }
  void PopFront() { ++head_; }
  void PopBack() { --tail_; }

 private:
  Together& At(std::uint64_t at) { return ring_[at & (ring_.size() - 1)]; }
  void Grow() {
    std::vector<Together> bigger(ring_.empty() ? 4 : ring_.size() * 2);
    for (std::uint64_t i = head_; i < tail_; ++i) bigger[i - head_] = At(i);
    tail_ -= head_;
    head_ = 0;
    ring_ = std::move(bigger);
  }
  std::vector<Together> ring_;  // a power of two
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

// The workers of a node by their leases, whose numbers only grow: a sorted row of at most as many as it has slots.
class LeasedWorkers {
 public:
  void Add(std::uint64_t lease, std::uint32_t worker) { row_.emplace_back(lease, worker); }
  void Remove(std::uint64_t lease) { row_.erase(Find(lease)); }
  [[nodiscard]] std::uint32_t Of(std::uint64_t lease) const { return Find(lease)->second; }

 private:
  using Row = std::vector<std::pair<std::uint64_t, std::uint32_t>>;
  [[nodiscard]] Row::const_iterator Find(std::uint64_t lease) const {
    return std::lower_bound(row_.begin(), row_.end(), std::pair<std::uint64_t, std::uint32_t>{lease, 0});
  }
  Row row_;
};

class Cluster {
 public:
  explicit Cluster(const Model& model);
  Figures Run();

 private:
  enum Kind : std::uint32_t { kTaskEnd, kArrival, kBurst, kBeat, kTick, kAtScheduler, kAtNode, kFetched };

  // The tasks of one owner and class on one node.
  struct Queue {
    std::uint32_t node = 0;
    std::uint32_t owner = 0;
    std::uint32_t kind = 0;  // class
    std::int64_t pending = 0;
    std::int64_t leases = 0;
    std::int64_t ask_again = 0;        // the backlog at which the local decision is due again
    std::vector<std::uint64_t> asked;  // lease requests that wait
    std::vector<std::uint32_t> idle;
    Fifo fifo;
  };
  struct Worker {
    std::uint32_t node = 0;
    std::uint32_t queue = 0;
    std::uint64_t lease = 0;
    std::int64_t run_ns = 0;
    bool busy = false;
    bool revoked = false;
  };
  struct Node {
    Node(const std::string& name, const Resources& total) : leases(name, total), load(total) {}
    rules::LeaseQueue leases;
    rules::NodeLoad load;
    double speed = 1;
    double batches_per_us = 0;                                  // arrivals
    std::vector<std::uint32_t> own;                             // queues of its own tasks, by class
    std::vector<std::int64_t> slots;                            // how many of a class run at once, by class
    std::vector<std::int64_t> idle;                             // idle leases, by class
    std::unordered_map<std::uint64_t, std::uint32_t> far;       // (owner, class): queue
    std::unordered_map<std::uint64_t, std::uint32_t> requests;  // lease request: queue
    LeasedWorkers workers;
    std::uint64_t last_request = 0;
    std::uint64_t sequence = 0;
    std::int64_t beat_ns = 0;  // the last heartbeat, and what it told: in tasks of the first class
    std::int64_t told_room = 0;
    std::vector<std::uint64_t> arrived;  // tickets since the last heartbeat
    std::int64_t tick_ns = -1;           // when one is due
    std::int64_t quantum_ns = 0;         // when to look again though no lease is idle
    std::int64_t records = 0;            // not yet sent to the control store
    std::int64_t flush_ns = 0;
    std::int64_t in_until_ns = 0;
    std::int64_t out_until_ns = 0;
  };
  // Tasks on their way between nodes.
  struct Parcel {
    std::uint32_t owner = 0;
    std::uint32_t kind = 0;
    std::uint32_t holder = 0;  // of the input
    std::uint32_t node = 0;    // where it goes
    std::int64_t count = 0;
    bool placed = false;
    rules::Placement placement;
    std::vector<rules::NodeId> refused;
    std::vector<Together> tasks;
  };
  struct Replica {
    std::unique_ptr<rules::GlobalScheduler> rule;
    std::int64_t busy_until_ns = 0;
    std::int64_t busy_ns = 0;
  };
  struct Shard {
    std::int64_t busy_until_ns = 0;
    std::int64_t busy_ns = 0;
  };

  // ---- owners (cluster.cc) ----
  void Prepare();
  void Arrive(std::uint32_t node);
  void Burst();
  void Submit(std::uint32_t node, std::uint32_t kind, std::int64_t count);
  [[nodiscard]] std::uint32_t DrawClass();
  [[nodiscard]] std::int64_t DrawRunNs(std::uint32_t kind, double speed);

  // ---- workers and leases (cluster.cc) ----
  void Enqueue(std::uint32_t queue, const Together& tasks);
  void Serve(std::uint32_t queue);
  void AskForLeases(std::uint32_t queue);
  void TaskEnded(std::uint32_t worker);
  // Begins the next task; when it ends. Its queue has one.
  std::int64_t Begin(Worker* worker, std::int64_t from_ns);
  void GoIdle(std::uint32_t worker);
  void Perform(std::uint32_t node, rules::LeaseActions* actions);
  void Return(std::uint32_t worker);
  void Tick(std::uint32_t node);
  void ScheduleTick(std::uint32_t node, std::int64_t at_ns);
  void Record(std::uint32_t owner);
  [[nodiscard]] std::int64_t Lag(std::uint32_t owner) const;

  // ---- placement (cluster_placement.cc) ----
  [[nodiscard]] Resources Available(const Node& node) const;
  [[nodiscard]] rules::Heartbeat Beat(std::uint32_t node);
  void SendHeartbeat(std::uint32_t node);
  [[nodiscard]] bool BeatIsDue(const Node& node) const;
  [[nodiscard]] std::int64_t RoomLeft(const Node& node) const;
  void ConsiderSpilling(std::uint32_t queue);
  void SendUp(std::uint32_t queue, std::int64_t count);
  void Ask(std::uint32_t parcel);
  void AtScheduler(std::uint32_t parcel);
  void AtNode(std::uint32_t parcel);
  void Fetch(std::uint32_t parcel);
  void Deliver(std::uint32_t parcel);
  [[nodiscard]] std::uint32_t QueueFor(std::uint32_t node, std::uint32_t owner, std::uint32_t kind);
  void Retire(std::uint32_t queue);
  [[nodiscard]] std::uint32_t NewParcel();
  // Tasks move from the end of the one to the other, `count` of them.
  static void Split(std::vector<Together>* from, std::int64_t count, std::vector<Together>* to);

  [[nodiscard]] std::int64_t NowUs() const { return now_ns_ / 1'000; }
  [[nodiscard]] static std::int64_t Ns(double us) { return static_cast<std::int64_t>(us * 1e3); }
  void At(std::int64_t ns, Kind kind, std::uint32_t what) { events_.Push({ns, kind, what}); }
  [[nodiscard]] Replica& ReplicaOf(const Parcel& parcel) { return replicas_[parcel.owner % replicas_.size()]; }

  const Model model_;
  Random random_;    // run times
  Random arriving_;  // what comes when and where: the same whatever the rules do with it
  rules::SpillOver spill_over_;
  EventHeap events_;
  std::int64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<Queue> queues_;
  std::vector<std::uint32_t> free_queues_;
  std::vector<Worker> workers_;
  std::vector<std::uint32_t> free_workers_;
  std::vector<Parcel> parcels_;
  std::vector<std::uint32_t> free_parcels_;
  std::vector<Replica> replicas_;
  std::vector<Shard> shards_;
  std::vector<double> weights_;  // of classes, summed up
  std::vector<double> cpus_;     // of a task, by class
  std::uint64_t submitted_ = 0;
  double bursts_per_us_ = 0;
  std::int64_t last_end_ns_ = 0;
  double busy_cpu_ns_ = 0;
  Histogram waits_;
  Histogram far_waits_;
  double latency_ns_ = 0;
  Figures out_;
};

}  // namespace manta::sim
