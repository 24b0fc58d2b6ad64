#include "control/log_segments.h"

#include <gtest/gtest.h>

#include <fstream>

#include "control/embedded_storage.h"
#include "control/log_format.h"
#include "control/test_util.h"

namespace manta::control {
namespace {

// Over a storage that writes the log.
class LogSegmentsTest : public testing::Test {
 protected:
  void Open() {
    storage_.reset();
    options_.folder = folder_.path() + "/store";
    Result<std::unique_ptr<EmbeddedStorage>> opened = EmbeddedStorage::Open(*loop_, options_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    storage_ = std::move(*opened);
  }
  void Put(std::uint64_t first, std::uint64_t last, std::size_t bytes) {
    std::uint64_t left = last - first + 1;
    for (std::uint64_t i = first; i <= last; ++i) {
      Batch batch;
      batch.epoch = i;
      batch.writes.push_back(Write{Table::kKeyValue, std::to_string(i), std::string(bytes, 'v')});
      storage_->Apply(std::move(batch), [&left, i](const Result<std::uint64_t>& applied) {
        EXPECT_EQ(applied.ok() ? applied.value() : 0, i);
        --left;
      });
    }
    ASSERT_TRUE(RunUntil(*loop_, [&] { return left == 0; }));
  }
  // All after this one, page by page; each must begin where the one before ended.
  std::uint64_t ReadToTheEnd(std::uint64_t after, std::size_t limit) {
    for (;;) {
      const Result<std::vector<Batch>> page = EntriesNow(*loop_, *storage_, after, limit);
      EXPECT_TRUE(page.ok()) << page.status().message();
      if (!page.ok() || page.value().empty()) return after;
      EXPECT_LE(page.value().size(), limit);
      for (const Batch& batch : page.value()) {
        EXPECT_EQ(batch.sequence, ++after);
        EXPECT_EQ(batch.epoch, after);
        EXPECT_EQ(batch.writes.at(0).key, std::to_string(after));
      }
    }
  }

  TestFolder folder_;
  std::unique_ptr<base::Loop> loop_ = std::move(*base::Loop::Create());
  EmbeddedOptions options_;
  std::unique_ptr<EmbeddedStorage> storage_;
};

TEST_F(LogSegmentsTest, PagesFollowEachOtherWhereverTheyBeginAndWhateverTheSegments) {
  options_.segment_bytes = 300'000;  // some marks each
  Open();
  for (std::uint64_t i = 0; i < 2000; i += 100) Put(i + 1, i + 100, 512);  // a group goes into one segment
  ASSERT_GT(storage_->segments(), 3U);
  for (const std::size_t limit : {1U, 7U, 256U, 5000U}) EXPECT_EQ(ReadToTheEnd(limit == 1 ? 1900 : 0, limit), 2000U);
  for (const std::uint64_t after : {1ULL, 130ULL, 499ULL, 1234ULL, 1999ULL}) EXPECT_EQ(ReadToTheEnd(after, 64), 2000U);
  // The places are found again in what an earlier process has written.
  Open();
  EXPECT_EQ(ReadToTheEnd(777, 256), 2000U);
  Put(2001, 2100, 512);
  EXPECT_EQ(ReadToTheEnd(1950, 256), 2100U);
}

TEST_F(LogSegmentsTest, ABatchLargerThanWhatIsReadAtATimeIsFoundWhole) {
  Open();
  Put(1, 10, 100);
  Put(11, 12, 3 * LogSegments::kReadBytes);
  Put(13, 20, 100);
  EXPECT_EQ(ReadToTheEnd(0, 256), 20U);
  EXPECT_EQ(ReadToTheEnd(11, 1), 20U);
}

// Who fills another copy reads thousands of pages, between which clients wait.
TEST_F(LogSegmentsTest, APageCostsWhatItHoldsAndNotWhatIsBeforeIt) {
  const auto bytes_read = [] {
    std::ifstream file("/proc/self/io");
    std::string name;
    std::uint64_t count = 0;
    file >> name >> count;
    return name == "rchar:" ? count : 0;
  };
  if (bytes_read() == 0) GTEST_SKIP() << "the kernel does not count what a process reads";
  Open();
  Put(1, 8000, 1000);
  const std::uint64_t before = bytes_read();
  ASSERT_EQ(EntriesNow(*loop_, *storage_, 7900, 64)->size(), 64U);
  EXPECT_LT(bytes_read() - before, 2 * LogSegments::kReadBytes) << "of 8 MB";
}

TEST_F(LogSegmentsTest, ABatchThatIsDamagedIsAnErrorAndNotAGap) {
  Open();
  Put(1, 100, 1000);
  {
    std::fstream file(options_.folder + "/log-0000000000000001", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(50'000);
    file.write("damage", 6);
  }
  const Result<std::vector<Batch>> whole = EntriesNow(*loop_, *storage_, 0, 256);
  EXPECT_EQ(whole.status().code(), Code::kCorrupt) << whole.status().message();
  EXPECT_EQ(EntriesNow(*loop_, *storage_, 0, 10)->size(), 10U);  // what is before it is as good as ever
}

}  // namespace
}  // namespace manta::control
