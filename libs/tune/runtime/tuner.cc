#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "manta/manta.h"
#include "manta/tune.h"
#include "tune/journal/run_log.h"
#include "tune/loggers/loggers.h"
#include "tune/runtime/actor_executor.h"
#include "tune/runtime/files.h"
#include "tune/runtime/runner.h"

namespace manta::tune {

namespace fs = std::filesystem;

namespace internal {

struct TunerSettings {
  void (*train)(Trial&) = nullptr;
  Trainable* (*make)() = nullptr;
  tune::Space space;
  Tuner::MakeSearch search;
  bool search_counts = true;
  Tuner::MakeSchedule schedule;
  int samples = 1;
  int more_samples = 0;
  std::map<std::string, double> stop;
  trials::RunRules rules;
  std::string name;
  std::string storage;
  bool resume = false;
  bool csv = true, json = true, tensorboard = true;
  int verbose = 1;
  std::unique_ptr<TrialExecutor> executor;
};

namespace {

constexpr int kWindow = 256;  // results under way, when no result can stop or pause a trial
constexpr const char* kTrainable = "train";

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d_%H-%M-%S", &parts);
  return text;
}

std::string NewRunId() {
  std::random_device device;
  char text[8];
  std::snprintf(text, sizeof text, "%05x", device() & 0xFFFFF);
  return text;
}

std::string TextOf(const tune::Space& space) {
  std::string text;
  for (const auto& [key, domain] : space.parameters()) {
    text += key + ":" + std::to_string(static_cast<int>(domain.kind)) + "(" + std::to_string(domain.low) + "," +
            std::to_string(domain.high) + "," + std::to_string(domain.q) + (domain.log ? ",log" : "");
    for (const Value& value : domain.values) loggers::AppendText(text += ',', value);
    text += ")" + (domain.parent.empty() ? "" : " when " + domain.parent) + " ";
  }
  return text;
}

std::string StorageOf(const TunerSettings& settings) {
  if (!settings.storage.empty()) return fs::absolute(settings.storage).lexically_normal().string();
  const char* folder = std::getenv("TUNE_RESULT_DIR");  // NOLINT(concurrency-mt-unsafe)
  if (folder != nullptr && *folder != '\0') return fs::absolute(folder).string();
  const char* home = std::getenv("HOME");  // NOLINT(concurrency-mt-unsafe)
  return std::string(home == nullptr ? "." : home) + "/manta_results";
}

// The folder of the run; a new run whose name is taken gets a suffix.
std::string FolderOf(const TunerSettings& settings) {
  const std::string storage = StorageOf(settings);
  const std::string name = settings.name.empty() ? kTrainable + ("_" + Today()) : settings.name;
  std::error_code error;
  fs::create_directories(storage, error);
  if (error) throw IoError("cannot create folder " + storage + ": " + error.message() + ". Check StorageFolder.");
  if (settings.resume && fs::exists(storage + "/" + name + "/journal")) return storage + "/" + name;
  for (int i = 0;; ++i) {
    std::string folder = storage;
    folder.append("/").append(name);
    if (i > 0) folder.append("_").append(std::to_string(i));
    if (fs::create_directory(folder, error)) return folder;
    if (error) throw IoError("cannot create folder " + folder + ": " + error.message() + ". Check StorageFolder.");
  }
}

std::atomic<runtime::TrialRunner*> interrupted{nullptr};
void OnInterrupt(int) {
  if (runtime::TrialRunner* runner = interrupted.load()) runner->Stop();
}

// Ctrl-C stops the run instead of the program, while this exists.
class Interrupts {
 public:
  explicit Interrupts(runtime::TrialRunner& runner) {
    interrupted = &runner;
    struct sigaction action{};
    action.sa_handler = &OnInterrupt;
    sigaction(SIGINT, &action, &before_);
  }
  ~Interrupts() {
    sigaction(SIGINT, &before_, nullptr);
    interrupted = nullptr;
  }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

 private:
  struct sigaction before_{};
};

// A cluster that Run started ends with it.
class OwnCluster {
 public:
  OwnCluster() : own_(!IsInitialized()) {
    if (own_) Init();
  }
  ~OwnCluster() {
    if (own_) Shutdown();
  }
  OwnCluster(const OwnCluster&) = delete;
  OwnCluster& operator=(const OwnCluster&) = delete;

