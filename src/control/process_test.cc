// The control process as a whole: bin/manta-control, killed and started again under clients.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <sstream>

#include "control/test_process.h"
#include "control/test_util.h"
#include "wire/control_client.h"
#include "wire/secrets.h"

namespace manta::control {
namespace {

using wire::ControlClient;
using wire::ControlWritten;

class ControlProcessTest : public testing::Test {
 protected:
  ControlProcessTest() : address_("@manta-control-test-" + std::to_string(getpid())) {}
  std::string Start() {
    return process_.Start({"--folder", folder_.path() + "/c", "--shards", "2", "--address", address_});
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  std::string address_;
  ControlProcess process_;
};

TEST_F(ControlProcessTest, KilledAgainAndAgainEveryWriteTakesEffectOnce) {
  ASSERT_EQ(Start(), address_ + "\n");
  ControlClient client(*loop_, wire::ConnectLocally(address_));
  // Four counters, each raised by compare-and-set of whoever read it last: a write applied twice, or lost, shows.
  constexpr int kCounters = 4;
  constexpr int kUntil = 60;
  int values[kCounters] = {};
  int finished = 0;
  std::uint64_t versions[kCounters] = {};
  std::vector<std::string> trouble;
  std::function<void(int)> raise = [&](int i) {
    client.CompareAndSet(Table::kKeyValue, "c" + std::to_string(i), versions[i], std::to_string(values[i] + 1),
                         [&, i](Result<ControlWritten> result) {
                           if (!result.ok() || !result->applied) {
                             trouble.push_back(result.ok() ? "refused" : result.status().message());
                             ++finished;
                             return;
                           }
                           ++values[i];
                           versions[i] = result->version;
                           if (values[i] == kUntil) {
                             ++finished;
                           } else {
                             raise(i);
                           }
                         });
  };
  for (int i = 0; i < kCounters; ++i) raise(i);
  std::mt19937 random(7);
  int kills = 0;
  int next_kill = 10;
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    if (kills < 5 && values[0] >= next_kill) {
      const std::int64_t end = base::NowMicros() + static_cast<std::int64_t>(random() % 3000);
      while (base::NowMicros() < end) loop_->RunOnce(0);
      EXPECT_TRUE(WIFSIGNALED(process_.End(SIGKILL)));
      EXPECT_EQ(Start(), address_ + "\n");
      ++kills;
      next_kill = values[0] + 8;
    }
    return finished == kCounters;
  }));
  EXPECT_TRUE(trouble.empty()) << trouble.front();
  EXPECT_EQ(kills, 5);
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  client.ScanAll(Table::kKeyValue, "c",
                 [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_EQ((*all)->size(), 4U);
  for (const wire::ControlEntry& entry : **all) EXPECT_EQ(entry.value, std::to_string(kUntil));
}

TEST_F(ControlProcessTest, EndsAtATermAndComesBackWithEverything) {
  ASSERT_EQ(Start(), address_ + "\n");
  {
    ControlClient client(*loop_, wire::ConnectLocally(address_));
    std::optional<Result<ControlWritten>> written;
    client.Put(Table::kJobs, "j", "1", [&](Result<ControlWritten> result) { written = std::move(result); });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return written.has_value(); }));
    ASSERT_TRUE(written->ok()) << written->status().message();
  }
  const int status = process_.End(SIGTERM);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  ASSERT_EQ(Start(), address_ + "\n");
  ControlClient client(*loop_, wire::ConnectLocally(address_));
  std::optional<Result<wire::ControlValue>> value;
  client.Get(Table::kJobs, "j", [&](Result<wire::ControlValue> result) { value = std::move(result); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return value.has_value(); }));
  EXPECT_EQ((*value)->value, "1");
}

