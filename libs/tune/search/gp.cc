// Bayesian optimisation: a Gaussian process of the results so far predicts mean and deviation everywhere, and the trial
// gets the point at which the acquisition function is highest.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "manta/tune/searchers.h"
#include "tune/search/acquisition.h"
#include "tune/search/gp_model.h"
#include "tune/search/lbfgs.h"
#include "tune/search/options.h"
#include "tune/search/points.h"
#include "tune/search/sequences.h"

namespace manta::tune {
namespace {

constexpr std::size_t kMaxPoints = 500;     // of the model
constexpr std::size_t kMaxFitPoints = 120;  // that the parameters are fitted to
constexpr int kSpread = 128;                // candidates all over the space
constexpr int kNear = 64;                   // candidates near the best results
constexpr int kRefined = 8;                 // candidates that are improved by their gradients
constexpr int kEvaluations = 25;            // of the acquisition function for each of them
constexpr int kCautious = 6;                // every so many trials the length scales are shortened,
constexpr double kShorter = 0.5;            // by this logarithm: fitted scales that are too long would hide a minimum

// Values as the model sees them: the distances to the best value on a logarithmic scale, where the unit is the distance
// that three fifths of the values have, then standardised. Large bad values would hide the differences among good ones.
Eigen::VectorXd Warped(const std::vector<double>& values) {
  std::vector<double> sorted = values;
  std::ranges::sort(sorted);
  double scale = sorted[sorted.size() * 3 / 5] - sorted[0];
  if (!(scale > 0)) scale = std::max(sorted.back() - sorted[0], 1e-300);
  Eigen::VectorXd warped(static_cast<Eigen::Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    warped[static_cast<Eigen::Index>(i)] = std::log1p(std::min((values[i] - sorted[0]) / scale, 1e300));
  }
  warped.array() -= warped.mean();
  double deviation = std::sqrt(warped.squaredNorm() / static_cast<double>(values.size()));
  return deviation > 1e-12 ? Eigen::VectorXd(warped / deviation) : warped;
}

class GpSearcher : public PointsSearcher {
 public:
  GpSearcher(const Space& space, const Gp& options)
      : PointsSearcher(space, options.seed, {options.mode}, options.points_to_evaluate, options.evaluated_rewards),
        options_(options),
        features_(encoding()),
        continuous_(std::ranges::all_of(encoding().coordinates(), [](const auto& coordinate) {
          return coordinate.cells == 0 && coordinate.domain.parent.empty();
        })) {
    for (const Known& known : this->known()) done_.push_back({known.unit, known.value});
  }

 protected:
  std::vector<double> Suggest(TrialNumber trial) override {
    bool sequence = encoding().size() <= kMaxSequenceDimensions;
    if (encoding().size() == 0) return {};
    if (done_.size() < StartupTrials()) {
      return sequence
                 ? ScrambledSobolPoint(static_cast<std::uint64_t>(trial), static_cast<int>(encoding().size()), seed())
                 : Draw(trial);
    }
    Fit();
    GpParameters parameters = parameters_;
    if (trial % kCautious == kCautious / 2) parameters.log_lengths.array() -= kShorter;
    GpModel model = Model(parameters);
    Stream stream(seed(), trial, Purpose::kCandidates);
    std::vector<std::vector<double>> candidates = Candidates(trial, stream);
    if (options_.acquisition != Gp::Acquisition::kHedge) return Best(model, options_.acquisition, candidates, trial);
    return Hedge(model, candidates, trial, stream);
  }

  void OnAsk(const HistoryTrial& trial) override {
    asked_.push_back(encoding().Encode(trial.config));
    running_.push_back(asked_.size() - 1);
  }

  void OnEnd(const HistoryTrial& trial) override {
    auto index = static_cast<std::size_t>(&trial - trials().data());
    std::erase(running_, index);
    if (trial.state == HistoryTrial::State::kDone) {
      done_.push_back({asked_[index], trial.values[0]});
    } else {
      failed_.push_back(index);
    }
  }

 private:
  std::size_t StartupTrials() const {
    return static_cast<std::size_t>(std::max(options_.n_startup_trials, 2)) + encoding().size() / 6;
  }

