// KeptActors is what the head has of detached actors, so that they outlive the nodes that they are at home on: how each
// was created, which node is its home, and its journal, in the control store (table kActors: "kept/<id>", "home/<id>",
// "journal/<id>/<number>"). When a home is lost, or leaves, the oldest node that is connected becomes the next one.
//
// Invariants: (1) a home is told to others when it has said that it is one (ActorAdopted); until then they wait.
//             (2) only the present home changes the journal: what another one sends is refused. A home that was lost
//                 has been declared dead before, so that nothing of it is under way; one that leaves sees to that
//                 itself.
//             (3) parts of a journal are answered when they are durable; a home has one of them under way at a time.
//
// Threads: the head's loop. Lifetime: within that of the tables.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/tables.h"
#include "wire/frame.h"
#include "wire/kept_messages.h"

namespace manta::control {

class KeptActors {
 public:
  struct Ways {
    // To a node, if it is connected.
    std::function<void(NodeNumber node, std::string frame)> send;
    // The nodes that may become homes, the oldest first.
    std::function<std::vector<NodeNumber>()> candidates;
    // It is at home there now.
    std::function<void(const Id& actor, NodeNumber home)> moved;
  };
  // Sends a whole frame to whoever asked, if it is still there.
  using Reply = std::function<void(std::string frame)>;

  KeptActors(Tables& tables, Ways ways) : tables_(tables), ways_(std::move(ways)) {}
  ~KeptActors() { *alive_ = false; }
  KeptActors(const KeptActors&) = delete;
  KeptActors& operator=(const KeptActors&) = delete;

  // Reads what was there. Those whose home does not live wait for one.
  void Open(const std::function<bool(NodeNumber)>& lives, std::function<void(const Status&)> done);
  // False: this is no message about kept actors.
  bool OnFrame(NodeNumber from, const wire::Frame& frame, const Reply& reply);
  // It is heard for the first time since it connected: what it did not say it has, it does not have.
  void NodeUp(NodeNumber node);
  void NodeGone(NodeNumber node, const std::string& why);
  // The cluster ends, and they with it.
  void ForgetAll();

  [[nodiscard]] bool Has(const Id& actor) const { return kept_.contains(actor); }
  // Calls back with its home, once it has one. kActorDied: no node can be it now. kCorrupt: none ever can, as
  // what is kept of it cannot be read, which was said on stderr. Not kept: kNotFound.
  void WhenHome(const Id& actor, std::function<void(const Result<NodeNumber>& home)> done);

 private:
  struct Kept {
    NodeNumber home = 0;
    bool adopted = false;  // the home has said so
    std::uint32_t epoch = 0;
    std::string why;              // it has no home
    NodeNumber leaver = 0;        // the home that it had, and has again if nobody else can be it
    std::set<NodeNumber> unable;  // to be its home
    bool damaged = false;         // nobody can
    std::vector<std::function<void(const Result<NodeNumber>&)>> waiting;
  };

  void Keep(NodeNumber from, const wire::KeepActor& message, std::uint64_t call, const Reply& reply);
  void Journal(NodeNumber from, const wire::KeepJournal& message, std::uint64_t call, const Reply& reply);
  void Adopted(NodeNumber from, const wire::ActorAdopted& message);
  void Leave(NodeNumber from, const Id& actor);
  void Forget(const Id& actor);
  void TellHome(const Id& actor, std::uint64_t call, const Reply& reply);
  // Finds homes for those that have none.
  void Appoint();
  void HandOver(const Id& actor, NodeNumber home);
  // This record of it cannot be read.
  void Damaged(const Id& actor, const std::string& key, const Status& why);
  void Answer(Kept& kept, const Result<NodeNumber>& home);
  void SaveHome(const Id& actor, std::function<void(const Status&)> done);
  void Write(std::string key, std::optional<std::string> value, std::function<void(const Status&)> done);
  // Of all keys with the prefix, below `before` if that is not empty.
  void Erase(const std::string& prefix, const std::string& before);
  void ScanAll(const std::string& prefix, std::function<void(const Entry&)> each,
               std::function<void(const Status&)> done);

  Tables& tables_;
  const Ways ways_;
  std::unordered_map<Id, Kept> kept_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
