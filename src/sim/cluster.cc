#include "sim/cluster.h"

#include <algorithm>
#include <cmath>

#include "types/text.h"

namespace manta::sim {
namespace {

std::uint64_t Fold(std::uint64_t hash, const Event& event) {
  hash ^= static_cast<std::uint64_t>(event.at_ns) + (static_cast<std::uint64_t>(event.kind) << 56) +
          (static_cast<std::uint64_t>(event.what) << 24);
  hash *= 0x9e3779b97f4a7c15ULL;
  return hash ^ (hash >> 29);
}

}  // namespace

Figures Simulate(const Model& model) { return Cluster(model).Run(); }

Cluster::Cluster(const Model& model)
    : model_(model), random_(model.seed), arriving_(Mix(model.seed)), spill_over_(model.spill_over) {
  Prepare();
}

// ---- owners ----

void Cluster::Prepare() {
  double capacity = 0;
  for (const NodeKind& kind : model_.nodes) {
    for (std::uint32_t i = 0; i < kind.count; ++i) {
      const auto index = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back(std::make_unique<Node>(Cat("n", index + 1), kind.total));
      Node& node = *nodes_.back();
      node.speed = kind.speed;
      node.idle.resize(model_.classes.size());
      capacity += static_cast<double>(kind.total.Get("CPU")) / kUnit * kind.speed;
      for (std::uint32_t c = 0; c < model_.classes.size(); ++c) {
        const Resources& need = model_.classes[c].need;
        node.load.Index(c + 1, need);
        std::int64_t slots = 1'000'000;
        for (const auto& [name, amount] : need.amounts()) slots = std::min(slots, kind.total.Get(name) / amount);
        node.slots.push_back(slots);
        node.own.push_back(static_cast<std::uint32_t>(queues_.size()));
        Queue queue;
        queue.node = queue.owner = index;
        queue.kind = c;
        queues_.push_back(std::move(queue));
      }
    }
  }
  double weight = 0;
  double work = 0;  // CPU-microseconds of an average task
  for (const TaskClass& one : model_.classes) {
    weights_.push_back(weight += one.weight);
    cpus_.push_back(static_cast<double>(one.need.Get("CPU")) / kUnit);
    work += one.weight * one.mean_us * static_cast<double>(one.need.Get("CPU")) / kUnit;
  }
  work /= weight;
  for (std::uint32_t i = 0; i < std::max(model_.replicas, 1U); ++i) {
    replicas_.push_back({std::make_unique<rules::GlobalScheduler>(i, model_.scheduler), 0, 0});
  }
  shards_.resize(model_.control.shards);

  const Arrivals& arrivals = model_.arrivals;
  const double tasks_per_us = arrivals.load * capacity / work;
  bursts_per_us_ = tasks_per_us * arrivals.burst_share / arrivals.burst;
  const auto count = static_cast<std::uint32_t>(nodes_.size());
  const auto hot = static_cast<std::uint32_t>(std::lround(arrivals.hot_nodes * count));
  for (std::uint32_t i = 0; i < count; ++i) {
    const double share = hot == 0      ? 1.0 / count
                         : i < hot     ? arrivals.hot_share / hot
                         : hot < count ? (1 - arrivals.hot_share) / (count - hot)
                                       : 0;
    nodes_[i]->batches_per_us = tasks_per_us * (1 - arrivals.burst_share) * share / arrivals.batch;
    if (arrivals.submit_us > 0 && share > 0) nodes_[i]->batches_per_us = 1 / (arrivals.submit_us * arrivals.batch);
    // Beats of different nodes do not come together.
    const auto phase = static_cast<std::int64_t>(static_cast<double>(Ns(model_.heartbeat_us)) * i / count);
    SendHeartbeat(i);
    At(phase + 1, kBeat, i);
    if (arrivals.load == 0 && arrivals.submit_us <= 0) {
      const auto tasks = static_cast<std::int64_t>(static_cast<double>(model_.tasks) * share);
      if (tasks > 0) Submit(i, DrawClass(), tasks);
    } else if (nodes_[i]->batches_per_us > 0) {
      At(Ns(arriving_.Exponential(1 / nodes_[i]->batches_per_us)), kArrival, i);
    }
  }
  if (arrivals.load == 0 && arrivals.submit_us <= 0 && submitted_ < model_.tasks) {
    Submit(0, DrawClass(), static_cast<std::int64_t>(model_.tasks - submitted_));  // the rounding
  }
  if (bursts_per_us_ > 0) At(Ns(arriving_.Exponential(1 / bursts_per_us_)), kBurst, 0);
}

void Cluster::Arrive(std::uint32_t index) {
  if (submitted_ >= model_.tasks) return;
  const double rate = nodes_[index]->batches_per_us;
  Submit(index, DrawClass(), model_.arrivals.batch);
  At(now_ns_ + Ns(model_.arrivals.submit_us > 0 ? 1 / rate : arriving_.Exponential(1 / rate)), kArrival, index);
}

void Cluster::Burst() {
  if (submitted_ >= model_.tasks) return;
  Submit(static_cast<std::uint32_t>(arriving_.Below(nodes_.size())), DrawClass(), model_.arrivals.burst);
  At(now_ns_ + Ns(arriving_.Exponential(1 / bursts_per_us_)), kBurst, 0);
}

void Cluster::Submit(std::uint32_t index, std::uint32_t kind, std::int64_t count) {
  count = std::min(count, static_cast<std::int64_t>(model_.tasks - submitted_));
  if (count <= 0) return;
  submitted_ += static_cast<std::uint64_t>(count);
  Node& node = *nodes_[index];
  const TaskClass& task = model_.classes[kind];
  const Together tasks{now_ns_, count};
  const bool fits = node.slots[kind] > 0;
  if (fits && task.input_bytes == 0 && !model_.always_up) {
    Enqueue(node.own[kind], tasks);
    return;
  }
  const std::uint32_t parcel = NewParcel();
  Parcel& made = parcels_[parcel];
  made.owner = made.node = index;
  made.kind = kind;
  made.count = count;
  made.holder = task.input_bytes == 0 ? index : static_cast<std::uint32_t>(arriving_.Below(nodes_.size()));
  made.tasks.push_back(tasks);
  rules::SpillOver::Asked asked;
  asked.waiting = count;
  asked.elsewhere = model_.always_up;
  if (made.holder != index && model_.locality) {
    asked.fetch_us = static_cast<double>(task.input_bytes) / model_.network.bytes_per_us;
  }
  const auto verdict = spill_over_.Decide(node.load, kind, node.leases.free(), asked);
  // Without locality the global scheduler is asked all the same, as in the paper's comparison: it just does not know.
  const bool up = verdict.why == rules::SpillOver::Why::kMissing || verdict.why == rules::SpillOver::Why::kElsewhere ||
                  (task.input_bytes > 0 && !model_.locality);
  if (up) {
    Ask(parcel);
  } else {
    Fetch(parcel);
  }
}

std::uint32_t Cluster::DrawClass() {
  if (weights_.size() == 1) return 0;
  const double at = arriving_.Unit() * weights_.back();
  const auto it = std::lower_bound(weights_.begin(), weights_.end(), at);
  return static_cast<std::uint32_t>(it - weights_.begin());
}

std::int64_t Cluster::DrawRunNs(std::uint32_t kind, double speed) {
  const TaskClass& task = model_.classes[kind];
  double us = task.mean_us;
  if (task.length == Length::kExponential) us = random_.Exponential(us);
  if (task.length == Length::kHeavy) us = random_.Heavy(us);
  return static_cast<std::int64_t>(us * 1e3 / speed);
}

// ---- workers and leases ----

void Cluster::Enqueue(std::uint32_t index, const Together& tasks) {
  Queue& queue = queues_[index];
  queue.fifo.PushBack(tasks);
  queue.pending += tasks.count;
  nodes_[queue.node]->load.Queued(queue.kind, tasks.count);
  Serve(index);
}

void Cluster::Serve(std::uint32_t index) {
  Queue* queue = &queues_[index];
  Node& node = *nodes_[queue->node];
  while (queue->pending > 0 && !queue->idle.empty()) {
    const std::uint32_t worker = queue->idle.back();
    queue->idle.pop_back();
    --node.idle[queue->kind];
    At(Begin(&workers_[worker], now_ns_), kTaskEnd, worker);
  }
  if (queue->pending == 0) return;
  AskForLeases(index);
  queue = &queues_[index];
  if (queue->pending > queue->ask_again && queue->owner == queue->node) ConsiderSpilling(index);
}

void Cluster::AskForLeases(std::uint32_t index) {
  const std::uint32_t at = queues_[index].node;
  Node& node = *nodes_[at];
  for (;;) {
    Queue& queue = queues_[index];
    const std::int64_t most = std::min(queue.pending + queue.leases, node.slots[queue.kind]);
    if (queue.leases + static_cast<std::int64_t>(queue.asked.size()) >= most) break;
    rules::LeaseWant want;
    want.key = {queue.owner + 1, ++node.last_request};
    want.need = model_.classes[queue.kind].need;
    want.queue = queue.kind;
    queue.asked.push_back(want.key.request);
    node.requests[want.key.request] = index;
    rules::LeaseActions actions;
    const Status status = node.leases.Add(want, NowUs(), &actions);
    if (!status.ok()) {  // cannot be: slots > 0
      queue.asked.pop_back();
      return;
    }
    Perform(at, &actions);
  }
  if (node.leases.waiting() > 0) ScheduleTick(at, now_ns_ + 1'000);  // at the end of this round of its loop
}

std::int64_t Cluster::Begin(Worker* worker, std::int64_t from_ns) {
  Queue& queue = queues_[worker->queue];
  Together& front = queue.fifo.Front();
  const std::int64_t start = from_ns + Lag(queue.owner);
  worker->run_ns = DrawRunNs(queue.kind, nodes_[worker->node]->speed);
  const std::int64_t end = start + Ns(model_.task_us) + worker->run_ns;
  waits_.Add(start - front.submitted_ns);
  if (queue.owner != queue.node) far_waits_.Add(start - front.submitted_ns);
  latency_ns_ += static_cast<double>(end - front.submitted_ns);
  if (--front.count == 0) queue.fifo.PopFront();
  --queue.pending;
  nodes_[worker->node]->load.Queued(queue.kind, -1);
  worker->busy = true;
  return end;
}

// The event is still on top of the heap: most of the time it is replaced by the worker's next one.
void Cluster::TaskEnded(std::uint32_t index) {
  Worker& worker = workers_[index];
  Queue& queue = queues_[worker.queue];
  ++out_.tasks;
  (queue.owner == queue.node ? out_.local : out_.remote) += 1;
  last_end_ns_ = now_ns_;
  busy_cpu_ns_ += static_cast<double>(worker.run_ns) * cpus_[queue.kind];
  nodes_[worker.node]->load.Ran(queue.kind, static_cast<double>(worker.run_ns) / 1e3);
  if (!shards_.empty()) Record(queue.owner);
  if (queue.pending > 0 && !worker.revoked) {
    events_.Replace({Begin(&worker, now_ns_), kTaskEnd, index});
    return;
  }
  events_.Pop();
  worker.busy = false;
  if (worker.revoked) {
    Return(index);
  } else {
    GoIdle(index);
  }
}

void Cluster::GoIdle(std::uint32_t index) {
  Queue& queue = queues_[workers_[index].queue];
  queue.ask_again = 0;
  queue.idle.push_back(index);
  Node& node = *nodes_[queue.node];
  ++node.idle[queue.kind];
  // An owner without tasks withdraws what it asked for: requests that nobody needs would hold others up.
  if (!queue.asked.empty()) {
    rules::LeaseActions actions;
    std::erase_if(queue.asked, [&](std::uint64_t request) {
      const bool waited = node.leases.Cancel({queue.owner + 1, request}, NowUs(), &actions);
      if (waited) node.requests.erase(request);
      return waited;  // else it was granted just now, and comes
    });
    Perform(queue.node, &actions);
  }
  if (node.leases.waiting() == 0) return;
  // Found when the daemon polls next: half an interval from now, in the mean.
  const bool told = model_.tell_idle;
  ScheduleTick(queue.node, now_ns_ + (told ? Ns(model_.grant_us) : rules::LeaseQueue::kIdlePollUs * 500));
}

void Cluster::Perform(std::uint32_t at, rules::LeaseActions* actions) {
  Node& node = *nodes_[at];
  std::vector<std::uint32_t> back;
  for (const rules::LeaseAction& action : *actions) {
    if (const auto* grant = std::get_if<rules::Grant>(&action)) {
      const auto asked = node.requests.find(grant->key.request);
      const std::uint32_t index = asked->second;
      node.requests.erase(asked);
      ++out_.leases;
      std::uint32_t worker = 0;
      if (free_workers_.empty()) {
        worker = static_cast<std::uint32_t>(workers_.size());
        workers_.emplace_back();
      } else {
        worker = free_workers_.back();
        free_workers_.pop_back();
      }
      workers_[worker] = {at, index, grant->lease, 0, false, false};
      node.workers.Add(grant->lease, worker);
      Queue& queue = queues_[index];
      std::erase(queue.asked, grant->key.request);
      ++queue.leases;
      if (queue.pending > 0) {
        At(Begin(&workers_[worker], now_ns_ + Ns(model_.grant_us)), kTaskEnd, worker);
      } else {
        GoIdle(worker);
      }
    } else if (const auto* revoke = std::get_if<rules::Revoke>(&action)) {
      const std::uint32_t worker = node.workers.Of(revoke->lease);
      workers_[worker].revoked = true;
      if (!workers_[worker].busy) back.push_back(worker);
    }
  }
  actions->clear();
  for (const std::uint32_t worker : back) {
    Queue& queue = queues_[workers_[worker].queue];
    std::erase(queue.idle, worker);
    --node.idle[queue.kind];
    Return(worker);
  }
}

void Cluster::Return(std::uint32_t index) {
  const Worker worker = workers_[index];
  Node& node = *nodes_[worker.node];
  --queues_[worker.queue].leases;
  node.workers.Remove(worker.lease);
  free_workers_.push_back(index);
  rules::LeaseActions actions;
  node.leases.Return(worker.lease, NowUs(), &actions);
  Perform(worker.node, &actions);
  if (node.leases.waiting() > 0) ScheduleTick(worker.node, now_ns_ + 1'000);
  if (queues_[worker.queue].pending > 0) {
    AskForLeases(worker.queue);
  } else {
    Retire(worker.queue);
  }
}

void Cluster::ScheduleTick(std::uint32_t at, std::int64_t at_ns) {
  Node& node = *nodes_[at];
  if (node.tick_ns >= 0 && node.tick_ns <= at_ns) return;
  node.tick_ns = at_ns;
  At(at_ns, kTick, at);
}

void Cluster::Tick(std::uint32_t at) {
  Node& node = *nodes_[at];
  if (node.tick_ns != now_ns_) return;  // an earlier one took its place
  node.tick_ns = -1;
  // With no lease idle a tick decides only whose quantum is over: a look per quantum is enough, and much cheaper.
  const bool idle = std::any_of(node.idle.begin(), node.idle.end(), [](std::int64_t count) { return count > 0; });
  if (!idle && now_ns_ < node.quantum_ns && node.leases.waiting() > 0) {
    ScheduleTick(at, node.quantum_ns);
    return;
  }
  node.quantum_ns = now_ns_ + rules::LeaseQueue::kQuantumUs * 1'000;
  rules::LeaseActions actions;
  node.leases.Tick(NowUs(), [&](std::uint64_t lease) { return !workers_[node.workers.Of(lease)].busy; }, &actions);
  Perform(at, &actions);
  if (node.leases.waiting() == 0) return;
  const std::int64_t next = node.leases.NextTick(NowUs());
  if (next != rules::LeaseQueue::kNever) ScheduleTick(at, std::max(next * 1'000, now_ns_ + 1'000));
}

void Cluster::Record(std::uint32_t owner) {
  Node& node = *nodes_[owner];
  ++node.records;
  if (now_ns_ < node.flush_ns) return;
  Shard& shard = shards_[owner % shards_.size()];
  const std::int64_t work = Ns(model_.control.record_us * static_cast<double>(node.records) + model_.control.batch_us);
  shard.busy_until_ns = std::max(shard.busy_until_ns, now_ns_) + work;
  shard.busy_ns += work;
  node.records = 0;
  node.flush_ns = now_ns_ + Ns(model_.control.flush_us);
}

std::int64_t Cluster::Lag(std::uint32_t owner) const {
  if (shards_.empty()) return 0;
  const Shard& shard = shards_[owner % shards_.size()];
  return std::max<std::int64_t>(shard.busy_until_ns - now_ns_ - Ns(model_.control.lag_us), 0);
}

// ---- the run ----

Figures Cluster::Run() {
  while (out_.tasks + out_.infeasible < model_.tasks && !events_.empty()) {
    const Event event = events_.top();
    now_ns_ = event.at_ns;
    ++out_.events;
    out_.trace = Fold(out_.trace, event);
    if (event.kind == kTaskEnd) {
      TaskEnded(event.what);
      continue;
    }
    events_.Pop();
    switch (event.kind) {
      case kArrival:
        Arrive(event.what);
        break;
      case kBurst:
        Burst();
        break;
      case kBeat:
        if (BeatIsDue(*nodes_[event.what])) SendHeartbeat(event.what);
        At(now_ns_ + Ns(model_.eager_us > 0 ? model_.eager_us : model_.heartbeat_us), kBeat, event.what);
        break;
      case kTick:
        Tick(event.what);
        break;
      case kAtScheduler:
        AtScheduler(event.what);
        break;
      case kAtNode:
        AtNode(event.what);
        break;
      case kFetched:
        Deliver(event.what);
        break;
      default:
        break;
    }
  }
  // A task is done when its record is stored: else a short run would hide a store that falls behind.
  std::int64_t end_ns = std::max<std::int64_t>(last_end_ns_, 1);
  for (std::uint32_t owner = 0; owner < nodes_.size() && !shards_.empty(); ++owner) {
    Shard& shard = shards_[owner % shards_.size()];
    const std::int64_t work = Ns(model_.control.record_us * static_cast<double>(nodes_[owner]->records));
    shard.busy_until_ns = std::max(shard.busy_until_ns, last_end_ns_) + work;  // what was not sent yet
    shard.busy_ns += work;
    end_ns = std::max(end_ns, shard.busy_until_ns);
  }
  const auto ns = static_cast<double>(end_ns);
  double cpus = 0;
  for (const NodeKind& kind : model_.nodes) cpus += kind.count * static_cast<double>(kind.total.Get("CPU")) / kUnit;
  out_.seconds = ns / 1e9;
  out_.tasks_per_second = static_cast<double>(out_.tasks) / out_.seconds;
  out_.busy = busy_cpu_ns_ / (ns * cpus);
  out_.wait_mean_us = waits_.MeanUs();
  out_.wait_p50_us = waits_.QuantileUs(0.5);
  out_.wait_p99_us = waits_.QuantileUs(0.99);
  out_.far_p99_us = far_waits_.QuantileUs(0.99);
  out_.wait_max_us = waits_.MostUs();
  out_.latency_mean_us = latency_ns_ / 1e3 / static_cast<double>(std::max<std::uint64_t>(out_.tasks, 1));
  std::uint64_t looks = 0;
  for (const Replica& replica : replicas_) {
    out_.requests += replica.rule->counts().requests;
    looks += replica.rule->counts().looks;
    out_.scheduler_busy = std::max(out_.scheduler_busy, static_cast<double>(replica.busy_ns) / ns);
  }
  out_.looks = out_.requests == 0 ? 0 : static_cast<double>(looks) / static_cast<double>(out_.requests);
  for (const Shard& shard : shards_) {
    out_.control_busy = std::max(out_.control_busy, static_cast<double>(shard.busy_ns) / ns);
  }
  return out_;
}

}  // namespace manta::sim