TEST_F(ControlProcessTest, OverTcpMembersAreServedAndStrangersAreNot) {
  std::string port = process_.Start(
      {"--folder", folder_.path() + "/c", "--listen", "127.0.0.1:0", "--secrets", folder_.path() + "/secrets"});
  ASSERT_TRUE(port.starts_with("127.0.0.1:")) << port;
  port.pop_back();
  const auto put = [&](const std::shared_ptr<wire::Secrets>& secrets) {
    wire::ControlClientOptions options;
    options.patience_us = 2'000'000;
    ControlClient client(*loop_, wire::ConnectOverTcp(*loop_, port, secrets), options);
    std::optional<Result<ControlWritten>> written;
    client.Put(Table::kNodes, "n", "1", [&](Result<ControlWritten> result) { written = std::move(result); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return written.has_value(); }));
    return written->status();
  };
  Result<std::shared_ptr<wire::Secrets>> member = wire::Secrets::Open(folder_.path() + "/secrets");
  ASSERT_TRUE(member.ok()) << member.status().message();
  const Status served = put(*member);
  EXPECT_TRUE(served.ok()) << served.message();
  wire::Keys keys = (*member)->keys();
  keys.token[0] ^= std::byte{1};
  const Status refused = put(wire::Secrets::FromKeys(keys));
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_NE(refused.message().find("token"), std::string::npos) << refused.message();
}

TEST_F(ControlProcessTest, SaysWhatIsWrong) {
  EXPECT_NE(process_.Start({"--redis", "unix:/nowhere/at/all", "--redis-patience", "0.1"}).find("No such file"),
            std::string::npos);
  process_.End(SIGKILL);
  EXPECT_NE(process_.Start({"--redis", "127.0.0.1:1"}).find("needs a password"), std::string::npos);
  process_.End(SIGKILL);
  const std::string password = folder_.path() + "/password";
  close(open(password.c_str(), O_CREAT | O_WRONLY, 0644));
  chmod(password.c_str(), 0644);
  EXPECT_NE(process_.Start({"--redis", "127.0.0.1:1", "--redis-password-file", password}).find("chmod 600"),
            std::string::npos);
  process_.End(SIGKILL);
  EXPECT_NE(process_.Start({"--folder", "/nowhere/at/all"}).find("; make /nowhere/at first"), std::string::npos);
  process_.End(SIGKILL);
  // A bad address is found out before anything is made.
  EXPECT_NE(
      process_.Start({"--folder", folder_.path() + "/c", "--secrets", folder_.path() + "/s", "--listen", "10.0.0.1:0"})
          .find("refusing to listen"),
      std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/c"));
  process_.End(SIGKILL);
  ASSERT_EQ(Start(), address_ + "\n");
  ControlProcess second;
  EXPECT_NE(second.Start({"--folder", folder_.path() + "/c", "--shards", "2"}).find("in use by another process"),
            std::string::npos);
}

TEST_F(ControlProcessTest, ListensOnNoPortUnlessTold) {
  ASSERT_EQ(Start(), address_ + "\n");
  // Its sockets, by number: none of them may be in the tables of the network.
  std::set<std::string> sockets;
  const std::string proc = "/proc/" + std::to_string(process_.pid());
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry, gone).string();
    if (target.starts_with("socket:[")) sockets.insert(target.substr(8, target.size() - 9));
  }
  ASSERT_FALSE(sockets.empty());
  for (const char* table : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream in(proc + "/net/" + table);
    for (std::string line; std::getline(in, line);) {
      std::istringstream words(line);
      const std::vector<std::string> columns{std::istream_iterator<std::string>(words), {}};
      if (columns.size() <= 9) continue;
      EXPECT_FALSE(sockets.contains(columns[9])) << table << ": " << line;
    }
  }
}

// What a process has had in memory at most, in MB.
double PeakMegabytes(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
  }
  return 0;
}

