// For what measures the control store: a server of its own (manta-control, or one of the distribution's) that ends with
// its object, and with this program.
#pragma once

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace bench {

class ServerProcess {
 public:
  ServerProcess() = default;
  ~ServerProcess() { Kill(); }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // manta-control, which is beside this program or one folder above. Waits until it is ready, unless told not to.
  void StartControl(std::vector<std::string> words, bool wait = true) {
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) Give("no pipe");
    std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    if (!exists(folder / "manta-control")) folder = folder.parent_path();
    words.insert(words.begin(), folder / "manta-control");
    if (wait) words.insert(words.end(), {"--ready-fd", std::to_string(ready[1])});
    Start(words, ready[1]);
    close(ready[1]);
    char byte = 0;
    if (wait && read(ready[0], &byte, 1) != 1) Give(words[0] + " did not start: build the target manta-control");
    close(ready[0]);
  }
  // Any program of the path. `kept`: a descriptor that it keeps.
  void Start(std::vector<std::string> words, int kept = -1) {
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (kept >= 0) fcntl(kept, F_SETFD, 0);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  [[nodiscard]] pid_t pid() const { return pid_; }
  // By itself, or because somebody killed it.
  [[nodiscard]] bool Ended() {
    if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return pid_ <= 0;
  }
  void Kill() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  [[noreturn]] static void Give(const std::string& what) {
    std::fprintf(stderr, "%s\n", what.c_str());
    std::exit(1);
  }
  pid_t pid_ = -1;
};

}  // namespace bench
