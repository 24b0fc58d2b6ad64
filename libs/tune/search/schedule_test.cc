#include "manta/tune/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <sstream>

#include "tune/search/ray_traces.h"

namespace manta::tune {
namespace {

struct States : TrialStates {
  std::optional<TrialNumber> pending, paused;
  std::optional<TrialNumber> FirstPending() const override { return pending; }
  std::optional<TrialNumber> FirstPaused() const override { return paused; }
  TrialState Get(TrialNumber trial) const override {
    auto found = of.find(trial);
    return found == of.end() ? TrialState::kRunning : found->second;
  }
  bool AnyRunning() const override { return false; }
  std::map<TrialNumber, TrialState> of;
};

template <class Trace>
void ExpectRaysDecisions(const Trace& trace) {
  auto scheduler = MakeScheduler(trace.options);
  States states;
  if (trace.waiting) states.pending = 1000;
  std::set<TrialNumber> added;
  std::istringstream events(trace.events);
  int n = 0;
  for (std::string event; events >> event; ++n) {
    char* next = event.data();
    TrialNumber trial = std::strtol(next, &next, 10);
    double time = std::strtod(next + 1, &next);
    double value = std::strtod(next + 1, &next);
    if (added.insert(trial).second) scheduler->OnAdd(trial);
    auto kind = scheduler->OnResult(trial, time, value, states).kind;
    ASSERT_EQ("CPS"[static_cast<int>(kind)], next[1]) << "event " << n << ": " << event;
  }
  EXPECT_GT(n, 20);
}

TEST(Asha, DecidesAsRayOnRecordedEvents) {
  for (const AshaTrace& trace : kAshaTraces) ExpectRaysDecisions(trace);
}

TEST(MedianStopping, DecidesAsRayOnRecordedEvents) {
  for (const MedianTrace& trace : kMedianTraces) ExpectRaysDecisions(trace);
}

TEST(Asha, TheCutOffIsTheInterpolatedPercentile) {  // the example in the comment of Ray's bracket
  auto asha = MakeScheduler(Asha{.mode = Mode::kMax, .max_t = 10, .reduction_factor = 2});
  States states;
  for (TrialNumber trial : {1, 2, 3}) asha->OnAdd(trial);
  EXPECT_EQ(asha->OnResult(1, 1, 2, states).kind, Decision::Kind::kContinue);
  EXPECT_EQ(asha->OnResult(2, 1, 4, states).kind, Decision::Kind::kContinue);
  EXPECT_EQ(asha->OnResult(3, 1, 2.99, states).kind, Decision::Kind::kStop);  // the cut-off is 3
}

TEST(Asha, ALowerValueIsBetterWhenTheModeIsMin) {
  auto asha = MakeScheduler(Asha{.mode = Mode::kMin, .max_t = 10, .reduction_factor = 2});
  States states;
  for (TrialNumber trial : {1, 2}) asha->OnAdd(trial);
  (void)asha->OnResult(1, 1, 2, states);
  EXPECT_EQ(asha->OnResult(2, 1, 3, states).kind, Decision::Kind::kStop);
}

TEST(Asha, BadOptionsAndUnknownTrialsAreRefused) {
  EXPECT_THROW(MakeScheduler(Asha{.max_t = 1, .grace_period = 2}), std::invalid_argument);
  EXPECT_THROW((void)MakeScheduler(Asha{})->OnResult(1, 1, 1, States()), std::invalid_argument);
}

TEST(Fifo, ChoosesAPendingTrialBeforeAPausedOne) {
  auto fifo = MakeScheduler(Fifo{});
  States states;
  EXPECT_FALSE(fifo->Choose(states));
  states.paused = 1;
  EXPECT_EQ(fifo->Choose(states), 1);
  states.pending = 2;
  EXPECT_EQ(fifo->Choose(states), 2);
  EXPECT_EQ(fifo->OnResult(2, 1, std::nan(""), states).kind, Decision::Kind::kContinue);
}

}  // namespace
}  // namespace manta::tune
