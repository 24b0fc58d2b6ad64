// manta-bench-rebuild: a chain of tasks of which each takes the value of the one before, on a node that is killed when
// half of them are done. Small values are with the driver, and only the task that ran is run again; large ones were
// only in the dead node's store, and are made again from the chain's beginning.
#include <manta/manta.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <vector>

#include "harness.h"
#include "nodes.h"

namespace bench {
namespace {

using Value = std::vector<std::uint64_t>;

Value Next(const Value& before, double seconds, std::size_t words) {
  const double end = Now() + seconds;
  Value value(words);
  value[0] = before[0] + 1;
  value[words - 1] = before[before.size() - 1] + 1;
  while (Now() < end) SleepMs((end - Now()) * 1e3);
  return value;
}

// Until the last value is there, in seconds.
double Chain(std::size_t words, int tasks, double seconds, double kill_after) {
  NodesOptions options;
  options.count = 3;
  options.store_bytes = 2ULL << 30;
  options.words = {{}, {"--resource", "chain=1"}, {"--resource", "chain=1"}};
  Nodes nodes(options);
  const Nodes::Driver driver(nodes);
  auto next = manta::Task(Next).SetResource("chain", 1);
  next.Remote(Value{0, 0}, 0.0, 2).Get();  // the program is there
  const double begin = Now();
  manta::Ref<Value> last = next.Remote(Value{0, 0}, seconds, words);
  for (int i = 1; i < tasks; ++i) last = next.Remote(last, seconds, words);
  SleepMs((begin + kill_after - Now()) * 1e3);
  std::size_t busy = 2;
  for (const double end = Now() + 10 * seconds + 1; nodes.Status(busy, "tasks_running") == 0; busy = 5 - busy) {
    if (Now() > end) Fail("no task of the chain runs any more: --kill-after is too late for so many tasks");
  }
  nodes.Kill(busy);
  const Value value = last.Get();
  const double took = Now() - begin;
  const auto expected = static_cast<std::uint64_t>(tasks);
  if (value.size() != words || value.front() != expected || value.back() != expected) Fail("the chain's end is wrong");
  return took;
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  CLI::App app("How long a chain of tasks takes whose node is killed in the middle.");
  int tasks = 100;
  double seconds = 0.1;
  double kill_after = 5;
  std::size_t megabytes = 10;
  app.add_option("--tasks", tasks, "in the chain")->check(CLI::Range(2, 100000));
  app.add_option("--seconds", seconds, "that each takes")->check(CLI::Range(0.001, 60.0));
  app.add_option("--kill-after", kill_after, "seconds")->check(CLI::Range(0.0, 3600.0));
  app.add_option("--megabytes", megabytes, "of a large value")->check(CLI::Range(1, 100));
  CLI11_PARSE(app, argc, argv);
  try {
    std::printf("%d tasks of %.0f ms, their node killed after %.1f s\n", tasks, seconds * 1e3, kill_after);
    std::printf("  small values:      %6.2f s\n", bench::Chain(2, tasks, seconds, kill_after));
    std::printf("  values of %3zu MB:  %6.2f s\n", megabytes,
                bench::Chain(megabytes * 1'000'000 / sizeof(std::uint64_t), tasks, seconds, kill_after));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "manta-bench-rebuild: %s\n", error.what());
    return 1;
  }
  return 0;
}
