// A scheduler that changes the resources of trials while they run. It wraps another scheduler, and where that one lets
// a trial go on, the trial may be paused and started again with a larger or smaller placement group.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <variant>

#include "manta/tune/schedule.h"

namespace manta::tune {

struct DistributeResources {  // free CPUs and GPUs are shared evenly among the live trials
  bool add_bundles = false;   // true: free resources become further bundles; false: the one bundle grows
  std::map<std::string, double> increase_by = {};  // empty: one GPU if the trial has GPUs, else one CPU
  int increase_by_times = -1;                      // below 1: no limit
  std::map<std::string, double> reserve_resources = {};
};

struct DistributeResourcesToTopJob {  // free CPUs and GPUs go to the trial with the best value
  DistributeResources distribute = {};
  Mode mode = Mode::kMin;
};

// Returns the trial's new placement group, or nothing to keep the one it has.
using AllocateResources =
    std::function<std::optional<Bundles>(TrialNumber trial, const Report& report, const Bundles& now)>;

struct ResourceChanging {         // ResourceChangingScheduler
  Bundles base = {{{"CPU", 1}}};  // the placement group that every trial starts with
  std::variant<DistributeResources, DistributeResourcesToTopJob, AllocateResources> allocation = DistributeResources{};
};

std::unique_ptr<Scheduler> MakeScheduler(ResourceChanging options, std::unique_ptr<Scheduler> base);

}  // namespace manta::tune
