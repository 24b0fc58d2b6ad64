// Workers on other nodes, as owners and daemons see them.
#include "node/far_leases.h"

#include "node/test_cluster.h"

namespace manta::node {
namespace {

class FarLeasesTest : public ClusterTest {
 protected:
  // n1 with one CPU, n2 with one CPU and two pieces of gold.
  void StartTwo(const std::vector<std::string>& of_second = {}) {
    StartControl();
    StartNode("n1");
    std::vector<std::string> words{"--resource", "gold=2"};
    words.insert(words.end(), of_second.begin(), of_second.end());
    StartNode("n2", words);
    // n1 hears of n2 a moment after n2 is ready; a driver sees what n1 knew when it came.
    do {
      driver_ = Driver("n1");
    } while (driver_->welcome.total.Get("gold") == 0);
  }
  std::unique_ptr<FarDriver> driver_;
};

TEST_F(FarLeasesTest, AreGrantedWhereTheResourceIs) {
  StartTwo();
  EXPECT_EQ(driver_->welcome.number, 1U);
  EXPECT_EQ(NodeOf(driver_->welcome.process), 1U);
  EXPECT_EQ(driver_->welcome.total.Get("gold"), 2 * kUnit);
  EXPECT_EQ(driver_->welcome.secrets, secrets_);
  EXPECT_EQ(driver_->welcome.listen, "127.0.0.1:0");
  const std::int64_t start = base::NowMicros();
  driver_->Send(Ask(1, "gold", fixture::kChatty));
  const auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  std::printf("the first lease on another node took %.1f ms\n", static_cast<double>(base::NowMicros() - start) / 1000);
  EXPECT_EQ(granted->request, 1U);
  EXPECT_EQ(NodeOf(granted->worker), 2U);
  EXPECT_EQ(granted->address, "127.0.0.1:1");
  EXPECT_NE(granted->pass, 0U);
  EXPECT_NE(granted->pid, 0U);
  EXPECT_TRUE(driver_->AwaitLine("line 99"));
}

TEST_F(FarLeasesTest, TheProgramIsShippedToAnotherMachine) {
  StartTwo({"--machine", "elsewhere"});
  driver_->Send(Ask(1, "gold", fixture::kChatty));
  const auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  char path[256];
  const ssize_t size = readlink(Cat("/proc/", granted->pid, "/exe").c_str(), path, sizeof path);
  EXPECT_NE(std::string(path, size > 0 ? static_cast<std::size_t>(size) : 0).find("manta-program"), std::string::npos);
  EXPECT_TRUE(driver_->AwaitLine("line 99"));
}

TEST_F(FarLeasesTest, AMissingLibraryIsNamed) {
  StartTwo();
  FarDriver driver(nodes_.at("n1").ready, Id{8, 1}, {"--missing-library"});
  driver.Send(Ask(1, "gold"));
  const auto refused = driver.Await<wire::LeaseRefused>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_NE(refused->failure.message.find("libgone.so.3"), std::string::npos) << refused->failure.message;
  EXPECT_NE(refused->failure.message.find("n2"), std::string::npos) << refused->failure.message;
}

TEST_F(FarLeasesTest, WhatNoNodeCanHoldIsRefusedWithTheNumbers) {
  StartTwo();
  driver_->Send(Ask(1, "silver"));
  const auto refused = driver_->Await<wire::LeaseRefused>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->failure.code, Code::kInfeasible);
  EXPECT_NE(refused->failure.message.find("silver"), std::string::npos) << refused->failure.message;
}

TEST_F(FarLeasesTest, OneThatWaitsTooLongGoesToAnIdleNode) {
  StartTwo();
  driver_->Send(Ask(1, "CPU", fixture::kBusy));
  auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(NodeOf(granted->worker), 1U);
  driver_->Send(Ask(2, "CPU", fixture::kBusy));
  granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(NodeOf(granted->worker), 2U);
  // Now everything is full: it waits, and can be cancelled.
  driver_->Send(Ask(3, "CPU"));
  EXPECT_FALSE(driver_->Await<wire::LeaseGranted>(100'000).has_value());
  driver_->Send(wire::LeaseCancel{3});
  const auto ended = driver_->Await<wire::LeaseEnded>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->request, 3U);
}

TEST_F(FarLeasesTest, AWorkerThatCrashesThereIsLostHere) {
  StartTwo();
  driver_->Send(Ask(1, "gold", fixture::kCrash));
  const auto lost = driver_->Await<wire::LeaseLost>();
  if (!lost.has_value()) {
    // It crashed before it said where it waits.
    EXPECT_TRUE(driver_->Await<wire::LeaseRefused>().has_value());
    return;
  }
  EXPECT_NE(lost->failure.message.find("SIGSEGV"), std::string::npos) << lost->failure.message;
}

TEST_F(FarLeasesTest, OfANodeThatIsKilledAreLostAtOnce) {
  StartTwo();
  driver_->Send(Ask(1, "gold", fixture::kBusy));
  const auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  nodes_.at("n2").Signal(SIGKILL);
  const std::int64_t start = base::NowMicros();
  const auto lost = driver_->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  std::printf("the lease of a killed node was lost in %.1f ms\n",
              static_cast<double>(base::NowMicros() - start) / 1000);
  EXPECT_EQ(lost->worker, granted->worker);
  EXPECT_EQ(lost->failure.code, Code::kWorkerCrashed);
  // Nobody has gold any more.
  driver_->Send(Ask(2, "gold"));
  EXPECT_TRUE(driver_->Await<wire::LeaseRefused>().has_value());
}

TEST_F(FarLeasesTest, AnOwnerThatCannotReachItsWorkerGetsItKilled) {
  StartTwo();
  driver_->Send(Ask(1, "gold", fixture::kBusy));
  ASSERT_TRUE(driver_->Await<wire::LeaseGranted>().has_value());
  driver_->Send(wire::LeaseBroken{1, "nobody listens there"});
  const auto lost = driver_->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_NE(lost->failure.message.find("nobody listens there"), std::string::npos) << lost->failure.message;
}

TEST_F(FarLeasesTest, KillWorkerReachesOtherNodes) {
  StartTwo();
  driver_->Send(Ask(1, "gold", fixture::kBusy));
  const auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  wire::KillWorker order;
  order.worker = granted->worker;
  order.failure = Failure{Code::kTimedOut, "took too long", {}, {}};
  driver_->Send(order);
  const auto lost = driver_->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->failure.code, Code::kTimedOut);
}

TEST_F(FarLeasesTest, AJobThatEndsEndsEverywhere) {
  StartTwo();
  driver_->Send(Ask(1, "gold", fixture::kBusy));
  const auto granted = driver_->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  driver_->Close();
  const std::int64_t deadline = base::NowMicros() + 5'000'000;
  while (kill(static_cast<pid_t>(granted->pid), 0) == 0 && base::NowMicros() < deadline) usleep(1000);
  EXPECT_NE(kill(static_cast<pid_t>(granted->pid), 0), 0);
  // Its node serves the next one.
  const auto other = Driver("n1", 8);
  other->Send(Ask(1, "gold"));
  EXPECT_TRUE(other->Await<wire::LeaseGranted>().has_value());
}

TEST_F(FarLeasesTest, AWorkersOwnRequestsCanGoToAThirdNode) {
  StartTwo();
  // The fixture's nested request needs nothing, so it stays there: this asks that it is served at all.
  driver_->Send(Ask(1, "gold", fixture::kNested));
  ASSERT_TRUE(driver_->Await<wire::LeaseGranted>().has_value());
  const auto other = Driver("n2", 9);
  other->Send(Ask(1, "CPU", fixture::kBusy));
  EXPECT_TRUE(other->Await<wire::LeaseGranted>().has_value());
}

}  // namespace
}  // namespace manta::node
