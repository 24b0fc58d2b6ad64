#include "node/launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/program.h"
#include "node/head_tool.h"
#include "wire/address.h"
#include "wire/secrets.h"

namespace manta::node {
namespace {

constexpr std::int64_t kReadyUs = 20'000'000;
constexpr std::int64_t kStopUs = 5'000'000;
constexpr int kReadyFd = 3;
constexpr std::size_t kMostLogs = 100;  // files in the folder logs/

struct Spawned {
  pid_t pid = -1;
  base::Fd ready;
  std::string log;
  off_t log_start = 0;
};

// Logs of processes that are long gone: a node without a name gets a new file each time it is started.
void RemoveOldLogs(const std::string& folder) {
  std::vector<std::pair<std::filesystem::file_time_type, std::filesystem::path>> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.is_regular_file(ignored)) files.emplace_back(entry.last_write_time(ignored), entry.path());
  }
  if (files.size() <= kMostLogs) return;
  std::sort(files.begin(), files.end());
  for (std::size_t i = 0; i + kMostLogs < files.size(); ++i) std::filesystem::remove(files[i].second, ignored);
}

Result<Spawned> Spawn(const std::string& folder, const std::string& program, const std::string& log_name,
                      std::vector<std::string> words, bool attached) {
  const std::string logs = folder + "/logs";
  if (mkdir(logs.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status(Code::kIo, Cat("cannot make ", logs, ": ", std::strerror(errno)));
  }
  RemoveOldLogs(logs);
  Spawned out;
  out.log = Cat(logs, "/", log_name, ".log");
  const base::Fd log(open(out.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log.valid()) return Status(Code::kIo, Cat("cannot write ", out.log, ": ", std::strerror(errno)));
  out.log_start = lseek(log.get(), 0, SEEK_END);
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return Status(Code::kIo, Cat("cannot make a pipe: ", std::strerror(errno)));
  out.ready.Reset(pipe[0]);
  const base::Fd there(pipe[1]);
  const std::string path = base::BesideProgram(program);
  words.insert(words.begin(), path);
  words.insert(words.end(), {"--ready-fd", std::to_string(kReadyFd)});
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  out.pid = fork();
  if (out.pid < 0) return Status(Code::kUnavailable, Cat("cannot fork: ", std::strerror(errno)));
  if (out.pid == 0) {
    setsid();
    if (attached) {
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(1);
    }
    const int ready = fcntl(there.get(), F_DUPFD, 10);
    const int errors = fcntl(log.get(), F_DUPFD, 10);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, 0);
    dup2(errors, 1);
    dup2(errors, 2);
    dup2(ready, kReadyFd);
    close_range(kReadyFd + 1, ~0U, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(path.c_str(), argv.data());
    const char* reason = std::strerror(errno);
    if (write(2, reason, std::strlen(reason)) < 0) _exit(126);
    _exit(127);
  }
  return out;
}

// What it has written into its log since it was started.
std::string LastWords(const Spawned& spawned) {
  std::ifstream file(spawned.log);
  file.seekg(spawned.log_start);
  std::string out;
  for (std::string line; std::getline(file, line);) out += Cat("\n  ", line);
  return out.size() > 2000 ? out.substr(out.size() - 2000) : out;
}

Result<std::string> AwaitReady(const Spawned& spawned, const std::string& what) {
  const std::int64_t deadline = base::NowMicros() + kReadyUs;
  std::string line;
  for (;;) {
    const std::int64_t left = deadline - base::NowMicros();
    pollfd wait{spawned.ready.get(), POLLIN, 0};
    if (left <= 0 || poll(&wait, 1, static_cast<int>(left / 1000 + 1)) == 0) {
      return Status(Code::kTimedOut,
                    Cat(what, " was not ready within ", kReadyUs / 1'000'000, " s; its log is ", spawned.log));
    }
    char c = 0;
    const ssize_t count = read(spawned.ready.get(), &c, 1);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      return Status(Code::kUnavailable, Cat(what, " did not start:", LastWords(spawned)));
    }
    if (c == '\n') return line;
    line += c;
  }
}

// The address of this machine from which `head` is reached.
std::string InterfaceTowards(const std::string& head) {
  const Result<wire::Address> address = wire::ParseAddress(head.substr(0, head.find(',')));  // of several, the first
  if (!address.ok()) return "127.0.0.1";
  const Result<std::vector<wire::SocketAddress>> found = wire::Resolve(address.value());
  if (!found.ok() || found.value().empty()) return "127.0.0.1";
  const wire::SocketAddress& target = found.value().front();
  if (target.loopback()) return target.host();
  const base::Fd probe(socket(target.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.get(), target.get(), target.size) != 0) return "127.0.0.1";
  return wire::LocalOf(probe.get()).host();
}

}  // namespace

bool IsLoopback(const std::string& address) {
  const Result<wire::Address> parsed = wire::ParseAddress(address.substr(0, address.find(',')));
  if (!parsed.ok()) return false;
  const Result<std::vector<wire::SocketAddress>> found = wire::Resolve(parsed.value());
  return found.ok() && std::all_of(found.value().begin(), found.value().end(),
                                   [](const wire::SocketAddress& one) { return one.loopback(); });
}

