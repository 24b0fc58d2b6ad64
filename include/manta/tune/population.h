// Schedulers of a population: trials that do badly clone the checkpoint of trials that do well and go on with other
// values (population based training, PB2), and the replay of one trial of such a run.
//
//   auto pbt = tune::MakeScheduler(tune::Pbt{.perturbation_interval = 5, .mutations = {{"lr", tune::LogUniform(1e-4,
//   1)}}});
//
// Random numbers are a function of (seed, trial, how often the trial was perturbed). Functions of the user are called
// in an order that depends only on the events, so a run can record their answers and repeat them.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "manta/tune/schedule.h"

namespace manta::tune {

// How one key changes. A list: one step to the left or right, or another value of the list. A domain or a function:
// the value is multiplied by a factor, or drawn again.
using Mutation = std::variant<std::vector<Value>, Domain, std::function<Value()>>;

struct Pbt {  // PopulationBasedTraining
  Mode mode = Mode::kMin;
  double perturbation_interval = 60;
  double burn_in_period = 0;
  std::vector<std::pair<std::string, Mutation>> mutations = {};  // hyperparam_mutations by key path
  double quantile_fraction = 0.25;
  double resample_probability = 0.25;
  std::vector<double> perturbation_factors = {1.2, 0.8};
  std::function<Config(Config)> custom_explore = {};
  bool log_config = true;
  bool require_attrs = true;  // a result without the time or the metric throws std::invalid_argument
  bool synch = false;
  std::uint64_t seed = 0;
};

struct Pb2 {
  Mode mode = Mode::kMin;
  double perturbation_interval = 60;
  std::vector<std::pair<std::string, std::pair<double, double>>> bounds = {};  // hyperparam_bounds by key path
  double quantile_fraction = 0.25;
  std::function<Config(Config)> custom_explore = {};
  bool log_config = true;
  bool require_attrs = true;
  bool synch = false;
  std::uint64_t seed = 0;
};

struct PbtReplay {     // PopulationBasedTrainingReplay: one trial, whose time attribute is training_iteration
  std::string policy;  // the content of a pbt_policy file
};

std::unique_ptr<Scheduler> MakeScheduler(Pbt options);
std::unique_ptr<Scheduler> MakeScheduler(Pb2 options);
// The exploit of a replay has the trial itself as its donor: it saves, and goes on with another configuration.
std::unique_ptr<Scheduler> MakeScheduler(const PbtReplay& options);

// The line in the format of Ray's files: a JSON list of the tags, the iterations and the configurations. Key paths
// become nested objects.
std::string PolicyJson(const PolicyLine& line, const std::string& trial_tag, const std::string& donor_tag);

}  // namespace manta::tune
