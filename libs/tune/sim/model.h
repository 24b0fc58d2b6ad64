// Model is a cluster that runs trials in virtual time: it does the controller's actions and produces the events that
// follow from them, with faults. The checker counts what a run must never get wrong. Pure and deterministic by seed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"
#include "tune/trials/controller.h"

namespace manta::tune::sim {

struct ModelOptions {
  std::uint64_t seed = 1;
  int nodes = 50;
  double cpus = 4;               // of each node
  double kill = 0.01;            // probability that a result is lost with the process of its trial
  double node_loss = 0;          // probability that a result is lost with the whole node
  double error = 0;              // probability that the trainable throws instead of reporting
  std::int64_t iterations = 10;  // after which a trial returns
  std::int64_t checkpoint_every = 3;
  double step_seconds = 1;  // of one iteration; drawn from [0.5, 1.5) of it
};

// The value that a trial reports: a function of its configuration and the iteration only.
double Loss(const Config& config, std::int64_t iteration);

class Model {
 public:
  explicit Model(ModelOptions options);

  // Does what the controller asked for at this time.
  void Do(const std::vector<Action>& actions, const trials::Controller& controller, double now);
  // The next event; nothing: nothing is under way.
  std::optional<Event> Next();
  // The driver dies: every process is gone, and no event of before comes any more. Results that the controller has seen
  // come again without delay, so that the order of new results does not change.
  void Crash(const trials::Controller& controller);

  // What went wrong, as sentences; empty: nothing.
  const std::vector<std::string>& violations() const { return violations_; }
  std::int64_t lost_workers() const { return lost_workers_; }
  std::int64_t lost_nodes() const { return lost_nodes_; }

 private:
  struct Process {
    std::int64_t life = 0;  // events of an earlier process of the trial are dropped
    int node = 0;
    std::int64_t iteration = 0;
    double time_total = 0;
    std::int64_t next_checkpoint = 0;
    Config config;
    double cpus = 0;
    double clock = 0;    // when it reported its last result
    double started = 0;  // when it was started, before a crash of the driver if that is why it was started again
  };
  struct Coming {
    double time = 0;
    std::int64_t order = 0;
    std::int64_t life = 0;  // 0: of no process
    Event event;
    int dead_node = -1;
  };
  struct Later {
    bool operator()(const Coming& a, const Coming& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };

  void Start(TrialNumber trial, const Config& config, const std::optional<Checkpoint>& checkpoint,
             std::int64_t next_checkpoint, const TrialResources& resources, double now);
  void Compute(TrialNumber trial, double now);
  void Stop(TrialNumber trial);
  void LoseNode(int node, double now);
  void Push(double time, std::int64_t life, Event event, int dead_node = -1);
  double Chance(TrialNumber trial, std::int64_t iteration, std::int64_t salt) const;
  Amounts Capacity() const;
  void Violation(std::string text);

  ModelOptions options_;
  std::map<TrialNumber, Process> processes_;
  std::vector<double> free_;  // CPUs of each node
  std::vector<bool> alive_;
  std::priority_queue<Coming, std::vector<Coming>, Later> coming_;
  std::map<TrialNumber, std::int64_t> attempts_;
  std::map<TrialNumber, std::pair<std::int64_t, double>> seen_;  // iteration and time of the last result before a crash
  std::map<TrialNumber, double> last_result_;                    // when it reported
  std::set<std::int64_t> lives_now_;                             // of the processes
  std::map<TrialNumber, int> ends_;
  std::map<TrialNumber, std::int64_t> logged_;
  std::vector<std::string> violations_;
  std::int64_t order_ = 0;
  std::int64_t lives_ = 0;
  std::int64_t lost_workers_ = 0;
  std::int64_t lost_nodes_ = 0;
};

// CountingSearcher passes everything on and checks that each trial ends exactly once and that no result is told twice.
class CountingSearcher final : public Searcher {
 public:
  explicit CountingSearcher(std::unique_ptr<Searcher> searcher) : searcher_(std::move(searcher)) {}
  using Searcher::Tell;
  Answer Ask(TrialNumber trial) override;
  void Report(TrialNumber trial, double time, double value) override;
  void Tell(TrialNumber trial, const std::vector<double>& values) override;
  void Fail(TrialNumber trial) override;
  std::string Save() const override { return searcher_->Save(); }
  void Load(std::string_view bytes) override { searcher_->Load(bytes); }
  const std::vector<std::string>& violations() const { return violations_; }
  std::size_t asked() const { return asked_.size(); }
  std::size_t ended() const { return ended_.size(); }

 private:
  void End(TrialNumber trial);
  std::unique_ptr<Searcher> searcher_;
  std::set<TrialNumber> asked_, ended_;
  std::map<TrialNumber, double> last_time_;
  std::vector<std::string> violations_;
};

struct SimulationOptions {
  ModelOptions model;
  std::int64_t trials = 10000;
  std::string scheduler = "asha";  // fifo, asha, median
  int max_failures = 3;
};
struct SimulationReport {
  std::int64_t trials = 0, terminated = 0, error = 0, results = 0, retries = 0, steps = 0;
  std::int64_t lost_workers = 0, lost_nodes = 0;
  double virtual_seconds = 0;
  double best = 0;
  std::uint64_t trace = 0;  // a hash of all events and actions
  std::vector<std::string> violations;
};
SimulationReport Simulate(const SimulationOptions& options);

}  // namespace manta::tune::sim
