// Clusters of real processes: bin/manta-control and bin/mantad on loopback.
#include "node/cluster.h"

#include "node/test_cluster.h"

namespace manta::node {
namespace {

using State = wire::NodeFacts::State;

TEST_F(ClusterTest, ANodeJoinsWithinATenthOfASecond) {
  StartControl();
  StartNode("n1");
  const std::int64_t start = base::NowMicros();
  StartNode("n2", {"--label", "zone=a"});
  RecordProperty("join_us", static_cast<int>(base::NowMicros() - start));
  std::printf("a node joined in %.1f ms\n", static_cast<double>(base::NowMicros() - start) / 1000);
  const Result<std::vector<wire::NodeFacts>> nodes = Tool()->Nodes(false, 5'000'000);
  ASSERT_TRUE(nodes.ok());
  ASSERT_EQ(nodes.value().size(), 2U);
  EXPECT_EQ(nodes.value()[0].number, 1U);
  EXPECT_EQ(nodes.value()[1].number, 2U);
  const wire::NodeFacts* second = Named(nodes.value(), "n2");
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->state, State::kAlive);
  EXPECT_EQ(second->labels.at("zone"), "a");
  EXPECT_EQ(second->total.Get("CPU"), kUnit);
  EXPECT_EQ(second->pid, static_cast<std::uint32_t>(nodes_.at("n2").pid()));
}

TEST_F(ClusterTest, TenNodesAreUpWithinASecond) {
  StartControl();
  const std::int64_t start = base::NowMicros();
  for (int i = 1; i <= 10; ++i) StartNode(Cat("n", i), {}, false);
  for (int i = 1; i <= 10; ++i) {
    Program9& node = nodes_.at(Cat("n", i));
    if (node.Ready().empty()) ADD_FAILURE() << "n" << i << " ended: " << node.Wait();
  }
  std::printf("ten nodes were up in %.1f ms\n", static_cast<double>(base::NowMicros() - start) / 1000);
  EXPECT_EQ(Tool()->Nodes(false, 5000000)->size(), 10U);
}

TEST_F(ClusterTest, ANodeThatIsKilledIsNoticedAtOnceAndOneThatIsStoppedLeaves) {
  StartControl();
  StartNode("n1");
  StartNode("n2");
  StartNode("n3");
  nodes_.at("n2").Signal(SIGKILL);
  const std::int64_t took = AwaitNodes([](const auto& nodes) {
    const wire::NodeFacts* node = Named(nodes, "n2");
    return node != nullptr && node->state == State::kDead;
  });
  std::printf("a killed node was noticed in %.1f ms\n", static_cast<double>(took) / 1000);
  EXPECT_GE(took, 0);
  EXPECT_LT(took, 2'000'000);
  EXPECT_EQ(nodes_.at("n3").End(SIGTERM), 0);
  EXPECT_GE(AwaitNodes([](const auto& nodes) { return Named(nodes, "n3")->state == State::kLeft; }), 0);
  // Its name is free again, its number is not.
  nodes_.at("n2").Wait();
  nodes_.erase("n2");
  StartNode("n2");
  const Result<std::vector<wire::NodeFacts>> nodes = Tool()->Nodes(false, 5'000'000);
  EXPECT_EQ(Named(nodes.value(), "n2")->number, 4U);
}

TEST_F(ClusterTest, ControlComesBackAfterAKillAndKnowsItsNodes) {
  StartControl();
  StartNode("n1");
  StartNode("n2", {"--resource", "gold=1"});
  const auto driver = Driver("n1");
  driver->Send(Ask(1, "CPU", fixture::kBusy));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  control_->End(SIGKILL);
  // What is local goes on without it.
  EXPECT_FALSE(driver->Await<wire::LeaseLost>(50'000).has_value());
  StartControl(head_);
  // Its heartbeats say so: all of n1 is in use, nothing of n2.
  EXPECT_GE(AwaitNodes([](const auto& nodes) {
              return nodes.size() == 2 && nodes[0].state == State::kAlive && nodes[0].available.Get("CPU") == 0 &&
                     nodes[1].available == nodes[1].total;
            }),
            0);
  const Result<std::vector<wire::NodeFacts>> nodes = Tool()->Nodes(true, 5'000'000);
  EXPECT_EQ(Named(nodes.value(), "n1")->number, 1U);
  EXPECT_EQ(Named(nodes.value(), "n2")->incarnation, 1U);
  // And it places again.
  driver->Send(Ask(2, "gold"));
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(NodeOf(granted->worker), 2U);
  StartNode("n3");
  EXPECT_EQ(Named(Tool()->Nodes(true, 5'000'000).value(), "n3")->number, 3U);
}

TEST_F(ClusterTest, ANodeWithAnotherTokenIsRefusedAndSaysSo) {
  StartControl();
  ASSERT_TRUE(wire::Secrets::OpenOrCreate((folder_ / "others")).ok());
  Program9 stranger;
  stranger.Start("mantad", {"--head-address", head_, "--secrets", (folder_ / "others"), "--cpus", "1"});
  EXPECT_EQ(stranger.Ready(), "");
  const int status = stranger.Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_TRUE(Tool()->Nodes(true, 5'000'000)->empty());
}

TEST_F(ClusterTest, AnotherVersionIsRefusedWithBothVersions) {
  StartControl();
  wire::DialOptions options;
  options.role = wire::LinkRole::kNode;
  options.secrets = *wire::Secrets::Open(secrets_);
  options.versions = {7, 9};
  const Result<wire::Link> link = wire::DialAndWait(head_, options);
  ASSERT_FALSE(link.ok());
  EXPECT_NE(link.status().message().find('7'), std::string::npos) << link.status().message();
  EXPECT_NE(link.status().message().find('1'), std::string::npos) << link.status().message();
}

TEST_F(ClusterTest, ANameThatIsTakenIsRefused) {
  StartControl();
  StartNode("n1");
  Program9 twin;
  twin.Start("mantad", {"--head-address", head_, "--secrets", secrets_, "--name", "n1", "--cpus", "1"});
  EXPECT_EQ(twin.Ready(), "");
  EXPECT_EQ(WEXITSTATUS(twin.Wait()), 1);
}

TEST_F(ClusterTest, ADrainedNodeFinishesAndLeaves) {
  StartControl();
  StartNode("n1");
  StartNode("n2", {"--resource", "gold=2"});
  const auto driver = Driver("n1");
  driver->Send(Ask(1, "gold"));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  EXPECT_TRUE(Tool()->Drain("n2", 10'000'000).ok());
  const auto ended = driver->Await<wire::LeaseEnded>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->request, 1U);
  EXPECT_EQ(nodes_.at("n2").Wait(), 0);
  EXPECT_EQ(Named(Tool()->Nodes(true, 5'000'000).value(), "n2")->state, State::kLeft);
  const Status unknown = Tool()->Drain("n9", 1'000'000);
  EXPECT_EQ(unknown.code(), Code::kNotFound);
}

TEST_F(ClusterTest, ANodeThatIsCutOffEndsByItself) {
  StartControl();
  StartNode("n1");
  const auto driver = Driver("n1");
  driver->Send(Ask(1, "CPU", fixture::kBusy));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  // A head that hangs is a head that others may still reach.
  control_->Signal(SIGSTOP);
  const std::int64_t start = base::NowMicros();
  const int status = nodes_.at("n1").Wait();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << status;
  EXPECT_GT(base::NowMicros() - start, 10'000'000) << "it did not wait for the head";
  EXPECT_LT(base::NowMicros() - start, 20'000'000);
  control_->Signal(SIGCONT);
}

TEST_F(ClusterTest, IsStoppedAsAWhole) {
  StartControl();
  StartNode("n1");
  StartNode("n2");
  EXPECT_TRUE(Tool()->Stop(5'000'000).ok());
  EXPECT_EQ(nodes_.at("n1").Wait(), 0);
  EXPECT_EQ(nodes_.at("n2").Wait(), 0);
  EXPECT_EQ(control_->Wait(), 0);
}

}  // namespace
}  // namespace manta::node
