#include "owner/shelf_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace manta::owner {
namespace {

ShelfFile::Record Spec(std::size_t bytes, std::uint8_t fill) {
  ShelfFile::Record record;
  record.spec.assign(bytes, std::byte{fill});
  return record;
}

TEST(ShelfFile, WhatWasWrittenIsReadBack) {
  ShelfFile shelf(std::filesystem::temp_directory_path());
  const Result<std::uint64_t> first = shelf.Write(Spec(96, 1));
  ASSERT_TRUE(first.ok()) << first.status().message();
  ShelfFile::Record second = Spec(200, 2);
  second.inputs = {{Id{1, 1}, first.value()}, {Id{2, 3}, 0}};
  second.mentions = {{Id{4, 5}, 0}};
  const Result<std::uint64_t> at = shelf.Write(second);
  ASSERT_TRUE(at.ok());
  const Result<ShelfFile::Record> read = shelf.Read(at.value());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read.value().spec, second.spec);
  ASSERT_EQ(read.value().inputs.size(), 2U);
  EXPECT_EQ(read.value().inputs[0].record, first.value());
  EXPECT_EQ(read.value().inputs[1].id, (Id{2, 3}));
  ASSERT_EQ(read.value().mentions.size(), 1U);
  EXPECT_EQ(read.value().mentions[0].id, (Id{4, 5}));
}

TEST(ShelfFile, ARecordGoesWithTheLastThatNeedsItAndTakesItsOwnAlong) {
  ShelfFile shelf(std::filesystem::temp_directory_path());
  std::uint64_t last = 0;
  ShelfFile::Record record = Spec(64, 0);
  record.mentions = {{Id{7, 7}, 0}};  // the first one's
  for (int i = 0; i < 10'000; ++i) {
    const Result<std::uint64_t> at = shelf.Write(record);
    ASSERT_TRUE(at.ok());
    std::vector<Id> none;
    if (last != 0) shelf.Drop(last, &none);  // only the next one needs it
    EXPECT_TRUE(none.empty());
    last = at.value();
    record = Spec(64, 1);
    record.inputs = {{Id{1, static_cast<std::uint64_t>(i) + 1}, last}};
  }
  ASSERT_TRUE(shelf.Keep(last).ok());
  std::vector<Id> gone;
  shelf.Drop(last, &gone);
  EXPECT_TRUE(gone.empty());
  EXPECT_GT(shelf.bytes(), 640'000U);
  shelf.Drop(last, &gone);
  EXPECT_EQ(gone, std::vector<Id>{(Id{7, 7})});
  EXPECT_EQ(shelf.bytes(), 0U);
}

TEST(ShelfFile, RecordsLargerThanASegmentAndOthersBetweenThemStayApart) {
  ShelfFile shelf(std::filesystem::temp_directory_path());
  std::vector<std::pair<std::uint64_t, ShelfFile::Record>> written;
  for (std::uint8_t i = 0; i < 20; ++i) {
    written.emplace_back(0, Spec(i % 3 == 0 ? (3U << 20) / 2 : 700'000, i));
    const Result<std::uint64_t> at = shelf.Write(written.back().second);
    ASSERT_TRUE(at.ok());
    written.back().first = at.value();
    if (i % 2 == 0) continue;
    std::vector<Id> gone;
    shelf.Drop(written[i - 1U].first, &gone);
  }
  for (std::size_t i = 1; i < written.size(); i += 2) {
    const Result<ShelfFile::Record> read = shelf.Read(written[i].first);
    ASSERT_TRUE(read.ok()) << i;
    EXPECT_EQ(read.value().spec, written[i].second.spec) << i;
  }
}

TEST(ShelfFile, NoMoreIsOnDiskThanTheLimitAndWhatGoesMakesRoom) {
  ShelfFile shelf(std::filesystem::temp_directory_path(), shm::DiskShare(3U << 20));
  std::vector<std::uint64_t> kept;
  Status refused;
  while (refused.ok()) {
    const Result<std::uint64_t> at = shelf.Write(Spec(300'000, 1));
    refused = at.status();
    if (at.ok()) kept.push_back(at.value());
    ASSERT_LT(kept.size(), 100U);
  }
  EXPECT_EQ(refused.code(), Code::kIo);
  EXPECT_NE(refused.message().find("3.0 MiB"), std::string::npos) << refused.message();
  EXPECT_NE(refused.message().find("--spill-limit"), std::string::npos) << refused.message();
  EXPECT_EQ(kept.size(), 9U);
  EXPECT_LE(shelf.on_disk(), 3U << 20);
  EXPECT_FALSE(shelf.Write(Spec(2U << 20, 2)).ok()) << "nor one that has segments for itself";
  for (const std::uint64_t at : kept) EXPECT_EQ(shelf.Read(at).value().spec, Spec(300'000, 1).spec);
  std::vector<Id> gone;
  for (std::size_t i = 0; i < 3; ++i) shelf.Drop(kept[i], &gone);
  EXPECT_TRUE(shelf.Write(Spec(300'000, 3)).ok());
  for (std::size_t i = 3; i < kept.size(); ++i) shelf.Drop(kept[i], &gone);
  EXPECT_LE(shelf.on_disk(), 1U << 20);
  ASSERT_TRUE(shelf.Write(Spec(1'500'000, 4)).ok());
  EXPECT_LE(shelf.on_disk(), 3U << 20);
}

TEST(ShelfFile, TheLimitIsThatOfAllProcessesOfTheNode) {
  Result<shm::NodeArea> made = shm::NodeArea::Create(2);
  ASSERT_TRUE(made.ok());
  shm::NodeArea& area = *made;
  area.Reset(1);
  area.Reset(2);
  const std::string folder = std::filesystem::temp_directory_path();
  ShelfFile one(folder, shm::DiskShare(3U << 20, area, 1));
  ShelfFile two(folder, shm::DiskShare(3U << 20, area, 2));
  ASSERT_TRUE(one.Write(Spec(1'500'000, 1)).ok());
  const Status refused = two.Write(Spec(1'500'000, 2)).status();
  EXPECT_EQ(refused.code(), Code::kIo);
  EXPECT_NE(refused.message().find("2.0 MiB"), std::string::npos) << refused.message();
  ASSERT_TRUE(two.Write(Spec(1000, 2)).ok());
  EXPECT_FALSE(one.Write(Spec(1'000'000, 1)).ok());
  area.Reset(1);  // it was killed, and its file went with it
  EXPECT_TRUE(two.Write(Spec(1'500'000, 2)).ok());
}

TEST(ShelfFile, WhereThereIsNoFolderNothingIsKeptAndThatIsSaid) {
  ShelfFile nowhere("");
  EXPECT_EQ(nowhere.Write(Spec(8, 1)).status().code(), Code::kIo);
  ShelfFile gone("/nonexistent/folder");
  const Status status = gone.Write(Spec(8, 1)).status();
  EXPECT_EQ(status.code(), Code::kIo);
  EXPECT_NE(status.message().find("/nonexistent/folder"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace manta::owner
