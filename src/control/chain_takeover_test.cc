// Fronts that die or hang between two steps (base/failpoint.h) while they take over a chain or change its
// configuration, members that die while they throw away their copy, and disks that are full: nothing acknowledged is
// ever missing.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <optional>

#include "control/etcd_client.h"
#include "control/test_chain.h"

namespace manta::control {
namespace {

// What is started within has this rule, and leaves a file in the folder when it comes to pass: once in all processes.
class Failing {
 public:
  Failing(const std::string& folder, const std::string& rule) {
    mkdir(folder.c_str(), 0700);
    setenv("MANTA_FAILPOINTS", rule.c_str(), 1);
    setenv("MANTA_FAILPOINTS_ONCE", folder.c_str(), 1);
  }
  ~Failing() {
    unsetenv("MANTA_FAILPOINTS");
    unsetenv("MANTA_FAILPOINTS_ONCE");
  }
  Failing(const Failing&) = delete;
  Failing& operator=(const Failing&) = delete;
};

// ---- the configuration on the front's disk ----

class ChainFrontFailpointTest : public ChainProcessTest, public testing::WithParamInterface<const char*> {
 protected:
  [[nodiscard]] std::string Place() const {
    const std::string rule = GetParam();
    return rule.substr(0, rule.find('='));
  }
  void StartFront() override {
    const Failing failing(folder_.path() + "/hits", GetParam());
    const std::string chain = AddressOf(1) + "," + AddressOf(2) + "," + AddressOf(3);
    words_ = {"--chain", chain, "--folder", folder_.path() + "/front", "--address", AddressOf(0)};
    ASSERT_TRUE(front_.Begin(words_));  // it may die before it is ready
  }
  // Starts the front again if it has died.
  void Revive() {
    if (!front_.HasEnded()) return;
    ++deaths_;
    EXPECT_TRUE(WIFSIGNALED(front_.End(SIGKILL)));
    ASSERT_EQ(front_.Start(words_), AddressOf(0) + "\n");
  }
  bool Comes(const std::function<bool()>& so) {
    const auto done = [&] {
      Revive();
      return so();
    };
    return RunUntil(*loop_, done) || RunUntil(*loop_, done);
  }
  std::vector<std::string> words_;
  int deaths_ = 0;
};

TEST_P(ChainFrontFailpointTest, LosesNoAcknowledgedKey) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(Comes([&] { return IsWhole() && writer.acknowledged_.size() > 20; })) << deaths_;
  // A member is put out and comes back: for those that did not die while the chain was made.
  const std::size_t victim = Config().head();
  members_[victim].End(SIGKILL);
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(Comes([&] { return writer.acknowledged_.size() >= before + 20; })) << deaths_;
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  ASSERT_TRUE(Comes([&] { return IsWhole() && deaths_ == 1; })) << deaths_;
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/hits/" + Place()));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// The first changes make the chain; from the seventh on they are what the loss of a member asks for.
INSTANTIATE_TEST_SUITE_P(Places, ChainFrontFailpointTest,
                         testing::Values("front.taken=kill@1", "front.saving=kill@2", "front.saving=kill@7",
                                         "front.saved=kill@3", "front.saved=kill@7", "front.told=kill@4",
                                         "front.granted=kill@20"));

// ---- the configuration in etcd ----

class ChainTakeoverTest : public ChainInEtcdTest, public testing::WithParamInterface<const char*> {};

// The first front is lost with the head of the chain, the second dies while it takes over, the third is the first
// again.
TEST_P(ChainTakeoverTest, AFrontThatDiesWhileItTakesOverLosesNoAcknowledgedKey) {
  Writer writer(*loop_, ToEither());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  {
    const Failing failing(folder_.path() + "/hits", std::string(GetParam()) + "=kill@1");
    ASSERT_TRUE(second_.Begin(FrontWords("second")));
  }
  ASSERT_TRUE(second_.WaitFor("waiting to take over"));
  const std::size_t victim = Config().head();
  ASSERT_TRUE(WIFSIGNALED(front_.End(SIGKILL)));
  ASSERT_TRUE(WIFSIGNALED(members_[victim].End(SIGKILL)));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return second_.HasEnded(); })) << GetParam() << " is not reached";
  EXPECT_TRUE(WIFSIGNALED(second_.End(SIGKILL)));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/hits/" + GetParam()));
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_EQ(front_.Start(FrontWords("first")), AddressOf(0) + "-first\n");
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

INSTANTIATE_TEST_SUITE_P(Places, ChainTakeoverTest,
                         testing::Values("etcd.leased", "etcd.seated", "front.taken", "etcd.saved", "front.told"));

// It hangs with a configuration that is in etcd and that nobody was told of. When it goes on, another one is the front,
// and has made other configurations since.
TEST_F(ChainInEtcdTest, AFrontThatHangsWhileItChangesTheChainIsReplacedAndEnds) {
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  front_.End(SIGTERM);
  {
    const Failing failing(folder_.path() + "/hits", "front.saved=stop@1");
    ASSERT_TRUE(front_.Begin(FrontWords("first")));
  }
  Writer writer(*loop_, ToEither());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() > 20; }));
  ASSERT_TRUE(second_.Begin(FrontWords("second")));
  ASSERT_TRUE(second_.WaitFor("waiting to take over"));
  const std::size_t victim = Config().tail();
  ASSERT_TRUE(WIFSIGNALED(members_[victim].End(SIGKILL)));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return std::filesystem::exists(folder_.path() + "/hits/front.saved"); }));
  EXPECT_EQ(second_.WaitReady(), AddressOf(0) + "-second\n");
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  Writer other(*loop_, wire::ConnectLocally(AddressOf(0) + "-second"));
  other.next_ = 1'000'000;
  other.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && other.acknowledged_.size() >= 20; }));
  kill(front_.pid(), SIGCONT);
  const int status = front_.End(0);  // by itself
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
  ASSERT_NO_FATAL_FAILURE(other.ExpectAllThere(*loop_));
}

