// manta-chaos: a real cluster, real work (load.h), and every now and then a fault, as the seed says. At the end it
// counts: how much was done, what hit work in flight, what was lost, what was done twice. Neither may ever be more than
// zero.
//
//   manta-chaos --seed 7 --seconds 60
#include <manta/manta.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "board.h"
#include "harness.h"
#include "load.h"
#include "nodes.h"
#include "processes.h"

namespace chaos {
namespace {

using bench::Board;

constexpr int kNodes = 4;  // the first is the driver's own, and stays

struct Fault {
  const char* name;
  int weight;
  int done = 0;
  int hit = 0;  // those that caught somebody in the middle of something
};

class Chaos {
 public:
  Chaos(std::uint64_t seed, bench::Nodes& nodes, Board& board, Load& load)
      : random_(seed), nodes_(nodes), board_(board), load_(load) {
    for (int i = 2; i <= kNodes; ++i) living_.push_back(static_cast<std::size_t>(i));
  }

  void One() {
    int sum = 0;
    for (const Fault& fault : faults_) sum += fault.weight;
    int at = static_cast<int>(random_() % static_cast<std::uint64_t>(sum));
    std::size_t which = 0;
    while (at >= faults_[which].weight) at -= faults_[which++].weight;
    Fault& fault = faults_[which];
    bool hit = false;
    switch (which) {
      case 0:
        hit = KillOne(Workers());
        break;
      case 1:
        hit = KillOne(load_.ActorPids());
        break;
      case 2:
        hit = KillForkServer();
        break;
      case 3:
        hit = KillNode();
        break;
      case 4:
        nodes_.RestartHead();
        hit = true;  // whatever runs, runs without it for a while
        head_restarted_ = true;
        break;
      case 5:
        hit = Stop(Workers(), 300);
        break;
      default:
        hit = Stop({nodes_.pid(living_[random_() % living_.size()])}, 700);
        break;
    }
    ++fault.done;
    fault.hit += hit ? 1 : 0;
  }

  [[nodiscard]] const auto& faults() const { return faults_; }
  // Nodes that were never killed, and the head: were they there all the time?
  [[nodiscard]] bool SurvivorsLive(pid_t first_node, pid_t head) const {
    for (const std::size_t node : living_) {
      if (bench::ParentOf(nodes_.pid(node)) == 0) return false;
    }
    return bench::ParentOf(first_node) != 0 && (head_restarted_ || bench::ParentOf(head) != 0);
  }

 private:
  // Children of fork servers, which are children of nodes.
  [[nodiscard]] std::vector<pid_t> WorkersOf(std::size_t node) const {
    std::vector<pid_t> found;
    for (const pid_t server : bench::ChildrenOf(nodes_.pid(node))) {
      const std::vector<pid_t> workers = bench::ChildrenOf(server);
      found.insert(found.end(), workers.begin(), workers.end());
    }
    return found;
  }
  [[nodiscard]] std::vector<pid_t> Workers() const {
    std::vector<pid_t> found = WorkersOf(1);
    for (const std::size_t node : living_) {
      const std::vector<pid_t> workers = WorkersOf(node);
      found.insert(found.end(), workers.begin(), workers.end());
    }
    return found;
  }
  [[nodiscard]] bool IsNode(pid_t pid) const {
    return std::any_of(living_.begin(), living_.end(), [&](std::size_t node) { return nodes_.pid(node) == pid; });
  }

  bool Kill(const std::vector<pid_t>& victims) {
    bool hit = false;
    for (const pid_t pid : victims) ::kill(pid, SIGKILL);
    for (const pid_t pid : victims) {
      while (bench::ParentOf(pid) != 0) bench::SleepMs(0.1);
      hit |= board_.Busy(pid) > 0;
    }
    return hit;
  }
  // Somebody in the middle of something, if there is one.
  pid_t Choose(const std::vector<pid_t>& candidates) {
    std::vector<pid_t> busy;
    for (const pid_t pid : candidates) {
      if (board_.Busy(pid) > 0) busy.push_back(pid);
    }
    const std::vector<pid_t>& all = busy.empty() ? candidates : busy;
    return all.empty() ? 0 : all[random_() % all.size()];
  }
  bool KillOne(const std::vector<pid_t>& candidates) {
    const pid_t pid = Choose(candidates);
    return pid != 0 && Kill({pid});
  }
  bool KillForkServer() {
    const std::vector<pid_t> workers = Workers();
    if (workers.empty()) return false;
    static_cast<void>(Kill({bench::ParentOf(workers[random_() % workers.size()])}));
    return true;  // it is there only because workers are
  }
  bool KillNode() {
    const std::size_t at = random_() % living_.size();
    const std::size_t node = living_[at];
    std::vector<pid_t> all = WorkersOf(node);
    all.insert(all.begin(), nodes_.pid(node));
    const bool hit = Kill(all);
    nodes_.Add();
    living_[at] = nodes_.count();
    return hit;
  }
  bool Stop(const std::vector<pid_t>& candidates, double ms) {
    const pid_t pid = Choose(candidates);
    if (pid == 0) return false;
    ::kill(pid, SIGSTOP);
    const bool hit = IsNode(pid) || board_.Busy(pid) > 0;
    bench::SleepMs(ms);
    ::kill(pid, SIGCONT);
    return hit;
  }

