// ActorNames decides whose a name is, for the whole cluster: the first who claims it has it until it says that its
// actor is dead, or until its node is. Pure bookkeeping; only the head's loop calls it.
//
// Invariant: a name belongs to at most one actor of a namespace.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "rules/cluster.h"
#include "types/id.h"

namespace manta::rules {

class ActorNames {
 public:
  using Name = std::pair<std::string, std::string>;  // namespace, name
  struct Bearer {
    Id actor;
    NodeId home = kNoNode;
    std::string class_name;  // for messages
  };

  // Whose it is now. A claim that is made again, because its answer was lost, is the same claim.
  [[nodiscard]] const Bearer& Claim(const Name& name, const Bearer& bearer) {
    return names_.try_emplace(name, bearer).first->second;
  }
  // nullptr: nobody's.
  [[nodiscard]] const Bearer* Find(const Name& name) const {
    const auto it = names_.find(name);
    return it == names_.end() ? nullptr : &it->second;
  }
  // False: it is not this actor's (any more).
  bool Release(const Name& name, const Id& actor) {
    const auto it = names_.find(name);
    if (it == names_.end() || it->second.actor != actor) return false;
    names_.erase(it);
    return true;
  }
  // The names that are free by it. `stays(actor)`: that one will have another home.
  template <typename F>
  std::vector<Name> NodeGone(NodeId home, F stays) {
    std::vector<Name> freed;
    for (auto it = names_.begin(); it != names_.end();) {
      if (it->second.home != home || stays(it->second.actor)) {
        ++it;
        continue;
      }
      freed.push_back(it->first);
      it = names_.erase(it);
    }
    return freed;
  }
  std::vector<Name> NodeGone(NodeId home) {
    return NodeGone(home, [](const Id&) { return false; });
  }
  // The actor has another home. Its names.
  std::vector<Name> Moved(const Id& actor, NodeId home) {
    std::vector<Name> moved;
    for (auto& [name, bearer] : names_) {
      if (bearer.actor != actor) continue;
      bearer.home = home;
      moved.push_back(name);
    }
    return moved;
  }

  [[nodiscard]] const std::map<Name, Bearer>& all() const { return names_; }

 private:
  std::map<Name, Bearer> names_;
};

}  // namespace manta::rules
