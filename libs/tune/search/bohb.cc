// The searcher of BOHB (Falkner et al., 2018): one density model for each budget, of which the one for the largest
// budget with enough results is used; a share of the trials is random.
#include <algorithm>
#include <cmath>
#include <map>

#include "manta/tune/searchers.h"
#include "tune/search/options.h"
#include "tune/search/points.h"
#include "tune/search/tpe_model.h"

namespace manta::tune {
namespace {

class BohbSearcher : public PointsSearcher {
 public:
  BohbSearcher(const Space& space, const Bohb& options)
      : PointsSearcher(space, options.seed, {options.mode}, options.points_to_evaluate, options.evaluated_rewards),
        options_(options) {
    for (const Known& known : this->known()) Observe(kFinal, known.unit, known.value);
  }

 protected:
  std::vector<double> Suggest(TrialNumber trial) override {
    Stream stream(seed(), trial, Purpose::kCandidates);
    bool random = stream.Uniform() < options_.random_fraction;
    const TpeModel* model = random ? nullptr : Largest();
    return model == nullptr ? Draw(trial) : model->Propose(stream);
  }

  void OnAsk(const HistoryTrial& trial) override { units_.push_back(encoding().Encode(trial.config)); }

  void OnReport(const HistoryTrial& trial) override {
    auto [time, value] = trial.reports.back();
    if (std::isfinite(value) && !std::isnan(time)) Observe(time, units_[&trial - trials().data()], value);
  }

  // A result belongs to the budget of the trial's last report; that of a trial without reports is the full budget.
  void OnEnd(const HistoryTrial& trial) override {
    if (trial.state != HistoryTrial::State::kDone) return;
    if (trial.reports.empty()) Observe(kFinal, units_[&trial - trials().data()], trial.values[0]);
  }

 private:
  static constexpr double kFinal = std::numeric_limits<double>::infinity();

  void Observe(double budget, const std::vector<double>& unit, double value) {
    auto [model, fresh] = models_.try_emplace(
        budget, encoding(),
        TpeModel::Settings{
            .candidates = options_.num_samples, .good_share = options_.top_n_percent / 100.0, .max_good = 1 << 20});
    model->second.Rank(model->second.Add(unit), {value});
  }

  // Of the largest budget that has more results than keys, so that both densities have points.
  const TpeModel* Largest() const {
    auto least =
        options_.min_points_in_model > 0 ? options_.min_points_in_model : static_cast<int>(encoding().size()) + 1;
    for (auto entry = models_.rbegin(); entry != models_.rend(); ++entry) {
      if (entry->second.ranked() >= least + 2) return &entry->second;
    }
    return nullptr;
  }

  Bohb options_;
  std::vector<std::vector<double>> units_;  // of all trials
  std::map<double, TpeModel> models_;       // by budget
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Bohb& options) {
  Require(options.random_fraction >= 0 && options.random_fraction <= 1, "random_fraction", options.random_fraction,
          "in [0, 1]");
  Require(options.top_n_percent > 0 && options.top_n_percent < 100, "top_n_percent", options.top_n_percent,
          "between 0 and 100");
  Require(options.num_samples >= 1, "num_samples", options.num_samples, "at least 1");
  return std::make_unique<BohbSearcher>(space, options);
}

}  // namespace manta::tune