  // The results that the model learns from: all, or those next to the best one and some of the others.
  std::vector<std::size_t> Chosen(std::size_t count, std::size_t most) const {
    std::vector<std::size_t> chosen(count);
    std::iota(chosen.begin(), chosen.end(), std::size_t{0});
    if (count <= most) return chosen;
    auto best =
        std::ranges::min_element(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count), {}, &Known::value);
    std::vector<double> distances(count);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t j = 0; j < best->unit.size(); ++j) {
        double difference = done_[i].unit[j] - best->unit[j];
        distances[i] += std::isnan(difference) ? 1 : difference * difference;
      }
    }
    std::ranges::stable_sort(chosen, {}, [&](std::size_t i) { return distances[i]; });
    std::size_t near = most * 3 / 4;
    std::vector<std::size_t> result(chosen.begin(), chosen.begin() + static_cast<std::ptrdiff_t>(near));
    std::size_t rest = count - near;
    for (std::size_t i = near; i < most; ++i) result.push_back(chosen[near + (i - near) * rest / (most - near)]);
    return result;
  }

  Eigen::MatrixXd Rows(const std::vector<std::size_t>& chosen) const {
    Eigen::MatrixXd rows(static_cast<Eigen::Index>(chosen.size()), features_.size());
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      rows.row(static_cast<Eigen::Index>(i)) = features_.Of(done_[chosen[i]].unit);
    }
    return rows;
  }

  std::vector<double> Values(const std::vector<std::size_t>& chosen) const {
    std::vector<double> values;
    values.reserve(chosen.size());
    for (std::size_t i : chosen) values.push_back(done_[i].value);
    return values;
  }

  // The parameters are a function of the first results alone, so that a loaded searcher has the same. They are fitted
  // to all results of a short history, and of a long one whenever it has grown by a tenth.
  void Fit() {
    std::size_t count = done_.size();
    if (count > 40) {
      double step = std::floor(std::log(static_cast<double>(count) / 40) / std::log(1.1));
      count = std::min(count, static_cast<std::size_t>(40 * std::pow(1.1, step) + 1e-6));
    }
    if (count == fitted_) return;
    std::vector<std::size_t> chosen = Chosen(count, kMaxFitPoints);
    parameters_ = FitGp(features_, Rows(chosen), Warped(Values(chosen)));
    fitted_ = count;
  }

  // The model of the results; running trials have the predicted value, so that a batch spreads, and failed ones that of
  // the worst result.
  GpModel Model(const GpParameters& parameters) const {
    std::vector<std::size_t> chosen = Chosen(done_.size(), kMaxPoints);
    Eigen::MatrixXd rows = Rows(chosen);
    Eigen::VectorXd values = Warped(Values(chosen));
    std::vector<std::size_t> others = running_;
    std::size_t failures = std::min(failed_.size(), kMaxPoints / 4);
    others.insert(others.end(), failed_.end() - static_cast<std::ptrdiff_t>(failures), failed_.end());
    GpModel model(features_, rows, values, parameters);
    if (others.empty()) return model;
    Eigen::Index n = rows.rows();
    auto total = n + static_cast<Eigen::Index>(others.size());
    rows.conservativeResize(total, Eigen::NoChange);
    values.conservativeResize(total);
    double worst = values.head(n).maxCoeff();
    for (std::size_t i = 0; i < others.size(); ++i) {
      Eigen::Index row = n + static_cast<Eigen::Index>(i);
      rows.row(row) = features_.Of(asked_[others[i]]);
      values[row] = i < running_.size() ? model.Predict(rows.row(row)).mean : worst;
    }
    return {features_, rows, values, parameters};
  }

  // What the point's configuration is encoded as: discrete keys in the middle of their cells, nan for absent ones.
  std::vector<double> Canonical(std::vector<double> unit) const {
    return continuous_ ? unit : encoding().Encode(encoding().Decode(unit));
  }

  std::vector<std::vector<double>> Candidates(TrialNumber trial, Stream& stream) const {
    std::vector<std::vector<double>> candidates;
    auto d = static_cast<int>(encoding().size());
    auto key = static_cast<std::uint64_t>(trial) * kSpread;
    for (int i = 0; i < kSpread; ++i) {
      std::vector<double> unit(encoding().size());
      if (d <= kMaxSequenceDimensions) {
        unit = ScrambledSobolPoint(key + static_cast<std::uint64_t>(i), d, seed() ^ 0x9E3779B97F4A7C15U);
      } else {
        for (double& u : unit) u = stream.Uniform();
      }
      candidates.push_back(Canonical(std::move(unit)));
    }
    std::vector<std::size_t> order(done_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::size_t bests = std::min<std::size_t>(order.size(), 4);
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(bests), {},
                              [&](std::size_t i) { return done_[i].value; });
    for (int i = 0; i < kNear; ++i) {
      std::vector<double> unit = done_[order[static_cast<std::size_t>(i) % bests]].unit;
      double width = std::pow(10.0, -0.5 - 2.5 * stream.Uniform());
      for (std::size_t j = 0; j < unit.size(); ++j) {
        double u = stream.Uniform();
        double z = stream.Normal();
        bool category = !encoding().coordinates()[j].ordered;
        if (std::isnan(unit[j]) || (category && u < 0.3)) unit[j] = stream.Uniform();
        if (!category) unit[j] = std::clamp(unit[j] + width * z, 0.0, 1.0);
      }
      candidates.push_back(Canonical(std::move(unit)));
    }
    return candidates;
  }

  bool Tried(const std::vector<double>& unit) const {
    auto same = [&](const std::vector<double>& other) {
      return std::ranges::equal(unit, other,
                                [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
    };
    return std::ranges::any_of(asked_, same) ||
           std::ranges::any_of(done_, [&](const Known& known) { return same(known.unit); });
  }

  // Moves the numbers of a point uphill; categories and absent keys stay.
  std::vector<double> Refined(const GpModel& model, Gp::Acquisition kind, const std::vector<double>& unit) const {
    std::vector<Eigen::Index> moving;
    for (std::size_t j = 0; j < unit.size(); ++j) {
      if (encoding().coordinates()[j].ordered && !std::isnan(unit[j])) moving.push_back(static_cast<Eigen::Index>(j));
    }
    auto count = static_cast<Eigen::Index>(moving.size());
    Eigen::VectorXd point = features_.Of(unit);
    auto function = [&](const Eigen::VectorXd& x, Eigen::VectorXd& gradient) {
      for (Eigen::Index i = 0; i < count; ++i) point[features_.first(moving[i])] = x[i];
      GpModel::Prediction at = model.Predict(point);
      AcquisitionValue value = Acquire(kind, at.mean, at.deviation, model.Best(), options_.kappa);
      Eigen::VectorXd all = value.by_mean * at.mean_gradient + value.by_deviation * at.deviation_gradient;
      for (Eigen::Index i = 0; i < count; ++i) gradient[i] = -all[features_.first(moving[i])];
      return -value.value;
    };
    Eigen::VectorXd start(count);
    for (Eigen::Index i = 0; i < count; ++i) start[i] = unit[moving[i]];
    Minimum found =
        MinimizeInBox(function, start, Eigen::VectorXd::Zero(count), Eigen::VectorXd::Ones(count), kEvaluations);
    std::vector<double> result = unit;
    for (Eigen::Index i = 0; i < count; ++i) result[moving[i]] = found.x[i];
    return Canonical(std::move(result));
  }

  std::vector<double> Scores(const GpModel& model, Gp::Acquisition kind,
                             const std::vector<std::vector<double>>& candidates) const {
    Eigen::MatrixXd rows(static_cast<Eigen::Index>(candidates.size()), features_.size());
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      rows.row(static_cast<Eigen::Index>(i)) = features_.Of(candidates[i]);
    }
    Eigen::VectorXd means;
    Eigen::VectorXd deviations;
    model.PredictAll(rows, means, deviations);
    std::vector<double> scores;
    scores.reserve(candidates.size());
    for (Eigen::Index i = 0; i < means.size(); ++i) {
      scores.push_back(Acquire(kind, means[i], deviations[i], model.Best(), options_.kappa).value);
    }
    return scores;
  }

  std::vector<double> Best(const GpModel& model, Gp::Acquisition kind, std::vector<std::vector<double>> candidates,
                           TrialNumber trial) const {
    std::vector<double> scores = Scores(model, kind, candidates);
    std::vector<std::size_t> order(candidates.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return scores[i]; });
    std::vector<std::vector<double>> refined;
    refined.reserve(kRefined);
    for (int i = 0; i < kRefined; ++i) refined.push_back(Refined(model, kind, candidates[order[i]]));
    std::vector<double> refined_scores = Scores(model, kind, refined);
    for (std::size_t i = 0; i < refined.size(); ++i) {
      candidates.push_back(std::move(refined[i]));
      scores.push_back(refined_scores[i]);
      order.push_back(order.size());
    }
    std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return scores[i]; });
    for (std::size_t i : order) {
      if (!Tried(candidates[i])) return candidates[i];
    }
    return Draw(trial);  // few discrete values: all candidates were tried before
  }

  std::vector<double> Hedge(const GpModel& model, const std::vector<std::vector<double>>& candidates, TrialNumber trial,
                            Stream& stream) const {
    std::vector<std::vector<double>> proposals;
    std::vector<double> cumulative;
    double sum = 0;
    for (auto kind :
         {Gp::Acquisition::kLogExpectedImprovement, Gp::Acquisition::kLowerBound, Gp::Acquisition::kProbability}) {
      proposals.push_back(Best(model, kind, candidates, trial));
      double gain = model.Best() - model.Predict(features_.Of(Canonical(proposals.back()))).mean;
      cumulative.push_back(sum += std::exp(std::clamp(gain, -20.0, 20.0)));
    }
    double u = stream.Uniform() * sum;
    std::size_t choice = 0;
    while (choice + 1 < proposals.size() && u >= cumulative[choice]) ++choice;
    return proposals[choice];
  }

  Gp options_;
  GpFeatures features_;
  bool continuous_;                         // all keys are numbers without steps or conditions
  std::vector<Known> done_;                 // the results in the order in which they came
  std::vector<std::vector<double>> asked_;  // the points of all trials
  std::vector<std::size_t> running_;
  std::vector<std::size_t> failed_;
  std::size_t fitted_ = 0;  // how many results the parameters are fitted to
  GpParameters parameters_;
};

}  // namespace

std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Gp& options) {
  Require(options.n_startup_trials >= 0, "n_startup_trials", options.n_startup_trials, "at least 0");
  Require(options.kappa >= 0 && std::isfinite(options.kappa), "kappa", options.kappa, "at least 0");
  return std::make_unique<GpSearcher>(space, options);
}

}  // namespace manta::tune
