// Runs workloads against their null baselines and reports both.
//
// A workload gives one or more metrics per run. Each round measures the baselines of its metrics and
// then the workload, so that both see the same weather on a noisy machine; there are at least five
// rounds, and what is reported is the median with the lowest and highest.
//
// The ratio is value / baseline in the metric's own unit: of a rate, the share of the limit that is
// reached; of a time, how many times the limit it takes.
//
// A run that gets a wrong or missing result calls Fail, which ends the whole benchmark: a fast wrong
// answer is not a figure. Used by one thread.
#pragma once

#include <cstddef>
#include <functional>
#include <regex>
#include <string>
#include <vector>

namespace bench {

inline constexpr int kMinRuns = 5;

// What the same work costs without Manta; `measure` answers in the unit of the metric it stands beside.
struct Baseline {
  std::string label;
  std::function<double()> measure;
};

struct Metric {
  std::string name;
  std::string unit;
  Baseline baseline;
};

enum class Cluster {
  kUp,    // initialised with the defaults, shared by all such workloads
  kDown,  // the workload starts and ends its own, or needs none
};

struct Workload {
  std::vector<Metric> metrics;
  Cluster cluster = Cluster::kUp;
  bool warm_up = true;  // run once for a short time, unreported
  // One run of about that many seconds: a value for each metric.
  std::function<std::vector<double>(double seconds)> run;
};

struct Options {
  std::string filter;  // regular expression over metric names; empty: all
  std::string json;    // file to write; empty: none
  double seconds = 0.25;
};

// Throws: the benchmark ends with this message.
[[noreturn]] void Fail(const std::string& message);
// Throws: this workload cannot be had here (a rival that is not installed); the others go on.
[[noreturn]] void Skip(const std::string& reason);

[[nodiscard]] double Now();  // seconds; the same clock in all processes of the machine
[[nodiscard]] double Percentile(std::vector<double>& samples, double share);
void SleepMs(double ms);

class Suite {
 public:
  void Add(Workload workload) { workloads_.push_back(std::move(workload)); }
  // Runs after every workload: gives back what its baselines held.
  void OnDone(std::function<void()> done) { done_ = std::move(done); }

  void List() const;
  // The exit code: 0, or 1 after a failure. Rows measured before a failure are still in the JSON.
  int Run(const Options& options);

 private:
  struct Row {
    const Metric* metric;
    std::vector<double> values;
    std::vector<double> baselines;
  };

  void RunOne(const Workload& workload, const std::regex& filter, double seconds);
  void Report(Row& row);
  void WriteJson(const std::string& file) const;

  std::vector<Workload> workloads_;
  std::function<void()> done_;
  std::vector<std::string> json_;
};

}  // namespace bench
