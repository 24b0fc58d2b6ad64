// Figure 5: the components. Each is started, listed, killed under load and started again; what the load saw of it.
#include <manta/manta.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "figure.h"
#include "harness.h"
#include "nodes.h"
#include "processes.h"

namespace {

using paper::Figure;
using paper::Number;

struct Reply {
  int pid = 0;
  std::string node;
  std::uint64_t twice = 0;
};

Reply Twice(std::uint64_t value) {
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return {::getpid(), manta::CurrentContext().node, 2 * value};
}

// Tasks on all nodes, one after another with a few on their way, each answer checked.
class Load {
 public:
  Load() : thread_([this] { Run(); }) {}
  ~Load() { Stop(); }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Of a worker on a node, when one has just answered.
  int WorkerOn(const std::string& node) {
    const double since = bench::Now();
    for (;;) {
      {
        const std::lock_guard lock(mutex_);
        if (last_at_ > since && last_.node == node) return last_.pid;
      }
      if (bench::Now() > since + 60) bench::Fail("no task ran on " + node + " for a minute");
      std::this_thread::yield();
    }
  }
  // The longest time without an answer since then, in ms.
  double PauseMs(double since) {
    const std::lock_guard lock(mutex_);
    double longest = 0;
    for (const auto& [at, gap] : gaps_) {
      if (at >= since) longest = std::max(longest, gap);
    }
    return longest * 1e3;
  }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] const std::string& failure() const { return failure_; }  // after Stop

 private:
  void Run() {
    try {
      auto task = manta::Task(Twice).SetResource("work", 1).Spread();
      std::deque<std::pair<std::uint64_t, manta::Ref<Reply>>> ahead;
      double before = bench::Now();
      for (std::uint64_t i = 0; !stop_ || !ahead.empty(); ++i) {
        if (!stop_) ahead.emplace_back(i, task.Remote(i));
        if (ahead.size() < 8 && !stop_) continue;
        const Reply reply = ahead.front().second.Get();
        if (reply.twice != 2 * ahead.front().first) bench::Fail("a wrong answer");
        ahead.pop_front();
        const double now = bench::Now();
        ++done_;
        const std::lock_guard lock(mutex_);
        if (now - before > 0.001) gaps_.emplace_back(now, now - before);
        before = now;
        last_ = reply;
        last_at_ = now;
      }
    } catch (const std::exception& error) {
      failure_ = error.what();
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<std::uint64_t> done_{0};
  std::string failure_;
  std::mutex mutex_;  // guards what follows
  std::vector<std::pair<double, double>> gaps_;
  Reply last_;
  double last_at_ = 0;
  std::thread thread_;
};

int Linger(const std::string& file) {
  std::ofstream(file) << ::getpid() << std::endl;
  std::this_thread::sleep_for(std::chrono::seconds(60));
  return 0;
}

// A driver that dies while its task runs.
int Die(const std::string& address, const std::string& file) {
  manta::Config config;
  config.address = address;
  manta::Init(config);
  const manta::Ref<int> task = manta::Task(Linger).Remote(file);
  int pid = 0;
  while (!(std::ifstream(file) >> pid)) bench::SleepMs(1);
  return ::raise(SIGKILL);
}

double ResidentMb(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * static_cast<double>(::sysconf(_SC_PAGESIZE)) / 1e6;
}

double UntilGoneMs(pid_t pid) {
  const double begin = bench::Now();
  while (bench::ParentOf(pid) != 0 && bench::Now() < begin + 60) bench::SleepMs(0.2);
  return (bench::Now() - begin) * 1e3;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig5", "Figure 5: the components, killed and started again under load");
  const double settle_ms = figure.Pick(2000.0, 300.0);
  bench::NodesOptions options;
  options.count = 3;
  options.cpus = 2;
  options.words.assign(8, {"--resource", "work=2"});
  options.words[0].clear();
  const double begin = bench::Now();
  bench::Nodes nodes(options);
  const double up_ms = (bench::Now() - begin) * 1e3;
  const bench::TemporaryFolder folder;
  const bench::Nodes::Driver driver(nodes);
  Load load;
  bench::SleepMs(settle_ms);

  const int worker = load.WorkerOn("n2");
  const pid_t fork_server = bench::ParentOf(worker);
  figure.Say("Head and three nodes up in " + Number(up_ms) +
             " ms. The processes, of the second node where there are several:");
  figure.Table({{"component", "process", "resident MB"},
                {"driver (and owner)", "the program itself", Number(ResidentMb(::getpid()))},
                {"worker", "the program, forked", Number(ResidentMb(worker))},
                {"fork server", "the program, started again by the node", Number(ResidentMb(fork_server))},
                {"node: local scheduler, store", "mantad", Number(ResidentMb(nodes.pid(2)))},
                {"head: control store, global scheduler", "manta-control", Number(ResidentMb(nodes.head_pid()))}});

  std::vector<std::vector<std::string>> rows{{"killed", "longest pause of the load, ms", "started again by", "in ms"}};
  const auto kill_one = [&](const std::string& name, const std::string& by, const std::function<double()>& act) {
    const double since = bench::Now();
    const double ms = act();
    bench::SleepMs(settle_ms);
    rows.push_back({name, Number(load.PauseMs(since)), by, ms < 0 ? "" : Number(ms)});
  };
  kill_one("nothing", "", [] { return -1.0; });
  kill_one("worker", "the node", [&] {
    ::kill(load.WorkerOn("n2"), SIGKILL);
    const double killed = bench::Now();
    static_cast<void>(load.WorkerOn("n2"));
    return (bench::Now() - killed) * 1e3;
  });
  kill_one("fork server", "the node", [&] {
    ::kill(bench::ParentOf(load.WorkerOn("n2")), SIGKILL);
    const double killed = bench::Now();
    static_cast<void>(load.WorkerOn("n2"));
    return (bench::Now() - killed) * 1e3;
  });
  kill_one("node", "`manta start --join`", [&] {
    nodes.Kill(3);
    const double killed = bench::Now();
    nodes.Add();
    static_cast<void>(load.WorkerOn("n4"));
    return (bench::Now() - killed) * 1e3;
  });
  kill_one("head", "`manta start --head`", [&] {
    const double killed = bench::Now();
    nodes.RestartHead();
    return (bench::Now() - killed) * 1e3;
  });
  load.Stop();
  if (!load.failure().empty()) bench::Fail("the load failed: " + load.failure());
  figure.Table(rows);
  figure.Say(std::to_string(load.done()) +
             " tasks of 1 ms, each answered once and right. \"in ms\" is until it serves tasks again; " +
             "of the head, until it answers.");

  const std::string file = folder.path() + "/pid";
  static_cast<void>(bench::RunProgram({"/proc/self/exe", "--die", nodes.address(2), file}));
  int orphan = 0;
  std::ifstream(file) >> orphan;
  if (orphan == 0) bench::Fail("a driver that should die did not come so far");
  figure.Say("A killed driver: the worker in the middle of its task was gone " + Number(UntilGoneMs(orphan)) +
             " ms after the driver.");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc == 4 && std::string(argv[1]) == "--die") return Die(argv[2], argv[3]);
    Measure(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
