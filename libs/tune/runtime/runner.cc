#include "tune/runtime/runner.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <variant>

#include "manta/errors.h"
#include "tune/runtime/failpoint.h"

namespace manta::tune::runtime {
namespace {

constexpr double kLongestWait = 0.2;   // seconds; how late Stop and a change of capacity may be seen
constexpr double kStatePeriod = 10;    // experiment_state.json
constexpr double kCapacityPeriod = 1;  // ClusterResources is asked so often
constexpr auto kDiskPeriod = std::chrono::milliseconds(200);
constexpr auto kSyncPeriod = std::chrono::milliseconds(20);

// Calls fdatasync in the background: a record survives the process when Commit returns, and the machine soon after.
class Syncer {
 public:
  explicit Syncer(journal::Journal& journal)
      : thread_([&journal](const std::stop_token& stop) {
          std::mutex mutex;
          std::condition_variable_any woken;
          std::unique_lock lock(mutex);
          while (!woken.wait_for(lock, stop, kSyncPeriod, [&] { return stop.stop_requested(); })) journal.Sync();
          journal.Sync();
        }) {}

 private:
  std::jthread thread_;
};

std::string Text(const Amounts& amounts) {
  std::string text;
  for (const auto& [name, amount] : amounts) {
    std::string number = std::to_string(amount);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.ends_with('.')) number.pop_back();
    text.append(text.empty() ? "" : ", ").append(number).append(" ").append(name);
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace

TrialRunner::TrialRunner(trials::Controller& controller, journal::RunLog& log, RunFiles& files, TrialExecutor& executor,
                         Listener listener)
    : controller_(controller), log_(log), files_(files), executor_(executor), listener_(std::move(listener)) {}

TrialRunner::~TrialRunner() = default;

double TrialRunner::Now() const {
  return base_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void TrialRunner::CheckFeasible() const {
  const TrialResources& resources = controller_.rules().resources;
  if (controller_.ledger().Possible(resources)) return;
  Amounts sum;
  for (const Amounts& bundle : resources.bundles) {
    for (const auto& [name, amount] : bundle) sum[name] += amount;
  }
  throw InfeasibleError("cannot run any trial: one needs " + Text(sum) + ", the cluster has " +
                        Text(controller_.ledger().capacity()) + ". Lower the resources of a trial or add a node.");
}

// The order of a step: the event, its choices, the commit, then the actions (tune/journal/run_log.h).
void TrialRunner::Take(Happening happening, std::vector<Turn>& turns) {
  Turn turn{{Now(), std::move(happening.body)}, std::move(happening.origin), {}};
  if (auto* result = std::get_if<TrialResult>(&turn.event.body)) {
    if (listener_.before_result) listener_.before_result(*result);
    Failpoint("result.before");
  }
  log_.Record(turn.event);
  if (controller_.rules().foreign_searcher || controller_.rules().foreign_scheduler) Commit();
  turn.actions = controller_.Step(turn.event);
  log_.RecordMade(controller_.made());
  turns.push_back(std::move(turn));
}

void TrialRunner::Commit() {
  bool warned = false;
  while (!log_.Commit()) {
    if (!std::exchange(warned, true) && listener_.warn) listener_.warn(log_.journal().why());
    if (stops_.load() > 0) throw IoError("stopped while the disk is full: " + log_.journal().why());
    std::this_thread::sleep_for(kDiskPeriod);
  }
  Failpoint("committed");
}

void TrialRunner::Heard(const Announce& said) {
  if (said.trial >= 0) {
    const trials::Trial& trial = controller_.trial(said.trial);
    if (said.kind == Announce::Kind::kError) files_.Fail(trial, said.text);
    if (said.kind == Announce::Kind::kError || said.kind == Announce::Kind::kTerminated) {
      files_.End(trial, std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count());
      Failpoint("trial.ended");
    }
  }
  if (listener_.on_announce) listener_.on_announce(said);
}

void TrialRunner::DoOne(const Turn& turn, const Action& action) {
  if (const auto* go = std::get_if<ContinueTrial>(&action)) {
    executor_.Continue(*go);
  } else if (const auto* log = std::get_if<LogResult>(&action)) {
    const auto& result = std::get<TrialResult>(turn.event.body);
    Failpoint("result.recorded");
    files_.Log(controller_.trial(log->trial), result, turn.origin);
    Failpoint("result.logged");
    if (listener_.on_result) listener_.on_result(controller_.trial(log->trial), result, turn.origin);
  } else if (const auto* start = std::get_if<StartTrial>(&action)) {
    Failpoint("trial.chosen");
    const std::string folder = files_.Prepare(controller_.trial(start->trial));
    executor_.Start(*start, folder, folder_);
    Failpoint("trial.started");
  } else if (const auto* stop = std::get_if<StopTrial>(&action)) {
    executor_.Stop(*stop);
    Failpoint("trial.stopped");
  } else if (const auto* save = std::get_if<SaveTrial>(&action)) {
    executor_.Save(*save);
    Failpoint("trial.saving");
  } else if (const auto* pause = std::get_if<PauseTrial>(&action)) {
    executor_.Pause(*pause);
    Failpoint("trial.pausing");
  } else if (const auto* exploit = std::get_if<ExploitTrial>(&action)) {
    executor_.Exploit(*exploit);
    Failpoint("trial.exploiting");
  } else if (const auto* drop = std::get_if<DropCheckpoint>(&action)) {
    Failpoint("checkpoint.dropped");
    files_.Drop(drop->path);
  } else if (const auto* line = std::get_if<LogPolicy>(&action)) {
    files_.Policy(line->line);
  } else if (const auto* said = std::get_if<Announce>(&action)) {
    Heard(*said);
  }
}

void TrialRunner::Do(const Turn& turn) {
  for (const Action& action : turn.actions) DoOne(turn, action);
}

EndRun TrialRunner::Run(const std::string& folder, const std::optional<RunRestored>& restored) {
  folder_ = folder;
  begin_ = std::chrono::steady_clock::now();
  base_ = log_.last_time();
  const Syncer syncer(log_.journal());
  std::vector<Happening> happened;
  if (restored) happened.push_back({*restored});
  Amounts capacity = executor_.Capacity();
  happened.push_back({ResourcesChanged{capacity}});
  double next_state = Now() + kStatePeriod;
  double next_capacity = Now() + kCapacityPeriod;
  int stops = 0;
  bool first = true;
  while (!controller_.ended() || first) {
    std::vector<Turn> turns;
    for (Happening& each : happened) Take(std::move(each), turns);
    if (std::exchange(first, false)) CheckFeasible();
    Commit();
    for (const Turn& turn : turns) Do(turn);
    for (bool warned = false; !files_.Flush(); std::this_thread::sleep_for(kDiskPeriod)) {
      if (!std::exchange(warned, true) && listener_.warn) listener_.warn(files_.why());
      if (stops_.load() > 0) break;
    }
    if (listener_.on_step) listener_.on_step(controller_);
    if (controller_.ended()) break;
    const double now = Now();
    if (now >= next_state) {
      files_.WriteState(controller_);
      next_state = now + kStatePeriod;
    }
    happened = executor_.Wait(std::clamp(controller_.next_tick() - now, 0.0, kLongestWait));
    if (now >= next_capacity) {
      next_capacity = now + kCapacityPeriod;
      if (Amounts fresh = executor_.Capacity(); fresh != capacity) {
        capacity = std::move(fresh);
        happened.push_back({ResourcesChanged{capacity}});
      }
    }
    if (controller_.next_tick() <= Now()) happened.push_back({Tick{}});
    if (const int asked = stops_.load(); asked > stops) {
      if (asked > 1) break;
      stops = asked;
      happened.push_back({UserStop{}});
    }
  }
  files_.WriteState(controller_);
  Failpoint("run.ended");
  return controller_.end().value_or(EndRun{EndReason::kUserStop, "stopped at once by the user"});
}

}  // namespace manta::tune::runtime
