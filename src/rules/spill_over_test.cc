#include "rules/spill_over.h"

#include <gtest/gtest.h>

#include <random>

namespace manta::rules {
namespace {

Resources Cpus(double cpus, double gpus = 0) {
  Resources out;
  out.Set("CPU", static_cast<std::int64_t>(cpus * kUnit));
  out.Set("GPU", static_cast<std::int64_t>(gpus * kUnit));
  return out;
}

// A node of four CPUs and one class of one-CPU tasks of 10 ms.
struct Node {
  explicit Node(const Resources& total = Cpus(4)) : load(total), free(total) {
    one = load.Index(7, Cpus(1));
    load.Ran(one, 10'000);
  }
  SpillOver::Verdict Decide(std::int64_t waiting) {
    load.Queued(one, waiting - load.queued(one));
    return SpillOver({20'000, 10'000}).Decide(load, one, free, {waiting});
  }
  NodeLoad load;
  Resources free;
  std::size_t one = 0;
};

TEST(SpillOver, WhatFitsStays) {
  Node node;
  const auto verdict = node.Decide(4);
  EXPECT_EQ(verdict.keep, 4);
  EXPECT_EQ(verdict.why, SpillOver::Why::kRoom);
}

TEST(SpillOver, AShortQueueStays) {
  Node node;
  node.free = Cpus(0);
  const auto verdict = node.Decide(8);  // two rounds of 10 ms on four CPUs: just the threshold
  EXPECT_EQ(verdict.up, 0);
  EXPECT_EQ(verdict.why, SpillOver::Why::kShortWait);
}

TEST(SpillOver, OnlyWhatIsBeyondTheThresholdGoesUp) {
  Node node;
  node.free = Cpus(0);
  const auto verdict = node.Decide(100);
  EXPECT_EQ(verdict.keep, 8);
  EXPECT_EQ(verdict.up, 92);
  EXPECT_EQ(verdict.why, SpillOver::Why::kOverload);
}

TEST(SpillOver, FreeCpusKeepTheirShareToo) {
  Node node;
  EXPECT_EQ(node.Decide(100).keep, 12);
}

TEST(SpillOver, AMissingResourceSendsAllUp) {
  Node node;
  const std::size_t gpu = node.load.Index(8, Cpus(1, 1));
  node.load.Queued(gpu, 3);
  const auto verdict = SpillOver().Decide(node.load, gpu, node.free, {3});
  EXPECT_EQ(verdict.up, 3);
  EXPECT_EQ(verdict.why, SpillOver::Why::kMissing);
}

TEST(SpillOver, ADrainingNodeAndOneThatIsNotMeantKeepNothing) {
  Node node;
  EXPECT_EQ(SpillOver().Decide(node.load, node.one, node.free, {5, false, 0, true}).why, SpillOver::Why::kDraining);
  EXPECT_EQ(SpillOver().Decide(node.load, node.one, node.free, {5, true}).up, 5);
}

TEST(SpillOver, TasksWhoseInputsAreFarGoUp) {
  Node node;
  EXPECT_EQ(SpillOver().Decide(node.load, node.one, node.free, {5, false, 100}).up, 0)
      << "fetched before one could ask";
  EXPECT_EQ(SpillOver().Decide(node.load, node.one, node.free, {5, false, 50'000}).up, 5);
}

TEST(SpillOver, TheTasksOfOtherClassesCountInTheWait) {
  Node node;
  node.free = Cpus(0);
  const std::size_t other = node.load.Index(9, Cpus(2));
  node.load.Ran(other, 100'000);
  node.load.Queued(other, 1);  // 2 CPUs for 100 ms: 50 ms of the node
  EXPECT_EQ(node.Decide(5).up, 5);
}

TEST(SpillOver, ATaskFromAboveIsTakenIfItWaitsNotMuchLongerThanExpected) {
  Node node;
  const SpillOver rule({20'000, 10'000});
  EXPECT_TRUE(rule.Take(node.load, node.one, node.free, 0, false, false));
  node.free = Cpus(0);
  node.load.Queued(node.one, 20);  // 50 ms, and its own turn of 2.5
  EXPECT_FALSE(rule.Take(node.load, node.one, node.free, 30'000, false, false));
  EXPECT_TRUE(rule.Take(node.load, node.one, node.free, 45'000, false, false)) << "everywhere is full";
  EXPECT_TRUE(rule.Take(node.load, node.one, node.free, 0, true, false)) << "it bounced often enough";
  EXPECT_FALSE(rule.Take(node.load, node.one, node.free, 0, true, true)) << "draining";
}

TEST(SpillOver, AnUnknownRunTimeIsGuessedUntilTheFirstHasRun) {
  NodeLoad load(Cpus(1));
  const std::size_t one = load.Index(1, Cpus(1));
  EXPECT_EQ(load.MeanRunUs(one), NodeLoad::kGuessUs);
  load.Hint(one, 500);
  EXPECT_EQ(load.MeanRunUs(one), 500);
  load.Ran(one, 70);
  EXPECT_EQ(load.MeanRunUs(one), 70);
}

TEST(SpillOver, NothingIsLostAndWhatStaysWaitsNoLongerThanTheThresholdInAnyRandomState) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 5'000; ++round) {
    const auto cpus = static_cast<double>(1 + random() % 64);
    NodeLoad load(Cpus(cpus, static_cast<double>(random() % 4)));
    const SpillOver rule({static_cast<double>(random() % 50'000), 0});
    const std::size_t one =
        load.Index(1, Cpus(static_cast<double>(1 + random() % 4), static_cast<double>(random() % 2)));
    load.Ran(one, static_cast<double>(1 + random() % 100'000));
    const Resources free = Cpus(static_cast<double>(random() % (static_cast<unsigned>(cpus) + 1)));
    const auto waiting = static_cast<std::int64_t>(random() % 1'000);
    load.Queued(one, waiting);
    const auto verdict = rule.Decide(load, one, free, {waiting});
    ASSERT_EQ(verdict.keep + verdict.up, waiting);
    ASSERT_GE(verdict.keep, 0);
    ASSERT_GE(verdict.up, 0);
    if (!load.total().Covers(load.need(one))) {
      ASSERT_EQ(verdict.keep, 0);
    } else if (verdict.why == SpillOver::Why::kOverload) {
      load.Queued(one, -verdict.up);
      ASSERT_EQ(rule.Decide(load, one, free, {verdict.keep}).up, 0) << "asked again, it stays";
    }
  }
}

}  // namespace
}  // namespace manta::rules
