// manta-sim answers questions about clusters we do not have: the engine's own rules under virtual time.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>
#include <vector>

#include "parse.h"
#include "sim/scenarios.h"
#include "sim/soak.h"
#ifdef MANTA_SIM_TUNE
#include "tune/sim/model.h"
#endif

namespace {

using manta::sim::Row;
using manta::sim::Table;

std::string Number(double value) {
  char text[40];
  const double size = std::fabs(value);
  const char* format = size >= 100 || value == std::round(value) ? "%.0f" : size >= 1 ? "%.2f" : "%.4f";
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void Print(const Table& table) {
  std::vector<std::string> names;
  for (const Row& row : table.rows) {
    for (const auto& [name, value] : row.labels) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  const std::size_t labels = names.size();
  for (const Row& row : table.rows) {
    for (const auto& [name, value] : row.values) {
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
  }
  std::vector<std::vector<std::string>> cells{names};
  for (const Row& row : table.rows) {
    std::vector<std::string> line(names.size(), "-");
    for (const auto& [name, value] : row.labels) {
      line[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())] = value;
    }
    for (const auto& [name, value] : row.values) {
      line[static_cast<std::size_t>(std::find(names.begin(), names.end(), name) - names.begin())] = Number(value);
    }
    cells.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(names.size());
  for (const auto& line : cells) {
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::printf("\n%s\n", table.title.c_str());
  for (std::size_t at = 0; at < cells.size(); ++at) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const int width = static_cast<int>(widths[i]);
      std::printf("| %*s ", i < labels ? -width : width, cells[at][i].c_str());
    }
    std::printf("|\n");
    if (at > 0) continue;
    for (std::size_t i = 0; i < names.size(); ++i) {
      std::printf("|%s%s", std::string(widths[i] + 1, '-').c_str(), i < labels ? "-" : ":");
    }
    std::printf("|\n");
  }
  std::printf("trace %016" PRIx64 "\n", table.trace);
  std::fflush(stdout);
}

bool WriteJson(const std::string& path, const std::string& scenario, std::uint64_t seed,
               const std::vector<Table>& tables) {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file == nullptr) return false;
  std::fprintf(file, "{\"scenario\": \"%s\", \"seed\": %" PRIu64 ", \"tables\": [", scenario.c_str(), seed);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    std::fprintf(file, "%s\n {\"title\": \"%s\", \"trace\": \"%016" PRIx64 "\", \"rows\": [", t > 0 ? "," : "",
                 tables[t].title.c_str(), tables[t].trace);
    for (std::size_t r = 0; r < tables[t].rows.size(); ++r) {
      std::fprintf(file, "%s\n  {", r > 0 ? "," : "");
      const char* between = "";
      for (const auto& [name, value] : tables[t].rows[r].labels) {
        std::fprintf(file, "%s\"%s\": \"%s\"", between, name.c_str(), value.c_str());
        between = ", ";
      }
      for (const auto& [name, value] : tables[t].rows[r].values) {
        std::fprintf(file, "%s\"%s\": %.9g", between, name.c_str(), value);
        between = ", ";
      }
      std::fprintf(file, "}");
    }
    std::fprintf(file, "]}");
  }
  std::fprintf(file, "\n]}\n");
  return std::fclose(file) == 0;
}

// What came of seeds under faults; 1 if one failed. `command` with a seed behind it repeats that one.
template <typename Figures>
int Report(const manta::sim::SoakFigures<Figures>& soak, std::uint64_t first, double wall, double took,
           const char* command) {
  std::printf("seeds %" PRIu64 " to %" PRIu64 ": %s\n", first, first + soak.seeds - 1, soak.all.Describe().c_str());
  std::printf("%.0f seeds/s; %.0f times real time (%.0f by the wall's clock)\n", static_cast<double>(soak.seeds) / wall,
              soak.all.seconds / took, soak.all.seconds / wall);
  if (!soak.failed) return 0;
  std::printf("seed %" PRIu64 " FAILED and %s; again: manta-sim %s --seed %" PRIu64 "\n", *soak.failed,
              soak.replays ? "replays identically" : "DOES NOT REPLAY", command, *soak.failed);
  for (const std::string& what : soak.all.violations) std::printf("  %s\n", what.c_str());
  return 1;
}

// `soak` for so long or so many seeds, whichever ends first.
template <typename Soak>
int RunSeeds(double seconds, std::uint64_t seeds, std::uint64_t first, const char* command, const Soak& soak) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const std::clock_t processor = std::clock();
  const auto wall = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  std::uint64_t done = 0;
  const auto found = soak([&] { return ++done < seeds && wall() < seconds; });
  return Report(found, first, wall(), static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC, command);
}

int RunChains(double seconds, std::uint64_t seeds, std::uint64_t first) {
  return RunSeeds(seconds, seeds, first, "soak --chains --seeds 1",
                  [&](const auto& go_on) { return manta::sim::SoakChain(first, {}, go_on); });
}
int RunRecovery(double seconds, std::uint64_t seeds, std::uint64_t first) {
  return RunSeeds(seconds, seeds, first, "recovery --seeds 1",
                  [&](const auto& go_on) { return manta::sim::SoakRecovery(first, {}, go_on); });
}

