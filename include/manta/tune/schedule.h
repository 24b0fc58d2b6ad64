// Schedulers: which trials go on, wait or stop, given their intermediate results.
//
//   auto asha = tune::MakeScheduler(tune::Asha{.mode = tune::Mode::kMax, .max_t = 81});
//   asha->OnAdd(trial);
//   if (asha->OnResult(trial, iteration, accuracy, states).kind == tune::Decision::Kind::kStop) …
//
// On the same events a scheduler makes the decisions of Ray's scheduler of the same name. It reads no clock and starts
// no thread; calls to one scheduler must not overlap. A time is the value of the run's time attribute.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "manta/tune/search.h"

namespace manta::tune {

// What a scheduler may ask about the trials of a run. The run implements it without visiting all trials.
class TrialStates {
 public:
  virtual ~TrialStates() = default;
  // The trial that has been in this state for the longest time, in the order in which trials were added.
  virtual std::optional<TrialNumber> FirstPending() const = 0;
  virtual std::optional<TrialNumber> FirstPaused() const = 0;
};

struct Decision {
  enum class Kind { kContinue, kPause, kStop };
  Kind kind = Kind::kContinue;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  virtual void OnAdd(TrialNumber) {}
  virtual Decision OnResult(TrialNumber trial, double time, double value, const TrialStates& states) = 0;
  // The trial ended by itself; its last result is repeated.
  virtual void OnComplete(TrialNumber, double /*time*/, double /*value*/) {}
  // The trial failed or was removed.
  virtual void OnRemove(TrialNumber) {}
  // The trial to start next: the first pending one, else the first paused one.
  virtual std::optional<TrialNumber> Choose(const TrialStates& states);
};

struct Fifo {};

struct Asha {  // AsyncHyperBandScheduler
  Mode mode = Mode::kMin;
  double max_t = 100;
  double grace_period = 1;
  double reduction_factor = 4;
  int brackets = 1;
  bool stop_last_trials = true;
  std::uint64_t seed = 0;  // of the choice among brackets
};

struct MedianStopping {  // MedianStoppingRule
  Mode mode = Mode::kMin;
  double grace_period = 60;
  int min_samples_required = 3;
  double min_time_slice = 0;
  bool hard_stop = true;  // false: pause
};

// Options that make no sense throw std::invalid_argument.
std::unique_ptr<Scheduler> MakeScheduler(Fifo options);
std::unique_ptr<Scheduler> MakeScheduler(Asha options);
std::unique_ptr<Scheduler> MakeScheduler(MedianStopping options);

}  // namespace manta::tune
