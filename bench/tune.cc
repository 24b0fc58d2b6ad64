// Tuning: trials and results per second with all files, the restore of a run, and what a step costs when many trials
// are queued.
#include <malloc.h>
#include <manta/manta.h>
#include <manta/tune.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "rooms.h"
#include "tune/journal/run_log.h"
#include "tune/trials/controller.h"
#include "work.h"

namespace bench {
namespace {

namespace fs = std::filesystem;
namespace tune = manta::tune;

class Storage {
 public:
  Storage() {
    std::string pattern = fs::temp_directory_path().string() + "/manta-bench-tune.XXXXXX";
    if (mkdtemp(pattern.data()) == nullptr) Fail("cannot create a folder for the files of a run");
    path_ = pattern;
  }
  ~Storage() { fs::remove_all(path_); }
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void ReturnAtOnce(tune::Trial& trial) { trial.Report({{"loss", trial.Get<double>("x")}}); }

constexpr int kResults = 20'000;
void ReportMuch(tune::Trial& trial) {
  for (int i = 0; i < kResults; ++i) trial.Report({{"loss", 1.0 / (i + 1)}, {"accuracy", 0.5}});
}

double TrialsPerSecond(bool reuse, int trials) {
  const Storage storage;
  const double begin = Now();
  const tune::Results all = tune::Tuner(ReturnAtOnce)
                                .Space({{"x", tune::Uniform(0, 1)}})
                                .Minimize("loss")
                                .Samples(trials)
                                .ReuseProcesses(reuse)
                                .StorageFolder(storage.path())
                                .Verbose(0)
                                .Run();
  const double seconds = Now() - begin;
  for (const tune::Result& result : all) {
    if (result.state != "TERMINATED" || result.iteration != 1) Fail("trial " + result.id + " is " + result.state);
  }
  return trials / seconds;
}

double ResultsPerSecond(bool logged) {
  const Storage storage;
  const double begin = Now();
  const tune::Results all = tune::Tuner(ReportMuch)
                                .Space({{"x", tune::Uniform(0, 1)}})
                                .Minimize("loss")
                                .Samples(2)
                                .Loggers(logged, logged, logged)
                                .StorageFolder(storage.path())
                                .Verbose(0)
                                .Run();
  const double seconds = Now() - begin;
  for (const tune::Result& result : all) {
    if (result.iteration != kResults)
      Fail("trial " + result.id + " has " + std::to_string(result.iteration) + " results");
  }
  return 2 * kResults / seconds;
}

std::unique_ptr<tune::trials::Controller> MakeController(std::int64_t samples, int queued) {
  tune::trials::RunRules rules;
  rules.objectives = {{"loss", tune::Mode::kMin}};
  rules.num_samples = samples;
  rules.queue_ahead = queued;
  const tune::Space space({{"a", tune::Uniform(0, 1)}, {"b", tune::Uniform(0, 1)}, {"c", tune::Choice({"x", "y"})}});
  return std::make_unique<tune::trials::Controller>(
      std::move(rules), tune::MakeSearcher(space, tune::Random{.seed = 1}), tune::MakeScheduler(tune::Fifo{}));
}

// Microseconds for a result of a running trial while `queued` others wait; `bytes` gets the memory of one of them.
double StepMicros(int queued, double* bytes = nullptr) {
  auto controller = MakeController(-1, queued);
  const std::size_t before = mallinfo2().uordblks;
  (void)controller->Step({0, tune::ResourcesChanged{{{"CPU", 2}}}});
  if (bytes != nullptr) *bytes = static_cast<double>(mallinfo2().uordblks - before) / queued;
  (void)controller->Step({0, tune::TrialStarted{0}});
  constexpr int kSteps = 20'000;
  const double begin = Now();
  for (int i = 1; i <= kSteps; ++i) {
    tune::TrialResult result{.trial = 0, .iteration = i, .time_total = 1.0 * i, .metrics = {{"loss", 1.0 / i}}};
    (void)controller->Step({1.0 * i, std::move(result)});
  }
  return (Now() - begin) * 1e6 / kSteps;
}

// Milliseconds to restore a run of 10,000 trials with two results each.
double RestoreMs() {
  constexpr int kTrials = 10'000;
  const Storage storage;
  const std::string path = storage.path() + "/journal";
  {
    auto controller = MakeController(kTrials, 1);
    auto log = tune::journal::RunLog::Create(path, {});
    double now = 0;
    const auto step = [&](decltype(tune::Event::body) body) {
      const tune::Event event{++now, std::move(body)};
      log->Record(event);
      (void)controller->Step(event);
      log->RecordMade(controller->made());
    };
    step(tune::ResourcesChanged{{{"CPU", 1}}});
    for (int i = 0; i < kTrials; ++i) {
      step(tune::TrialStarted{i});
      for (int j = 1; j <= 2; ++j) step(tune::TrialResult{.trial = i, .iteration = j, .metrics = {{"loss", 1.0 / j}}});
      step(tune::TrialFinished{i});
    }
    if (!log->Commit()) Fail(log->journal().why());
  }
  auto restored = MakeController(kTrials, 1);
  const double begin = Now();
  (void)tune::journal::RunLog::Restore(path, {}, *restored);
  const double seconds = Now() - begin;
  if (restored->counts().terminated != kTrials) Fail("the restored run lacks trials");
  return seconds * 1e3;
}

}  // namespace

void AddTune(Suite& suite, Baselines& baselines) {
  suite.Add({.metrics = {{"tune_trials_fresh", "trials/s", baselines.ForkPerSecond()}},
             .run = [](double) { return std::vector<double>{TrialsPerSecond(false, 60)}; }});
  suite.Add({.metrics = {{"tune_trials_reuse", "trials/s", baselines.ForkPerSecond()}},
             .run = [](double) { return std::vector<double>{TrialsPerSecond(true, 400)}; }});
  const Baseline controller{"controller alone", [] { return 1e6 / StepMicros(10); }};
  suite.Add({.metrics = {{"tune_results_all_files", "results/s", controller}},
             .run = [](double) { return std::vector<double>{ResultsPerSecond(true)}; }});
  suite.Add({.metrics = {{"tune_results_no_files", "results/s", controller}},
             .run = [](double) { return std::vector<double>{ResultsPerSecond(false)}; }});
  const Baseline ten{"10 queued trials", [] { return StepMicros(10); }};
  suite.Add({.metrics = {{"tune_step_100k_queued", "us", ten},
                         {"tune_queued_trial", "bytes", {"1 KB", [] { return 1024.0; }}}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double) {
               double bytes = 0;
               const double step = StepMicros(100'000, &bytes);
               return std::vector<double>{step, bytes};
             }});
  suite.Add({.metrics = {{"tune_restore_10k_trials", "ms", {"1 s", [] { return 1000.0; }}}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double) { return std::vector<double>{RestoreMs()}; }});
}

}  // namespace bench
