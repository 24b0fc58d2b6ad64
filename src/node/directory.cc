#include "node/directory.h"

#include <algorithm>

namespace manta::node {

using rules::Holder;

void Directory::Expect(Peer& peer, const wire::Expect& message) {
  for (const Id& id : message.objects) {
    Object& object = Own(id, peer.process);
    if (object.owner == peer.process) object.maker = message.maker;
    HoldOne(id, peer.process);
  }
}

void Directory::Publish(Peer& peer, const wire::Publish& message) {
  Object& object = Own(message.object, peer.process);
  if (!message.expected) HoldOne(message.object, peer.process);
  if (object.owner != peer.process) return;  // another process's: not the sender's to say what it is
  if (!message.expected) object.maker = message.maker;
  if (std::exchange(object.inherited, false) && !object.outcome.place.nowhere() &&
      !(object.outcome.place == message.outcome.place)) {
    gathering_.stale.push_back(message.object);
    gathering_.stale_at.push_back(object.outcome.place);
  }
  object.outcome = message.outcome;
  object.outcome.ready = true;
  const wire::Outcome& outcome = message.outcome;
  SetContained(message.object, outcome.contained, outcome.contained_owners);
  Tell(message.object, object);
}

void Directory::SetContained(const Id& container, const std::vector<Id>& ids, const std::vector<ProcessId>& owners) {
  references_.SetContained(container, ids);
  for (std::size_t i = 0; i < std::min(ids.size(), owners.size()); ++i) {
    if (far_.IsFar(owners[i])) far_.Held(ids[i], owners[i]);
  }
}

void Directory::AddContained(const Id& container, const std::vector<Id>& ids, const std::vector<ProcessId>& owners) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    references_.Hold(ids[i], rules::Holder::Container(container));
    if (far_.IsFar(owners[i])) far_.Held(ids[i], owners[i]);
  }
}

void Directory::GiveTo(const Id& id, ProcessId owner, ProcessId process) {
  far_.Given(id, owner);
  HoldOne(id, process);
  if (peers_.Find(process) == nullptr) gathering_.deaths.push_back(process);
}

void Directory::Wait(Peer& peer, const wire::WaitObjects& message) {
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    AddWaiter(message.objects[i], i < message.owners.size() ? message.owners[i] : kNoProcess, peer.process);
  }
}

void Directory::AddWaiter(const Id& id, ProcessId owner, ProcessId waiter) {
  const auto it = objects_.find(id);
  if (it != objects_.end() && it->second.outcome.ready) {
    if (IsNode(waiter)) {
      nodes_->Send(NodeOf(waiter), wire::FarObjectReady{id, it->second.outcome});
    } else {
      peers_.Send(waiter, wire::ObjectReady{id, it->second.outcome});
    }
    return;
  }
  if (it == objects_.end()) {
    const bool far = far_.IsFar(owner) && !IsNode(waiter);
    const bool known = far ? nodes_->Knows(NodeOf(owner)) : peers_.Find(owner) != nullptr;
    if (!known) {
      Object lost;
      lost.waiters.insert(waiter);
      const std::string why = far ? Cat("its owner's node ", NodeOf(owner), " is gone")
                                  : std::string("its owner is gone, and nobody else knows it");
      return Lose(id, lost, why);
    }
    if (far) nodes_->Send(NodeOf(owner), wire::FarWait{{id}, {owner}});
  } else if (far_.IsFar(owner) && orphans_.contains(id) && nodes_->Knows(NodeOf(owner))) {
    // It was made again, on another node.
    Own(id, owner);
    nodes_->Send(NodeOf(owner), wire::FarWait{{id}, {owner}});
  }
  Object& object = it == objects_.end() ? Own(id, owner) : it->second;
  object.waiters.insert(waiter);
  waits_[waiter].insert(id);
}

