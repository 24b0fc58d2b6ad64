#include "tune/trials/controller.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace manta::tune::trials {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A scheduler whose decisions the test gives.
class Scripted : public Scheduler {
 public:
  explicit Scripted(std::vector<Decision>* script) : script_(script) {}
  Decision OnResult(TrialNumber, const Report&, const TrialStates&) override {
    if (script_->empty()) return {};
    Decision decision = script_->front();
    script_->erase(script_->begin());
    return decision;
  }
  std::string Save() const override { return {}; }
  void Load(std::string_view) override {}

 private:
  std::vector<Decision>* script_;
};

class ControllerTest : public ::testing::Test {
 protected:
  Controller Make(RunRules rules, std::unique_ptr<Stopper> stopper = StopNever()) {
    if (rules.objectives.empty()) rules.objectives = {{"loss", Mode::kMin}};
    return Controller(std::move(rules), MakeSearcher(Space({{"x", Uniform(0, 1)}}), Random{.seed = 1}),
                      std::make_unique<Scripted>(&script_), std::move(stopper));
  }
  std::vector<Action> Step(Controller& controller, decltype(Event::body) body, double seconds = 0) {
    now_ += seconds;
    return controller.Step({now_, std::move(body)});
  }
  std::vector<Action> Begin(Controller& controller, double cpus = 1) {
    std::vector<Action> actions = Step(controller, ResourcesChanged{{{"CPU", cpus}}});
    for (const Trial& trial : controller.trials()) {
      if (trial.process == Trial::Process::kStarting) Step(controller, TrialStarted{trial.number});
    }
    return actions;
  }
  static TrialResult ResultOf(TrialNumber trial, std::int64_t iteration, double loss, bool checkpoint = false) {
    TrialResult result{.trial = trial,
                       .iteration = iteration,
                       .time_total = 1.0 * static_cast<double>(iteration),
                       .metrics = {{"loss", loss}}};
    if (checkpoint) {
      result.checkpoint = Checkpoint{"t" + std::to_string(trial) + "/c" + std::to_string(iteration), iteration - 1,
                                     iteration, result.time_total};
    }
    return result;
  }
  template <class A>
  static std::vector<A> Of(const std::vector<Action>& actions) {
    std::vector<A> found;
    for (const Action& action : actions) {
      if (const auto* one = std::get_if<A>(&action)) found.push_back(*one);
    }
    return found;
  }
  static std::vector<std::string> Dropped(const std::vector<Action>& actions) {
    std::vector<std::string> paths;
    for (const auto& drop : Of<DropCheckpoint>(actions)) paths.push_back(drop.path);
    return paths;
  }

  std::vector<Decision> script_;
  double now_ = 0;
};

TEST_F(ControllerTest, NothingStartsBeforeTheResourcesAreKnown) {
  Controller controller = Make({.num_samples = 2});
  EXPECT_TRUE(Of<StartTrial>(Step(controller, Tick{})).empty());
  EXPECT_EQ(Of<StartTrial>(Step(controller, ResourcesChanged{{{"CPU", 1}}})).size(), 1U);
}

TEST_F(ControllerTest, AsManyTrialsRunAsTheirResourcesFit) {
  RunRules rules{.num_samples = 10};
  rules.resources.bundles = {{{"CPU", 1}}, {{"CPU", 0.5}}};
  Controller controller = Make(std::move(rules));
  EXPECT_EQ(Of<StartTrial>(Begin(controller, 4)).size(), 2U);
  EXPECT_DOUBLE_EQ(controller.ledger().used().at("CPU"), 3);
}

