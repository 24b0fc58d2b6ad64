// manta, the command line: starts and stops clusters, shows them, drains nodes.
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "base/fd.h"
#include "lineage/folder.h"
#include "lineage/scan.h"
#include "node/head_tool.h"
#include "node/launch.h"
#include "node/status.h"
#include "store/memory.h"
#include "wire/authority.h"
#include "wire/join.h"
#include "wire/local_cluster.h"

namespace {

using manta::Cat;
using manta::Code;
using manta::Result;
using manta::Status;
using manta::node::HeadTool;
using manta::wire::LocalCluster;
using manta::wire::LocalProcess;
using manta::wire::Secrets;

constexpr std::int64_t kAnswerUs = 5'000'000;

struct Options {
  std::string folder;
  std::string address;
  bool json = false;
  // start
  bool head = false;
  std::string join;
  std::string token;
  std::string token_file;
  std::string listen;
  bool tls = false;
  std::string name;
  std::string cpus;
  std::string gpus;
  std::vector<std::string> resources;
  std::vector<std::string> labels;
  std::string store_bytes;
  std::string spill;
  std::string spill_limit;
  std::string lineage_memory;
  std::string state;
  std::vector<std::string> redis;
  std::string redis_password_file;
  std::vector<std::string> job_quota;
  int schedulers = 1;
  // nodes, drain, token
  bool all = false;
  std::string node;
  double timeout = 3600;
  bool rotate = false;
  double grace = 60;
  double valid = 3600;
  // cluster
  int count = 2;
  double cpus_per_node = 1;
  bool background = false;
  // lineage, replay
  std::string job;
  std::string task;
  std::uint64_t sample = 0;
  bool tasks = false;
  bool remove = false;
  bool gdb = false;
};

int Complain(const Status& status) {
  std::fprintf(stderr, "manta: %s\n", status.message().c_str());
  return 1;
}

// ---- status ----

int ShowStatus(const Options& options) {
  std::vector<std::string> addresses = manta::node::FindClusters();
  if (!options.address.empty()) addresses = {options.address};
  std::vector<manta::node::NodeStatus> nodes;
  std::string trouble;
  for (const std::string& one : addresses) {
    Result<manta::wire::StatusReply> reply = manta::node::AskStatus(one);
    if (reply.ok()) {
      nodes.push_back({one, std::move(*reply)});
    } else {
      trouble += "manta: " + one + ": " + reply.status().message() + "\n";
    }
  }
  std::fputs(trouble.c_str(), stderr);
  if (nodes.empty()) {
    if (trouble.empty()) {
      std::fprintf(stderr,
                   "manta: no cluster of user %u runs on this machine; one starts with manta::Init(), `manta start "
                   "--head` or `mantad`\n",
                   getuid());
    }
    return 1;
  }
  const std::string text = options.json ? manta::node::StatusJson(nodes) : manta::node::StatusTable(nodes);
  std::fputs(text.c_str(), stdout);
  return 0;
}

int ShowMemory(const Options& options) {
  std::vector<std::string> addresses = manta::node::FindClusters();
  if (!options.address.empty()) addresses = {options.address};
  if (addresses.empty()) {
    return Complain(Status(Code::kNotFound, Cat("no cluster of user ", getuid(), " runs on this machine")));
  }
  int trouble = 0;
  for (const std::string& address : addresses) {
    const Result<manta::wire::MemoryReply> reply = manta::node::AskMemory(address);
    if (reply.ok()) {
      std::fputs(manta::node::MemoryTable(reply.value()).c_str(), stdout);
    } else {
      trouble = Complain(Status(reply.status().code(), Cat(address, ": ", reply.status().message())));
    }
  }
  return trouble;
}

// ---- the head of a running cluster ----

Result<std::unique_ptr<HeadTool>> Head(const Options& options) {
  std::string address = options.address;
  if (address.empty()) {
    const Result<LocalCluster> local = LocalCluster::Read(options.folder);
    if (!local.ok()) {
      return Status(Code::kNotFound, Cat("no cluster was started from ", options.folder,
                                         "; `manta start --head` starts one, --address names another's head"));
    }
    address = local.value().head;
  }
  Result<std::shared_ptr<Secrets>> secrets = Secrets::Open(options.folder);
  if (!secrets.ok()) return secrets.status();
  return HeadTool::Connect(address, std::move(*secrets), kAnswerUs);
}

int ShowNodes(const Options& options) {
  const Result<std::unique_ptr<HeadTool>> head = Head(options);
  if (!head.ok()) return Complain(head.status());
  const Result<manta::wire::ClusterView> view = head.value()->View(options.all, kAnswerUs);
  if (!view.ok()) return Complain(view.status());
  const std::vector<manta::wire::NodeFacts>& nodes = view.value().nodes;
  const std::string text = options.json ? manta::node::NodesJson(nodes)
                                        : manta::node::NodesTable(nodes) + manta::node::ViewNotes(view.value());
  std::fputs(text.c_str(), stdout);
  return 0;
}

int Drain(const Options& options) {
  const Result<std::unique_ptr<HeadTool>> head = Head(options);
  if (!head.ok()) return Complain(head.status());
  const Status status = head.value()->Drain(options.node, static_cast<std::int64_t>(options.timeout * 1e6));
  if (!status.ok()) return Complain(status);
  std::printf("node %s has left\n", options.node.c_str());
  return 0;
}

int ShowToken(const Options& options) {
  Result<std::shared_ptr<Secrets>> secrets = Secrets::Open(options.folder);
  if (!secrets.ok()) return Complain(secrets.status());
  if (options.rotate) {
    if (!manta::wire::HasAuthority(options.folder)) {
      // A joined node would shut itself out. A cluster on one machine has no authority, and one folder.
      const Result<LocalCluster> here = LocalCluster::Read(options.folder);
      if (here.ok() && here.value().tls) {
        return Complain(Status(Code::kInvalid, Cat("the token is changed on the head, at ", here.value().head)));
      }
    }
    const auto grace = static_cast<std::int64_t>(options.grace);
    if (const Status status = (*secrets)->RotateToken(grace); !status.ok()) return Complain(status);
    std::printf("the cluster has a new token; its nodes are being told, the old one is accepted for %lld s more\n",
                static_cast<long long>(grace));
    return 0;
  }
  const Result<LocalCluster> local = LocalCluster::Read(options.folder);
  if (!local.ok()) return Complain(local.status());
  if (!local.value().tls) {
    std::fprintf(stderr,
                 "manta: the cluster at %s is on this machine only, and whoever may read %s may join it with `manta "
                 "start --join %s`; to let other machines in, start the head with --listen and an address of the "
                 "network\n",
                 local.value().head.c_str(), options.folder.c_str(), local.value().head.c_str());
    return 1;
  }
  const Result<std::string> token =
      manta::wire::MakeJoinToken(**secrets, local.value().head, static_cast<std::int64_t>(options.valid));
  if (!token.ok()) return Complain(token.status());
  std::printf("%s\n", token.value().c_str());
  return 0;
}

// ---- starting and stopping ----

// Limits that a node has of its own, beside those of its store.
std::vector<std::string> MemoryWords(const Options& options) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--spill", options.spill);
  add("--spill-limit", options.spill_limit);
  add("--lineage-memory", options.lineage_memory);
  add("--state", options.state);
  return words;
}

