#include <gtest/gtest.h>

#include <cmath>

#include "manta/tune/schedule.h"
#include "tune/search/traces.h"

namespace manta::tune {
namespace {

using Kind = Decision::Kind;

std::string Text(const Orders& orders) {
  std::string text;
  for (const auto& order : orders) {
    text += (order.kind == Order::Kind::kStop ? "stop " : "resume ") + std::to_string(order.trial) + " ";
  }
  return text;
}

// The first three trials fill the bracket that never halves; trials 3 to 7 are in one that halves once.
struct OneBracket {
  std::unique_ptr<Scheduler> scheduler = MakeScheduler(HyperBand{.mode = Mode::kMax, .max_t = 9});
  TraceStates states;
  OneBracket() { Add(0, 8); }
  void Add(TrialNumber from, TrialNumber to) {
    for (TrialNumber trial = from; trial < to; ++trial) {
      (void)scheduler->OnAdd(trial);
      states.of[trial] = TrialState::kRunning;
    }
  }
  Decision Report(TrialNumber trial, double time, double value) {
    Decision decision = scheduler->OnResult(trial, time, value, states);
    if (decision.kind == Kind::kPause) states.of[trial] = TrialState::kPaused;
    return decision;
  }
};

TEST(HyperBand, ATrialWaitsAtItsMilestoneUntilTheBracketIsComplete) {
  OneBracket run;
  EXPECT_EQ(run.Report(3, 2, 0.3).kind, Kind::kContinue);
  for (TrialNumber trial : {3, 4, 5, 6}) EXPECT_EQ(run.Report(trial, 3, 0.1 * trial).kind, Kind::kPause);
  EXPECT_FALSE(run.scheduler->Choose(run.states));
  Decision last = run.Report(7, 3, 0.1);  // of five trials two go on
  EXPECT_EQ(last.kind, Kind::kStop);
  EXPECT_EQ(Text(last.orders), "stop 3 stop 4 resume 5 resume 6 ");
  EXPECT_EQ(run.scheduler->Choose(run.states), 5);
}

TEST(HyperBand, AnErrorAfterTheFirstHalvingDoesNotBlockTheBracket) {
  OneBracket run;
  for (TrialNumber trial : {3, 4, 5, 6, 7}) (void)run.Report(trial, 3, 0.1 * trial);
  run.states.of[6] = TrialState::kRunning;
  EXPECT_EQ(run.Report(6, 9, 0.5).kind, Kind::kPause);
  EXPECT_EQ(Text(run.scheduler->OnError(7, run.states)), "");  // the bracket is finished, 6 waits
  run.states.of[7] = TrialState::kEnded;
  OneBracket three;  // a bracket that halves twice
  three.Add(8, 17);
  for (TrialNumber trial = 8; trial < 17; ++trial) (void)three.Report(trial, 1, 0.01 * static_cast<double>(trial));
  for (TrialNumber trial : {14, 15}) {
    three.states.of[trial] = TrialState::kRunning;
    EXPECT_EQ(three.Report(trial, 3, 0.01 * static_cast<double>(trial)).kind, Kind::kPause);
  }
  EXPECT_EQ(Text(three.scheduler->OnError(16, three.states)), "stop 14 resume 15 ");
}

TEST(HyperBand, AllTrialsPastTheNextMilestoneAreHalvedAgain) {
  OneBracket run;
  run.Add(8, 17);  // milestones 1, 3, 9
  for (TrialNumber trial = 8; trial < 16; ++trial) {
    EXPECT_EQ(run.Report(trial, 5, 0.01 * static_cast<double>(trial)).kind, Kind::kPause);
  }
  Decision decision = run.Report(16, 5, 1);
  EXPECT_EQ(decision.kind, Kind::kContinue);
  EXPECT_EQ(decision.orders.size(), 8U);
}

TEST(HyperBand, ATrialThatIsPendingAgainCanStart) {
  OneBracket run;
  (void)run.Report(3, 1, 0.5);
  run.states.of[3] = TrialState::kPending;
  EXPECT_FALSE(run.scheduler->Choose(run.states));
  run.scheduler->OnPending(3);
  EXPECT_EQ(run.scheduler->Choose(run.states), 3);
}

TEST(HyperBand, WithoutStoppingTheLastTrialsRunOn) {
  auto hyperband = MakeScheduler(HyperBand{.max_t = 1, .stop_last_trials = false});
  TraceStates states;
  (void)hyperband->OnAdd(0);
  EXPECT_EQ(hyperband->OnResult(0, 100, 1, states).kind, Kind::kContinue);
}

TEST(HyperBandForBohb, FillsTheLargestBracketFirstAndNamesTheBudget) {
  auto bohb = MakeScheduler(HyperBandForBohb{.max_t = 9});
  TraceStates states;
  for (TrialNumber trial = 0; trial < 2; ++trial) {
    (void)bohb->OnAdd(trial);
    states.of[trial] = TrialState::kRunning;
  }
  for (TrialNumber trial = 0; trial < 2; ++trial) {
    Decision decision = bohb->OnResult(trial, 1, static_cast<double>(trial), states);
    EXPECT_EQ(decision.kind, Kind::kPause);  // seven more trials belong to the bracket
    EXPECT_EQ(decision.budget, 1);
    states.of[trial] = TrialState::kPaused;
  }
  Orders orders;  // nothing runs: the bracket is halved as it is
  EXPECT_EQ(bohb->Choose(states, orders), 0);
  EXPECT_EQ(Text(orders), "resume 1 resume 0 ");
}

TEST(HyperBand, BadOptionsAndUnknownTrialsAreRefused) {
  EXPECT_THROW(MakeScheduler(HyperBand{.max_t = 0}), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(HyperBand{.reduction_factor = 1}), std::invalid_argument);
  EXPECT_THROW((void)MakeScheduler(HyperBand{})->OnResult(1, 1, 1, TraceStates()), std::invalid_argument);
}

TEST(PromotingAsha, APausedTrialIsPromotedWhenLaterTrialsAreWorse) {
  auto asha = MakeScheduler(Asha{.mode = Mode::kMax, .max_t = 9, .reduction_factor = 3, .promote = true});
  TraceStates states;
  for (TrialNumber trial = 0; trial < 6; ++trial) {
    (void)asha->OnAdd(trial);
    states.of[trial] = TrialState::kPending;
  }
  auto run = [&](TrialNumber trial, double time, double value) {
    states.of[trial] = TrialState::kRunning;
    auto kind = asha->OnResult(trial, time, value, states).kind;
    states.of[trial] = kind == Kind::kPause ? TrialState::kPaused : TrialState::kRunning;
    return kind;
  };
  EXPECT_EQ(run(0, 1, 0.5), Kind::kPause);
  EXPECT_EQ(run(1, 1, 0.4), Kind::kPause);
  EXPECT_EQ(asha->Choose(states), 2);       // a new trial: no third of two
  EXPECT_EQ(run(2, 1, 0.3), Kind::kPause);  // now trial 0 is the best third
  EXPECT_EQ(asha->Choose(states), 0);
  states.of[0] = TrialState::kRunning;
  EXPECT_EQ(asha->Choose(states), 3);
  EXPECT_EQ(run(3, 1, 0.6), Kind::kContinue);  // the best of four: promoted at once
  EXPECT_EQ(run(0, 3, 0.7), Kind::kPause);
  EXPECT_EQ(run(3, 3, std::nan("")), Kind::kPause);
  EXPECT_EQ(run(4, 1, 0.1), Kind::kPause);
  EXPECT_EQ(run(5, 1, 0.2), Kind::kPause);
  EXPECT_FALSE(asha->Choose(states));  // 3 and 0 are the best two of six, and have gone on
  Orders orders;
  states.may_add = true;
  EXPECT_FALSE(asha->Choose(states, orders));
  EXPECT_TRUE(orders.empty());
  states.may_add = false;
  EXPECT_FALSE(asha->Choose(states, orders));
  EXPECT_EQ(Text(orders), "stop 0 stop 1 stop 2 stop 3 stop 4 stop 5 ");
}

TEST(PromotingAsha, TheHighestMilestoneIsPromotedFirstAndSurvivesSaveAndLoad) {
  Asha options{.mode = Mode::kMax, .max_t = 27, .reduction_factor = 2, .promote = true};
  auto asha = MakeScheduler(options);
  TraceStates states;
  auto run = [&](TrialNumber trial, double time, double value) {
    states.of[trial] = TrialState::kRunning;
    auto kind = asha->OnResult(trial, time, value, states).kind;
    states.of[trial] = kind == Kind::kPause ? TrialState::kPaused : TrialState::kRunning;
  };
  for (TrialNumber trial = 0; trial < 4; ++trial) (void)asha->OnAdd(trial);
  run(0, 1, 1);
  run(1, 1, 0.5);
  run(0, 2, 1);
  run(2, 1, 2);  // promoted at once
  run(2, 2, 0.9);
  run(3, 1, 0.1);
  std::string saved = asha->Save();
  asha = MakeScheduler(options);
  asha->Load(saved);
  EXPECT_EQ(asha->Choose(states), 0);  // the best half at milestone 2
  (void)asha->OnRemove(0, states);
  EXPECT_NE(asha->Choose(states), 0);
}

}  // namespace
}  // namespace manta::tune