 private:
  bool own_;
};

Result ResultOf(const trials::Trial& trial, runtime::RunFiles& files, const std::string& folder) {
  Result result;
  result.number = trial.number;
  result.id = files.IdOf(trial.number);
  result.state = trials::NameOf(trial.status);
  result.config = trial.config;
  result.metrics = trial.last;
  result.iteration = trial.iteration;
  if (trial.status == trials::Status::kError) result.error = trial.error;
  result.folder = folder + "/" + files.FolderOf(trial);
  if (trial.latest() != nullptr) result.checkpoint = folder + "/" + trial.latest()->path;
  return result;
}

runtime::Listener Printer(int verbose, const trials::Controller& controller) {
  runtime::Listener listener;
  if (verbose <= 0) return listener;
  listener.warn = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  listener.on_announce = [&controller](const Announce& said) {
    using Kind = Announce::Kind;
    if (said.kind == Kind::kWarning || said.kind == Kind::kRetry) std::printf("%s\n", said.text.c_str());
    if (said.kind != Kind::kTerminated && said.kind != Kind::kError) return;
    const trials::Trial& trial = controller.trial(said.trial);
    const std::string line = "trial " + std::to_string(trial.number) + "  " + trials::NameOf(trial.status) + "  iter " +
                             std::to_string(trial.iteration) + "  " + Describe(trial.last) + "  " +
                             Describe(trial.config) + (said.text.empty() ? "" : "  " + said.text);
    std::printf("%s\n", line.c_str());
  };
  return listener;
}

}  // namespace
}  // namespace internal

std::string Result::Describe() const {
  return "trial " + std::to_string(number) + "  " + tune::Describe(metrics) + "  " + tune::Describe(config) +
         (error.empty() ? "" : "  " + error);
}

Results::Results(std::vector<Result> all, std::optional<std::size_t> best, EndRun end, std::string folder)
    : all_(std::move(all)), best_(best), end_(std::move(end)), folder_(std::move(folder)) {}

const Result& Results::Best() const {
  if (!best_) {
    throw std::runtime_error("no trial of " + std::to_string(all_.size()) +
                             " has a finite value of the metric; see Results for their errors");
  }
  return all_[*best_];
}

std::size_t Results::Errors() const {
  std::size_t count = 0;
  for (const Result& result : all_) count += result.state == "ERROR" ? 1 : 0;
  return count;
}

Tuner::Tuner(Function train) : settings_(std::make_unique<internal::TunerSettings>()) { settings_->train = train; }
Tuner::Tuner(Trainable* (*make)()) : settings_(std::make_unique<internal::TunerSettings>()) {
  settings_->make = make;
  settings_->rules.can_save = true;
}
Tuner::Tuner(Tuner&&) noexcept = default;
Tuner::~Tuner() = default;

Tuner& Tuner::Space(tune::Space space) { return settings_->space = std::move(space), *this; }
Tuner& Tuner::Minimize(std::string metric) {
  return settings_->rules.objectives = {{std::move(metric), Mode::kMin}}, *this;
}
Tuner& Tuner::Maximize(std::string metric) {
  return settings_->rules.objectives = {{std::move(metric), Mode::kMax}}, *this;
}
Tuner& Tuner::SearchWith(MakeSearch make, bool counts) {
  settings_->search_counts = counts;
  return settings_->search = std::move(make), *this;
}
Tuner& Tuner::ScheduleWith(MakeSchedule make) { return settings_->schedule = std::move(make), *this; }
Tuner& Tuner::Samples(int samples) { return settings_->samples = samples, *this; }
Tuner& Tuner::MaxConcurrent(int trials) { return settings_->rules.max_concurrent = trials, *this; }
Tuner& Tuner::Resources(TrialResources resources) { return settings_->rules.resources = std::move(resources), *this; }
Tuner& Tuner::TimeBudget(double seconds) { return settings_->rules.time_budget = seconds, *this; }
Tuner& Tuner::TimeAttribute(std::string key) { return settings_->rules.time_attr = std::move(key), *this; }
Tuner& Tuner::Stop(std::map<std::string, double> thresholds) { return settings_->stop = std::move(thresholds), *this; }
Tuner& Tuner::MaxFailures(int failures) { return settings_->rules.failure.max_failures = failures, *this; }
Tuner& Tuner::FailFast(bool yes) { return settings_->rules.failure.fail_fast = yes, *this; }
Tuner& Tuner::KeepCheckpoints(std::int64_t count, std::string score, Mode order) {
  trials::CheckpointRules& rules = settings_->rules.checkpoint;
  rules.num_to_keep = count;
  rules.score_attribute = std::move(score);
  rules.score_order = order;
  return *this;
}
Tuner& Tuner::CheckpointFrequency(std::int64_t iterations) {
  return settings_->rules.checkpoint.frequency = iterations, *this;
}
Tuner& Tuner::CheckpointAtEnd(bool yes) { return settings_->rules.checkpoint.at_end = yes, *this; }
Tuner& Tuner::ReuseProcesses(bool yes) { return settings_->rules.reuse_actors = yes, *this; }
Tuner& Tuner::Name(std::string name) { return settings_->name = std::move(name), *this; }
Tuner& Tuner::StorageFolder(std::string folder) { return settings_->storage = std::move(folder), *this; }
Tuner& Tuner::Resume(bool yes) { return settings_->resume = yes, *this; }
Tuner& Tuner::MoreSamples(int samples) { return settings_->more_samples = samples, *this; }
Tuner& Tuner::Loggers(bool csv, bool json, bool tensorboard) {
  settings_->csv = csv;
  settings_->json = json;
  settings_->tensorboard = tensorboard;
  return *this;
}
Tuner& Tuner::Verbose(int level) { return settings_->verbose = level, *this; }
Tuner& Tuner::Executor(std::unique_ptr<TrialExecutor> executor) {
  return settings_->executor = std::move(executor), *this;
}

