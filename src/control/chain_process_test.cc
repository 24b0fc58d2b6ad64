// A chain of processes, whose members are killed under a client that writes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

#include "control/chain_config.h"
#include "control/etcd_keeper.h"
#include "control/test_etcd.h"
#include "control/test_process.h"
#include "control/test_redis.h"
#include "control/test_util.h"
#include "wire/control_client.h"

namespace manta::control {
namespace {

constexpr std::size_t kMembers = 3;

class ChainProcessTest : public testing::Test {
 protected:
  // As members and front are told it; over TCP from when they run.
  [[nodiscard]] std::string AddressOf(std::size_t i) const {
    if (tcp_) return ports_[i];
    return "@manta-chain-process-" + std::to_string(getpid()) + "-" + std::to_string(i);
  }
  // Where this process listens: at the port that it had before, if it had one.
  [[nodiscard]] std::vector<std::string> Listening(std::size_t i) const {
    if (!tcp_) return {"--address", AddressOf(i)};
    return {"--listen", ports_[i].empty() ? "127.0.0.1:0" : ports_[i], "--secrets", folder_.path() + "/secrets"};
  }
  void Start(ControlProcess& process, std::size_t i, std::vector<std::string> words) {
    const std::vector<std::string> listening = Listening(i);
    words.insert(words.end(), listening.begin(), listening.end());
    // Somebody's connection may have the port for a moment.
    const std::int64_t until = base::NowMicros() + 10'000'000;
    std::string said;
    for (;;) {
      said = process.Start(words);
      if (!said.starts_with("manta-control:") || base::NowMicros() > until) break;
      process.End(SIGKILL);
      loop_->RunOnce(50'000);
    }
    if (tcp_ && said.starts_with("127.0.0.1:")) ports_[i] = said.substr(0, said.size() - 1);
    ASSERT_EQ(said, AddressOf(i) + "\n");
  }
  void StartMember(std::size_t i, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--member", "--folder", folder_.path() + "/member-" + std::to_string(i)};
    words.insert(words.end(), more.begin(), more.end());
    Start(members_[i], i, words);
  }
  virtual void StartFront() {
    const std::string chain = AddressOf(1) + "," + AddressOf(2) + "," + AddressOf(3);
    Start(front_, 0, {"--chain", chain, "--folder", folder_.path() + "/front"});
  }
  virtual void StartMembers() {
    for (std::size_t i = 1; i <= kMembers; ++i) ASSERT_NO_FATAL_FAILURE(StartMember(i));
  }
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(StartMembers());
    ASSERT_NO_FATAL_FAILURE(StartFront());
  }
  // How clients come to the front.
  wire::ControlClient::Connect ToFront() {
    if (!tcp_) return wire::ConnectLocally(AddressOf(0));
    Result<std::shared_ptr<wire::Secrets>> secrets = wire::Secrets::Open(folder_.path() + "/secrets");
    EXPECT_TRUE(secrets.ok()) << secrets.status().message();
    return wire::ConnectOverTcp(*loop_, AddressOf(0), *secrets);
  }
  virtual rules::ChainConfig Config() {
    const Result<SavedChain> saved = LoadChain(folder_.path() + "/front/chain-0/chain");
    return saved.ok() ? saved.value().config : rules::ChainConfig{};
  }
  bool IsWhole() {
    const rules::ChainConfig config = Config();
    return config.members.size() == kMembers && config.joiner == rules::kNoMember;
  }
  virtual void Again(std::size_t i) { StartMember(i); }
  void KillMembersUnderLoad(const std::vector<std::string>& roles);

  TestFolder folder_;
  bool tcp_ = false;
  std::array<std::string, kMembers + 1> ports_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::array<ControlProcess, kMembers + 1> members_;
  ControlProcess front_;
};

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

// The configuration in etcd, and two processes that may be the front, each with a folder and an address of its own.
class ChainInEtcdTest : public ChainProcessTest {
 protected:
  void SetUp() override {
    if (!HasEtcd()) GTEST_SKIP() << "there is no etcd";
    etcd_.Start(folder_.path());
    ChainProcessTest::SetUp();
  }
  [[nodiscard]] std::vector<std::string> FrontWords(const std::string& name) const {
    const std::string chain = AddressOf(1) + "," + AddressOf(2) + "," + AddressOf(3);
    return {"--chain",     chain, "--folder",  folder_.path() + "/" + name, "--etcd", etcd_.address(),
            "--etcd-term", "2",   "--address", AddressOf(0) + "-" + name};
  }
  void StartFront() override { ASSERT_EQ(front_.Start(FrontWords("first")), AddressOf(0) + "-first\n"); }
  rules::ChainConfig Config() override {
    EtcdOptions options;
    options.servers = {etcd_.address()};
    options.prefix = "manta/chain-0";
    const Result<SavedChain> saved = EtcdKeeper::Look(*loop_, options);
    return saved.ok() ? saved.value().config : rules::ChainConfig{};
  }
  // To whichever of the two serves.
  wire::ControlClient::Connect ToEither() {
    return [this](const wire::ControlClient::Connected& done) {
      first_ = !first_;
      wire::ConnectLocally(AddressOf(0) + (first_ ? "-first" : "-second"))(done);
    };
  }
  EtcdServer etcd_;
  ControlProcess second_;
  bool first_ = false;
};

std::string KeyOf(std::uint64_t number) {
  std::string key = "key:" + std::to_string(number) + ":";
  key.resize(25, '.');
  return key;
}

// One request under way; each key is written once, with a value that names it.
class Writer {
 public:
  Writer(base::Loop& loop, wire::ControlClient::Connect connect) : client_(loop, std::move(connect)) {}