#ifdef MANTA_SIM_TUNE
int RunTune(std::int64_t trials, std::uint32_t nodes, double kill, const std::string& scheduler, std::uint64_t seed) {
  manta::tune::sim::SimulationOptions options;
  options.trials = trials;
  options.scheduler = scheduler;
  options.model.seed = seed;
  options.model.nodes = static_cast<int>(nodes);
  options.model.kill = kill;
  options.model.error = kill / 10;
  options.model.node_loss = kill / 100;
  const std::clock_t begin = std::clock();
  const manta::tune::sim::SimulationReport report = manta::tune::sim::Simulate(options);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("tune: %" PRId64 " trials on %u nodes with %s: %" PRId64 " terminated, %" PRId64 " failed, %" PRId64
              " results, %" PRId64 " retries, %" PRId64 " lost workers, %" PRId64 " lost nodes\n",
              report.trials, nodes, scheduler.c_str(), report.terminated, report.error, report.results, report.retries,
              report.lost_workers, report.lost_nodes);
  std::printf("%.0f s of virtual time, best loss %.4f, %" PRId64 " steps of %.2f us, trace %016" PRIx64 "\n",
              report.virtual_seconds, report.best, report.steps, seconds * 1e6 / static_cast<double>(report.steps),
              report.trace);
  for (const std::string& text : report.violations)
    std::fprintf(stderr, "manta-sim: seed %" PRIu64 ": %s\n", seed, text.c_str());
  return report.violations.empty() ? 0 : 1;
}
#endif

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Simulates Manta clusters with the engine's own scheduling rules. The same seed gives the same trace.");
  std::string name;
  std::string json;
  manta::sim::Settings settings;
  std::string about = "one of:";
  std::vector<std::string> names;
  for (const manta::sim::Scenario& one : manta::sim::Scenarios()) {
    about += std::string("\n  ") + one.name + ": " + one.about;
    names.emplace_back(one.name);
  }
  about +=
      "\n  recovery: a cluster that loses workers, actors, nodes and links, --seeds of it"
      "\n  soak: recovery, and a chain of the control store under faults, seed after seed, half of --seconds each";
  names.insert(names.end(), {"recovery", "soak"});
#ifdef MANTA_SIM_TUNE
  about += "\n  tune: a tuning run of --trials with lost workers (--kill), and a checker that counts ends and results";
  names.emplace_back("tune");
#endif
  constexpr auto kNoEnd = std::numeric_limits<std::uint64_t>::max();
  double seconds = 10;
  std::uint64_t seeds = 0;
  bool chains = false;
  std::int64_t trials = 10'000;
  double kill = 0.01;
  std::string scheduler = "asha";
  app.add_option("scenario", name, about)->required()->check(CLI::IsMember(names));
  app.add_option("--nodes", settings.nodes, "nodes (default: the scenario's)")->check(CLI::Range(1U, 1'000'000U));
  app.add_option("--cores", settings.cores, "cores of a node")->check(CLI::Range(1U, 4'096U));
  app.add_option("--tasks", settings.tasks, "tasks (in `scaling`: per node, where nodes vary)");
  app.add_option("--seed", settings.seed, "of all random numbers")->capture_default_str();
  app.add_option("--mean-us", settings.mean_us, "mean run time of a task");
  app.add_option("--load", settings.load, "offered, as a part of all cores")->check(CLI::Range(0.0, 10.0));
  app.add_option("--threshold-us", settings.threshold_us, "estimated wait from which tasks go up");
  app.add_option("--heartbeat-us", settings.heartbeat_us, "between two heartbeats of a node");
  app.add_option("--eager-us", settings.eager_us,
                 "the least time between them when its load changes (0: never sooner)");
  app.add_option("--tolerance-us", settings.tolerance_us,
                 "longer than expected that a task may wait before it bounces");
  app.add_option("--replicas", settings.replicas, "of the global scheduler");
  app.add_option("--shards", settings.shards, "of the control store (default: as many as needed)");
  app.add_option("--sample", settings.sample, "nodes that the global scheduler looks at");
  app.add_option("--seconds", seconds, "of `soak`; at least one seed is run")->capture_default_str();
  app.add_option("--seeds", seeds, "of `recovery` (default: 1000) and `soak` (default: no end), from --seed on");
  app.add_flag("--chains", chains, "`soak` with chains only");
  app.add_option("--trials", trials, "of `tune`")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--kill", kill, "of `tune`: probability that a result is lost with its process")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.9));
  app.add_option("--scheduler", scheduler, "of `tune`: fifo, asha or median")
      ->capture_default_str()
      ->check(CLI::IsMember({"fifo", "asha", "median"}));
  app.add_option("--json", json, "also write the tables to this file");
  if (const auto wrong = manta::cli::Parse(app, "manta-sim", argc, argv)) return *wrong;
#ifdef MANTA_SIM_TUNE
  if (name == "tune") return RunTune(trials, settings.nodes > 0 ? settings.nodes : 50, kill, scheduler, settings.seed);
#endif
  if (name == "recovery") return RunRecovery(1e9, seeds > 0 ? seeds : 1'000, settings.seed);
  if (name == "soak" && chains) return RunChains(seconds, seeds > 0 ? seeds : kNoEnd, settings.seed);
  if (name == "soak") {
    const int chain = RunChains(seconds / 2, seeds > 0 ? seeds : kNoEnd, settings.seed);
    return std::max(chain, RunRecovery(seconds / 2, seeds > 0 ? seeds : kNoEnd, settings.seed));
  }
  // The processor's time, not the wall's: the machine may be shared, and this program has one thread.
  settings.seconds = [] { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; };

  const auto& all = manta::sim::Scenarios();
  const auto chosen = std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  const std::vector<Table> tables = chosen->run(settings);
  for (const Table& table : tables) Print(table);
  if (!json.empty() && !WriteJson(json, name, settings.seed, tables)) {
    std::fprintf(stderr, "manta-sim: cannot write %s: %s\n", json.c_str(), std::strerror(errno));
    return 1;
  }
  return 0;
}