std::vector<std::string> NodeWords(const Options& options) {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--cpus", options.cpus);
  add("--gpus", options.gpus);
  add("--store-bytes", options.store_bytes);
  for (std::string& word : MemoryWords(options)) words.push_back(std::move(word));
  for (const std::string& one : options.resources) add("--resource", one);
  for (const std::string& one : options.labels) add("--label", one);
  return words;
}

void SayHowToJoin(const Options& options, const LocalCluster& cluster) {
  std::printf("the head listens at %s%s\n", cluster.head.c_str(), cluster.tls ? " (TLS)" : "");
  for (const LocalProcess& node : cluster.nodes) {
    std::printf("its first node (pid %d): MANTA_ADDRESS=%s\n", node.pid, node.address.c_str());
  }
  if (!cluster.tls) {
    std::printf("another node on this machine: manta start --join %s\n", cluster.head.c_str());
    return;
  }
  Result<std::shared_ptr<Secrets>> secrets = Secrets::Open(options.folder);
  if (!secrets.ok()) return;
  const Result<std::string> token =
      manta::wire::MakeJoinToken(**secrets, cluster.head, static_cast<std::int64_t>(options.valid));
  if (token.ok()) {
    std::printf("another machine, once (`manta token` makes more): manta start --join %s --token %s\n",
                cluster.head.c_str(), token.value().c_str());
  }
}

