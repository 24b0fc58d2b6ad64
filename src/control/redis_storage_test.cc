#include "control/redis_storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>

#include "control/tables.h"
#include "control/test_redis.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

constexpr char kPassword[] = "s3cret";

std::uint16_t FreePort() {
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) return 0;
  getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.sin_port);
}

class RedisStorageTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!HasRedis()) GTEST_SKIP() << "redis-server is not installed";
    options_.address = "unix:" + folder_.path() + "/r.sock";
    options_.patience_us = 15'000'000;
  }
  void StartServer(std::vector<std::string> more = {}) {
    more.insert(more.end(), {"--port", "0", "--unixsocket", folder_.path() + "/r.sock", "--unixsocketperm", "700"});
    server_.Start(folder_.path(), std::move(more));
  }
  void StartDurableServer() {
    // With the default, everysec, acknowledged writes wait in memory while the disk is busy, and kill -9 loses them.
    StartServer({"--appendonly", "yes", "--appendfsync", "always"});
  }
  void Open() {
    storage_.reset();
    Result<std::unique_ptr<RedisStorage>> opened = RedisStorage::Open(*loop_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    storage_ = std::move(*opened);
  }
  std::string Put(const std::string& key, std::optional<std::string> value) {
    const Result<std::uint64_t> done = PutNow(*loop_, *storage_, Table::kKeyValue, key, std::move(value));
    return done.ok() ? "ok" : done.status().message();
  }
  std::string Value(const std::string& key) { return ValueNow(*loop_, *storage_, Table::kKeyValue, key); }
  std::string Scan(const std::string& prefix, std::size_t limit = 0) {
    return ScanText(*loop_, *storage_, Table::kKeyValue, prefix, limit);
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  RedisServer server_;
  RedisOptions options_;
  std::unique_ptr<RedisStorage> storage_;
};

TEST_F(RedisStorageTest, WhatWasAcknowledgedIsThereForTheNextProcess) {
  StartServer();
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  EXPECT_EQ(Put("b", std::string("x\r\n\0 y", 6)), "ok");
  EXPECT_EQ(Put("a", "3"), "ok");
  EXPECT_EQ(Value("a"), "3");
  const std::uint64_t epoch = storage_->epoch();
  Open();
  EXPECT_EQ(Value("a"), "3");
  EXPECT_EQ(Value("b"), std::string("x\r\n\0 y", 6));
  EXPECT_EQ(GetNow(*loop_, *storage_, Table::kKeyValue, "a").value()->version, 3U);
  EXPECT_EQ(storage_->last_sequence(), 3U);
  EXPECT_GT(storage_->epoch(), epoch);
  EXPECT_EQ(Put("a", {}), "ok");
  EXPECT_EQ(Value("a"), "-");
}

TEST_F(RedisStorageTest, ScansAreInOrderWhateverThePages) {
  StartServer();
  Open();
  for (int i = 9; i >= 0; --i) EXPECT_EQ(Put("k" + std::to_string(i), "v"), "ok");
  EXPECT_EQ(Put("k5", {}), "ok");
  EXPECT_EQ(Put("l", "v"), "ok");
  EXPECT_EQ(Put("\xff\xff", "v"), "ok");
  const std::string expected = "k0=v k1=v k2=v k3=v k4=v k6=v k7=v k8=v k9=v";
  for (const std::size_t limit : {0U, 1U, 4U}) EXPECT_EQ(Scan("k", limit), expected);
  EXPECT_EQ(Scan("", 2), expected + " l=v \xff\xff=v");
  EXPECT_EQ(Scan("\xff"), "\xff\xff=v");
  EXPECT_EQ(Scan("zz"), "");
}

TEST_F(RedisStorageTest, OverTcpItNeedsThePassword) {
  const std::uint16_t port = FreePort();
  server_.Start(folder_.path(), {"--bind", "127.0.0.1", "--port", std::to_string(port), "--requirepass", kPassword});
  options_.address = "127.0.0.1:" + std::to_string(port);
  EXPECT_EQ(RedisStorage::Open(*loop_, options_).status().code(), Code::kInvalid);
  options_.password = "wrong";
  const Status wrong = RedisStorage::Open(*loop_, options_).status();
  EXPECT_EQ(wrong.code(), Code::kInvalid) << wrong.message();
  EXPECT_NE(wrong.message().find("password"), std::string::npos) << wrong.message();
  EXPECT_EQ(wrong.message().find("wrong"), std::string::npos) << "the password itself is not for the log";
  options_.password = kPassword;
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  EXPECT_EQ(Value("a"), "1");
}

TEST_F(RedisStorageTest, AbsentItIsAClearError) {
  options_.patience_us = 100'000;
  const Status status = RedisStorage::Open(*loop_, options_).status();
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("r.sock"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("No such file"), std::string::npos) << status.message();
}

TEST_F(RedisStorageTest, GoneForLongItIsAClearErrorAndBackItGoesOn) {
  StartDurableServer();
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  server_.Kill();
  storage_.reset();
  StartDurableServer();
  options_.patience_us = 500'000;
  Open();
  server_.Kill();
  const std::string message = Put("a", "2");
  EXPECT_NE(message.find("is out of reach for"), std::string::npos) << message;
  EXPECT_EQ(GetNow(*loop_, *storage_, Table::kKeyValue, "a").status().code(), Code::kUnavailable);
  StartDurableServer();
  std::string answer;
  ASSERT_TRUE(RunUntil(*loop_, [&] { return (answer = Put("a", "3")) == "ok"; })) << answer;
  EXPECT_EQ(Value("a"), "3");
}

TEST_F(RedisStorageTest, KilledAndRestartedUnderLoadEveryBatchTakesEffectOnce) {
  StartDurableServer();
  Open();
  constexpr int kWrites = 3000;
  int done = 0;
  int next = 0;
  std::vector<std::uint64_t> versions(kWrites);
  const auto send = [&] {
    const int i = next++;
    Batch batch;
    batch.client = Id{3, 4};
    batch.client_sequence = static_cast<std::uint64_t>(i + 1);
    batch.writes.push_back(Write{Table::kKeyValue, "k" + std::to_string(i), std::to_string(i)});
    batch.writes.push_back(Write{Table::kKeyValue, "last", std::to_string(i)});
    storage_->Apply(std::move(batch), [&, i](const Result<std::uint64_t>& result) {
      ASSERT_TRUE(result.ok()) << result.status().message();
      versions[static_cast<std::size_t>(i)] = result.value();
      ++done;
    });
  };
  int kills = 0;
  ASSERT_TRUE(RunUntil(*loop_, [&] {
    while (next < kWrites && next - done < 64) send();
    if (kills < 3 && done > (kills + 1) * kWrites / 5) {
      ++kills;
      server_.Kill();
      StartDurableServer();
    }
    return done == kWrites;
  })) << done;
  EXPECT_EQ(kills, 3);
  EXPECT_EQ(Value("last"), std::to_string(kWrites - 1));
  for (int i = 0; i < kWrites; ++i) {
    const Result<std::optional<Entry>> entry = GetNow(*loop_, *storage_, Table::kKeyValue, "k" + std::to_string(i));
    ASSERT_TRUE(entry.ok() && entry.value()) << i;
    EXPECT_EQ(entry.value()->version, versions[static_cast<std::size_t>(i)]);
    if (i <= kWrites - 1000) continue;  // out of the window
    EXPECT_EQ(storage_->Applied(Id{3, 4}, static_cast<std::uint64_t>(i + 1)), entry.value()->version);
  }
}

TEST_F(RedisStorageTest, RestartedWithoutWhatItHadAcknowledgedItIsNotTrusted) {
  StartServer();
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  server_.Kill();
  StartServer();
  const Result<std::uint64_t> lost = PutNow(*loop_, *storage_, Table::kKeyValue, "b", "2");
  EXPECT_EQ(lost.status().code(), Code::kLost) << lost.status().message();
  EXPECT_EQ(GetNow(*loop_, *storage_, Table::kKeyValue, "a").status().code(), Code::kLost);
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
}

TEST_F(RedisStorageTest, StoppedItIsAnErrorAfterAWhileAndGoesOnWhenItContinues) {
  StartServer();
  options_.patience_us = 200'000;
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  server_.Signal(SIGSTOP);
  Batch batch;
  batch.client = Id{1, 1};
  batch.client_sequence = 5;
  batch.writes.push_back(Write{Table::kKeyValue, "a", "2"});
  const Result<std::uint64_t> slow = ApplyNow(*loop_, *storage_, std::move(batch));
  EXPECT_EQ(slow.status().code(), Code::kUnavailable);
  EXPECT_NE(slow.status().message().find("has not answered for 200 ms"), std::string::npos) << slow.status().message();
  server_.Signal(SIGCONT);
  std::string answer;
  ASSERT_TRUE(RunUntil(*loop_, [&] { return (answer = Put("b", "3")) == "ok"; })) << answer;
  // The one that was given up took effect or did not; the storage knows which, and nothing older comes after it.
  const bool applied = storage_->Applied(Id{1, 1}, 5) != 0;
  EXPECT_EQ(Value("a"), applied ? "2" : "1");
}

TEST_F(RedisStorageTest, AWriteThatWasGivenUpAndSentAgainTakesEffectOnce) {
  StartServer();
  options_.patience_us = 150'000;
  Open();
  std::vector<std::unique_ptr<Storage>> shards;
  shards.push_back(std::move(storage_));
  Tables tables(*loop_, std::move(shards));
  std::optional<Status> opened;
  tables.Open([&](const Status& status) { opened = status; });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    ControlWrite write;
    write.client = Id{1, 2};
    write.sequence = i;
    write.key = "k" + std::to_string(i);
    write.value = "v";
    write.expect = 0;
    std::optional<Result<ControlWritten>> answer;
    const auto take = [&](Result<ControlWritten> result) { answer = std::move(result); };
    server_.Signal(SIGSTOP);
    tables.Write(write, take);
    ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    EXPECT_EQ(answer->status().code(), Code::kUnavailable);
    if (i != 2) server_.Signal(SIGCONT);  // before or after it is sent again
    while (!answer->ok()) {
      answer.reset();
      tables.Write(write, take);
      server_.Signal(SIGCONT);
      ASSERT_TRUE(RunUntil(*loop_, [&] { return answer.has_value(); }));
    }
    EXPECT_TRUE((*answer)->applied) << i;
  }
}