void Directory::Lost(const wire::ObjectLost& message) {
  if (far_.IsFar(message.owner)) {
    // Of a node that is gone: WaitObjects will say so.
    if (nodes_->Knows(NodeOf(message.owner))) nodes_->Send(NodeOf(message.owner), wire::FarObjectLost{message});
    return;
  }
  const auto it = objects_.find(message.object);
  if (it != objects_.end() && it->second.outcome.ready) {
    // Found again or made again meanwhile: that will be told to who asks.
    if (!it->second.outcome.failure.ok() || !(it->second.outcome.place == message.place)) return;
    if (peers_.Find(it->second.owner) == nullptr) {
      if (Remake(message.object, it->second, message.why, kNoProcess)) return;
      return Lose(message.object, it->second,
                  Cat(message.why, "; its owner, who could have made it again, is gone, too"));
    }
    it->second.outcome = {};
  }
  // Not the owner that the sender knew, if another one has made it since.
  peers_.Send(it != objects_.end() && it->second.owner != kNoProcess ? it->second.owner : message.owner, message);
}

void Directory::Hold(Peer& peer, const wire::Hold& message) {
  const ProcessId holder = message.holder == kNoProcess ? peer.process : message.holder;
  if (far_.IsFar(holder)) {
    if (!nodes_->Knows(NodeOf(holder))) return;
    for (std::size_t i = 0; i < message.objects.size(); ++i) {
      const ProcessId owner = i < message.owners.size() ? message.owners[i] : kNoProcess;
      if (!far_.IsFar(owner)) HoldOne(message.objects[i], AllOf(NodeOf(holder)));
    }
    return far_.HandOver(message.objects, message.owners, holder);
  }
  if (peers_.Find(holder) == nullptr) return;  // it died meanwhile
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    HoldBy(message.objects[i], i < message.owners.size() ? message.owners[i] : kNoProcess, Holder::Process(holder));
  }
}

void Directory::HoldBy(const Id& id, ProcessId owner, const Holder& holder) {
  references_.Hold(id, holder);
  if (far_.IsFar(owner)) far_.Held(id, owner);
}

void Directory::HoldFar(Peer& peer, std::uint64_t call) {
  far_.Barrier([this, process = peer.process, call] { peers_.Send(process, wire::Done{}, call); });
}

// ---- from other nodes ----

void Directory::FarHold(NodeNumber from, const wire::FarHold& message) {
  if (IsNode(message.holder)) {
    // Somebody may speak for a third node that has died meanwhile.
    if (NodeOf(message.holder) == nodes_->self()) return;
    if (NodeOf(message.holder) != from && !nodes_->Knows(NodeOf(message.holder))) return;
    for (const Id& id : message.objects) HoldOne(id, message.holder);
    return;
  }
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    const ProcessId owner = i < message.owners.size() ? message.owners[i] : kNoProcess;
    if (far_.IsFar(owner)) far_.Given(message.objects[i], owner);
    HoldOne(message.objects[i], message.holder);
  }
  // If it died meanwhile, what it was given goes as if it died now.
  if (peers_.Find(message.holder) == nullptr) gathering_.deaths.push_back(message.holder);
}

void Directory::FarDrop(NodeNumber from, const wire::FarDrop& message) {
  const std::size_t count = std::min(message.objects.size(), message.counts.size());
  for (std::size_t i = 0; i < count; ++i) gathering_.drops[{message.objects[i], AllOf(from)}] += message.counts[i];
}

void Directory::FarSync(NodeNumber from, const wire::FarSync& message) {
  nodes_->Send(from, wire::FarSynced{message.sequence});
}

void Directory::FarWait(NodeNumber from, const wire::FarWait& message) {
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    AddWaiter(message.objects[i], i < message.owners.size() ? message.owners[i] : kNoProcess, AllOf(from));
  }
}

void Directory::FarObjectReady(NodeNumber from, const wire::FarObjectReady& message) {
  const auto it = objects_.find(message.object);
  if (it == objects_.end() || NodeOf(it->second.owner) != from) return;
  it->second.outcome = message.outcome;
  it->second.outcome.ready = true;
  Tell(message.object, it->second);
  // Not kept: the home may learn better, and whoever asked knows it now.
  Disown(message.object, it->second.owner);
  objects_.erase(it);
}

void Directory::NodeDown(NodeNumber node, const std::string& why) {
  std::vector<ProcessId> owners;
  for (const auto& [owner, ids] : owned_) {
    if (far_.IsFar(owner) && NodeOf(owner) == node) owners.push_back(owner);
  }
  for (const ProcessId owner : owners) {
    const auto entry = owned_.extract(owner);
    for (const Id& id : entry.mapped()) {
      const auto it = objects_.find(id);
      if (it == objects_.end()) continue;
      it->second.owner = kNoProcess;
      Lose(id, it->second, Cat("node ", node, ", where its owner was, is gone: ", why));
      objects_.erase(it);
    }
  }
  far_.NodeDown(node);
  ProcessDied(AllOf(node), Cat("node ", node));
}

