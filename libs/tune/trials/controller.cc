#include "tune/trials/controller.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <variant>

#include "tune/trials/spelling.h"

namespace manta::tune::trials {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kMaxBackoff = 60;

std::string Name(const Trial& trial) { return "trial " + std::to_string(trial.number); }

Made MadeOf(TrialNumber trial, const Decision& decision) {
  Made made{.kind = Made::Kind::kDecide, .trial = trial, .answer = static_cast<std::uint8_t>(decision.kind)};
  made.save = decision.save;
  if (decision.exploit) {
    made.donor = decision.exploit->donor;
    made.config = decision.exploit->config;
  }
  if (decision.resources) made.resources = *decision.resources;
  return made;
}

Decision DecisionOf(const Made& made) {
  Decision decision{.kind = static_cast<Decision::Kind>(made.answer), .save = made.save};
  if (decision.kind == Decision::Kind::kExploit) decision.exploit = Exploit{made.donor, made.config};
  if (!made.resources.empty()) decision.resources = made.resources;
  return decision;
}

Made MadeOf(const Order& order) {
  Made made{.kind = Made::Kind::kOrder, .trial = order.trial, .answer = static_cast<std::uint8_t>(order.kind)};
  if (order.exploit) {
    made.donor = order.exploit->donor;
    made.config = order.exploit->config;
  }
  return made;
}

}  // namespace

Controller::Controller(RunRules rules, std::unique_ptr<Searcher> searcher, std::unique_ptr<Scheduler> scheduler,
                       std::unique_ptr<Stopper> stopper)
    : rules_(std::move(rules)),
      searcher_(std::move(searcher)),
      scheduler_(std::move(scheduler)),
      stopper_(std::move(stopper)),
      retention_(rules_.checkpoint) {
  if (rules_.checkpoint.num_to_keep && *rules_.checkpoint.num_to_keep < 1) {
    throw std::invalid_argument("num_to_keep is " + std::to_string(*rules_.checkpoint.num_to_keep) +
                                "; the latest checkpoint is always kept, so give 1 or more, or nothing to keep all");
  }
  if (rules_.failure.fail_fast && rules_.failure.max_failures != 0) {
    throw std::invalid_argument("max_failures is " + std::to_string(rules_.failure.max_failures) +
                                " and fail_fast is set; a trial cannot be retried and end the run. Set one of them.");
  }
  if ((rules_.checkpoint.frequency > 0 || rules_.checkpoint.at_end) && !rules_.can_save) {
    throw std::invalid_argument(
        "checkpoint_frequency and checkpoint_at_end need a Trainable class; a function reports its checkpoints itself");
  }
}

void Controller::SetResourcesOf(std::function<TrialResources(const Config&)> resources_of) {
  resources_of_ = std::move(resources_of);
}

// ---- what schedulers ask ----

std::optional<TrialNumber> Controller::FirstPending() const {
  if (table_.ready().empty()) return std::nullopt;
  return *table_.ready().begin();
}

std::optional<TrialNumber> Controller::FirstPaused() const {
  if (table_.paused().empty()) return std::nullopt;
  return *table_.paused().begin();
}

TrialState Controller::Get(TrialNumber trial) const {
  switch (table_.at(trial).status) {
    case Status::kPending:
      return TrialState::kPending;
    case Status::kRunning:
      return TrialState::kRunning;
    case Status::kPaused:
      return TrialState::kPaused;
    case Status::kTerminated:
    case Status::kError:
      break;
  }
  return TrialState::kEnded;
}

bool Controller::MayAdd() const {
  const auto asked = static_cast<std::int64_t>(table_.all().size());
  return !finished_ && (rules_.num_samples < 0 || asked < rules_.num_samples + extra_samples_);
}

bool Controller::HasCheckpoint(TrialNumber trial) const {
  return rules_.can_save || table_.at(trial).latest() != nullptr;
}

double Controller::Total(const std::string& resource) const {
  auto found = ledger_.capacity().find(resource);
  return found == ledger_.capacity().end() ? 0 : found->second;
}

std::optional<TrialNumber> Controller::best() const {
  if (ranking_.empty()) return std::nullopt;
  return ranking_.begin()->second;
}

