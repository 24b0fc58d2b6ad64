// Figure 11a: chains of 100 ms tasks while nodes are killed and others come. Every execution leaves a line in a file,
// outside of the engine: the first of a step is an original task, each further one was made again because its result,
// or a task in the middle of it, was lost with a node.
#include <fcntl.h>
#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "nodes.h"

namespace {

using paper::Figure;
using paper::Number;

// Large enough to be in a node's store, where it is lost with the node, and not with the reply in the driver.
constexpr std::size_t kWords = 4096;
constexpr int kWorkers = 8;
constexpr int kPerNode = 4;
using Value = std::vector<std::uint64_t>;

Value Mixed(Value value, int step) {
  for (std::size_t i = 0; i < value.size(); ++i)
    value[i] = value[i] * 6364136223846793005U + i + static_cast<std::uint64_t>(step);
  return value;
}

Value Step(const Value& before, int chain, int step, int ms, const std::string& file) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  const std::string line =
      std::to_string(chain) + " " + std::to_string(step) + " " + std::to_string(bench::Now()) + "\n";
  const int fd = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0 || ::write(fd, line.data(), line.size()) < 0) bench::Fail("cannot write " + file);
  ::close(fd);
  return Mixed(before, step);
}

struct Event {
  double at;
  int change;  // -1: a node is killed, 1: one comes
};

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig11a", "Figure 11a: chains of 100 ms tasks while nodes are killed and others come");
  const int ms = figure.Pick(100, 10);
  const int steps = figure.Pick(1500, 60);
  const int chains = kWorkers * kPerNode;
  const double unit = figure.Pick(1.0, 0.01);
  const std::vector<Event> plan{{25, -1}, {50, -1}, {100, -1}, {125, 1}, {125, 1}, {125, 1}};
  bench::NodesOptions options;
  options.count = 1 + kWorkers;
  options.cpus = kPerNode;
  options.store_bytes = 64ULL << 20;
  options.words.assign(1 + 2 * kWorkers, {"--resource", "work=" + std::to_string(kPerNode)});
  options.words[0].clear();  // the driver's own node works not, and stays
  bench::Nodes nodes(options);
  const bench::TemporaryFolder folder;
  const std::string file = folder.path() + "/executions";
  std::ofstream(file).close();

  const bench::Nodes::Driver driver(nodes);
  auto step = manta::Task(Step).SetResource("work", 1);
  const double begin = bench::Now();
  std::vector<manta::Ref<Value>> ends;
  for (int chain = 0; chain < chains; ++chain) {
    ends.push_back(step.Remote(Value(kWords, static_cast<std::uint64_t>(chain)), chain, 0, ms, file));
  }
  for (int i = 1; i < steps; ++i) {
    for (int chain = 0; chain < chains; ++chain) {
      ends[static_cast<std::size_t>(chain)] = step.Remote(ends[static_cast<std::size_t>(chain)], chain, i, ms, file);
    }
  }
  std::size_t next_victim = 2;
  for (const Event& event : plan) {
    bench::SleepMs(std::max(begin + event.at * unit - bench::Now(), 0.0) * 1e3);
    if (event.change < 0) nodes.Kill(next_victim++);
    if (event.change > 0) nodes.Add();
  }
  int wrong = 0;
  for (int chain = 0; chain < chains; ++chain) {
    Value expected(kWords, static_cast<std::uint64_t>(chain));
    for (int i = 0; i < steps; ++i) expected = Mixed(std::move(expected), i);
    if (ends[static_cast<std::size_t>(chain)].Get() != expected) ++wrong;
  }
  const double seconds = bench::Now() - begin;
  if (wrong > 0) bench::Fail(std::to_string(wrong) + " chains ended with another value than without failures");

  const double bucket = figure.Pick(5.0, 0.1);
  std::map<std::pair<int, int>, int> seen;
  std::vector<double> original(static_cast<std::size_t>(seconds / bucket) + 1);
  std::vector<double> again(original.size());
  std::ifstream lines(file);
  int chain = 0;
  int which = 0;
  double at = 0;
  int repeated = 0;
  while (lines >> chain >> which >> at) {
    const std::size_t place =
        std::min(static_cast<std::size_t>(std::max(at - begin, 0.0) / bucket), original.size() - 1);
    const bool first = ++seen[{chain, which}] == 1;
    (first ? original : again)[place] += 1 / bucket;
    repeated += first ? 0 : 1;
  }
  if (seen.size() != static_cast<std::size_t>(chains * steps)) bench::Fail("steps were never executed");
  std::vector<std::vector<std::string>> rows{{"seconds", "original tasks/s", "executed again /s"}};
  paper::Series first{"original tasks", paper::Mark::kMeasured, {}};
  paper::Series second{"executed again", paper::Mark::kMeasured, {}};
  for (std::size_t i = 0; i < original.size(); ++i) {
    const double middle = (static_cast<double>(i) + 0.5) * bucket;
    rows.push_back({Number(middle), Number(original[i]), Number(again[i])});
    first.points.emplace_back(middle, original[i]);
    second.points.emplace_back(middle, again[i]);
  }
  figure.Table(rows);
  figure.Say(std::to_string(chains) + " chains of " + std::to_string(steps) + " tasks on " + std::to_string(kWorkers) +
             " nodes of " + std::to_string(kPerNode) +
             " CPUs; a node is killed at 25, 50 and 100 s, three come at 125 s. " + std::to_string(seen.size()) +
             " tasks, " + std::to_string(repeated) + " executed again, " + Number(seconds) +
             " s; without failures at least " + Number(steps * ms / 1e3) + " s. All chains end with the right value.");
  figure.Draw({.title = "Chains of 100 ms tasks while nodes are killed",
               .note = {},
               .x = {"seconds", false, ""},
               .y = {"tasks/s", false, ""},
               .series = {first, second}});
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Measure(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
