// What tests that span processes need: running a program with its output captured, and finding out
// which processes, sockets and files a cluster has or has left behind. Processes are recognised by a
// marker in their environment, which every descendant inherits, however it was reparented.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace manta::testing {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;  // they catch SIGSEGV, take terabytes of addresses and make all slower
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr int kSlow = kSanitized ? 10 : 1;

// For programs started from now on: a crash ends the process by its signal and is not for a sanitizer to report, which
// would fail the test (scripts/leftovers).
inline void CrashesAreIntended() {
  for (const char* name : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) {
    const char* before = std::getenv(name);
    setenv(name, (std::string(before == nullptr ? "" : before) + ":handle_segv=0:handle_abort=0").c_str(), 1);
  }
}

// Looks every few milliseconds whether `done`; false when the time is up.
inline bool Eventually(const std::function<bool()>& done, std::chrono::milliseconds limit = 5s) {
  const auto end = Clock::now() + limit * kSlow;
  while (!done()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();  // unlike an iterator, does not throw when a process of /proc ends while it is read
  return out.str();
}

inline std::string ProgramFolder() {
  std::string path(4096, '\0');
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  path.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
  return path.substr(0, path.rfind('/'));
}

// ---- marked processes ----

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  char state = '?';
  std::string name;
};

inline Process LookAt(pid_t pid) {
  Process process;
  process.pid = pid;
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t open = stat.find('(');
  const std::size_t close = stat.rfind(')');
  if (open == std::string::npos || close == std::string::npos) return process;
  process.name = stat.substr(open + 1, close - open - 1);
  std::istringstream(stat.substr(close + 1)) >> process.state >> process.parent;
  return process;
}

inline bool Alive(pid_t pid) {
  const Process process = LookAt(pid);
  return !process.name.empty() && process.state != 'Z' && process.state != 'X';
}

// All living processes that were started with NAME=VALUE in their environment.
inline std::vector<Process> Marked(const std::string& mark) {
  std::vector<Process> found;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* item = readdir(folder)) {
    const pid_t pid = std::atoi(item->d_name);
    if (pid <= 0) continue;
    const std::string environment = '\0' + ReadFile("/proc/" + std::string(item->d_name) + "/environ");
    if (environment.find('\0' + mark + '\0') == std::string::npos) continue;
    if (Alive(pid)) found.push_back(LookAt(pid));
  }
  closedir(folder);
  return found;
}

inline std::string Describe(const std::vector<Process>& processes) {
  std::ostringstream out;
  for (const Process& process : processes) out << process.pid << ' ' << process.name << " (" << process.state << ") ";
  return out.str();
}

// The processes of one private cluster by what they are.
struct Cast {
  pid_t daemon = 0;
  pid_t fork_server = 0;
  std::vector<pid_t> workers;
};

inline Cast CastOf(const std::string& mark) {
  Cast cast;
  for (const Process& process : Marked(mark)) {
    // A fork server that is about to start still looks like the daemon, whose child it is.
    if (process.name == "mantad" && LookAt(process.parent).name != "mantad") cast.daemon = process.pid;
    if (process.name == "manta-fork") cast.fork_server = process.pid;
    if (process.name == "manta-worker") cast.workers.push_back(process.pid);
  }
  return cast;
}

// The abstract sockets "@manta-UID-PID" of these processes.
inline std::vector<std::string> SocketsOf(const std::set<pid_t>& pids) {
  std::vector<std::string> found;
  std::istringstream lines(ReadFile("/proc/net/unix"));
  const std::string prefix = "@manta-" + std::to_string(getuid()) + "-";
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find(prefix);
    if (at == std::string::npos) continue;
    if (pids.contains(std::atoi(line.c_str() + at + prefix.size()))) found.push_back(line.substr(at));
  }
  return found;
}

inline std::size_t OpenDescriptors() {
  std::size_t count = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

// ---- a folder of its own, gone with its contents ----

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/manta_test_XXXXXX";
    if (mkdtemp(name) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::vector<std::string> Files() const {
    std::vector<std::string> files;
    DIR* folder = opendir(path_.c_str());
    if (folder == nullptr) return files;
    while (const dirent* item = readdir(folder)) {
      if (item->d_name[0] != '.') files.emplace_back(item->d_name);
    }
    closedir(folder);
    return files;
  }

 private:
  std::string path_;
};

// ---- running a program ----

// A program with its own marker; stdout and stderr go to memory and can be read at any time.
class Child {
 public:
  // `program` is a path, or a name beside this test. `environment` adds NAME=VALUE.
  explicit Child(std::string program, const std::vector<std::string>& arguments = {},
                 const std::vector<std::string>& environment = {}) {
    if (program.find('/') == std::string::npos) program = ProgramFolder() + "/" + program;
    mark_ = "MANTA_TEST_CHILD=" + std::to_string(getpid()) + "." + std::to_string(++Counter());
    out_ = memfd_create("stdout", MFD_CLOEXEC);
    err_ = memfd_create("stderr", MFD_CLOEXEC);
    std::vector<char*> argv{program.data()};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    std::vector<char*> envp;
    for (char** item = environ; *item != nullptr; ++item) envp.push_back(*item);
    for (const std::string& item : environment) envp.push_back(const_cast<char*>(item.c_str()));
    envp.push_back(mark_.data());
    envp.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, out_, 1);
    posix_spawn_file_actions_adddup2(&files, err_, 2);
    if (posix_spawn(&pid_, program.c_str(), &files, nullptr, argv.data(), envp.data()) != 0) pid_ = 0;
    posix_spawn_file_actions_destroy(&files);
  }
  ~Child() {
    if (pid_ > 0 && !ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& mark() const { return mark_; }
  [[nodiscard]] std::string Out() const { return Contents(out_); }
  [[nodiscard]] std::string Err() const { return Contents(err_); }

  // Waits until its stdout contains `text`.
  bool Says(const std::string& text, std::chrono::milliseconds limit = 10s) {
    return Eventually([&] { return Out().find(text) != std::string::npos || Ended(); }, limit) &&
           Out().find(text) != std::string::npos;
  }
  bool Ended() {
    if (!ended_) ended_ = pid_ <= 0 || waitpid(pid_, &status_, WNOHANG) == pid_;
    return ended_;
  }
  // As waitpid gives it; kills the program when the time is up (and returns -1).
  int Finish(std::chrono::milliseconds limit = 20s) {
    if (Eventually([&] { return Ended(); }, limit)) return pid_ <= 0 ? -1 : status_;
    return -1;
  }
  // True once no process of it is left.
  bool LeavesNothing(std::chrono::milliseconds limit = 1s) {
    return Eventually([&] { return Marked(mark_).empty(); }, limit);
  }

 private:
  static int& Counter() {
    static int counter = 0;
    return counter;
  }
  static std::string Contents(int fd) {
    struct stat info{};
    if (fstat(fd, &info) != 0) return {};
    std::string text(static_cast<std::size_t>(info.st_size), '\0');
    const ssize_t size = pread(fd, text.data(), text.size(), 0);
    text.resize(size < 0 ? 0 : static_cast<std::size_t>(size));
    return text;
  }

  std::string mark_;
  int out_ = -1;
  int err_ = -1;
  pid_t pid_ = 0;
  int status_ = 0;
  bool ended_ = false;
};

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace manta::testing
