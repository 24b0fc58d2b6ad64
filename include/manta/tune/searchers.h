// Searchers with a model: options and constructors. Values of all options have sensible defaults; options that make no
// sense throw std::invalid_argument, whose text names the option.
//
//   tune::AskTell search(space, tune::Tpe{.seed = 7, .mode = tune::Mode::kMax});
//
// Every searcher accepts mixed and conditional spaces, running trials (batches), failed trials and known results.
#pragma once

#include "manta/tune/search.h"

namespace manta::tune {

// Tree-structured Parzen estimator: one density of the good trials, one of the others; the proposal is the candidate
// with the highest ratio. All keys that exist under the same condition are modelled jointly.
struct Tpe {
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  int n_startup_trials = 10;  // results before the model is used
  int n_ei_candidates = 24;
  double prior_weight = 1;
  bool constant_liar = true;     // running trials count as bad ones, so that a batch spreads
  std::vector<Mode> modes = {};  // more than one objective: their modes, instead of mode
};

// Evolution strategy with covariance matrix adaptation, for numbers. An integer keeps a least probability to change; a
// category is treated as an integer. Above 100 keys only the variances are learned, not the covariances.
struct CmaEs {
  enum class Restart { kNone, kIpop, kBipop };
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  Config x0 = {};           // the first mean; keys that it lacks begin in the middle
  double sigma0 = 1.0 / 6;  // the first step, as a share of each key's range
  int population = 0;       // 0: 4 + floor(3 log d)
  bool separable = false;   // learn only the variances in any number of dimensions
  Restart restart = Restart::kIpop;
};

// Gaussian process, for few and expensive trials.
struct Gp {
  // kHedge: the three others propose, and the one with the better predicted value is drawn more often.
  enum class Acquisition { kLogExpectedImprovement, kLowerBound, kProbability, kHedge };
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  int n_startup_trials = 7;  // Sobol points first; one more for every six keys
  Acquisition acquisition = Acquisition::kLogExpectedImprovement;
  double kappa = 2;  // of kLowerBound: how many deviations below the mean
};

// Genetic search for one or more objectives.
struct Nsga2 {
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  std::vector<Mode> modes = {};  // more than one objective: their modes, instead of mode
  int population = 50;
  double crossover_probability = 0.9;
  double mutation_probability = -1;  // of each key; below 0: one key on average
};

// The searcher of BOHB: learns from intermediate results, budget by budget. Its scheduler is HyperBandForBOHB.
struct Bohb {
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  int min_points_in_model = 0;  // 0: the number of keys + 1
  double top_n_percent = 15;    // these results of a budget are the good ones
  int num_samples = 64;         // candidates for a proposal
  double random_fraction = 1.0 / 3;
};

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Tpe& options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Gp& options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Nsga2& options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Bohb& options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const CmaEs& options);

}  // namespace manta::tune
