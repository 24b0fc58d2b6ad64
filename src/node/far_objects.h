// FarObjects speaks to other nodes about objects that are at home there and held here. To an object's home this node is
// one holder, however many processes and values of this node hold it (node/directory.h counts those).
//
// How often the home counts us is counted here (`given`): one by our own FarHold, and one by each FarHold that
// another node sent there on our behalf. All are given back when nobody here holds the object any more. So it does not
// matter in which order the home hears of holds and drops, nor we of holds that others made for us.
//
// Order. A hold must be known at its home before whatever kept the object alive until then lets go. Two things let go:
//   a reply to a process of another node (it ends the borrowing of arguments): the worker waits for a Barrier first;
//   a drop of ours, of something in which the held object was found: drops wait for a Barrier themselves.
// A Barrier asks each home with holds on their way whether it has got them; mostly there is none, and it is free.
//
// Threads: the loop's.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "node/far_nodes.h"
#include "types/id.h"
#include "wire/cluster_messages.h"

namespace manta::node {

// The process number that stands for all processes of a node.
[[nodiscard]] constexpr ProcessId AllOf(NodeNumber node) { return OnNode(node, 0); }
[[nodiscard]] constexpr bool IsNode(ProcessId process) { return process != kNoProcess && LocalOf(process) == 0; }

class FarObjects {
 public:
  explicit FarObjects(FarNodes& nodes) : nodes_(&nodes) {}
  void SetNodes(FarNodes& nodes) { nodes_ = &nodes; }

  // Is what this process owns at home on another node?
  [[nodiscard]] bool IsFar(ProcessId owner) const { return owner != kNoProcess && NodeOf(owner) != nodes_->self(); }
  // Somebody here holds it: the home is told, if it does not count us yet.
  void Held(const Id& id, ProcessId owner);
  // The home counts us once more, on another node's word.
  void Given(const Id& id, ProcessId owner);
  // A process of another node was given a hold of each by one of ours: tells its node and the homes.
  void HandOver(const std::vector<Id>& objects, const std::vector<ProcessId>& owners, ProcessId receiver);
  // Nobody here holds it any more. False: it is not at home on another node.
  bool Unheld(const Id& id);
  // What the last calls gathered is sent.
  void Flush();

  // Calls back when all that Held and HandOver said before is known; perhaps at once.
  void Barrier(std::function<void()> done);
  void OnSynced(NodeNumber from, std::uint64_t sequence);
  // Nobody is told anything about its objects any more.
  void NodeDown(NodeNumber node);

  [[nodiscard]] std::size_t size() const { return held_.size(); }

 private:
  struct Far {
    NodeNumber home = 0;
    std::uint32_t given = 0;
  };
  // Holds sent to a node, and how many of them it is known to have; as numbers in one sequence.
  struct Progress {
    std::uint64_t sent = 0;
    std::uint64_t asked = 0;
    std::uint64_t synced = 0;
  };
  using Drops = std::map<NodeNumber, wire::FarDrop>;  // by home
  struct Waiting {
    std::vector<std::pair<NodeNumber, std::uint64_t>> until;
    Drops drops;
    std::function<void()> done;
  };

  void Add(NodeNumber to, const Id& id, ProcessId owner, ProcessId holder);
  void SendHolds();
  void Wait(Waiting waiting);
  void Finish(const Waiting& waiting);
  [[nodiscard]] bool Reached(const Waiting& waiting) const;
  void Settle();

  FarNodes* nodes_;
  std::unordered_map<Id, Far> held_;
  std::map<std::pair<NodeNumber, ProcessId>, wire::FarHold> holds_;  // gathered, by receiver and holder
  Drops drops_;                                                      // gathered
  std::map<NodeNumber, Progress> progress_;
  std::list<Waiting> waiting_;
};

}  // namespace manta::node
