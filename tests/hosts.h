// Several machines on this one: network namespaces, each with an address, joined by a bridge in a namespace of its own,
// so that nothing of this machine's own network is touched. A link can be cut, in both directions or in one, without
// either end being told: packets just do not arrive.
//
// The namespaces are named manta-PID-N after the process that made them. They go with the object, whatever still runs
// in them is killed; those of a process that was killed itself are swept by the next.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "processes.h"

namespace manta::testing {

inline std::string IpProgram() {
  for (const char* path : {"/usr/sbin/ip", "/sbin/ip", "/usr/bin/ip", "/bin/ip"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return {};
}

// Runs `ip` with these words; what it says goes to *out, or if it fails to *errors.
inline bool Ip(const std::vector<std::string>& words, std::string* out = nullptr, std::string* errors = nullptr) {
  Child child(IpProgram(), words);
  const bool ok = child.Finish(10s) == 0;
  if (out != nullptr) *out = child.Out();
  if (errors != nullptr) *errors = child.Err();
  return ok;
}

class Hosts {
 public:
  // Why there can be none here; empty: there can.
  static std::string Forbidden() {
    if (IpProgram().empty()) return "there is no `ip`: install iproute2";
    Sweep();
    const std::string probe = "manta-" + std::to_string(getpid()) + "-probe";
    std::string errors;
    const bool made = Ip({"netns", "add", probe}, nullptr, &errors) &&
                      Ip({"-n", probe, "link", "add", "type", "bridge"}, nullptr, &errors);
    Ip({"netns", "del", probe});
    return made ? std::string() : "network namespaces are not permitted here (run as root): " + errors;
  }

  explicit Hosts(int count) : count_(count) {
    Must({"netns", "add", net()});
    Must({"-n", net(), "link", "add", "bridge", "type", "bridge"});
    Must({"-n", net(), "link", "set", "bridge", "up"});
    for (int i = 0; i < count; ++i) {
      Must({"netns", "add", name(i)});
      Must({"-n", net(), "link", "add", port(i), "type", "veth", "peer", "name", "eth0", "netns", name(i)});
      Must({"-n", net(), "link", "set", port(i), "master", "bridge", "up"});
      Must({"-n", name(i), "link", "set", "lo", "up"});
      Must({"-n", name(i), "address", "add", address(i) + "/24", "dev", "eth0"});
      Must({"-n", name(i), "link", "set", "eth0", "up"});
    }
  }
  ~Hosts() {
    for (int i = 0; i < count_; ++i) Remove(name(i));
    Remove(net());
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  [[nodiscard]] const std::string& trouble() const { return trouble_; }  // empty: all of them are up
  [[nodiscard]] std::string name(int i) const { return Prefix() + std::to_string(i); }
  [[nodiscard]] std::string net() const { return Prefix() + "net"; }
  [[nodiscard]] static std::string address(int i) { return "10.77.0." + std::to_string(i + 1); }

  // The words that run a program there, before it and its own.
  [[nodiscard]] std::vector<std::string> Exec(int i) const { return {"netns", "exec", name(i)}; }

  // Nothing comes or goes any more.
  void Cut(int i) { Must({"-n", net(), "link", "set", port(i), "down"}); }
  void Mend(int i) { Must({"-n", net(), "link", "set", port(i), "up"}); }
  // What `from` sends to `to` goes to a card that nobody has. The other direction works.
  void CutOneWay(int from, int to) {
    Must({"-n", name(from), "neigh", "replace", address(to), "lladdr", "02:00:00:00:99:99", "dev", "eth0", "nud",
          "permanent"});
  }

 private:
  static std::string Prefix() { return "manta-" + std::to_string(getpid()) + "-"; }
  static std::string port(int i) { return "port" + std::to_string(i); }
  void Must(const std::vector<std::string>& words) {
    std::string errors;
    if (!Ip(words, nullptr, &errors) && trouble_.empty()) trouble_ = errors;
  }
  static void Remove(const std::string& name) {
    for (int round = 0; round < 50; ++round) {
      std::string pids;
      Ip({"netns", "pids", name}, &pids);
      bool any = false;
      for (const std::string& pid : Lines(pids)) {
        if (std::atoi(pid.c_str()) == getpid()) continue;
        kill(std::atoi(pid.c_str()), SIGKILL);
        any = true;
      }
      if (!any) break;
      std::this_thread::sleep_for(10ms);
    }
    Ip({"netns", "del", name});
  }
  static void Sweep() {
    std::string names;
    if (!Ip({"netns", "list"}, &names)) return;
    for (const std::string& line : Lines(names)) {
      const std::string name = line.substr(0, line.find(' '));
      if (!name.starts_with("manta-")) continue;
      const pid_t maker = std::atoi(name.c_str() + 6);
      if (maker > 0 && kill(maker, 0) != 0 && errno == ESRCH) Remove(name);
    }
  }

  const int count_;
  std::string trouble_;
};

// This thread, and whatever it starts meanwhile, is in a network namespace until the end of the scope.
class InNetwork {
 public:
  explicit InNetwork(const std::string& name_or_path)
      : before_(open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC)) {
    const std::string path = name_or_path[0] == '/' ? name_or_path : "/run/netns/" + name_or_path;
    const int there = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    entered_ = there >= 0 && setns(there, CLONE_NEWNET) == 0;
    if (there >= 0) close(there);
  }
  ~InNetwork() {
    if (entered_ && setns(before_, CLONE_NEWNET) != 0) std::abort();  // what follows would run in the wrong place
    close(before_);
  }
  InNetwork(const InNetwork&) = delete;
  InNetwork& operator=(const InNetwork&) = delete;
  [[nodiscard]] bool entered() const { return entered_; }

 private:
  int before_;
  bool entered_ = false;
};

// Somebody who reads all that goes over the bridge, looking for a text.
class Eavesdropper {
 public:
  Eavesdropper(const Hosts& hosts, std::string text) : text_(std::move(text)) {
    const InNetwork there(hosts.net());
    socket_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_ALL));
    const int room = 64 << 20;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room);
    thread_ = std::thread([this] { Listen(); });
  }
  ~Eavesdropper() {
    ending_ = true;
    thread_.join();
    close(socket_);
  }
  Eavesdropper(const Eavesdropper&) = delete;
  Eavesdropper& operator=(const Eavesdropper&) = delete;

  [[nodiscard]] bool Heard() const { return heard_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  void Listen() {
    std::string packet(1 << 17, '\0');
    while (!ending_) {
      pollfd wait{socket_, POLLIN, 0};
      if (poll(&wait, 1, 20) <= 0) continue;
      const ssize_t got = recv(socket_, packet.data(), packet.size(), MSG_DONTWAIT);
      if (got <= 0) continue;
      bytes_ += static_cast<std::uint64_t>(got);
      if (std::string_view(packet.data(), static_cast<std::size_t>(got)).find(text_) != std::string_view::npos)
        heard_ = true;
    }
  }

  const std::string text_;
  int socket_ = -1;
  std::atomic<bool> ending_{false};
  std::atomic<bool> heard_{false};
  std::atomic<std::uint64_t> bytes_{0};
  std::thread thread_;
};

}  // namespace manta::testing
