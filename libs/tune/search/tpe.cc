#include <cmath>

#include "manta/tune/searchers.h"
#include "tune/search/options.h"
#include "tune/search/points.h"
#include "tune/search/tpe_model.h"

namespace manta::tune {
namespace {

class TpeSearcher : public PointsSearcher {
 public:
  TpeSearcher(const Space& space, const Tpe& options)
      : PointsSearcher(space, options.seed, ModesOf(options.mode, options.modes), options.points_to_evaluate,
                       options.evaluated_rewards),
        options_(options),
        model_(encoding(), {.candidates = options.n_ei_candidates, .prior_weight = options.prior_weight}) {
    RequireOneObjective(options.modes, options.evaluated_rewards);
    for (const Known& known : this->known()) model_.Rank(model_.Add(known.unit), {known.value});
  }

 protected:
  std::vector<double> Suggest(TrialNumber trial) override {
    if (model_.ranked() < options_.n_startup_trials) return Draw(trial);
    Stream stream(seed(), trial, Purpose::kCandidates);
    return model_.Propose(stream);
  }

  void OnAsk(const HistoryTrial& trial) override {
    model_.Hide(model_.Add(encoding().Encode(trial.config)), !options_.constant_liar);
  }

  // A failed trial stays without a value and counts as a bad one.
  void OnEnd(const HistoryTrial& trial) override {
    auto point = static_cast<int>(known().size()) + static_cast<int>(&trial - trials().data());
    if (trial.state == HistoryTrial::State::kDone) {
      model_.Rank(point, trial.values);
    } else {
      model_.Hide(point, false);
    }
  }

 private:
  Tpe options_;
  TpeModel model_;
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Tpe& options) {
  Require(options.n_startup_trials >= 0, "n_startup_trials", options.n_startup_trials, "at least 0");
  Require(options.n_ei_candidates >= 1, "n_ei_candidates", options.n_ei_candidates, "at least 1");
  Require(options.prior_weight > 0 && std::isfinite(options.prior_weight), "prior_weight", options.prior_weight,
          "above 0");
  return std::make_unique<TpeSearcher>(space, options);
}

}  // namespace manta::tune