Results Tuner::Run() {
  internal::TunerSettings& settings = *settings_;
  trials::RunRules rules = settings.rules;
  const Mode mode = rules.objectives.empty() ? Mode::kMin : rules.objectives.front().mode;
  if (!settings.search) Search(Random{});
  rules.num_samples = settings.search_counts ? -1 : settings.samples;
  std::unique_ptr<Scheduler> scheduler = settings.schedule ? settings.schedule(mode) : MakeScheduler(Fifo{});
  if (!settings.schedule && settings.stop.empty() && settings.train != nullptr) rules.window = internal::kWindow;
  std::unique_ptr<trials::Stopper> stopper =
      settings.stop.empty() ? trials::StopNever() : trials::StopAtThreshold(settings.stop);
  const int samples = settings.samples < 0 ? -1 : settings.samples + settings.more_samples;
  trials::Controller controller(std::move(rules), settings.search(settings.space, mode, samples), std::move(scheduler),
                                std::move(stopper));

  const std::string folder = internal::FolderOf(settings);
  const std::string journal = folder + "/journal";
  const bool restores = settings.resume && fs::exists(journal);
  journal::Description description{{"space", internal::TextOf(settings.space)}};
  for (const trials::Objective& objective : controller.rules().objectives) {
    description["metric"] += objective.metric + (objective.mode == Mode::kMin ? " min " : " max ");
  }
  runtime::FileOptions file_options{.folder = folder,
                                    .trainable = internal::kTrainable,
                                    .run_id = internal::NewRunId(),
                                    .csv = settings.csv,
                                    .json = settings.json,
                                    .tensorboard = settings.tensorboard};
  if (restores) file_options.run_id = journal::RunLog::ReadDescription(journal)["run_id"];
  runtime::RunFiles files(file_options);
  std::unique_ptr<journal::RunLog> log;
  if (restores) {
    log = journal::RunLog::Restore(journal, description, controller,
                                   [&](const Event& event, const std::vector<Action>& actions) {
                                     const auto* result = std::get_if<TrialResult>(&event.body);
                                     if (result == nullptr) return;
                                     for (const Action& action : actions) {
                                       if (std::holds_alternative<LogResult>(action))
                                         files.Replayed(controller.trial(result->trial), *result);
                                     }
                                   });
    files.Reconcile(controller);
  } else {
    description["run_id"] = file_options.run_id;
    log = journal::RunLog::Create(journal, description);
  }

  std::optional<internal::OwnCluster> cluster;
  if (settings.executor == nullptr) cluster.emplace();
  std::unique_ptr<TrialExecutor> executor = std::move(settings.executor);
  if (executor == nullptr) {
    executor = runtime::MakeActorExecutor([&settings] {
      return settings.train != nullptr ? internal::HostOfFunction(settings.train)
                                       : internal::HostOfTrainable(settings.make);
    });
  }
  runtime::TrialRunner runner(controller, *log, files, *executor, internal::Printer(settings.verbose, controller));
  const internal::Interrupts interrupts(runner);
  std::optional<RunRestored> restored;
  if (restores) restored = RunRestored{.more_samples = settings.more_samples};
  const EndRun end = runner.Run(folder, restored);
  executor.reset();
  if (end.reason == EndReason::kBadMetric || end.reason == EndReason::kBroken) throw std::runtime_error(end.text);

  std::vector<Result> all;
  for (const trials::Trial& trial : controller.trials()) all.push_back(internal::ResultOf(trial, files, folder));
  std::optional<std::size_t> best;
  if (controller.best()) best = static_cast<std::size_t>(*controller.best());
  return Results(std::move(all), best, end, folder);
}

}  // namespace manta::tune