void AddHeadWords(const Options& options, manta::node::HeadOptions* head) {
  head->schedulers = options.schedulers;
  for (const std::string& one : options.job_quota) head->words.insert(head->words.end(), {"--job-quota", one});
}

int StartHead(const Options& options) {
  LocalCluster cluster;
  if (Result<LocalCluster> before = LocalCluster::Read(options.folder); before.ok()) {
    std::erase_if(before->nodes, [](const LocalProcess& node) { return !node.Alive(); });
    if (before->control.Alive()) {
      return Complain(Status(Code::kInvalid, Cat("the head of a cluster runs here already, at ", before->head,
                                                 "; `manta stop` stops it")));
    }
    // The head has died under its nodes: it comes back where they look for it.
    if (!before->nodes.empty()) cluster = std::move(*before);
  }
  manta::node::HeadOptions head;
  head.folder = options.folder;
  if (!options.listen.empty()) head.listen = options.listen;
  if (!cluster.head.empty()) head.listen = cluster.head;
  head.tls = options.tls || cluster.tls;
  for (const std::string& one : options.redis) head.words.insert(head.words.end(), {"--redis", one});
  if (!options.redis_password_file.empty()) {
    head.words.insert(head.words.end(), {"--redis-password-file", options.redis_password_file});
  }
  AddHeadWords(options, &head);
  for (const LocalProcess& one : cluster.schedulers) manta::node::StopProcess(one, kAnswerUs);  // of the one that died
  const Result<manta::node::StartedHead> started = manta::node::StartHead(head);
  if (!started.ok()) return Complain(started.status());
  const bool back = !cluster.nodes.empty();
  cluster.schedulers = started.value().schedulers;
  cluster.head = started.value().address;
  cluster.tls = started.value().tls;
  cluster.control = started.value().process;
  if (!back) {
    manta::node::NodeOptions node{options.folder, cluster.head,       options.name, "",
                                  cluster.tls,    NodeWords(options), false};
    Result<std::vector<LocalProcess>> nodes = manta::node::StartNodes({node});
    if (!nodes.ok()) {
      for (const LocalProcess& one : cluster.schedulers) manta::node::StopProcess(one, kAnswerUs);
      manta::node::StopProcess(cluster.control, kAnswerUs);
      return Complain(nodes.status());
    }
    cluster.nodes = std::move(*nodes);
  }
  if (const Status status = cluster.Write(options.folder); !status.ok()) return Complain(status);
  SayHowToJoin(options, cluster);
  return 0;
}

// From a file, standard input ("-"), the environment, or the command line (which others can see).
Result<std::string> JoinTokenOf(const Options& options) {
  std::string token = options.token;
  if (!options.token_file.empty()) {
    std::ifstream file(options.token_file == "-" ? "/dev/stdin" : options.token_file);
    if (!std::getline(file, token)) return Status(Code::kInvalid, Cat("no token in ", options.token_file));
  } else if (const char* from = std::getenv("MANTA_JOIN_TOKEN"); token.empty() && from != nullptr) {
    token = from;
  }
  return token;
}

