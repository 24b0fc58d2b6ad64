// What recovery will need, a record of every call whose result somebody saw, must be there when the process that made
// the call is not. The program (fixture/lineage.cc) and its actor are killed in the middle of their work; what they
// left is read as the daemon could: through the daemon's own descriptors, opened after the deaths. The daemon is
// stopped meanwhile, because it ends a private cluster as soon as the driver is gone.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "manta/codec.h"
#include "shm/arena.h"
#include "shm/journal.h"
#include "shm/spec.h"
#include "types/id.h"

namespace manta {
namespace {

using namespace std::chrono_literals;

struct Look {
  char state = 'X';  // gone
  pid_t parent = 0;
};
Look LookAt(pid_t pid) {
  Look look;
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(in, stat);
  if (const std::size_t close = stat.rfind(')'); close != std::string::npos) {
    std::istringstream(stat.substr(close + 1)) >> look.state >> look.parent;
  }
  return look;
}
bool Dead(pid_t pid) { return LookAt(pid).state == 'X' || LookAt(pid).state == 'Z'; }
bool Eventually(const std::function<bool()>& done) {
  for (int i = 0; i < 10'000; ++i) {
    if (done()) return true;
    std::this_thread::sleep_for(2ms);
  }
  return false;
}

// The arena that process `pid` made, through a descriptor that `holder` has.
std::optional<shm::Arena> ArenaOf(pid_t pid, pid_t holder) {
  const std::string folder = "/proc/" + std::to_string(holder) + "/fd";
  DIR* open_fds = opendir(folder.c_str());
  if (open_fds == nullptr) return std::nullopt;
  std::optional<shm::Arena> found;
  while (const dirent* item = readdir(open_fds)) {
    const std::string path = folder + "/" + item->d_name;
    char target[256] = {};
    if (readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    if (std::string_view(target).find("memfd:manta-arena") == std::string_view::npos) continue;
    Result<shm::Arena> arena = shm::Arena::Open(base::Fd(open(path.c_str(), O_RDWR | O_CLOEXEC)));
    if (!arena.ok()) continue;
    if (reinterpret_cast<const shm::ArenaHeader*>(arena->at(0))->pid == static_cast<std::uint32_t>(pid)) {
      found = std::move(*arena);
    }
  }
  closedir(open_fds);
  return found;
}

// Memory of that name which `holder` has.
base::Fd MemoryOf(std::string_view name, pid_t holder) {
  const std::string folder = "/proc/" + std::to_string(holder) + "/fd";
  DIR* open_fds = opendir(folder.c_str());
  base::Fd found;
  while (const dirent* item = open_fds == nullptr ? nullptr : readdir(open_fds)) {
    const std::string path = folder + "/" + item->d_name;
    char target[256] = {};
    if (readlink(path.c_str(), target, sizeof target - 1) <= 0) continue;
    if (std::string_view(target).find(name) == std::string_view::npos) continue;
    found = base::Fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  }
  if (open_fds != nullptr) closedir(open_fds);
  return found;
}

// All records of the call `id` that the arena holds. Recovery would know where the log is; here it is searched for in
// whatever pages were ever written.
std::vector<shm::SpecReader> RecordsOf(const Id& id, const shm::Arena& arena) {
  std::vector<shm::SpecReader> found;
  off_t at = static_cast<off_t>(shm::kChunksOffset);
  while ((at = lseek(arena.fd(), at, SEEK_DATA)) >= 0) {
    const off_t end = lseek(arena.fd(), at, SEEK_HOLE);
    for (; at + static_cast<off_t>(sizeof(shm::SpecHeader)) <= end; at += 8) {
      const auto offset = static_cast<std::uint64_t>(at);
      if (std::memcmp(arena.at(offset) + offsetof(shm::SpecHeader, id), &id, sizeof id) != 0) continue;
      Result<shm::SpecReader> reader = shm::SpecReader::Open(arena.at(offset), static_cast<std::uint64_t>(end - at));
      if (reader.ok()) found.push_back(*reader);
    }
    at = end;
  }
  return found;
}

int IntArgument(shm::SpecReader& record) {
  Result<shm::SpecReader::Item> item = record.Next();
  EXPECT_TRUE(item.ok());
  return item.ok() ? Decode<int>(std::span(item->data, item->length)) : -1;
}

class LineageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], 1);
    std::string program = LINEAGE_FIXTURE;
    char* argv[] = {program.data(), nullptr};
    const int error = posix_spawn(&driver_, program.c_str(), &files, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    const std::unique_ptr<FILE, int (*)(FILE*)> out(fdopen(ends[0], "r"), fclose);
    ASSERT_EQ(error, 0) << std::strerror(error);
    char word[16] = {};
    char value[64] = {};
    while (std::fscanf(out.get(), "%15s", word) == 1 && std::string_view(word) != "ready") {
      ASSERT_EQ(std::fscanf(out.get(), "%63s", value), 1);
      Id id;
      if (std::string_view(word) == "worker") {
        worker_ = std::atoi(value);
        continue;
      }
      ASSERT_TRUE(FromHex(value, &id)) << value;
      (std::string_view(word) == "task" ? tasks_ : calls_).push_back(id);
    }
    ASSERT_STREQ(word, "ready");
    daemon_ = LookAt(LookAt(worker_).parent).parent;  // the fork server is between them
    ASSERT_GT(daemon_, 1);
  }

