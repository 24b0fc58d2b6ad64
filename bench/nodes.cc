#include "nodes.h"

#include <fcntl.h>
#include <limits.h>
#include <manta/manta.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "harness.h"
#include "processes.h"

extern char** environ;

namespace bench {
namespace {

std::string MantaProgram() {
  char path[PATH_MAX];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof path);
  if (length <= 0) return "manta";
  const std::filesystem::path self(std::string(path, static_cast<std::size_t>(length)));
  // The paper's programs are in a folder beside it.
  for (std::filesystem::path folder = self.parent_path(); !folder.empty() && folder != folder.parent_path();
       folder = folder.parent_path()) {
    for (const char* inside : {"manta", "bin/manta"}) {
      std::error_code ignored;
      if (std::filesystem::is_regular_file(folder / inside, ignored)) return folder / inside;
    }
  }
  return "manta";
}

pid_t Spawn(std::vector<std::string> words, int in, int out) {
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (in >= 0) posix_spawn_file_actions_adddup2(&actions, in, 0);
  if (out >= 0) {
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    posix_spawn_file_actions_adddup2(&actions, out, 2);
  }
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) Fail("cannot start " + words[0] + ": " + std::strerror(error));
  return pid;
}

}  // namespace

namespace {

std::string Run(const std::vector<std::string>& words, int* status) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) Fail(std::string("cannot make a pipe: ") + std::strerror(errno));
  const pid_t pid = Spawn(words, -1, ends[1]);
  ::close(ends[1]);
  std::string said;
  char buffer[4096];
  for (ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    said.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  ::waitpid(pid, status, 0);
  return said;
}

}  // namespace

std::string RunManta(const std::vector<std::string>& words, const std::vector<std::string>& before) {
  std::vector<std::string> all = before;
  all.push_back(MantaProgram());
  all.insert(all.end(), words.begin(), words.end());
  int status = 0;
  const std::string said = Run(all, &status);
  if (status == 0) return said;
  std::string line;
  for (const std::string& word : all) line += (line.empty() ? "" : " ") + word;
  Fail("`" + line + "` failed: " + said);
}

std::string RunProgram(const std::vector<std::string>& words, std::string* how) {
  int status = 0;
  const std::string said = Run(words, &status);
  if (status == 0) return said;
  if (how != nullptr) {
    *how = WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status))
                               : "exit code " + std::to_string(WEXITSTATUS(status));
    *how += said.empty() ? ", silently" : ", and said: " + said;
  }
  return {};
}

TemporaryFolder::TemporaryFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = std::string(parent != nullptr && *parent != '\0' ? parent : "/tmp") + "/manta-bench-XXXXXX";
  if (::mkdtemp(path_.data()) == nullptr) Fail("cannot make " + path_ + ": " + std::strerror(errno));
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

Nodes::Nodes(const NodesOptions& options) : options_(options) {
  {
    const TemporaryFolder parent;  // its name is free again; `manta` makes the folder with the rights it wants
    folder_ = options.secrets.empty() ? parent.path() : options.secrets;
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) Fail(std::string("cannot make a pipe: ") + std::strerror(errno));
  leash_ = ends[1];
  const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  guard_ =
      Spawn({"sh", "-c", "read line; \"$0\" --secrets \"$1\" stop; rm -rf \"$1\" \"$1\".n*", MantaProgram(), folder_},
            ends[0], nowhere);
  ::close(nowhere);
  ::close(ends[0]);
  head_ = options.join;
  if (head_.empty()) Start({"--head", "--listen", options.listen});
  while (static_cast<int>(count()) < options.count) Add();
}

Nodes::~Nodes() {
  ::close(leash_);
  ::waitpid(guard_, nullptr, 0);
}

void Nodes::Add() { Start({"--join", head_}); }

void Nodes::Kill(std::size_t node) { ::kill(nodes_.at(node - 1), SIGKILL); }

void Nodes::Drain(std::size_t node) {
  // A head that is killed meanwhile forgets who asked, and the next one is asked again; the node may have left by then.
  for (const double end = Now() + 60; ParentOf(pid(node)) != 0; SleepMs(20)) {
    try {
      static_cast<void>(RunManta({"--secrets", folder_, "drain", Name(node), "--timeout", "60"}));
      return;
    } catch (const std::exception&) {
      if (Now() > end) throw;
    }
  }
}