TEST_F(ControllerTest, ATrialGoesFromPendingThroughRunningToTerminatedAndTheRunEnds) {
  Controller controller = Make({.num_samples = 1});
  Begin(controller);
  EXPECT_EQ(controller.trial(0).status, Status::kRunning);
  std::vector<Action> actions = Step(controller, ResultOf(0, 1, 0.5));
  EXPECT_EQ(Of<LogResult>(actions).size(), 1U);
  EXPECT_EQ(Of<ContinueTrial>(actions).size(), 1U);
  actions = Step(controller, TrialFinished{0});
  EXPECT_EQ(controller.trial(0).status, Status::kTerminated);
  EXPECT_EQ(Of<StopTrial>(actions).size(), 1U);
  ASSERT_EQ(Of<EndRun>(actions).size(), 1U);
  EXPECT_EQ(controller.end()->reason, EndReason::kComplete);
  EXPECT_EQ(controller.ledger().used().at("CPU"), 0);
  EXPECT_TRUE(Step(controller, ResultOf(0, 2, 0.1)).empty());  // too late
}

TEST_F(ControllerTest, AResultThatWasSeenBeforeARestartIsAnsweredAndNotLoggedAgain) {
  Controller controller = Make({.num_samples = 1});
  Begin(controller);
  Step(controller, ResultOf(0, 1, 0.5, true));
  Step(controller, ResultOf(0, 2, 0.4));
  std::vector<Action> actions = Step(controller, TrialFailed{0, FailureKind::kWorkerLost, "killed"});
  ASSERT_EQ(Of<StartTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<StartTrial>(actions)[0].checkpoint->iteration, 1);
  EXPECT_EQ(Of<StartTrial>(actions)[0].next_checkpoint, 1);
  Step(controller, TrialStarted{0});
  actions = Step(controller, ResultOf(0, 2, 0.4));
  EXPECT_TRUE(Of<LogResult>(actions).empty());
  EXPECT_EQ(Of<ContinueTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<LogResult>(Step(controller, ResultOf(0, 3, 0.3))).size(), 1U);
  EXPECT_EQ(controller.counts().results, 3);
}

TEST_F(ControllerTest, ErrorsAreRetriedWithGrowingDelaysUntilMaxFailures) {
  RunRules rules{.num_samples = 1};
  rules.failure.max_failures = 2;
  Controller controller = Make(std::move(rules));
  Begin(controller);
  EXPECT_TRUE(Of<StartTrial>(Step(controller, TrialFailed{0, FailureKind::kUserError, "nan"})).empty());
  EXPECT_EQ(controller.trial(0).status, Status::kPending);
  EXPECT_DOUBLE_EQ(controller.next_tick(), now_ + 1);
  EXPECT_EQ(Of<StartTrial>(Step(controller, Tick{}, 1)).size(), 1U);
  Step(controller, TrialFailed{0, FailureKind::kUserError, "nan"});
  EXPECT_DOUBLE_EQ(controller.next_tick(), now_ + 2);
  Step(controller, Tick{}, 2);
  Step(controller, TrialFailed{0, FailureKind::kUserError, "nan"});
  EXPECT_EQ(controller.trial(0).status, Status::kError);
  EXPECT_EQ(controller.trial(0).error, "nan");
  EXPECT_TRUE(controller.ended());
}

TEST_F(ControllerTest, LostProcessesAreNotCountedUnlessAskedOrWithoutEnd) {
  RunRules rules{.num_samples = 1};
  rules.failure.max_lost_in_a_row = 3;
  Controller controller = Make(rules);
  Begin(controller);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Of<StartTrial>(Step(controller, TrialFailed{0, FailureKind::kNodeLost, "node"})).size(), 1U);
    Step(controller, TrialStarted{0});
  }
  Step(controller, TrialFailed{0, FailureKind::kNodeLost, "node"});
  EXPECT_EQ(controller.trial(0).status, Status::kError);
  rules.failure.count_lost = true;
  Controller counted = Make(rules);
  Begin(counted);
  Step(counted, TrialFailed{0, FailureKind::kNodeLost, "node"});
  EXPECT_EQ(counted.trial(0).status, Status::kError);
}