int StartNode(const Options& options) {
  const Result<std::string> token = JoinTokenOf(options);
  if (!token.ok()) return Complain(token.status());
  if (!token.value().empty() && !Secrets::Open(options.folder).ok()) {
    const Status joined = manta::wire::Join(token.value(), options.folder, {});
    if (!joined.ok()) return Complain(joined);
  }
  const bool tls = options.tls || !manta::node::IsLoopback(options.join);
  if (!Secrets::Open(options.folder).ok()) {
    return Complain(Status(Code::kInvalid, Cat("this machine does not belong to the cluster at ", options.join,
                                               " yet: get a join token from its head with `manta token`, and give it "
                                               "with --token-file")));
  }
  manta::node::NodeOptions node{options.folder,     options.join, options.name, options.listen, tls,
                                NodeWords(options), false};
  Result<std::vector<LocalProcess>> nodes = manta::node::StartNodes({node});
  if (!nodes.ok()) return Complain(nodes.status());
  LocalCluster cluster;
  if (Result<LocalCluster> before = LocalCluster::Read(options.folder); before.ok() && before->head == options.join) {
    cluster = std::move(*before);
    std::erase_if(cluster.nodes, [](const LocalProcess& one) { return !one.Alive(); });
  }
  cluster.head = options.join;
  cluster.tls = tls;
  cluster.nodes.push_back(nodes->front());
  if (const Status status = cluster.Write(options.folder); !status.ok()) return Complain(status);
  std::printf("this node (pid %d) has joined the cluster at %s: MANTA_ADDRESS=%s\n", nodes->front().pid,
              options.join.c_str(), nodes->front().address.c_str());
  return 0;
}

int Start(const Options& options) {
  if (options.head == !options.join.empty()) {
    return Complain(Status(Code::kInvalid, "say --head, or --join ADDRESS of a head"));
  }
  if (options.name.find_first_of(" \t\n") != std::string::npos) {
    return Complain(Status(Code::kInvalid, Cat("'", options.name, "' is no name of a node: it has spaces")));
  }
  return options.head ? StartHead(options) : StartNode(options);
}

int Stop(const Options& options) {
  if (const Status status = manta::node::StopLocal(options.folder); !status.ok()) {
    return Complain(status.code() == Code::kNotFound
                        ? Status(Code::kNotFound, Cat("nothing was started from ", options.folder))
                        : status);
  }
  std::printf("stopped\n");
  return 0;
}

// ---- a cluster on this machine ----

