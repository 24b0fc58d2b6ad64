// ActorNameTable is the head's table of named actors: rules::ActorNames, kept in the control store (table kActors, key
// "name/<length of the namespace>/<namespace>/<name>", a wire::NamedActor), and what nodes ask about them.
//
// Threads: the head's loop. Lifetime: within that of the tables.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "control/tables.h"
#include "rules/actor_names.h"
#include "wire/cluster_messages.h"
#include "wire/frame.h"

namespace manta::control {

class ActorNameTable {
 public:
  explicit ActorNameTable(Tables& tables) : tables_(tables) {}
  ~ActorNameTable() { *alive_ = false; }
  ActorNameTable(const ActorNameTable&) = delete;
  ActorNameTable& operator=(const ActorNameTable&) = delete;

  // Reads what was there; the names of actors that do not live are freed.
  void Open(std::function<bool(const wire::NamedActor&)> lives, std::function<void(const Status&)> done);

  // Sends a whole frame to whoever asked, if it is still there.
  using Reply = std::function<void(std::string frame)>;
  // False: this is no message about names.
  bool OnFrame(NodeNumber from, const wire::Frame& frame, const Reply& reply);
  // Names of its actors are free, but for those that `stays` says will have another home.
  void NodeGone(NodeNumber node, const std::function<bool(const Id& actor)>& stays);
  // The actor is at home there now.
  void Moved(const Id& actor, NodeNumber home);
  // Whose name it is; nobody's: an empty one.
  [[nodiscard]] Id ActorOf(const wire::FindName& message) const;
  // The answer to it.
  [[nodiscard]] std::string Find(const wire::FindName& message, std::uint64_t call) const;

 private:
  void Claim(NodeNumber from, const wire::ClaimName& message, std::uint64_t call, const Reply& reply);
  void Save(const rules::ActorNames::Name& name, std::function<void(const Status&)> done);

  Tables& tables_;
  rules::ActorNames names_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace manta::control