TEST_F(ControllerTest, ALostCheckpointIsReplacedByThePreviousOneAndALineSaysSo) {
  Controller controller = Make({.num_samples = 1});
  Begin(controller);
  Step(controller, ResultOf(0, 1, 0.5, true));
  Step(controller, ResultOf(0, 2, 0.4, true));
  Step(controller, TrialFailed{0, FailureKind::kNodeLost, "node n2"});
  std::vector<Action> actions = Step(controller, TrialFailed{0, FailureKind::kCheckpointLost, "gone"});
  ASSERT_EQ(Of<StartTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<StartTrial>(actions)[0].checkpoint->path, "t0/c1");
  EXPECT_THAT(Of<Announce>(actions)[0].text, HasSubstr("checkpoint t0/c2 cannot be read"));
}

TEST_F(ControllerTest, FailFastStopsTheOthersAndTheRunStaysRestorable) {
  RunRules rules{.num_samples = 3};
  rules.failure.fail_fast = true;
  Controller controller = Make(std::move(rules));
  Begin(controller, 2);
  std::vector<Action> actions = Step(controller, TrialFailed{0, FailureKind::kUserError, "nan"});
  EXPECT_EQ(Of<EndRun>(actions)[0].reason, EndReason::kFailFast);
  EXPECT_EQ(controller.trial(1).status, Status::kPending);
  actions = Step(controller, RunRestored{.resume_errored = true});
  EXPECT_EQ(Of<StartTrial>(actions).size(), 2U);
  EXPECT_EQ(controller.trial(0).status, Status::kRunning);
}

TEST_F(ControllerTest, APausedTrialHoldsItsResourcesUntilItIsSavedAndGoesOnFromThere) {
  script_ = {{.kind = Decision::Kind::kPause}};
  Controller controller = Make({.num_samples = 2, .can_save = true});
  Begin(controller);
  std::vector<Action> actions = Step(controller, ResultOf(0, 1, 0.5));
  EXPECT_EQ(Of<PauseTrial>(actions).size(), 1U);
  EXPECT_EQ(controller.trial(0).status, Status::kPaused);
  EXPECT_TRUE(Of<StartTrial>(actions).empty());
  actions = Step(controller, TrialSaved{0, Checkpoint{"t0/c1", 0, 1, 1}});
  ASSERT_EQ(Of<StartTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<StartTrial>(actions)[0].trial, 1);
  Step(controller, TrialStarted{1});
  actions = Step(controller, TrialFinished{1});
  ASSERT_EQ(Of<StartTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<StartTrial>(actions)[0].checkpoint->path, "t0/c1");
}

TEST_F(ControllerTest, AnExploitKeepsTheProcessAndClonesTheDonorsCheckpoint) {
  Controller controller = Make({.num_samples = 2});
  Begin(controller, 2);
  Step(controller, ResultOf(0, 1, 0.1, true));
  Step(controller, ResultOf(0, 2, 0.1, true));
  script_ = {{.kind = Decision::Kind::kExploit, .exploit = Exploit{0, {{"x", 0.25}}}}};
  std::vector<Action> actions = Step(controller, ResultOf(1, 1, 0.9));
  ASSERT_EQ(Of<ExploitTrial>(actions).size(), 1U);
  EXPECT_EQ(Of<ExploitTrial>(actions)[0].checkpoint->path, "t0/c2");
  EXPECT_EQ(std::get<double>(controller.trial(1).config.at("x")), 0.25);
  EXPECT_TRUE(Of<StopTrial>(actions).empty());
  Step(controller, TrialStarted{1});
  EXPECT_EQ(Of<LogResult>(Step(controller, ResultOf(1, 3, 0.1))).size(), 1U);  // counts on from the donor's iteration
}

TEST_F(ControllerTest, ACheckpointThatWasClonedStaysUntilTheCloneNeedsItNoMore) {
  RunRules rules{.num_samples = 2};
  rules.checkpoint.num_to_keep = 1;
  Controller controller = Make(std::move(rules));
  Begin(controller, 2);
  Step(controller, ResultOf(0, 1, 0.1, true));
  script_ = {{.kind = Decision::Kind::kExploit, .exploit = Exploit{0, {}}}};
  Step(controller, ResultOf(1, 1, 0.9));
  Step(controller, TrialStarted{1});
  EXPECT_TRUE(Dropped(Step(controller, ResultOf(0, 2, 0.1, true))).empty());
  EXPECT_THAT(Dropped(Step(controller, ResultOf(1, 2, 0.1, true))), ElementsAre("t0/c1"));
}

