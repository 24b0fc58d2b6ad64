// manta cluster: several nodes on this machine.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/flags.h"
#include "node/launch.h"
#include "store/memory.h"
#include "wire/local_cluster.h"

namespace manta::cli {
namespace {

using wire::LocalCluster;
using wire::LocalProcess;

struct Options {
  int count = 2;
  double cpus_per_node = 1;
  bool background = false;
  std::string listen;
  HeadFlags head_flags;
  NodeFlags node_flags;
};

// Until Ctrl-C. A head that dies comes back; a node that dies is told of.
void Supervise(const node::HeadOptions& head, LocalCluster& cluster) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, nullptr);
  for (;;) {
    int status = 0;
    for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      if (pid != cluster.control.pid) {
        const auto it = std::find_if(cluster.nodes.begin(), cluster.nodes.end(),
                                     [&](const LocalProcess& node) { return node.pid == pid; });
        if (it == cluster.nodes.end()) {
          if (std::erase_if(cluster.schedulers, [&](const LocalProcess& one) { return one.pid == pid; }) > 0) {
            std::fprintf(stderr, "manta: a scheduler (pid %d) has ended; the head does its work\n", pid);
          }
          continue;
        }
        std::fprintf(stderr, "manta: node %s (pid %d) has ended\n", it->name.c_str(), pid);
        cluster.nodes.erase(it);
        if (cluster.nodes.empty()) return;
        continue;
      }
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;  // it was told to
      std::fprintf(stderr, "manta: the head (pid %d) has died; starting it again\n", pid);
      node::HeadOptions again = head;
      again.listen = cluster.head;
      again.schedulers = 1;  // those that are there come back to it by themselves
      const Result<node::StartedHead> started = node::StartHead(again);
      if (!started.ok()) {
        Complain(started.status());
        return;
      }
      cluster.control = started.value().process;
    }
    int number = 0;
    if (sigwait(&signals, &number) == 0 && number != SIGCHLD) return;
  }
}

int RunCluster(const std::string& folder, const Options& options) {
  if (const Result<LocalCluster> before = LocalCluster::Read(folder);
      before.ok() && (before.value().control.Alive() || !before.value().LivingNode().empty())) {
    return Complain(
        Status(Code::kInvalid, Cat("a cluster runs from ", folder, " already, with its head at ", before.value().head,
                                   "; `manta stop` stops it, --secrets names another "
                                   "folder")));
  }
  node::HeadOptions head;
  head.folder = folder;
  head.listen = options.listen.empty() ? "127.0.0.1:0" : options.listen;
  head.attached = !options.background;
  options.head_flags.Tell(&head);
  const Result<node::StartedHead> started = node::StartHead(head);
  if (!started.ok()) return Complain(started.status());
  LocalCluster cluster;
  cluster.head = started.value().address;
  cluster.tls = started.value().tls;
  cluster.control = started.value().process;
  cluster.schedulers = started.value().schedulers;
  std::vector<node::NodeOptions> nodes;
  const std::uint64_t share = store::AvailableMemory() / 10 * 4 / static_cast<std::uint64_t>(options.count);
  const std::string& said = options.node_flags.store_bytes;
  const std::string store_bytes = said.empty() ? std::to_string(std::max<std::uint64_t>(share, 64U << 20)) : said;
  for (int i = 1; i <= options.count; ++i) {
    node::NodeOptions node{folder, cluster.head, Cat("n", i), "", cluster.tls, {}, head.attached};
    node.words = options.node_flags.Words();
    AddWord("--cpus", Cat(options.cpus_per_node), &node.words);
    AddWord("--store-bytes", store_bytes, &node.words);
    nodes.push_back(std::move(node));
  }
  Result<std::vector<LocalProcess>> up = node::StartNodes(nodes);
  if (!up.ok()) {
    for (const LocalProcess& one : cluster.schedulers) node::StopProcess(one, kAnswerUs);
    node::StopProcess(cluster.control, kAnswerUs);
    return Complain(up.status());
  }
  cluster.nodes = std::move(*up);
  if (const Status status = cluster.Write(folder); !status.ok()) return Complain(status);
  std::printf("the head listens at %s\n", cluster.head.c_str());
  for (const LocalProcess& node : cluster.nodes) {
    std::printf("node %s (pid %d): MANTA_ADDRESS=%s\n", node.name.c_str(), node.pid, node.address.c_str());
  }
  if (options.background) {
    std::printf("`manta stop` stops it\n");
    return 0;
  }
  std::printf("Ctrl-C stops it\n");
  std::fflush(stdout);
  Supervise(head, cluster);
  // Not StopLocal: processes may have come back under other numbers than are written down.
  for (const LocalProcess& node : cluster.nodes) {
    if (node.Alive()) kill(node.pid, SIGTERM);
  }
  for (const LocalProcess& node : cluster.nodes) node::StopProcess(node, kAnswerUs);
  for (const LocalProcess& one : cluster.schedulers) node::StopProcess(one, kAnswerUs);
  node::StopProcess(cluster.control, kAnswerUs);
  LocalCluster::Remove(folder);
  return 0;
}

}  // namespace

void AddCluster(Line& line) {
  const auto options = std::make_shared<Options>();
  CLI::App* cluster =
      AddCommand(line, "cluster", "a cluster of several nodes on this machine, until Ctrl-C", options, &RunCluster);
  cluster->add_option("--nodes", options->count, "how many")->check(CLI::Range(1, 1000))->capture_default_str();
  cluster->add_option("--cpus-per-node", options->cpus_per_node, "CPUs of each")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  cluster->add_flag("--background", options->background, "return when it is up; `manta stop` stops it");
  cluster->add_option("--listen", options->listen, "of the head (default: any free port)");
  options->head_flags.AddTo(*cluster);
  options->node_flags.AddTo(*cluster);
}

}  // namespace manta::cli
