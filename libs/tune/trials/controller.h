// Controller is the state machine of a tuning run: events in, actions out. It asks the searcher for configurations,
// tells it results, lets the scheduler decide which trials go on, keeps the books of resources, retries failed trials,
// applies stoppers and budgets, and retains checkpoints.
//
// Pure: no clock, thread, file or socket. One thread calls it. The same events give the same actions, which is what
// restore and the simulator rely on. The first event of a run is ResourcesChanged: nothing starts before.
//
// Invariants: (1) a trial ends exactly once, unless RunRestored revives a failed one;
//             (2) the searcher is told each result of a trial at most once: a result whose iteration was seen before,
//                 because the trial was restarted from an older checkpoint, is answered and otherwise ignored;
//             (3) the resources of trials with a process never exceed the capacity;
//             (4) a step visits the trials that the event concerns, never all of them (tune/trials/table.h).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"
#include "manta/tune/schedule.h"
#include "manta/tune/search.h"
#include "tune/trials/choices.h"
#include "tune/trials/retention.h"
#include "tune/trials/stoppers.h"
#include "tune/trials/table.h"
#include "tune/trials/trial.h"

namespace manta::tune::trials {

struct Objective {
  std::string metric;
  Mode mode = Mode::kMin;
};

struct FailureRules {    // FailureConfig
  int max_failures = 0;  // -1: unlimited
  bool fail_fast = false;
  bool count_lost = false;     // lost workers and nodes count, too
  double backoff = 1;          // seconds before the first retry after an error; doubles, at most 60
  int max_lost_in_a_row = 10;  // a process lost so often without a result counts as an error: it may be the cause
};

struct RunRules {
  std::vector<Objective> objectives = {};  // may be empty: then every trial just runs
  std::string time_attr = "training_iteration";
  std::int64_t num_samples = 1;  // trials; -1: until the searcher finishes or the run is stopped
  int max_concurrent = 0;        // trials that have not ended; 0: no limit
  int queue_ahead = 1;           // configurations that are asked for before there is room
  int max_starting = 0;          // processes that are being started; 0: no limit
  double time_budget = 0;        // seconds; 0: none
  bool strict_metric = true;     // a result without the metric ends the run
  bool can_save = false;         // the trainable writes a checkpoint on request (a class does, a function does not)
  bool reuse_actors = false;
  int window = 1;                  // StartTrial::window
  bool foreign_searcher = false;   // user-written: not asked in a replay
  bool foreign_scheduler = false;  // user-written: not asked in a replay
  TrialResources resources = {};
  FailureRules failure = {};
  CheckpointRules checkpoint = {};
};

class Controller final : public TrialStates {
 public:
  Controller(RunRules rules, std::unique_ptr<Searcher> searcher, std::unique_ptr<Scheduler> scheduler,
             std::unique_ptr<Stopper> stopper = StopNever());

  // The resources of a trial by its configuration, instead of RunRules::resources. Must be a pure function.
  void SetResourcesOf(std::function<TrialResources(const Config&)> resources_of);

  // Applies an event and returns what is to be done, in this order. Throws std::invalid_argument for an event about a
  // trial that does not exist. An event that comes too late (a result of a trial that was stopped) is ignored.
  std::vector<Action> Step(const Event& event) { return Apply(event, nullptr); }
  // The choices of the searcher and the scheduler in the last step.
  const std::vector<Made>& made() const { return choices_.made(); }
  // The same with the choices that were recorded. Throws ReplayError, which shows both, when the replay differs.
  std::vector<Action> Replay(const Event& event, const std::vector<Made>& recorded) { return Apply(event, &recorded); }

  bool ended() const { return end_.has_value(); }
  const std::optional<EndRun>& end() const { return end_; }
  const std::deque<Trial>& trials() const { return table_.all(); }
  const Trial& trial(TrialNumber number) const { return table_.at(number); }
  const TrialTable& table() const { return table_; }
  const Counts& counts() const { return table_.counts(); }
  const RunRules& rules() const { return rules_; }
  Searcher& searcher() { return *searcher_; }
  Scheduler& scheduler() { return *scheduler_; }
  const Ledger& ledger() const { return ledger_; }
  double now() const { return now_; }
  // The trial with the best last value of the first objective; nan is never the best. Nothing: no trial has a value.
  std::optional<TrialNumber> best() const;
  // The next time at which a Tick changes something; infinity: none.
  double next_tick() const;

  std::optional<TrialNumber> FirstPending() const override;
  std::optional<TrialNumber> FirstPaused() const override;
  TrialState Get(TrialNumber trial) const override;
  bool AnyRunning() const override { return !table_.running().empty(); }
  bool MayAdd() const override;
  bool HasCheckpoint(TrialNumber trial) const override;
  double Total(const std::string& resource) const override;

 private:
  std::vector<Action> Apply(const Event& event, const std::vector<Made>* recorded);

  void On(const TrialStarted& event);
  void On(const TrialResult& event);
  void On(const TrialSaved& event);
  void On(const TrialFinished& event);
  void On(const TrialFailed& event);
  void On(const ResourcesChanged& event);
  void On(const Tick& event);
  void On(const UserStop& event);
  void On(const RunRestored& event);

  bool CheckMetric(const Trial& trial);
  bool Record(Trial& trial, const TrialResult& result);  // false: the result was seen before
  void Follow(Trial& trial, const Decision& decision, bool save);
  void Obey(const Orders& orders);
  void Clone(Trial& trial, const Exploit& exploit);
  void CloneFrom(Trial& trial, const Trial& donor);
  void Complete(Trial& trial);
  void Fail(Trial& trial, const std::string& text);
  void Retry(Trial& trial, const TrialFailed& event, bool counted);
  void TellReport(const Trial& trial, std::optional<double> budget);
  void TellSearcher(Trial& trial, bool failed);
  void AddCheckpoint(Trial& trial, const Checkpoint& checkpoint);
  void Drop(TrialNumber trial, const std::vector<std::string>& paths);
  void ReleaseProcess(Trial& trial, bool keep);

  bool CanAsk() const;
  bool Ask();  // false: the searcher gave no configuration
  void Fill();
  void Start(Trial& trial);
  void CheckEnd();
  void EndAll(EndReason reason, std::string text);
  Decision Decide(const Trial& trial);
  std::optional<TrialNumber> ChooseNext();
  Report ReportOf(const Trial& trial) const;

  template <class A>
  void Do(A action) {
    actions_.emplace_back(std::move(action));
  }

  RunRules rules_;
  std::unique_ptr<Searcher> searcher_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<Stopper> stopper_;
  std::function<TrialResources(const Config&)> resources_of_;
  TrialTable table_;
  Ledger ledger_;
  Retention retention_;
  Choices choices_;
  std::vector<Action> actions_;
  std::set<std::pair<double, TrialNumber>> ranking_;      // by the cost of the last value, best first
  std::map<TrialNumber, std::vector<TrialNumber>> wait_;  // for the checkpoint of this donor
  std::set<TrialNumber> revived_;                         // failed before a restore, pending again
  std::int64_t processes_ = 0;
  std::int64_t starting_ = 0;
  std::int64_t extra_samples_ = 0;
  double now_ = 0;
  bool finished_ = false;  // the searcher has said so
  bool waiting_ = false;   // the searcher has nothing until a trial ends
  bool metric_seen_ = false;
  TrialNumber parked_ = -1;       // Process::kParked
  std::optional<EndRun> ending_;  // ends when no process is left
  std::optional<EndRun> end_;
};

}  // namespace manta::tune::trials
