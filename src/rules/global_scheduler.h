// GlobalScheduler chooses the node for tasks that their own node sent up (rules/spill_over.h): the one with the lowest
//     estimated wait = queue length x mean run time of that function / what runs side by side
//                    + missing input bytes / bandwidth        (run times and bandwidths exponentially averaged)
// among those that live, do not drain and can hold the task (resources in all, labels, affinity). Pure: no clock, no
// sockets; the control process calls it from one loop and tells it the time. Several replicas may each have one of
// these and place at the same time; they share nothing but the heartbeats that all of them see.
//
// Its view is what heartbeats said, so it is old. Two things keep that harmless:
//   - what it sent to a node counts as that node's work until a heartbeat that has seen it arrives (tickets), or it
//     bounces, or its tasks should have ended by the estimate; otherwise everything would go to the one node that
//     looked idle. Why not until the heartbeat alone: between two of them a node ends many short tasks, and
//     charged with all of them it looks full (doc/simulator.md);
//   - it commits nothing. The node's LeaseQueue alone gives resources; a node that is fuller than it seemed refuses
//     (SpillOver::Take), sends its true load with the refusal, and the task is placed again: Bounced, then Place with
//     `refused` and `bounces`. After kMostBounces a placement is final: the node queues it whatever its load is.
//
// Invariants, after every call:
//   (1) a placement names a node that lives, does not drain and can hold the task as far as is known, and that has
//       not refused this request unless all have;
//   (2) counts of the placements of a request sum up to its count;
//   (3) what a node is charged with for tickets is the sum of its open tickets: zero when none is open.
//
// Cost. One call places a batch of any size. It looks at all nodes only while there are few; else at `sample` nodes
// drawn from those that can hold the class, the nodes that hold the inputs and the one that asks; at more (twice as
// many, up to kMostLooks) only while none has room at once. Why samples and not the best of all: it costs the same with
// ten nodes and with ten thousand, and replicas that all know the same best node would all choose it between two
// heartbeats (doc/simulator.md has the figures). The set of nodes that can hold a class is kept, and made
// anew only when a node comes, goes or changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "rules/cluster.h"
#include "rules/node_load.h"
#include "types/resources.h"
#include "types/status.h"

namespace manta::rules {

// What a node says about itself, every heartbeat interval and with every refusal.
struct Heartbeat {
  NodeId node = kNoNode;
  std::uint64_t incarnation = 0;
  std::uint64_t sequence = 0;  // grows within an incarnation; older ones are ignored
  Resources total;
  Resources available;                    // now; without what idle sticky leases hold, which they give up when asked
  std::map<std::string, double> backlog;  // NodeLoad::Backlogs
  std::vector<ClassLoad> classes;         // NodeLoad::Classes
  Labels labels;
  bool draining = false;
  std::vector<std::uint64_t> arrived;  // tickets of all schedulers that came since the last one, taken
  Resources reservable;                // what bundles of placement groups could get (rules/placement_groups.h)
  std::uint64_t fetched_bytes = 0;     // of large objects, to this node, since the last one …
  std::int64_t fetched_us = 0;         // … and how long that took, one after another

  MANTA_FIELDS(node, incarnation, sequence, total, available, backlog, classes, labels, draining, arrived, reservable,
               fetched_bytes, fetched_us)
};

enum class Spread : std::uint8_t { kNo, kYes };

struct TaskInput {
  std::uint64_t bytes = 0;
  std::vector<NodeId> holders;  // nodes that have it in their store

  MANTA_FIELDS(bytes, holders)
};

// `count` tasks of one class with the same inputs and wishes.
struct PlaceRequest {
  ClassId function = 0;
  Resources need;
  std::int64_t count = 1;
  NodeId from = kNoNode;  // who asks; it may be the answer, too
  std::vector<TaskInput> inputs;
  std::vector<LabelRule> labels;
  std::vector<LabelRule> prefer;  // as well, while a node for which they hold would take it without a long wait
  NodeId affinity = kNoNode;
  std::string node;            // affinity by name or number; whoever knows the names fills in the above
  bool soft_affinity = false;  // another node will do when that one is gone or cannot hold it
  Spread spread = Spread::kNo;
  std::vector<NodeId> refused;  // who bounced it
  std::uint32_t bounces = 0;

  MANTA_FIELDS(function, need, count, from, inputs, labels, prefer, affinity, node, soft_affinity, spread, refused,
               bounces)
};

struct Placement {
  NodeId node = kNoNode;
  std::int64_t count = 0;
  std::uint64_t ticket = 0;     // goes with the tasks; the node repeats it in Heartbeat::arrived
  double expected_wait_us = 0;  // of the last of them, without the fetching of inputs
  bool final = false;           // not to be refused for load

  MANTA_FIELDS(node, count, ticket, expected_wait_us, final)
};

class GlobalScheduler {
 public:
  struct Options {
    std::size_t sample = 8;  // 2 is enough against a herd, 8 finds room at 95% load; chosen with manta-sim
    double guess_run_us = NodeLoad::kGuessUs;
    double guess_bytes_per_us = 1'000;
  };
  static constexpr std::size_t kMostLooks = 64;
  static constexpr std::size_t kMostHolders = 16;  // of one input
  static constexpr std::uint32_t kMostBounces = 3;
  static constexpr std::int64_t kTicketUs = 2'000'000;   // the longest that a ticket is open …
  static constexpr std::int64_t kLeastTicketUs = 5'000;  // … and what is added for the way there

  // `replica` is in every ticket and seeds the samples.
  GlobalScheduler(std::uint32_t replica, const Options& options);
  explicit GlobalScheduler(std::uint32_t replica) : GlobalScheduler(replica, Options()) {}

