// Directory knows every object whose Ref has left its owner: what became of it, who waits for it, who
// holds it. It frees an object when nobody does.
//
// Letting go is delayed. Drops, deaths and emptied containers are gathered, and applied only after
// the loop has read everything that was sent before they were (see Order in wire/messages.h). Holds
// are counted (rules/references.h), so one that comes meanwhile, from the process or on its behalf, is not
// ended by a Drop that was meant for another.
//
// Objects of owners on other nodes are at home there: that node's Directory says what becomes of them and frees
// them. Here their holders are counted all the same; the first hold and the last drop go to the home
// (node/far_objects.h), as does the first question. In turn, a process number AllOf(node) stands for another node among
// the holders and waiters of what is at home here.
//
// When an owner dies, what is ready stays. What is not, and what is lost later, can be made again by the task that the
// owner ran (owner/orphans.cc): who called that is asked, then who else holds the object. If it was made on another
// node, that one is its home from then on, for those who hear of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "node/far_objects.h"
#include "node/peers.h"
#include "rules/references.h"
#include "types/id.h"
#include "types/place.h"
#include "wire/messages.h"

namespace manta::node {

class Directory {
 public:
  // `unheld`: objects or actors that nobody holds any more; of objects also where they are.
  using OnUnheld = std::function<void(const std::vector<Id>& ids, const std::vector<Place>& places)>;

  explicit Directory(Peers& peers) : peers_(peers) {}
  // Before anything is known.
  void SetNodes(FarNodes& nodes) {
    nodes_ = &nodes;
    far_.SetNodes(nodes);
  }
  void StopSharing() { SetNodes(none_); }

  void Expect(Peer& peer, const wire::Expect& message);
  void Publish(Peer& peer, const wire::Publish& message);
  void Wait(Peer& peer, const wire::WaitObjects& message);
  // Nobody has its value any more: its owner is to make it again, and who waits from now on waits for that.
  void Lost(const wire::ObjectLost& message);
  // The sender was asked to have it made again (Orphaned), and cannot.
  void Unmade(Peer& peer, const wire::Unmade& message);
  void Hold(Peer& peer, const wire::Hold& message);
  void Drop(Peer& peer, const wire::Drop& message);
  void HoldFar(Peer& peer, std::uint64_t call);

  // From other nodes.
  void FarHold(NodeNumber from, const wire::FarHold& message);
  void FarDrop(NodeNumber from, const wire::FarDrop& message);
  void FarSync(NodeNumber from, const wire::FarSync& message);
  void FarSynced(NodeNumber from, const wire::FarSynced& message) { far_.OnSynced(from, message.sequence); }
  void FarWait(NodeNumber from, const wire::FarWait& message);
  void FarObjectReady(NodeNumber from, const wire::FarObjectReady& message);
  void FarObjectLost(NodeNumber /*from*/, const wire::FarObjectLost& message) { Lost(message.lost); }
  // All it held is let go; what is at home there is lost to those who wait for it.
  void NodeDown(NodeNumber node, const std::string& why);

  void HoldOne(const Id& id, ProcessId process);  // once more
  // A process of this node was given a hold of something at home on another (`owner`), which counts it already.
  void GiveTo(const Id& id, ProcessId owner, ProcessId process);
  // Calls back when all holds so far are known where the objects are at home; perhaps at once.
  void WhenHeld(std::function<void()> done) { far_.Barrier(std::move(done)); }
  // From now on `container` (an actor) holds these, until Empty. `owners` of each; none at all: all are of this node.
  void SetContained(const Id& container, const std::vector<Id>& ids, const std::vector<ProcessId>& owners);
  // These, too. `owners` of each.
  void AddContained(const Id& container, const std::vector<Id>& ids, const std::vector<ProcessId>& owners);
  void Empty(const Id& container);
  // The objects it owned and did not publish are lost; what it held is let go.
  void ProcessDied(ProcessId process, const std::string& who);
  // Of what the process owns, that which others hold and another node's store has; by that node.
  [[nodiscard]] std::map<NodeNumber, std::vector<Id>> StoredElsewhere(ProcessId process) const;

  // Is there something to let go? Then drain the loop between Begin and Apply.
  [[nodiscard]] bool HasLettingGo() const { return !gathering_.empty() || references_.HasSuspects(); }
  // Sends what concerns other nodes. At the end of a round.
  void Flush() { far_.Flush(); }
  void BeginLettingGo();
  void ApplyLettingGo(const OnUnheld& unheld);

  // May somebody still ask for it?
  [[nodiscard]] bool Known(const Id& id) const { return objects_.contains(id) || references_.Known(id); }
  // Processes, containers and nodes; 0: it has never left its owner.
  [[nodiscard]] std::size_t Holders(const Id& id) const { return references_.Holders(id); }
  // Does the process own or hold anything that others know of?
  [[nodiscard]] bool Involved(ProcessId process) const;

 private:
  struct Object {
    ProcessId owner = kNoProcess;
    wire::Outcome outcome;
    std::set<ProcessId> waiters;
    wire::Maker maker;
    bool inherited = false;  // its value is of an owner that died; the new one has not said yet what it is
  };
  // An object without an owner that somebody may have made again.
  struct Orphan {
    std::uint64_t ask = 0;
    std::string why;            // it is needed
    std::set<ProcessId> asked;  // who have not refused
    bool holders = false;       // these are asked; before that, who called its maker
    bool differs = false;       // its maker was run again, and did something else
  };
  struct HashPair {
    std::size_t operator()(const std::pair<Id, ProcessId>& key) const noexcept {
      return std::hash<Id>()(key.first) ^ Mix(key.second);
    }
  };
  struct LettingGo {
    std::unordered_map<std::pair<Id, ProcessId>, std::uint32_t, HashPair> drops;  // how many
    std::vector<ProcessId> deaths;
    std::vector<Id> emptied;
    struct Refusal {
      Id object;
      ProcessId process = kNoProcess;
      std::string why;
      std::uint64_t ask = 0;
      bool differs = false;
    };
    std::vector<Refusal> refusals;  // not let go of, but to be looked at when everything is read
    std::vector<Id> stale;          // made again, and so here twice …
    std::vector<Place> stale_at;    // … where the older ones are

    [[nodiscard]] bool empty() const {
      return drops.empty() && deaths.empty() && emptied.empty() && refusals.empty() && stale.empty();
    }
  };

  Object& Own(const Id& id, ProcessId owner);
  void Disown(const Id& id, ProcessId owner);
  void Tell(const Id& id, Object& object);
  void Lose(const Id& id, Object& object, const std::string& why, bool differs = false);
  // Asks others to have it made again. False: nobody can.
  bool Remake(const Id& id, Object& object, const std::string& why, ProcessId dead);
  void AskHolders(const Id& id, Orphan& orphan, ProcessId but);
  void Refused(const LettingGo::Refusal& refusal);
  void HoldBy(const Id& id, ProcessId owner, const rules::Holder& holder);
  void AddWaiter(const Id& id, ProcessId owner, ProcessId waiter);

  Peers& peers_;
  NoFarNodes none_;
  FarNodes* nodes_ = &none_;
  FarObjects far_{none_};
  rules::References references_;
  std::unordered_map<Id, Object> objects_;
  std::unordered_map<ProcessId, std::unordered_set<Id>> owned_;  // entries of objects_, by owner
  std::unordered_map<ProcessId, std::unordered_set<Id>> waits_;  // ditto, by waiter
  std::unordered_map<Id, Orphan> orphans_;                       // of objects_
  std::uint64_t last_ask_ = 0;
  LettingGo gathering_;
  LettingGo applying_;
};

}  // namespace manta::node
