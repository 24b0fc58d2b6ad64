// TrialExecutor runs trials for a tuning run: it turns actions into processes and reports what happens to them. The
// default executor runs each trial as an actor in a placement group; a program may bring its own.
//
// One thread calls it: the loop of the run. No call but Wait blocks. A trial for which StopTrial was given reports
// nothing afterwards. Capacity is what trials may use together; the run never asks for more, so that an executor never
// over-commits a resource.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "manta/tune/events.h"

namespace manta::tune {

// Facts about a report that do not influence decisions and are not in the journal.
struct Origin {
  std::int64_t pid = 0;
  std::string hostname = {};
  std::string node_ip = {};
  double time_this_iter = 0;
  double timestamp = 0;  // seconds since 1970
};

struct Happening {
  decltype(Event::body) body;
  Origin origin = {};
};

class TrialExecutor {
 public:
  virtual ~TrialExecutor() = default;

  virtual Amounts Capacity() = 0;
  // `folder`: the absolute path of the trial's folder, which exists. `run_folder`: checkpoint paths are relative to it.
  virtual void Start(const StartTrial& start, const std::string& folder, const std::string& run_folder) = 0;
  virtual void Continue(const ContinueTrial& action) = 0;
  virtual void Save(const SaveTrial& action) = 0;
  virtual void Pause(const PauseTrial& action) = 0;
  virtual void Exploit(const ExploitTrial& action) = 0;
  virtual void Stop(const StopTrial& action) = 0;
  // Waits until something happens, at most `seconds`. Several happenings may come at once, in the order they happened.
  virtual std::vector<Happening> Wait(double seconds) = 0;
};

}  // namespace manta::tune