  std::mt19937_64 random_;
  bench::Nodes& nodes_;
  Board& board_;
  Load& load_;
  std::vector<std::size_t> living_;
  bool head_restarted_ = false;
  std::array<Fault, 7> faults_{{{"worker killed", 6},
                                {"actor's process killed", 6},
                                {"fork server killed", 1},
                                {"node killed, another joins", 2},
                                {"head killed and restarted", 1},
                                {"worker stopped for 0.3 s", 2},
                                {"node stopped for 0.7 s", 2}}};
};

int Run(std::uint64_t seed, double seconds, double every) {
  bench::NodesOptions options;
  options.count = kNodes;
  options.cpus = 4;
  bench::Nodes nodes(options);
  const bench::TemporaryFolder folder;
  const std::string file = folder.path() + "/board";
  Board& board = Board::Create(file);
  const pid_t first_node = nodes.pid(1);
  const pid_t head = nodes.head_pid();
  const bench::Nodes::Driver driver(nodes);
  std::printf("manta-chaos --seed %llu: %d nodes, %.0f s, a fault every %.1f s\n",
              static_cast<unsigned long long>(seed), kNodes, seconds, every);
  Load load(file, seed);
  Chaos chaos(seed, nodes, board, load);
  const double end = bench::Now() + seconds;
  bench::SleepMs(500);
  while (bench::Now() < end) {
    chaos.One();
    bench::SleepMs(every * 1e3);
  }
  const Tally tally = load.Finish();

  std::printf("%-28s %6s %10s\n", "fault", "count", "hit work");
  int faults = 0;
  int hits = 0;
  for (const Fault& fault : chaos.faults()) {
    std::printf("%-28s %6d %10d\n", fault.name, fault.done, fault.hit);
    faults += fault.done;
    hits += fault.hit;
  }
  const auto extra = [](std::uint64_t executed, std::uint64_t wanted) {
    return executed > wanted ? executed - wanted : 0;
  };
  const std::uint64_t again_tasks = extra(board.tasks, tally.tasks);
  const std::uint64_t again_calls = extra(board.calls, tally.calls);
  std::printf("tasks %llu (%llu executed again), calls of actors %llu (%llu again)\n",
              static_cast<unsigned long long>(tally.tasks), static_cast<unsigned long long>(again_tasks),
              static_cast<unsigned long long>(tally.calls), static_cast<unsigned long long>(again_calls));
  std::printf("longest round of one kind of work %.2f s\n", tally.longest_pause);
  std::printf("lost %llu, duplicated %llu, wrong %llu\n", static_cast<unsigned long long>(tally.lost),
              static_cast<unsigned long long>(tally.duplicated), static_cast<unsigned long long>(tally.wrong));
  for (const std::string& text : tally.said) std::printf("  %s\n", text.c_str());
  bool good = tally.lost + tally.duplicated + tally.wrong == 0;
  if (!chaos.SurvivorsLive(first_node, head)) {
    std::printf("a process died that nobody killed\n");
    good = false;
  }
  if (hits * 3 < faults) {
    std::printf("only %d of %d faults hit work in flight: this proves too little\n", hits, faults);
    good = false;
  }
  if (again_tasks > tally.tasks) {
    std::printf("more tasks were executed again than there were: that is no recovery\n");
    good = false;
  }
  std::printf("%s\n", good ? "nothing lost, nothing twice" : "FAILED");
  return good ? 0 : 1;
}

}  // namespace
}  // namespace chaos

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  double seconds = 30;
  double every = 1;
  CLI::App app("A real cluster under random faults; nothing may be lost and nothing happen twice.");
  app.add_option("--seed", seed, "of the faults and of the work");
  app.add_option("--seconds", seconds, "how long")->check(CLI::Range(1.0, 1e6));
  app.add_option("--every", every, "seconds between faults")->check(CLI::Range(0.05, 1e3));
  CLI11_PARSE(app, argc, argv);
  try {
    return chaos::Run(seed, seconds, every);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "manta-chaos: %s\n", error.what());
    return 1;
  }
}