std::map<NodeNumber, std::vector<Id>> Directory::StoredElsewhere(ProcessId process) const {
  std::map<NodeNumber, std::vector<Id>> stored;
  const auto owned = owned_.find(process);
  if (owned == owned_.end()) return stored;
  for (const Id& id : owned->second) {
    const auto it = objects_.find(id);
    if (it == objects_.end() || !it->second.outcome.ready || it->second.outcome.place.nowhere()) continue;
    const NodeNumber node = it->second.outcome.place.node;
    if (node != nodes_->self()) stored[node].push_back(id);
  }
  return stored;
}

void Directory::Drop(Peer& peer, const wire::Drop& message) {
  if (message.counts.size() != message.objects.size()) {
    peer.connection->Close(Status(Code::kCorrupt, "a Drop has another number of counts than of objects"));
    return;
  }
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    gathering_.drops[{message.objects[i], peer.process}] += message.counts[i];
  }
}

void Directory::HoldOne(const Id& id, ProcessId process) { references_.Hold(id, Holder::Process(process)); }

void Directory::Empty(const Id& container) { gathering_.emptied.push_back(container); }

void Directory::ProcessDied(ProcessId process, const std::string& who) {
  if (const auto node = waits_.extract(process); !node.empty()) {
    for (const Id& id : node.mapped()) {
      const auto it = objects_.find(id);
      if (it == objects_.end()) continue;
      it->second.waiters.erase(process);
      if (it->second.waiters.empty() && !references_.Known(id)) {
        Disown(id, it->second.owner);
        objects_.erase(it);
      }
    }
  }
  if (const auto node = owned_.extract(process); !node.empty()) {
    for (const Id& id : node.mapped()) {
      const auto it = objects_.find(id);
      if (it == objects_.end()) continue;
      it->second.owner = kNoProcess;
      it->second.inherited = false;
      if (it->second.outcome.ready) continue;
      const std::string why = Cat("its owner (", who, ") died before it was ready");
      if (Remake(id, it->second, why, process)) continue;
      Lose(id, it->second, why);
      if (!references_.Known(id)) objects_.erase(it);
    }
  }
  for (const auto& [id, orphan] : orphans_) {
    if (orphan.asked.contains(process))
      gathering_.refusals.push_back({id, process, Cat(who, " died"), orphan.ask, false});
  }
  gathering_.deaths.push_back(process);
}

bool Directory::Remake(const Id& id, Object& object, const std::string& why, ProcessId dead) {
  const std::size_t holders = references_.Holders(id);
  const bool needed = holders > (references_.Holds(id, Holder::Process(dead)) ? 1U : 0U) || !object.waiters.empty();
  if (!needed) return false;
  Orphan orphan;
  orphan.why = why;
  orphan.ask = ++last_ask_;
  if (object.maker.owner != dead && peers_.Find(object.maker.owner) != nullptr) {
    orphan.asked.insert(object.maker.owner);
    peers_.Send(object.maker.owner, wire::Orphaned{id, object.maker.task, why, orphan.ask});
  } else {
    AskHolders(id, orphan, dead);
  }
  if (orphan.asked.empty()) return false;
  object.outcome = {};
  orphans_[id] = std::move(orphan);
  return true;
}

void Directory::AskHolders(const Id& id, Orphan& orphan, ProcessId but) {
  orphan.holders = true;
  for (const ProcessId holder : references_.ProcessesThatHold(id)) {
    if (holder == but || peers_.Find(holder) == nullptr) continue;
    orphan.asked.insert(holder);
    peers_.Send(holder, wire::Orphaned{id, {}, orphan.why, orphan.ask});
  }
}

void Directory::Unmade(Peer& peer, const wire::Unmade& message) {
  gathering_.refusals.push_back({message.object, peer.process, message.why, message.ask, message.differs});
}