double Controller::next_tick() const {
  if (end_) return kInfinity;
  double next = stopper_->deadline();
  if (rules_.time_budget > 0) next = std::min(next, rules_.time_budget);
  if (!table_.delayed().empty()) next = std::min(next, table_.delayed().begin()->first);
  return next;
}

// ---- the step ----

std::vector<Action> Controller::Apply(const Event& event, const std::vector<Made>* recorded) {
  actions_.clear();
  choices_.Begin(recorded);
  now_ = std::max(now_, event.now);
  const bool restored = std::holds_alternative<RunRestored>(event.body);
  if (!end_ || restored) {
    std::visit([this](const auto& body) { On(body); }, event.body);
    if (!ending_ && !end_) {
      if (rules_.time_budget > 0 && now_ >= rules_.time_budget)
        EndAll(EndReason::kTimeBudget, "the time budget of " + std::to_string(rules_.time_budget) + " s is used up");
      else if (stopper_->StopAll(now_))
        EndAll(EndReason::kStopper, "a stopper ended the run");
    }
    table_.Wake(now_);
    if (!ending_ && !end_) Fill();
    if (parked_ >= 0) ReleaseProcess(table_.at(std::exchange(parked_, -1)), true);
    CheckEnd();
  }
  choices_.End();
  return std::move(actions_);
}

void Controller::On(const Tick&) {}

void Controller::On(const ResourcesChanged& event) { ledger_.SetCapacity(event.capacity); }

void Controller::On(const TrialStarted& event) {
  Trial& trial = table_.at(event.trial);
  if (trial.process != Trial::Process::kStarting) return;
  --starting_;
  trial.process = Trial::Process::kComputing;
  Do(ContinueTrial{trial.number});
}

bool Controller::CheckMetric(const Trial& trial) {
  if (!rules_.strict_metric || metric_seen_ || rules_.objectives.empty()) return true;
  metric_seen_ = true;
  for (const Objective& objective : rules_.objectives) {
    if (NumberOf(trial, objective.metric)) continue;
    std::vector<std::string> keys;
    for (const auto& [key, value] : trial.last) keys.push_back(key);
    EndAll(EndReason::kBadMetric, "metric \"" + objective.metric + "\" is not in the result of " + Name(trial) +
                                      "; it has: " + Join(keys) + "." + Suggest(objective.metric, keys));
    return false;
  }
  return true;
}

bool Controller::Record(Trial& trial, const TrialResult& result) {
  if (result.iteration <= trial.iteration) return false;
  trial.has_result = true;
  trial.iteration = result.iteration;
  trial.time_total = result.time_total;
  trial.last = result.metrics;
  trial.lost = 0;
  ++table_.counts().results;
  if (!rules_.objectives.empty()) {
    const Objective& first = rules_.objectives.front();
    const double value = NumberOf(trial, first.metric).value_or(std::numeric_limits<double>::quiet_NaN());
    const double cost = first.mode == Mode::kMin ? value : -value;
    if (!std::isnan(trial.cost)) ranking_.erase({trial.cost, trial.number});
    trial.cost = std::isfinite(cost) ? cost : std::numeric_limits<double>::quiet_NaN();
    if (!std::isnan(trial.cost)) ranking_.insert({trial.cost, trial.number});
  }
  return true;
}

void Controller::On(const TrialResult& event) {
  Trial& trial = table_.at(event.trial);
  if (trial.status != Status::kRunning || trial.process != Trial::Process::kComputing || ending_) return;
  const bool fresh = Record(trial, event);
  if (fresh) Do(LogResult{trial.number});
  if (event.checkpoint) AddCheckpoint(trial, *event.checkpoint);
  if (fresh && !CheckMetric(trial)) return;
  if (!fresh) {  // seen before a restart
    if (event.done)
      Complete(trial);
    else
      Do(ContinueTrial{trial.number});
    return;
  }
  const bool stop = stopper_->StopTrial(trial);
  if (event.stop_all) {
    EndAll(EndReason::kUserStop, "a stopper of the program ended the run");
  } else if (stop || event.stop || event.done) {
    TellReport(trial, std::nullopt);
    Complete(trial);
  } else {
    Decision decision;
    if (!trial.revived) decision = Decide(trial);
    TellReport(trial, decision.budget);
    const std::int64_t frequency = rules_.checkpoint.frequency;
    const bool due = frequency > 0 && trial.iteration % frequency == 0;
    Follow(trial, decision, due || event.save || decision.save);
  }
}

