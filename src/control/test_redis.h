// For this room's tests: a redis-server, if there is one.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

namespace manta::control {

// A server of our own, which dies with us.
class RedisServer {
 public:
  ~RedisServer() { Kill(); }
  void Start(const std::string& folder, std::vector<std::string> more) {
    std::vector<std::string> words{"redis-server", "--dir", folder,       "--save", "",
                                   "--daemonize",  "no",    "--loglevel", "warning"};
    words.insert(words.end(), more.begin(), more.end());
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
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  void Signal(int signal) const { kill(pid_, signal); }

 private:
  pid_t pid_ = -1;
};

inline bool HasRedis() {
  static const bool has = std::system("redis-server --version >/dev/null 2>&1") == 0;
  return has;
}

}  // namespace manta::control
