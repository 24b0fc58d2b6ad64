#include "node/leases.h"

#include <fstream>

#include "node/test_node.h"

namespace manta::node {
namespace {

using LeasesTest = NodeTest;

TEST_F(LeasesTest, AreGrantedUpToTheCpusAndNoFurther) {
  Start(2);
  const auto driver = Driver();
  for (int i = 1; i <= 3; ++i) driver->Send(Ask(i, 1, fixture::kBusy));
  const auto first = driver->Await<wire::LeaseGranted>();
  const auto second = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_NE(first->worker, second->worker);
  EXPECT_NE(first->pid, 0U);
  EXPECT_FALSE(driver->Has(wire::Kind::kLeaseGranted));
  // Workers count as in use once they run something.
  EXPECT_TRUE(
      driver->AwaitStatus([](const wire::StatusReply& status) { return status.in_use.Get("CPU") == 2 * kUnit; }));
}

TEST_F(LeasesTest, OfAnIdleWorkerAreTakenBackForSomebodyWhoWaits) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kPlain));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  driver->Send(Ask(2, 1, fixture::kBusy));
  const auto ended = driver->Await<wire::LeaseEnded>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->request, 1U);
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  EXPECT_EQ(granted->request, 2U);
}

TEST_F(LeasesTest, AWorkerThatWasRungBeforeItKnewOfItsLeaseIsRungAgain) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kDeaf));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  driver->Send(Ask(2, 1, fixture::kBusy));
  EXPECT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
}

TEST_F(LeasesTest, ThatCanNeverBeGrantedAreRefusedWithTheNumbers) {
  Start(2);
  const auto driver = Driver();
  driver->Send(Ask(1, 5));
  const auto refused = driver->Await<wire::LeaseRefused>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->failure.code, Code::kInfeasible);
  EXPECT_NE(refused->failure.message.find('5'), std::string::npos) << refused->failure.message;
  EXPECT_NE(refused->failure.message.find('2'), std::string::npos) << refused->failure.message;
}

TEST_F(LeasesTest, ThatStillWaitCanBeCancelled) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kBusy));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  driver->Send(Ask(2, 1));
  driver->Send(wire::LeaseCancel{2});
  const auto ended = driver->Await<wire::LeaseEnded>();
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->request, 2U);
  driver->Send(wire::LeaseCancel{1});
  driver->Send(wire::LeaseCancel{99});
  EXPECT_FALSE(driver->Has(wire::Kind::kLeaseEnded));
}

TEST_F(LeasesTest, ARequestMadeTwiceEndsItsMaker) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1));
  driver->Send(Ask(1, 1));
  EXPECT_TRUE(driver->AwaitClose());
}

TEST_F(LeasesTest, AQueueOutsideTheArenaIsRefused) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, 12345));
  const auto refused = driver->Await<wire::LeaseRefused>();
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->failure.code, Code::kInvalid);
}

TEST_F(LeasesTest, AWorkerThatCrashesIsReportedWithItsSignalAndLastLines) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kCrash));
  const auto granted = driver->Await<wire::LeaseGranted>();
  const auto lost = driver->Await<wire::LeaseLost>();
  ASSERT_TRUE(granted.has_value() && lost.has_value());
  EXPECT_EQ(lost->request, 1U);
  EXPECT_EQ(lost->worker, granted->worker);
  EXPECT_EQ(lost->failure.code, Code::kWorkerCrashed);
  const std::string& text = lost->failure.message;
  EXPECT_NE(text.find(Cat("worker ", granted->pid)), std::string::npos) << text;
  EXPECT_NE(text.find("signal 11 (SIGSEGV)"), std::string::npos) << text;
  EXPECT_NE(text.find("about to crash"), std::string::npos) << text;
  EXPECT_NE(text.find("no newline here"), std::string::npos) << text;
  const std::vector<wire::LogLine> lines = driver->AwaitLine("no newline here");
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines[lines.size() - 2].text, "about to crash");
  EXPECT_EQ(lines[lines.size() - 2].label, "crasher");
  EXPECT_EQ(lines.back().pid, granted->pid);
  // Its CPU is free again.
  driver->Send(Ask(2, 1));
  EXPECT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
}

TEST_F(LeasesTest, AWorkerThatExitsIsReportedWithItsStatus) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kExit3));
  const auto lost = driver->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_NE(lost->failure.message.find("exited with status 3"), std::string::npos) << lost->failure.message;
}

TEST_F(LeasesTest, EveryLineAWorkerPrintsArrivesOnceAndInOrder) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kChatty));
  const std::vector<wire::LogLine> lines = driver->AwaitLine("line 99");
  ASSERT_EQ(lines.size(), 100U);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(lines[static_cast<std::size_t>(i)].text, Cat("line ", i));
}

TEST_F(LeasesTest, AnOwnerCanHaveItsWorkerKilledAndSaysWhy) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kBusy));
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  driver->Send(wire::KillWorker{granted->worker, false, Failure{Code::kTimedOut, "took too long", {}, {}}});
  const auto lost = driver->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->failure.code, Code::kTimedOut);
  EXPECT_EQ(lost->failure.message, "took too long");
}

