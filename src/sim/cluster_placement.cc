// Placement in the simulated cluster: what a node tells and sends up, what the global schedulers answer, and how inputs
// travel.
#include <algorithm>

#include "sim/cluster.h"

namespace manta::sim {

Resources Cluster::Available(const Node& node) const {
  Resources out = node.leases.free();
  for (std::size_t c = 0; c < node.idle.size(); ++c) {
    if (node.idle[c] == 0) continue;
    for (const auto& [name, amount] : model_.classes[c].need.amounts()) {
      out.Set(name, out.Get(name) + amount * node.idle[c]);
    }
  }
  return out;
}

rules::Heartbeat Cluster::Beat(std::uint32_t index) {
  Node& node = *nodes_[index];
  rules::Heartbeat beat;
  beat.node = index + 1;
  beat.incarnation = 1;
  beat.sequence = ++node.sequence;
  beat.total = node.leases.total();
  beat.available = Available(node);
  beat.backlog = node.load.Backlogs();
  beat.classes = node.load.Classes();
  return beat;
}

// CPUs free or idle less those wanted: below zero when something waits.
std::int64_t Cluster::RoomLeft(const Node& node) const {
  std::int64_t room = node.leases.free().Get("CPU") / kUnit;
  for (std::size_t c = 0; c < node.idle.size(); ++c) room += node.idle[c] - node.load.queued(c);
  return room;
}

bool Cluster::BeatIsDue(const Node& node) const {
  if (model_.eager_us <= 0 || now_ns_ - node.beat_ns >= Ns(model_.heartbeat_us)) return true;
  const std::int64_t change = RoomLeft(node) - node.told_room;
  return std::max(change, -change) * 8 >= node.leases.total().Get("CPU") / kUnit;
}

void Cluster::SendHeartbeat(std::uint32_t index) {
  Node& node = *nodes_[index];
  ++out_.beats;
  node.beat_ns = now_ns_;
  node.told_room = RoomLeft(node);
  rules::Heartbeat beat = Beat(index);
  beat.arrived.swap(node.arrived);
  for (Replica& replica : replicas_) replica.rule->Heard(beat);
  // What waits is looked at again: the first guess of a run time may have been wrong.
  for (const std::uint32_t queue : node.own) {
    if (queues_[queue].pending > 0) ConsiderSpilling(queue);
  }
}

void Cluster::ConsiderSpilling(std::uint32_t index) {
  if (!model_.spill) return;
  Queue& queue = queues_[index];
  const Node& node = *nodes_[queue.node];
  rules::SpillOver::Asked asked;
  asked.waiting = queue.pending;
  const auto verdict = spill_over_.Decide(node.load, queue.kind, Available(node), asked);
  // Owners tell their daemon when the backlog has grown by a quarter, not about each task.
  queue.ask_again = verdict.keep + verdict.keep / 4 + 8;
  if (verdict.up > 0) SendUp(index, verdict.up);
}

// The last in line go.
void Cluster::SendUp(std::uint32_t index, std::int64_t count) {
  const std::uint32_t parcel = NewParcel();
  Queue& queue = queues_[index];
  Parcel& made = parcels_[parcel];
  made.owner = made.node = made.holder = queue.node;
  made.kind = queue.kind;
  made.count = count;
  queue.pending -= count;
  nodes_[queue.node]->load.Queued(queue.kind, -count);
  while (count > 0) {
    Together& back = queue.fifo.Back();
    const std::int64_t some = std::min(back.count, count);
    made.tasks.push_back({back.submitted_ns, some});
    back.count -= some;
    count -= some;
    if (back.count == 0) queue.fifo.PopBack();
  }
  std::reverse(made.tasks.begin(), made.tasks.end());
  Ask(parcel);
}

void Cluster::Ask(std::uint32_t parcel) { At(now_ns_ + Ns(model_.network.latency_us), kAtScheduler, parcel); }

void Cluster::AtScheduler(std::uint32_t index) {
  Replica& replica = ReplicaOf(parcels_[index]);
  replica.busy_until_ns = std::max(replica.busy_until_ns, now_ns_) + Ns(model_.decide_us);
  replica.busy_ns += Ns(model_.decide_us);
  rules::PlaceRequest request;
  std::vector<Together> tasks;
  {
    Parcel& parcel = parcels_[index];
    const TaskClass& task = model_.classes[parcel.kind];
    request.function = parcel.kind + 1;
    request.need = task.need;
    request.count = parcel.count;
    request.from = parcel.owner + 1;
    if (task.input_bytes > 0 && model_.locality) request.inputs.push_back({task.input_bytes, {parcel.holder + 1}});
    request.refused = parcel.refused;
    request.bounces = static_cast<std::uint32_t>(parcel.refused.size());
    tasks.swap(parcel.tasks);
  }
  // The request carries the load of the node that asks.
  if (model_.fresh_request) replica.rule->Heard(Beat(parcels_[index].owner));
  auto placed = replica.rule->Place(request, NowUs());
  if (!placed.ok()) {
    out_.infeasible += static_cast<std::uint64_t>(request.count);
    free_parcels_.push_back(index);
    return;
  }
  for (std::size_t i = 0; i < placed->size(); ++i) {
    const rules::Placement& placement = (*placed)[i];
    std::uint32_t part = index;
    if (i + 1 < placed->size()) {
      part = NewParcel();
      Parcel& copy = parcels_[part];
      const Parcel& whole = parcels_[index];
      copy.owner = whole.owner;
      copy.kind = whole.kind;
      copy.holder = whole.holder;
      copy.refused = whole.refused;
    }
    Parcel& parcel = parcels_[part];
    parcel.tasks.clear();
    Split(&tasks, placement.count, &parcel.tasks);
    parcel.count = placement.count;
    parcel.node = placement.node - 1;
    parcel.placement = placement;
    parcel.placed = true;
    // The answer to the owner, and from there to the node.
    At(replica.busy_until_ns + 2 * Ns(model_.network.latency_us), kAtNode, part);
  }
}

void Cluster::AtNode(std::uint32_t index) {
  Parcel& parcel = parcels_[index];
  Node& node = *nodes_[parcel.node];
  if (!spill_over_.Take(node.load, parcel.kind, Available(node), parcel.placement.expected_wait_us,
                        parcel.placement.final, false)) {
    ++out_.bounced;
    ReplicaOf(parcel).rule->Bounced(parcel.placement.ticket, Beat(parcel.node));
    parcel.refused.push_back(parcel.node + 1);
    Ask(index);
    return;
  }
  if (parcel.placement.final) ++out_.finals;
  node.arrived.push_back(parcel.placement.ticket);
  Replica& replica = ReplicaOf(parcel);
  const std::uint32_t at = parcel.node;
  const std::uint64_t ticket = parcel.placement.ticket;
  Fetch(index);
  if (!model_.answer_load) return;
  rules::Heartbeat beat = Beat(at);
  beat.arrived.push_back(ticket);
  replica.rule->Heard(beat);
}

// Store to store: one stream at a time in and out of a node, in order of asking.
void Cluster::Fetch(std::uint32_t index) {
  const Parcel& parcel = parcels_[index];
  const std::uint64_t bytes = model_.classes[parcel.kind].input_bytes;
  if (bytes == 0 || parcel.holder == parcel.node) {
    Deliver(index);
    return;
  }
  Node& to = *nodes_[parcel.node];
  Node& from = *nodes_[parcel.holder];
  const std::int64_t start = std::max({now_ns_ + 2 * Ns(model_.network.latency_us), to.in_until_ns, from.out_until_ns});
  const std::int64_t end = start + Ns(static_cast<double>(bytes) / model_.network.bytes_per_us);
  to.in_until_ns = end;
  from.out_until_ns = end;
  out_.fetched_gb += static_cast<double>(bytes) / 1e9;
  for (Replica& replica : replicas_) {
    replica.rule->Transferred(parcel.node + 1, bytes, std::max<std::int64_t>((end - now_ns_) / 1'000, 1));
  }
  At(end, kFetched, index);
}

void Cluster::Deliver(std::uint32_t index) {
  const std::uint32_t queue = QueueFor(parcels_[index].node, parcels_[index].owner, parcels_[index].kind);
  std::vector<Together> tasks;
  tasks.swap(parcels_[index].tasks);
  // All of them first: what the queue does about its backlog it does once.
  for (std::size_t i = 0; i + 1 < tasks.size(); ++i) {
    queues_[queue].fifo.PushBack(tasks[i]);
    queues_[queue].pending += tasks[i].count;
    nodes_[queues_[queue].node]->load.Queued(queues_[queue].kind, tasks[i].count);
  }
  if (!tasks.empty()) Enqueue(queue, tasks.back());
  tasks.clear();
  parcels_[index].tasks.swap(tasks);  // keeps its memory for the next
  free_parcels_.push_back(index);
}

std::uint32_t Cluster::QueueFor(std::uint32_t at, std::uint32_t owner, std::uint32_t kind) {
  Node& node = *nodes_[at];
  if (owner == at) return node.own[kind];
  const std::uint64_t key = (static_cast<std::uint64_t>(owner) << 32) | kind;
  const auto [it, made] = node.far.try_emplace(key, 0);
  if (!made) return it->second;
  std::uint32_t index = 0;
  if (free_queues_.empty()) {
    index = static_cast<std::uint32_t>(queues_.size());
    queues_.emplace_back();
  } else {
    index = free_queues_.back();
    free_queues_.pop_back();
  }
  it->second = index;
  Queue& queue = queues_[index];
  queue.node = at;
  queue.owner = owner;
  queue.kind = kind;
  return index;
}

void Cluster::Retire(std::uint32_t index) {
  const Queue& queue = queues_[index];
  if (queue.owner == queue.node || queue.pending > 0 || queue.leases > 0 || !queue.asked.empty()) return;
  const std::uint64_t key = (static_cast<std::uint64_t>(queue.owner) << 32) | queue.kind;
  if (nodes_[queue.node]->far.erase(key) > 0) free_queues_.push_back(index);
}

std::uint32_t Cluster::NewParcel() {
  if (free_parcels_.empty()) {
    parcels_.emplace_back();
    return static_cast<std::uint32_t>(parcels_.size() - 1);
  }
  const std::uint32_t index = free_parcels_.back();
  free_parcels_.pop_back();
  Parcel& parcel = parcels_[index];
  parcel.tasks.clear();
  parcel.refused.clear();
  parcel.placed = false;
  return index;
}

void Cluster::Split(std::vector<Together>* from, std::int64_t count, std::vector<Together>* to) {
  while (count > 0 && !from->empty()) {
    Together& back = from->back();
    const std::int64_t some = std::min(back.count, count);
    to->push_back({back.submitted_ns, some});
    back.count -= some;
    count -= some;
    if (back.count == 0) from->pop_back();
  }
  std::reverse(to->begin(), to->end());
}

}  // namespace manta::sim
