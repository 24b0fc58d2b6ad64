// Events and actions of a tuning run: what happens to trials, and what the run asks its executor to do. Plain data.
//
// The controller (libs/tune/trials) is a pure function from events to actions. Every event is in the journal before the
// controller sees it, and a run is restored by giving the recorded events to a new controller. An event therefore
// carries everything that the decision depends on, also the time and the answers of user-written code.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "manta/tune/schedule.h"
#include "manta/tune/search.h"

namespace manta::tune {

// Key path ("a/b") to value.
using Metrics = std::map<std::string, Value>;
using Amounts = std::map<std::string, double>;  // resources by name: {{"CPU", 1}}

// What a trial needs. The first bundle belongs to the trainable and may be empty.
struct TrialResources {
  std::vector<Amounts> bundles = {{{"CPU", 1}}};
  std::string strategy = "PACK";  // PACK, SPREAD, STRICT_PACK, STRICT_SPREAD
  friend bool operator==(const TrialResources&, const TrialResources&) = default;
};

// A folder that a trial wrote. `iteration` and `time_total` are those of the result that it belongs to: a trial that is
// restored from it counts on from there.
struct Checkpoint {
  std::string path;  // relative to the folder of the run: "train_17_…/checkpoint_000003"
  std::int64_t index = 0;
  std::int64_t iteration = 0;
  double time_total = 0;
  friend bool operator==(const Checkpoint&, const Checkpoint&) = default;
};

enum class FailureKind : std::uint8_t {
  kUserError,       // the trainable threw, crashed or exceeded a limit: counted
  kWorkerLost,      // its process was killed from outside: not counted unless asked
  kNodeLost,        // its machine is gone: not counted unless asked
  kCheckpointLost,  // the checkpoint to start from cannot be read: the previous one is used
  kInfeasible,      // its resources can never be had: ends the trial without a retry
};

// ---- events ----

struct TrialStarted {  // the process runs; also after ExploitTrial
  TrialNumber trial = 0;
};
struct TrialResult {
  TrialNumber trial = 0;
  std::int64_t iteration = 0;  // 1 is the first; counts on over restarts
  double time_total = 0;       // seconds of computing, over restarts
  Metrics metrics;
  std::optional<Checkpoint> checkpoint = {};
  bool done = false;      // the trainable said that this was its last result
  bool save = false;      // the trainable asked for a checkpoint (should_checkpoint)
  bool stop = false;      // a user-written stopper ends this trial
  bool stop_all = false;  // … or the whole run
};
struct TrialSaved {  // the answer to SaveTrial and PauseTrial; no checkpoint: the trainable cannot save on request
  TrialNumber trial = 0;
  std::optional<Checkpoint> checkpoint = {};
};
struct TrialFinished {  // the trainable returned
  TrialNumber trial = 0;
};
struct TrialFailed {
  TrialNumber trial = 0;
  FailureKind kind = FailureKind::kUserError;
  std::string text;
};
struct ResourcesChanged {  // of the whole cluster, free or not
  Amounts capacity;
};
struct Tick {};  // time has passed
struct UserStop {
  std::optional<TrialNumber> trial = {};  // none: all, and the run ends
};
// The driver is a new process: the trials that ran are gone. `resume_errored` continues failed trials from their
// checkpoints, `restart_errored` begins them again; `resume_unfinished` = false ends the unfinished ones.
struct RunRestored {
  bool resume_unfinished = true;
  bool resume_errored = false;
  bool restart_errored = false;
  std::int64_t more_samples = 0;
};

struct Event {
  double now = 0;  // seconds of a clock that never goes back, also not over restarts of the driver
  std::variant<TrialStarted, TrialResult, TrialSaved, TrialFinished, TrialFailed, ResourcesChanged, Tick, UserStop,
               RunRestored>
      body;
};

// ---- actions ----

struct StartTrial {
  TrialNumber trial = 0;
  Config config;
  TrialResources resources;
  std::optional<Checkpoint> checkpoint = {};  // where to start from; none: from the beginning
  std::int64_t next_checkpoint = 0;           // the index of the next folder that the trial writes
  int window = 1;                             // so many results may be under way without an answer
  bool reuse = false;                         // the process of an ended trial may be used
};
struct ContinueTrial {  // the answer to a result: the trainable computes on
  TrialNumber trial = 0;
};
struct SaveTrial {  // write a checkpoint now; TrialSaved is the answer
  TrialNumber trial = 0;
};
// The trial goes on with the configuration and the checkpoint of another one, in the same process if the trainable can
// do that; TrialStarted is the answer.
struct ExploitTrial {
  TrialNumber trial = 0;
  TrialNumber donor = 0;
  Config config;
  std::optional<Checkpoint> checkpoint = {};
  std::int64_t next_checkpoint = 0;
};
struct PauseTrial {  // write a checkpoint, then end the process; TrialSaved is the answer
  TrialNumber trial = 0;
};
struct StopTrial {  // end the process and free its resources; there is no answer
  TrialNumber trial = 0;
  bool keep_process = false;  // reuse_actors: another trial may take the process
};
struct LogResult {  // give the result to loggers, callbacks and the screen
  TrialNumber trial = 0;
};
struct LogPolicy {  // append to pbt_global.txt and pbt_policy_<trial>.txt
  PolicyLine line;
};
struct DropCheckpoint {  // delete the folder
  TrialNumber trial = 0;
  std::string path;
};
struct Announce {
  enum class Kind : std::uint8_t { kNewTrial, kRestored, kRetry, kPaused, kTerminated, kError, kWarning };
  Kind kind = Kind::kWarning;
  TrialNumber trial = -1;  // -1: the run
  std::string text = {};
};
enum class EndReason : std::uint8_t {
  kComplete,    // every trial has ended
  kUserStop,    // UserStop or a user-written stopper
  kStopper,     // a stopper ended the run
  kTimeBudget,  // the time budget is used up
  kFailFast,    // a trial failed and fail_fast is set
  kBadMetric,   // the metric of the run is not in a result
  kBroken,      // no trial runs, none can be started, and the searcher waits
};
struct EndRun {
  EndReason reason = EndReason::kComplete;
  std::string text = {};
};

using Action = std::variant<StartTrial, ContinueTrial, SaveTrial, ExploitTrial, PauseTrial, StopTrial, LogResult,
                            LogPolicy, DropCheckpoint, Announce, EndRun>;

// A choice of the searcher or the scheduler. The journal holds it beside its event: a replay must make the same ones.
// User-written searchers and schedulers are not asked in a replay: the recorded answer is used.
struct Made {
  enum class Kind : std::uint8_t { kAsk, kDecide, kOrder, kChoose };
  Kind kind = Kind::kAsk;
  TrialNumber trial = -1;
  // kAsk: 0 a configuration, 1 wait, 2 finished. kDecide: the number of the Decision's kind; a plain kContinue is not
  // recorded. kOrder: the number of the Order's kind. kChoose: 0.
  std::uint8_t answer = 0;
  bool save = false;                    // kDecide
  Config config = {};                   // kAsk and exploits
  TrialNumber donor = -1;               // exploits
  std::vector<Amounts> resources = {};  // kDecide: for the next start; empty: unchanged
  friend bool operator==(const Made&, const Made&) = default;
};
std::string Describe(const Made& made);

}  // namespace manta::tune
