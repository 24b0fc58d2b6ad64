// What is simulated, and what comes out. Plain values; times are virtual.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rules/broadcast.h"
#include "rules/global_scheduler.h"
#include "rules/spill_over.h"
#include "types/resources.h"

namespace manta::sim {

enum class Length : std::uint8_t { kFixed, kExponential, kHeavy };

struct TaskClass {
  Resources need;
  double mean_us = 10'000;
  Length length = Length::kExponential;
  double weight = 1;              // how often it is submitted, against the others
  std::uint64_t input_bytes = 0;  // each task reads one object of this size, which lies on some node
};

struct NodeKind {
  std::uint32_t count = 1;
  Resources total;
  double speed = 1;  // a task runs for its length / speed
};

struct Arrivals {
  double load = 0.9;            // of all CPUs, by tasks of all nodes; 0: everything at the start
  std::uint32_t batch = 1;      // tasks submitted together
  double hot_nodes = 0;         // this part of the nodes …
  double hot_share = 0;         // … submits this part of the tasks
  double burst_share = 0;       // this part of the tasks comes as bursts, each on a random node …
  std::uint32_t burst = 1'000;  // … of this many
  double submit_us = 0;         // > 0: each owner submits as fast as it can, one task per this time; `load` is ignored
};

struct Network {
  double latency_us = 50;       // one way
  double bytes_per_us = 3'125;  // 25 Gb/s, each way, each node
};

// The control store as a place with a latency and a capacity: owners send it a record of each task, in batches, and
// do not wait unless it falls behind by more than `lag_us`.
struct ControlModel {
  std::uint32_t shards = 0;  // 0: as many as needed
  double record_us = 1;
  double batch_us = 10;
  double flush_us = 1'000;  // how long an owner collects a batch
  double lag_us = 100'000;
};

struct Model {
  std::uint64_t seed = 1;
  std::uint64_t tasks = 1'000'000;
  std::vector<NodeKind> nodes;
  std::vector<TaskClass> classes;
  Arrivals arrivals;
  Network network;
  ControlModel control;
  std::uint32_t replicas = 1;     // of the global scheduler
  double decide_us = 5;           // a replica's time for one request; measured on mantad's message loop and Place
  double heartbeat_us = 100'000;  // a node beats this often, …
  double eager_us = 0;            // … and this often when its load has changed by an eighth; 0: never
  double grant_us = 10;           // a local lease, from asking to the first task
  double task_us = 0.3;           // the engine's own time in each task
  bool fresh_request = true;      // a request to the global scheduler carries its node's load
  bool answer_load = true;        // a node that takes tasks sends its load to the scheduler that placed them
  // Workers tell their daemon that they ran idle while others wait; false: found by polling.
  bool tell_idle = true;
  bool spill = true;       // false: everything stays where it was submitted
  bool always_up = false;  // every batch asks the global scheduler
  bool locality = true;    // false: placement ignores where inputs are
  rules::SpillOver::Options spill_over;
  rules::GlobalScheduler::Options scheduler;
};

struct Figures {
  std::uint64_t tasks = 0;
  std::uint64_t events = 0;
  std::uint64_t trace = 0;  // a hash of every event
  double seconds = 0;       // virtual, until the last task ended and was recorded
  double tasks_per_second = 0;
  double busy = 0;  // part of the CPUs' time spent in tasks
  double wait_mean_us = 0;
  double wait_p50_us = 0;
  double wait_p99_us = 0;
  double wait_max_us = 0;
  double far_p99_us = 0;       // of tasks that ran elsewhere than they were submitted
  double latency_mean_us = 0;  // from submission to the end of the run, without the owner's way back
  std::uint64_t local = 0;     // tasks that ran where they were submitted
  std::uint64_t remote = 0;
  std::uint64_t bounced = 0;  // refused placements
  std::uint64_t finals = 0;   // taken because they had to be
  std::uint64_t infeasible = 0;
  std::uint64_t requests = 0;  // to global schedulers
  std::uint64_t beats = 0;
  std::uint64_t leases = 0;   // granted
  double looks = 0;           // nodes per request whose wait was estimated
  double scheduler_busy = 0;  // of the busiest replica
  double control_busy = 0;    // of the busiest shard
  double fetched_gb = 0;
};

[[nodiscard]] Figures Simulate(const Model& model);

}  // namespace manta::sim