void Controller::TellReport(const Trial& trial, std::optional<double> budget) {
  const Report report = ReportOf(trial);
  if (trial.revived || !report.value) return;
  searcher_->Report(trial.number, budget.value_or(report.time.value_or(0)), *report.value);
}

Report Controller::ReportOf(const Trial& trial) const {
  Report report{.time = NumberOf(trial, rules_.time_attr), .value = std::nullopt, .iteration = trial.iteration};
  if (!rules_.objectives.empty()) report.value = NumberOf(trial, rules_.objectives.front().metric);
  return report;
}

Decision Controller::Decide(const Trial& trial) {
  Decision decision;
  if (choices_.replaying() && rules_.foreign_scheduler) {
    const Made* recorded = choices_.Next();
    if (recorded != nullptr && recorded->kind == Made::Kind::kDecide && recorded->trial == trial.number)
      decision = DecisionOf(*recorded);
  } else {
    decision = scheduler_->OnResult(trial.number, ReportOf(trial), *this);
  }
  Obey(decision.orders);
  if (decision.kind != Decision::Kind::kContinue || decision.save) choices_.Add(MadeOf(trial.number, decision));
  return decision;
}

void Controller::Follow(Trial& trial, const Decision& decision, bool save) {
  if (decision.resources) trial.next_resources = TrialResources{*decision.resources, trial.resources.strategy};
  switch (decision.kind) {
    case Decision::Kind::kContinue:
      if (save && rules_.can_save) {
        trial.process = Trial::Process::kSaving;
        Do(SaveTrial{trial.number});
      } else {
        Do(ContinueTrial{trial.number});
      }
      return;
    case Decision::Kind::kPause:
      table_.SetStatus(trial, Status::kPaused);
      trial.process = Trial::Process::kPausing;
      Do(PauseTrial{trial.number});
      Do(Announce{Announce::Kind::kPaused, trial.number, {}});
      return;
    case Decision::Kind::kStop:
      Complete(trial);
      return;
    case Decision::Kind::kExploit:
      table_.SetStatus(trial, Status::kPaused);
      trial.process = Trial::Process::kParked;
      parked_ = trial.number;
      if (decision.exploit) Clone(trial, *decision.exploit);
      return;
  }
}

void Controller::Obey(const Orders& orders) {
  for (const Order& order : orders) {
    Trial& trial = table_.at(order.trial);
    choices_.Add(MadeOf(order));
    if (trial.status != Status::kPaused) continue;  // it has ended meanwhile
    switch (order.kind) {
      case Order::Kind::kStop: {
        table_.SetStatus(trial, Status::kTerminated);
        if (trial.process == Trial::Process::kPausing) trial.process = Trial::Process::kClosing;
        TellSearcher(trial, false);
        Do(Announce{Announce::Kind::kTerminated, trial.number, {}});
        Obey(scheduler_->OnRemove(trial.number, *this));
        break;
      }
      case Order::Kind::kResume:
        break;
      case Order::Kind::kExploit:
        if (order.exploit) Clone(trial, *order.exploit);
        break;
    }
  }
}

// ---- checkpoints ----

void Controller::Drop(TrialNumber trial, const std::vector<std::string>& paths) {
  for (const std::string& path : paths) Do(DropCheckpoint{trial, path});
}

void Controller::AddCheckpoint(Trial& trial, const Checkpoint& checkpoint) {
  Drop(trial.number, retention_.Add(trial, checkpoint));
  auto waiters = wait_.find(trial.number);
  if (waiters == wait_.end()) return;
  for (TrialNumber waiter : waiters->second) {
    Trial& other = table_.at(waiter);
    if (other.donor == trial.number) CloneFrom(other, trial);
  }
  wait_.erase(waiters);
}

