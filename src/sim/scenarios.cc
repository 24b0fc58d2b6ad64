#include "sim/scenarios.h"

#include <algorithm>
#include <cstdio>

#include "sim/broadcast_run.h"
#include "types/id.h"
#include "types/text.h"

namespace manta::sim {
namespace {

Resources Cpus(double cpus, double gpus = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  return out;
}

std::string Text(double number) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", number);
  return text;
}

template <typename T>
T Or(T chosen, T standard) {
  return chosen > T{0} ? chosen : standard;
}

// The cluster that scenarios start from.
Model Base(const Settings& settings, std::uint32_t nodes, std::uint32_t cores, std::uint64_t tasks) {
  Model model;
  model.seed = settings.seed;
  model.tasks = Or(settings.tasks, tasks);
  model.nodes = {{Or(settings.nodes, nodes), Cpus(Or(settings.cores, cores)), 1}};
  TaskClass task;
  task.need = Cpus(1);
  task.mean_us = Or(settings.mean_us, task.mean_us);
  model.classes = {task};
  if (settings.load >= 0) model.arrivals.load = settings.load;
  if (settings.threshold_us >= 0) model.spill_over.threshold_us = settings.threshold_us;
  if (settings.tolerance_us >= 0) model.spill_over.tolerance_us = settings.tolerance_us;
  if (settings.eager_us >= 0) model.eager_us = settings.eager_us;
  if (settings.sample > 0) model.scheduler.sample = settings.sample;
  model.heartbeat_us = Or(settings.heartbeat_us, model.heartbeat_us);
  model.replicas = Or(settings.replicas, model.replicas);
  model.control.shards = settings.shards;
  return model;
}

using Labels = std::vector<std::pair<std::string, std::string>>;

// Runs it and adds the row; the figures for what a scenario says in addition.
Figures Try(const Settings& settings, const Model& model, const Labels& labels, Table* table) {
  const double before = settings.seconds ? settings.seconds() : 0;
  const Figures got = Simulate(model);
  const double took = settings.seconds ? settings.seconds() - before : 0;
  const auto all = static_cast<double>(std::max<std::uint64_t>(got.tasks, 1));
  Row row;
  row.labels = labels;
  row.values = {{"tasks/s", got.tasks_per_second},
                {"busy %", got.busy * 100},
                {"wait mean us", got.wait_mean_us},
                {"p50 us", got.wait_p50_us},
                {"p99 us", got.wait_p99_us},
                {"far p99 us", got.far_p99_us},
                {"remote %", static_cast<double>(got.remote) / all * 100},
                {"requests", static_cast<double>(got.requests)},
                {"bounced", static_cast<double>(got.bounced)},
                {"looks", got.looks},
                {"beats/s", static_cast<double>(got.beats) / got.seconds}};
  if (got.infeasible > 0) row.values.emplace_back("infeasible", static_cast<double>(got.infeasible));
  if (model.control.shards > 0) row.values.emplace_back("control %", got.control_busy * 100);
  if (got.requests > 0) row.values.emplace_back("scheduler %", got.scheduler_busy * 100);
  if (took > 0) {
    row.values.emplace_back("virtual s", got.seconds);
    row.values.emplace_back("cpu s", took);
    row.values.emplace_back("simulated tasks/s", static_cast<double>(got.tasks) / took);
  }
  table->trace = Mix(table->trace ^ got.trace);
  table->rows.push_back(std::move(row));
  return got;
}

std::vector<Table> Throughput(const Settings& settings) {
  Model model = Base(settings, 100, 64, 10'000'000);
  Table table{Cat("throughput: ", model.nodes[0].count, " nodes, ", model.tasks, " tasks of ", model.classes[0].mean_us,
                  " us, load ", model.arrivals.load),
              {},
              0};
  Try(settings, model, {{"arrivals", "even"}}, &table);
  model.arrivals.hot_nodes = 0.1;
  model.arrivals.hot_share = 0.5;
  model.tasks /= 10;  // what moves between nodes costs ten times as much to simulate
  Try(settings, model, {{"arrivals", "half on a tenth"}}, &table);
  return {table};
}

std::vector<Table> Locality(const Settings& settings) {
  Table table{"locality (Figure 8a): 1,000 tasks of 1 ms, each reads one object, two nodes", {}, 0};
  for (const double mb : {0.1, 1.0, 10.0, 100.0}) {
    for (const bool aware : {true, false}) {
      Model model = Base(settings, 2, 64, 1'000);
      model.classes[0].mean_us = Or(settings.mean_us, 1'000.0);
      model.classes[0].length = Length::kFixed;
      model.classes[0].input_bytes = static_cast<std::uint64_t>(mb * 1e6);
      // One after another, as far apart as a transfer of 100 MB takes: latency, not queueing for the network.
      model.arrivals.load = 0;
      model.arrivals.submit_us = 50'000;
      model.locality = aware;
      const Figures got = Try(settings, model, {{"MB", Text(mb)}, {"placement", aware ? "aware" : "unaware"}}, &table);
      table.rows.back().values.insert(table.rows.back().values.begin(), {"latency mean us", got.latency_mean_us});
      table.rows.back().values.emplace_back("fetched GB", got.fetched_gb);
    }
  }
  return {table};
}

std::vector<Table> Scaling(const Settings& settings) {
  std::vector<Table> tables;
  // Empty tasks, submitted on every node by its own driver: as fast as one owner can (2 M/s measured on one machine).
  Table empty{"scaling (Figure 8b): empty tasks, one driver per node; the control store as large as needed", {}, 0};
  for (const std::uint32_t nodes : {1U, 10U, 20U, 40U, 60U, 100U, 300U, 1'000U}) {
    if (nodes > Or(settings.nodes, nodes)) continue;
    Model model = Base(settings, nodes, 64, 0);
    model.nodes[0].count = nodes;
    model.tasks = Or<std::uint64_t>(settings.tasks, 10'000) * nodes;
    model.classes[0].mean_us = 0;
    model.classes[0].length = Length::kFixed;
    model.arrivals.submit_us = 0.5;
    model.arrivals.batch = 16;
    Try(settings, model, {{"nodes", Text(nodes)}}, &empty);
  }
  tables.push_back(std::move(empty));

  Table lengths{"scaling: longer tasks, 64 cores a node", {}, 0};
  for (const double us : {1'000.0, 10'000.0, 100'000.0}) {
    for (const std::uint32_t nodes : {1U, 10U, 100U, 1'000U}) {
      if (nodes > Or(settings.nodes, nodes)) continue;
      Model model = Base(settings, nodes, 64, 0);
      model.nodes[0].count = nodes;
      model.tasks = Or<std::uint64_t>(settings.tasks, 3'000) * nodes;
      model.classes[0].mean_us = us;
      Try(settings, model, {{"task us", Text(us)}, {"nodes", Text(nodes)}}, &lengths);
    }
  }
  tables.push_back(std::move(lengths));

  // Where it ends: every empty task's record goes to the control store.
  Table control{"where it stops (control store): 100 nodes, empty tasks, one record each at 1 M/s a shard", {}, 0};
  for (const std::uint32_t shards : {1U, 4U, 16U, 64U, 256U}) {
    Model model = Base(settings, 100, 64, 6'000'000);
    model.control.lag_us = 20'000;
    model.classes[0].mean_us = 0;
    model.classes[0].length = Length::kFixed;
    model.arrivals.submit_us = 0.5;
    model.arrivals.batch = 16;
    model.control.shards = shards;
    Try(settings, model, {{"shards", Text(shards)}}, &control);
  }
  tables.push_back(std::move(control));

  // Where it ends: every task asks the global scheduler by itself.
  Table scheduler{
      "where it stops (global scheduler): 100 nodes, every task of 10 ms asks by itself, offered 576,000 /s", {}, 0};
  for (const std::uint32_t replicas : {1U, 2U, 4U, 8U}) {
    Model model = Base(settings, 100, 64, 200'000);
    model.always_up = true;
    model.replicas = replicas;
    Try(settings, model, {{"replicas", Text(replicas)}, {"batch", "1"}}, &scheduler);
  }
  for (const std::uint32_t batch : {4U, 16U, 64U}) {
    Model model = Base(settings, 100, 64, 200'000);
    model.always_up = true;
    model.arrivals.batch = batch;
    Try(settings, model, {{"replicas", "1"}, {"batch", Text(batch)}}, &scheduler);
  }
  tables.push_back(std::move(scheduler));
  return tables;
}

std::vector<Table> Bursts(const Settings& settings) {
  Table table{"bursts: nine tenths of the tasks come a thousand at a time, each burst on a random node", {}, 0};
  for (const double load : {0.3, 0.6, 0.9}) {
    for (const bool spill : {false, true}) {
      Model model = Base(settings, 50, 16, 300'000);
      model.arrivals.load = settings.load >= 0 ? settings.load : load;
      model.arrivals.burst_share = 0.9;
      model.spill = spill;
      Try(settings, model, {{"load", Text(model.arrivals.load)}, {"bottom-up", spill ? "yes" : "local only"}}, &table);
    }
  }
  return {table};
}

std::vector<Table> Heterogeneous(const Settings& settings) {
  Table table{"heterogeneous: small, large, slow and GPU nodes; wide tasks, and some that need a GPU", {}, 0};
  const std::uint32_t nodes = Or(settings.nodes, 100U);
  for (const double load : {0.5, 0.8}) {
    Model model = Base(settings, nodes, 64, 300'000);
    model.arrivals.load = settings.load >= 0 ? settings.load : load;
    const std::uint32_t gpu = std::max(nodes / 20, 1U);
    model.nodes = {{nodes / 2, Cpus(16), 1},
                   {nodes / 4, Cpus(128), 1},
                   {nodes - nodes / 2 - nodes / 4 - gpu, Cpus(64), 0.5},
                   {gpu, Cpus(64, 8), 1}};
    TaskClass small = model.classes[0];
    small.weight = 0.75;
    TaskClass wide = small;
    wide.need = Cpus(8);
    wide.weight = 0.2;
    TaskClass device = small;
    device.need = Cpus(1, 1);
    device.weight = 0.0025;  // the GPUs' share at this load: eight a node
    device.mean_us = 100'000;
    model.classes = {small, wide, device};
    Try(settings, model, {{"load", Text(model.arrivals.load)}}, &table);
  }
  return {table};
}

std::vector<Table> Stale(const Settings& settings) {
  std::vector<Table> tables;
  Table table{"stale views: load 0.7, half of it in bursts of 200, heartbeats further and further apart", {}, 0};
  for (const std::uint32_t replicas : {1U, 4U}) {
    for (const double ms : {10.0, 50.0, 100.0, 250.0, 500.0, 1'000.0, 2'000.0}) {
      Model model = Base(settings, 50, 16, 300'000);
      model.arrivals.load = settings.load >= 0 ? settings.load : 0.7;
      model.arrivals.burst_share = 0.5;
      model.arrivals.burst = 200;
      model.heartbeat_us = ms * 1e3;
      model.replicas = replicas;
      Try(settings, model, {{"replicas", Text(replicas)}, {"heartbeat ms", Text(ms)}}, &table);
    }
  }
  tables.push_back(std::move(table));
  Table eager{
      "beats when the load has changed by an eighth, at most this often; else every 500 ms; one replica", {}, 0};
  for (const double ms : {5.0, 10.0, 20.0, 50.0}) {
    Model model = Base(settings, 50, 16, 300'000);
    model.arrivals.load = settings.load >= 0 ? settings.load : 0.7;
    model.arrivals.burst_share = 0.5;
    model.arrivals.burst = 200;
    model.heartbeat_us = 500'000;
    model.eager_us = ms * 1e3;
    Try(settings, model, {{"eager ms", Text(ms)}}, &eager);
  }
  tables.push_back(std::move(eager));
  Table tolerance{
      "how much longer than expected a task may wait before it bounces, ms; heartbeats every 100 ms", {}, 0};
  for (const double ms : {0.0, 1.0, 5.0, 10.0, 50.0}) {
    Model model = Base(settings, 50, 16, 300'000);
    model.arrivals.load = settings.load >= 0 ? settings.load : 0.7;
    model.arrivals.burst_share = 0.5;
    model.arrivals.burst = 200;
    model.spill_over.tolerance_us = ms * 1e3;
    Try(settings, model, {{"tolerance ms", Text(ms)}}, &tolerance);
  }
  tables.push_back(std::move(tolerance));
  Table sample{"how many nodes to look at: every task asks by itself, load 0.9, four replicas", {}, 0};
  for (const std::size_t looks : {1UL, 2UL, 4UL, 8UL, 16UL, 50UL}) {
    Model model = Base(settings, 100, 16, 200'000);
    model.always_up = true;
    model.replicas = 4;
    model.scheduler.sample = looks;
    Try(settings, model, {{"sample", Text(static_cast<double>(looks))}}, &sample);
  }
  tables.push_back(std::move(sample));
  return tables;
}

std::vector<Table> Thresholds(const Settings& settings) {
  std::vector<Table> tables;
  for (const double mean : {1'000.0, 10'000.0, 100'000.0}) {
    Table table{Cat("thresholds: tasks of ", mean,
                    " us, half of them on a tenth of the nodes, a third in bursts of 200, load 0.7"),
                {},
                0};
    for (const double ms : {0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 200.0}) {
      Model model = Base(settings, 50, 16, 300'000);
      model.classes[0].mean_us = mean;
      model.arrivals.load = settings.load >= 0 ? settings.load : 0.7;
      model.arrivals.hot_nodes = 0.1;
      model.arrivals.hot_share = 0.5;
      model.arrivals.burst_share = 0.33;
      model.arrivals.burst = 200;
      model.spill_over.threshold_us = ms * 1e3;
      Try(settings, model, {{"threshold ms", Text(ms)}}, &table);
    }
    tables.push_back(std::move(table));
  }
  return tables;
}

std::vector<Table> Broadcasts(const Settings& settings) {
  Table table{"broadcast: 1 GB at 25 Gb/s", {}, 0};
  const auto add = [&](const BroadcastModel& model, const std::string& how) {
    const BroadcastFigures got = RunBroadcast(model);
    Row row;
    row.labels = {{"receivers", Text(model.receivers)}, {"how", how}};
    row.values = {{"seconds", got.seconds},
                  {"mean s", got.mean_seconds},
                  {"one transfer s", got.one_seconds},
                  {"source sends", static_cast<double>(got.source_copies)},
                  {"depth", static_cast<double>(got.depth)},
                  {"served", static_cast<double>(got.served)}};
    table.trace = Mix(table.trace ^ got.trace);
    table.rows.push_back(std::move(row));
  };
  BroadcastModel model;
  model.seed = settings.seed;
  model.receivers = Or(settings.nodes, 50U);
  add(model, "tree of two, chunks relayed");
  model.options.fan_out = 1;
  add(model, "chain, chunks relayed");
  model.options = {2, false};
  add(model, "tree of two, whole objects");
  model.options = {model.receivers, false};
  add(model, "all from the source");
  model.options = {};
  model.apart_us = 10'000;
  add(model, "tree of two, requests 10 ms apart");
  model.apart_us = 0;
  model.deaths = 5;
  add(model, "tree of two, 5 receivers die");
  model.options.fan_out = 1;
  add(model, "chain, 5 receivers die");
  model = BroadcastModel();
  model.seed = settings.seed;
  model.receivers = Or(settings.nodes, 1'000U);
  add(model, "tree of two, chunks relayed");
  return {table};
}

}  // namespace

const std::vector<Scenario>& Scenarios() {
  static const std::vector<Scenario> all = {
      {"throughput", "tasks on all nodes, evenly and half of them on a tenth", Throughput},
      {"locality", "Figure 8a: input sizes, placement that knows where inputs are and one that does not", Locality},
      {"scaling", "Figure 8b: 1 to 1,000 nodes, and where control shards and schedulers are the limit", Scaling},
      {"bursts", "a thousand tasks at once on one node, with and without sending up", Bursts},
      {"broadcast", "1 GB to many nodes", Broadcasts},
      {"heterogeneous", "small, large, slow and GPU nodes", Heterogeneous},
      {"stale", "heartbeat intervals, replicas, and how many nodes to look at", Stale},
      {"thresholds", "when to send up", Thresholds},
  };
  return all;
}

}  // namespace manta::sim
