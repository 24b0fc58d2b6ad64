// CMA-ES by ask and tell. A generation need not be complete: a result is learned from as soon as a population of
// results is there, whichever trials they belong to, so running trials never make the searcher wait.
#include <cmath>
#include <limits>
#include <optional>

#include "manta/tune/searchers.h"
#include "tune/search/cmaes_model.h"
#include "tune/search/options.h"
#include "tune/search/points.h"

namespace manta::tune {
namespace {

constexpr std::size_t kMaxFull = 100;  // dimensions; above it only the diagonal is learned
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class CmaEsSearcher : public PointsSearcher {
 public:
  CmaEsSearcher(const Space& space, const CmaEs& options)
      : PointsSearcher(space, options.seed, {options.mode}, options.points_to_evaluate, options.evaluated_rewards),
        options_(options),
        model_(encoding(), FirstMean(), Settings(0, options.sigma0)),
        first_population_(model_.population()) {
    for (const Known& known : this->known()) Learn({Complete(known.unit), known.value}, generation_);
  }

 protected:
  std::vector<double> Suggest(TrialNumber trial) override {
    const Eigen::VectorXd& x = Drawn(trial);
    return {x.data(), x.data() + x.size()};
  }

  // The configuration does not say what the coordinates of discrete or absent keys were, so the draw is repeated, or
  // taken from Propose. A configuration that is not the drawn one is one of points_to_evaluate.
  void OnAsk(const HistoryTrial& trial) override {
    Eigen::VectorXd x = Drawn(trial.number);
    if (encoding().Decode({x.data(), static_cast<std::size_t>(x.size())}) != trial.config) {
      x = Complete(encoding().Encode(trial.config));
    }
    asked_.push_back({std::move(x), generation_});
  }

  void OnEnd(const HistoryTrial& trial) override {
    Asked& asked = asked_[&trial - trials().data()];
    double value = trial.state == HistoryTrial::State::kDone ? trial.values[0] : kInfinity;
    Learn({std::move(asked.x), value}, asked.generation);
  }

 private:
  struct Asked {
    Eigen::VectorXd x;
    int generation;
  };

  CmaModel::Settings Settings(int population, double sigma) const {
    return {.population = population > 0 ? population : options_.population,
            .sigma = sigma,
            .diagonal = options_.separable || encoding().size() > kMaxFull};
  }

  // Coordinates of keys that do not exist are in the middle.
  static Eigen::VectorXd Complete(const std::vector<double>& unit) {
    Eigen::VectorXd x(static_cast<Eigen::Index>(unit.size()));
    for (std::size_t i = 0; i < unit.size(); ++i) x[static_cast<Eigen::Index>(i)] = std::isnan(unit[i]) ? 0.5 : unit[i];
    return x;
  }

  // x0, or the best known result, or the middle.
  Eigen::VectorXd FirstMean() const {
    if (!options_.x0.empty()) return Complete(encoding().Encode(options_.x0));
    const Known* best = nullptr;
    for (const Known& known : this->known()) {
      if (best == nullptr || known.value < best->value) best = &known;
    }
    return Complete(best == nullptr ? std::vector<double>(encoding().size(), 0.5) : best->unit);
  }

  const Eigen::VectorXd& Drawn(TrialNumber trial) {
    if (!drawn_ || drawn_->first != trial || drawn_generation_ != generation_) {
      Stream stream(seed(), trial, Purpose::kCandidates);
      drawn_ = {trial, model_.Sample(stream)};
      drawn_generation_ = generation_;
    }
    return drawn_->second;
  }

  void Learn(CmaModel::Point point, int generation) {
    if (generation < restarted_at_) return;  // drawn before the restart, far away
    results_.push_back(std::move(point));
    if (static_cast<int>(results_.size()) < model_.population()) return;
    model_.Update(std::move(results_));
    used_ += model_.population();
    results_.clear();
    ++generation_;
    if (options_.restart != CmaEs::Restart::kNone && model_.Converged()) Restart();
  }

  // IPOP doubles the population at each restart. BIPOP also spends as many trials on small populations with small
  // steps. The new mean is drawn from the space.
  void Restart() {
    ++restarts_;
    Stream stream(seed(), restarts_, Purpose::kModel);
    Eigen::VectorXd mean(static_cast<Eigen::Index>(encoding().size()));
    for (double& number : mean) number = stream.Uniform();
    (small_ ? small_trials_ : large_trials_) += used_;
    small_ = options_.restart == CmaEs::Restart::kBipop && restarts_ > 1 && small_trials_ < large_trials_;
    used_ = 0;
    int population = 0;
    double sigma = options_.sigma0;
    if (small_) {
      double u = stream.Uniform();
      double ratio = 0.5 * static_cast<double>(large_population_) / first_population_;
      population = static_cast<int>(first_population_ * std::pow(ratio, u * u));
      sigma *= std::pow(10.0, -2 * stream.Uniform());
    } else {
      large_population_ = population = std::max(large_population_, first_population_) * 2;
    }
    model_ = CmaModel(encoding(), std::move(mean), Settings(population, sigma));
    restarted_at_ = generation_;
  }

  CmaEs options_;
  CmaModel model_;
  int first_population_;
  int large_population_ = 0;
  bool small_ = false;
  int restarts_ = 0;
  int used_ = 0;  // results since the last restart
  int large_trials_ = 0;
  int small_trials_ = 0;
  int generation_ = 0;
  int restarted_at_ = 0;
  std::vector<CmaModel::Point> results_;
  std::vector<Asked> asked_;
  std::optional<std::pair<TrialNumber, Eigen::VectorXd>> drawn_;
  int drawn_generation_ = 0;
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const CmaEs& options) {
  Require(options.sigma0 > 0 && options.sigma0 <= 1, "sigma0", options.sigma0, "above 0 and at most 1");
  Require(options.population == 0 || options.population >= 4, "population", options.population, "0 or at least 4");
  return std::make_unique<CmaEsSearcher>(space, options);
}

}  // namespace manta::tune
