// Controller is the state machine of a tuning run: events in, actions out. It asks the searcher for configurations,
// tells it results, lets the scheduler decide which trials go on, keeps the books of resources, retries failed trials,
// applies stoppers and budgets, and retains checkpoints.
//
// Pure: no clock, thread, file or socket. One thread calls it. The same events give the same actions, which is what
// restore and the simulator rely on.
//
// Invariants: (1) a trial ends exactly once, unless RunRestored revives a failed one;
//             (2) the searcher is told each result of a trial at most once: a result whose iteration was seen before,
//                 because the trial was restarted from an older checkpoint, is answered and otherwise ignored;
//             (3) the resources of trials with a process never exceed the capacity;
//             (4) a step visits the trials that the event concerns, never all of them: lists by state are ordered sets.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"
#include "manta/tune/schedule.h"
#include "manta/tune/search.h"
#include "tune/trials/retention.h"
#include "tune/trials/stoppers.h"
#include "tune/trials/trial.h"

namespace manta::tune::trials {

struct Objective {
  std::string metric;
  Mode mode = Mode::kMin;
};

struct FailureRules {    // FailureConfig
  int max_failures = 0;  // -1: unlimited
  bool fail_fast = false;
  bool count_lost = false;  // lost workers and nodes count, too
  double backoff = 1;       // seconds before the first retry after an error; doubles, at most 60
  int max_lost_in_a_row = 10;  // a process lost so often without a result counts as an error: it may be the cause
};

struct RunRules {
  std::vector<Objective> objectives = {};  // may be empty: then every trial just runs
  std::string time_attr = "training_iteration";
  std::int64_t num_samples = 1;  // trials; -1: until the searcher finishes or the run is stopped
  int max_concurrent = 0;        // trials that have not ended; 0: no limit
  int queue_ahead = 1;           // configurations that are asked for before there is room
  double time_budget = 0;        // seconds; 0: none
  bool strict_metric = true;     // a result without the metric ends the run
  bool reuse_actors = false;
  int window = 1;  // StartTrial::window
  // The controller of a user-written searcher or scheduler cannot ask it again in a replay.
  bool foreign_searcher = false;
  bool foreign_scheduler = false;
  TrialResources resources = {};
  FailureRules failure = {};
  CheckpointRules checkpoint = {};
};

// A recorded choice that the replay did not make.
struct ReplayError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Counts {
  std::int64_t pending = 0, running = 0, paused = 0, terminated = 0, error = 0;
  std::int64_t results = 0, retries = 0;
};

class Controller final : public TrialStates {
 public:
  // `resources_of` gives a trial its resources by its configuration; empty: rules.resources.
  using ResourcesOf = TrialResources (*)(void* self, const Config& config);
  Controller(RunRules rules, std::unique_ptr<Searcher> searcher, std::unique_ptr<Scheduler> scheduler,
             std::unique_ptr<Stopper> stopper);
  ~Controller() override;

  // Applies an event and returns what is to be done, in this order. Throws std::invalid_argument for an event about a
  // trial that does not exist. An event that comes too late (a result of a trial that was stopped) is ignored.
  std::vector<Action> Step(const Event& event);
  // The choices of the searcher and the scheduler in the last step.
  const std::vector<Made>& made() const { return made_; }
  // The same with the choices that were recorded. Throws ReplayError, which shows both, when the replay differs.
  std::vector<Action> Replay(const Event& event, const std::vector<Made>& recorded);

  bool ended() const { return end_.has_value(); }
  const std::optional<EndRun>& end() const { return end_; }
  const std::deque<Trial>& trials() const { return trials_; }
  const Trial& trial(TrialNumber number) const;
  const Counts& counts() const { return counts_; }
  const RunRules& rules() const { return rules_; }
  Searcher& searcher() { return *searcher_; }
  Scheduler& scheduler() { return *scheduler_; }
  const Amounts& used() const { return used_; }
  const Amounts& capacity() const { return capacity_; }
  // The trial with the best last value of the first objective; nan is never the best. Nothing: no trial has a value.
  std::optional<TrialNumber> best() const;
  // The next time at which a Tick changes something; infinity: none.
  double next_tick() const;

  std::optional<TrialNumber> FirstPending() const override;
  std::optional<TrialNumber> FirstPaused() const override;

 private:
  struct Implementation;
  friend struct Implementation;

  RunRules rules_;
  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Stopper> stopper_;
  std::deque<Trial> trials_;
  std::set<TrialNumber> pending_, paused_, running_;
  Counts counts_;
  Amounts capacity_, used_;
  std::vector<Made> made_;
  std::optional<EndRun> end_;
};

}  // namespace manta::tune::trials
