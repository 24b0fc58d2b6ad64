// Tuning: searches for the configuration of a training function that gives the best metric (doc/tune.md).
//
//   tune::Results all = tune::Tuner(Train)
//       .Space({{"lr", tune::LogUniform(1e-4, 1)}, {"act", tune::Choice({"relu", "tanh"})}})
//       .Minimize("loss").Search(tune::Tpe{.seed = 7}).Schedule(tune::Asha{.max_t = 81}).Samples(64).Run();
//   std::puts(all.Best().Describe().c_str());
//
// Run starts a private cluster if the program has not called manta::Init. Each trial runs in a process of its own. The
// state of the run is a journal on disk: after the death of the program, the same program with Resume() continues it.
// A Tuner belongs to one thread. Link the library manta_tune beside manta.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"
#include "manta/tune/executor.h"
#include "manta/tune/population.h"
#include "manta/tune/schedule.h"
#include "manta/tune/searchers.h"
#include "manta/tune/space.h"
#include "manta/tune/trial.h"

namespace manta::tune {

struct Result {
  TrialNumber number = 0;
  std::string id;
  std::string state;  // "TERMINATED", "ERROR"; "PENDING" or "PAUSED" when the run was stopped before
  Config config;
  Metrics metrics;  // of the last result
  std::int64_t iteration = 0;
  std::string error;       // text of the failure
  std::string folder;      // of the trial
  std::string checkpoint;  // folder of the latest; empty: none
  // "trial 41  loss=0.0223  act=relu lr=0.2131"
  [[nodiscard]] std::string Describe() const;
};

class Results {
 public:
  Results(std::vector<Result> all, std::optional<std::size_t> best, EndRun end, std::string folder);
  [[nodiscard]] std::size_t size() const { return all_.size(); }
  [[nodiscard]] const Result& operator[](std::size_t i) const { return all_.at(i); }
  [[nodiscard]] auto begin() const { return all_.begin(); }
  [[nodiscard]] auto end() const { return all_.end(); }
  // By the last value of the first metric; nan is never the best. Throws std::runtime_error if no trial has a value.
  [[nodiscard]] const Result& Best() const;
  [[nodiscard]] std::size_t Errors() const;
  [[nodiscard]] const EndRun& reason() const { return end_; }  // why the run ended
  [[nodiscard]] const std::string& folder() const { return folder_; }

 private:
  std::vector<Result> all_;
  std::optional<std::size_t> best_;
  EndRun end_;
  std::string folder_;
};

namespace internal {
struct TunerSettings;
template <class Options>
Options WithMode(Options options, Mode mode) {
  if constexpr (requires { options.mode = mode; }) options.mode = mode;
  return options;
}
template <class Options>
Options WithSamples(Options options, int samples) {
  if constexpr (requires { options.constant_grid_search; }) options.num_samples = samples;
  return options;
}
}  // namespace internal

class Tuner {
 public:
  using Function = void (*)(Trial&);
  using MakeSearch = std::function<std::unique_ptr<Searcher>(const tune::Space&, Mode, int samples)>;
  using MakeSchedule = std::function<std::unique_ptr<Scheduler>(Mode)>;

  explicit Tuner(Function train);  // a function, or a lambda without captures
  // Of a class derived from Trainable, with a default constructor.
  template <class T>
  static Tuner Of() {
    return Tuner(static_cast<Trainable* (*)()>([]() -> Trainable* { return new T(); }));
  }
  Tuner(Tuner&&) noexcept;
  ~Tuner();

  Tuner& Space(tune::Space space);
  Tuner& Minimize(std::string metric);
  Tuner& Maximize(std::string metric);
  // Options of a searcher (manta/tune/search.h) or of a scheduler (manta/tune/schedule.h). The mode is set by Minimize
  // and Maximize.
  template <class Options>
  Tuner& Search(Options options) {
    return SearchWith(
        [options = std::move(options)](const tune::Space& space, Mode mode, int samples) {
          return MakeSearcher(space, internal::WithSamples(internal::WithMode(options, mode), samples));
        },
        requires { options.constant_grid_search; });
  }
  template <class Options>
  Tuner& Schedule(Options options) {
    return ScheduleWith(
        [options = std::move(options)](Mode mode) { return MakeScheduler(internal::WithMode(options, mode)); });
  }
  // `counts`: the searcher counts the samples itself (grid x samples) and finishes.
  Tuner& SearchWith(MakeSearch make, bool counts = false);
  Tuner& ScheduleWith(MakeSchedule make);
  Tuner& Samples(int samples);                 // default 1; -1: until stopped
  Tuner& MaxConcurrent(int trials);            // default: as many as fit
  Tuner& Resources(TrialResources resources);  // default: one CPU for each trial
  Tuner& TimeBudget(double seconds);
  Tuner& TimeAttribute(std::string key);                  // default: training_iteration
  Tuner& Stop(std::map<std::string, double> thresholds);  // a trial ends when a value is at or above its threshold
  Tuner& MaxFailures(int failures);  // retries of a trial that throws or crashes; -1: without limit
  Tuner& FailFast(bool yes = true);
  Tuner& KeepCheckpoints(std::int64_t count, std::string score = {}, Mode order = Mode::kMax);
  Tuner& CheckpointFrequency(std::int64_t iterations);  // class trainables
  Tuner& CheckpointAtEnd(bool yes = true);              // class trainables
  Tuner& ReuseProcesses(bool yes = true);
  Tuner& Name(std::string name);             // of the run; default: the trainable's with the date
  Tuner& StorageFolder(std::string folder);  // default: $TUNE_RESULT_DIR, else ~/manta_results
  // Continues the run of this name if there is one: finished trials do not run again.
  Tuner& Resume(bool yes = true);
  Tuner& MoreSamples(int samples);  // after Resume: adds trials
  Tuner& Loggers(bool csv, bool json, bool tensorboard);
  Tuner& Verbose(int level);                                 // 0: print nothing
  Tuner& Executor(std::unique_ptr<TrialExecutor> executor);  // instead of Manta's actors

  // Runs to the end. Throws std::invalid_argument for settings that make no sense, manta::InfeasibleError when a trial
  // needs more than the cluster has, manta::IoError when the folder cannot be written, and std::runtime_error when a
  // metric is missing or a journal cannot be restored. A trial that fails does not throw: see Results.
  Results Run();

 private:
  explicit Tuner(Trainable* (*make)());
  std::unique_ptr<internal::TunerSettings> settings_;
};

}  // namespace manta::tune
