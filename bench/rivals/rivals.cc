// Others side by side, doing the same: a future for each task, its result read and checked.
#include <limits.h>
#include <unistd.h>

#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rooms.h"
#include "work.h"
#ifdef MANTA_BENCH_TBB
#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>
#endif

namespace bench {
namespace {

#ifdef MANTA_BENCH_TBB
// One process: threads instead of workers, nothing is copied, a crash ends the program.
// The task owns its promise: get() may return before set_value has.
std::future<std::uint64_t> Enqueue(tbb::task_arena& arena, std::uint64_t value) {
  auto promise = std::make_shared<std::promise<std::uint64_t>>();
  std::future<std::uint64_t> future = promise->get_future();
  arena.enqueue([promise = std::move(promise), value] { promise->set_value(value); });
  return future;
}

std::vector<double> TbbAsync(double seconds) {
  tbb::task_arena arena(static_cast<int>(ClientCount()));
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    std::vector<std::future<std::uint64_t>> futures;
    futures.reserve(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) {
      futures.push_back(Enqueue(arena, count + i));
    }
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (futures[i].get() != count + i) Fail("oneTBB gave a wrong result");
    }
    count += kBatch;
  }
  return {static_cast<double>(count) / (now - begin)};
}

// No future: results in an array, complete when the group is.
std::vector<double> TbbGroup(double seconds) {
  tbb::task_arena arena(static_cast<int>(ClientCount()));
  std::vector<std::uint64_t> results(kBatch);
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    arena.execute([&] {
      tbb::task_group group;
      for (std::size_t i = 0; i < kBatch; ++i) group.run([&results, i, count] { results[i] = count + i; });
      group.wait();
    });
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (results[i] != count + i) Fail("oneTBB gave a wrong result");
    }
    count += kBatch;
  }
  return {static_cast<double>(count) / (now - begin)};
}

std::vector<double> TbbSync(double seconds) {
  tbb::task_arena arena(static_cast<int>(ClientCount()));
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    const double begin = Now();
    if (Enqueue(arena, samples.size()).get() != samples.size()) Fail("oneTBB gave a wrong result");
    samples.push_back(Now() - begin);
  }
  return {Percentile(samples, 0.5) * 1e6};
}
#endif

// The script beside the program.
std::string ScriptPath() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  const std::string program(path, length > 0 ? static_cast<std::size_t>(length) : 0);
  return program.substr(0, program.rfind('/') + 1) + "rivals/dask_rival.py";
}

// Tasks per second and p50 of a round trip in µs, of a new local cluster with processes.
std::vector<double> Dask(double seconds) {
  const std::string command = "/usr/bin/python3 '" + ScriptPath() + "' " + std::to_string(ClientCount()) + " " +
                              std::to_string(seconds) + " 2>/dev/null";
  std::FILE* output = ::popen(command.c_str(), "r");
  if (output == nullptr) Skip("python3 cannot be started");
  double rate = 0, trip = 0;
  const int read = std::fscanf(output, "%lf %lf", &rate, &trip);
  ::pclose(output);
  if (read != 2) Skip("python3 has no dask.distributed here (package python3-distributed)");
  return {rate, trip};
}

}  // namespace

void AddRivals(Suite& suite, Baselines& baselines) {
#ifdef MANTA_BENCH_TBB
  suite.Add({.metrics = {{"rival_tbb_tasks_async", "tasks/s", baselines.RingPerSecond()}},
             .cluster = Cluster::kDown,
             .run = TbbAsync});
  suite.Add({.metrics = {{"rival_tbb_task_group", "tasks/s", baselines.RingPerSecond()}},
             .cluster = Cluster::kDown,
             .run = TbbGroup});
  suite.Add(
      {.metrics = {{"rival_tbb_tasks_sync", "us", baselines.RingTripUs()}}, .cluster = Cluster::kDown, .run = TbbSync});
#endif
  suite.Add({.metrics = {{"rival_dask_tasks_async", "tasks/s", baselines.RingPerSecond()},
                         {"rival_dask_tasks_sync", "us", baselines.RingTripUs()}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = Dask});
}

}  // namespace bench