  // ---- events ----

  // False if it is older than what is known.
  bool Heard(const Heartbeat& heartbeat);
  void NodeDown(NodeId node);
  // A transfer to `node` went at this speed.
  void Transferred(NodeId node, std::uint64_t bytes, std::int64_t us);
  // The placement was refused; `now` is the load that the node sent along. Place it again.
  void Bounced(std::uint64_t ticket, const Heartbeat& load);
  // The tasks will not arrive: cancelled, or their owner died.
  void Withdrawn(std::uint64_t ticket) { Close(ticket); }

  // ---- the decision ----

  // kInfeasible, with what was asked and what there is, if no node that lives can hold it.
  [[nodiscard]] Result<std::vector<Placement>> Place(const PlaceRequest& request, std::int64_t now_us);

  // ---- what is ----

  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t tasks = 0;
    std::uint64_t looks = 0;  // nodes whose wait was estimated
    std::uint64_t bounces = 0;
    std::uint64_t expired = 0;  // tickets that no heartbeat closed
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  [[nodiscard]] std::size_t nodes() const { return by_id_.size(); }
  [[nodiscard]] std::size_t open_tickets() const { return tickets_.size(); }
  // How long a task of the class would wait there, by what is known; nothing for an unknown node.
  [[nodiscard]] std::optional<double> WaitUs(NodeId node, ClassId function, const Resources& need);
  // Charged for open tickets, in units of the resource.
  [[nodiscard]] double Charged(NodeId node, const std::string& resource) const;

 private:
  using Amounts = std::vector<std::pair<std::uint32_t, double>>;  // number of the resource, units
  struct Node {
    NodeId id = kNoNode;
    bool lives = false;
    bool draining = false;
    std::uint64_t incarnation = 0;
    std::uint64_t sequence = 0;
    Resources total;
    Labels labels;
    // By number of the resource; may be shorter than numbers_.
    std::vector<double> has;
    std::vector<double> available;
    std::vector<double> backlog;
    std::vector<double> sent_units;  // open tickets
    std::vector<double> sent_work;   // the same, times their run time
    std::size_t open = 0;            // tickets
    std::vector<ClassLoad> classes;
    Average bytes_per_us;
    std::uint64_t looked = 0;  // by which search last
  };
  struct Ticket {
    std::uint32_t node = 0;
    double count = 0;
    double run_us = 0;
    const Amounts* need = nullptr;  // of a Shape, which stays
  };
  // Requests that the same nodes can hold.
  struct Shape {
    Amounts need;
    std::uint64_t version = 0;
    std::vector<std::uint32_t> able;  // places in nodes_
    std::size_t next = 0;             // for spreading: whose turn it is
  };
  struct Candidate {
    std::uint32_t node = 0;
    std::int64_t slots = 0;  // start at once
    double cost_us = 0;      // of the next task
    double wait_us = 0;      // of the last one given
    double first_wait = 0;   // of the first that does not start at once
    double step_us = 0;      // more for each that queues
    double fetch_us = 0;
    std::int64_t given = 0;
    std::uint32_t turn = 0;
  };

  [[nodiscard]] std::uint32_t Number(const std::string& resource);
  [[nodiscard]] Amounts Numbered(const Resources& resources);
  Shape& ShapeOf(const PlaceRequest& request);
  [[nodiscard]] double RunUs(const Node& node, ClassId function) const;
  [[nodiscard]] Candidate Look(std::uint32_t place, const PlaceRequest& request, const Shape& shape);
  [[nodiscard]] std::vector<Candidate> Candidates(const PlaceRequest& request, Shape* shape,
                                                  const std::vector<std::uint32_t>& excluded);
  void Share(const PlaceRequest& request, std::vector<Candidate>* candidates);
  [[nodiscard]] std::vector<Candidate> SpreadOut(const PlaceRequest& request, Shape* shape,
                                                 const std::vector<std::uint32_t>& excluded);
  std::uint64_t Open(const Candidate& candidate, const PlaceRequest& request, const Shape& shape, std::int64_t now_us);
  void Close(std::uint64_t ticket);
  void DropTickets(std::uint32_t place);
  void Expire(std::int64_t now_us);
  [[nodiscard]] Status Infeasible(const PlaceRequest& request) const;
  // Nothing: nobody is preferred, or those who are have no room.
  [[nodiscard]] std::optional<std::vector<Placement>> PlacePreferred(const PlaceRequest& request, std::int64_t now_us);
  std::uint64_t Random();

  const Options options_;
  const std::uint32_t replica_;
  std::unordered_map<std::string, std::uint32_t> numbers_;  // of resources, by name; counted from 0
  std::vector<Node> nodes_;
  std::unordered_map<NodeId, std::uint32_t> by_id_;  // places in nodes_, of those that live
  std::vector<std::uint32_t> vacant_;
  std::map<std::pair<Resources, std::vector<LabelRule>>, Shape> shapes_;
  std::unordered_map<ClassId, Average> run_us_;  // over all nodes
  Average bytes_per_us_;
  std::unordered_map<std::uint64_t, Ticket> tickets_;
  using Due = std::pair<std::int64_t, std::uint64_t>;  // when, ticket
  std::priority_queue<Due, std::vector<Due>, std::greater<>> expiry_;
  std::uint64_t version_ = 1;  // of the set of nodes
  std::uint64_t searches_ = 0;
  std::uint64_t last_ticket_ = 0;
  std::uint64_t random_ = 0;
  Counts counts_;
};

}  // namespace manta::rules
