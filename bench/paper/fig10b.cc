// Figure 10b: empty tasks one after another, with the lineage of all of them retained. With flushing it goes to disk,
// and the memory of the daemon stays as it is; without, it is kept in memory (the same records, in a file of tmpfs),
// which grows until a limit ends the run. And what it costs: the same tasks with no lineage beyond the owner's memory.
#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "processes.h"

namespace {

using paper::Figure;
using paper::Number;

constexpr std::size_t kBatch = 1000;
constexpr double kControlLimitMb = 256;  // of the daemon, with flushing
constexpr double kMemoryCapMb = 200;     // of lineage, without

void Nothing() {}

// Megabytes of a process that are its own or shared, and there.
double ResidentMb(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("VmRSS:", 0) == 0) return std::strtod(line.c_str() + 6, nullptr) / 1024;
  }
  return 0;
}

pid_t Daemon() {
  for (const pid_t pid : bench::ClusterLikeProcesses()) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string number, name, state;
    pid_t parent = 0;
    file >> number >> name >> state >> parent;
    if (name == "(mantad)" && parent == getpid()) return pid;
  }
  return 0;
}

double FolderMb(const std::string& folder) {
  double bytes = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, error)) {
    if (entry.is_regular_file(error)) bytes += static_cast<double>(entry.file_size(error));
  }
  return bytes / 1e6;
}

struct Run {
  double tasks_per_s = 0;
  double done = 0;
  double daemon_mb = 0;  // the most
  double lineage_mb = 0;
  double commit_ms = 0;
  std::vector<std::pair<double, double>> memory;  // tasks in millions, megabytes
};

// `state`: where lineage goes; empty: nowhere. `cap`: of it, in MB; 0: none.
Run Measure(std::uint64_t count, const std::string& state, double cap) {
  Run run;
  manta::Config config;
  config.address = "private";
  if (!state.empty()) {
    setenv("MANTA_SECRETS", state.c_str(), 1);
    config.job = "fig10b";
  }
  manta::Init(config);
  const pid_t daemon = Daemon();
  auto task = manta::Task(Nothing);
  std::vector<manta::Ref<void>> refs(kBatch);
  const std::uint64_t look = std::max<std::uint64_t>(count / 50 / kBatch, 1) * kBatch;
  const double begin = bench::Now();
  std::uint64_t done = 0;
  while (done < count) {
    for (manta::Ref<void>& ref : refs) ref = task.Remote();
    for (manta::Ref<void>& ref : refs) ref.Get();
    done += kBatch;
    if (done % look != 0) continue;
    double mb = ResidentMb(daemon);
    run.daemon_mb = std::max(run.daemon_mb, mb);
    if (cap > 0) mb += FolderMb(state);
    run.memory.push_back({static_cast<double>(done) / 1e6, mb});
    if (cap > 0 && FolderMb(state) > cap) break;
  }
  run.tasks_per_s = static_cast<double>(done) / (bench::Now() - begin);
  run.done = static_cast<double>(done);
  if (!state.empty()) {
    const double before = bench::Now();
    manta::Commit();
    run.commit_ms = (bench::Now() - before) * 1e3;
    run.lineage_mb = FolderMb(state);
  }
  manta::Shutdown();
  return run;
}

std::string ScratchFolder(const std::string& where) {
  std::string name = where + "/manta_fig10b_XXXXXX";
  if (mkdtemp(name.data()) == nullptr) bench::Fail("cannot make a folder in " + where);
  return name;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig10b", "Figure 10b: empty tasks with all lineage retained");
  const std::uint64_t count = figure.Pick<std::uint64_t>(50'000'000, 50'000);
  const char* temporary = std::getenv("TMPDIR");
  const std::string disk = ScratchFolder(temporary != nullptr ? temporary : "/tmp");
  const std::string memory = ScratchFolder("/dev/shm");
  // In turn, so that all see the same weather.
  const Run warm = Measure(std::min<std::uint64_t>(count / 10, 1'000'000), "", 0);
  static_cast<void>(warm);
  const Run none = Measure(count, "", 0);
  const Run flushed = Measure(count, disk, 0);
  const Run again = Measure(count, "", 0);
  const Run held = Measure(count, memory, figure.Pick(kMemoryCapMb, 0.1));
  std::filesystem::remove_all(disk);
  std::filesystem::remove_all(memory);
  const double without = (none.tasks_per_s + again.tasks_per_s) / 2;
  const auto row = [&](const std::string& what, const Run& run) {
    return std::vector<std::string>{what,
                                    Number(run.done / 1e6),
                                    Number(run.tasks_per_s),
                                    Number(run.tasks_per_s / without * 100) + "%",
                                    Number(run.daemon_mb),
                                    Number(run.lineage_mb),
                                    run.done > 0 && run.lineage_mb > 0 ? Number(run.lineage_mb * 1e6 / run.done) : "–",
                                    run.commit_ms > 0 ? Number(run.commit_ms) : "–"};
  };
  figure.Table({{"lineage", "tasks, millions", "tasks/s", "of that without", "daemon, most MB", "records, MB",
                 "bytes a task", "last Commit, ms"},
                row("none but the owner's", none),
                row("flushed to disk", flushed),
                row("none, again", again),
                row("held in memory, up to " + Number(kMemoryCapMb) + " MB", held)});
  figure.Draw({.title = "Figure 10b: memory of the daemon, and of lineage that is held",
               .note = {},
               .x = {"tasks, millions", false, ""},
               .y = {"MB", false, ""},
               .series = {{"flushed to disk", paper::Mark::kMeasured, flushed.memory},
                          {"held in memory", paper::Mark::kMeasured, held.memory}}});
  if (flushed.daemon_mb > kControlLimitMb) {
    bench::Fail("the daemon took " + Number(flushed.daemon_mb) + " MB, over " + Number(kControlLimitMb));
  }
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