TEST_F(RedisStorageTest, ASecondProcessTakesOverAndTheFirstGivesUp) {
  StartServer();
  Open();
  EXPECT_EQ(Put("a", "1"), "ok");
  std::unique_ptr<RedisStorage> first = std::move(storage_);
  Open();
  EXPECT_EQ(Put("a", "2"), "ok");
  const Result<std::uint64_t> late = PutNow(*loop_, *first, Table::kKeyValue, "a", "late");
  EXPECT_EQ(late.status().code(), Code::kUnavailable);
  EXPECT_NE(late.status().message().find("taken"), std::string::npos) << late.status().message();
  EXPECT_EQ(Value("a"), "2");
  EXPECT_EQ(Put("a", "3"), "ok");
}

TEST_F(RedisStorageTest, OutOfMemoryIsATypedErrorAndTheBatchLeavesNothing) {
  StartServer({"--maxmemory", "3mb"});
  Open();
  Status status;
  int count = 0;
  for (; count < 200 && status.ok(); ++count) {
    status =
        PutNow(*loop_, *storage_, Table::kKeyValue, "k" + std::to_string(count), std::string(100'000, 'v')).status();
  }
  EXPECT_EQ(status.code(), Code::kOutOfMemory) << status.message();
  EXPECT_EQ(Value("k" + std::to_string(count - 1)), "-");
  EXPECT_EQ(Put("k0", {}), "ok");
  EXPECT_EQ(Put("small", "v"), "ok");
}

TEST_F(RedisStorageTest, TheLogGivesBatchesAfterASequence) {
  StartServer();
  options_.keep_log_entries = 100;
  Open();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Put("k", std::to_string(i)), "ok");
  Result<std::vector<Batch>> batches = EntriesNow(*loop_, *storage_, 2);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  ASSERT_EQ(batches->size(), 3U);
  EXPECT_EQ(batches->front().sequence, 3U);
  EXPECT_EQ(batches->back().writes[0].value, "4");
  EXPECT_TRUE(EntriesNow(*loop_, *storage_, 5)->empty());
  options_.keep_log_entries = 0;
  options_.prefix = "other:";
  Open();
  EXPECT_EQ(Put("k", "v"), "ok");
  EXPECT_EQ(EntriesNow(*loop_, *storage_, 0).status().code(), Code::kNotFound);
}

TEST_F(RedisStorageTest, TablesOverTwoShardsOfOneServerWork) {
  StartServer();
  std::vector<std::unique_ptr<Storage>> shards;
  for (const char* prefix : {"m0:", "m1:"}) {
    options_.prefix = prefix;
    Open();
    shards.push_back(std::move(storage_));
  }
  Tables tables(*loop_, std::move(shards));
  std::optional<Status> opened;
  tables.Open([&](const Status& status) { opened = status; });
  ASSERT_TRUE(RunUntil(*loop_, [&] { return opened.has_value(); }));
  ASSERT_TRUE(opened->ok()) << opened->message();
  std::string text;
  tables.Watch(Table::kNodes, "",
               {[&](const std::vector<ControlChange>& changes, bool complete) {
                  for (const ControlChange& change : changes) text += change.key;
                  if (complete) text += "|";
                },
                {},
                {}});
  int won = 0;
  int lost = 0;
  for (int i = 0; i < 20; ++i) {
    ControlWrite write;
    write.client = Id{1, 2};
    write.sequence = static_cast<std::uint64_t>(i + 1);
    write.table = Table::kNodes;
    write.key = std::string(1, static_cast<char>('a' + i / 2));
    write.value = "v";
    write.expect = 0;
    tables.Write(write, [&](Result<ControlWritten> result) { (result->applied ? won : lost)++; });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return won + lost == 20 && text.size() == 11; })) << text;
  EXPECT_EQ(won, 10);
}

}  // namespace
}  // namespace manta::control
