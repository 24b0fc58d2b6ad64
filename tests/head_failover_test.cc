// The head of a cluster is lost and another takes over, at another address: tables in a chain of members, the chain's
// configuration in etcd, nodes that know both heads. Real processes; the program that runs meanwhile sees nothing of
// it.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <set>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

// Says so in a file, after a while. One line for each time that it runs to its end.
int SignLate(const std::string& path, int number, int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  const std::string line = std::to_string(number) + "\n";
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(file, line.data(), line.size()) < 0) std::abort();
  close(file);
  return number;
}

std::string EtcdProgram() {
  for (const char* path : {"/usr/bin/etcd", "/usr/local/bin/etcd"}) {
    if (access(path, X_OK) == 0) return path;
  }
  return {};
}

// "127.0.0.1:" and a port that was free a moment ago.
std::string FreePort() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof name;
  if (bind(probe, reinterpret_cast<sockaddr*>(&name), size) != 0) std::abort();
  getsockname(probe, reinterpret_cast<sockaddr*>(&name), &size);
  close(probe);
  return "127.0.0.1:" + std::to_string(ntohs(name.sin_port));
}

class HeadFailoverTest : public ClusterFixture {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    if (EtcdProgram().empty()) GTEST_SKIP() << "there is no etcd";
    // Who starts too early waits for the others.
    etcd_port_ = FreePort();
    const std::string peers = "http://" + FreePort();
    const std::string clients = "http://" + etcd_port_;
    etcd_ = std::make_unique<Child>(
        EtcdProgram(),
        std::vector<std::string>{"--data-dir", folder_.path() + "/etcd", "--listen-client-urls", clients,
                                 "--advertise-client-urls", clients, "--listen-peer-urls", peers,
                                 "--initial-advertise-peer-urls", peers, "--initial-cluster", "default=" + peers});
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::string number = std::to_string(i);
      const std::string address = "@manta-failover-" + std::to_string(getpid()) + "-" + number;
      members_[i] = std::make_unique<Child>(
          "manta-control",
          std::vector<std::string>{"--member", "--folder", folder_.path() + "/member-" + number, "--address", address});
      chain_ += (i == 0 ? "" : ",") + address;
    }
    ports_ = {FreePort(), FreePort()};
    StartHead(0);
    for (const char* name : {"n1", "n2"}) {
      ASSERT_NO_FATAL_FAILURE(Start({"--join", ports_[0] + "," + ports_[1], "--name", name, "--cpus", "1"}))
          << heads_[0]->Err();
    }
    StartHead(1);
    ASSERT_TRUE(Eventually([&] { return heads_[1]->Err().find("waiting to take over") != std::string::npos; }, 30s))
        << heads_[1]->Err();
  }
  void TearDown() override {
    Shutdown();
    Manta({"stop"});  // the nodes, before their heads
    for (auto& head : heads_) head.reset();
    for (auto& member : members_) member.reset();
    etcd_.reset();
    ClusterFixture::TearDown();
  }
  void StartHead(std::size_t i, const std::vector<std::string>& environment = {}) {
    heads_[i].reset();
    heads_[i] = std::make_unique<Child>(
        "manta-control",
        std::vector<std::string>{"--chain", chain_, "--folder", folder_.path() + "/head-" + std::to_string(i), "--etcd",
                                 etcd_port_, "--etcd-term", "2", "--listen", ports_[i], "--secrets", secrets_},
        environment);
    // The folder of the secrets is made by the first.
    ASSERT_TRUE(Eventually([&] { return std::filesystem::exists(secrets_ + "/token"); }, 30s)) << heads_[i]->Err();
  }
  // The workers of both nodes: children of fork servers, which are the daemons' children.
  [[nodiscard]] std::vector<Process> Workers() const {
    std::vector<Process> workers;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const pid_t pid = std::atoi(entry.path().filename().c_str());
      const Process process = pid > 0 ? LookAt(pid) : Process{};
      if (process.name != "manta-worker" || !Alive(pid)) continue;
      const pid_t daemon = LookAt(process.parent).parent;
      if (daemon == PidOf("node", "n1") || daemon == PidOf("node", "n2")) workers.push_back(process);
    }
    return workers;
  }
  // Is each of them stopped, or none? There is one at least.
  [[nodiscard]] bool WorkersAre(bool stopped) const {
    const std::vector<Process> workers = Workers();
    return !workers.empty() && std::all_of(workers.begin(), workers.end(),
                                           [&](const Process& worker) { return (worker.state == 'T') == stopped; });
  }
  // The nodes that so many tasks ran on.
  static std::set<std::string> RunTasks(int count) {
    std::vector<Ref<std::string>> refs;
    for (int i = 0; i < count; ++i) refs.push_back(Task(WhereAmI).Remote(20));
    std::set<std::string> nodes;
    for (const Ref<std::string>& ref : refs) nodes.insert(ref.Get());
    return nodes;
  }

  std::string etcd_port_;
  std::unique_ptr<Child> etcd_;
  std::string chain_;
  std::array<std::unique_ptr<Child>, 3> members_;
  std::array<std::string, 2> ports_;
  std::array<std::unique_ptr<Child>, 2> heads_;
};