TEST_F(ControllerTest, TheBestCheckpointsAndTheLatestStay) {
  RunRules rules{.num_samples = 1};
  rules.checkpoint = {.num_to_keep = 2, .score_attribute = "loss", .score_order = Mode::kMin};
  Controller controller = Make(std::move(rules));
  Begin(controller);
  Step(controller, ResultOf(0, 1, 0.1, true));
  Step(controller, ResultOf(0, 2, 0.2, true));
  EXPECT_TRUE(Dropped(Step(controller, ResultOf(0, 3, 0.9, true))).empty());  // the worst, but the latest
  EXPECT_THAT(Dropped(Step(controller, ResultOf(0, 4, 0.05, true))), ElementsAre("t0/c3", "t0/c2"));
}

TEST_F(ControllerTest, AClassIsSavedAtItsFrequencyAndAtItsEnd) {
  RunRules rules{.num_samples = 1, .can_save = true};
  rules.checkpoint.frequency = 2;
  rules.checkpoint.at_end = true;
  Controller controller = Make(std::move(rules));
  Begin(controller);
  EXPECT_TRUE(Of<SaveTrial>(Step(controller, ResultOf(0, 1, 0.5))).empty());
  std::vector<Action> actions = Step(controller, ResultOf(0, 2, 0.5));
  EXPECT_EQ(Of<SaveTrial>(actions).size(), 1U);
  EXPECT_TRUE(Of<ContinueTrial>(actions).empty());
  EXPECT_EQ(Of<ContinueTrial>(Step(controller, TrialSaved{0, Checkpoint{"t0/c2", 0, 2, 2}})).size(), 1U);
  TrialResult last = ResultOf(0, 3, 0.4);
  last.done = true;
  actions = Step(controller, std::move(last));
  EXPECT_EQ(Of<SaveTrial>(actions).size(), 1U);
  EXPECT_FALSE(controller.ended());
  actions = Step(controller, TrialSaved{0, Checkpoint{"t0/c3", 1, 3, 3}});
  EXPECT_EQ(Of<StopTrial>(actions).size(), 1U);
  EXPECT_TRUE(controller.ended());
}

TEST_F(ControllerTest, StoppersEndTrialsAndRuns) {
  std::vector<std::unique_ptr<Stopper>> stoppers;
  stoppers.push_back(StopAfterIterations(3));
  stoppers.push_back(StopAtThreshold({{"loss", 5}}));
  stoppers.push_back(StopAfterSeconds(100));
  Controller controller = Make({.num_samples = -1}, StopOnAny(std::move(stoppers)));
  Begin(controller);
  Step(controller, ResultOf(0, 2, 1));
  EXPECT_EQ(controller.trial(0).status, Status::kRunning);
  Step(controller, ResultOf(0, 3, 1));
  EXPECT_EQ(controller.trial(0).status, Status::kTerminated);
  Step(controller, TrialStarted{1});
  Step(controller, ResultOf(1, 1, 5));
  EXPECT_EQ(controller.trial(1).status, Status::kTerminated);
  EXPECT_DOUBLE_EQ(controller.next_tick(), 100);
  Step(controller, Tick{}, 100);
  EXPECT_EQ(controller.end()->reason, EndReason::kStopper);
}

TEST_F(ControllerTest, APlateauStopsATrialWhoseValuesDifferLittle) {
  Controller controller = Make({.num_samples = 1}, StopOnPlateau(TrialPlateau{.metric = "loss"}));
  Begin(controller);
  for (int i = 1; i <= 4; ++i) Step(controller, ResultOf(0, i, 1.0 / i));
  EXPECT_EQ(controller.trial(0).status, Status::kRunning);
  for (int i = 5; i <= 7; ++i) Step(controller, ResultOf(0, i, 0.25));
  EXPECT_EQ(controller.trial(0).status, Status::kTerminated);
}

