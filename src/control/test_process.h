// For this room's tests: bin/manta-control as a process, which ends with the test.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/program.h"

namespace manta::control {

class ControlProcess {
 public:
  ~ControlProcess() { End(SIGKILL); }
  // The first line it says, when it is ready; its complaint otherwise.
  std::string Start(std::vector<std::string> words) {
    if (!Begin(std::move(words))) return "no pipe";
    return WaitReady();
  }
  // Does not wait until it is ready.
  bool Begin(std::vector<std::string> words) {
    int ready[2];
    int errors[2];
    if (pipe2(ready, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0) return false;
    words.insert(words.begin(), base::BesideProgram("manta-control"));
    words.insert(words.end(), {"--ready-fd", std::to_string(ready[1])});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      dup2(errors[1], 2);
      fcntl(ready[1], F_SETFD, 0);  // this one it keeps
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(ready[1]);
    close(errors[1]);
    ready_.Reset(ready[0]);
    errors_.Reset(errors[0]);
    return true;
  }
  std::string WaitReady() {
    std::string text = ReadAll(ready_.get());
    if (text.empty()) text = ReadAll(errors_.get());
    ready_.Reset(-1);
    errors_.Reset(-1);
    return text;
  }
  // Until it has said so on its errors.
  bool WaitFor(const std::string& words) {
    std::string said;
    char byte = 0;
    while (said.find(words) == std::string::npos && read(errors_.get(), &byte, 1) == 1) said.push_back(byte);
    return said.find(words) != std::string::npos;
  }
  [[nodiscard]] bool HasEnded() const {
    siginfo_t info{};
    const int waited = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    return waited != 0 || info.si_pid != 0;
  }
  // None of its files may grow beyond this: for it the disk is full. RLIM_INFINITY: there is room again.
  [[nodiscard]] bool LimitFiles(rlim_t bytes) const {
    rlimit limit{};
    if (prlimit(pid_, RLIMIT_FSIZE, nullptr, &limit) != 0) return false;
    limit.rlim_cur = std::min(bytes, limit.rlim_max);
    return prlimit(pid_, RLIMIT_FSIZE, &limit, nullptr) == 0;
  }
  int End(int signal) {
    if (pid_ <= 0) return 0;
    kill(pid_, signal);
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  static std::string ReadAll(int fd) {
    std::string text;
    char buffer[512];
    for (;;) {
      const ssize_t count = read(fd, buffer, sizeof buffer);
      if (count <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(count));
    }
  }
  pid_t pid_ = -1;
  base::Fd ready_;
  base::Fd errors_;
};

}  // namespace manta::control
