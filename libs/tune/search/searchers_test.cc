// What every searcher with a model must do, on a space with all kinds of keys.
#include "manta/tune/searchers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>

namespace manta::tune {
namespace {

struct Given {
  std::uint64_t seed = 1;
  Mode mode = Mode::kMin;
  std::vector<Config> points = {};
  std::vector<double> rewards = {};
};

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Searcher>(const Space&, const Given&)> make;
};

template <class Options>
Kind MakeKind(const std::string& name) {
  return {name, [](const Space& space, const Given& given) {
            Options options;
            options.seed = given.seed;
            options.mode = given.mode;
            options.points_to_evaluate = given.points;
            options.evaluated_rewards = given.rewards;
            return MakeSearcher(space, options);
          }};
}

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class EverySearcher : public testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(Searchers, EverySearcher,
                         testing::Values(MakeKind<Tpe>("Tpe"), MakeKind<CmaEs>("CmaEs"), MakeKind<Gp>("Gp"),
                                         MakeKind<Nsga2>("Nsga2"), MakeKind<Bohb>("Bohb")),
                         [](const auto& given) { return given.param.name; });

Space Mixed() {
  return {{"lr", LogUniform(1e-5, 1)},
          {"width", LogRandInt(4, 129)},
          {"layers", RandInt(1, 5)},
          {"noise", RandN(0, 2)},
          {"act", Choice({"tanh", "relu", "gelu"})},
          {"drop", QUniform(0, 0.5, 0.1)},
          {"momentum", When("act", {"relu", "gelu"}, Uniform(0, 1))},
          {"fixed", Constant("x")}};
}

double Loss(const Config& config) {
  double loss = std::pow(std::log10(std::get<double>(config.at("lr"))) + 2, 2);
  loss += std::abs(static_cast<double>(std::get<std::int64_t>(config.at("layers"))) - 3);
  loss += std::get<std::string>(config.at("act")) == "relu" ? 0 : 1;
  if (auto momentum = config.find("momentum"); momentum != config.end()) {
    loss += std::abs(std::get<double>(momentum->second) - 0.9);
  }
  return loss;
}

// Runs trials with three at a time; some fail, some give nan, some report on their way. Returns the configurations.
std::vector<Config> Drive(Searcher& searcher, TrialNumber from, TrialNumber to, double sign = 1) {
  std::vector<Config> configs;
  std::deque<std::pair<TrialNumber, double>> running;
  auto end_one = [&] {
    auto [trial, loss] = running.front();
    running.pop_front();
    if (trial % 7 == 3) return searcher.Fail(trial);
    searcher.Report(trial, 1, sign * (loss + 1));
    searcher.Report(trial, 3, sign * (loss + 0.5));
    searcher.Tell(trial, trial % 11 == 5 ? std::nan("") : sign * loss);
  };
  for (TrialNumber trial = from; trial < to; ++trial) {
    if (running.size() == 3) end_one();
    configs.push_back(std::get<Config>(searcher.Ask(trial)));
    running.emplace_back(trial, Loss(configs.back()));
  }
  while (!running.empty()) end_one();
  return configs;
}

TEST_P(EverySearcher, ProposesOnlyValuesOfTheSpace) {
  auto searcher = GetParam().make(Mixed(), {});
  for (const Config& config : Drive(*searcher, 0, 80)) {
    EXPECT_GE(std::get<double>(config.at("lr")), 1e-5);
    EXPECT_LE(std::get<double>(config.at("lr")), 1);
    EXPECT_GE(std::get<std::int64_t>(config.at("width")), 4);
    EXPECT_LE(std::get<std::int64_t>(config.at("width")), 128);
    EXPECT_GE(std::get<std::int64_t>(config.at("layers")), 1);
    EXPECT_LE(std::get<std::int64_t>(config.at("layers")), 4);
    EXPECT_TRUE(std::isfinite(std::get<double>(config.at("noise"))));
    double steps = std::get<double>(config.at("drop")) / 0.1;
    EXPECT_NEAR(steps, std::round(steps), 1e-9);
    EXPECT_EQ(config.contains("momentum"), config.at("act") != Value("tanh"));
    EXPECT_EQ(config.at("fixed"), Value("x"));
  }
}

TEST_P(EverySearcher, ALoadedSearcherProposesWhatTheSavedOneDoes) {
  for (TrialNumber cut : {5, 23, 60}) {
    auto original = GetParam().make(Mixed(), {});
    (void)Drive(*original, 0, cut);
    (void)original->Ask(cut);  // trials that run while the searcher is saved
    (void)original->Ask(cut + 1);
    original->Report(cut + 1, 1, 0.25);
    auto loaded = GetParam().make(Mixed(), {});
    loaded->Load(original->Save());
    EXPECT_EQ(loaded->Save(), original->Save());
    original->Tell(cut, 0.5);
    loaded->Tell(cut, 0.5);
    EXPECT_EQ(Drive(*loaded, cut + 2, cut + 30), Drive(*original, cut + 2, cut + 30)) << cut;
  }
}

TEST_P(EverySearcher, TheSeedDecides) {
  EXPECT_EQ(Drive(*GetParam().make(Mixed(), {}), 0, 40), Drive(*GetParam().make(Mixed(), {}), 0, 40));
  EXPECT_NE(Drive(*GetParam().make(Mixed(), {}), 0, 40), Drive(*GetParam().make(Mixed(), {.seed = 2}), 0, 40));
}

TEST_P(EverySearcher, MaximisingTheNegativeIsMinimising) {
  auto minimise = GetParam().make(Mixed(), {});
  auto maximise = GetParam().make(Mixed(), {.mode = Mode::kMax});
  EXPECT_EQ(Drive(*minimise, 0, 50), Drive(*maximise, 0, 50, -1));
}

TEST_P(EverySearcher, FindsBetterTrialsThanRandomSearchOnAMixedSpace) {
  auto mean_of_last = [](Searcher& searcher) {
    std::vector<Config> configs = Drive(searcher, 0, 120);
    double sum = 0;
    for (std::size_t i = 90; i < configs.size(); ++i) sum += Loss(configs[i]);
    return sum / 30;
  };
  double model = 0;
  double random = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    model += mean_of_last(*GetParam().make(Mixed(), {.seed = seed}));
    random += mean_of_last(*MakeSearcher(Mixed(), Random{.seed = seed}));
  }
  EXPECT_LT(model, 0.85 * random);
}