TEST_F(ControlProcessTest, MoreThanItsMemoryIsFlushedReadBackAndSurvives) {
  constexpr std::size_t kBatches = 768;
  constexpr std::size_t kBatchBytes = 64U << 10;  // 48 MB in all
  const std::vector<std::string> words{"--folder", folder_.path() + "/c", "--address", address_, "--memory", "8"};
  ASSERT_EQ(process_.Start(words), address_ + "\n");
  const double before = PeakMegabytes(process_.pid());
  const auto key_of = [](std::size_t i) { return "batch-" + std::to_string(i); };
  const auto value_of = [](std::size_t i) { return std::string(kBatchBytes, static_cast<char>('a' + i % 26)); };
  ControlClient client(*loop_, wire::ConnectLocally(address_));
  std::size_t asked = 0;
  std::size_t written = 0;
  std::string trouble;
  const std::function<void()> more = [&] {
    if (asked == kBatches) return;
    const std::size_t i = asked++;
    client.Put(Table::kLineage, key_of(i), value_of(i), [&](const Result<ControlWritten>& result) {
      if (!result.ok()) trouble = result.status().message();
      ++written;
      more();
    });
  };
  for (int i = 0; i < 8; ++i) more();
  // As long as it takes: a slow disk is not a failure.
  for (std::size_t last = 0; written < kBatches && trouble.empty(); last = written) {
    ASSERT_TRUE(RunUntil(*loop_, [&] { return written > last || !trouble.empty(); }));
  }
  ASSERT_EQ(trouble, "");
  const double peak = PeakMegabytes(process_.pid()) - before;
  RecordProperty("peak_mb", std::to_string(peak));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(peak, 40) << "48 MB were written, and 8 may be held";
#endif
  const auto expect_value = [&](std::size_t i) {
    std::optional<Result<wire::ControlValue>> value;
    client.Get(Table::kLineage, key_of(i), [&](Result<wire::ControlValue> result) { value = std::move(result); });
    ASSERT_TRUE(RunUntil(*loop_, [&] { return value.has_value(); }));
    ASSERT_TRUE(value->ok()) << value->status().message();
    EXPECT_EQ((*value)->value, value_of(i)) << i;
  };
  for (const std::size_t i : {std::size_t{0}, kBatches / 2, kBatches - 1}) ASSERT_NO_FATAL_FAILURE(expect_value(i));
  EXPECT_TRUE(WIFSIGNALED(process_.End(SIGKILL)));
  ASSERT_EQ(process_.Start(words), address_ + "\n");
  for (const std::size_t i : {std::size_t{0}, kBatches / 3, kBatches - 1}) ASSERT_NO_FATAL_FAILURE(expect_value(i));
}

// By a limit of the file size, which for a process is the same as a full disk, and needs no right to mount one.
TEST_F(ControlProcessTest, WithoutRoomWritesFailWithTheNumbersAndNothingAcknowledgedIsLost) {
  const std::vector<std::string> words{"--folder", folder_.path() + "/c", "--address", address_};
  ASSERT_EQ(process_.Start(words), address_ + "\n");
  ControlClient client(*loop_, wire::ConnectLocally(address_));
  std::set<std::string> acknowledged;
  std::set<std::string> refused;
  int next = 0;
  const auto put = [&]() -> Status {
    const std::string key = "key-" + std::to_string(next++);
    std::optional<Status> answer;
    client.Put(Table::kKeyValue, key, key + std::string(4000, 'v'),
               [&](const Result<ControlWritten>& result) { answer = result.status(); });
    EXPECT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); })) << key;
    if (!answer) return Status(Code::kTimedOut, key);
    (answer->ok() ? acknowledged : refused).insert(key);
    return *answer;
  };
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(put().ok());
  ASSERT_TRUE(process_.LimitFiles(200 << 10));
  Status why;
  while (why.ok() && next < 100) why = put();
  EXPECT_EQ(why.code(), Code::kIo) << why.message();
  for (const char* part : {"cannot write 4.1 KiB to the log in ", "File too large", "nothing acknowledged is lost"}) {
    EXPECT_NE(why.message().find(part), std::string::npos) << why.message();
  }
  for (int i = 0; i < 5; ++i) EXPECT_EQ(put().code(), Code::kIo);
  ASSERT_TRUE(process_.LimitFiles(RLIM_INFINITY));
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(put().ok());
  EXPECT_TRUE(WIFSIGNALED(process_.End(SIGKILL)));
  ASSERT_EQ(process_.Start(words), address_ + "\n");
  std::optional<Result<std::vector<wire::ControlEntry>>> all;
  client.ScanAll(Table::kKeyValue, "key-",
                 [&](Result<std::vector<wire::ControlEntry>> entries) { all = std::move(entries); });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return all.has_value(); }));
  ASSERT_TRUE(all->ok()) << all->status().message();
  std::set<std::string> found;
  for (const wire::ControlEntry& entry : **all) {
    EXPECT_EQ(entry.value, entry.key + std::string(4000, 'v'));
    found.insert(entry.key);
  }
  EXPECT_EQ(found, acknowledged);
  EXPECT_EQ(refused.size(), 6U);
}

}  // namespace
}  // namespace manta::control