void Nodes::RestartHead() {
  const pid_t head = head_pid();
  ::kill(head, SIGKILL);
  while (ParentOf(head) != 0) SleepMs(0.1);
  // Its port is free, and the connection of another program may have got it for a moment.
  for (const double end = Now() + 10;; SleepMs(100)) {
    try {
      static_cast<void>(RunManta({"--secrets", folder_, "start", "--head"}));
      break;
    } catch (const std::exception&) {
      if (Now() > end) throw;
    }
  }
  ReadHead();
}

void Nodes::Start(const std::vector<std::string>& where) {
  const std::size_t index = count();
  const std::string name = Name(index + 1);
  const std::vector<std::string> before =
      index < options_.before.size() ? options_.before[index] : std::vector<std::string>();
  const bool elsewhere = !before.empty();
  std::vector<std::string> words{"--secrets",
                                 elsewhere ? folder_ + "." + name : folder_,
                                 "start",
                                 "--name",
                                 name,
                                 "--cpus",
                                 std::to_string(options_.cpus),
                                 "--store-bytes",
                                 std::to_string(options_.store_bytes),
                                 "--resource",
                                 name + "=1000"};
  words.insert(words.end(), where.begin(), where.end());
  if (elsewhere && !token_.empty()) {
    const std::string file = folder_ + "/join-token";
    std::ofstream(file) << token_ << "\n";
    words.insert(words.end(), {"--token-file", file});
  }
  if (index < options_.words.size()) {
    words.insert(words.end(), options_.words[index].begin(), options_.words[index].end());
  }
  const std::string said = RunManta(words, before);
  const auto after = [&](const std::string& what) {
    const std::size_t at = said.find(what);
    if (at == std::string::npos) return std::string();
    return said.substr(at + what.size(), said.find_first_of(" \n)", at + what.size()) - at - what.size());
  };
  if (after("MANTA_ADDRESS=").empty()) Fail("`manta start` did not say where the node is: " + said);
  addresses_.push_back(after("MANTA_ADDRESS="));
  nodes_.push_back(std::atoi(after("(pid ").c_str()));
  daemons_.push_back(nodes_.back());
  if (index > 0) return;
  token_ = after("and paste there: ");
  daemons_.push_back(0);
  if (options_.join.empty()) ReadHead();
}

void Nodes::ReadHead() {
  std::ifstream file(folder_ + "/cluster");
  schedulers_.clear();
  for (std::string word; file >> word;) {
    if (word == "head") file >> head_;
    if (word == "control" && file >> word) daemons_.at(1) = std::atoi(word.c_str());
    if (word == "scheduler" && file >> word) schedulers_.push_back(std::atoi(word.c_str()));
  }
}

double Nodes::Status(std::size_t node, const std::string& field) const {
  const std::string said =
      RunManta({"--secrets", folder_, "status", "--json", "--address", address(node)},
               node <= options_.before.size() ? options_.before[node - 1] : std::vector<std::string>());
  const std::size_t at = said.find("\"" + field + "\": ");
  if (at == std::string::npos) Fail("`manta status` says nothing of " + field + ": " + said);
  return std::strtod(said.c_str() + at + field.size() + 4, nullptr);
}

std::string Nodes::Logs() const {
  std::string out;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ + "/logs", none)) {
    std::ifstream file(entry.path());
    std::ostringstream text;
    text << file.rdbuf();
    const std::string all = text.str();
    out += "\n" + entry.path().filename().string() + ":\n" +
           all.substr(all.size() - std::min<std::size_t>(all.size(), 8192));
  }
  return out;
}

double Nodes::CpuSeconds() const {
  std::map<pid_t, double> processes;
  for (const pid_t pid : ClusterLikeProcesses()) processes[pid] = bench::CpuSeconds(pid);
  for (const pid_t pid : daemons_) processes[pid] = bench::CpuSeconds(pid);
  double seconds = 0;
  for (const pid_t pid : schedulers_) seconds += bench::CpuSeconds(pid);
  for (const auto& [pid, used] : processes) {
    // Workers are children of a fork server, which is one of a daemon.
    for (pid_t at = pid; at > 1; at = ParentOf(at)) {
      if (std::find(daemons_.begin(), daemons_.end(), at) == daemons_.end()) continue;
      seconds += used;
      break;
    }
  }
  return seconds;
}

Nodes::Driver::Driver(const Nodes& nodes, std::size_t node) {
  manta::Config config;
  config.address = nodes.address(node);
  manta::Init(config);
}

Nodes::Driver::~Driver() { manta::Shutdown(); }

}  // namespace bench
