#include <gtest/gtest.h>

#include "manta/tune/search.h"

namespace manta::tune {
namespace {

std::vector<Config> All(Searcher& searcher) {
  std::vector<Config> configs;
  for (TrialNumber trial = 0;; ++trial) {
    Answer answer = searcher.Ask(trial);
    if (!std::holds_alternative<Config>(answer)) return configs;
    configs.push_back(std::get<Config>(answer));
  }
}

Space GridAndRandom() { return {{"a", Grid({1, 2})}, {"b", RandInt(0, 3)}}; }

TEST(Variants, FourSamplesOfAGridOfTwoAreEightTrials) {
  auto searcher = MakeSearcher(GridAndRandom(), Random{.num_samples = 4});
  auto configs = All(*searcher);
  ASSERT_EQ(configs.size(), 8U);
  for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(configs[i].at("a"), Value(i % 2 == 0 ? 1 : 2));
}

TEST(Variants, RaysWorkedExampleGivesSixTrialsFromFourSamples) {
  auto searcher = MakeSearcher(
      GridAndRandom(), Random{.points_to_evaluate = {{{"a", 2}, {"b", 2}}, {{"a", 1}}, {{"b", 2}}}, .num_samples = 4});
  auto configs = All(*searcher);
  ASSERT_EQ(configs.size(), 6U);
  EXPECT_EQ(configs[0], (Config{{"a", 2}, {"b", 2}}));
  EXPECT_EQ(configs[1].at("a"), Value(1));
  EXPECT_EQ(configs[2], (Config{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(configs[3], (Config{{"a", 2}, {"b", 2}}));
}

TEST(Variants, TheFirstGridKeyChangesFastest) {
  auto searcher = MakeSearcher({{"a", Grid({1, 2})}, {"b", Grid({"x", "y"})}}, Random{.num_samples = 1});
  EXPECT_EQ(All(*searcher),
            (std::vector<Config>{
                {{"a", 1}, {"b", "x"}}, {{"a", 2}, {"b", "x"}}, {{"a", 1}, {"b", "y"}}, {{"a", 2}, {"b", "y"}}}));
}

TEST(Variants, AConstantGridSearchKeepsTheRandomValuesOfASample) {
  Space space{{"a", Grid({1, 2})}, {"b", Uniform(0, 1)}};
  auto constant = All(*MakeSearcher(space, Random{.num_samples = 2, .constant_grid_search = true}));
  EXPECT_EQ(constant[0].at("b"), constant[1].at("b"));
  EXPECT_NE(constant[1].at("b"), constant[2].at("b"));
  auto fresh = All(*MakeSearcher(space, Random{.num_samples = 2}));
  EXPECT_NE(fresh[0].at("b"), fresh[1].at("b"));
}

TEST(Variants, MaxConcurrentWaitsForARunningTrial) {
  auto searcher = MakeSearcher({{"x", Uniform(0, 1)}}, Random{.max_concurrent = 1});
  EXPECT_TRUE(std::holds_alternative<Config>(searcher->Ask(0)));
  EXPECT_TRUE(std::holds_alternative<Wait>(searcher->Ask(1)));
  searcher->Fail(0);
  EXPECT_TRUE(std::holds_alternative<Config>(searcher->Ask(1)));
}

TEST(Variants, TheOrderOfResultsDoesNotChangeWhatATrialIsGiven) {
  auto one = MakeSearcher({{"x", Uniform(0, 1)}}, Random{.seed = 3});
  auto other = MakeSearcher({{"x", Uniform(0, 1)}}, Random{.seed = 3});
  for (TrialNumber trial : {0, 1}) EXPECT_EQ(std::get<Config>(one->Ask(trial)), std::get<Config>(other->Ask(trial)));
  one->Tell(0, 1.0);
  other->Tell(1, 2.0);
  EXPECT_EQ(std::get<Config>(one->Ask(2)), std::get<Config>(other->Ask(2)));
}

TEST(Searcher, ALoadedSearcherContinuesWhereTheSavedOneStood) {
  Random options{.seed = 5, .num_samples = 3};
  auto original = MakeSearcher(GridAndRandom(), options);
  for (TrialNumber trial = 0; trial < 3; ++trial) (void)original->Ask(trial);
  original->Tell(0, 1.0);
  original->Report(1, 1, 0.5);
  original->Fail(2);
  auto loaded = MakeSearcher(GridAndRandom(), options);
  loaded->Load(original->Save());
  EXPECT_EQ(loaded->Save(), original->Save());
  for (TrialNumber trial = 3; trial < 6; ++trial) {
    EXPECT_EQ(std::get<Config>(loaded->Ask(trial)), std::get<Config>(original->Ask(trial)));
  }
  EXPECT_TRUE(std::holds_alternative<Finished>(loaded->Ask(6)));
}

TEST(Searcher, MisuseAndDamagedBytesAreRefused) {
  auto searcher = MakeSearcher({{"x", Uniform(0, 1)}}, Random{});
  EXPECT_THROW(searcher->Tell(0, 1.0), std::invalid_argument);
  (void)searcher->Ask(0);
  EXPECT_THROW((void)searcher->Ask(0), std::invalid_argument);
  searcher->Tell(0, 1.0);
  EXPECT_THROW(searcher->Fail(0), std::invalid_argument);
  std::string bytes = searcher->Save();
  auto other = MakeSearcher({{"x", Uniform(0, 1)}}, Random{});
  EXPECT_THROW(other->Load(bytes.substr(0, bytes.size() - 1)), std::invalid_argument);
  EXPECT_THROW(MakeSearcher({{"x", Uniform(0, 1)}}, Random{})->Load("nothing"), std::invalid_argument);
}

TEST(AskTell, NumbersItsTrials) {
  AskTell alone({{"x", Uniform(-5, 10)}}, Random{.num_samples = 2});
  auto first = alone.Ask();
  ASSERT_TRUE(first);
  alone.Tell(first->first, 0.5);
  EXPECT_EQ(alone.Ask()->first, 1);
  EXPECT_FALSE(alone.Ask());
}

}  // namespace
}  // namespace manta::tune
