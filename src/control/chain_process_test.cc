// A chain of processes, whose members are killed under a client that writes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

#include "control/test_chain.h"
#include "control/test_redis.h"

namespace manta::control {
namespace {

class ChainOverTcpTest : public ChainProcessTest {
 protected:
  ChainOverTcpTest() { tcp_ = true; }
};

// The first member, which fills the others, is slow to begin.
class ChainLateFirstTest : public ChainProcessTest {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(StartMembers());
    kill(members_[1].pid(), SIGSTOP);
    std::thread wakes([pid = members_[1].pid()] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // longer than the silence of a member that spoke
      kill(pid, SIGCONT);
    });
    StartFront();
    wakes.join();
  }
};

// A Redis server for each member.
class ChainOverRedisTest : public ChainProcessTest {
 protected:
  void SetUp() override {
    if (!HasRedis()) GTEST_SKIP() << "there is no redis-server";
    ChainProcessTest::SetUp();
  }
  void StartMembers() override {
    for (std::size_t i = 1; i <= kMembers; ++i) {
      const std::string folder = folder_.path() + "/redis-" + std::to_string(i);
      ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
      servers_[i].Start(folder, {"--port", "0", "--unixsocket", folder + "/sock", "--unixsocketperm", "700",
                                 "--appendonly", "yes", "--appendfsync", "always"});
      ASSERT_NO_FATAL_FAILURE(StartMember(i, Copy(i)));
    }
  }
  void Again(std::size_t i) override { StartMember(i, Copy(i)); }
  [[nodiscard]] std::vector<std::string> Copy(std::size_t i) const {
    return {"--redis", "unix:" + folder_.path() + "/redis-" + std::to_string(i) + "/sock"};
  }
  std::array<RedisServer, kMembers + 1> servers_;
};

TEST_F(ChainProcessTest, MembersKilledUnderLoadLoseNoAcknowledgedKey) {
  KillMembersUnderLoad({"head", "tail", "middle", "head", "tail", "middle"});
}

TEST_F(ChainLateFirstTest, AChainWhoseFirstMemberComesLastIsWholeAllTheSame) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

TEST_F(ChainOverTcpTest, MembersKilledUnderLoadLoseNoAcknowledgedKey) {
  KillMembersUnderLoad({"head", "tail", "middle"});
}

TEST_F(ChainOverRedisTest, MembersKilledUnderLoadLoseNoAcknowledgedKey) {
  KillMembersUnderLoad({"head", "tail", "middle"});
}

// Every member dies once at this place, whichever it is in the chain, and comes back.
class ChainFailpointTest : public ChainProcessTest, public testing::WithParamInterface<const char*> {
 protected:
  void StartMembers() override {
    const std::string rule = std::string(GetParam()) + "=kill@30";
    setenv("MANTA_FAILPOINTS", rule.c_str(), 1);
    ChainProcessTest::StartMembers();
    unsetenv("MANTA_FAILPOINTS");
  }
  // Starts members again that have died. How many that were.
  std::size_t Revive() {
    std::size_t dead = 0;
    for (std::size_t i = 1; i <= kMembers; ++i) {
      siginfo_t info{};
      const int waited = waitid(P_PID, static_cast<id_t>(members_[i].pid()), &info, WEXITED | WNOHANG | WNOWAIT);
      if (waited != 0 || info.si_pid == 0) continue;
      ++dead;
      EXPECT_TRUE(WIFSIGNALED(members_[i].End(SIGKILL)));
      Again(i);
    }
    return dead;
  }
};

TEST_P(ChainFailpointTest, LosesNoAcknowledgedKey) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  // Not every member comes to every place: the tail forwards nothing, the head acknowledges to no member.
  std::size_t deaths = 0;
  const auto done = [&] {
    deaths += Revive();
    return deaths >= 2 && IsWhole() && writer.acknowledged_.size() >= 100;
  };
  ASSERT_TRUE(RunUntil(*loop_, done) || RunUntil(*loop_, done))
      << GetParam() << ": " << deaths << " deaths, " << writer.acknowledged_.size() << " writes";
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

INSTANTIATE_TEST_SUITE_P(Places, ChainFailpointTest,
                         testing::Values("chain.stored", "chain.forwarding", "chain.forwarded", "chain.acknowledging",
                                         "chain.acknowledged"));

