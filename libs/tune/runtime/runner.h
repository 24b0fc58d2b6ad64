// TrialRunner is the loop of a tuning run. It connects the controller to an executor, the journal and the loggers:
// it waits for what happens, writes it to the journal, asks the controller, and has the actions done.
//
// One thread calls Run. Stop may be called by another thread or by a signal handler.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "manta/tune/executor.h"
#include "tune/journal/run_log.h"
#include "tune/loggers/loggers.h"
#include "tune/trials/controller.h"

namespace manta::tune::runtime {

struct RunnerOptions {
  std::string folder;            // of the run, absolute
  std::string trainable = "train";
  std::string run_id = {};       // five characters, the first part of a trial's id
  bool csv = true, json = true, tensorboard = true;
  std::size_t max_folder_name = 130;
  bool sync = true;              // a thread calls fdatasync on the journal, so that it survives the machine
};

// What the run tells a front end. Called on the thread of Run; a function may be empty. An exception ends the run, and the
// state stays restorable.
struct Listener {
  std::function<void(const Announce&)> on_announce = {};
  std::function<void(const trials::Trial&, const TrialResult&, const Origin&)> on_result = {};
  std::function<void(const trials::Trial&, const Checkpoint&)> on_checkpoint = {};
  std::function<void(const trials::Controller&)> on_step = {};  // at most ten times a second
  // User-written stoppers: sees a result before the journal does, and may set stop and stop_all.
  std::function<void(TrialResult&)> before_result = {};
  std::function<void(const std::string&)> warn = {};  // a full disk, a resource that is short
};

class TrialRunner {
 public:
  TrialRunner(RunnerOptions options, trials::Controller& controller, journal::RunLog& log, TrialExecutor& executor,
              Listener listener = {});
  ~TrialRunner();

  // Runs until the controller ends the run. `restored`: the controller has just been restored by RunLog::Restore.
  // Throws what listeners and the executor throw.
  EndRun Run(const std::optional<RunRestored>& restored = {});
  // Ends the run: trials that can are saved. Twice: at once.
  void Stop() { stops_.fetch_add(1); }

  // Folder of a trial, relative to the run's.
  std::string FolderOf(TrialNumber trial) const;
  std::string IdOf(TrialNumber trial) const;  // "3f2a1_00017"

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
  std::atomic<int> stops_{0};
};

}  // namespace manta::tune::runtime
