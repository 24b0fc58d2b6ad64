#include "shm/order_log.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "shm/mapping.h"

namespace manta::shm {
namespace {

OrderRecord Numbered(std::uint64_t i) { return {Id{i, i + 1}, i * 3, i % 2}; }

// The memory twice: as the actor writes it and as the daemon, which got the descriptor, reads it.
class OrderLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<base::Fd> fd = MakeMemory("order", sizeof(OrderMemory));
    ASSERT_TRUE(fd.ok());
    Result<Mapping> actor = Mapping::Of(fd->get(), 0, sizeof(OrderMemory), true);
    Result<Mapping> daemon = Mapping::Of(fd->get(), 0, sizeof(OrderMemory), false);
    ASSERT_TRUE(actor.ok() && daemon.ok());
    actor_ = std::move(*actor);
    daemon_ = std::move(*daemon);
  }
  [[nodiscard]] const OrderMemory& Seen() const { return *reinterpret_cast<const OrderMemory*>(daemon_.data()); }
  [[nodiscard]] bool Holds(std::uint64_t i) const {
    const OrderRecord& record = Seen().records[i % OrderMemory::kRecords];
    const OrderRecord wanted = Numbered(i);
    return record.call == wanted.call && record.digest == wanted.digest && record.failed == wanted.failed;
  }

  Mapping actor_;
  Mapping daemon_;
};

TEST_F(OrderLogTest, CountsARecordOnlyWhenItIsComplete) {
  OrderLog log(actor_.data());
  log.Append(Numbered(0));
  EXPECT_EQ(Seen().count.load(), 1U);
  EXPECT_TRUE(Holds(0));
  // Killed while it wrote the next one.
  reinterpret_cast<OrderMemory*>(actor_.data())->records[1].call = Id{99, 99};
  EXPECT_EQ(Seen().count.load(), 1U);
  log.Append(Numbered(1));
  EXPECT_EQ(Seen().count.load(), 2U);
  EXPECT_TRUE(Holds(0));
  EXPECT_TRUE(Holds(1));
}

TEST_F(OrderLogTest, WrapsAroundAndKeepsTheNewestRecords) {
  OrderLog log(actor_.data());
  constexpr std::uint64_t kAll = 2 * OrderMemory::kRecords + 5;
  for (std::uint64_t i = 0; i < kAll; ++i) log.Append(Numbered(i));
  EXPECT_EQ(Seen().count.load(), kAll);
  for (std::uint64_t i = kAll - OrderMemory::kRecords; i < kAll; ++i) ASSERT_TRUE(Holds(i)) << i;
}

// In one mapping, so that ThreadSanitizer sees both sides: what is counted is complete, while the actor goes on.
TEST_F(OrderLogTest, WhatIsCountedCanBeReadWhileTheActorGoesOn) {
  OrderLog log(actor_.data());
  const auto& seen = *reinterpret_cast<const OrderMemory*>(actor_.data());
  std::thread actor([&] {
    for (std::uint64_t i = 0; i < OrderMemory::kRecords; ++i) log.Append(Numbered(i));
  });
  bool same = true;
  for (std::uint64_t next = 0; next < OrderMemory::kRecords;) {
    for (const std::uint64_t count = seen.count.load(std::memory_order_acquire); next < count; ++next) {
      const OrderRecord& record = seen.records[next];
      const OrderRecord wanted = Numbered(next);
      same &= record.call == wanted.call && record.digest == wanted.digest && record.failed == wanted.failed;
    }
  }
  actor.join();
  EXPECT_TRUE(same);
}

TEST_F(OrderLogTest, SurvivesItsProcess) {
  const pid_t actor = fork();
  ASSERT_GE(actor, 0);
  if (actor == 0) {
    OrderLog log(actor_.data());
    for (std::uint64_t i = 0; i < 1000; ++i) log.Append(Numbered(i));
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(actor, &status, 0), actor);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_EQ(Seen().count.load(), 1000U);
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_TRUE(Holds(i)) << i;
}

TEST_F(OrderLogTest, TakesNoMemoryForRecordsThatAreNotThere) {
  Result<base::Fd> fd = MakeMemory("order", sizeof(OrderMemory));
  ASSERT_TRUE(fd.ok());
  Result<Mapping> map = Mapping::Of(fd->get(), 0, sizeof(OrderMemory), true);
  ASSERT_TRUE(map.ok());
  OrderLog(map->data()).Append(Numbered(0));
  struct stat info{};
  ASSERT_EQ(fstat(fd->get(), &info), 0);
  EXPECT_LE(info.st_blocks * 512, 64 << 10);
}

TEST_F(OrderLogTest, ANewLogInUsedMemoryIsEmpty) {
  OrderLog(actor_.data()).Append(Numbered(0));
  const OrderLog again(actor_.data());
  EXPECT_EQ(Seen().count.load(), 0U);
}

TEST(OrderLog, OneWithoutMemoryForgets) {
  OrderLog log;
  log.Append(Numbered(1));
}

}  // namespace
}  // namespace manta::shm