  void TearDown() override {
    if (driver_ > 0) kill(driver_, SIGKILL);
    if (daemon_ > 1) {
      kill(daemon_, SIGCONT);
      EXPECT_TRUE(Eventually([this] { return Dead(daemon_); }));
    }
    if (driver_ > 0 && !reaped_) waitpid(driver_, nullptr, 0);
  }

  // Afterwards nobody but the daemon (and the other workers, which only map what they serve) has their memory.
  void KillDriverAndActor() {
    ASSERT_EQ(kill(daemon_, SIGSTOP), 0);
    ASSERT_TRUE(Eventually([this] { return LookAt(daemon_).state == 'T'; }));
    ASSERT_EQ(kill(driver_, SIGKILL), 0);
    ASSERT_EQ(kill(worker_, SIGKILL), 0);
    ASSERT_EQ(waitpid(driver_, nullptr, 0), driver_);
    reaped_ = true;
    ASSERT_TRUE(Eventually([this] { return Dead(worker_); }));
  }

  pid_t driver_ = 0;
  pid_t worker_ = 0;
  pid_t daemon_ = 0;
  bool reaped_ = false;
  std::vector<Id> tasks_;
  std::vector<Id> calls_;
};

TEST_F(LineageTest, TheRecordOfATaskWhoseResultWasSeenOutlivesTheDriver) {
  ASSERT_EQ(tasks_.size(), 1U);
  KillDriverAndActor();
  const std::optional<shm::Arena> arena = ArenaOf(driver_, daemon_);
  ASSERT_TRUE(arena.has_value()) << "the daemon does not hold the driver's arena";
  std::vector<shm::SpecReader> records = RecordsOf(tasks_[0], *arena);
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].name(), "double");
  EXPECT_NE(records[0].header().trampoline, 0U);
  EXPECT_EQ(IntArgument(records[0]), 1041);
}

TEST_F(LineageTest, TheRecordsOfAnActorsCallsOutliveTheDriver) {
  ASSERT_EQ(calls_.size(), 5U);
  KillDriverAndActor();
  const std::optional<shm::Arena> arena = ArenaOf(driver_, daemon_);
  ASSERT_TRUE(arena.has_value()) << "the daemon does not hold the driver's arena";
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    std::vector<shm::SpecReader> records = RecordsOf(calls_[i], *arena);
    ASSERT_EQ(records.size(), 1U) << i;
    EXPECT_EQ(IntArgument(records[0]), static_cast<int>(i) + 1);
  }
}

TEST_F(LineageTest, TheOrderOfAnActorsCallsOutlivesTheActor) {
  ASSERT_EQ(calls_.size(), 5U);
  KillDriverAndActor();
  base::Fd fd = MemoryOf("manta-journal", daemon_);
  ASSERT_TRUE(fd.valid()) << "the daemon does not hold the actor's journal";
  Result<shm::Journal> journal = shm::Journal::Open(std::move(fd));
  ASSERT_TRUE(journal.ok()) << journal.status().message();
  std::vector<Id> order;
  ASSERT_TRUE(journal
                  ->ForCalls([&](const shm::CallRecord& record, const std::byte* spec, std::uint64_t bytes) {
                    Result<shm::SpecReader> reader = shm::SpecReader::Open(spec, bytes);
                    EXPECT_TRUE(reader.ok());
                    if (reader.ok()) order.push_back(reader->header().id);
                    EXPECT_NE(record.digest, 0U);
                    EXPECT_EQ(record.failed, 0U);
                    return true;
                  })
                  .ok());
  ASSERT_GE(order.size(), 1 + calls_.size());  // the first one asked for its pid
  for (std::size_t i = 0; i < calls_.size(); ++i) EXPECT_EQ(ToHex(order[1 + i]), ToHex(calls_[i])) << i;
}

}  // namespace
}  // namespace manta
