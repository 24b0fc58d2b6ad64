// manta-bench-tune: how good and how fast the searchers of libs/tune/search are.
//
//   manta-bench-tune [SEEDS] [SEARCHER...]     quality: the best value after so many trials, mean (median) of the seeds
//   manta-bench-tune speed [SEARCHER...]       microseconds for one ask and tell
//
// bench/rivals/optuna_rival.py prints the same table for Optuna.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "manta/tune/search.h"
#include "manta/tune/searchers.h"

namespace {

namespace tune = manta::tune;
using Maker = std::function<std::unique_ptr<tune::Searcher>(const tune::Space&, std::uint64_t seed)>;

double Number(const tune::Config& config, const std::string& key) { return std::get<double>(config.at(key)); }

double Branin(const tune::Config& config) {
  double x = Number(config, "x0");
  double y = Number(config, "x1");
  constexpr double kPi = std::numbers::pi;
  double a = y - 5.1 / (4 * kPi * kPi) * x * x + 5 / kPi * x - 6;
  return a * a + 10 * (1 - 1 / (8 * kPi)) * std::cos(x) + 10;
}

double Hartmann6(const tune::Config& config) {
  static constexpr double kA[4][6] = {
      {10, 3, 17, 3.5, 1.7, 8}, {0.05, 10, 17, 0.1, 8, 14}, {3, 3.5, 1.7, 10, 17, 8}, {17, 8, 0.05, 10, 0.1, 14}};
  static constexpr double kP[4][6] = {{0.1312, 0.1696, 0.5569, 0.0124, 0.8283, 0.5886},
                                      {0.2329, 0.4135, 0.8307, 0.3736, 0.1004, 0.9991},
                                      {0.2348, 0.1451, 0.3522, 0.2883, 0.3047, 0.6650},
                                      {0.4047, 0.8828, 0.8732, 0.5743, 0.1091, 0.0381}};
  static constexpr double kWeights[4] = {1.0, 1.2, 3.0, 3.2};
  double sum = 0;
  for (int i = 0; i < 4; ++i) {
    double exponent = 0;
    for (int j = 0; j < 6; ++j) {
      double difference = Number(config, "x" + std::to_string(j)) - kP[i][j];
      exponent += kA[i][j] * difference * difference;
    }
    sum -= kWeights[i] * std::exp(-exponent);
  }
  return sum;
}

double Rosenbrock(const tune::Config& config) {
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    double x = Number(config, "x" + std::to_string(i));
    double next = Number(config, "x" + std::to_string(i + 1));
    sum += 100 * (next - x * x) * (next - x * x) + (1 - x) * (1 - x);
  }
  return sum;
}

// A training program in small: two kinds of optimizer, each with keys of its own, an integer and a category.
double Mixed(const tune::Config& config) {
  double loss = std::abs(std::log(static_cast<double>(std::get<std::int64_t>(config.at("width"))) / 96));
  loss += std::get<std::string>(config.at("act")) == "relu" ? 0 : 0.3;
  if (std::get<std::string>(config.at("optimizer")) == "sgd") {
    loss +=
        std::pow(std::log10(Number(config, "sgd/lr") / 0.05), 2) + 2 * std::abs(Number(config, "sgd/momentum") - 0.9);
  } else {
    loss += 0.2 + std::pow(std::log10(Number(config, "adam/lr") / 0.002), 2);
  }
  return loss;
}

tune::Space Cube(int dimensions, double low, double high) {
  std::vector<tune::Space::Parameter> parameters;
  for (int i = 0; i < dimensions; ++i) parameters.emplace_back("x" + std::to_string(i), tune::Uniform(low, high));
  return tune::Space(parameters);
}

tune::Space MixedSpace() {
  return {{"width", tune::LogRandInt(4, 1025)},
          {"act", tune::Choice({"tanh", "relu", "gelu"})},
          {"optimizer", tune::Choice({"sgd", "adam"})},
          {"sgd/lr", tune::When("optimizer", {"sgd"}, tune::LogUniform(1e-5, 1))},
          {"sgd/momentum", tune::When("optimizer", {"sgd"}, tune::Uniform(0, 0.99))},
          {"adam/lr", tune::When("optimizer", {"adam"}, tune::LogUniform(1e-5, 1))}};
}

struct Problem {
  std::string name;
  tune::Space space;
  std::function<double(const tune::Config&)> function;
  std::vector<int> counts;
  int workers = 1;
  double noise = 0;
};

std::vector<Problem> Problems() {
  tune::Space branin({{"x0", tune::Uniform(-5, 10)}, {"x1", tune::Uniform(0, 15)}});
  return {{"Branin", branin, Branin, {30, 50, 100, 200}},
          {"Hartmann6", Cube(6, 0, 1), Hartmann6, {50, 60, 100, 200}},
          {"Rosenbrock4", Cube(4, -5, 10), Rosenbrock, {50, 100, 200}},
          {"Mixed", MixedSpace(), Mixed, {50, 100}},
          {"Branin noisy", branin, Branin, {50, 100}, 1, 1.0},
          {"Branin 8 workers", branin, Branin, {50, 100, 200}, 8},
          {"Hartmann6 8 workers", Cube(6, 0, 1), Hartmann6, {50, 60, 100, 200}, 8}};
}

