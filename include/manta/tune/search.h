// Searchers by ask and tell: a searcher proposes a configuration for a trial and learns from its result.
//
//   tune::AskTell alone({{"x", tune::Uniform(-5, 10)}}, tune::Random{.seed = 7});
//   auto [trial, config] = *alone.Ask();
//   alone.Tell(trial, 0.5);
//
// A searcher is deterministic: its random numbers are keyed by (seed, trial, purpose), so the same history gives the
// same proposal whatever the order in which other trials end. It reads no clock and starts no thread; calls to one
// searcher must not overlap. Misuse (an unknown trial, a trial that ended before) throws std::invalid_argument.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "manta/tune/space.h"

namespace manta::tune {

using TrialNumber = std::int64_t;

enum class Mode { kMin, kMax };

struct Wait {};      // no proposal until a running trial ends
struct Finished {};  // no proposal ever
using Answer = std::variant<Config, Wait, Finished>;

class Searcher {
 public:
  virtual ~Searcher() = default;
  // Proposes a configuration for a trial number >= 0 that was not asked for before.
  virtual Answer Ask(TrialNumber trial) = 0;
  // An intermediate result at a time (a budget) of the trial.
  virtual void Report(TrialNumber trial, double time, double value) = 0;
  // The trial ended with these values, one for each objective. A nan or infinite value counts as a failure.
  virtual void Tell(TrialNumber trial, const std::vector<double>& values) = 0;
  void Tell(TrialNumber trial, double value) { Tell(trial, std::vector<double>{value}); }
  // The trial ended without a value.
  virtual void Fail(TrialNumber trial) = 0;
  // The history as bytes. Load, on a new searcher with the same space and options, continues from it exactly.
  virtual std::string Save() const = 0;
  virtual void Load(std::string_view bytes) = 0;
};

// Options shared by all searchers. A point is a configuration to try first; keys that it lacks are drawn at random. The
// first points that have a reward are known results: they are learned from and not tried again.
struct Random {  // grid x samples, counted as Ray's BasicVariantGenerator counts them
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  int num_samples = -1;  // -1: without end
  bool constant_grid_search = false;
  int max_concurrent = 0;  // 0: no limit
};

struct Sobol {  // at most 64 keys; scrambled by Owen's method, or plain: then SciPy's points
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  bool scramble = true;
};

struct Halton {  // as Sobol
  std::uint64_t seed = 0;
  Mode mode = Mode::kMin;
  std::vector<Config> points_to_evaluate = {};
  std::vector<double> evaluated_rewards = {};
  bool scramble = true;
};

std::unique_ptr<Searcher> MakeSearcher(const Space& space, Random options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Sobol& options);
std::unique_ptr<Searcher> MakeSearcher(const Space& space, const Halton& options);

// A searcher with trial numbers of its own, for use without a run.
class AskTell {
 public:
  template <class Options>
  explicit AskTell(const Space& space, Options options = {}) : searcher_(MakeSearcher(space, std::move(options))) {}
  // Nothing when the searcher waits for a result or has finished.
  std::optional<std::pair<TrialNumber, Config>> Ask() {
    Answer answer = searcher_->Ask(next_);
    if (auto* config = std::get_if<Config>(&answer)) return std::pair(next_++, std::move(*config));
    return std::nullopt;
  }
  void Tell(TrialNumber trial, double value) { searcher_->Tell(trial, value); }
  void Tell(TrialNumber trial, const std::vector<double>& values) { searcher_->Tell(trial, values); }
  void Fail(TrialNumber trial) { searcher_->Fail(trial); }
  Searcher& searcher() { return *searcher_; }

 private:
  std::unique_ptr<Searcher> searcher_;
  TrialNumber next_ = 0;
};

}  // namespace manta::tune
