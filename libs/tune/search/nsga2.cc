// NSGA-II (Deb et al., 2002) by ask and tell: children of parents that won tournaments by front and crowding; when a
// population of results is there, the best of parents and children become the next parents.
#include <algorithm>
#include <cmath>

#include "manta/tune/searchers.h"
#include "tune/search/options.h"
#include "tune/search/pareto.h"
#include "tune/search/points.h"

namespace manta::tune {
namespace {

constexpr double kSwap = 0.5;           // the probability that a child has a coordinate of both parents, mixed
constexpr double kCrossoverIndex = 15;  // the larger, the closer to a parent
constexpr double kMutationIndex = 20;

struct Individual {
  std::vector<double> unit;  // all coordinates, also those of keys that do not exist
  Objectives values;
};

class Nsga2Searcher : public PointsSearcher {
 public:
  Nsga2Searcher(const Space& space, const Nsga2& options)
      : PointsSearcher(space, options.seed, ModesOf(options.mode, options.modes), options.points_to_evaluate,
                       options.evaluated_rewards),
        options_(options) {
    RequireOneObjective(options.modes, options.evaluated_rewards);
    for (const Known& known : this->known()) children_.push_back({Complete(known.unit), {known.value}});
    if (!children_.empty()) Select();
  }

 protected:
  std::vector<double> Suggest(TrialNumber trial) override {
    if (parents_.empty()) return Draw(trial);
    Stream stream(seed(), trial, Purpose::kCandidates);
    const Individual& mother = Tournament(stream);
    const Individual& father = Tournament(stream);
    bool cross = stream.Uniform() < options_.crossover_probability;
    double mutation = options_.mutation_probability >= 0 ? options_.mutation_probability
                                                         : 1 / std::max(1.0, static_cast<double>(encoding().size()));
    std::vector<double> child = mother.unit;
    for (std::size_t j = 0; j < child.size(); ++j) {
      bool ordered = encoding().coordinates()[j].ordered;
      double choice = stream.Uniform();
      double u = stream.Uniform();
      if (cross && choice < kSwap) child[j] = ordered ? Mix(mother.unit[j], father.unit[j], u) : father.unit[j];
      double mutate = stream.Uniform();
      u = stream.Uniform();
      if (mutate < mutation) child[j] = ordered ? Mutated(child[j], u) : u;
    }
    return child;
  }

  void OnAsk(const HistoryTrial& trial) override { units_.push_back(Complete(encoding().Encode(trial.config))); }

  void OnEnd(const HistoryTrial& trial) override {
    std::vector<double>& unit = units_[&trial - trials().data()];
    if (trial.state == HistoryTrial::State::kDone) Learn({std::move(unit), trial.values});
  }

 private:
  // Keys that do not exist have the middle, so that children that need them begin there.
  static std::vector<double> Complete(std::vector<double> unit) {
    for (double& u : unit) u = std::isnan(u) ? 0.5 : u;
    return unit;
  }

  // Parents are ordered by front and crowding, so the lower index wins.
  const Individual& Tournament(Stream& stream) const {
    auto n = static_cast<std::uint32_t>(parents_.size());
    std::uint32_t one = stream.Below(n);
    return parents_[std::min(one, stream.Below(n))];
  }

  // Simulated binary crossover.
  static double Mix(double a, double b, double u) {
    double power = 1 / (kCrossoverIndex + 1);
    double spread = u < 0.5 ? std::pow(2 * u, power) : std::pow(1 / (2 * (1 - u)), power);
    return std::clamp(0.5 * ((1 + spread) * a + (1 - spread) * b), 0.0, 1.0);
  }

  // Polynomial mutation.
  static double Mutated(double x, double u) {
    double power = 1 / (kMutationIndex + 1);
    double delta = u < 0.5 ? std::pow(2 * u, power) - 1 : 1 - std::pow(2 * (1 - u), power);
    return std::clamp(x + delta, 0.0, 1.0);
  }

  void Learn(Individual individual) {
    children_.push_back(std::move(individual));
    if (static_cast<int>(children_.size()) >= options_.population) Select();
  }

  void Select() {
    std::vector<Individual> all = std::move(parents_);
    all.insert(all.end(), children_.begin(), children_.end());
    children_.clear();
    std::vector<Objectives> values;
    values.reserve(all.size());
    for (const Individual& each : all) values.push_back(each.values);
    std::vector<int> order = OrderByFronts(values);
    order.resize(std::min(order.size(), static_cast<std::size_t>(options_.population)));
    parents_.clear();
    for (int i : order) parents_.push_back(std::move(all[i]));
  }

  Nsga2 options_;
  std::vector<std::vector<double>> units_;  // of all trials
  std::vector<Individual> parents_;
  std::vector<Individual> children_;
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Nsga2& options) {
  Require(options.population >= 4, "population", options.population, "at least 4");
  Require(options.crossover_probability >= 0 && options.crossover_probability <= 1, "crossover_probability",
          options.crossover_probability, "in [0, 1]");
  Require(options.mutation_probability <= 1, "mutation_probability", options.mutation_probability, "at most 1");
  return std::make_unique<Nsga2Searcher>(space, options);
}

}  // namespace manta::tune
