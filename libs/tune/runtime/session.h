// Session is a trial in its own process: it runs the training function on a thread of its own, or the steps of a
// Trainable, and passes what they report to the actor's methods (TrialHost).
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "manta/tune/events.h"
#include "manta/tune/executor.h"
#include "manta/tune/trial.h"

namespace manta::tune::internal {

// What a trial's process is told at its beginning.
struct Beginning {
  TrialNumber trial = 0;
  std::string id;
  std::string folder;      // absolute
  std::string run_folder;  // absolute; checkpoint paths are relative to it
  Config config;
  std::optional<Checkpoint> checkpoint;
  std::int64_t next_checkpoint = 0;
  int window = 1;
};

struct Said {
  enum class Kind : std::uint8_t { kResult, kFinished, kError };
  Kind kind = Kind::kResult;
  TrialResult result = {};
  std::string text = {};
  Origin origin = {};
};

// The answer of every method of the trial's process.
struct Reply {
  std::vector<Said> said = {};
  std::optional<Checkpoint> checkpoint = {};
  std::string checkpoint_error = {};  // the checkpoint to begin from cannot be read
};

// Thrown by Report in a trial that is stopped; not a std::exception, so that the function's own handlers let it pass.
struct Stopped {};

class Session {
 public:
  explicit Session(Beginning beginning);
  virtual ~Session() = default;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Waits for at least one thing that the trainable says.
  virtual std::vector<Said> Next() = 0;
  virtual std::optional<Checkpoint> Save() { return std::nullopt; }
  // Takes over another configuration and checkpoint; false: a new session is needed.
  virtual bool Reset(const Beginning&) { return false; }

  const Beginning& beginning() const { return beginning_; }
  std::int64_t iteration() const { return iteration_; }
  const std::string& checkpoint_folder() const { return checkpoint_folder_; }
  std::string NewFolder();
  // The result with its number, times and checkpoint.
  Said MakeResult(const Metrics& metrics, const std::string& folder);
  virtual void Report(const Metrics&, const std::string&) {}

 protected:
  Checkpoint KeepCheckpoint(const std::string& folder);
  void Begin(Beginning beginning);

 private:
  Beginning beginning_;
  std::string checkpoint_folder_;  // absolute; empty: none
  std::int64_t iteration_ = 0;
  double time_total_ = 0;
  double last_ = 0;  // the clock at the last result
};

std::unique_ptr<Session> RunFunction(void (*train)(Trial&), Beginning beginning);
std::unique_ptr<Session> RunTrainable(Trainable* (*make)(), Beginning beginning);

}  // namespace manta::tune::internal
