// Schedulers: which trials go on, wait or stop, given their intermediate results.
//
//   auto asha = tune::MakeScheduler(tune::Asha{.mode = tune::Mode::kMax, .max_t = 81});
//   asha->OnAdd(trial, config);
//   if (asha->OnResult(trial, iteration, accuracy, states).kind == tune::Decision::Kind::kStop) …
//
// On the same events a scheduler makes the decisions of Ray's scheduler of the same name. It reads no clock and starts
// no thread; calls to one scheduler must not overlap. A time is the value of the run's time attribute. A scheduler is a
// function of the calls that it received: the same calls on a new scheduler with the same options rebuild its state,
// and Save and Load do the same from a snapshot. manta/tune/population.h and manta/tune/resources.h have more
// schedulers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manta/tune/search.h"

namespace manta::tune {

enum class TrialState { kPending, kRunning, kPaused, kEnded };

// A placement group: one map of resources for each bundle.
using Bundles = std::vector<std::map<std::string, double>>;

// What a scheduler may ask about the trials of a run. The run implements it without visiting all trials. During
// OnResult the trial that reports is running. After kPause or kExploit a trial counts as paused at once, also while it
// saves its checkpoint.
class TrialStates {
 public:
  virtual ~TrialStates() = default;
  // The trial that has been in this state for the longest time, in the order in which trials were added.
  virtual std::optional<TrialNumber> FirstPending() const = 0;
  virtual std::optional<TrialNumber> FirstPaused() const = 0;
  virtual TrialState Get(TrialNumber trial) const = 0;
  virtual bool AnyRunning() const = 0;
  // Whether the searcher may add trials later.
  virtual bool MayAdd() const { return false; }
  // Whether the trial has a checkpoint or can save one on request. Trials without one are no donors.
  virtual bool HasCheckpoint(TrialNumber) const { return true; }
  // How much of a resource ("CPU", "GPU") the cluster has, free or not.
  virtual double Total(const std::string& /*resource*/) const { return 0; }
};

// One result of a trial, as far as schedulers read it.
struct Report {
  std::optional<double> time;   // absent: the result lacks the time attribute
  std::optional<double> value;  // absent: the result lacks the metric
  std::int64_t iteration = 0;   // training_iteration
};

// One line of pbt_global.txt. Before the line is appended to the trial's pbt_policy file, the donor's file, if it
// exists, is copied over it. PolicyJson (manta/tune/population.h) writes the line.
struct PolicyLine {
  TrialNumber trial = 0;
  TrialNumber donor = 0;
  std::int64_t trial_iteration = 0;
  std::int64_t donor_iteration = 0;
  Config donor_config;
  Config config;
};

// The trial goes on from the donor's newest checkpoint with this configuration.
struct Exploit {
  TrialNumber donor = 0;
  Config config;
  std::optional<PolicyLine> log = {};
};

// What happens to a trial other than the one that reports.
struct Order {
  enum class Kind {
    kStop,     // the trial, paused or pending, ends
    kResume,   // a paused trial may run again: Choose returns it when its turn comes; the searcher counts it again
    kExploit,  // the trial takes the donor's checkpoint and the configuration, and is paused
  };
  Kind kind = Kind::kStop;
  TrialNumber trial = 0;
  std::optional<Exploit> exploit = {};  // kExploit
};
using Orders = std::vector<Order>;

struct Decision {
  enum class Kind {
    kContinue,
    kPause,    // saves a checkpoint and gives up its resources until Choose returns it
    kStop,     // OnComplete follows
    kExploit,  // the trial takes the donor's checkpoint and configuration and is paused until Choose returns it; a run
               // may keep its process when Choose returns it at once
  };
  Kind kind = Kind::kContinue;
  bool save = false;                      // the trial must save a checkpoint now: others may clone it
  std::optional<Exploit> exploit = {};    // kExploit
  std::optional<Bundles> resources = {};  // kPause: the trial needs these from its next start on
  std::optional<double> budget = {};      // HyperBandForBohb: the milestone that the trial has reached
  Orders orders = {};                     // in this order, before the decision itself
};

// The run calls OnAdd once for each trial, OnResult for its results, and then one of OnComplete, OnError and OnRemove.
// OnComplete also follows kStop, and OnRemove follows Order::kStop.
class Scheduler {
 public:
  virtual ~Scheduler() = default;
  // A configuration that the trial must have instead of the given one, or nothing.
  virtual std::optional<Config> OnAdd(TrialNumber, const Config& = {}) { return std::nullopt; }
  virtual Decision OnResult(TrialNumber trial, const Report& report, const TrialStates& states) = 0;
  Decision OnResult(TrialNumber trial, double time, double value, const TrialStates& states) {
    return OnResult(trial, Report{time, value, static_cast<std::int64_t>(time)}, states);
  }
  // A running trial ended by itself, by a stopper or by kStop; its last result is repeated.
  virtual Orders OnComplete(TrialNumber, const Report&, const TrialStates&) { return {}; }
  // The trial failed and is not tried again.
  virtual Orders OnError(TrialNumber trial, const TrialStates& states) { return OnRemove(trial, states); }
  // A pending or paused trial was stopped.
  virtual Orders OnRemove(TrialNumber, const TrialStates&) { return {}; }
  // A trial that was running must start again: its node was lost, it failed and is tried again, or it was paused for
  // another reason than a decision of this scheduler.
  virtual void OnPending(TrialNumber) {}
  // The trial to start next, pending or paused. The orders take effect before the choice. Without a choice, nothing
  // starts until the next event. Here: the first pending trial, else the first paused one.
  virtual std::optional<TrialNumber> Choose(const TrialStates& states, Orders& orders);
  std::optional<TrialNumber> Choose(const TrialStates& states) {
    Orders orders;
    return Choose(states, orders);
  }
  // The state as bytes. Load, on a new scheduler with the same options, continues from it exactly; bytes that are
  // damaged or of another scheduler throw std::invalid_argument.
  virtual std::string Save() const = 0;
  virtual void Load(std::string_view bytes) = 0;
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
  // True: as in the ASHA paper, a trial is paused at each milestone and goes on when it is among the best
  // 1/reduction_factor of the trials that reached the milestone. Ray stops such trials for ever.
  bool promote = false;
};

struct HyperBand {  // HyperBandScheduler
  Mode mode = Mode::kMin;
  double max_t = 81;
  double reduction_factor = 3;
  bool stop_last_trials = true;
};

struct HyperBandForBohb {  // HyperBandForBOHB: the largest bracket is filled first and waits until it is full
  Mode mode = Mode::kMin;
  double max_t = 81;
  double reduction_factor = 3;
  bool stop_last_trials = true;
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
std::unique_ptr<Scheduler> MakeScheduler(HyperBand options);
std::unique_ptr<Scheduler> MakeScheduler(HyperBandForBohb options);
std::unique_ptr<Scheduler> MakeScheduler(MedianStopping options);

}  // namespace manta::tune
