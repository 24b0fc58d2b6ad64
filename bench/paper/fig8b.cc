// Figure 8b: empty tasks on more and more nodes, one driver a node. Real nodes first: they share this machine's cores,
// so what can be seen is that a task costs the same processor time however many nodes there are, not a speed-up. Then
// the simulator (src/sim: the engine's own rules), calibrated by the run with one node, from 10 to 1,000 nodes of 64
// cores; longer tasks; and more control shards and more global schedulers, where these are the limit.
#include <manta/manta.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "nodes.h"
#include "sim/model.h"
#include "work.h"

namespace {

using bench::Nodes;
using paper::Figure;
using paper::Number;

bench::Reply Empty(std::uint64_t index) { return bench::Answer(index); }

double OwnCpu() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// One driver, in a process of its own: submits empty tasks until the time is up; prints how many and its processor
// time.
int Drive(const std::string& address, double start, double seconds, bool spread) {
  manta::Config config;
  config.address = address;
  manta::Init(config);
  auto work = manta::Task(Empty);
  if (spread) work.Spread();  // then each task has a lease of its own, and asks where
  bench::Tally tally;
  std::vector<manta::Ref<bench::Reply>> refs(spread ? 64 : bench::kBatch);
  std::uint64_t next = 0;
  const auto batch = [&] {
    for (std::size_t i = 0; i < refs.size(); ++i) refs[i] = work.Remote(next + i);
    for (std::size_t i = 0; i < refs.size(); ++i) tally.Add(refs[i].Get(), next + i);
    next += refs.size();
  };
  batch();
  while (bench::Now() < start) bench::SleepMs(1);
  const std::uint64_t before = next;
  const double cpu = OwnCpu();
  do batch();
  while (bench::Now() < start + seconds);
  tally.Finish(next);
  std::printf("%llu %.6f\n", static_cast<unsigned long long>(next - before), OwnCpu() - cpu);
  manta::Shutdown();
  return 0;
}

struct Real {
  double tasks_per_second = 0;
  double driver_us = 0;   // processor time per task of drivers …
  double cluster_us = 0;  // … and of everybody else: workers, daemons, the head
};

// With `schedulers`, that many global schedulers, and every task asks one of them by itself.
Real Run(int count, double seconds, int schedulers = 0) {
  bench::NodesOptions options;
  options.count = count;
  if (schedulers > 0) options.words = {{"--schedulers", std::to_string(schedulers)}};
  options.store_bytes = 64ULL << 20;
  const Nodes nodes(options);
  const double start = bench::Now() + 0.5 + 0.1 * count;
  std::vector<std::future<std::string>> drivers;
  for (int i = 1; i <= count; ++i) {
    drivers.push_back(std::async(std::launch::async, [&, i] {
      std::string how;
      const std::string said =
          bench::RunProgram({"/proc/self/exe", "--drive", nodes.address(static_cast<std::size_t>(i)),
                             std::to_string(start), std::to_string(seconds), schedulers > 0 ? "spread" : "plain"},
                            &how);
      return said.empty() ? how : said;
    }));
  }
  // Of the cluster's processes while all drivers are at it: workers end with them, and their time is gone then.
  constexpr double kPart = 0.8;
  bench::SleepMs(std::max(start - bench::Now(), 0.0) * 1e3 + seconds * 100);
  const double before = nodes.CpuSeconds();
  bench::SleepMs(seconds * kPart * 1e3);
  const double cluster = (nodes.CpuSeconds() - before) / kPart;
  double tasks = 0;
  double own = 0;
  for (auto& driver : drivers) {
    const std::string said = driver.get();
    char* rest = nullptr;
    const double done = std::strtod(said.c_str(), &rest);
    if (rest == said.c_str()) bench::Fail("a driver ended with " + said + nodes.Logs());
    tasks += done;
    own += std::strtod(rest, nullptr);
  }
  return {tasks / seconds, own / tasks * 1e6, cluster / tasks * 1e6};
}

manta::sim::Model Model(std::uint32_t nodes, std::uint64_t tasks_per_node, double submit_us, double task_us) {
  manta::sim::Model model;
  manta::Resources cores;
  cores.Set("CPU", 64 * manta::kUnit);
  model.nodes = {{nodes, cores, 1}};
  manta::sim::TaskClass task;
  task.need.Set("CPU", manta::kUnit);
  task.mean_us = 0;
  task.length = manta::sim::Length::kFixed;
  model.classes = {task};
  model.tasks = tasks_per_node * nodes;
  model.arrivals.submit_us = submit_us;
  model.arrivals.batch = 16;
  model.task_us = task_us;
  return model;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig8b", "Figure 8b: empty tasks on many nodes");
  const double seconds = figure.Pick(3.0, 0.2);

  figure.Say("## Real nodes, all on this machine's cores\n");
  std::vector<std::vector<std::string>> rows{
      {"nodes", "tasks/s in all", "processor time per task us: drivers", "workers, daemons, head"}};
  paper::Series real{"here, real nodes that share this machine's cores", paper::Mark::kMeasured, {}};
  Real one;
  for (const int count : {1, 2, 4, 8}) {
    if (figure.quick() && count > 2) break;
    const Real run = Run(count, seconds);
    if (count == 1) one = run;
    rows.push_back(
        {std::to_string(count), Number(run.tasks_per_second), Number(run.driver_us), Number(run.cluster_us)});
    real.points.emplace_back(count, run.tasks_per_second);
  }
  figure.Table(rows);

  figure.Say(
      "## Real nodes and real global schedulers: four nodes, every empty task asks a scheduler by itself. All "
      "processes "
      "share this machine's cores, so what can be seen is what a further scheduler costs, not what it brings\n");
  rows = {{"global schedulers", "tasks/s in all", "processor time per task us: drivers",
           "workers, daemons, head, schedulers"}};
  for (const int schedulers : {1, 2, 4}) {
    if (figure.quick() && schedulers > 2) break;
    const Real run = Run(figure.quick() ? 2 : 4, seconds, schedulers);
    rows.push_back(
        {std::to_string(schedulers), Number(run.tasks_per_second), Number(run.driver_us), Number(run.cluster_us)});
  }
  figure.Table(rows);

  // By processor time, not by the clock: a node of 64 cores has one for its driver, which here shares two with all
  // others.
  const double submit_us = std::max(one.driver_us, 0.05);
  const double task_us = std::max(one.cluster_us, 0.05);
  figure.Say("## Simulated: nodes of 64 cores, calibrated by the run of one node: a driver submits a task every " +
             Number(submit_us) + " us, a worker spends " + Number(task_us) + " us on it\n");
  rows = {{"nodes", "tasks/s (simulated)", "per node", "the paper"}};
  paper::Series simulated{"simulated, as many control shards as needed", paper::Mark::kSimulated, {}};
  const std::uint64_t each = figure.Pick<std::uint64_t>(10'000, 500);
  for (const std::uint32_t nodes : {10U, 20U, 30U, 40U, 50U, 60U, 100U, 300U, 1000U}) {
    if (figure.quick() && nodes > 30) break;
    const manta::sim::Figures got = Simulate(Model(nodes, each, submit_us, task_us));
    rows.push_back({std::to_string(nodes), Number(got.tasks_per_second), Number(got.tasks_per_second / nodes),
                    nodes == 60    ? "1 M"
                    : nodes == 100 ? "1.8 M"
                                   : ""});
    simulated.points.emplace_back(nodes, got.tasks_per_second);
  }
  figure.Table(rows);

  figure.Say("## Simulated: longer tasks, load 0.9\n");
  rows = {{"task ms", "nodes", "tasks/s (simulated)", "cores busy %", "wait mean us"}};
  for (const double ms : {1.0, 10.0, 100.0}) {
    for (const std::uint32_t nodes : {10U, 100U, 1000U}) {
      if (figure.quick() && nodes > 10) break;
      manta::sim::Model model = Model(nodes, figure.Pick<std::uint64_t>(3'000, 500), 0, task_us);
      model.arrivals = {};
      model.classes[0].mean_us = ms * 1e3;
      model.classes[0].length = manta::sim::Length::kExponential;
      const manta::sim::Figures got = Simulate(model);
      rows.push_back({Number(ms), std::to_string(nodes), Number(got.tasks_per_second), Number(got.busy * 100),
                      Number(got.wait_mean_us)});
    }
  }
  figure.Table(rows);

  figure.Say(
      "## Simulated: where it stops. 100 nodes, one record of every task in the control store (1 M/s a shard)\n");
  rows = {{"control shards", "tasks/s (simulated)", "busiest shard %"}};
  paper::Series shards_line{"control shards, empty tasks", paper::Mark::kSimulated, {}};
  for (const std::uint32_t shards : {1U, 2U, 4U, 8U, 16U, 64U}) {
    if (figure.quick() && shards > 2) break;
    // Long enough to outlast what owners may be ahead of the store.
    manta::sim::Model model = Model(100, figure.Pick<std::uint64_t>(40'000, 2'000), submit_us, task_us);
    model.control.shards = shards;
    model.control.lag_us = 20'000;
    const manta::sim::Figures got = Simulate(model);
    rows.push_back({std::to_string(shards), Number(got.tasks_per_second), Number(got.control_busy * 100)});
    shards_line.points.emplace_back(shards, got.tasks_per_second);
  }
  figure.Table(rows);

  figure.Say(
      "## Simulated: where it stops. 100 nodes, every task of 10 ms asks the global scheduler by itself, 576,000 /s\n");
  rows = {{"global schedulers", "tasks/s (simulated)", "wait mean us", "busiest scheduler %"}};
  paper::Series replicas_line{"global schedulers, tasks of 10 ms that all ask", paper::Mark::kSimulated, {}};
  for (const std::uint32_t replicas : {1U, 2U, 4U, 8U}) {
    if (figure.quick() && replicas > 2) break;
    manta::sim::Model model = Model(100, figure.Pick<std::uint64_t>(2'000, 200), 0, task_us);
    model.arrivals = {};
    model.classes[0].mean_us = 10'000;
    model.classes[0].length = manta::sim::Length::kExponential;
    model.always_up = true;
    model.replicas = replicas;
    const manta::sim::Figures got = Simulate(model);
    rows.push_back({std::to_string(replicas), Number(got.tasks_per_second), Number(got.wait_mean_us),
                    Number(got.scheduler_busy * 100)});
    replicas_line.points.emplace_back(replicas, got.tasks_per_second);
  }
  figure.Table(rows);

  figure.Draw({.title = "Empty tasks a second by number of nodes",
               .note = {},
               .x = {"nodes", true, ""},
               .y = {"tasks/s", true, ""},
               .series = {real, simulated, {"the paper", paper::Mark::kPaper, {{60, 1e6}, {100, 1.8e6}}}}});
  figure.Draw({.title = "Simulated: 100 nodes by number of control shards and global schedulers",
               .note = {},
               .x = {"shards or schedulers", true, ""},
               .y = {"tasks/s", true, ""},
               .series = {shards_line, replicas_line}},
              "limits");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 6 && std::string(argv[1]) == "--drive") {
      return Drive(argv[2], std::atof(argv[3]), std::atof(argv[4]), std::string(argv[5]) == "spread");
    }
    Measure(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
