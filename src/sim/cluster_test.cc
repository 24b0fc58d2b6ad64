#include <gtest/gtest.h>

#include "sim/broadcast_run.h"
#include "sim/histogram.h"
#include "sim/model.h"
#include "sim/scenarios.h"

namespace manta::sim {
namespace {

Resources Cpus(double cpus, double gpus = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  return out;
}

// Ten nodes of eight cores, tasks of 10 ms.
Model Small(std::uint64_t tasks = 20'000) {
  Model model;
  model.tasks = tasks;
  model.nodes = {{10, Cpus(8), 1}};
  TaskClass task;
  task.need = Cpus(1);
  model.classes = {task};
  return model;
}

TEST(Simulator, TheSameSeedGivesTheSameTraceAndAnotherSeedAnother) {
  Model model = Small();
  model.arrivals.burst_share = 0.5;
  model.arrivals.burst = 300;
  model.replicas = 2;
  model.control.shards = 2;
  const Figures one = Simulate(model);
  const Figures two = Simulate(model);
  EXPECT_EQ(one.trace, two.trace);
  EXPECT_EQ(one.events, two.events);
  EXPECT_EQ(one.wait_p99_us, two.wait_p99_us);
  model.seed = 2;
  EXPECT_NE(Simulate(model).trace, one.trace);
}

TEST(Simulator, EveryTaskRunsOnce) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Model model = Small();
    model.seed = seed;
    model.arrivals.burst_share = 0.8;
    model.arrivals.burst = 500;
    model.heartbeat_us = 500'000;
    const Figures got = Simulate(model);
    EXPECT_EQ(got.tasks, model.tasks);
    EXPECT_EQ(got.local + got.remote, model.tasks);
    EXPECT_EQ(got.infeasible, 0U);
    EXPECT_LE(got.busy, 1.0) << "never over-committed";
    EXPECT_GT(got.remote, 0U);
  }
}

TEST(Simulator, WithRoomEverythingStaysWhereItWasSubmitted) {
  Model model = Small();
  model.arrivals.load = 0.3;
  const Figures got = Simulate(model);
  EXPECT_EQ(got.remote, 0U);
  EXPECT_EQ(got.requests, 0U) << "nothing goes up while the node has room";
}

TEST(Simulator, AnOverloadedNodesTasksGoToIdleOnes) {
  Model model = Small();
  model.arrivals.load = 0.6;
  model.arrivals.hot_nodes = 0.1;
  model.arrivals.hot_share = 1;
  const Figures spread = Simulate(model);
  model.spill = false;
  const Figures alone = Simulate(model);
  EXPECT_GT(spread.remote, model.tasks / 2);
  EXPECT_LT(spread.seconds * 3, alone.seconds);
  EXPECT_LT(spread.wait_p99_us * 10, alone.wait_p99_us);
}

TEST(Simulator, TasksThatNeedAGpuGoWhereThereIsOneAndOthersAreRefused) {
  Model model = Small(5'000);
  model.nodes = {{9, Cpus(8), 1}, {1, Cpus(8, 4), 1}};
  TaskClass device = model.classes[0];
  device.need = Cpus(1, 1);
  device.weight = 0.02;
  model.classes.push_back(device);
  const Figures got = Simulate(model);
  EXPECT_EQ(got.tasks, model.tasks);
  EXPECT_GT(got.remote, 0U);
  model.nodes = {{10, Cpus(8), 1}};
  const Figures none = Simulate(model);
  EXPECT_GT(none.infeasible, 0U);
  EXPECT_EQ(none.tasks + none.infeasible, model.tasks);
}

TEST(Simulator, LatencyWithLocalityDoesNotDependOnTheInputsSize) {
  const auto latency = [](double mb, bool aware) {
    Model model = Small(500);
    model.nodes = {{2, Cpus(8), 1}};
    model.classes[0].input_bytes = static_cast<std::uint64_t>(mb * 1e6);
    model.classes[0].mean_us = 1'000;
    model.arrivals.submit_us = 50'000;
    model.locality = aware;
    return Simulate(model).latency_mean_us;
  };
  EXPECT_LT(latency(100, true), 2 * latency(0.1, true));
  EXPECT_GT(latency(100, false), 10 * latency(100, true));
}

TEST(Simulator, ThroughputGrowsWithTheNodes) {
  const auto rate = [](std::uint32_t nodes) {
    Model model = Small(2'000ULL * nodes);
    model.nodes[0].count = nodes;
    model.classes[0].mean_us = 0;
    model.classes[0].length = Length::kFixed;
    model.arrivals.submit_us = 0.5;
    model.arrivals.batch = 16;
    return Simulate(model).tasks_per_second;
  };
  EXPECT_GT(rate(100), 8 * rate(10));
}

TEST(Simulator, AFullControlStoreHoldsTheOwnersBack) {
  Model model = Small(2'000'000);
  model.classes[0].mean_us = 0;
  model.classes[0].length = Length::kFixed;
  model.arrivals.submit_us = 0.5;
  model.arrivals.batch = 16;
  model.control.shards = 1;
  const Figures one = Simulate(model);
  model.control.shards = 4;
  const Figures four = Simulate(model);
  EXPECT_GT(one.control_busy, 0.9);
  EXPECT_GT(four.tasks_per_second, 2 * one.tasks_per_second);
}

TEST(Simulator, AGigabyteReachesFiftyNodesWithinASecondAndLeavesTheSourceTwice) {
  BroadcastModel model;
  const BroadcastFigures got = RunBroadcast(model);
  EXPECT_LE(got.seconds, 1.0);
  EXPECT_EQ(got.served, 50U);
  EXPECT_LE(got.source_copies, 2U);
  EXPECT_EQ(RunBroadcast(model).trace, got.trace);
  model.deaths = 10;
  for (model.seed = 1; model.seed <= 5; ++model.seed) {
    const BroadcastFigures again = RunBroadcast(model);
    EXPECT_GE(again.served, 40U);
    EXPECT_LE(again.seconds, 1.5);
  }
}

TEST(Simulator, QuantilesAreRightWithinABucket) {
  Histogram histogram;
  for (int i = 1; i <= 100'000; ++i) histogram.Add(i * 1'000LL);
  EXPECT_NEAR(histogram.QuantileUs(0.5), 50'000, 50'000 / 15.0);
  EXPECT_NEAR(histogram.QuantileUs(0.99), 99'000, 99'000 / 15.0);
  EXPECT_EQ(histogram.MostUs(), 100'000);
  EXPECT_NEAR(histogram.MeanUs(), 50'000.5, 0.01);
}

TEST(Simulator, EveryScenarioRuns) {
  Settings settings;
  settings.nodes = 4;
  settings.cores = 4;
  settings.tasks = 300;
  for (const Scenario& scenario : Scenarios()) {
    const std::vector<Table> tables = scenario.run(settings);
    ASSERT_FALSE(tables.empty()) << scenario.name;
    for (const Table& table : tables) EXPECT_FALSE(table.rows.empty()) << scenario.name;
    EXPECT_EQ(scenario.run(settings)[0].trace, tables[0].trace) << scenario.name;
  }
}

}  // namespace
}  // namespace manta::sim
