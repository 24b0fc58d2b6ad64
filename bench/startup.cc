// Starting and being there: the cluster, its first task, actors, workers, and what it costs to do nothing.
#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "processes.h"
#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

Reply Work(std::uint64_t index) { return Answer(index); }

struct Started {
  double at = 0;  // by the clock of Now
  std::uint32_t pid = 0;
};

// Keeps its worker long enough that the next task needs another one.
Started StartAndStay(double ms) {
  const Started started{Now(), MyPid()};
  SleepMs(ms);
  return started;
}

class Small {
 public:
  Reply Call(std::uint64_t index) { return Reply{1, index, MyPid()}; }
};

std::vector<double> InitShutdown(double seconds) {
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    const double begin = Now();
    manta::Init();
    manta::Shutdown();
    samples.push_back(Now() - begin);
  }
  return {Percentile(samples, 0.5) * 1e3};
}

std::vector<double> FirstTask(double seconds) {
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    manta::Init();
    const double begin = Now();
    Tally tally;
    tally.Add(manta::Task(Work).Remote(7).Get(), 7);
    samples.push_back(Now() - begin);
    manta::Shutdown();
  }
  return {Percentile(samples, 0.5) * 1e3};
}

// Creates actors until each has answered a call from a process of its own. Their ends are not timed, but
// waited for, so that they do not run into the next round.
std::vector<double> ActorCreate(double seconds) {
  constexpr std::size_t kActors = 20;
  double timed = 0, created = 0;
  const double start = Now();
  while (created == 0 || (timed < seconds && Now() - start < 4 * seconds)) {
    std::set<std::uint32_t> pids;
    {
      std::vector<manta::ActorHandle<Small>> actors;
      std::vector<manta::Ref<Reply>> refs;
      const double begin = Now();
      for (std::size_t i = 0; i < kActors; ++i) {
        actors.push_back(manta::Actor<Small>().Remote());
        refs.push_back(actors.back().Task(&Small::Call).Remote(i));
      }
      for (std::size_t i = 0; i < kActors; ++i) {
        const Reply reply = refs[i].Get();
        if (reply.index != i) Fail("an actor answered another call");
        pids.insert(reply.pid);
      }
      timed += Now() - begin;
    }
    created += kActors;
    if (pids.size() != kActors || pids.contains(MyPid())) Fail("actors share a process");
    const double patience = Now() + 2;
    for (const std::uint32_t pid : pids) {
      while (IsAlive(static_cast<pid_t>(pid)) && Now() < patience) SleepMs(0.2);
    }
  }
  return {created / timed};
}

// In a new cluster: more tasks at a time than it has workers. Time from the submission until the last
// worker that did not exist before runs its task, by the number of such workers.
std::vector<double> WorkerStart() {
  constexpr int kTasks = 6;
  manta::Init();
  manta::Task(Work).Remote(0).Get();
  SleepMs(50);  // whatever Init started in the background is there
  const std::set<pid_t> before = ClusterLikeProcesses();
  std::vector<manta::Ref<Started>> refs;
  auto task = manta::Task(StartAndStay).SetCpus(0.001);
  const double begin = Now();
  for (int i = 0; i < kTasks; ++i) refs.push_back(task.Remote(150));
  std::set<std::uint32_t> fresh;
  double last = begin;
  for (const auto& ref : refs) {
    const Started started = ref.Get();
    if (before.contains(static_cast<pid_t>(started.pid)) || !fresh.insert(started.pid).second) continue;
    last = std::max(last, started.at);
  }
  refs.clear();
  manta::Shutdown();
  if (fresh.empty()) Skip("no new worker was started for 6 sleeping tasks of 0.001 CPUs");
  return {(last - begin) * 1e3 / static_cast<double>(fresh.size())};
}

// Percent of one core, over two seconds that begin 100 ms after the last task: driver, mantad, fork server
// and workers together, of which two have just worked and must still be there at the end.
std::vector<double> IdleCpu(pid_t helper) {
  constexpr double kSeconds = 2;
  const std::set<pid_t> before = ClusterLikeProcesses();
  manta::Config config;
  config.cpus = 2;
  manta::Init(config);
  std::set<std::uint32_t> workers;
  for (int attempt = 0; workers.size() < 2; ++attempt) {
    if (attempt == 20) Fail("two workers were asked for, but only one process ran tasks");
    std::vector<manta::Ref<Started>> refs;
    for (int i = 0; i < 4; ++i) refs.push_back(manta::Task(StartAndStay).Remote(10));
    for (const auto& ref : refs) workers.insert(ref.Get().pid);
  }
  auto work = manta::Task(Work);
  Tally tally;
  for (std::uint64_t round = 0; round < 20; ++round) {
    std::vector<manta::Ref<Reply>> refs;
    for (std::uint64_t i = 0; i < kBatch; ++i) refs.push_back(work.Remote(i));
    for (std::uint64_t i = 0; i < kBatch; ++i) tally.Add(refs[i].Get(), i);
  }
  tally.Finish(20 * kBatch);
  SleepMs(100);

  std::vector<pid_t> processes{::getpid()};
  for (const pid_t pid : ClusterLikeProcesses()) {
    if (!before.contains(pid) && pid != helper && pid != ::getpid()) processes.push_back(pid);
  }
  if (processes.size() < 2 + workers.size()) {
    Fail("only " + std::to_string(processes.size()) + " processes of the cluster were found");
  }
  const auto used = [&] {
    double sum = 0;
    for (const pid_t pid : processes) sum += CpuSeconds(pid);
    return sum;
  };
  const double begin = Now(), cpu = used();
  SleepMs(kSeconds * 1e3);
  const double share = (used() - cpu) / (Now() - begin);
  for (const std::uint32_t pid : workers) {
    if (std::find(processes.begin(), processes.end(), static_cast<pid_t>(pid)) == processes.end() ||
        !IsAlive(static_cast<pid_t>(pid))) {
      Fail("worker " + std::to_string(pid) + " did not live through the two idle seconds");
    }
  }
  manta::Shutdown();
  return {share * 100};
}

}  // namespace

void AddStartup(Suite& suite, Baselines& baselines) {
  suite.Add(
      {.metrics = {{"init_shutdown", "ms", baselines.SpawnMs()}}, .cluster = Cluster::kDown, .run = InitShutdown});
  suite.Add({.metrics = {{"first_task", "ms", baselines.ForkMs()}}, .cluster = Cluster::kDown, .run = FirstTask});
  suite.Add({.metrics = {{"worker_start", "ms", baselines.ForkMs()}}, .cluster = Cluster::kDown, .run = [](double) {
               return WorkerStart();
             }});
  suite.Add({.metrics = {{"actor_create", "actors/s", baselines.ForkPerSecond()}}, .run = ActorCreate});
  suite.Add({.metrics = {{"idle_cpu", "%", baselines.SpinningPercent()}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [helper = baselines.helper()](double) { return IdleCpu(helper); }});
}

}  // namespace bench