// Nobody else waits, so it takes the seat again when it goes on; and dies of that.
TEST_F(ChainInEtcdTest, AFrontThatDiesWhileItTakesItsSeatAgainLosesNoAcknowledgedKey) {
  front_.End(SIGTERM);
  {
    const Failing failing(folder_.path() + "/hits", "etcd.retaken=kill@1");
    ASSERT_EQ(front_.Start(FrontWords("first")), AddressOf(0) + "-first\n");
  }
  Writer writer(*loop_, ToEither());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  kill(front_.pid(), SIGSTOP);
  Result<std::unique_ptr<EtcdClient>> etcd = EtcdClient::Create(*loop_, {etcd_.address()});
  ASSERT_TRUE(etcd.ok()) << etcd.status().message();
  const std::string seat = Cat(R"({"key":")", ToBase64("manta/chain-0/front"), R"("})");
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    const Result<Json> found = (*etcd)->AskAndWait("kv/range", seat);
    return found.ok() && found.value()["kvs"][std::size_t{0}].null();
  })) << "the seat outlives its term";
  kill(front_.pid(), SIGCONT);
  EXPECT_TRUE(WIFSIGNALED(front_.End(0)));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/hits/etcd.retaken"));
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_EQ(front_.Start(FrontWords("first")), AddressOf(0) + "-first\n");
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// ---- members ----

// The head dies with a record that nobody else has, so that its copy is of no use when it comes back; and then it dies
// between two copies.
class ChainWipeTest : public ChainProcessTest {
 protected:
  void StartMembers() override {
    for (std::size_t i = 1; i <= kMembers; ++i) {
      std::optional<Failing> failing;
      if (i == 1) failing.emplace(folder_.path() + "/hits", "chain.forwarding=kill@200");
      ASSERT_NO_FATAL_FAILURE(StartMember(i));
    }
  }
};

TEST_F(ChainWipeTest, AMemberThatDiesBetweenTwoCopiesIsFilledAllTheSame) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return members_[1].HasEnded(); })) << writer.acknowledged_.size();
  EXPECT_TRUE(WIFSIGNALED(members_[1].End(SIGKILL)));
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  {
    const Failing failing(folder_.path() + "/hits", "chain.wiping=kill@1");
    ASSERT_NO_FATAL_FAILURE(StartMember(1));
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return members_[1].HasEnded(); })) << "its copy was not thrown away";
  EXPECT_TRUE(WIFSIGNALED(members_[1].End(SIGKILL)));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/member-1/copy-1"));
  ASSERT_NO_FATAL_FAILURE(StartMember(1));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/member-1/copy-1")) << "nobody would ever remove it";
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// ---- full disks ----

TEST_F(ChainProcessTest, AMemberWhoseDiskIsFullEndsAndSaysWhyAndIsBackWhenThereIsRoom) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  const std::size_t victim = Config().members[1];
  // Again, with its complaints to be read.
  members_[victim].End(SIGKILL);
  std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_TRUE(members_[victim].Begin(
      {"--member", "--folder", folder_.path() + "/member-" + std::to_string(victim), "--address", AddressOf(victim)}));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_TRUE(members_[victim].LimitFiles(16 << 10));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return members_[victim].HasEnded(); })) << "it writes on";
  EXPECT_TRUE(members_[victim].WaitFor("cannot write"));
  EXPECT_TRUE(members_[victim].WaitFor("nothing acknowledged is lost"));
  const int status = members_[victim].End(0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

// It cannot write down that a member is gone; so nobody is told, and writes wait until it can.
TEST_F(ChainProcessTest, AFrontWhoseDiskIsFullWaitsForRoomAndGoesOn) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  front_.End(SIGKILL);
  const std::string chain = AddressOf(1) + "," + AddressOf(2) + "," + AddressOf(3);
  ASSERT_TRUE(front_.Begin({"--chain", chain, "--folder", folder_.path() + "/front", "--address", AddressOf(0)}));
  std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() >= before + 20; }));
  ASSERT_TRUE(front_.LimitFiles(0));
  const std::size_t victim = Config().tail();
  const std::uint64_t epoch = Config().epoch;
  members_[victim].End(SIGKILL);
  ASSERT_TRUE(front_.WaitFor("tried again until it succeeds"));
  EXPECT_EQ(Config().epoch, epoch);
  EXPECT_FALSE(front_.HasEnded());
  before = writer.acknowledged_.size();
  ASSERT_TRUE(front_.LimitFiles(RLIM_INFINITY));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; }));
  ASSERT_NO_FATAL_FAILURE(StartMember(victim));
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); }));
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
}

}  // namespace
}  // namespace manta::control