TEST_F(HeadFailoverTest, TheClusterGoesOnWithAnotherHead) {
  Init();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << "the second node does not take part";
  const std::array<pid_t, 2> nodes{PidOf("node", "n1"), PidOf("node", "n2")};
  heads_[0].reset();    // kill -9
  members_[0].reset();  // was on the same machine
  RunTasks(4);          // what has room on its node waits for no head
  std::string errors;
  ASSERT_TRUE(Eventually([&] { return !Manta({"nodes"}, &errors).empty(); }, 30s)) << errors << heads_[1]->Err();
  // The nodes are the same processes, and give each other work again.
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << Manta({"nodes"});
  for (const pid_t node : nodes) EXPECT_TRUE(Alive(node));
}

// The second head has taken over and read the tables, and dies before it has taken in anybody.
TEST_F(HeadFailoverTest, AHeadThatDiesWhileItTakesOverIsFollowedByTheNext) {
  Init();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << "the second node does not take part";
  const std::array<pid_t, 2> nodes{PidOf("node", "n1"), PidOf("node", "n2")};
  StartHead(1, {"MANTA_FAILPOINTS=head.opened=kill@1"});
  ASSERT_TRUE(Eventually([&] { return heads_[1]->Err().find("waiting to take over") != std::string::npos; }, 30s))
      << heads_[1]->Err();
  heads_[0].reset();
  ASSERT_TRUE(Eventually([&] { return heads_[1]->Ended(); }, 30s)) << "head.opened is not reached";
  RunTasks(4);
  StartHead(0);
  std::string errors;
  ASSERT_TRUE(Eventually([&] { return !Manta({"nodes"}, &errors).empty(); }, 30s)) << errors << heads_[0]->Err();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << Manta({"nodes"});
  for (const pid_t node : nodes) EXPECT_TRUE(Alive(node));
}

// Nobody is told anything: its processes are stopped, as by a cut cable. Nodes cannot tell that from being cut off
// themselves, and stand still until there is another head, which knows that nobody has done their work again.
TEST_F(HeadFailoverTest, TheClusterGoesOnWhenTheHeadsMachineFallsSilent) {
  Init();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << "the second node does not take part";
  const std::array<pid_t, 2> nodes{PidOf("node", "n1"), PidOf("node", "n2")};
  const std::string path = folder_.path() + "/signed";
  constexpr int kTasks = 24;
  std::vector<Ref<int>> refs;
  for (int i = 0; i < kTasks; ++i) refs.push_back(Task(SignLate).Remote(path, i, 500));
  kill(heads_[0]->pid(), SIGSTOP);
  kill(members_[0]->pid(), SIGSTOP);  // was on the same machine
  // In the middle of this the nodes have stood still, and the other head has taken over.
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(refs[static_cast<std::size_t>(i)].Get(), i);
  std::string errors;
  ASSERT_TRUE(Eventually([&] { return !Manta({"nodes"}, &errors).empty(); }, 30s)) << errors << heads_[1]->Err();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << Manta({"nodes"});
  for (const pid_t node : nodes) EXPECT_TRUE(Alive(node));
  // Nothing was lost, and nothing was done twice.
  std::multiset<std::string> lines;
  for (const std::string& line : Lines(ReadFile(path))) lines.insert(line);
  for (int i = 0; i < kTasks; ++i) EXPECT_EQ(lines.count(std::to_string(i)), 1U) << "task " << i;
  // The former head has nothing to say any more.
  kill(members_[0]->pid(), SIGCONT);
  kill(heads_[0]->pid(), SIGCONT);
  EXPECT_TRUE(Eventually([&] { return heads_[0]->Ended(); }, 30s)) << heads_[0]->Err();
  EXPECT_EQ(RunTasks(20).size(), 2U);
}

// The same for one that is only late: it is still the head, and has given nobody up.
TEST_F(HeadFailoverTest, AHeadThatWasStoppedForAMomentFindsItsNodesAsTheyWere) {
  Init();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << "the second node does not take part";
  const std::array<pid_t, 2> nodes{PidOf("node", "n1"), PidOf("node", "n2")};
  heads_[1].reset();  // nobody could take over
  kill(heads_[0]->pid(), SIGSTOP);
  // A node goes on for a while without an answer, and then nothing of it does anything.
  EXPECT_TRUE(Eventually([&] { return WorkersAre(true); }, 30s)) << Describe(Workers());
  std::this_thread::sleep_for(1s);  // in all longer than the head's own term
  EXPECT_TRUE(WorkersAre(true)) << Describe(Workers());
  kill(heads_[0]->pid(), SIGCONT);
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << heads_[0]->Err();
  EXPECT_TRUE(Eventually([&] { return WorkersAre(false); }, 30s)) << Describe(Workers());
  for (const pid_t node : nodes) EXPECT_TRUE(Alive(node));
}

}  // namespace
}  // namespace manta::testing
