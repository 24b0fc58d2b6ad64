#include <gtest/gtest.h>

#include "sim/chain_run.h"

namespace manta::sim {
namespace {

std::string First(const ChainFigures& figures) {
  return figures.violations.empty() ? std::string() : figures.violations.front();
}

TEST(ChainRun, WithoutFaultsEverythingIsAnswered) {
  ChainModel model;
  model.fault_us = 0;
  model.loss = model.doubled = model.slow = 0;
  const ChainFigures figures = RunChain(model);
  EXPECT_EQ(First(figures), "");
  EXPECT_GT(figures.writes, 100U);
  EXPECT_GT(figures.reads, 100U);
  EXPECT_EQ(figures.refills, 0U);
}

TEST(ChainRun, ManySeeds) {
  ChainFigures all;
  int bad = 0;
  const char* from = std::getenv("SEED");
  const std::uint64_t begin = from ? std::strtoull(from, nullptr, 10) : 1;
  for (std::uint64_t seed = begin; seed < begin + 2'000; ++seed) {
    ChainModel model;
    model.seed = seed;
    model.members = 2 + static_cast<std::uint32_t>(seed % 3);
    const ChainFigures figures = RunChain(model);
    EXPECT_EQ(First(figures), "") << "seed " << seed;
    if (!figures.violations.empty() && ++bad > 4) return;
    all.events += figures.events;
    all.writes += figures.writes;
    all.reads += figures.reads;
    all.unknown += figures.unknown;
    all.epochs += figures.epochs;
    all.crashes += figures.crashes;
    all.master_crashes += figures.master_crashes;
    all.partitions += figures.partitions;
    all.refills += figures.refills;
    all.copied += figures.copied;
    all.seconds += figures.seconds;
  }
  std::printf("%.0f virtual seconds, events %lu, writes %lu, reads %lu, unknown %lu, epochs %lu, crashes %lu, master %lu, "
              "partitions %lu, refills %lu, copied %lu\n",
              all.seconds, all.events, all.writes, all.reads, all.unknown, all.epochs, all.crashes, all.master_crashes,
              all.partitions, all.refills, all.copied);
}

}  // namespace
}  // namespace manta::sim
