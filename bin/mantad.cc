// mantad, the daemon of one node. Started by a driver for itself alone (--private-fd), by hand for several drivers to
// join, or as a node of a cluster (--head-address; `manta start` does that).
#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "node/daemon.h"
#include "parse.h"
#include "store/memory.h"
#include "store/spill.h"
#include "wire/address.h"
#include "wire/secrets.h"

namespace {

constexpr int kFenced = 3;  // exit status: the node was cut off from its cluster

struct Options {
  manta::node::Config config;
  double cpus = -1;
  double gpus = 0;
  std::vector<std::string> resources;
  std::vector<std::string> labels;
  std::vector<std::string> job_quota;
  double infeasible_seconds = 3'600;
  int ready_fd = -1;
};

std::int64_t Units(double amount) { return std::llround(amount * manta::kUnit); }

// Those this process may run on.
double Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<double>(std::max(sysconf(_SC_NPROCESSORS_ONLN), 1L));
}

// What was not said: as much of the machine as a guest may take.
void SetDefaults(Options& options) {
  if (options.cpus < 0) options.cpus = Cores();
  manta::node::Config& config = options.config;
  config.infeasible_us = std::llround(options.infeasible_seconds * 1e6);
  if (config.store_bytes == 0)
    config.store_bytes = std::max<std::uint64_t>(manta::store::AvailableMemory() / 10 * 4, 64U << 20);
  if (config.state_folder.empty()) config.state_folder = config.cluster.secrets;
  if (config.state_folder.empty()) config.state_folder = manta::wire::Secrets::DefaultFolder();
  if (config.spill_folder == "none") {
    config.spill_folder.clear();
  } else if (config.spill_folder.empty()) {
    const char* folder = std::getenv("TMPDIR");
    config.spill_folder = folder != nullptr && *folder != '\0' ? folder : "/tmp";
  }
}

// Empty, or what is wrong.
std::string AddAmounts(const std::string& option, const std::vector<std::string>& entries, manta::Resources* out) {
  for (const std::string& entry : entries) {
    const std::size_t equals = entry.find('=');
    if (equals == 0 || equals == std::string::npos) return manta::Cat(option, " ", entry, ": give NAME=AMOUNT");
    char* end = nullptr;
    const double amount = std::strtod(entry.c_str() + equals + 1, &end);
    if (*end != '\0' || end == entry.c_str() + equals + 1 || !(amount >= 0) || amount > 1e12) {
      return manta::Cat(option, " ", entry, ": the amount must be a number, zero or more");
    }
    out->Set(entry.substr(0, equals), Units(amount));
  }
  return {};
}

// "memory", in MiB, is only counted, as any resource: what it does not speak of is left to the store and the system.
double MemoryToShareOut() {
  constexpr double kMebibyte = 1 << 20;
  return std::floor(0.7 * static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) /
                    kMebibyte);
}

// Where other nodes reach this one, without a port. For the resource "node:<host>", by which a Ray program asks for the
// node of a machine.
std::string OwnHost(const manta::node::ClusterConfig& cluster) {
  constexpr const char* kLoopback = "127.0.0.1";
  if (cluster.head.empty()) return kLoopback;
  const manta::Result<manta::wire::Address> listen = manta::wire::ParseAddress(cluster.listen, 0);
  if (!listen.ok()) return kLoopback;  // Daemon::Create says what is wrong
  const manta::Result<std::vector<manta::wire::SocketAddress>> found = manta::wire::Resolve(listen.value());
  return found.ok() && !found.value().empty() ? manta::wire::ReachedAt(found.value().front()).host() : kLoopback;
}

// Empty, or what is wrong.
std::string SetResources(Options& options) {
  manta::Resources& total = options.config.total;
  total.Set("CPU", Units(options.cpus));
  total.Set("GPU", Units(options.gpus));
  total.Set("memory", Units(MemoryToShareOut()));
  total.Set("node:" + OwnHost(options.config.cluster), Units(1));
  if (options.config.cluster.head.empty()) total.Set("node:__internal_head__", Units(1));
  if (const std::string wrong = AddAmounts("--resource", options.resources, &total); !wrong.empty()) return wrong;
  return AddAmounts("--job-quota", options.job_quota, &options.config.job_quota);
}

// What was said of the store.
manta::Status CheckStore(const manta::node::Config& config) {
  if (config.store_bytes != 0) {
    if (manta::Status s = manta::store::CheckStoreBytes(config.store_bytes); !s.ok()) return s;
  }
  if (config.spill_folder.empty() || config.spill_folder == "none") return {};
  return manta::store::SpillFiles::Check(config.spill_folder);
}