void Controller::Clone(Trial& trial, const Exploit& exploit) {
  if (exploit.log) Do(LogPolicy{*exploit.log});
  trial.config = exploit.config;
  if (trial.process == Trial::Process::kPausing) trial.cloned = true;
  Trial& donor = table_.at(exploit.donor);
  const bool coming = donor.process == Trial::Process::kSaving || donor.process == Trial::Process::kPausing;
  if (coming && donor.latest() == nullptr) {  // its first checkpoint is being written
    trial.donor = donor.number;
    wait_[donor.number].push_back(trial.number);
    return;
  }
  CloneFrom(trial, donor);
}

void Controller::CloneFrom(Trial& trial, const Trial& donor) {
  trial.donor = -1;
  if (donor.latest() == nullptr) {
    Do(Announce{Announce::Kind::kWarning, trial.number,
                Name(trial) + " takes the configuration of " + Name(donor) +
                    " without a checkpoint, because that trial has none. Report checkpoints to copy the model, too."});
    return;
  }
  const Checkpoint checkpoint = *donor.latest();
  Drop(trial.number, retention_.Clone(trial, checkpoint));
  trial.iteration = checkpoint.iteration;
  trial.time_total = checkpoint.time_total;
}

void Controller::On(const TrialSaved& event) {
  Trial& trial = table_.at(event.trial);
  if (event.checkpoint && trial.process != Trial::Process::kNone) {
    if (trial.cloned)
      Drop(trial.number, {event.checkpoint->path});  // older than the checkpoint that it was cloned from
    else
      AddCheckpoint(trial, *event.checkpoint);
  }
  switch (trial.process) {
    case Trial::Process::kSaving:
      trial.process = Trial::Process::kComputing;
      Do(ContinueTrial{trial.number});
      return;
    case Trial::Process::kPausing:
      trial.cloned = false;
      ReleaseProcess(trial, !ending_);
      return;
    case Trial::Process::kClosing:
      ReleaseProcess(trial, true);
      return;
    case Trial::Process::kNone:
    case Trial::Process::kStarting:
    case Trial::Process::kComputing:
    case Trial::Process::kParked:
      return;
  }
}

// ---- ends ----

void Controller::ReleaseProcess(Trial& trial, bool keep) {
  if (trial.process == Trial::Process::kNone) return;
  if (trial.process == Trial::Process::kStarting) --starting_;
  trial.process = Trial::Process::kNone;
  --processes_;
  ledger_.Give(trial.resources);
  Do(StopTrial{trial.number, keep && rules_.reuse_actors});
}

void Controller::TellSearcher(Trial& trial, bool failed) {
  waiting_ = false;
  if (trial.revived) return;
  std::vector<double> values;
  for (const Objective& objective : rules_.objectives) {
    if (std::optional<double> value = NumberOf(trial, objective.metric)) values.push_back(*value);
  }
  if (failed || values.empty() || values.size() != rules_.objectives.size())
    searcher_->Fail(trial.number);
  else
    searcher_->Tell(trial.number, values);
}

void Controller::Complete(Trial& trial) {
  table_.SetStatus(trial, Status::kTerminated);
  Orders orders;
  if (!trial.revived) orders = scheduler_->OnComplete(trial.number, ReportOf(trial), *this);
  TellSearcher(trial, false);
  Do(Announce{Announce::Kind::kTerminated, trial.number, {}});
  if (rules_.checkpoint.at_end && trial.process == Trial::Process::kComputing) {
    trial.process = Trial::Process::kClosing;
    Do(SaveTrial{trial.number});
  } else {
    ReleaseProcess(trial, true);
  }
  Obey(orders);
}

void Controller::On(const TrialFinished& event) {
  Trial& trial = table_.at(event.trial);
  if (trial.status != Status::kRunning || ending_) return;
  if (trial.process != Trial::Process::kComputing && trial.process != Trial::Process::kSaving) return;
  trial.process = Trial::Process::kSaving;  // it computes no more, so it cannot save at its end
  Complete(trial);
}