TEST_F(ControllerTest, TheTimeBudgetEndsTheRunAndItsRunningTrials) {
  Controller controller = Make({.num_samples = 5, .time_budget = 10});
  Begin(controller, 2);
  std::vector<Action> actions = Step(controller, Tick{}, 10);
  EXPECT_EQ(Of<StopTrial>(actions).size(), 2U);
  EXPECT_EQ(controller.end()->reason, EndReason::kTimeBudget);
  EXPECT_EQ(controller.counts().terminated, 2);
}

TEST_F(ControllerTest, AUserStopSavesWhatCanBeSavedAndARestoreGoesOn) {
  Controller controller = Make({.num_samples = 2, .can_save = true});
  Begin(controller, 2);
  Step(controller, ResultOf(0, 1, 1));
  std::vector<Action> actions = Step(controller, UserStop{});
  EXPECT_EQ(Of<PauseTrial>(actions).size(), 2U);
  EXPECT_FALSE(controller.ended());
  Step(controller, TrialSaved{0, Checkpoint{"t0/c1", 0, 1, 1}});
  Step(controller, TrialSaved{1, {}});
  EXPECT_EQ(controller.end()->reason, EndReason::kUserStop);
  actions = Step(controller, RunRestored{});
  ASSERT_EQ(Of<StartTrial>(actions).size(), 2U);
  EXPECT_EQ(Of<StartTrial>(actions)[0].checkpoint->path, "t0/c1");
}

TEST_F(ControllerTest, AMissingMetricEndsTheRunWithTheNamesThatThereAre) {
  Controller controller = Make({.objectives = {{"acuracy", Mode::kMax}}, .num_samples = 3});
  Begin(controller);
  TrialResult result{.trial = 0, .iteration = 1, .metrics = {{"accuracy", 0.5}, {"loss", 1.0}}};
  Step(controller, std::move(result));
  EXPECT_EQ(controller.end()->reason, EndReason::kBadMetric);
  EXPECT_EQ(controller.end()->text,
            "metric \"acuracy\" is not in the result of trial 0; it has: accuracy, loss. Did you mean accuracy?");
}

TEST_F(ControllerTest, NanIsNeverTheBest) {
  Controller controller = Make({.num_samples = 2});
  Begin(controller, 2);
  Step(controller, ResultOf(0, 1, std::nan("")));
  EXPECT_EQ(controller.best(), std::nullopt);
  Step(controller, ResultOf(1, 1, 7));
  EXPECT_EQ(controller.best(), 1);
}

TEST_F(ControllerTest, MaxConcurrentLimitsTheTrialsThatHaveNotEnded) {
  Controller controller = Make({.num_samples = 5, .max_concurrent = 2});
  EXPECT_EQ(Of<StartTrial>(Begin(controller, 8)).size(), 2U);
  EXPECT_EQ(controller.trials().size(), 2U);
  EXPECT_EQ(Of<StartTrial>(Step(controller, TrialFinished{0})).size(), 1U);
}

TEST_F(ControllerTest, RulesThatContradictEachOtherAreRefused) {
  RunRules both;
  both.failure = {.max_failures = 1, .fail_fast = true};
  EXPECT_THROW(Make(both), std::invalid_argument);
  RunRules function;
  function.checkpoint.frequency = 2;
  EXPECT_THROW(Make(function), std::invalid_argument);
  RunRules none;
  none.checkpoint.num_to_keep = 0;
  EXPECT_THROW(Make(none), std::invalid_argument);
  Controller controller = Make({});
  EXPECT_THROW(Step(controller, TrialFinished{17}), std::invalid_argument);
}

}  // namespace
}  // namespace manta::tune::trials
