#include "node/scheduler_link.h"

#include <gtest/gtest.h>

#include <map>

#include "node/test_cluster.h"

namespace manta::node {
namespace {

TEST(SchedulerLink, NodesShareTheSchedulersAndAreMovedOnlyFromTheOneThatIsGone) {
  const std::vector<std::uint32_t> all{2, 3, 4};
  std::map<std::uint32_t, int> load;
  for (NodeNumber node = 1; node <= 300; ++node) {
    const std::uint32_t chosen = SchedulerLink::Choose(node, all);
    ++load[chosen];
    const std::uint32_t after = SchedulerLink::Choose(node, {2, 4});
    if (chosen != 3) {
      EXPECT_EQ(after, chosen);
    }
  }
  for (const std::uint32_t replica : all) EXPECT_GT(load[replica], 60);
  EXPECT_EQ(SchedulerLink::Choose(1, {}), 0U);
}

class SchedulerTest : public ClusterTest {
 protected:
  Program9& StartScheduler(const std::string& name) {
    Program9& scheduler = nodes_[name];
    scheduler.Start("manta-control", {"--scheduler", "--join", head_, "--secrets", secrets_});
    EXPECT_FALSE(scheduler.Ready().empty());
    return scheduler;
  }
};

TEST_F(SchedulerTest, IsNamedToAllAndForgottenWhenItEnds) {
  StartControl();
  StartNode("n1");
  StartScheduler("s1");
  Program9& second = StartScheduler("s2");
  const std::unique_ptr<HeadTool> tool = Tool();
  Result<wire::ClusterView> view = tool->View(false, 5'000'000);
  ASSERT_TRUE(view.ok());
  ASSERT_EQ(view->schedulers.size(), 2U);
  EXPECT_NE(view->schedulers[0].replica, view->schedulers[1].replica);
  EXPECT_EQ(view->schedulers[1].address, second.ready);
  second.End(SIGKILL);
  const std::int64_t end = base::NowMicros() + kPatienceUs;
  while (view.ok() && view->schedulers.size() != 1 && base::NowMicros() < end) view = tool->View(false, 5'000'000);
  EXPECT_EQ(view->schedulers.size(), 1U);
}

TEST_F(SchedulerTest, PlacesWhatItsNodeAsksAndEndsWithTheCluster) {
  StartControl();
  StartNode("n1");
  Program9& scheduler = StartScheduler("s1");
  StartNode("n2", {"--resource", "gold=1"});
  const std::unique_ptr<FarDriver> driver = Driver("n1");
  driver->Send(Ask(1, "gold"));
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(NodeOf(granted->worker), 2U);
  driver->Send(Ask(2, "silver"));
  const auto refused = driver->Await<wire::LeaseRefused>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->failure.code, Code::kInfeasible);
  ASSERT_TRUE(Tool()->Stop(5'000'000).ok());
  EXPECT_EQ(scheduler.Wait(), 0);
}

TEST_F(SchedulerTest, WithAWrongTokenSaysSoAndEnds) {
  StartControl();
  const std::string other = folder_ / "other";
  ASSERT_TRUE(wire::Secrets::OpenOrCreate(other).ok());
  Program9 scheduler;
  scheduler.Start("manta-control", {"--scheduler", "--join", head_, "--secrets", other});
  EXPECT_EQ(scheduler.Ready(), "");
  EXPECT_NE(scheduler.Wait(), 0);
}

}  // namespace
}  // namespace manta::node
