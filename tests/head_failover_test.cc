// The head of a cluster is lost and another takes over, at another address: tables in a chain of members, the chain's
// configuration in etcd, nodes that know both heads. Real processes; the program that runs meanwhile sees nothing of
// it.
#include <array>
#include <set>

#include "cluster_fixture.h"
#include "control/test_etcd.h"
#include "control/test_process.h"

namespace manta::testing {
namespace {

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

class HeadFailoverTest : public ClusterFixture {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    if (!control::HasEtcd()) GTEST_SKIP() << "there is no etcd";
    etcd_.Start(folder_.path());
    std::string chain;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const std::string number = std::to_string(i);
      const std::string address = "@manta-failover-" + std::to_string(getpid()) + "-" + number;
      ASSERT_EQ(members_[i].Start({"--member", "--folder", folder_.path() + "/member-" + number, "--address", address}),
                address + "\n");
      chain += (i == 0 ? "" : ",") + address;
    }
    for (std::size_t i = 0; i < heads_.size(); ++i) {
      ports_[i] = control::EtcdServer::FreePort();
      words_[i] = {"--chain",  chain,           "--folder",    folder_.path() + "/head-" + std::to_string(i),
                   "--etcd",   etcd_.address(), "--etcd-term", "2",
                   "--listen", ports_[i],       "--secrets",   secrets_};
    }
    ASSERT_EQ(heads_[0].Start(words_[0]), ports_[0] + "\n");
    ASSERT_TRUE(heads_[1].Begin(words_[1]));
    ASSERT_TRUE(heads_[1].WaitFor("waiting to take over"));
    for (const char* name : {"n1", "n2"}) {
      ASSERT_NO_FATAL_FAILURE(Start({"--join", ports_[0] + "," + ports_[1], "--name", name, "--cpus", "1"}));
    }
  }
  void TearDown() override {
    Shutdown();
    Manta({"stop"});  // before the heads: nodes without one wait for it
    for (auto& head : heads_) head.End(SIGKILL);
    for (auto& member : members_) member.End(SIGKILL);
    etcd_.Kill();
    ClusterFixture::TearDown();
  }
  // The nodes that so many tasks ran on.
  std::set<std::string> RunTasks(int count) {
    std::vector<Ref<std::string>> refs;
    for (int i = 0; i < count; ++i) refs.push_back(Task(WhereAmI).Remote(20));
    std::set<std::string> nodes;
    for (const Ref<std::string>& ref : refs) nodes.insert(ref.Get());
    return nodes;
  }

  control::EtcdServer etcd_;
  std::array<control::ControlProcess, 3> members_;
  std::array<control::ControlProcess, 2> heads_;
  std::array<std::string, 2> ports_;
  std::array<std::vector<std::string>, 2> words_;
};

TEST_F(HeadFailoverTest, TheClusterGoesOnWithAnotherHead) {
  Init();
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << "the second node does not take part";
  const std::array<pid_t, 2> nodes{PidOf("node", "n1"), PidOf("node", "n2")};
  ASSERT_TRUE(WIFSIGNALED(heads_[0].End(SIGKILL)));
  ASSERT_TRUE(WIFSIGNALED(members_[0].End(SIGKILL)));  // was on the same machine
  RunTasks(4);                                         // what has room on its node waits for no head
  EXPECT_EQ(heads_[1].WaitReady(), ports_[1] + "\n");
  // The nodes are the same processes, and know each other.
  ASSERT_TRUE(Eventually([&] { return RunTasks(20).size() == 2; }, 30s)) << Manta({"nodes"});
  for (const pid_t node : nodes) EXPECT_TRUE(Alive(node));
  EXPECT_EQ(PidOf("node", "n1"), nodes[0]);
}

}  // namespace
}  // namespace manta::testing
