#include "rules/broadcast.h"

#include <algorithm>
#include <tuple>

namespace manta::rules {

void Broadcast::Has(const Id& id, NodeId node, BroadcastActions* actions) {
  Object& object = objects_[id];
  if (!object.holders.insert(node).second) return;
  const auto it = object.receivers.find(node);
  if (it != object.receivers.end()) {
    if (it->second.from != kNoNode) actions->push_back(StopFetch{id, node, it->second.transfer});
    Detach(&object, node, false);
    std::erase(object.waiting, node);
    object.receivers.erase(node);
  }
  Settle(id, &object, actions);
}

void Broadcast::Want(const Id& id, NodeId node, BroadcastActions* actions) {
  Object& object = objects_[id];
  if (object.holders.contains(node) || object.receivers.contains(node)) return;
  object.receivers[node];
  object.waiting.push_back(node);
  Settle(id, &object, actions);
}

void Broadcast::Forgo(const Id& id, NodeId node, BroadcastActions* actions) {
  const auto it = objects_.find(id);
  if (it == objects_.end() || !it->second.receivers.contains(node)) return;
  const Receiver& receiver = it->second.receivers[node];
  if (receiver.from != kNoNode) actions->push_back(StopFetch{id, node, receiver.transfer});
  Remove(id, &it->second, node, actions);
}

void Broadcast::Done(const Id& id, std::uint64_t transfer, BroadcastActions* actions) {
  const auto it = objects_.find(id);
  if (it == objects_.end()) return;
  Object& object = it->second;
  const auto receiver = std::find_if(object.receivers.begin(), object.receivers.end(),
                                     [&](const auto& entry) { return entry.second.transfer == transfer; });
  if (receiver == object.receivers.end() || receiver->second.from == kNoNode) return;
  const NodeId node = receiver->first;
  Detach(&object, node, false);
  std::erase(object.waiting, node);
  object.receivers.erase(node);
  object.holders.insert(node);
  Settle(id, &object, actions);
}

void Broadcast::Failed(const Id& id, std::uint64_t transfer, BroadcastActions* actions) {
  const auto it = objects_.find(id);
  if (it == objects_.end()) return;
  Object& object = it->second;
  const auto receiver = std::find_if(object.receivers.begin(), object.receivers.end(),
                                     [&](const auto& entry) { return entry.second.transfer == transfer; });
  if (receiver == object.receivers.end() || receiver->second.from == kNoNode) return;
  receiver->second.failed.insert(receiver->second.from);
  Detach(&object, receiver->first, true);
  Settle(id, &object, actions);
}

void Broadcast::Dropped(const Id& id, NodeId node, BroadcastActions* actions) {
  const auto it = objects_.find(id);
  if (it != objects_.end() && it->second.holders.contains(node)) Remove(id, &it->second, node, actions);
}

void Broadcast::NodeDown(NodeId node, BroadcastActions* actions) {
  std::vector<Id> affected;
  for (const auto& [id, object] : objects_) {
    if (object.holders.contains(node) || object.receivers.contains(node)) affected.push_back(id);
  }
  std::sort(affected.begin(), affected.end());  // not the order of a hash
  for (const Id& id : affected) Remove(id, &objects_[id], node, actions);
}

void Broadcast::Freed(const Id& id, BroadcastActions* actions) {
  const auto it = objects_.find(id);
  if (it == objects_.end()) return;
  for (const auto& [node, receiver] : it->second.receivers) {
    if (receiver.from != kNoNode) actions->push_back(StopFetch{id, node, receiver.transfer});
    actions->push_back(CopyLost{id, node});
  }
  objects_.erase(it);
}

// ---- inside ----

void Broadcast::Detach(Object* object, NodeId to, bool first) {
  Receiver& receiver = object->receivers[to];
  if (receiver.from == kNoNode) return;
  const auto served = object->serving.find(receiver.from);
  if (--served->second == 0) object->serving.erase(served);
  receiver.from = kNoNode;
  receiver.transfer = 0;
  // Who had begun goes before who has nothing: others may depend on it already.
  if (first) {
    object->waiting.push_front(to);
  } else {
    object->waiting.push_back(to);
  }
}

void Broadcast::Remove(const Id& id, Object* object, NodeId node, BroadcastActions* actions) {
  object->holders.erase(node);
  if (object->receivers.contains(node)) {
    Detach(object, node, false);
    std::erase(object->waiting, node);
    object->receivers.erase(node);
  }
  std::vector<NodeId> fed;
  for (const auto& [to, receiver] : object->receivers) {
    if (receiver.from == node) fed.push_back(to);
  }
  for (auto it = fed.rbegin(); it != fed.rend(); ++it) {
    actions->push_back(StopFetch{id, *it, object->receivers[*it].transfer});
    Detach(object, *it, true);
  }
  for (auto& [to, receiver] : object->receivers) receiver.failed.erase(node);
  Settle(id, object, actions);
}

void Broadcast::Settle(const Id& id, Object* object, BroadcastActions* actions) {
  if (object->holders.empty()) {
    // Relays have only parts of it: whatever they still lack may be nowhere.
    std::map<NodeId, Receiver> receivers;
    receivers.swap(object->receivers);
    for (const auto& [node, receiver] : receivers) {
      if (receiver.from != kNoNode) actions->push_back(StopFetch{id, node, receiver.transfer});
      actions->push_back(CopyLost{id, node});
    }
    object->waiting.clear();
    object->serving.clear();
    Finish(id);
    return;
  }
  // One more source may make room for several; each that is served is a further source itself.
  for (bool again = true; again;) {
    again = false;
    for (auto it = object->waiting.begin(); it != object->waiting.end(); ++it) {
      const NodeId to = *it;
      const NodeId from = Source(*object, to);
      if (from == kNoNode) continue;
      object->waiting.erase(it);
      Receiver& receiver = object->receivers[to];
      receiver.from = from;
      receiver.transfer = ++last_transfer_;
      ++object->serving[from];
      actions->push_back(FetchFrom{id, to, from, receiver.transfer});
      again = true;
      break;
    }
  }
}

NodeId Broadcast::Source(const Object& object, NodeId to) const {
  const Receiver& receiver = object.receivers.at(to);
  // (failed before, relay, depth, busy, node): the least.
  std::tuple<bool, bool, std::size_t, std::size_t, NodeId> best;
  NodeId found = kNoNode;
  const auto offer = [&](NodeId node, bool relay) {
    const auto served = object.serving.find(node);
    const std::size_t busy = served == object.serving.end() ? 0 : served->second;
    if (busy >= options_.fan_out) return;
    const std::tuple mark(receiver.failed.contains(node), relay, relay ? Depth(object, node) : 0, busy, node);
    if (found != kNoNode && mark >= best) return;
    best = mark;
    found = node;
  };
  for (const NodeId node : object.holders) offer(node, false);
  if (!options_.pipelined) return found;
  if (found != kNoNode && !std::get<0>(best)) return found;
  for (const auto& [node, other] : object.receivers) {
    if (node == to || other.from == kNoNode) continue;
    // Up from there to a holder: not through `to`, and not through somebody who waits himself.
    NodeId up = node;
    while (up != to && up != kNoNode && !object.holders.contains(up)) up = object.receivers.at(up).from;
    if (up != to && up != kNoNode) offer(node, true);
  }
  return found;
}

std::size_t Broadcast::Depth(const Object& object, NodeId node) {
  std::size_t depth = 0;
  while (!object.holders.contains(node)) {
    const auto it = object.receivers.find(node);
    if (it == object.receivers.end() || it->second.from == kNoNode) break;
    node = it->second.from;
    ++depth;
  }
  return depth;
}

const Broadcast::Object* Broadcast::Find(const Id& id) const {
  const auto it = objects_.find(id);
  return it == objects_.end() ? nullptr : &it->second;
}

void Broadcast::Finish(const Id& id) {
  const auto it = objects_.find(id);
  if (it != objects_.end() && it->second.holders.empty() && it->second.receivers.empty()) objects_.erase(it);
}

}  // namespace manta::rules