void Directory::Refused(const LettingGo::Refusal& refusal) {
  const auto& [id, process, why, ask, differs] = refusal;
  const auto it = orphans_.find(id);
  if (it == orphans_.end() || it->second.ask != ask || it->second.asked.erase(process) == 0) return;
  Orphan& orphan = it->second;
  orphan.differs = orphan.differs || differs;
  const auto object = objects_.find(id);
  if (why.empty() && object != objects_.end() && peers_.Find(process) != nullptr) {  // the task can run now
    orphan.asked.insert(process);
    peers_.Send(process, wire::Orphaned{id, orphan.holders ? Id() : object->second.maker.task, orphan.why, orphan.ask});
    return;
  }
  if (!orphan.holders) {
    orphan.why += Cat("; ", why);
    AskHolders(id, orphan, process);
  }
  if (!orphan.asked.empty()) return;
  const Orphan lost = std::move(orphan);
  orphans_.erase(it);
  if (object != objects_.end()) Lose(id, object->second, lost.why, lost.differs);
}

void Directory::BeginLettingGo() { applying_ = std::exchange(gathering_, {}); }

void Directory::ApplyLettingGo(const OnUnheld& unheld) {
  const LettingGo batch = std::exchange(applying_, {});
  for (const auto& [key, count] : batch.drops) references_.Drop(key.first, Holder::Process(key.second), count);
  for (const ProcessId process : batch.deaths) references_.ProcessDied(process);
  for (const Id& container : batch.emptied) {
    if (references_.Known(container)) references_.SetContained(container, {});
  }
  for (const LettingGo::Refusal& refusal : batch.refusals) Refused(refusal);
  if (!batch.stale.empty()) unheld(batch.stale, batch.stale_at);
  const std::vector<Id> ids = references_.TakeUnheld();
  if (ids.empty()) return;
  std::unordered_map<ProcessId, wire::Unheld> told;  // owners of stored values keep what they could be rebuilt from
  std::vector<Id> freed;
  std::vector<Place> places;
  freed.reserve(ids.size());
  places.reserve(ids.size());
  for (const Id& id : ids) {
    const auto it = objects_.find(id);
    if (far_.Unheld(id)) continue;  // its home frees it; who waits here is still told by the home
    freed.push_back(id);
    if (it == objects_.end()) {
      places.emplace_back();
      continue;
    }
    places.push_back(it->second.outcome.place);
    if (!places.back().nowhere() || !it->second.outcome.ready) told[it->second.owner].objects.push_back(id);
    if (!it->second.waiters.empty()) Lose(id, it->second, "everybody let go of it before it was ready");
    Disown(id, it->second.owner);
    orphans_.erase(id);
    objects_.erase(it);
  }
  unheld(freed, places);
  for (const auto& [owner, message] : told) peers_.Send(owner, message);
}

bool Directory::Involved(ProcessId process) const {
  return owned_.contains(process) || references_.HoldsAny(Holder::Process(process));
}

Directory::Object& Directory::Own(const Id& id, ProcessId owner) {
  Object& object = objects_[id];
  // The first to announce it owns it, unless that one is gone: then a task that ran again does.
  if (object.owner == kNoProcess) {
    object.owner = owner;
    owned_[owner].insert(id);
    orphans_.erase(id);
    object.inherited = object.outcome.ready;
    if (object.outcome.failure.code == Code::kLost) object.outcome = {};
  }
  return object;
}

void Directory::Disown(const Id& id, ProcessId owner) {
  const auto it = owned_.find(owner);
  if (it == owned_.end()) return;
  it->second.erase(id);
  if (it->second.empty()) owned_.erase(it);
}

void Directory::Tell(const Id& id, Object& object) {
  for (const ProcessId waiter : std::exchange(object.waiters, {})) {
    if (const auto it = waits_.find(waiter); it != waits_.end()) {
      it->second.erase(id);
      if (it->second.empty()) waits_.erase(it);
    }
    if (IsNode(waiter)) {
      nodes_->Send(NodeOf(waiter), wire::FarObjectReady{id, object.outcome});
    } else {
      peers_.Send(waiter, wire::ObjectReady{id, object.outcome});
    }
  }
}

void Directory::Lose(const Id& id, Object& object, const std::string& why, bool differs) {
  object.outcome = {};
  object.outcome.ready = true;
  object.outcome.failure = Failure{Code::kLost,
                                   Cat("object ", ToString(id), " is lost: ", why),
                                   differs ? std::string(kNondeterminism) : std::string(),
                                   {}};
  Tell(id, object);
}

}  // namespace manta::node