Result<StartedHead> StartHead(const HeadOptions& options) {
  if (Status status = wire::EnsureSecretFolder(options.folder); !status.ok()) return status;
  StartedHead out;
  out.tls = options.tls || !IsLoopback(options.listen);
  std::vector<std::string> words{"--listen", options.listen, "--secrets", options.folder};
  const bool redis = std::find(options.words.begin(), options.words.end(), "--redis") != options.words.end();
  if (!redis) words.insert(words.end(), {"--folder", options.folder + "/control"});
  if (out.tls) words.emplace_back("--tls");
  words.insert(words.end(), options.words.begin(), options.words.end());
  const Result<Spawned> spawned = Spawn(options.folder, "manta-control", "control", words, options.attached);
  if (!spawned.ok()) return spawned.status();
  out.process = wire::LocalProcess::Of(spawned.value().pid);
  const Result<std::string> address = AwaitReady(spawned.value(), "the head");
  if (!address.ok()) {
    StopProcess(out.process, kStopUs);
    return address.status();
  }
  out.address = address.value();
  for (int i = 2; i <= options.schedulers; ++i) {
    std::vector<std::string> more{"--scheduler",
                                  "--join",
                                  out.address,
                                  "--secrets",
                                  options.folder,
                                  "--listen",
                                  InterfaceTowards(out.address) + ":0"};
    if (out.tls) more.emplace_back("--tls");
    const Result<Spawned> one = Spawn(options.folder, "manta-control", Cat("scheduler-", i), more, options.attached);
    Status failure = one.status();
    if (one.ok()) {
      out.schedulers.push_back(wire::LocalProcess::Of(one.value().pid));
      failure = AwaitReady(one.value(), Cat("scheduler ", i)).status();
    }
    if (failure.ok()) continue;
    for (const wire::LocalProcess& process : out.schedulers) StopProcess(process, kStopUs);
    StopProcess(out.process, kStopUs);
    return failure;
  }
  return out;
}

Result<std::vector<wire::LocalProcess>> StartNodes(const std::vector<NodeOptions>& options) {
  std::vector<Spawned> spawned;
  Status failure;
  for (const NodeOptions& node : options) {
    std::vector<std::string> words{
        "--head-address", node.head,  "--secrets",
        node.folder,      "--listen", node.listen.empty() ? InterfaceTowards(node.head) + ":0" : node.listen};
    if (!node.name.empty()) words.insert(words.end(), {"--name", node.name});
    if (node.tls) words.emplace_back("--tls");
    words.insert(words.end(), node.words.begin(), node.words.end());
    const std::string log = node.name.empty() ? Cat("node-", getpid(), "-", spawned.size()) : node.name;
    Result<Spawned> one = Spawn(node.folder, "mantad", log, words, node.attached);
    if (!one.ok()) {
      failure = one.status();
      break;
    }
    spawned.push_back(std::move(*one));
  }
  std::vector<wire::LocalProcess> out;
  for (std::size_t i = 0; i < spawned.size(); ++i) {
    const std::string what = options[i].name.empty() ? "the node" : Cat("node ", options[i].name);
    const Result<std::string> address = AwaitReady(spawned[i], what);
    if (!address.ok() && failure.ok()) failure = address.status();
    out.push_back(wire::LocalProcess::Of(spawned[i].pid, options[i].name.empty() ? "-" : options[i].name,
                                         address.ok() ? address.value() : "@"));
  }
  if (failure.ok()) return out;
  for (const wire::LocalProcess& process : out) StopProcess(process, kStopUs);
  return failure;
}

void StopProcess(const wire::LocalProcess& process, std::int64_t patience_us) {
  const std::int64_t deadline = base::NowMicros() + patience_us;
  if (process.Alive()) kill(process.pid, SIGTERM);
  while (process.Alive() && base::NowMicros() < deadline) {
    waitpid(process.pid, nullptr, WNOHANG);  // if it is a child
    usleep(500);
  }
  if (process.Alive()) kill(process.pid, SIGKILL);
  waitpid(process.pid, nullptr, process.Alive() ? 0 : WNOHANG);
}

Status StopLocal(const std::string& folder) {
  const Result<wire::LocalCluster> read = wire::LocalCluster::Read(folder);
  if (!read.ok()) return read.status();
  const wire::LocalCluster& cluster = read.value();
  if (cluster.control.Alive()) {
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(folder);
    if (secrets.ok()) {
      const Result<std::unique_ptr<HeadTool>> tool = HeadTool::Connect(cluster.head, *secrets, kStopUs);
      // If the head does not answer, its own end and those of the local nodes are all that can be had.
      if (tool.ok() && !tool.value()->Stop(kStopUs).ok()) kill(cluster.control.pid, SIGTERM);
    }
  }
  for (const wire::LocalProcess& node : cluster.nodes) {
    if (node.Alive()) kill(node.pid, SIGTERM);
  }
  for (const wire::LocalProcess& node : cluster.nodes) StopProcess(node, kStopUs);
  for (const wire::LocalProcess& one : cluster.schedulers) StopProcess(one, kStopUs);
  StopProcess(cluster.control, kStopUs);
  wire::LocalCluster::Remove(folder);
  return {};
}

}  // namespace manta::node
