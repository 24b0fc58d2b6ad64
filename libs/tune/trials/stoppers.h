// Stoppers end a trial, or the whole run, by its results. They are pure: time comes with the event. A user-written
// stopper is asked by the runtime, and its answer travels in TrialResult::stop and stop_all.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tune/trials/trial.h"

namespace manta::tune::trials {

class Stopper {
 public:
  virtual ~Stopper() = default;
  // After each result of the trial that counts.
  virtual bool StopTrial(const Trial& trial) = 0;
  // After each event. `elapsed`: seconds since the run began, without the time between a stop and a restore.
  virtual bool StopAll(double /*elapsed*/) { return false; }
  virtual double deadline() const;  // when StopAll may change by itself; infinity: never
};

// {"loss", 0.1}: a trial stops at the first result whose value is at or above the threshold, as in Ray.
std::unique_ptr<Stopper> StopAtThreshold(std::map<std::string, double> thresholds);
std::unique_ptr<Stopper> StopAfterIterations(std::int64_t iterations);  // MaximumIteration
std::unique_ptr<Stopper> StopAfterSeconds(double seconds);              // TimeoutStopper
std::unique_ptr<Stopper> StopNever();                                   // NoopStopper

struct TrialPlateau {  // a trial whose last values differ little
  std::string metric;
  double std = 0.01;
  int num_results = 4;
  int grace_period = 4;
  std::optional<double> metric_threshold = {};  // stops only beyond it: below for kMin, above for kMax
  Mode mode = Mode::kMin;
};
std::unique_ptr<Stopper> StopOnPlateau(TrialPlateau options);

struct ExperimentPlateau {  // the run, when its best values differ little
  std::string metric;
  double std = 0.001;
  int top = 10;
  Mode mode = Mode::kMin;
  int patience = 0;
};
std::unique_ptr<Stopper> StopOnPlateau(ExperimentPlateau options);

std::unique_ptr<Stopper> StopOnAny(std::vector<std::unique_ptr<Stopper>> stoppers);  // CombinedStopper

}  // namespace manta::tune::trials
