#include "node/far_objects.h"

#include <algorithm>

namespace manta::node {

void FarObjects::Add(NodeNumber to, const Id& id, ProcessId owner, ProcessId holder) {
  wire::FarHold& message = holds_[{to, holder}];
  message.holder = holder;
  message.objects.push_back(id);
  message.owners.push_back(owner);
}

void FarObjects::Held(const Id& id, ProcessId owner) {
  const auto [it, fresh] = held_.try_emplace(id, Far{NodeOf(owner), 0});
  if (it->second.given > 0) return;
  it->second.given = 1;
  Add(it->second.home, id, owner, AllOf(nodes_->self()));
}

void FarObjects::Given(const Id& id, ProcessId owner) {
  ++held_.try_emplace(id, Far{NodeOf(owner), 0}).first->second.given;
}

void FarObjects::HandOver(const std::vector<Id>& objects, const std::vector<ProcessId>& owners, ProcessId receiver) {
  const NodeNumber to = NodeOf(receiver);
  for (std::size_t i = 0; i < objects.size(); ++i) {
    const ProcessId owner = i < owners.size() ? owners[i] : kNoProcess;
    const NodeNumber home = owner == kNoProcess ? nodes_->self() : NodeOf(owner);
    if (home != nodes_->self() && home != to) Add(home, objects[i], owner, AllOf(to));
    Add(to, objects[i], owner == kNoProcess ? OnNode(nodes_->self(), 1) : owner, receiver);
  }
}

bool FarObjects::Unheld(const Id& id) {
  const auto it = held_.find(id);
  if (it == held_.end()) return false;
  wire::FarDrop& message = drops_[it->second.home];
  message.objects.push_back(id);
  message.counts.push_back(it->second.given);
  held_.erase(it);
  return true;
}

void FarObjects::SendHolds() {
  for (auto& [key, message] : std::exchange(holds_, {})) {
    if (!nodes_->Knows(key.first)) continue;  // it is gone, and so is what was at home there
    ++progress_[key.first].sent;
    nodes_->Send(key.first, message);
  }
}

void FarObjects::Flush() {
  SendHolds();
  if (!drops_.empty()) Wait(Waiting{{}, std::exchange(drops_, {}), {}});
}

bool FarObjects::Reached(const Waiting& waiting) const {
  return std::all_of(waiting.until.begin(), waiting.until.end(), [&](const auto& until) {
    const auto it = progress_.find(until.first);
    return it == progress_.end() || it->second.synced >= until.second;
  });
}

void FarObjects::Barrier(std::function<void()> done) {
  SendHolds();
  Wait(Waiting{{}, {}, std::move(done)});
}

void FarObjects::Wait(Waiting waiting) {
  for (auto& [node, progress] : progress_) {
    if (progress.synced >= progress.sent) continue;
    waiting.until.emplace_back(node, progress.sent);
    if (progress.asked >= progress.sent) continue;
    progress.asked = progress.sent;
    nodes_->Send(node, wire::FarSync{progress.sent});
  }
  if (waiting.until.empty()) return Finish(waiting);
  waiting_.push_back(std::move(waiting));
}

void FarObjects::Finish(const Waiting& waiting) {
  for (const auto& [home, message] : waiting.drops) {
    if (nodes_->Knows(home)) nodes_->Send(home, message);
  }
  if (waiting.done) waiting.done();
}

void FarObjects::OnSynced(NodeNumber from, std::uint64_t sequence) {
  const auto it = progress_.find(from);
  if (it == progress_.end()) return;
  it->second.synced = std::clamp(sequence, it->second.synced, it->second.asked);
  Settle();
}

void FarObjects::Settle() {
  std::list<Waiting> reached;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto next = std::next(it);
    if (Reached(*it)) reached.splice(reached.end(), waiting_, it);
    it = next;
  }
  for (const Waiting& waiting : reached) Finish(waiting);
}

void FarObjects::NodeDown(NodeNumber node) {
  std::erase_if(held_, [&](const auto& entry) { return entry.second.home == node; });
  std::erase_if(holds_, [&](const auto& entry) { return entry.first.first == node; });
  // It has forgotten our holds; should it come back, it must not hear of drops of those.
  drops_.erase(node);
  for (Waiting& waiting : waiting_) waiting.drops.erase(node);
  progress_.erase(node);
  Settle();
}

}  // namespace manta::node
