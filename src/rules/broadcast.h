// Broadcast decides who fetches an object from whom, so that one that many nodes want goes down a tree instead of
// N times from one node. One of these serves any number of objects; whoever keeps the directory of an object's copies
// drives it (the object's home, or control). Pure: events in, actions out; no clock, no sockets.
//
// A receiver asks once (Want), is told from whom to fetch (Fetch), and says Done or Failed. While it receives it is a
// source already: it relays chunks as they come (Options::pipelined), so depth costs a chunk's time, not an object's.
//
// Invariants, after every call:
//   (1) a source serves at most `fan_out` receivers of an object at once;
//   (2) a node fetches an object at most once at a time, and from a node that has it or itself gets it; who feeds whom
//       has no cycle;
//   (3) a node that wants an object and may get it from somebody with a place left is not kept waiting;
//   (4) a Want of a node that waits, receives or has it starts no second transfer (simultaneous requests share one).
//
// Whom: of those with a place left, holders before relays, then the least deep, then the least busy: the source's two
// streams fill a tree of fan-out two, level by level. Why not a chain, which would use each link once: the whole chain
// goes at the speed of its slowest member, and a death in it re-plans half of the receivers (doc/simulator.md).
//
// A source that dies or fails: its receivers keep what they have and get another source; those below them do not notice
// unless their feeder has to wait. With no source left at all they are told that the object is lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <unordered_map>
#include <variant>
#include <vector>

#include "rules/cluster.h"
#include "types/id.h"

namespace manta::rules {

// Tell `to` to fetch the object from `from`; it goes on with the chunks it lacks.
struct FetchFrom {
  Id object;
  NodeId to = kNoNode;
  NodeId from = kNoNode;
  std::uint64_t transfer = 0;  // Done and Failed name it
};
// Tell `to` to stop; another FetchFrom, or CopyLost, may follow.
struct StopFetch {
  Id object;
  NodeId to = kNoNode;
  std::uint64_t transfer = 0;
};
// Nobody has it any more; `to` waits in vain.
struct CopyLost {
  Id object;
  NodeId to = kNoNode;
};
using BroadcastAction = std::variant<FetchFrom, StopFetch, CopyLost>;
using BroadcastActions = std::vector<BroadcastAction>;

class Broadcast {
 public:
  struct Options {
    std::size_t fan_out = 2;
    bool pipelined = true;
  };
  Broadcast() = default;
  explicit Broadcast(const Options& options) : options_(options) {}

  // ---- events; each appends what is to be done now ----

  // `node` has a whole copy (it was made there, or came outside of this).
  void Has(const Id& object, NodeId node, BroadcastActions* actions);
  // If nobody has a copy it is lost at once: ask after it was made.
  void Want(const Id& object, NodeId node, BroadcastActions* actions);
  // `node` no longer wants it.
  void Forgo(const Id& object, NodeId node, BroadcastActions* actions);
  // The receiver has all of it: it is a holder now. An old transfer's number is ignored.
  void Done(const Id& object, std::uint64_t transfer, BroadcastActions* actions);
  // The receiver could not go on with this source: it gets another one if there is one.
  void Failed(const Id& object, std::uint64_t transfer, BroadcastActions* actions);
  // The copy at `node` was evicted.
  void Dropped(const Id& object, NodeId node, BroadcastActions* actions);
  void NodeDown(NodeId node, BroadcastActions* actions);
  // The object was freed: everybody stops.
  void Freed(const Id& object, BroadcastActions* actions);

  // ---- what is ----

  struct Receiver {
    NodeId from = kNoNode;  // kNoNode: waits for a place
    std::uint64_t transfer = 0;
    std::set<NodeId> failed;  // sources it could not use; tried again only when there is no other
  };
  struct Object {
    std::set<NodeId> holders;
    std::map<NodeId, Receiver> receivers;  // that wait or receive
    std::deque<NodeId> waiting;            // those without a source, in order of asking
    std::map<NodeId, std::size_t> serving;
  };
  [[nodiscard]] const Object* Find(const Id& object) const;
  [[nodiscard]] std::size_t objects() const { return objects_.size(); }
  // Links between `node` and a holder.
  [[nodiscard]] static std::size_t Depth(const Object& object, NodeId node);

 private:
  void Settle(const Id& id, Object* object, BroadcastActions* actions);
  [[nodiscard]] NodeId Source(const Object& object, NodeId to) const;
  // The receiver waits again.
  void Detach(Object* object, NodeId to, bool first);
  void Remove(const Id& id, Object* object, NodeId node, BroadcastActions* actions);
  void Finish(const Id& id);  // forgets it when nothing is known of it

  Options options_;
  std::unordered_map<Id, Object> objects_;
  std::uint64_t last_transfer_ = 0;
};

}  // namespace manta::rules