  void Go() {
    const std::string key = KeyOf(next_++);
    std::string value = key;
    value.resize(512, 'v');
    client_.Put(Table::kKeyValue, key, value, [this, key](Result<wire::ControlWritten> result) {
      const std::int64_t now = base::NowMicros();
      if (last_us_ != 0) longest_us_ = std::max(longest_us_, now - last_us_);
      last_us_ = now;
      if (result.ok() && result->applied) {
        acknowledged_.push_back(key);
        versions_.push_back(result->version);
      } else {
        trouble_ = result.ok() ? "not applied" : result.status().message();
      }
      idle_ = stop_;
      if (!stop_) Go();
    });
  }
  void Stop() { stop_ = true; }
  std::int64_t TakeLongest() { return std::exchange(longest_us_, 0); }
  // No acknowledged key is missing, and each was written once: its version is the one that was answered.
  void ExpectAllThere(base::Loop& loop) {
    Stop();
    ASSERT_TRUE(RunUntil(loop, [&] { return idle_; }));
    EXPECT_EQ(trouble_, "");
    for (std::size_t i = 1; i < versions_.size(); ++i) ASSERT_GT(versions_[i], versions_[i - 1]);
    std::optional<Result<std::vector<wire::ControlEntry>>> all;
    client_.ScanAll(Table::kKeyValue,
                    "key:", [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
    ASSERT_TRUE(RunUntil(loop, [&] { return all.has_value(); }));
    ASSERT_TRUE(all->ok()) << all->status().message();
    std::map<std::string, std::uint64_t> found;
    for (const wire::ControlEntry& entry : **all) found[entry.key] = entry.version;
    for (std::size_t i = 0; i < acknowledged_.size(); ++i)
      ASSERT_EQ(found[acknowledged_[i]], versions_[i]) << acknowledged_[i];
  }

  wire::ControlClient client_;
  std::uint64_t next_ = 1;
  std::vector<std::string> acknowledged_;
  std::vector<std::uint64_t> versions_;
  std::string trouble_;
  std::int64_t last_us_ = 0;
  std::int64_t longest_us_ = 0;
  bool stop_ = false;
  bool idle_ = false;
};

void ChainProcessTest::KillMembersUnderLoad(const std::vector<std::string>& roles) {
  Writer writer(*loop_, ToFront());
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  std::mt19937 random(11);
  std::vector<std::int64_t> pauses;
  for (const std::string& role : roles) {
    const rules::ChainConfig config = Config();
    const std::size_t victim = role == "head" ? config.head() : role == "tail" ? config.tail() : config.members[1];
    const std::int64_t at = base::NowMicros() + static_cast<std::int64_t>(random() % 3'000);
    while (base::NowMicros() < at) loop_->RunOnce(0);
    writer.TakeLongest();
    ASSERT_TRUE(WIFSIGNALED(members_[victim].End(SIGKILL)));
    const std::size_t before = writer.acknowledged_.size();
    ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20; })) << role << " killed";
    pauses.push_back(writer.TakeLongest());
    ASSERT_NO_FATAL_FAILURE(Again(victim));
    ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); })) << "member " << victim << " does not come back";
  }
  ASSERT_NO_FATAL_FAILURE(writer.ExpectAllThere(*loop_));
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    RecordProperty(Cat("pause_us_", i, "_", roles[i]), std::to_string(pauses[i]));
    std::printf("%s killed: longest pause %.1f ms\n", roles[i].c_str(), static_cast<double>(pauses[i]) / 1000);
    EXPECT_LT(pauses[i], 5'000'000) << "far from 30 ms even for a busy machine";
  }
}

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