// Empty, or what is wrong.
std::string SetLabels(Options& options) {
  for (const std::string& list : options.labels) {
    std::istringstream entries(list);
    for (std::string entry; std::getline(entries, entry, ',');) {
      const std::size_t equals = entry.find('=');
      if (equals == 0 || equals == std::string::npos) return "--label " + list + ": give KEY=VALUE,...";
      options.config.labels[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
  }
  return {};
}

void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A private daemon is a part of its driver: what happens at the driver's terminal is the driver's to
// handle, and descriptors the driver had open by accident are not kept open here.
void BecomePrivate(int private_fd, int ready_fd) {
  setsid();
  signal(SIGINT, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  signal(SIGQUIT, SIG_IGN);
  std::vector<int> keep{private_fd, ready_fd};
  std::sort(keep.begin(), keep.end());
  unsigned next = 3;
  for (const int fd : keep) {
    if (fd < 3) continue;
    if (static_cast<unsigned>(fd) > next) close_range(next, static_cast<unsigned>(fd) - 1, 0);
    next = static_cast<unsigned>(fd) + 1;
  }
  close_range(next, ~0U, 0);
}

int Run(Options options) {
  RaiseDescriptorLimit();
  signal(SIGPIPE, SIG_IGN);
  const bool is_private = options.config.private_fd >= 0;
  if (is_private) BecomePrivate(options.config.private_fd, options.ready_fd);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  if (!is_private) sigaddset(&stop, SIGINT);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  const manta::base::Fd signals(signalfd(-1, &stop, SFD_CLOEXEC | SFD_NONBLOCK));

  manta::Result<std::unique_ptr<manta::node::Daemon>> made = manta::node::Daemon::Create(std::move(options.config));
  if (!made.ok()) {
    manta::base::LogWarning("%s", made.status().message().c_str());
    return 1;
  }
  manta::node::Daemon& daemon = **made;
  const manta::Status status = daemon.loop().Watch(signals.get(), EPOLLIN, [&](std::uint32_t) {
    signalfd_siginfo info{};
    while (read(signals.get(), &info, sizeof info) == sizeof info) daemon.Shutdown();
  });
  if (!status.ok()) {
    manta::base::LogWarning("%s", status.message().c_str());
    return 1;
  }
  if (options.ready_fd >= 0) {
    const std::string line = daemon.address() + "\n";
    if (write(options.ready_fd, line.data(), line.size()) < 0) perror("mantad: --ready-fd");
    if (options.ready_fd > 2) close(options.ready_fd);
  }
  daemon.Run();
  return daemon.fenced().empty() ? 0 : kFenced;
}

}  // namespace

int main(int argc, char** argv) {
  manta::base::SetUpLog({.program = "mantad"});
  Options options;
  CLI::App app("The daemon of one Manta node.");
  app.add_option("--private-fd", options.config.private_fd, "the connection of the one driver to live for");
  app.add_option("--ready-fd", options.ready_fd, "write the address there once connections are accepted");
  app.add_option("--address", options.config.address, "where to listen: '@' and a name (default @manta-<uid>-<pid>)");
  const CLI::Option* name =
      app.add_option("--node,--name", options.config.node, "the node's name (in a cluster by default n and its number)")
          ->capture_default_str();
  manta::node::ClusterConfig& cluster = options.config.cluster;
  app.add_option("--head-address", cluster.head, "join the cluster whose head listens at this host:port");
  app.add_option("--secrets", cluster.secrets, "folder of the cluster's token and certificates (default ~/.manta)");
  app.add_option("--listen", cluster.listen, "where other nodes reach this one (port 0: any free one)")
      ->capture_default_str();
  app.add_flag("--tls", cluster.tls, "encrypt: needed to listen beyond this machine");
  app.add_option("--label,--labels", options.labels, "KEY=VALUE,... that tasks can ask for; repeat for more");
  app.add_option("--machine", cluster.machine, "nodes that say the same share files by path (default: found out)");
  app.add_option("--cpus", options.cpus, "CPUs to share out (default: all)")->check(CLI::Range(0.0, 1e6));
  app.add_option("--gpus", options.gpus, "GPUs to share out")->check(CLI::Range(0.0, 1e6));
  app.add_option("--resource", options.resources,
                 "NAME=AMOUNT of something else to share out (memory, in MiB, is 70% of the machine's if not said); "
                 "repeat for more");
  app.add_option("--job-quota", options.job_quota,
                 "NAME=AMOUNT that a job may have at a time (a cluster's head says it for all nodes); repeat for more");
  app.add_option("--infeasible-wait", options.infeasible_seconds,
                 "seconds that a request waits for a node of the cluster that can hold it; 0: it fails at once")
      ->envname("MANTA_INFEASIBLE_SECONDS")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app.add_option("--store-bytes", options.config.store_bytes,
                 "memory for large objects (default: 40% of what is available)");
  app.add_option("--spill", options.config.spill_folder,
                 "folder for objects and lineage that find no room in memory, or 'none' (default $TMPDIR or /tmp)");
  app.add_option("--state", options.config.state_folder,
                 "folder for the lineage of jobs that have a name (default: that of --secrets)");
  app.add_option("--lineage-memory", options.config.lineage_memory,
                 "bytes that a process keeps at most to rebuild lost values from")
      ->capture_default_str();
  app.add_option("--spill-limit", options.config.spill_limit, "bytes of objects and lineage to have there at most");
  options.config.store_bytes = 0;
  if (const auto wrong = manta::cli::Parse(app, "mantad", argc, argv)) return *wrong;
  if (const manta::Status wrong = CheckStore(options.config); !wrong.ok()) {
    manta::base::LogWarning("%s", wrong.message().c_str());
    return 2;
  }
  SetDefaults(options);
  if (!cluster.head.empty() && name->count() == 0) options.config.node.clear();
  if (const std::string wrong = SetLabels(options); !wrong.empty()) {
    manta::base::LogWarning("%s", wrong.c_str());
    return 2;
  }
  if (const std::string wrong = SetResources(options); !wrong.empty()) {
    manta::base::LogWarning("%s", wrong.c_str());
    return 2;
  }
  return Run(std::move(options));
}
