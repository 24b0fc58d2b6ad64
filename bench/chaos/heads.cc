#include "heads.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <filesystem>

#include "harness.h"
#include "processes.h"

namespace chaos {
namespace {

// "127.0.0.1:" and a port that was free a moment ago.
std::string FreePort() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  if (::bind(probe, reinterpret_cast<sockaddr*>(&name), size) != 0) bench::Fail("there is no free port");
  ::getsockname(probe, reinterpret_cast<sockaddr*>(&name), &size);
  ::close(probe);
  return "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
}

}  // namespace

Heads::Heads() : secrets_(folder_.path() + "/secrets"), etcd_address_(FreePort()), ports_{FreePort(), FreePort()} {
  const std::string clients = "http://" + etcd_address_;
  const std::string peers = "http://" + FreePort();
  etcd_.Start({"etcd", "--log-level", "error", "--data-dir", folder_.path() + "/etcd", "--listen-client-urls", clients,
               "--advertise-client-urls", clients, "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
               "--initial-cluster", "default=" + peers});
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const std::string number = std::to_string(i);
    const std::string address = "@manta-chaos-" + std::to_string(::getpid()) + "-" + number;
    members_[i].StartControl({"--member", "--folder", folder_.path() + "/member-" + number, "--address", address},
                             false);
    chain_ += (i == 0 ? "" : ",") + address;
  }
  addresses_ = ports_[0] + "," + ports_[1];
  Start(0);
  // It makes the secrets, which the other and the nodes need.
  for (const double end = bench::Now() + 30; !std::filesystem::exists(secrets_ + "/token"); bench::SleepMs(20)) {
    if (bench::Now() > end) bench::Fail("the head did not start within 30 s; is there an etcd?");
  }
  Start(1);
}

Heads::~Heads() = default;

void Heads::Start(std::size_t which) {
  heads_[which] = std::make_unique<bench::ServerProcess>();
  heads_[which]->StartControl(
      {"--chain", chain_, "--folder", folder_.path() + "/head-" + std::to_string(which), "--etcd", etcd_address_,
       "--etcd-term", "2", "--listen", ports_[which], "--secrets", secrets_},
      false);
}

void Heads::AwaitOther() {
  office_ = 1 - office_;
  for (const double end = bench::Now() + 60;; bench::SleepMs(50)) {
    try {
      static_cast<void>(bench::RunManta({"--secrets", secrets_, "nodes", "--address", ports_[office_]}));
      return;
    } catch (const std::exception&) {
      if (bench::Now() > end) throw;
    }
  }
}

void Heads::Kill() {
  const std::size_t former = office_;
  heads_[former].reset();
  AwaitOther();
  Start(former);
}

bool Heads::Silence() {
  const std::size_t former = office_;
  const pid_t pid = heads_[former]->pid();
  ::kill(pid, SIGSTOP);
  AwaitOther();
  ::kill(pid, SIGCONT);
  bool ended = false;
  for (const double end = bench::Now() + 10; !ended && bench::Now() < end; bench::SleepMs(5)) {
    ended = heads_[former]->Ended();
  }
  Start(former);
  return ended;
}

}  // namespace chaos