void Controller::Fail(Trial& trial, const std::string& text) {
  trial.error = text;
  ReleaseProcess(trial, false);
  table_.SetStatus(trial, Status::kError);
  Orders orders;
  if (!trial.revived) orders = scheduler_->OnError(trial.number, *this);
  TellSearcher(trial, true);
  Do(Announce{Announce::Kind::kError, trial.number, text});
  Obey(orders);
  if (rules_.failure.fail_fast) EndAll(EndReason::kFailFast, Name(trial) + " failed and fail_fast is set: " + text);
}

void Controller::Retry(Trial& trial, const TrialFailed& event, bool counted) {
  ++table_.counts().retries;
  trial.error = event.text;
  ReleaseProcess(trial, false);
  if (trial.status == Status::kRunning) {
    table_.SetStatus(trial, Status::kPending);
    if (!trial.revived) scheduler_->OnPending(trial.number);
    if (counted && rules_.failure.backoff > 0) {
      const int doublings = std::min(trial.failures - 1, 16);
      table_.Delay(trial, now_ + std::min(kMaxBackoff, std::ldexp(rules_.failure.backoff, doublings)));
    }
  }
  const std::string from = trial.latest() == nullptr
                               ? std::string("from the beginning")
                               : "from its checkpoint of iteration " + std::to_string(trial.latest()->iteration);
  Do(Announce{Announce::Kind::kRetry, trial.number, Name(trial) + " continues " + from + ": " + event.text});
}

void Controller::On(const TrialFailed& event) {
  Trial& trial = table_.at(event.trial);
  if (trial.process == Trial::Process::kNone) return;
  if (auto waiters = wait_.find(trial.number); waiters != wait_.end()) {  // its checkpoint will not come
    for (TrialNumber waiter : waiters->second) CloneFrom(table_.at(waiter), trial);
    wait_.erase(waiters);
  }
  if (trial.ended() || ending_) {  // the last checkpoint is lost; what has been recorded stays
    Do(Announce{Announce::Kind::kWarning, trial.number,
                Name(trial) + " could not write its last checkpoint: " + event.text});
    ReleaseProcess(trial, false);
    return;
  }
  if (event.kind == FailureKind::kInfeasible) return Fail(trial, event.text);
  if (event.kind == FailureKind::kCheckpointLost && trial.latest() != nullptr) {
    const std::string path = trial.latest()->path;
    Drop(trial.number, retention_.DropLatest(trial));
    return Retry(trial, {event.trial, event.kind, "checkpoint " + path + " cannot be read: " + event.text}, false);
  }
  const bool lost = event.kind == FailureKind::kWorkerLost || event.kind == FailureKind::kNodeLost;
  if (lost) ++trial.lost;
  const bool counted = !lost || rules_.failure.count_lost || trial.lost > rules_.failure.max_lost_in_a_row;
  if (counted) ++trial.failures;
  const int limit = rules_.failure.max_failures;
  if (counted && limit >= 0 && trial.failures > limit)
    Fail(trial, event.text);
  else
    Retry(trial, event, counted);
}

void Controller::On(const UserStop& event) {
  if (!event.trial) return EndAll(EndReason::kUserStop, "stopped by the user");
  Trial& trial = table_.at(*event.trial);
  if (trial.ended()) return;
  if (trial.status == Status::kRunning) return Complete(trial);
  table_.SetStatus(trial, Status::kTerminated);
  if (trial.process == Trial::Process::kPausing) trial.process = Trial::Process::kClosing;
  TellSearcher(trial, false);
  Do(Announce{Announce::Kind::kTerminated, trial.number, {}});
  if (!trial.revived) Obey(scheduler_->OnRemove(trial.number, *this));
}

