// TrialRunner is the loop of a tuning run. It connects the controller to an executor, the journal and the files: it
// waits for what happens, writes it to the journal, asks the controller, and has the actions done.
//
// One thread calls Run. Stop may be called by another thread or by a signal handler.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/executor.h"
#include "tune/journal/run_log.h"
#include "tune/runtime/files.h"
#include "tune/trials/controller.h"

namespace manta::tune::runtime {

// What the run tells a front end. Called on the thread of Run; a function may be empty. An exception ends the run, and
// the state stays restorable.
struct Listener {
  std::function<void(const Announce&)> on_announce = {};
  std::function<void(const trials::Trial&, const TrialResult&, const Origin&)> on_result = {};
  std::function<void(const trials::Controller&)> on_step = {};  // after each turn of the loop
  // User-written stoppers: sees a result before the journal does, and may set stop and stop_all.
  std::function<void(TrialResult&)> before_result = {};
  std::function<void(const std::string&)> warn = {};  // a full disk, a resource that is short
};

class TrialRunner {
 public:
  // All of them must outlive the runner.
  TrialRunner(trials::Controller& controller, journal::RunLog& log, RunFiles& files, TrialExecutor& executor,
              Listener listener = {});
  ~TrialRunner();

  // Runs until the controller ends the run. `restored`: the controller has just been restored by RunLog::Restore.
  // Throws what listeners and the executor throw, and manta::InfeasibleError when a trial needs more than there is.
  EndRun Run(const std::string& folder, const std::optional<RunRestored>& restored = {});
  // Ends the run: trials that can are saved. Twice: at once.
  void Stop() { stops_.fetch_add(1); }

 private:
  struct Turn {
    Event event;
    Origin origin;
    std::vector<Action> actions;
  };
  void Take(Happening happening, std::vector<Turn>& turns);
  void Commit();
  void Do(const Turn& turn);
  void DoOne(const Turn& turn, const Action& action);
  void Heard(const Announce& said);
  void CheckFeasible() const;
  double Now() const;

  trials::Controller& controller_;
  journal::RunLog& log_;
  RunFiles& files_;
  TrialExecutor& executor_;
  Listener listener_;
  std::string folder_;
  std::chrono::steady_clock::time_point begin_;
  double base_ = 0;  // seconds of the run before this process
  std::atomic<int> stops_{0};
};

}  // namespace manta::tune::runtime