TEST_F(LeasesTest, AWorkerThatRunsAnotherCallIsSpared) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kBusy));
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  const Failure failure{Code::kCancelled, "cancelled", {}, {}};
  driver->Send(wire::KillWorker{granted->worker, false, failure, /*token=*/77});
  driver->Settle();
  EXPECT_FALSE(driver->Has(wire::Kind::kLeaseLost));
  driver->Send(wire::KillWorker{granted->worker, false, failure});
  EXPECT_TRUE(driver->Await<wire::LeaseLost>().has_value());
}

TEST_F(LeasesTest, AStrangersWorkerCannotBeKilled) {
  Start(2);
  const auto driver = Driver(1);
  const auto other = Driver(2);
  driver->Send(Ask(1, 1, fixture::kBusy));
  const auto granted = driver->Await<wire::LeaseGranted>();
  other->Send(wire::KillWorker{granted->worker, false, Failure{Code::kTimedOut, "mine", {}, {}}});
  other->Settle();
  EXPECT_FALSE(driver->Has(wire::Kind::kLeaseLost));
}

TEST_F(LeasesTest, AWorkerMayAskForWorkersItself) {
  Start(2);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kNested));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  EXPECT_TRUE(driver->AwaitStatus([](const wire::StatusReply& status) { return status.workers >= 2; }));
}

TEST_F(LeasesTest, AProgramThatDoesNotStartIsAnErrorAndNotAHang) {
  setenv("FIXTURE_BROKEN", "1", 1);
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  // Private: the environment is this process's own as it is now.
  Start(1, [&](Config& config) { config.private_fd = pair[1]; });
  TestClient driver(*daemon_, base::Fd(pair[0]));
  driver.SayHello(Id{1, 1});
  driver.Send(Ask(1, 1));
  const auto refused = driver.Await<wire::LeaseRefused>();
  unsetenv("FIXTURE_BROKEN");
  ASSERT_TRUE(refused.has_value());
  EXPECT_EQ(refused->failure.code, Code::kUnavailable);
  EXPECT_NE(refused->failure.message.find("statics are broken"), std::string::npos) << refused->failure.message;
  EXPECT_NE(refused->failure.message.find("exited with status 9"), std::string::npos) << refused->failure.message;
}

TEST_F(LeasesTest, IdleWorkersBeyondTheCpusLeaveAfterAWhile) {
  Start(1, [](Config& config) { config.pool.idle_us = 20'000; });
  const auto driver = Driver();
  for (int i = 1; i <= 3; ++i) driver->Send(Ask(i, 0.3, fixture::kPlain + 64 * i));
  for (int i = 1; i <= 3; ++i) ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  driver->Send(Ask(4, 1, fixture::kBusy));  // all three are taken back
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  EXPECT_TRUE(driver->AwaitStatus([](const wire::StatusReply& status) { return status.workers == 2; }));
}

TEST_F(LeasesTest, AForkServerThatDiesTakesItsWorkersAndIsReplaced) {
  Start(1);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kBusy));
  const auto granted = driver->Await<wire::LeaseGranted>();
  ASSERT_TRUE(granted.has_value());
  std::ifstream stat(Cat("/proc/", granted->pid, "/stat"));
  std::string pid, name, state;
  pid_t parent = 0;
  stat >> pid >> name >> state >> parent;
  ASSERT_GT(parent, 1);
  kill(parent, SIGKILL);
  const auto lost = driver->Await<wire::LeaseLost>();
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->failure.code, Code::kWorkerCrashed) << lost->failure.message;
  driver->Send(Ask(2, 1));
  EXPECT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
}

TEST_F(LeasesTest, ADriverThatDiesTakesItsWorkersWithIt) {
  Start(2);
  const auto watcher = Driver(1);
  {
    const auto driver = Driver(2);
    driver->Send(Ask(1, 1, fixture::kBusy));
    ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  }
  watcher->Send(Ask(1, 2, fixture::kBusy));
  EXPECT_TRUE(watcher->Await<wire::LeaseGranted>().has_value());
}

TEST_F(LeasesTest, GoodbyeIsAnsweredWhenTheLastLinesAreThere) {
  Start(2);
  const auto driver = Driver();
  driver->Send(Ask(1, 1, fixture::kPlain));
  ASSERT_TRUE(driver->Await<wire::LeaseGranted>().has_value());
  driver->Send(wire::Goodbye{}, 4);
  const std::optional<wire::Frame> done = driver->Await(wire::Kind::kDone);
  ASSERT_TRUE(done.has_value());
  EXPECT_EQ(done->call, 4U);
  // An idle worker was asked to leave, not killed: its farewell came before Done.
  EXPECT_TRUE(driver->Has(wire::Kind::kLogLines));
}

}  // namespace
}  // namespace manta::node
