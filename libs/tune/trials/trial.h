// Trial: what a run knows about one training run. It is metadata, one-to-one with a trainable, and never leaves the
// driver; the trainable itself runs in another process. The object that a trainable sees is manta::tune::Trial.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "manta/tune/events.h"

namespace manta::tune::trials {

enum class Status : std::uint8_t { kPending, kRunning, kPaused, kTerminated, kError };

// The name that Ray's files and API use: "PENDING", "RUNNING", "PAUSED", "TERMINATED", "ERROR".
const char* NameOf(Status status);

struct KeptCheckpoint {
  Checkpoint checkpoint;
  double score = 0;   // higher is better; nan ranks last
  bool owned = true;  // false: the folder belongs to the donor of an exploit
};

struct Trial {
  // What the process of the trial does for the controller at the moment. A trial with a process holds its resources.
  enum class Process : std::uint8_t {
    kNone,
    kStarting,  // StartTrial was given, TrialStarted has not come
    kComputing,
    kSaving,   // SaveTrial was given; ContinueTrial follows TrialSaved
    kPausing,  // PauseTrial was given; the status is PAUSED already, or PENDING when the run ends
    kClosing,  // the last SaveTrial was given; the status is TERMINATED already
    kParked,   // waits in this step for the scheduler to choose the trial again
  };

  TrialNumber number = 0;
  Status status = Status::kPending;
  Process process = Process::kNone;
  Config config;
  TrialResources resources;
  std::optional<TrialResources> next_resources = {};  // from its next start on
  bool has_result = false;
  std::int64_t iteration = 0;  // of the last result that counted
  double time_total = 0;
  Metrics last;                                            // metrics of that result
  double cost = std::numeric_limits<double>::quiet_NaN();  // of the first objective; lower is better, nan: none
  std::vector<KeptCheckpoint> checkpoints;                 // oldest first; the last one is where a restart begins
  std::int64_t next_checkpoint = 0;
  int failures = 0;        // counted against max_failures
  int lost = 0;            // processes lost since the last result that counted
  double not_before = 0;   // a retry waits until then
  bool cloned = false;     // while kPausing: the checkpoint to come is older than what it was cloned from
  TrialNumber donor = -1;  // waits for the checkpoint of this trial, to be cloned from it
  bool revived = false;    // failed before a restore: searcher and scheduler have counted it as failed
  std::string error = {};  // text of the last failure

  const Checkpoint* latest() const { return checkpoints.empty() ? nullptr : &checkpoints.back().checkpoint; }
  bool ended() const { return status == Status::kTerminated || status == Status::kError; }
};

// Reads a metric by its key path; the automatic keys "training_iteration" and "time_total_s" are known for every
// result. Booleans count as 0 and 1. Nothing: there is no such key, or it holds text.
std::optional<double> NumberOf(const Trial& trial, const std::string& key);
std::optional<double> NumberOf(const Metrics& metrics, std::int64_t iteration, double time_total,
                               const std::string& key);

}  // namespace manta::tune::trials
