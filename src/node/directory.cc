#include "node/directory.h"

namespace manta::node {

using rules::Holder;

void Directory::Expect(Peer& peer, const wire::Expect& message) {
  for (const Id& id : message.objects) {
    Own(id, peer.process);
    HoldOne(id, peer.process);
  }
}

void Directory::Publish(Peer& peer, const wire::Publish& message) {
  Object& object = Own(message.object, peer.process);
  if (!message.expected) HoldOne(message.object, peer.process);
  if (object.owner != peer.process) return;  // another process's: not the sender's to say what it is
  object.outcome = message.outcome;
  object.outcome.ready = true;
  references_.SetContained(message.object, message.outcome.contained);
  Tell(message.object, object);
}

void Directory::Wait(Peer& peer, const wire::WaitObjects& message) {
  for (std::size_t i = 0; i < message.objects.size(); ++i) {
    const Id& id = message.objects[i];
    const ProcessId owner = i < message.owners.size() ? message.owners[i] : kNoProcess;
    const auto it = objects_.find(id);
    if (it != objects_.end() && it->second.outcome.ready) {
      peer.connection->Send(wire::ObjectReady{id, it->second.outcome});
      continue;
    }
    if (it == objects_.end() && peers_.Find(owner) == nullptr) {
      Object lost;
      lost.waiters.insert(peer.process);
      Lose(id, lost, "its owner is gone, and nobody else knows it");
      continue;
    }
    Object& object = it == objects_.end() ? Own(id, owner) : it->second;
    object.waiters.insert(peer.process);
    waits_[peer.process].insert(id);
  }
}

void Directory::Hold(Peer& peer, const wire::Hold& message) {
  const ProcessId holder = message.holder == kNoProcess ? peer.process : message.holder;
  if (peers_.Find(holder) == nullptr) return;  // it died meanwhile
  for (const Id& id : message.objects) HoldOne(id, holder);
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
      if (it->second.outcome.ready) continue;
      Lose(id, it->second, Cat("its owner (", who, ") died before it was ready"));
      if (!references_.Known(id)) objects_.erase(it);
    }
  }
  gathering_.deaths.push_back(process);
}

void Directory::BeginLettingGo() { applying_ = std::exchange(gathering_, {}); }

void Directory::ApplyLettingGo(const OnUnheld& unheld) {
  const LettingGo batch = std::exchange(applying_, {});
  for (const auto& [key, count] : batch.drops) references_.Drop(key.first, Holder::Process(key.second), count);
  for (const ProcessId process : batch.deaths) references_.ProcessDied(process);
  for (const Id& container : batch.emptied) {
    if (references_.Known(container)) references_.SetContained(container, {});
  }
  const std::vector<Id> ids = references_.TakeUnheld();
  if (ids.empty()) return;
  std::vector<Place> places;
  places.reserve(ids.size());
  for (const Id& id : ids) {
    const auto it = objects_.find(id);
    if (it == objects_.end()) {
      places.emplace_back();
      continue;
    }
    places.push_back(it->second.outcome.place);
    if (!it->second.waiters.empty()) Lose(id, it->second, "everybody let go of it before it was ready");
    Disown(id, it->second.owner);
    objects_.erase(it);
  }
  unheld(ids, places);
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
    peers_.Send(waiter, wire::ObjectReady{id, object.outcome});
  }
}

void Directory::Lose(const Id& id, Object& object, const std::string& why) {
  object.outcome = {};
  object.outcome.ready = true;
  object.outcome.failure = Failure{Code::kLost, Cat("object ", ToString(id), " is lost: ", why), {}, {}};
  Tell(id, object);
}

}  // namespace manta::node
