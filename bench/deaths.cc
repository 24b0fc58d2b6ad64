// How soon a death is noticed, from outside: something is killed in the middle of a task, and the figure is how long it
// takes until that task has begun again elsewhere, with the lease and the message that this takes. The workers that it
// can go to are there already.
#include <fcntl.h>
#include <manta/manta.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "nodes.h"
#include "processes.h"
#include "rooms.h"

namespace bench {
namespace {

constexpr double kPatience = 30;  // seconds

// One of each time that the task began.
struct Begun {
  double at = 0;
  std::int32_t pid = 0;
  char node[12] = {};
};

int Stay(const std::string& path, double seconds) {
  Begun begun{Now(), static_cast<std::int32_t>(::getpid()), {}};
  const std::string node = manta::CurrentContext().node;
  node.copy(begun.node, sizeof begun.node - 1);
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  const bool written = ::write(file, &begun, sizeof begun) == sizeof begun;
  ::close(file);
  const std::string stop = path + ".stop";
  for (const double end = Now() + seconds; Now() < end && ::access(stop.c_str(), F_OK) != 0;) SleepMs(1);
  return written ? 1 : 0;
}

// What the tasks of one attempt write to.
class Attempt {
 public:
  Attempt() : path_(folder_.path() + "/begun") {}
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<Begun> Read() const {
    std::vector<Begun> all;
    std::ifstream file(path_, std::ios::binary);
    for (Begun one; file.read(reinterpret_cast<char*>(&one), sizeof one);) all.push_back(one);
    return all;
  }
  // When it has begun for the how-manieth time.
  [[nodiscard]] Begun Await(std::size_t count) const {
    for (const double end = Now() + kPatience; Now() < end; SleepMs(0.2)) {
      if (const std::vector<Begun> all = Read(); all.size() >= count) return all[count - 1];
    }
    Fail("a task did not begin again within " + std::to_string(static_cast<int>(kPatience)) + " s");
  }
  void Stop() const { std::ofstream(path_ + ".stop") << ""; }

 private:
  TemporaryFolder folder_;
  std::string path_;
};

std::vector<double> WorkerDeath(double seconds) {
  std::vector<double> samples;
  manta::Config config;
  config.cpus = 2;
  manta::Init(config);
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    const Attempt attempt;
    // The worker that will take over is there, and idle.
    std::vector<manta::Ref<int>> warm;
    for (int i = 0; i < 2; ++i) warm.push_back(manta::Task(Stay).Remote(attempt.path() + "-warm", 0.02));
    for (const auto& ref : warm) ref.Get();
    const manta::Ref<int> ref = manta::Task(Stay).Remote(attempt.path(), kPatience);
    const Begun first = attempt.Await(1);
    SleepMs(5);
    const double killed = Now();
    ::kill(first.pid, SIGKILL);
    samples.push_back(attempt.Await(2).at - killed);
    attempt.Stop();
    if (ref.Get() != 1 || attempt.Read().size() != 2) Fail("a task whose worker was killed did not run twice");
  }
  manta::Shutdown();
  return {Percentile(samples, 0.5) * 1e3};
}

void ForAll(pid_t pid, const std::function<void(pid_t)>& what) {
  for (const pid_t child : ChildrenOf(pid)) ForAll(child, what);
  what(pid);
}

// `breaks` does away with the node, `mends` comes before the cluster ends.
double NodeDeath(const std::function<void(pid_t node)>& breaks, const std::function<void(pid_t node)>& mends) {
  NodesOptions options;
  options.count = 3;
  options.words = {{}, {"--resource", "far=1"}, {"--resource", "far=1"}};
  const Nodes nodes(options);
  const Nodes::Driver driver(nodes);
  const Attempt attempt;
  std::vector<manta::Ref<int>> warm;
  for (int i = 0; i < 2; ++i) {
    warm.push_back(manta::Task(Stay).SetResource("far", 1).Remote(attempt.path() + "-warm", 0.3));
  }
  for (const auto& ref : warm) ref.Get();
  const manta::Ref<int> ref = manta::Task(Stay).SetResource("far", 1).Remote(attempt.path(), kPatience);
  const Begun first = attempt.Await(1);
  SleepMs(300);  // a heartbeat has said that the other node is free
  const pid_t node = nodes.pid(std::string(first.node) == "n2" ? 2 : 3);
  const double killed = Now();
  breaks(node);
  const Begun second = attempt.Await(2);
  attempt.Stop();
  const bool right = ref.Get() == 1 && std::string(second.node) != first.node;
  mends(node);
  if (!right) Fail("a task whose node was lost did not run on another");
  return second.at - killed;
}

// From the kill until a task that needs the head has a result, which is after it was started again.
double ControlRestart() {
  NodesOptions options;
  Nodes nodes(options);
  const Nodes::Driver driver(nodes);
  const Attempt attempt;
  const manta::Ref<int> long_one = manta::Task(Stay).SetCpus(0).SetResource("n2", 1).Remote(attempt.path(), kPatience);
  static_cast<void>(attempt.Await(1));
  const pid_t head = nodes.head_pid();
  std::thread restarts([&nodes] { nodes.RestartHead(); });
  while (ParentOf(head) != 0) SleepMs(0.1);
  const double killed = Now();
  // Nobody on the other node serves this kind of task yet.
  const int made = manta::Task(Stay).SetCpus(0.5).SetResource("n2", 2).Remote(attempt.path() + "-new", 0.0).Get();
  const double took = Now() - killed;
  restarts.join();
  attempt.Stop();
  if (made != 1 || long_one.Get() != 1 || attempt.Read().size() != 1)
    Fail("a task was disturbed by the head's restart");
  return took;
}

}  // namespace

void AddDeaths(Suite& suite, Baselines& baselines) {
  suite.Add(
      {.metrics = {{"notice_worker_death", "ms", baselines.ForkMs()}}, .cluster = Cluster::kDown, .run = WorkerDeath});
  suite.Add({.metrics = {{"notice_daemon_death", "ms", baselines.SpawnMs()}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double) {
               const double took = NodeDeath([](pid_t node) { ::kill(node, SIGKILL); }, [](pid_t) {});
               return std::vector<double>{took * 1e3};
             }});
  suite.Add({.metrics = {{"notice_silent_node", "ms", baselines.SpawnMs()}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double) {
               const double took = NodeDeath([](pid_t node) { ForAll(node, [](pid_t pid) { ::kill(pid, SIGSTOP); }); },
                                             [](pid_t node) { ForAll(node, [](pid_t pid) { ::kill(pid, SIGCONT); }); });
               return std::vector<double>{took * 1e3};
             }});
  suite.Add({.metrics = {{"control_restart", "ms", baselines.SpawnMs()}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double) { return std::vector<double>{ControlRestart() * 1e3}; }});
}

}  // namespace bench
