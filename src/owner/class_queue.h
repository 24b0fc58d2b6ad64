// ClassQueue is an owner's side of one stream of calls: all its tasks of one resource shape, place and
// priority, or its calls of one actor. Calls go into a ring in shared memory that leased workers claim from; what
// does not fit waits in a backlog. Guarded by EntryTable::mutex.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "far/far_link.h"
#include "manta/options.h"
#include "owner/entry.h"
#include "rules/cluster.h"
#include "shm/lane.h"
#include "shm/queue.h"
#include "types/failure.h"
#include "types/resources.h"
#include "types/strategy.h"
#include "wire/dial.h"
#include "wire/messages.h"

namespace manta::internal {

// Task options, interned: what Submit needs without looking at strings.
struct Plan {
  TaskOptions options;
  Resources need;
  owner::ClassQueue* queue = nullptr;     // of the session below
  std::atomic<std::uint32_t> session{0};  // stored after `queue`
};

}  // namespace manta::internal

namespace manta::owner {

using internal::ActorEntry;
using internal::Plan;

// What a lane has in addition when its worker is on another node (far.cc). The lane's memory then is this process's
// alone: a place to note what the worker says of itself.
struct FarLane {
  std::shared_ptr<far::Link> link;   // none until it is connected
  std::unique_ptr<wire::Dial> dial;  // the far thread's
  std::uint64_t serial = 0;          // lanes are used again; what comes late for an earlier use is dropped
  shm::QueueWorker claims;           // on behalf of the worker
  std::uint32_t sent = 0;            // calls without an answer
  rules::Average call_us;            // how long the worker runs one, as it says itself
  std::int64_t heard_us = 0;         // when it last answered, or was first asked
  bool took_back = false;            // since then we have asked for what it has not begun
  bool bye = false;                  // wants no more calls
  bool spent = false;                // was lent for one call, and has had it
  bool closed = false;               // its connection is read to the end
  bool over = false;                 // the daemon has said so
  Failure lost;                      // and why, if it did not end well …
  std::uint64_t died_in = 0;         // … and in which call
};

// One worker's way to answer, see shm/lane.h. Lanes belong to the owner and are used again.
struct Lane {
  std::uint32_t index = 0;      // as it stands in claim words
  std::uint64_t offset = 0;     // in the arena
  std::uint64_t request = 0;    // the lease it was sent with; 0: free, or an actor's
  bool active = false;          // somebody may write to it
  bool cancelled = false;       // the request was withdrawn
  std::uint64_t timed_out = 0;  // the task its worker is being killed for …
  Failure timeout_failure;      // … and how that will be told
  ProcessId worker = kNoProcess;
  std::uint32_t pid = 0;
  ClassQueue* queue = nullptr;
  shm::LaneReader reader;
  std::unique_ptr<FarLane> far;
  int broken = 0;         // connections in a row that did not come about; an actor's
  bool sent_far = false;  // of an actor: what is claimed was sent over a connection
};

struct ClassQueue {
  Resources need;
  Strategy strategy;
  std::int32_t priority = 0;
  std::uint64_t offset = 0;  // of the ring in the arena; 0: not made yet
  shm::QueueOwner ring;
  struct Waiting {
    Entry* entry = nullptr;
    std::uint32_t generation = 0;  // it may have been taken back and be another's by now
  };
  std::deque<Waiting> backlog;
  std::vector<Lane*> lanes;      // granted
  std::uint32_t far_lanes = 0;   // of these, to other nodes and connected
  std::uint32_t requests = 0;    // leases asked for and not granted
  std::uint32_t most_lanes = 1;  // more would find no CPU
  Failure refused;               // the daemon said it can never run these
  std::int64_t refused_us = 0;   // when one more worker was last refused to those that serve it; 0: never
  // Of calls whose large arguments are on other nodes (Owner::Located): who holds those of the latest one, and how
  // much.
  std::vector<NodeNumber> input_nodes;
  std::vector<std::uint64_t> input_bytes;
  std::uint64_t need_hash = 0;  // 0: not made yet

  // Displaced: a worker has it and its slot was used again.
  struct Away {
    Entry* entry = nullptr;
    std::uint32_t generation = 0;
    std::uint32_t lane = 0;
  };
  std::vector<Away> away;

  rules::Average call_us;       // how long those that were timed ran
  std::uint32_t unwatched = 0;  // pushes to go before we look again whether workers sleep

  // For noticing that nothing moves.
  std::uint64_t last_head = 0;
  std::int64_t head_since_us = 0;  // when the ring's head moved last
  std::int64_t balanced_us = 0;    // when something was last done about it
  bool asked_stalled = false;      // the waiting request says so
  bool timed = false;              // has had tasks with a timeout

  ActorEntry* actor = nullptr;  // whose calls these are, if an actor's

  [[nodiscard]] std::uint64_t waiting() { return (offset == 0 ? 0 : ring.backlog()) + backlog.size(); }
};

}  // namespace manta::owner

namespace manta::internal {

// An actor as this process sees it. Guarded by EntryTable::mutex, but for `refs`.
struct ActorEntry {
  std::atomic<std::uint32_t> refs{1};
  std::atomic<std::uint32_t> weak{0};  // of these, handles that do not keep the actor alive
  Id id;
  wire::ActorOptions options;
  std::uint32_t session = 0;
  NodeNumber home = 0;      // of the cluster: who decides about it
  std::uint32_t holds = 0;  // the daemon counts for us, to be dropped with the last handle
  bool attached = false;
  std::uint32_t restarts = 0;  // that we were told of since
  bool killed = false;         // by us, for good
  wire::ActorPhase phase = wire::ActorPhase::kStarting;
  Failure failure;  // once dead
  Failure crash;    // the last, of one that came back
  std::unique_ptr<owner::ClassQueue> queue;
  owner::Lane* lane = nullptr;
  std::deque<Entry*> order;  // ordered actors: calls not yet in the ring, first one parked or blocked
  // What was said of it while answers were still to be read from its connection, in order.
  std::vector<wire::ActorState> unread;

  // As the owner of an object would be named.
  [[nodiscard]] ProcessId owner() const { return OnNode(home, 0); }
};

// How often a call that died with its actor is sent again: as the call says, else as the actor does.
inline std::int64_t CallRetries(const ActorEntry& actor, const Plan* plan) {
  return plan != nullptr && plan->options.call_retries ? *plan->options.call_retries : actor.options.max_call_retries;
}

}  // namespace manta::internal