// Until Ctrl-C. A head that dies comes back; a node that dies is told of.
void Supervise(const manta::node::HeadOptions& head, LocalCluster& cluster) {
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
      manta::node::HeadOptions again = head;
      again.listen = cluster.head;
      again.schedulers = 1;  // those that are there come back to it by themselves
      const Result<manta::node::StartedHead> started = manta::node::StartHead(again);
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

int RunCluster(const Options& options) {
  if (const Result<LocalCluster> before = LocalCluster::Read(options.folder);
      before.ok() && (before.value().control.Alive() || !before.value().LivingNode().empty())) {
    return Complain(Status(
        Code::kInvalid, Cat("a cluster runs from ", options.folder, " already, with its head at ", before.value().head,
                            "; `manta stop` stops it, --secrets names another "
                            "folder")));
  }
  manta::node::HeadOptions head;
  head.folder = options.folder;
  head.listen = options.listen.empty() ? "127.0.0.1:0" : options.listen;
  head.attached = !options.background;
  AddHeadWords(options, &head);
  const Result<manta::node::StartedHead> started = manta::node::StartHead(head);
  if (!started.ok()) return Complain(started.status());
  LocalCluster cluster;
  cluster.head = started.value().address;
  cluster.tls = started.value().tls;
  cluster.control = started.value().process;
  cluster.schedulers = started.value().schedulers;
  std::vector<manta::node::NodeOptions> nodes;
  const std::uint64_t share = manta::store::AvailableMemory() / 10 * 4 / static_cast<std::uint64_t>(options.count);
  for (int i = 1; i <= options.count; ++i) {
    manta::node::NodeOptions node{options.folder, cluster.head, Cat("n", i), "", cluster.tls, {}, head.attached};
    node.words = {
        "--cpus", Cat(options.cpus_per_node), "--store-bytes",
        options.store_bytes.empty() ? std::to_string(std::max<std::uint64_t>(share, 64U << 20)) : options.store_bytes};
    for (const std::string& one : options.resources) node.words.insert(node.words.end(), {"--resource", one});
    for (std::string& word : MemoryWords(options)) node.words.push_back(std::move(word));
    nodes.push_back(std::move(node));
  }
  Result<std::vector<LocalProcess>> up = manta::node::StartNodes(nodes);
  if (!up.ok()) {
    for (const LocalProcess& one : cluster.schedulers) manta::node::StopProcess(one, kAnswerUs);
    manta::node::StopProcess(cluster.control, kAnswerUs);
    return Complain(up.status());
  }
  cluster.nodes = std::move(*up);
  if (const Status status = cluster.Write(options.folder); !status.ok()) return Complain(status);
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
  for (const LocalProcess& node : cluster.nodes) manta::node::StopProcess(node, kAnswerUs);
  for (const LocalProcess& one : cluster.schedulers) manta::node::StopProcess(one, kAnswerUs);
  manta::node::StopProcess(cluster.control, kAnswerUs);
  LocalCluster::Remove(options.folder);
  return 0;
}

// ---- what jobs have left ----

int ShowLineage(const Options& options) {
  using manta::lineage::TaskRecord;
  if (options.job.empty()) {
    for (const std::string& name : manta::lineage::JobsIn(options.folder)) std::printf("%s\n", name.c_str());
    return 0;
  }
  if (const Status status = manta::lineage::CheckJobName(options.job); !status.ok()) return Complain(status);
  const std::string folder = manta::lineage::FolderOf(options.folder, options.job);
  const Result<manta::lineage::JobNote> note = manta::lineage::ReadNote(folder);
  if (!note.ok()) return Complain(note.status());
  if (options.remove) {
    manta::lineage::JobNote same;
    bool resumed = false;
    Result<manta::lineage::JobFolder> mine =
        manta::lineage::JobFolder::Open(options.folder, options.job, true, &same, &resumed);
    if (!mine.ok()) return Complain(mine.status());
    mine->Remove();
    return 0;
  }
  const Result<manta::lineage::Scan> scan = manta::lineage::ScanFolder(folder, [&](const TaskRecord& task) {
    if (options.tasks) std::printf("%s %s\n", ToHex(task.id).c_str(), task.function->name.c_str());
    return false;
  });
  if (!scan.ok()) return Complain(scan.status());
  const manta::lineage::Totals& totals = scan.value().totals;
  std::printf("job %s (%s), %s\n", options.job.c_str(), ToHex(note.value().job).c_str(), note.value().program.c_str());
  std::printf("%llu calls, whose ids were derived; %llu finished, of which %llu failed\n",
              static_cast<unsigned long long>(totals.calls), static_cast<unsigned long long>(totals.finished),
              static_cast<unsigned long long>(totals.failed));
  std::printf("%llu bytes in %llu files, of %llu owners\n", static_cast<unsigned long long>(totals.bytes),
              static_cast<unsigned long long>(totals.files), static_cast<unsigned long long>(totals.streams));
  if (totals.torn > 0) {
    std::printf("%llu bytes at the end were not written whole, and are not counted\n",
                static_cast<unsigned long long>(totals.torn));
  }
  for (const manta::lineage::Damage& damage : totals.damages) {
    std::fprintf(stderr, "manta: %s is damaged at offset %llu (%llu bytes)\n", damage.file.c_str(),
                 static_cast<unsigned long long>(damage.offset), static_cast<unsigned long long>(damage.bytes));
  }
  if (totals.lost_pieces > 0) {
    std::fprintf(stderr, "manta: %llu blocks after it cannot be read without what was there\n",
                 static_cast<unsigned long long>(totals.lost_pieces));
  }
  return totals.damages.empty() ? 0 : 1;
}

// The one task whose id begins so, of that job or of any.
Result<std::string> FindTask(const Options& options, std::string* folder) {
  std::vector<std::string> jobs{options.job};
  if (options.job.empty()) jobs = manta::lineage::JobsIn(options.folder);
  if (options.task.size() < 6) return Status(Code::kInvalid, "give at least the first 6 digits of the task's id");
  std::string found;
  for (const std::string& job : jobs) {
    const std::string here = manta::lineage::FolderOf(options.folder, job);
    const Result<manta::lineage::Scan> scan = manta::lineage::ScanFolder(
        here, [&](const manta::lineage::TaskRecord& task) { return ToHex(task.id).rfind(options.task, 0) == 0; });
    if (!scan.ok()) continue;
    for (const manta::lineage::Found& one : scan.value().found) {
      if (!found.empty()) {
        return Status(Code::kInvalid, Cat("more than one task begins with ", options.task, ": give more of its id"));
      }
      found = ToHex(one.id);
      *folder = here;
    }
  }
  if (found.empty()) {
    return Status(Code::kNotFound, Cat("no task ", options.task, " is recorded under ", options.folder,
                                       "/jobs; only jobs with a name (Config::job) leave lineage, and only if they "
                                       "crash, a task fails, or Config::keep_lineage is set"));
  }
  return found;
}

int Replay(const Options& options) {
  std::string folder = manta::lineage::FolderOf(options.folder, options.job);
  std::string which = Cat("sample:", options.sample);
  if (options.sample == 0) {
    Result<std::string> task = FindTask(options, &folder);
    if (!task.ok()) return Complain(task.status());
    which = std::move(*task);
  } else if (options.job.empty()) {
    return Complain(Status(Code::kInvalid, "--sample needs --job NAME"));
  }
  const Result<manta::lineage::JobNote> note = manta::lineage::ReadNote(folder);
  if (!note.ok()) return Complain(note.status());
  setenv("MANTA_REPLAY", folder.c_str(), 1);
  setenv("MANTA_REPLAY_TASKS", which.c_str(), 1);
  if (!note.value().directory.empty() && chdir(note.value().directory.c_str()) != 0) {
    std::fprintf(stderr, "manta: the job's folder %s is gone; the task runs in this one\n",
                 note.value().directory.c_str());
  }
  std::vector<std::string> words;
  if (options.gdb) {
    words = {"gdb", "-q",  "-ex",    "set breakpoint pending on", "-ex", "break manta_replay_begin",
             "-ex", "run", "--args", note.value().program};
  } else {
    words = {note.value().program};
  }
  const std::vector<std::string>& arguments = note.value().arguments;
  if (!arguments.empty()) words.insert(words.end(), arguments.begin() + 1, arguments.end());
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  return Complain(Status(Code::kIo, Cat("cannot start ", words[0], ": ", std::strerror(errno))));
}

void AddHeadOptions(CLI::App& app, Options& options) {
  app.add_option("--job-quota", options.job_quota,
                 "NAME=AMOUNT that a job may have at a time, on all nodes together (CPU=8); repeat for more");
  app.add_option("--schedulers", options.schedulers, "global schedulers, with the head's own")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

void AddNodeOptions(CLI::App& app, Options& options) {
  app.add_option("--resource", options.resources,
                 "NAME=AMOUNT of something else to share out (memory, in MiB, is 70% of the machine's if not said); "
                 "repeat for more");
  app.add_option("--store-bytes", options.store_bytes, "memory for large objects of a node")
      ->check(CLI::PositiveNumber);
  app.add_option("--spill", options.spill,
                 "folder for objects and lineage that find no room in memory, or 'none' (default $TMPDIR or /tmp)");
  app.add_option("--spill-limit", options.spill_limit,
                 "bytes of objects to have there at most, and of lineage of each process")
      ->check(CLI::PositiveNumber);
  app.add_option("--lineage-memory", options.lineage_memory,
                 "bytes that a process keeps at most to rebuild lost values from (default 256 MB)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--state", options.state,
                 "folder for the lineage of jobs that have a name (default: that of --secrets)");
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.folder = Secrets::DefaultFolder();
  CLI::App app("Manta's command line.");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--secrets", options.folder, "folder of the cluster's token, state and logs (default ~/.manta)");

  CLI::App* start = app.add_subcommand("start", "starts the head of a cluster, or a node that joins one");
  start->add_flag("--head", options.head, "a new cluster, with its first node on this machine");
  start->add_option("--join", options.join, "the address of a head: this machine becomes a node of its cluster");
  start->add_option("--token", options.token,
                    "the join token that the head printed (others on this machine can see it here)");
  start->add_option("--token-file", options.token_file, "a file with it, or - for standard input");
  start->add_option("--listen", options.listen,
                    "host:port; beyond this machine everything is encrypted (default 127.0.0.1:6400 for the head)");
  start->add_flag("--tls", options.tls, "encrypt on this machine, too");
  start->add_option("--name", options.name, "of the node (default n and its number)");
  start->add_option("--cpus", options.cpus, "CPUs to share out (default: all)");
  start->add_option("--gpus", options.gpus, "GPUs to share out");
  start->add_option("--label,--labels", options.labels, "KEY=VALUE,... that tasks can ask for; repeat for more");
  start->add_option("--redis", options.redis, "keep the head's tables in Redis 7: unix:/path or host:port; repeat");
  start->add_option("--redis-password-file", options.redis_password_file, "its password; mode 0600");
  start->add_option("--valid", options.valid, "seconds for which the printed join token is good")
      ->capture_default_str();
  AddHeadOptions(*start, options);
  AddNodeOptions(*start, options);

  CLI::App* stop = app.add_subcommand("stop", "stops what was started here; on the head, the whole cluster");

  CLI::App* status = app.add_subcommand("status", "nodes, resources in use, tasks and memory of live local clusters");
  status->add_option("--address", options.address, "of one node, as '@manta-1000-4711'");
  status->add_flag("--json", options.json, "for programs");

  CLI::App* memory =
      app.add_subcommand("memory", "the large objects of live local clusters: size, owner, holders, readers");
  memory->add_option("--address", options.address, "of one node, as '@manta-1000-4711'");

  CLI::App* nodes = app.add_subcommand("nodes", "the nodes of the cluster");
  nodes->add_option("--address", options.address, "of its head (default: as it was started here)");
  nodes->add_flag("--all", options.all, "also those that left or died");
  nodes->add_flag("--json", options.json, "for programs");

  CLI::App* drain =
      app.add_subcommand("drain", "lets a node finish, gives it nothing new, and waits until it has left");
  drain->add_option("node", options.node, "its name or number")->required();
  drain->add_option("--address", options.address, "of the head (default: as it was started here)");
  drain->add_option("--timeout", options.timeout, "seconds")->capture_default_str();

  CLI::App* token = app.add_subcommand("token", "prints a join token, good once");
  CLI::Option* rotate =
      token->add_flag("--rotate", options.rotate, "instead: a new cluster token; nodes that are connected get it");
  token->add_option("--grace", options.grace, "seconds for which the old one is still accepted")
      ->check(CLI::Range(0.0, 1e6))
      ->needs(rotate)
      ->capture_default_str();
  token->add_option("--valid", options.valid, "seconds for which it is good")->capture_default_str();

  CLI::App* cluster = app.add_subcommand("cluster", "a cluster of several nodes on this machine, until Ctrl-C");
  cluster->add_option("--nodes", options.count, "how many")->check(CLI::Range(1, 1000))->capture_default_str();
  cluster->add_option("--cpus-per-node", options.cpus_per_node, "CPUs of each")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  cluster->add_flag("--background", options.background, "return when it is up; `manta stop` stops it");
  cluster->add_option("--listen", options.listen, "of the head (default: any free port)");
  AddHeadOptions(*cluster, options);
  AddNodeOptions(*cluster, options);

  CLI::App* lineage = app.add_subcommand("lineage", "what a job with a name did, also after it was killed");
  lineage->add_option("job", options.job, "its name (default: lists those that left something)");
  lineage->add_flag("--tasks", options.tasks, "every call, by its id");
  lineage->add_flag("--remove", options.remove, "drops it; not of a job that runs");

  CLI::App* replay = app.add_subcommand("replay", "runs a recorded task again, alone, and compares its result");
  replay->add_option("task", options.task, "its id, or the first digits of it");
  replay->add_option("--job", options.job, "the name of its job (default: look in all)");
  replay->add_option("--sample", options.sample, "instead: so many tasks of the job, from all over it");
  replay->add_flag("--gdb", options.gdb, "under gdb, stopped before the task");

  CLI11_PARSE(app, argc, argv);
  if (options.folder.empty()) return Complain(Status(Code::kInvalid, "there is no HOME: say --secrets FOLDER"));
  if (start->parsed()) return Start(options);
  if (stop->parsed()) return Stop(options);
  if (nodes->parsed()) return ShowNodes(options);
  if (drain->parsed()) return Drain(options);
  if (token->parsed()) return ShowToken(options);
  if (cluster->parsed()) return RunCluster(options);
  if (lineage->parsed()) return ShowLineage(options);
  if (replay->parsed()) return Replay(options);
  if (memory->parsed()) return ShowMemory(options);
  return ShowStatus(options);
}