TEST_P(EverySearcher, TriesItsPointsFirstAndLearnsFromRewards) {
  Space space{{"x", Uniform(0, 1)}, {"y", Uniform(0, 1)}};
  std::vector<Config> points;
  std::vector<double> rewards;
  for (int i = 0; i < 30; ++i) {
    double x = (i + 0.5) / 30;
    double y = std::fmod(i * 0.618, 1);
    points.push_back({{"x", x}, {"y", y}});
    rewards.push_back(std::abs(x - 0.2) + std::abs(y - 0.8));
  }
  points.push_back({{"x", 0.25}, {"y", 0.75}});
  auto searcher = GetParam().make(space, {.points = points, .rewards = rewards});
  EXPECT_EQ(std::get<Config>(searcher->Ask(0)), points.back());
  searcher->Tell(0, 0.1);
  double distance = 0;
  for (TrialNumber trial = 1; trial <= 40; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    double loss = std::abs(std::get<double>(config.at("x")) - 0.2) + std::abs(std::get<double>(config.at("y")) - 0.8);
    searcher->Tell(trial, loss);
    distance += loss / 40;
  }
  EXPECT_LT(distance, 0.5) << "random points have 0.68";
  EXPECT_THROW(GetParam().make(space, {.points = {}, .rewards = {1.0}}), std::invalid_argument);
  EXPECT_THROW(GetParam().make(space, {.points = {{{"x", 7.0}}}}), SpaceError);
}

TEST_P(EverySearcher, ABatchOfRunningTrialsDoesNotRepeatOneConfiguration) {
  auto searcher = GetParam().make({{"x", Uniform(0, 1)}, {"y", Uniform(0, 1)}}, {});
  for (TrialNumber trial = 0; trial < 40; ++trial) {
    Config config = std::get<Config>(searcher->Ask(trial));
    searcher->Tell(trial, std::abs(std::get<double>(config.at("x")) - 0.3) + std::get<double>(config.at("y")));
  }
  std::vector<double> xs;
  for (TrialNumber trial = 40; trial < 48; ++trial) {
    xs.push_back(std::get<double>(std::get<Config>(searcher->Ask(trial)).at("x")));
  }
  std::ranges::sort(xs);
  for (std::size_t i = 1; i < xs.size(); ++i) EXPECT_NE(xs[i - 1], xs[i]);
}

TEST_P(EverySearcher, GoesOnWhenEveryTrialFails) {
  auto searcher = GetParam().make(Mixed(), {});
  for (TrialNumber trial = 0; trial < 60; ++trial) {
    EXPECT_TRUE(std::holds_alternative<Config>(searcher->Ask(trial)));
    if (trial % 2 == 0) searcher->Fail(trial);
    if (trial % 2 == 1) searcher->Tell(trial, std::numeric_limits<double>::infinity());
  }
}

TEST_P(EverySearcher, GoesOnWhenAllResultsAreEqualOrHuge) {
  for (double value : {0.0, 1e300, -1e300}) {
    auto searcher = GetParam().make(Mixed(), {});
    for (TrialNumber trial = 0; trial < 40; ++trial) {
      Config config = std::get<Config>(searcher->Ask(trial));
      EXPECT_TRUE(std::isfinite(std::get<double>(config.at("lr"))));
      searcher->Tell(trial, value == 0 ? 0 : value * (1 + static_cast<double>(trial % 3) / 10));
    }
  }
}

TEST_P(EverySearcher, ASpaceOfConstantsHasOneConfiguration) {
  auto searcher = GetParam().make({{"x", Constant(3)}}, {});
  for (TrialNumber trial = 0; trial < 30; ++trial) {
    EXPECT_EQ(std::get<Config>(searcher->Ask(trial)), (Config{{"x", 3}}));
    searcher->Tell(trial, 1.0);
  }
}

}  // namespace
}  // namespace manta::tune
