// A chain of processes, whose members are killed under a client that writes.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "control/chain_config.h"
#include "control/test_process.h"
#include "control/test_redis.h"
#include "control/test_util.h"
#include "wire/control_client.h"

namespace manta::control {
namespace {

constexpr std::size_t kMembers = 3;

class ChainProcessTest : public testing::Test {
 protected:
  [[nodiscard]] std::string AddressOf(std::size_t i) const {
    return "@manta-chain-process-" + std::to_string(getpid()) + "-" + std::to_string(i);
  }
  void StartMember(std::size_t i, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"--member", "--folder", folder_.path() + "/member-" + std::to_string(i),
                                      "--address", AddressOf(i)};
    words.insert(words.end(), more.begin(), more.end());
    ASSERT_EQ(members_[i].Start(words), AddressOf(i) + "\n");
  }
  void StartFront() {
    const std::string chain = AddressOf(1) + "," + AddressOf(2) + "," + AddressOf(3);
    ASSERT_EQ(front_.Start({"--chain", chain, "--folder", folder_.path() + "/front", "--address", AddressOf(0)}),
              AddressOf(0) + "\n");
  }
  void SetUp() override {
    for (std::size_t i = 1; i <= kMembers; ++i) StartMember(i);
    StartFront();
  }
  rules::ChainConfig Config() {
    const Result<SavedChain> saved = LoadChain(folder_.path() + "/front/chain-0/chain");
    return saved.ok() ? saved.value().config : rules::ChainConfig{};
  }
  bool IsWhole() {
    const rules::ChainConfig config = Config();
    return config.members.size() == kMembers && config.joiner == rules::kNoMember;
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::array<ControlProcess, kMembers + 1> members_;
  ControlProcess front_;
};

std::string KeyOf(std::uint64_t number) {
  std::string key = "key:" + std::to_string(number) + ":";
  key.resize(25, '.');
  return key;
}

// One request under way; each key is written once, with a value that names it.
class Writer {
 public:
  Writer(base::Loop& loop, const std::string& address) : client_(loop, wire::ConnectLocally(address)) {}

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

TEST_F(ChainProcessTest, MembersKilledUnderLoadLoseNoAcknowledgedKey) {
  Writer writer(*loop_, AddressOf(0));
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 20; }));
  std::mt19937 random(11);
  std::vector<std::int64_t> pauses;
  const std::vector<std::string> roles = {"head", "tail", "middle", "head", "tail", "middle"};
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
    StartMember(victim);
    ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole(); })) << "member " << victim << " does not come back";
  }
  writer.Stop();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.idle_; }));
  EXPECT_EQ(writer.trouble_, "");
  for (std::size_t i = 1; i < writer.versions_.size(); ++i) ASSERT_GT(writer.versions_[i], writer.versions_[i - 1]);
  // No acknowledged key is missing, and each was written once: its version is the one that was answered.
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  writer.client_.ScanAll(Table::kKeyValue,
                         "key:", [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_TRUE(all->ok()) << all->status().message();
  std::map<std::string, std::uint64_t> found;
  for (const wire::ControlEntry& entry : **all) found[entry.key] = entry.version;
  for (std::size_t i = 0; i < writer.acknowledged_.size(); ++i) {
    ASSERT_EQ(found[writer.acknowledged_[i]], writer.versions_[i]) << writer.acknowledged_[i];
  }
  for (std::size_t i = 0; i < pauses.size(); ++i) {
    RecordProperty(Cat("pause_us_", i, "_", roles[i]), std::to_string(pauses[i]));
    std::printf("%s killed: longest pause %.1f ms\n", roles[i].c_str(), static_cast<double>(pauses[i]) / 1000);
    EXPECT_LT(pauses[i], 5'000'000) << "far from 30 ms even for a busy machine";
  }
}

TEST_F(ChainProcessTest, TheFrontAndAllMembersKilledTogetherComeBackWithEverything) {
  Writer writer(*loop_, AddressOf(0));
  writer.Go();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return IsWhole() && writer.acknowledged_.size() > 50; }));
  front_.End(SIGKILL);
  for (std::size_t i = 1; i <= kMembers; ++i) members_[i].End(SIGKILL);
  for (std::size_t i = 1; i <= kMembers; ++i) StartMember(i);
  StartFront();
  const std::size_t before = writer.acknowledged_.size();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.acknowledged_.size() >= before + 20 && IsWhole(); }));
  writer.Stop();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.idle_; }));
  EXPECT_EQ(writer.trouble_, "");
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  writer.client_.ScanAll(Table::kKeyValue,
                         "key:", [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_TRUE(all->ok()) << all->status().message();
  EXPECT_GE((*all)->size(), writer.acknowledged_.size());
}

// Member 3 is filled into Redis, and is then the only one that is left.
TEST_F(ChainProcessTest, AMemberMayKeepItsCopyInRedis) {
  if (!HasRedis()) GTEST_SKIP() << "there is no redis-server";
  Writer writer(*loop_, AddressOf(0));
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
  writer.Stop();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return writer.idle_; }));
  EXPECT_EQ(writer.trouble_, "");
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  writer.client_.ScanAll(Table::kKeyValue,
                         "key:", [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_TRUE(all->ok()) << all->status().message();
  EXPECT_GE((*all)->size(), writer.acknowledged_.size());
}

}  // namespace
}  // namespace manta::control
