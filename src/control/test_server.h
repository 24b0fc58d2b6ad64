// For this room's tests: a program of the distribution (redis-server, etcd) as a server of our own. It says nothing,
// and dies with its object and with us.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace manta::control {

class TestServer {
 public:
  TestServer() = default;
  ~TestServer() { Kill(); }
  TestServer(const TestServer&) = delete;
  TestServer& operator=(const TestServer&) = delete;

  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Signal(int signal) const { kill(pid_, signal); }

 protected:
  // The program, found in PATH, and its words.
  void Run(std::vector<std::string> words) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      const int null = open("/dev/null", O_RDWR);
      dup2(null, 0);
      dup2(null, 1);
      dup2(null, 2);
      execvp(argv[0], argv.data());
      _exit(127);
    }
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace manta::control
