#include "owner/task_log.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <set>
#include <vector>

#include "shm/spec.h"

namespace manta::owner {
namespace {

constexpr std::uint64_t kSegment = 4 * shm::kChunkBytes;

class TaskLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Result<shm::Arena> arena = shm::Arena::Create();
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    arena_ = std::make_unique<shm::Arena>(std::move(*arena));
    log_ = std::make_unique<TaskLog>(*arena_, chunks_);
  }
  // A record full of `mark`.
  std::uint64_t Write(std::uint64_t bytes, int mark) {
    const std::uint64_t offset = log_->Append(bytes);
    EXPECT_NE(offset, 0U);
    EXPECT_TRUE(shm::Arena::Valid(offset, bytes));
    std::memset(log_->at(offset), mark, bytes);
    return offset;
  }
  [[nodiscard]] bool Holds(std::uint64_t offset, std::uint64_t bytes, int mark) {
    const std::vector<std::byte> wanted(bytes, static_cast<std::byte>(mark));
    return std::memcmp(log_->at(offset), wanted.data(), bytes) == 0;
  }

  std::unique_ptr<shm::Arena> arena_;
  shm::ChunkAllocator chunks_;
  std::unique_ptr<TaskLog> log_;
};

TEST_F(TaskLogTest, NoRecordIsOverwrittenWhileItIsKept) {
  struct Record {
    std::uint64_t offset, bytes;
    int mark;
  };
  std::deque<Record> kept;
  // Records of many sizes, dropped in an order other than they came in: some stay for long.
  for (int i = 0; i < 20'000; ++i) {
    const std::uint64_t bytes = 72 + static_cast<std::uint64_t>(i * 37 % 500) * 8;
    kept.push_back({Write(bytes, i & 255), bytes, i & 255});
    if (kept.size() < 300) continue;
    const std::size_t victim = i % 3 == 0 ? 0 : static_cast<std::size_t>(i) % kept.size();
    ASSERT_TRUE(Holds(kept[victim].offset, kept[victim].bytes, kept[victim].mark)) << i;
    log_->Drop(kept[victim].offset);
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(victim));
  }
  for (const Record& record : kept) {
    ASSERT_TRUE(Holds(record.offset, record.bytes, record.mark));
    log_->Drop(record.offset);
  }
  EXPECT_EQ(chunks_.used_bytes(), kSegment);  // the one it writes to
}

TEST_F(TaskLogTest, ASegmentIsUsedAgainOnceAllItsRecordsAreDropped) {
  constexpr std::uint64_t kRecord = kSegment / 4;
  std::vector<std::uint64_t> records;
  for (int i = 0; i < 12; ++i) records.push_back(Write(kRecord, i));
  EXPECT_EQ(chunks_.used_bytes(), 3 * kSegment);
  for (const int i : {4, 5, 7}) log_->Drop(records[static_cast<std::size_t>(i)]);
  EXPECT_EQ(chunks_.used_bytes(), 3 * kSegment);  // one record keeps it all
  log_->Drop(records[6]);
  EXPECT_EQ(chunks_.used_bytes(), 2 * kSegment);
  EXPECT_EQ(Write(kRecord, 99), records[4]);
  EXPECT_TRUE(Holds(records[3], kRecord, 3));
  EXPECT_TRUE(Holds(records[8], kRecord, 8));
}

TEST_F(TaskLogTest, TheCurrentSegmentStartsOverWhenItsLastRecordIsDropped) {
  const std::uint64_t first = Write(1024, 1);
  const std::uint64_t second = Write(1024, 2);
  log_->Drop(first);
  const std::uint64_t third = Write(1024, 3);
  EXPECT_GT(third, second);  // not yet: the second is still there
  log_->Drop(second);
  log_->Drop(third);
  EXPECT_EQ(Write(1024, 4), first);
  EXPECT_EQ(chunks_.used_bytes(), kSegment);
}

TEST_F(TaskLogTest, ARecordKeptTwiceMoreNeedsThreeDrops) {
  const std::uint64_t record = Write(1024, 7);
  log_->Keep(record);
  log_->Keep(record);
  for (int drops = 0; drops < 2; ++drops) {
    log_->Drop(record);
    log_->Drop(Write(1024, 8));
    EXPECT_TRUE(Holds(record, 1024, 7)) << drops;
  }
  log_->Drop(record);
  EXPECT_EQ(Write(1024, 9), record);
}

TEST_F(TaskLogTest, ARecordLargerThanASegmentGetsARunOfItsOwn) {
  const std::uint64_t before = Write(1024, 1);
  constexpr std::uint64_t kLarge = 3 * kSegment + 8;
  const std::uint64_t large = Write(kLarge, 2);
  const std::uint64_t after = Write(1024, 3);
  EXPECT_TRUE(Holds(before, 1024, 1));
  EXPECT_TRUE(Holds(large, kLarge, 2));
  EXPECT_TRUE(Holds(after, 1024, 3));
  log_->Drop(before);
  log_->Drop(large);
  EXPECT_EQ(chunks_.used_bytes(), kSegment);
  EXPECT_EQ(Write(kLarge, 4), large);
  EXPECT_TRUE(Holds(after, 1024, 3));
}

TEST_F(TaskLogTest, ARecordThatTheArenaHasNoRoomForLeavesTheOthersAlone) {
  const std::uint64_t record = Write(1024, 1);
  EXPECT_EQ(log_->Append(shm::kArenaBytes), 0U);
  EXPECT_TRUE(Holds(record, 1024, 1));
  EXPECT_EQ(Write(1024, 2), record + 1024);
}

TEST_F(TaskLogTest, LineageIsReadableThroughTheDescriptorThatTheDaemonHolds) {
  shm::SpecHeader header;
  header.id = Id{0x1234, 0x5678};
  header.bytes = sizeof header;
  const std::uint64_t offset = log_->Append(header.bytes);
  std::memcpy(log_->at(offset), &header, sizeof header);
  base::Fd held(dup(arena_->fd()));
  log_.reset();  // the owner is gone
  arena_.reset();
  Result<shm::Arena> arena = shm::Arena::Open(std::move(held));
  ASSERT_TRUE(arena.ok()) << arena.status().message();
  Result<shm::SpecReader> reader = shm::SpecReader::Open(arena->at(offset), shm::kArenaBytes - offset);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  EXPECT_EQ(reader->header().id, (Id{0x1234, 0x5678}));
}

}  // namespace
}  // namespace manta::owner
