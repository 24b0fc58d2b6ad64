#include "harness.h"

#include <manta/manta.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <thread>

namespace bench {
namespace {

struct Skipped : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A hang is a result too, and must say where. Longest honest round: a few seconds.
constexpr unsigned kRoundLimit = 180;
char g_round[160];  // only touched between alarms

void OnAlarm(int) {
  static constexpr char kText[] = "\nmanta-bench: no answer for 180 s (expected milliseconds) in ";
  [[maybe_unused]] ssize_t ignored = ::write(2, kText, sizeof kText - 1);
  ignored = ::write(2, g_round, std::strlen(g_round));
  ignored = ::write(2, "\n", 1);
  ::_exit(3);
}

void Watch(const std::string& what) {
  ::alarm(0);
  std::snprintf(g_round, sizeof g_round, "%s", what.c_str());
  ::alarm(kRoundLimit);
}

void SetCluster(Cluster cluster) {
  const bool want = cluster == Cluster::kUp;
  if (want == manta::IsInitialized()) return;
  if (want)
    manta::Init();
  else
    manta::Shutdown();
}

// 1234567 -> "1.23 M"; small numbers keep three digits.
std::string Short(double value) {
  char text[32];
  const double size = std::fabs(value);
  if (size >= 1e6)
    std::snprintf(text, sizeof text, "%.2f M", value / 1e6);
  else if (size >= 1e4)
    std::snprintf(text, sizeof text, "%.1f k", value / 1e3);
  else if (size >= 100)
    std::snprintf(text, sizeof text, "%.0f", value);
  else if (size >= 10)
    std::snprintf(text, sizeof text, "%.1f", value);
  else if (size >= 1)
    std::snprintf(text, sizeof text, "%.2f", value);
  else
    std::snprintf(text, sizeof text, "%.3f", value);
  return text;
}

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.6g", std::isfinite(value) ? value : 0.0);
  return text;
}

struct Spread {
  double median, low, high;
};

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values.front(), values.back()};
}

constexpr char kFormat[] = "%-42s %10s %-9s %19s  %10s %19s %7s  %s\n";

}  // namespace

void Fail(const std::string& message) { throw std::runtime_error(message); }
void Skip(const std::string& reason) { throw Skipped(reason); }

double Now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

void SleepMs(double ms) { std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms)); }

double Percentile(std::vector<double>& samples, double share) {
  if (samples.empty()) Fail("no samples were taken");
  const auto at = static_cast<std::size_t>(share * static_cast<double>(samples.size() - 1));
  std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(at), samples.end());
  return samples[at];
}

void Suite::List() const {
  for (const Workload& workload : workloads_) {
    for (const Metric& metric : workload.metrics) {
      std::printf("%-42s %-9s against %s\n", metric.name.c_str(), metric.unit.c_str(), metric.baseline.label.c_str());
    }
  }
}

void Suite::RunOne(const Workload& workload, const std::regex& filter, double seconds) {
  std::vector<Row> rows;
  bool wanted = false;
  for (const Metric& metric : workload.metrics) {
    rows.push_back(Row{&metric, {}, {}});
    wanted |= std::regex_search(metric.name, filter);
  }
  if (!wanted) return;
  const std::string& name = workload.metrics.front().name;
  Watch(name);
  SetCluster(workload.cluster);
  if (workload.warm_up) workload.run(seconds / 4);
  for (int round = 0; round < kMinRuns; ++round) {
    Watch(name + ", baseline of round " + std::to_string(round));
    SleepMs(5);                              // workers that still spin after the last run would slow the baseline
    std::map<std::string, double> measured;  // metrics of one unit share their baseline
    for (Row& row : rows) {
      const Baseline& baseline = row.metric->baseline;
      const std::string key = baseline.label + '\n' + row.metric->unit;
      const auto known = measured.find(key);
      const double value = known != measured.end() ? known->second : baseline.measure();
      measured[key] = value;
      row.baselines.push_back(value);
    }
    Watch(name + ", round " + std::to_string(round));
    const std::vector<double> values = workload.run(seconds);
    if (values.size() != rows.size()) Fail("the run gave another number of values than it has metrics");
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i].values.push_back(values[i]);
  }
  for (Row& row : rows) {
    if (std::regex_search(row.metric->name, filter)) Report(row);
  }
}

void Suite::Report(Row& row) {
  const Spread value = SpreadOf(row.values);
  const Spread base = SpreadOf(row.baselines);
  const double ratio = base.median != 0 ? value.median / base.median : 0;
  const Metric& metric = *row.metric;
  std::printf(kFormat, metric.name.c_str(), Short(value.median).c_str(), metric.unit.c_str(),
              (Short(value.low) + " - " + Short(value.high)).c_str(), Short(base.median).c_str(),
              (Short(base.low) + " - " + Short(base.high)).c_str(), Short(ratio).c_str(),
              metric.baseline.label.c_str());
  std::fflush(stdout);
  json_.push_back("{\"name\": \"" + metric.name + "\", \"value\": " + Number(value.median) + ", \"unit\": \"" +
                  metric.unit + "\", \"low\": " + Number(value.low) + ", \"high\": " + Number(value.high) +
                  ", \"runs\": " + std::to_string(row.values.size()) + ", \"baseline\": " + Number(base.median) +
                  ", \"ratio\": " + Number(ratio) + "}");
}

void Suite::WriteJson(const std::string& file) const {
  if (file.empty()) return;
  std::FILE* out = std::fopen(file.c_str(), "w");
  if (out == nullptr) Fail("cannot write " + file + ": " + std::strerror(errno));
  std::fputs("[\n", out);
  for (std::size_t i = 0; i < json_.size(); ++i) {
    std::fprintf(out, "  %s%s\n", json_[i].c_str(), i + 1 < json_.size() ? "," : "");
  }
  std::fputs("]\n", out);
  if (std::fclose(out) != 0) Fail("cannot write " + file + ": " + std::strerror(errno));
}

int Suite::Run(const Options& options) {
  const std::regex filter(options.filter, std::regex::ECMAScript | std::regex::optimize);
  ::signal(SIGALRM, OnAlarm);
  std::printf(kFormat, "workload", "median", "unit", "low - high", "baseline", "low - high", "ratio", "against");
  for (const Workload& workload : workloads_) {
    const std::string& name = workload.metrics.front().name;
    try {
      RunOne(workload, filter, options.seconds);
    } catch (const Skipped& skipped) {
      std::printf("%-42s not measured: %s\n", name.c_str(), skipped.what());
    } catch (const std::exception& error) {
      std::fprintf(stderr, "manta-bench: %s failed: %s\n", name.c_str(), error.what());
      WriteJson(options.json);
      return 1;
    }
    if (done_) done_();
    WriteJson(options.json);  // after each: an interrupted run keeps what it has
  }
  Watch("shutdown");
  if (manta::IsInitialized()) manta::Shutdown();
  ::alarm(0);
  return 0;
}

}  // namespace bench
