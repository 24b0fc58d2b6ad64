#include "rules/lineage.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace manta::rules {
namespace {

// Values are numbers from 1; a value's task is `makers[value]`, or itself.
struct Toy {
  std::map<int, Presence> values;  // others are here
  std::map<int, int> makers;
  std::map<int, std::vector<int>> inputs;

  [[nodiscard]] Presence PresenceOf(int value) const {
    const auto it = values.find(value);
    return it == values.end() ? Presence::kHere : it->second;
  }
  [[nodiscard]] int TaskOf(int value) const {
    const auto it = makers.find(value);
    return it == makers.end() ? value : it->second;
  }
  [[nodiscard]] int InputOf(int task, std::size_t i) const {
    const auto it = inputs.find(task);
    return it == inputs.end() || i >= it->second.size() ? 0 : it->second[i];
  }
};

TEST(Lineage, AValueThatIsHereNeedsNothing) {
  const Toy toy{{}, {}, {{2, {1}}}};
  const RebuildPlan<int> plan = PlanRebuild<int>(toy, 2);
  EXPECT_TRUE(plan.tasks.empty());
  EXPECT_EQ(plan.hopeless, 0);
}

TEST(Lineage, LostInputsComeFirstAndInputsThatAreHereStay) {
  const Toy toy{{{2, Presence::kMissing}, {3, Presence::kMissing}}, {}, {{2, {1}}, {3, {2, 1}}}};
  EXPECT_EQ(PlanRebuild<int>(toy, 3).tasks, (std::vector<int>{2, 3}));
}

TEST(Lineage, WhatComesAlreadyIsWaitedForAndNotStartedAgain) {
  const Toy toy{{{1, Presence::kMissing}, {2, Presence::kComing}, {3, Presence::kMissing}}, {}, {{2, {1}}, {3, {2}}}};
  EXPECT_EQ(PlanRebuild<int>(toy, 3).tasks, (std::vector<int>{3}));
}

TEST(Lineage, ADiamondRunsItsSharedInputOnce) {
  const Toy toy{{{1, Presence::kMissing}, {2, Presence::kMissing}, {3, Presence::kMissing}, {4, Presence::kMissing}},
                {},
                {{2, {1}}, {3, {1, 1}}, {4, {2, 3}}}};
  EXPECT_EQ(PlanRebuild<int>(toy, 4).tasks, (std::vector<int>{1, 2, 3, 4}));
}

TEST(Lineage, TwoResultsOfOneTaskRunItOnce) {
  const Toy toy{{{11, Presence::kMissing}, {12, Presence::kMissing}, {2, Presence::kMissing}},
                {{11, 1}, {12, 1}},
                {{2, {11, 12}}}};
  EXPECT_EQ(PlanRebuild<int>(toy, 2).tasks, (std::vector<int>{1, 2}));
}

TEST(Lineage, OneHopelessInputAnywhereStopsAllAndIsNamed) {
  const Toy toy{{{1, Presence::kMissing}, {2, Presence::kHopeless}, {3, Presence::kMissing}, {4, Presence::kMissing}},
                {},
                {{3, {1, 2}}, {4, {3}}}};
  const RebuildPlan<int> plan = PlanRebuild<int>(toy, 4);
  EXPECT_TRUE(plan.tasks.empty());
  EXPECT_EQ(plan.hopeless, 2);
}

TEST(Lineage, AValueThatIsLostIsMadeAgainIfItsTaskCanRunAgainAndIsGivenUpInTheEnd) {
  ValueFacts value;
  value.rebuildable = true;
  EXPECT_EQ(PresenceOf(value), Presence::kComing);
  value.done = true;
  EXPECT_EQ(PresenceOf(value), Presence::kHere);
  value.missing = true;
  for (value.rebuilds = 0; value.rebuilds < kMostRebuilds; ++value.rebuilds) {
    EXPECT_EQ(PresenceOf(value), Presence::kMissing);
  }
  EXPECT_EQ(PresenceOf(value), Presence::kHopeless);
  value.done = false;
  EXPECT_EQ(PresenceOf(value), Presence::kComing) << "its last run is not over";
  value = {true, false, true, false, 0};
  EXPECT_EQ(PresenceOf(value), Presence::kHopeless) << "nobody can make it";
  value = {true, true, false, true, 0};
  EXPECT_EQ(PresenceOf(value), Presence::kHopeless) << "it failed";
}

TEST(Lineage, AChainOfAMillionIsPlannedWithoutRecursion) {
  struct Chain {
    [[nodiscard]] static Presence PresenceOf(int /*value*/) { return Presence::kMissing; }
    [[nodiscard]] static int TaskOf(int value) { return value; }
    [[nodiscard]] static int InputOf(int task, std::size_t i) { return i == 0 ? task - 1 : 0; }
  };
  const RebuildPlan<int> plan = PlanRebuild<int>(Chain{}, 1'000'000);
  ASSERT_EQ(plan.tasks.size(), 1'000'000U);
  EXPECT_EQ(plan.tasks.front(), 1);
  EXPECT_EQ(plan.tasks.back(), 1'000'000);
}

TEST(Lineage, OnRandomGraphsAPlanIsOrderedNeededAndComplete) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    Toy toy;
    const int count = 2 + static_cast<int>(random() % 60);
    for (int i = 1; i <= count; ++i) {
      toy.values[i] = random() % 3 == 0 ? Presence::kHere : random() % 5 == 0 ? Presence::kComing : Presence::kMissing;
      for (unsigned n = random() % 4; n > 0 && i > 1; --n) {
        toy.inputs[i].push_back(1 + static_cast<int>(random() % static_cast<unsigned>(i - 1)));
      }
    }
    const RebuildPlan<int> plan = PlanRebuild<int>(toy, count);
    std::set<int> made;
    std::set<int> needed{count};
    for (const int task : plan.tasks) {
      EXPECT_EQ(toy.values[task], Presence::kMissing);
      for (const int input : toy.inputs[task]) {
        EXPECT_TRUE(toy.values[input] != Presence::kMissing || made.contains(input)) << "seed " << seed;
        needed.insert(input);
      }
      EXPECT_TRUE(made.insert(task).second) << "twice; seed " << seed;
    }
    for (const int task : plan.tasks) EXPECT_TRUE(needed.contains(task)) << "for nothing; seed " << seed;
    EXPECT_EQ(made.contains(count), toy.values[count] == Presence::kMissing);
  }
}

}  // namespace
}  // namespace manta::rules
