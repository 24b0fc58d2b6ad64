// manta-bench: how fast Manta is on this machine, beside what the machine itself can do.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "baselines.h"
#include "harness.h"
#include "rooms.h"

int main(int argc, char** argv) {
  CLI::App app{
      "Measures Manta's tasks, actors and objects. Each row: median and range of at least five runs, and the same of "
      "its\n"
      "null baseline, taken in turn with them; the ratio is median / baseline median. Latencies are p50.",
      "manta-bench"};
  bench::Options options;
  bool list = false, probe = false;
  std::string serve;
  app.add_option("--filter", options.filter, "only workloads whose name matches this regular expression")
      ->type_name("RE");
  app.add_option("--json", options.json, "write the rows to this file, too")->type_name("FILE");
  app.add_option("--seconds", options.seconds, "time of one run of a workload (there are five)")
      ->type_name("S")
      ->check(CLI::Range(0.001, 3600.0))
      ->capture_default_str();
  app.add_flag("--list", list, "print the workloads and stop");
  app.add_flag("--probe-queued", probe)->group("");     // what queued_1m_tasks starts; not for people
  app.add_option("--serve-control", serve)->group("");  // what the control store's rows start
  CLI11_PARSE(app, argc, argv);
  try {
    if (probe) return bench::QueuedProbe();
    if (!serve.empty()) return bench::ServeControl(serve);
    bench::Baselines baselines;
    bench::Suite suite;
    suite.OnDone([&baselines] { baselines.Release(); });
    bench::AddStartup(suite, baselines);
#ifdef MANTA_BENCH_TUNE
    bench::AddTune(suite, baselines);
#endif
    bench::AddTasks(suite, baselines);
    bench::AddActors(suite, baselines);
    bench::AddObjects(suite, baselines);
    bench::AddLimits(suite, baselines);
    bench::AddDurable(suite);
    bench::AddControl(suite);
    bench::AddClusters(suite, baselines);
    bench::AddDeaths(suite, baselines);
    bench::AddRivals(suite, baselines);
    if (list) return suite.List(), 0;
    return suite.Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "manta-bench: %s\n", error.what());
    return 1;
  }
}
