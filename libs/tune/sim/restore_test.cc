#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "tune/sim/model.h"

namespace manta::tune::sim {
namespace {

struct Case {
  std::uint64_t seed = 1;
  std::string scheduler = "asha";
  double cpus = 2;
  double kill = 0.05;
  double error = 0.02;
};

std::unique_ptr<trials::Controller> MakeController(const Case& run) {
  trials::RunRules rules;
  rules.objectives = {{"loss", Mode::kMin}};
  rules.num_samples = 12;
  rules.failure.max_failures = 2;
  rules.checkpoint.num_to_keep = 2;
  const Space space({{"x", Uniform(0, 1)}, {"act", Choice({"relu", "tanh"})}});
  std::unique_ptr<Scheduler> scheduler =
      run.scheduler == "asha" ? MakeScheduler(Asha{.max_t = 8, .reduction_factor = 2}) : MakeScheduler(Fifo{});
  return std::make_unique<trials::Controller>(std::move(rules), MakeSearcher(space, Random{.seed = run.seed}),
                                              std::move(scheduler));
}

ModelOptions OptionsOf(const Case& run) {
  return {.seed = run.seed, .nodes = 1, .cpus = run.cpus, .kill = run.kill, .error = run.error, .iterations = 8};
}

struct Recorded {
  std::vector<Event> events;
  std::vector<std::vector<Made>> made;
};

// Runs to the end, or until `steps` events; returns what the journal would hold.
void Drive(trials::Controller& controller, Model& model, Recorded& log, std::size_t steps = 1000000) {
  while (!controller.ended() && log.events.size() < steps) {
    std::optional<Event> event = model.Next();
    if (!event) event = Event{controller.next_tick(), Tick{}};
    const std::vector<Action> actions = controller.Step(*event);
    log.events.push_back(*event);
    log.made.push_back(controller.made());
    model.Do(actions, controller, controller.now());
  }
}

// What a user sees of a run: configurations, ends, values, and decisions.
std::string Outcome(const trials::Controller& controller) {
  std::string text;
  for (const trials::Trial& trial : controller.trials()) {
    text += std::to_string(trial.number) + " " + trials::NameOf(trial.status) + " " + Describe(trial.config) +
            " after " + std::to_string(trial.iteration) + " " + std::to_string(trial.cost) + "\n";
  }
  text += "best " + std::to_string(controller.best().value_or(-1));
  return text;
}

TEST(Restore, AReplayOfAnyPrefixGoesOnExactlyAsTheUndisturbedRun) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Case run{.seed = seed};
    auto whole = MakeController(run);
    Model model(OptionsOf(run));
    Recorded log;
    Drive(*whole, model, log);
    ASSERT_TRUE(whole->ended());
    for (std::size_t cut = 0; cut <= log.events.size(); ++cut) {
      auto restored = MakeController(run);
      for (std::size_t i = 0; i < cut; ++i) restored->Replay(log.events[i], log.made[i]);
      for (std::size_t i = cut; i < log.events.size(); ++i) {
        restored->Step(log.events[i]);
        ASSERT_EQ(restored->made(), log.made[i]) << "seed " << seed << ", cut " << cut << ", event " << i;
      }
      ASSERT_EQ(Outcome(*restored), Outcome(*whole));
    }
  }
}

TEST(Restore, AfterADriverDiesAtAnyEventTheRunHasTheSameConfigurationsDecisionsAndBestTrial) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Case run{.seed = seed, .kill = 0, .error = 0};
    auto whole = MakeController(run);
    Model undisturbed(OptionsOf(run));
    Recorded log;
    Drive(*whole, undisturbed, log);
    const std::string expected = Outcome(*whole);
    const std::size_t events = log.events.size();
    for (std::size_t cut = 1; cut < events; ++cut) {
      auto first = MakeController(run);
      Model model(OptionsOf(run));
      Recorded before;
      Drive(*first, model, before, cut);
      auto restored = MakeController(run);
      for (std::size_t i = 0; i < cut; ++i) restored->Replay(before.events[i], before.made[i]);
      model.Crash(*restored);
      model.Do(restored->Step({restored->now(), RunRestored{}}), *restored, restored->now());
      Drive(*restored, model, before);
      ASSERT_TRUE(restored->ended());
      ASSERT_EQ(Outcome(*restored), expected) << "seed " << seed << ", cut " << cut;
      ASSERT_TRUE(model.violations().empty()) << model.violations().front();
    }
  }
}

TEST(Restore, AChoiceThatTheReplayDoesNotMakeIsAnErrorThatShowsBoth) {
  const Case run{.kill = 0, .error = 0};
  auto whole = MakeController(run);
  Model model(OptionsOf(run));
  Recorded log;
  Drive(*whole, model, log);
  auto other = MakeController({.seed = 2});
  try {
    for (std::size_t i = 0; i < log.events.size(); ++i) other->Replay(log.events[i], log.made[i]);
    FAIL() << "a replay with another seed was accepted";
  } catch (const trials::ReplayError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the journal has \"ask for trial 0: configuration {"), std::string::npos) << text;
    EXPECT_NE(text.find("the replay made \"ask for trial 0: configuration {"), std::string::npos) << text;
  }
}

TEST(Restore, MoreSamplesExtendARunThatHasEnded) {
  const Case run{.kill = 0, .error = 0};
  auto controller = MakeController(run);
  Model model(OptionsOf(run));
  Recorded log;
  Drive(*controller, model, log);
  ASSERT_EQ(controller->trials().size(), 12U);
  model.Crash(*controller);
  model.Do(controller->Step({controller->now(), RunRestored{.more_samples = 5}}), *controller, controller->now());
  Drive(*controller, model, log);
  EXPECT_EQ(controller->trials().size(), 17U);
  EXPECT_EQ(controller->counts().terminated, 17);
}

TEST(Simulation, ThousandsOfTrialsWithLostWorkersNodesAndErrorsBreakNoRule) {
  for (const char* scheduler : {"fifo", "asha", "median"}) {
    SimulationOptions options;
    options.trials = 1500;
    options.scheduler = scheduler;
    options.model.nodes = 20;
    options.model.node_loss = 0.0005;
    options.model.error = 0.005;
    const SimulationReport report = Simulate(options);
    EXPECT_TRUE(report.violations.empty()) << scheduler << ": " << report.violations.front();
    EXPECT_EQ(report.terminated + report.error, 1500) << scheduler;
    EXPECT_GT(report.lost_workers, 10);
    EXPECT_EQ(report.trace, Simulate(options).trace);
  }
}

}  // namespace
}  // namespace manta::tune::sim