// After a budget or a stopper the running trials have ended. After the other reasons they are pending again, and a
// restored run continues them.
void Controller::EndAll(EndReason reason, std::string text) {
  if (ending_ || end_) return;
  ending_ = EndRun{reason, std::move(text)};
  const bool over = reason == EndReason::kTimeBudget || reason == EndReason::kStopper;
  const std::vector<TrialNumber> running(table_.running().begin(), table_.running().end());
  for (TrialNumber number : running) {
    Trial& trial = table_.at(number);
    if (over) {
      table_.SetStatus(trial, Status::kTerminated);
      if (!trial.revived) (void)scheduler_->OnComplete(number, ReportOf(trial), *this);
      TellSearcher(trial, false);
      Do(Announce{Announce::Kind::kTerminated, number, {}});
      if (rules_.checkpoint.at_end && trial.process == Trial::Process::kComputing) {
        trial.process = Trial::Process::kClosing;
        Do(SaveTrial{number});
        continue;
      }
      if (trial.process == Trial::Process::kSaving)
        trial.process = Trial::Process::kClosing;
      else
        ReleaseProcess(trial, false);
      continue;
    }
    table_.SetStatus(trial, Status::kPending);
    if (!trial.revived) scheduler_->OnPending(number);
    if (rules_.can_save && trial.process == Trial::Process::kComputing) {
      trial.process = Trial::Process::kPausing;
      Do(PauseTrial{number});
    } else if (trial.process == Trial::Process::kSaving) {
      trial.process = Trial::Process::kPausing;
    } else {
      ReleaseProcess(trial, false);
    }
  }
}

void Controller::On(const RunRestored& event) {
  ending_.reset();
  end_.reset();
  metric_seen_ = false;
  waiting_ = false;
  if (event.more_samples > 0) {
    extra_samples_ += event.more_samples;
    finished_ = false;
  }
  // The only step that visits every trial: it happens once per restart of the driver, after a replay of every event.
  for (const Trial& each : table_.all()) {
    Trial& trial = table_.at(each.number);
    const bool had_process = trial.process != Trial::Process::kNone;
    if (had_process) {
      if (trial.process == Trial::Process::kStarting) --starting_;
      trial.process = Trial::Process::kNone;
      --processes_;
      ledger_.Give(trial.resources);
    }
    trial.cloned = false;
    if (trial.status == Status::kRunning) {
      table_.SetStatus(trial, Status::kPending);
      if (!trial.revived) scheduler_->OnPending(trial.number);
    }
    if (trial.status == Status::kError && (event.resume_errored || event.restart_errored)) {
      if (event.restart_errored) {
        Drop(trial.number, retention_.DropAll(trial));
        trial.iteration = 0;
      }
      trial.failures = 0;
      table_.SetStatus(trial, Status::kPending);
      trial.revived = true;
      revived_.insert(trial.number);
    }
    if (!event.resume_unfinished && !trial.ended()) {
      table_.SetStatus(trial, Status::kTerminated);
      TellSearcher(trial, false);
      (void)scheduler_->OnRemove(trial.number, *this);
    }
  }
  for (auto& [donor, waiters] : wait_) {
    for (TrialNumber waiter : waiters) CloneFrom(table_.at(waiter), table_.at(donor));
  }
  wait_.clear();
  if (!event.resume_unfinished && event.more_samples == 0) finished_ = true;
  Do(Announce{Announce::Kind::kRestored, -1, "restored with " + std::to_string(table_.all().size()) + " trials"});
}

// ---- starts ----

bool Controller::CanAsk() const {
  return MayAdd() && !waiting_ && (rules_.max_concurrent <= 0 || table_.live() < rules_.max_concurrent);
}

bool Controller::Ask() {
  const auto number = static_cast<TrialNumber>(table_.all().size());
  Made made{.kind = Made::Kind::kAsk, .trial = number};
  const Made* recorded = choices_.Next();
  const bool known = recorded != nullptr && recorded->kind == Made::Kind::kAsk && recorded->trial == number;
  // A finished searcher may give more after a restore with more samples, so its recorded answer counts, too.
  if (known && (rules_.foreign_searcher || recorded->answer == 2)) {
    made = *recorded;
  } else {
    Answer answer = searcher_->Ask(number);
    if (auto* config = std::get_if<Config>(&answer))
      made.config = std::move(*config);
    else
      made.answer = std::holds_alternative<Wait>(answer) ? 1 : 2;
  }
  choices_.Add(made);
  if (made.answer == 1) waiting_ = true;
  if (made.answer == 2) finished_ = true;
  if (made.answer != 0) return false;
  TrialResources resources = resources_of_ ? resources_of_(made.config) : rules_.resources;
  Trial& trial = table_.Add(std::move(made.config), std::move(resources));
  if (std::optional<Config> replaced = scheduler_->OnAdd(number, trial.config)) trial.config = std::move(*replaced);
  Do(Announce{Announce::Kind::kNewTrial, number, {}});
  return true;
}