// A reproducible number in [-1, 1) for the noise.
double Noise(std::uint64_t seed, std::uint64_t trial) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15U + trial * 0xBF58476D1CE4E5B9U + 1;
  x ^= x >> 31;
  x *= 0x94D049BB133111EBU;
  x ^= x >> 29;
  return static_cast<double>(x >> 11) * 0x1p-52 - 1;
}

// The best value so far after each trial; with noise, the noise-free value of the configuration with the best result.
std::vector<double> Run(const Problem& problem, const Maker& make, std::uint64_t seed, int trials) {
  auto searcher = make(problem.space, seed);
  std::deque<std::pair<tune::TrialNumber, double>> running;
  std::vector<double> best;
  double best_seen = std::numeric_limits<double>::infinity();
  double best_true = best_seen;
  auto end_one = [&] {
    auto [trial, value] = running.front();
    running.pop_front();
    double seen = value + problem.noise * Noise(seed, static_cast<std::uint64_t>(trial));
    if (seen < best_seen) {
      best_seen = seen;
      best_true = value;
    }
    best.push_back(best_true);
    searcher->Tell(trial, seen);
  };
  for (int trial = 0; trial < trials; ++trial) {
    if (static_cast<int>(running.size()) == problem.workers) end_one();
    running.emplace_back(trial, problem.function(std::get<tune::Config>(searcher->Ask(trial))));
  }
  while (!running.empty()) end_one();
  return best;
}

void Quality(const std::string& name, const Maker& make, int seeds, int most, const std::string& filter) {
  for (const Problem& problem : Problems()) {
    if (problem.name.find(filter) == std::string::npos) continue;
    int trials = 0;
    for (int count : problem.counts) trials = count <= most ? std::max(trials, count) : trials;
    std::vector<std::vector<double>> runs;
    auto begin = std::chrono::steady_clock::now();
    for (int seed = 0; seed < seeds; ++seed) {
      runs.push_back(Run(problem, make, static_cast<std::uint64_t>(seed) + 1, trials));
    }
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    std::printf("%-8s %-20s", name.c_str(), problem.name.c_str());
    for (int count : problem.counts) {
      if (count > most) continue;
      std::vector<double> values;
      double mean = 0;
      for (const auto& run : runs) {
        values.push_back(run[count - 1]);
        mean += run[count - 1] / seeds;
      }
      std::ranges::sort(values);
      double median = (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
      std::printf("  @%d %.5g (%.5g)", count, mean, median);
    }
    std::printf("  [%.0f us a trial]\n", seconds.count() * 1e6 / seeds / trials);
    std::fflush(stdout);
  }
}

// The processor time of one ask and tell after n trials: the median of blocks, because other programs disturb some.
double Microseconds(const Maker& make, int dimensions, int n, int block) {
  auto searcher = make(Cube(dimensions, 0, 1), 1);
  std::vector<double> blocks(11);
  tune::TrialNumber trial = 0;
  auto run = [&](int trials) {
    std::clock_t begin = std::clock();
    for (int i = 0; i < trials; ++i, ++trial) {
      tune::Config config = std::get<tune::Config>(searcher->Ask(trial));
      double value = 0;
      for (const auto& entry : config) value += std::pow(std::get<double>(entry.second) - 0.3, 2);
      searcher->Tell(trial, value);
    }
    return static_cast<double>(std::clock() - begin) * 1e6 / CLOCKS_PER_SEC / trials;
  };
  run(n - static_cast<int>(blocks.size()) * block / 2);
  for (double& microseconds : blocks) microseconds = run(block);
  std::ranges::sort(blocks);
  return blocks[blocks.size() / 2];
}

struct Entry {
  std::string name;
  Maker make;
  int most;  // trials of the quality table
};

template <class Options>
Entry Make(const std::string& name, int most) {
  return {name,
          [](const tune::Space& space, std::uint64_t seed) {
            Options options;
            options.seed = seed;
            return tune::MakeSearcher(space, options);
          },
          most};
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<Entry> entries = {Make<tune::Random>("random", 200), Make<tune::Sobol>("sobol", 200),
                                Make<tune::Tpe>("tpe", 200),       Make<tune::CmaEs>("cmaes", 200),
                                Make<tune::Gp>("gp", 100),         Make<tune::Nsga2>("nsga2", 200),
                                Make<tune::Bohb>("bohb", 200)};
  bool speed = argc > 1 && std::string(argv[1]) == "speed";
  int seeds = argc > 1 ? std::atoi(argv[1]) : 30;
  auto wanted = [&](const std::string& name) {
    bool any = argc <= 2;
    for (int i = 2; i < argc; ++i) any = any || argv[i] == name;
    return any;
  };
  const char* filter = std::getenv("MANTA_BENCH_PROBLEM");
  for (const Entry& entry : entries) {
    if (!wanted(entry.name)) continue;
    if (!speed) {
      Quality(entry.name, entry.make, seeds, entry.most, filter == nullptr ? "" : filter);
    } else if (entry.name == "gp") {
      for (int n : {100, 200}) std::printf("gp       6-D n=%d: %.0f us\n", n, Microseconds(entry.make, 6, n, 10));
    } else {
      std::printf("%-8s 8-D n=1000: %.2f us\n", entry.name.c_str(), Microseconds(entry.make, 8, 1000, 20));
    }
  }
  return 0;
}
