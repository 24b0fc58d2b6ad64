// For this room's tests: a chain of processes (bin/manta-control) with its front, and a client that writes to it.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <random>

#include "control/chain_config.h"
#include "control/etcd_keeper.h"
#include "control/test_etcd.h"
#include "control/test_process.h"
#include "control/test_util.h"
#include "wire/control_client.h"

namespace manta::control {

inline constexpr std::size_t kMembers = 3;

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

inline std::string KeyOf(std::uint64_t number) {
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

inline void ChainProcessTest::KillMembersUnderLoad(const std::vector<std::string>& roles) {
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

}  // namespace manta::control