TEST_F(ChainProcessTest, TheFrontAndAllMembersKilledTogetherComeBackWithEverything) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 50; }));
  front_.End(SIGKILL);
  for (std::size_t i = 1; i <= kMembers; ++i) members_[i].End(SIGKILL);
  for (std::size_t i = 1; i <= kMembers; ++i) StartMember(i);
  StartFront();
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20 && IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// Member 3 is filled into Redis, and is then the only one that is left.
TEST_F(ChainProcessTest, AMemberMayKeepItsCopyInRedis) {
  if (!HasRedis()) GTEST_SKIP() << "there is no redis-server";
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  RedisServer redis;
  const std::string socket = folder_.path() + "/redis.sock";
  redis.Start(folder_.path(), {"--port", "0", "--unixsocket", socket, "--unixsocketperm", "700", "--appendonly", "yes",
                               "--appendfsync", "always"});
  members_[3].End(SIGKILL);
  std::filesystem::remove_all(folder_.path() + "/member-3");
  StartMember(3, {"--redis", "unix:" + socket});
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  members_[1].End(SIGKILL);
  members_[2].End(SIGKILL);
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  EXPECT_EQ(Config().members, std::vector<rules::MemberId>{3});
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// The server of a member goes, not the member: it has no copy to answer for and is put out; with the server it is back.
TEST_F(ChainOverRedisTest, AServerKilledUnderLoadLosesNoAcknowledgedKey) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  const std::size_t victim = Config().members[1];
  servers_[victim].Kill();
  members_[victim].End(SIGKILL);
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  const std::string folder = folder_.path() + "/redis-" + std::to_string(victim);
  servers_[victim].Start(folder, {"--port", "0", "--unixsocket", folder + "/sock", "--unixsocketperm", "700",
                                  "--appendonly", "yes", "--appendfsync", "always"});
  ASSERT_NO_FATAL_FAILURE(Again(victim));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  // It alone has everything.
  for (std::size_t i = 1; i <= kMembers; ++i) {
    if (i != victim) members_[i].End(SIGKILL);
  }
  const std::size_t then = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= then + 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// One that hangs closes nothing: it is found by its silence.
TEST_F(ChainOverTcpTest, AMemberThatIsStoppedIsPutOutAndIsBackWhenItGoesOn) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  const std::size_t victim = Config().members[1];
  writer.TakeLongest();
  kill(members_[victim].pid(), SIGSTOP);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return Config().members.size() < kMembers; }));
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  std::printf("stopped: longest pause %.1f ms\n", static_cast<double>(writer.TakeLongest()) / 1000);
  kill(members_[victim].pid(), SIGCONT);
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// Who does not know the token is nobody's member and reads nothing.
TEST_F(ChainOverTcpTest, AStrangerIsNotLetIn) {
  Result<std::shared_ptr<wire::Secrets>> other = wire::Secrets::OpenOrCreate(folder_.path() + "/other-secrets");
  ASSERT_TRUE(other.ok()) << other.status().message();
  for (const std::string& port : ports_) {
    std::optional<Status> refused;
    const wire::ControlClient::Connect connect = wire::ConnectOverTcp(*loop_, port, *other);
    connect([&](Result<wire::Stream> stream) { refused = stream.status(); });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return refused.has_value(); }));
    EXPECT_FALSE(refused->ok()) << port;
  }
}

// Where other machines could reach it, a member listens with TLS only; and whoever goes there needs a certificate.
TEST(ChainMember, BeyondThisMachineIsNotWithoutTls) {
  TestFolder folder;
  const std::string secrets = folder.path() + "/secrets";
  ControlProcess member;
  const std::string refused =
      member.Start({"--member", "--folder", folder.path() + "/member", "--listen", "0.0.0.0:0", "--secrets", secrets});
  EXPECT_NE(refused.find("refusing to listen at 0.0.0.0:0: other machines could reach it and read along; switch TLS on "
                         "(--tls), or listen at 127.0.0.1 only"),
            std::string::npos)
      << refused;
  EXPECT_EQ(WEXITSTATUS(member.End(0)), 1);
  ControlProcess front;
  const std::string bare = front.Start({"--chain", "192.0.2.1:6501", "--folder", folder.path() + "/front", "--address",
                                        "@manta-bare-" + std::to_string(getpid()), "--secrets", secrets});
  EXPECT_NE(bare.find("connections need TLS, and there is no certificate of this node in " + secrets),
            std::string::npos)
      << bare;
  EXPECT_EQ(WEXITSTATUS(front.End(0)), 1);
}

// The loss of the front's machine: nothing of it is used again. The other one, which waited, has everything.
TEST_F(ChainInEtcdTest, AnotherFrontTakesOverAndLosesNoAcknowledgedKey) {
  Writer writer(*loop_, ToEither());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  ASSERT_TRUE(second_.Begin(FrontWords("second")));
  ASSERT_TRUE(second_.WaitFor("waiting to take over"));
  // A member goes, too: it was on that machine.
  const std::size_t victim = Config().head();
  writer.TakeLongest();
  ASSERT_TRUE(WIFSIGNALED(front_.End(SIGKILL)));
  ASSERT_TRUE(WIFSIGNALED(members_[victim].End(SIGKILL)));
  const std::size_t before = writer.acknowledged_.size();
  EXPECT_EQ(second_.WaitReady(), AddressOf(0) + "-second\n");
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  std::printf("front and a member killed: pause %.1f s, with a term of 2\n",
              static_cast<double>(writer.TakeLongest()) / 1e6);
  EXPECT_EQ(Config().members.size(), kMembers - 1);
  // And back: the first machine comes again, waits, and is the front when the second one is stopped, at once.
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  ASSERT_TRUE(front_.Begin(FrontWords("first")));
  ASSERT_TRUE(front_.WaitFor("waiting to take over"));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  EXPECT_EQ(second_.End(SIGTERM), 0);
  EXPECT_EQ(front_.WaitReady(), AddressOf(0) + "-first\n");
  const std::size_t then = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= then + 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// A front that hangs for longer than its term has been replaced when it goes on. It ends, and disturbs nobody.
TEST_F(ChainInEtcdTest, AFrontThatWasStoppedEndsWhenItGoesOn) {
  Writer writer(*loop_, ToEither());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  ASSERT_TRUE(second_.Begin(FrontWords("second")));
  ASSERT_TRUE(second_.WaitFor("waiting to take over"));
  kill(front_.pid(), SIGSTOP);
  EXPECT_EQ(second_.WaitReady(), AddressOf(0) + "-second\n");
  Writer other(*loop_, wire::ConnectLocally(AddressOf(0) + "-second"));
  other.next_ = 1'000'000;
  other.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return other.acknowledged_.size() >= 20; }));
  kill(front_.pid(), SIGCONT);
  const int status = front_.End(0);  // by itself
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
  ASSERT_NO_FATAL_FAILURE(other.ExpectAllThere(*loop_));
}

}  // namespace
}  // namespace manta::control
