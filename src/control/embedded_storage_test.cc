#include "control/embedded_storage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <random>

#include "control/test_util.h"

namespace manta::control {
namespace {

class EmbeddedStorageTest : public testing::Test {
 protected:
  EmbeddedStorageTest() { options_.folder = folder_.path() + "/store"; }
  void Open() {
    storage_.reset();
    Result<std::unique_ptr<EmbeddedStorage>> opened = EmbeddedStorage::Open(*loop_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    storage_ = std::move(*opened);
  }
  void Put(const std::string& key, std::optional<std::string> value, Table table = Table::kKeyValue) {
    const Result<std::uint64_t> done = PutNow(*loop_, *storage_, table, key, std::move(value));
    ASSERT_TRUE(done.ok()) << done.status().message();
  }
  std::string Value(const std::string& key, Table table = Table::kKeyValue) {
    return ValueNow(*loop_, *storage_, table, key);
  }
  std::string Scan(const std::string& prefix, std::size_t limit = 0) {
    return ScanText(*loop_, *storage_, Table::kKeyValue, prefix, limit);
  }
  // Until all of what is in memory now is in SQLite.
  void Checkpoint() {
    const std::uint64_t before = storage_->checkpoints();
    Put("filler", std::string(options_.checkpoint_bytes, 'f'), Table::kEvents);
    ASSERT_TRUE(RunUntil(*loop_, [&] { return storage_->checkpoints() > before; }));
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  EmbeddedOptions options_;
  std::unique_ptr<EmbeddedStorage> storage_;
};

TEST_F(EmbeddedStorageTest, WhatWasAcknowledgedIsThereAfterReopening) {
  Open();
  Put("a", "1");
  Put("b", "2");
  Put("a", "3");
  Put("b", {});
  const std::uint64_t epoch = storage_->epoch();
  Open();
  EXPECT_EQ(Value("a"), "3");
  EXPECT_EQ(Value("b"), "-");
  EXPECT_EQ(storage_->last_sequence(), 4U);
  EXPECT_GT(storage_->epoch(), epoch);
  EXPECT_EQ(GetNow(*loop_, *storage_, Table::kKeyValue, "a").value()->version, 3U);
}

TEST_F(EmbeddedStorageTest, ReadsLookThroughMemoryIntoCheckpointedTables) {
  options_.checkpoint_bytes = 10000;
  options_.segment_bytes = 4000;
  Open();
  for (int i = 0; i < 10; ++i) Put("k" + std::to_string(i), "old");
  Checkpoint();
  Put("k3", "new");
  Put("k4", {});
  Put("k55", "between");
  EXPECT_EQ(Value("k2"), "old");
  EXPECT_EQ(Value("k3"), "new");
  EXPECT_EQ(Value("k4"), "-");
  const std::string expected = "k0=old k1=old k2=old k3=new k5=old k55=between k6=old k7=old k8=old k9=old";
  EXPECT_EQ(Scan("k"), expected);
  EXPECT_EQ(Scan("k", 1), expected);
  EXPECT_EQ(Scan("k", 3), expected);
  EXPECT_EQ(Scan("k5"), "k5=old k55=between");
  EXPECT_EQ(Scan("x"), "");
  Open();
  EXPECT_EQ(Scan(""), expected);
}

TEST_F(EmbeddedStorageTest, KeysOfAnyBytesAreScannedInOrder) {
  Open();
  for (const char* key : {"\xff\xff", "\xff", "a", "ab", "b"}) Put(key, "v");
  EXPECT_EQ(Scan("\xff"), "\xff=v \xff\xff=v");
  EXPECT_EQ(Scan("a"), "a=v ab=v");
  Put("", "empty");
  EXPECT_EQ(Value(""), "empty");
}

TEST_F(EmbeddedStorageTest, TheLogIsCutAfterACheckpoint) {
  options_.checkpoint_bytes = 20000;
  options_.segment_bytes = 5000;
  Open();
  for (int i = 0; i < 200; ++i) Put("key" + std::to_string(i), std::string(1000, 'v'));
  Checkpoint();
  EXPECT_GE(storage_->checkpoints(), 5U);
  EXPECT_LE(storage_->segments(), 12U);
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    files += entry.path().filename().string().starts_with("log-") ? 1 : 0;
  }
  EXPECT_EQ(files, storage_->segments());
  Open();
  EXPECT_EQ(Value("key0"), std::string(1000, 'v'));
  EXPECT_EQ(Value("key199"), std::string(1000, 'v'));
}

TEST_F(EmbeddedStorageTest, ManyRestartsDoNotPileUpSegments) {
  for (int i = 0; i < 12; ++i) {
    Open();
    Put("k" + std::to_string(i), "v");
  }
  Open();
  ASSERT_TRUE(RunUntil(*loop_, [&] { return storage_->segments() < 8; }));
  EXPECT_EQ(Scan("k1"), "k1=v k10=v k11=v");
}

TEST_F(EmbeddedStorageTest, WritesWaitForMemoryAndAllGetThrough) {
  options_.checkpoint_bytes = 100'000;
  options_.memory_bytes = 200'000;
  Open();
  int done = 0;
  for (int i = 0; i < 100; ++i) {
    Batch batch;
    batch.writes.push_back(
        Write{Table::kLineage, "l" + std::to_string(i), std::string(i == 50 ? 500'000 : 20'000, 'l')});
    storage_->Apply(std::move(batch), [&](const Result<std::uint64_t>& result) { done += result.ok() ? 1 : 0; });
  }
  ASSERT_TRUE(RunUntil(*loop_, [&] { return done == 100; })) << done;
  EXPECT_EQ(Value("l99", Table::kLineage).size(), 20'000U);
}

TEST_F(EmbeddedStorageTest, WhichWritesOfAClientWereAppliedIsRememberedAcrossRestarts) {
  options_.checkpoint_bytes = 10000;
  Open();
  const Id client{1, 2};
  for (std::uint64_t i = 1; i <= 3; ++i) {
    Batch batch;
    batch.client = client;
    batch.client_sequence = i;
    batch.writes.push_back(Write{Table::kJobs, "j", "v"});
    ASSERT_TRUE(ApplyNow(*loop_, *storage_, std::move(batch)).ok());
    if (i == 2) Checkpoint();
  }
  Open();
  EXPECT_EQ(storage_->Applied(client, 1), 1U);
  EXPECT_EQ(storage_->Applied(client, 2), 2U);
  EXPECT_EQ(storage_->Applied(client, 3), 4U);  // the filler was 3
  EXPECT_EQ(storage_->Applied(client, 4), 0U);
  EXPECT_EQ(storage_->Applied(client, 1 + wire::kControlWindow), 0U);
  EXPECT_EQ(storage_->Clients(), std::vector<Id>{client});
  storage_->Forget(client);
  Checkpoint();
  Open();
  EXPECT_EQ(storage_->Applied(client, 3), 0U);
  EXPECT_TRUE(storage_->Clients().empty());
}

TEST_F(EmbeddedStorageTest, TheLogGivesBatchesAfterASequenceAsFarAsItReaches) {
  options_.checkpoint_bytes = 10000;
  options_.segment_bytes = 1000;
  Open();
  for (int i = 0; i < 5; ++i) Put("k", std::string(400, static_cast<char>('a' + i)));
  Result<std::vector<Batch>> batches = EntriesNow(*loop_, *storage_, 2);
  ASSERT_TRUE(batches.ok()) << batches.status().message();
  ASSERT_EQ(batches->size(), 3U);
  EXPECT_EQ(batches->front().sequence, 3U);
  EXPECT_EQ(batches->back().writes[0].value, std::string(400, 'e'));
  EXPECT_TRUE(EntriesNow(*loop_, *storage_, 5)->empty());
  Checkpoint();
  Put("k", "after");
  Checkpoint();
  EXPECT_EQ(EntriesNow(*loop_, *storage_, 2).status().code(), Code::kNotFound);
}

TEST_F(EmbeddedStorageTest, FollowersKeepTheSequenceTheyAreGiven) {
  Open();
  Batch batch;
  batch.sequence = 100;
  batch.epoch = 9;
  batch.writes.push_back(Write{Table::kKeyValue, "k", "v"});
  EXPECT_EQ(ApplyNow(*loop_, *storage_, batch).value(), 100U);
  EXPECT_EQ(ApplyNow(*loop_, *storage_, batch).status().code(), Code::kInvalid);
  EXPECT_EQ(PutNow(*loop_, *storage_, Table::kKeyValue, "k", "w").value(), 101U);
  EXPECT_EQ(EntriesNow(*loop_, *storage_, 99)->front().epoch, 9U);
}

TEST_F(EmbeddedStorageTest, OneProcessAtATime) {
  Open();
  const Result<std::unique_ptr<EmbeddedStorage>> second = EmbeddedStorage::Open(*loop_, options_);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), Code::kInvalid);
  EXPECT_NE(second.status().message().find(std::to_string(getpid())), std::string::npos) << second.status().message();
}

TEST_F(EmbeddedStorageTest, NobodyElseMayLook) {
  const mode_t old = umask(0);
  Open();
  Put("a", "1");
  umask(old);
  struct stat info{};
  ASSERT_EQ(stat(options_.folder.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700U);
  for (const auto& entry : std::filesystem::directory_iterator(options_.folder)) {
    ASSERT_EQ(stat(entry.path().c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600U) << entry.path();
  }
  storage_.reset();
  chmod(options_.folder.c_str(), 0755);
  EXPECT_EQ(EmbeddedStorage::Open(*loop_, options_).status().code(), Code::kInvalid);
}

TEST_F(EmbeddedStorageTest, ALogCutAtAnyByteOpensWithWhatWasWholeAndTakesNewWrites) {
  Open();
  Put("a", "first");
  Put("b", "second");
  const std::string log = options_.folder + "/" + SegmentName(storage_->epoch());
  storage_.reset();
  const std::string copy = folder_.path() + "/copy";
  std::ifstream in(log, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), {});
  LogReader reader(std::as_bytes(std::span(bytes)).subspan(sizeof(SegmentHeader)), 1, sizeof(SegmentHeader));
  ASSERT_TRUE(reader.Next().has_value());
  const std::uint64_t first_end = reader.offset();
  ASSERT_TRUE(reader.Next().has_value());
  const std::uint64_t second_end = reader.offset();
  options_.folder.swap(const_cast<std::string&>(copy));
  for (std::uint64_t size = first_end; size <= second_end; size += size % 8 == 0 ? 1 : 3) {
    std::filesystem::remove_all(options_.folder);
    std::filesystem::copy(copy, options_.folder, std::filesystem::copy_options::recursive);
    std::filesystem::permissions(options_.folder, std::filesystem::perms::owner_all);
    ASSERT_EQ(truncate((options_.folder + "/" + SegmentName(1)).c_str(), static_cast<off_t>(size)), 0);
    Open();
    EXPECT_EQ(Scan(""), size < second_end ? "a=first" : "a=first b=second") << size;
    // Of the same size as the torn one: nothing of that may come back.
    Put("c", "secund");
    Open();
    EXPECT_EQ(Value("c"), "secund");
    EXPECT_EQ(Value("b"), size < second_end ? "-" : "second");
  }
}

TEST_F(EmbeddedStorageTest, DamageToWhatWasAcknowledgedIsSaidAndNotSkipped) {
  Open();
  Put("a", "first");
  Put("b", "second");
  Open();
  Put("c", "third");
  storage_.reset();
  const base::Fd file(open((options_.folder + "/" + SegmentName(1)).c_str(), O_RDWR));
  ASSERT_EQ(pwrite(file.get(), "X", 1, sizeof(SegmentHeader) + 40), 1);
  const Result<std::unique_ptr<EmbeddedStorage>> opened = EmbeddedStorage::Open(*loop_, options_);
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.status().code(), Code::kCorrupt);
  EXPECT_NE(opened.status().message().find("1 to 2"), std::string::npos) << opened.status().message();
}

// The child writes with a window of 16 and reports every acknowledged number; it is killed at a random instant.
[[noreturn]] void WriteUntilKilled(const EmbeddedOptions& options, int report, std::uint64_t first) {
  std::unique_ptr<base::Loop> loop = std::move(*base::Loop::Create());
  Result<std::unique_ptr<EmbeddedStorage>> storage = EmbeddedStorage::Open(*loop, options);
  if (!storage.ok()) _exit(3);
  std::uint64_t next = first;
  std::uint64_t in_flight = 0;
  for (;;) {
    while (in_flight < 16) {
      const std::uint64_t number = next++;
      Batch batch;
      batch.writes.push_back(Write{Table::kKeyValue, "k" + std::to_string(number), std::to_string(number)});
      batch.writes.push_back(Write{Table::kObjects, "last", std::string(200, 'x') + std::to_string(number)});
      ++in_flight;
      (*storage)->Apply(std::move(batch), [&in_flight, number, report](const Result<std::uint64_t>& result) {
        --in_flight;
        if (!result.ok() || write(report, &number, sizeof number) != sizeof number) _exit(4);
      });
    }
    loop->RunOnce(-1);
  }
}

TEST_F(EmbeddedStorageTest, KilledWhileWritingNothingAcknowledgedIsLost) {
  options_.checkpoint_bytes = 50'000;
  options_.segment_bytes = 20'000;
  std::mt19937 random(12345);
  std::vector<std::uint64_t> acknowledged;
  std::uint64_t first = 1;
  for (int round = 0; round < 12; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC), 0);
    const base::Fd in(pipe_fds[0]);
    base::Fd out(pipe_fds[1]);
    const pid_t child = fork();
    if (child == 0) WriteUntilKilled(options_, out.get(), first);
    ASSERT_GT(child, 0);
    out.Reset(-1);
    // From the first acknowledgement on, any time.
    std::uint64_t number = 0;
    const bool started = read(in.get(), &number, sizeof number) == sizeof number;
    if (started) acknowledged.push_back(number);
    usleep(static_cast<useconds_t>(random() % 60'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(started && WIFSIGNALED(status)) << "the child ended by itself: " << status;
    while (read(in.get(), &number, sizeof number) == sizeof number) acknowledged.push_back(number);
    Open();
    for (const std::uint64_t one : acknowledged) {
      ASSERT_EQ(Value("k" + std::to_string(one)), std::to_string(one)) << "round " << round;
    }
    // A batch is there whole or not at all.
    const std::string last = Value("last", Table::kObjects).substr(200);
    EXPECT_EQ(Value("k" + last), last);
    EXPECT_EQ(Value("k" + std::to_string(std::stoull(last) + 1)), "-");
    first = std::stoull(last) + 1;
    storage_.reset();
  }
  EXPECT_GT(acknowledged.size(), 100U);
}

// In a process of its own, with a disk of 6 MB. Says on stderr what is wrong; the exit code is the number of the step.
[[noreturn]] void FillDisk(const std::string& mount_point) {
  const auto check = [](bool ok, int step, const std::string& text) {
    if (ok) return;
    std::fprintf(stderr, "step %d: %s\n", step, text.c_str());
    _exit(step);
  };
  std::unique_ptr<base::Loop> loop = std::move(*base::Loop::Create());
  EmbeddedOptions options;
  options.folder = mount_point + "/store";
  options.segment_bytes = 100'000;
  options.checkpoint_bytes = 100'000;
  options.memory_bytes = 400'000;
  Result<std::unique_ptr<EmbeddedStorage>> storage = EmbeddedStorage::Open(*loop, options);
  check(storage.ok(), 1, storage.status().message());
  const std::string ballast = mount_point + "/ballast";
  base::Fd file(open(ballast.c_str(), O_CREAT | O_WRONLY, 0600));
  // Leaves 2 MB: tables and log compete for it.
  check(posix_fallocate(file.get(), 0, 4'000'000) == 0, 2, "no ballast");
  std::vector<int> written;
  Status trouble;
  for (int i = 0; i < 2000 && trouble.ok(); ++i) {
    const Result<std::uint64_t> done =
        PutNow(*loop, **storage, Table::kKeyValue, "k" + std::to_string(i), std::string(5000, 'v'));
    if (done.ok()) written.push_back(i);
    trouble = done.status();
  }
  check(trouble.code() == Code::kIo, 3, "not full, or another error: " + trouble.message());
  check(trouble.message().find("make room") != std::string::npos, 4, trouble.message());
  for (const int i : written) {
    check(ValueNow(*loop, **storage, Table::kKeyValue, "k" + std::to_string(i)).size() == 5000, 5, "lost");
  }
  file.Reset(-1);
  unlink(ballast.c_str());
  // Goes on, perhaps not at the first attempt: the checkpoint is tried again by the clock.
  const std::int64_t end = base::NowMicros() + 15'000'000;
  Status status(Code::kIo, "");
  while (!status.ok() && base::NowMicros() < end) {
    status = PutNow(*loop, **storage, Table::kKeyValue, "after", "room").status();
    if (!status.ok()) loop->RunOnce(50'000);
  }
  check(status.ok(), 6, status.message());
  storage->reset();
  storage = EmbeddedStorage::Open(*loop, options);
  check(storage.ok(), 7, storage.status().message());
  for (const int i : written) {
    check(ValueNow(*loop, **storage, Table::kKeyValue, "k" + std::to_string(i)).size() == 5000, 8, "lost");
  }
  check(ValueNow(*loop, **storage, Table::kKeyValue, "after") == "room", 9, "lost");
  storage->reset();
  _exit(0);
}

TEST_F(EmbeddedStorageTest, AFullDiskIsATypedErrorLosesNothingAndPasses) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=6m,mode=0700") != 0) {
      _exit(77);
    }
    FillDisk(folder_.path());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "a disk of our own needs the right to mount";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace manta::control
