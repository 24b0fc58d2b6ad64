#include "tune/sim/model.h"

#include <algorithm>
#include <cmath>
#include <variant>

namespace manta::tune::sim {
namespace {

std::uint64_t Mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double Unit(std::uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }

double Cpus(const TrialResources& resources) {
  double sum = 0;
  for (const Amounts& bundle : resources.bundles) {
    auto found = bundle.find("CPU");
    if (found != bundle.end()) sum += found->second;
  }
  return sum;
}

}  // namespace

double Loss(const Config& config, std::int64_t iteration) {
  double sum = 0;
  for (const auto& [key, value] : config) {
    if (const auto* number = std::get_if<double>(&value)) sum += (*number - 0.3) * (*number - 0.3);
    if (const auto* text = std::get_if<std::string>(&value)) sum += 0.01 * static_cast<double>(text->size());
  }
  return sum + 1.0 / static_cast<double>(iteration + 1);
}

Model::Model(ModelOptions options)
    : options_(options),
      free_(static_cast<std::size_t>(options.nodes), options.cpus),
      alive_(static_cast<std::size_t>(options.nodes), true) {
  Push(0, 0, Event{0, ResourcesChanged{Capacity()}});
}

double Model::Chance(TrialNumber trial, std::int64_t iteration, std::int64_t salt) const {
  auto attempt = attempts_.find(trial);
  const auto n = static_cast<std::uint64_t>(attempt == attempts_.end() ? 0 : attempt->second);
  return Unit(Mix(
      Mix(Mix(options_.seed + static_cast<std::uint64_t>(trial) * 1000003) + static_cast<std::uint64_t>(iteration)) +
      n * 77 + static_cast<std::uint64_t>(salt)));
}

Amounts Model::Capacity() const {
  const auto alive = static_cast<double>(std::count(alive_.begin(), alive_.end(), true));
  return {{"CPU", alive * options_.cpus}};
}

void Model::Violation(std::string text) {
  if (violations_.size() < 20) violations_.push_back(std::move(text));
}

void Model::Push(double time, std::int64_t life, Event event, int dead_node) {
  event.now = time;
  coming_.push({time, ++order_, life, std::move(event), dead_node});
}

void Model::Start(TrialNumber trial, const Config& config, const std::optional<Checkpoint>& checkpoint,
                  std::int64_t next_checkpoint, const TrialResources& resources, double now) {
  Process process;
  process.life = ++lives_;
  process.config = config;
  process.cpus = Cpus(resources);
  process.next_checkpoint = next_checkpoint;
  if (checkpoint) {
    process.iteration = checkpoint->iteration;
    process.time_total = checkpoint->time_total;
  }
  auto room = std::find_if(free_.begin(), free_.end(), [&](double free) { return free >= process.cpus - 1e-9; });
  while (room != free_.end() && !alive_[static_cast<std::size_t>(room - free_.begin())]) {
    room = std::find_if(room + 1, free_.end(), [&](double free) { return free >= process.cpus - 1e-9; });
  }
  if (room == free_.end()) {
    Violation("trial " + std::to_string(trial) + " was started although no node has " + std::to_string(process.cpus) +
              " free CPUs");
    room = free_.begin();
  }
  *room -= process.cpus;
  process.node = static_cast<int>(room - free_.begin());
  process.clock = now;
  process.started = now;
  if (auto seen = seen_.find(trial); seen != seen_.end() && process.iteration <= seen->second.first) {
    process.clock = std::min(now, seen->second.second);
    process.started = process.clock;
  }
  if (!processes_.emplace(trial, process).second)
    Violation("trial " + std::to_string(trial) + " was started while it runs");
  lives_now_.insert(process.life);
  ++attempts_[trial];
  Push(now, process.life, Event{now, TrialStarted{trial}});
}

void Model::Compute(TrialNumber trial, double now) {
  auto found = processes_.find(trial);
  if (found == processes_.end()) return;
  Process& process = found->second;
  const std::int64_t iteration = process.iteration + 1;
  auto seen = seen_.find(trial);
  const bool again = seen != seen_.end() && iteration <= seen->second.first;
  // Durations do not depend on the attempt, so that a restored run has the order of the undisturbed one.
  const double took =
      options_.step_seconds *
      (0.5 + Unit(Mix(Mix(options_.seed ^ static_cast<std::uint64_t>(trial)) + static_cast<std::uint64_t>(iteration))));
  double time = again ? now : process.clock + took;
  if (!again && seen != seen_.end() && iteration == seen->second.first + 1) time = seen->second.second + took;
  time = std::max(time, now);
  if (iteration > options_.iterations) return Push(now, process.life, Event{now, TrialFinished{trial}});
  if (Chance(trial, iteration, 1) < options_.kill) {
    ++lost_workers_;
    return Push(time, process.life, Event{time, TrialFailed{trial, FailureKind::kWorkerLost, "killed"}});
  }
  if (Chance(trial, iteration, 2) < options_.node_loss) {
    return Push(time, process.life, Event{time, Tick{}}, process.node);
  }
  if (Chance(trial, iteration, 3) < options_.error) {
    return Push(time, process.life, Event{time, TrialFailed{trial, FailureKind::kUserError, "loss is nan"}});
  }
  process.iteration = iteration;
  process.time_total += took;
  process.clock = time;
  TrialResult result{.trial = trial, .iteration = iteration, .time_total = process.time_total, .metrics = {}};
  result.metrics["loss"] = Loss(process.config, iteration);
  if (options_.checkpoint_every > 0 && iteration % options_.checkpoint_every == 0) {
    const std::int64_t index = process.next_checkpoint++;
    result.checkpoint = Checkpoint{"trial_" + std::to_string(trial) + "/checkpoint_" + std::to_string(index), index,
                                   iteration, process.time_total};
  }
  Push(time, process.life, Event{time, std::move(result)});
}

void Model::Stop(TrialNumber trial) {
  auto found = processes_.find(trial);
  if (found == processes_.end()) return;
  if (alive_[static_cast<std::size_t>(found->second.node)])
    free_[static_cast<std::size_t>(found->second.node)] += found->second.cpus;
  lives_now_.erase(found->second.life);
  processes_.erase(found);
}

void Model::Do(const std::vector<Action>& actions, const trials::Controller& controller, double now) {
  for (const Action& action : actions) {
    if (const auto* start = std::get_if<StartTrial>(&action)) {
      Start(start->trial, start->config, start->checkpoint, start->next_checkpoint, start->resources, now);
    } else if (const auto* exploit = std::get_if<ExploitTrial>(&action)) {
      Stop(exploit->trial);
      Start(exploit->trial, exploit->config, exploit->checkpoint, exploit->next_checkpoint,
            controller.trial(exploit->trial).resources, now);
    } else if (const auto* go = std::get_if<ContinueTrial>(&action)) {
      Compute(go->trial, now);
    } else if (std::holds_alternative<SaveTrial>(action) || std::holds_alternative<PauseTrial>(action)) {
      const auto* save = std::get_if<SaveTrial>(&action);
      const TrialNumber trial = save != nullptr ? save->trial : std::get<PauseTrial>(action).trial;
      auto found = processes_.find(trial);
      if (found == processes_.end()) continue;
      Process& process = found->second;
      const std::int64_t index = process.next_checkpoint++;
      Checkpoint checkpoint{"trial_" + std::to_string(trial) + "/checkpoint_" + std::to_string(index), index,
                            process.iteration, process.time_total};
      Push(now, process.life, Event{now, TrialSaved{trial, std::move(checkpoint)}});
    } else if (const auto* stop = std::get_if<StopTrial>(&action)) {
      Stop(stop->trial);
    } else if (const auto* log = std::get_if<LogResult>(&action)) {
      const std::int64_t iteration = controller.trial(log->trial).iteration;
      std::int64_t& last = logged_[log->trial];
      if (iteration <= last && controller.trial(log->trial).checkpoints.empty())
        Violation("result " + std::to_string(iteration) + " of trial " + std::to_string(log->trial) + " logged twice");
      last = iteration;
    } else if (const auto* said = std::get_if<Announce>(&action)) {
      const bool end = said->kind == Announce::Kind::kTerminated || said->kind == Announce::Kind::kError;
      if (end && ++ends_[said->trial] > 1) Violation("trial " + std::to_string(said->trial) + " ended twice");
    }
  }
}

void Model::LoseNode(int node, double now) {
  const auto at = static_cast<std::size_t>(node);
  if (!alive_[at] || std::count(alive_.begin(), alive_.end(), true) == 1) return;
  alive_[at] = false;
  ++lost_nodes_;
  Push(now, 0, Event{now, ResourcesChanged{Capacity()}});
  for (const auto& [trial, process] : processes_) {
    if (process.node == node)
      Push(now, process.life, Event{now, TrialFailed{trial, FailureKind::kNodeLost, "node lost"}});
  }
  Push(now + 100 * options_.step_seconds, 0, Event{0, ResourcesChanged{}}, node);
}

std::optional<Event> Model::Next() {
  while (!coming_.empty()) {
    Coming next = coming_.top();
    coming_.pop();
    if (next.life != 0 && !lives_now_.contains(next.life)) continue;
    if (next.dead_node >= 0 && std::holds_alternative<ResourcesChanged>(next.event.body)) {  // the node is back
      alive_[static_cast<std::size_t>(next.dead_node)] = true;
      free_[static_cast<std::size_t>(next.dead_node)] = options_.cpus;
      next.event.body = ResourcesChanged{Capacity()};
    } else if (next.dead_node >= 0) {
      LoseNode(next.dead_node, next.time);
      continue;
    }
    if (const auto* result = std::get_if<TrialResult>(&next.event.body)) {
      auto seen = seen_.find(result->trial);
      if (seen == seen_.end() || result->iteration > seen->second.first) last_result_[result->trial] = next.time;
    }
    return next.event;
  }
  return std::nullopt;
}

void Model::Crash(const trials::Controller& controller) {
  for (const trials::Trial& trial : controller.trials()) {
    if (trial.ended()) continue;
    auto process = processes_.find(trial.number);
    if (trial.has_result)
      seen_[trial.number] = {trial.iteration, last_result_[trial.number]};
    else if (process != processes_.end())
      seen_[trial.number] = {0, process->second.started};
  }
  processes_.clear();
  lives_now_.clear();
  std::fill(free_.begin(), free_.end(), options_.cpus);
  std::fill(alive_.begin(), alive_.end(), true);
  coming_ = {};
}

Answer CountingSearcher::Ask(TrialNumber trial) {
  Answer answer = searcher_->Ask(trial);
  if (std::holds_alternative<Config>(answer) && !asked_.insert(trial).second)
    violations_.push_back("trial " + std::to_string(trial) + " was asked for twice");
  return answer;
}

void CountingSearcher::Report(TrialNumber trial, double time, double value) {
  auto [last, first] = last_time_.emplace(trial, time);
  if (!first && time <= last->second)
    violations_.push_back("a result of trial " + std::to_string(trial) + " at time " + std::to_string(time) +
                          " was told after one at " + std::to_string(last->second));
  last->second = time;
  searcher_->Report(trial, time, value);
}

void CountingSearcher::End(TrialNumber trial) {
  if (!ended_.insert(trial).second) violations_.push_back("trial " + std::to_string(trial) + " was told to end twice");
}

void CountingSearcher::Tell(TrialNumber trial, const std::vector<double>& values) {
  End(trial);
  searcher_->Tell(trial, values);
}

void CountingSearcher::Fail(TrialNumber trial) {
  End(trial);
  searcher_->Fail(trial);
}

}  // namespace manta::tune::sim
