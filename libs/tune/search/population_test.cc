#include "manta/tune/population.h"

#include <gtest/gtest.h>

#include <set>

#include "tune/search/traces.h"

namespace manta::tune {
namespace {

using Kind = Decision::Kind;

struct Two {  // trial 1 does badly and must clone trial 0
  std::unique_ptr<Scheduler> scheduler;
  TraceStates states;
  Two(Pbt options, const Config& config) {
    options.mode = Mode::kMax;
    options.perturbation_interval = 1;
    scheduler = MakeScheduler(std::move(options));
    for (TrialNumber trial : {0, 1}) {
      (void)scheduler->OnAdd(trial, config);
      states.of[trial] = TrialState::kRunning;
    }
  }
  Decision Step(double time) {
    (void)scheduler->OnResult(0, time, 1, states);
    return scheduler->OnResult(1, time, 0, states);
  }
};

double LrOf(const Decision& decision) { return std::get<double>(decision.exploit.value().config.at("lr")); }

TEST(Pbt, TheWorstClonesTheBestThatHasSaved) {
  Two run({.mutations = {{"lr", Uniform(0, 1)}}}, {{"lr", 0.5}});
  EXPECT_FALSE(run.scheduler->OnResult(0, 1, 1, run.states).save);                // alone
  EXPECT_EQ(run.scheduler->OnResult(1, 1, 0, run.states).kind, Kind::kContinue);  // its donor has not saved
  EXPECT_TRUE(run.scheduler->OnResult(0, 2, 1, run.states).save);
  Decision decision = run.scheduler->OnResult(1, 2, 0, run.states);
  EXPECT_EQ(decision.kind, Kind::kExploit);
  EXPECT_EQ(decision.exploit.value().donor, 0);
}

TEST(Pbt, PerturbedValuesAreMultipliedOrDrawnAgain) {
  Two multiplied({.mutations = {{"lr", Uniform(0, 1)}}, .resample_probability = 0}, {{"lr", 0.5}});
  Two drawn({.mutations = {{"lr", Uniform(2, 3)}}, .resample_probability = 1}, {{"lr", 0.5}});
  std::set<double> factors;
  for (int time = 1; time < 40; ++time) {
    Decision one = multiplied.Step(time);
    Decision two = drawn.Step(time);
    if (time == 1) continue;
    factors.insert(LrOf(one));
    EXPECT_GE(LrOf(two), 2);
    EXPECT_LT(LrOf(two), 3);
  }
  EXPECT_EQ(factors, (std::set<double>{0.4, 0.6}));
}

TEST(Pbt, AValueKeepsItsTypeAndAListMovesByOneStep) {
  Two run({.mutations = {{"batch", Uniform(1, 100)},
                         {"layers", std::vector<Value>{std::int64_t{1}, std::int64_t{2}, std::int64_t{3}}},
                         {"on", Uniform(0, 1)},
                         {"word", Choice({"a", "b"})}},
           .resample_probability = 0},
          {{"batch", std::int64_t{16}}, {"layers", std::int64_t{2}}, {"on", true}, {"word", "a"}});
  (void)run.Step(1);
  std::set<std::int64_t> layers;
  for (int time = 2; time < 30; ++time) {
    Config config = run.Step(time).exploit.value().config;
    auto batch = std::get<std::int64_t>(config.at("batch"));
    EXPECT_TRUE(batch == 13 || batch == 19) << batch;
    layers.insert(std::get<std::int64_t>(config.at("layers")));
    EXPECT_TRUE(std::get<bool>(config.at("on")));
    EXPECT_TRUE(std::holds_alternative<std::string>(config.at("word")));
  }
  EXPECT_EQ(layers, (std::set<std::int64_t>{1, 3}));
}

TEST(Pbt, FunctionsOfTheUserDrawAndExplore) {
  int calls = 0;
  Two run({.mutations = {{"lr", std::function<Value()>([&] { return 7.0 + ++calls; })}},
           .resample_probability = 1,
           .custom_explore =
               [](Config config) {
                 config["seen"] = true;
                 return config;
               }},
          {});
  EXPECT_EQ(calls, 2);  // the trials had no value
  (void)run.Step(1);
  Decision decision = run.Step(2);
  EXPECT_EQ(LrOf(decision), 10);
  EXPECT_TRUE(decision.exploit.value().config.contains("seen"));
}

TEST(Pbt, MissingKeysAreDrawnFromTheMutations) {
  auto pbt = MakeScheduler(Pbt{.mutations = {{"lr", Uniform(2, 3)}, {"net/width", std::vector<Value>{"s", "l"}}}});
  auto config = pbt->OnAdd(0, {{"other", 1.0}});
  ASSERT_TRUE(config);
  EXPECT_GE(std::get<double>(config->at("lr")), 2);
  EXPECT_TRUE(config->contains("net/width"));
  EXPECT_FALSE(pbt->OnAdd(1, *config));
}

TEST(Pbt, MoreTrialsThanTheMachineHasRoomForTakeTurns) {
  auto pbt = MakeScheduler(Pbt{.perturbation_interval = 2, .mutations = {{"lr", Uniform(0, 1)}}});
  TraceStates states;
  for (TrialNumber trial : {0, 1, 2}) {
    (void)pbt->OnAdd(trial, {{"lr", 0.5}});
    states.of[trial] = TrialState::kPending;
  }
  std::string turns;
  for (int i = 1; i < 7; ++i) {
    TrialNumber trial = pbt->Choose(states).value();
    turns += std::to_string(trial);
    states.of[trial] = TrialState::kRunning;
    double time = (i + 2) / 3 * 2.0;
    EXPECT_EQ(pbt->OnResult(trial, time - 1, 1, states).kind, Kind::kContinue);
    EXPECT_NE(pbt->OnResult(trial, time, 1, states).kind, Kind::kContinue);
    states.of[trial] = TrialState::kPaused;
  }
  EXPECT_EQ(turns.substr(0, 3), "012");
}

TEST(Pbt, SynchronousTrialsWaitForEachOtherAndForNoTrialThatFailed) {
  auto pbt = MakeScheduler(Pbt{.mode = Mode::kMax,
                               .perturbation_interval = 1,
                               .mutations = {{"lr", Uniform(0, 1)}},
                               .quantile_fraction = 0.5,
                               .synch = true});
  TraceStates states;
  for (TrialNumber trial : {0, 1, 2}) {
    (void)pbt->OnAdd(trial, {{"lr", 0.5}});
    states.of[trial] = TrialState::kRunning;
  }
  for (TrialNumber trial : {0, 1}) {
    Decision decision = pbt->OnResult(trial, 1, static_cast<double>(trial), states);
    EXPECT_EQ(decision.kind, Kind::kPause);
    EXPECT_TRUE(decision.orders.empty());
    states.of[trial] = TrialState::kPaused;
  }
  EXPECT_FALSE(pbt->Choose(states));
  Orders orders = pbt->OnError(2, states);
  ASSERT_EQ(orders.size(), 1U);
  EXPECT_EQ(orders[0].kind, Order::Kind::kExploit);
  EXPECT_EQ(orders[0].trial, 0);
  EXPECT_EQ(orders[0].exploit.value().donor, 1);
  EXPECT_EQ(pbt->Choose(states), 0);
}

TEST(Pbt, RequireAttrsDecidesAboutResultsWithoutTheMetric) {
  TraceStates states;
  Pbt options{.mutations = {{"lr", Uniform(0, 1)}}};
  auto strict = MakeScheduler(options);
  options.require_attrs = false;
  auto lenient = MakeScheduler(options);
  (void)strict->OnAdd(0, {});
  (void)lenient->OnAdd(0, {});
  EXPECT_THROW((void)strict->OnResult(0, Report{1, std::nullopt, 1}, states), std::invalid_argument);
  EXPECT_EQ(lenient->OnResult(0, Report{1, std::nullopt, 1}, states).kind, Kind::kContinue);
}

TEST(Pbt, BadOptionsAreRefused) {
  EXPECT_THROW(MakeScheduler(Pbt{}), std::invalid_argument);
  Pbt options{.mutations = {{"lr", Uniform(0, 1)}}};
  options.quantile_fraction = 0.6;
  EXPECT_THROW(MakeScheduler(options), std::invalid_argument);
  options = {.perturbation_interval = 0, .mutations = {{"lr", Uniform(0, 1)}}};
  EXPECT_THROW(MakeScheduler(options), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(Pbt{.mutations = {{"lr", Uniform(1, 0)}}}), std::invalid_argument);
  EXPECT_THROW(MakeScheduler(Pbt{.mutations = {{"lr", std::vector<Value>{}}}}), std::invalid_argument);
}

// The text is Ray's, and so are the two changes that its replay makes of it: the first row was overwritten.
constexpr const char* kPolicy =
    R"(["2", "0", 3, 2, {"lr": 0.5, "net": {"act": "relu", "width": 16}}, {"lr": 0.6, "net": {"act": "relu", "width": 19}}]
["0", "1", 5, 4, {"lr": 0.1, "net": {"act": "tanh", "width": 8}}, {"lr": 0.08, "net": {"act": "tanh", "width": 10}}]
["3", "0", 9, 8, {"lr": 0.08, "net": {"act": "tanh", "width": 10}}, {"lr": 1.0, "net": {"act": "a\"b\u00e9", "width": 10}}]
)";

TEST(PbtReplay, TheConfigurationChangesAtTheRecordedIterations) {
  auto replay = MakeScheduler(PbtReplay{kPolicy});
  TraceStates states;
  EXPECT_EQ(Describe(replay->OnAdd(0, {{"lr", 7.0}}).value()), "lr=0.1 net/act=tanh net/width=8");
  EXPECT_EQ(replay->OnResult(0, 3, 0, states).kind, Kind::kContinue);
  Decision change = replay->OnResult(0, 4, 0, states);
  EXPECT_EQ(change.kind, Kind::kExploit);
  EXPECT_TRUE(change.save);
  EXPECT_EQ(change.exploit.value().donor, 0);
  EXPECT_EQ(Describe(change.exploit.value().config), "lr=0.08 net/act=tanh net/width=10");
  std::string saved = replay->Save();
  replay = MakeScheduler(PbtReplay{kPolicy});
  replay->Load(saved);
  EXPECT_EQ(replay->OnResult(0, 5, 0, states).kind, Kind::kContinue);
  EXPECT_EQ(Describe(replay->OnResult(0, 9, 0, states).exploit.value().config), "lr=1 net/act=a\"b\u00e9 net/width=10");
  EXPECT_EQ(replay->OnResult(0, 10, 0, states).kind, Kind::kContinue);
  EXPECT_THROW((void)replay->OnAdd(1, {}), std::invalid_argument);
}

TEST(PbtReplay, WhatIsNoPolicyIsRefused) {
  for (const char* text : {"{}", "[1, 2", R"(["0", "1", 5, 4, {"lr": [1]}, {}])", R"(["0", "1", 1.5, 4, {}, {}])",
                           R"(["0", "1", 1, 4, {}, {}] x)", R"(["0\u12)"}) {
    EXPECT_THROW(MakeScheduler(PbtReplay{text}), std::invalid_argument) << text;
  }
  EXPECT_THROW((void)MakeScheduler(PbtReplay{""})->OnAdd(0, {}), std::invalid_argument);
  EXPECT_FALSE(MakeScheduler(PbtReplay{""})->OnAdd(0, {{"lr", 1.0}}));
}

TEST(Pbt, ItsPolicyLinesAreRaysAndCanBeReplayed) {
  Two run({.mutations = {{"net/lr", Uniform(0, 1)}}, .resample_probability = 0},
          {{"net/lr", 0.5}, {"net/on", true}, {"n", std::int64_t{3}}, {"x", 2.0}});
  (void)run.Step(1);
  Decision decision = run.Step(2);
  std::string line = PolicyJson(decision.exploit.value().log.value(), "1_tag", "0_tag");
  double lr = std::get<double>(decision.exploit.value().config.at("net/lr"));
  std::string changed = lr > 0.5 ? "0.6" : "0.4";
  EXPECT_EQ(line,
            "[\"1_tag\", \"0_tag\", 1, 2, {\"n\": 3, \"net\": {\"lr\": 0.5, \"on\": true}, \"x\": 2.0}, "
            "{\"n\": 3, \"net\": {\"lr\": " +
                changed + ", \"on\": true}, \"x\": 2.0}]");
  auto replay = MakeScheduler(PbtReplay{line + "\n"});
  EXPECT_EQ(replay->OnAdd(0, {}), (Config{{"net/lr", 0.5}, {"net/on", true}, {"n", std::int64_t{3}}, {"x", 2.0}}));
}

TEST(Pbt, WithoutLogConfigThereAreNoPolicyLines) {
  Two run({.mutations = {{"lr", Uniform(0, 1)}}, .log_config = false}, {{"lr", 0.5}});
  (void)run.Step(1);
  EXPECT_FALSE(run.Step(2).exploit.value().log);
}

}  // namespace
}  // namespace manta::tune
