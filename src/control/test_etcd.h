// For this room's tests: an etcd of our own, if there is one, on free ports of loopback.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/fd.h"

namespace manta::control {

inline bool HasEtcd() {
  static const bool has = std::system("etcd --version >/dev/null 2>&1") == 0;
  return has;
}

// Dies with us.
class EtcdServer {
 public:
  ~EtcdServer() { Kill(); }
  // Its data is in the folder; started again, it has the same ports and data.
  void Start(const std::string& folder) {
    if (address_.empty()) {
      address_ = FreePort();
      peers_ = FreePort();
    }
    std::vector<std::string> words{"etcd",
                                   "--data-dir",
                                   folder + "/etcd",
                                   "--listen-client-urls",
                                   "http://" + address_,
                                   "--advertise-client-urls",
                                   "http://" + address_,
                                   "--listen-peer-urls",
                                   "http://" + peers_,
                                   "--initial-advertise-peer-urls",
                                   "http://" + peers_,
                                   "--initial-cluster",
                                   "default=http://" + peers_};
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
  [[nodiscard]] const std::string& address() const { return address_; }
  // "127.0.0.1:" and a port that was free a moment ago.
  static std::string FreePort() {
    const base::Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof name;
    if (bind(probe.get(), reinterpret_cast<sockaddr*>(&name), size) != 0) std::abort();
    getsockname(probe.get(), reinterpret_cast<sockaddr*>(&name), &size);
    return "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
  }

 private:
  pid_t pid_ = -1;
  std::string address_;
  std::string peers_;
};

}  // namespace manta::control