std::optional<TrialNumber> Controller::ChooseNext() {
  while (!revived_.empty()) {  // the scheduler does not know them any more
    const TrialNumber first = *revived_.begin();
    if (table_.ready().contains(first)) return first;
    if (table_.at(first).status == Status::kPending) break;  // its retry is delayed
    revived_.erase(first);
  }
  std::optional<TrialNumber> chosen;
  if (choices_.replaying() && rules_.foreign_scheduler) {
    const Made* recorded = choices_.Next();
    if (recorded != nullptr && recorded->kind == Made::Kind::kChoose) chosen = recorded->trial;
  } else {
    Orders orders;
    chosen = scheduler_->Choose(*this, orders);
    Obey(orders);
  }
  return chosen;
}

void Controller::Fill() {
  for (;;) {
    while (static_cast<int>(table_.ready().size()) < std::max(1, rules_.queue_ahead) && CanAsk()) {
      if (!Ask()) break;
    }
    if (rules_.max_starting > 0 && starting_ >= rules_.max_starting) return;
    if (table_.ready().empty() && table_.paused().empty()) return;
    std::optional<TrialNumber> chosen = ChooseNext();
    if (!chosen) return;
    Trial& trial = table_.at(*chosen);
    if (trial.status != Status::kPending && trial.status != Status::kPaused) return;
    if (trial.donor >= 0 || trial.process == Trial::Process::kPausing) return;  // its checkpoint is being written
    if (trial.number != parked_ && !ledger_.Fits(trial.next_resources ? *trial.next_resources : trial.resources)) {
      if (parked_ < 0) return;
      ReleaseProcess(table_.at(std::exchange(parked_, -1)), true);  // its room may be enough
      continue;
    }
    choices_.Add({.kind = Made::Kind::kChoose, .trial = trial.number});
    Start(trial);
  }
}

void Controller::Start(Trial& trial) {
  table_.SetStatus(trial, Status::kRunning);
  ++starting_;
  revived_.erase(trial.number);
  std::optional<Checkpoint> checkpoint;
  if (trial.latest() != nullptr) checkpoint = *trial.latest();
  if (trial.number == parked_) {
    parked_ = -1;
    trial.process = Trial::Process::kStarting;
    Do(ExploitTrial{trial.number, trial.number, trial.config, checkpoint, trial.next_checkpoint});
    return;
  }
  if (trial.next_resources) trial.resources = std::move(*trial.next_resources);
  trial.next_resources.reset();
  trial.process = Trial::Process::kStarting;
  ++processes_;
  ledger_.Take(trial.resources);
  Do(StartTrial{trial.number, trial.config, trial.resources, checkpoint, trial.next_checkpoint, rules_.window,
                rules_.reuse_actors});
}

void Controller::CheckEnd() {
  if (end_ || processes_ > 0) return;
  if (ending_) {
    end_ = std::move(*ending_);
    ending_.reset();
    return Do(EndRun(*end_));
  }
  // A delayed trial will start; a ready one needs more resources than there are now.
  if (!ledger_.known() || !table_.delayed().empty() || !table_.ready().empty()) return;
  if (!table_.paused().empty()) {
    end_ = EndRun{EndReason::kBroken, std::to_string(table_.paused().size()) +
                                          " trials are paused, no trial runs, and the scheduler chooses none"};
  } else if (!MayAdd()) {
    end_ = EndRun{EndReason::kComplete, {}};
  } else if (waiting_) {
    end_ = EndRun{EndReason::kBroken,
                  "the searcher waits for a result, but no trial runs. Raise max_concurrent or correct the searcher."};
  } else {
    return;
  }
  Do(EndRun(*end_));
}

}  // namespace manta::tune::trials
