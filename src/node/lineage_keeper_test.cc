#include "node/lineage_keeper.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "lineage/record.h"
#include "lineage/scan.h"
#include "shm/arena.h"

namespace manta::node {
namespace {

constexpr ProcessId kOwner = 5;
const Id kJob{1, 3};

class LineageKeeperTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/manta_keeper_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    state_ = name;
    Result<shm::NodeArea> area = shm::NodeArea::Create(2);
    ASSERT_TRUE(area.ok());
    area_ = std::move(*area);
    keeper_ = std::make_unique<LineageKeeper>(area_.bell(kNoProcess));
  }
  void TearDown() override {
    keeper_.reset();
    std::error_code error;
    std::filesystem::remove_all(state_, error);
  }

  void Begin(bool keep) {
    lineage::JobNote note;
    note.job = kJob;
    bool resumed = false;
    Result<lineage::JobFolder> folder = lineage::JobFolder::Open(state_, "job", false, &note, &resumed);
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    ASSERT_TRUE(keeper_->AddJob(kJob, std::move(*folder), 0, 1, keep).ok());
    Result<shm::Arena> arena = shm::Arena::Create();
    ASSERT_TRUE(arena.ok());
    arena_ = std::make_unique<shm::Arena>(std::move(*arena));
    ASSERT_TRUE(keeper_->AddOwner(kJob, kOwner, arena_->fd()).ok());
    encoder_ = std::make_unique<lineage::Encoder>(memory());
  }
  shm::LineageMemory* memory() { return reinterpret_cast<shm::LineageMemory*>(arena_->at(shm::kLineageOffset)); }
  void Call(std::uint64_t index) {
    encoder_->Value(encoder_->Task({kJob, 0, index}, shm::SpecHeader{}, "", {}, {}), 0, {});
    encoder_->Settle();
    if (area_.bell(kNoProcess).sleeping.load(std::memory_order_relaxed) != 0) area_.bell(kNoProcess).Ring();
  }
  bool Commit() {
    const std::uint32_t mine = memory()->asked.fetch_add(1) + 1;
    area_.bell(kNoProcess).Rouse();
    return Soon([&] { return memory()->done.load() == mine; });
  }
  template <typename F>
  static bool Soon(F done) {
    for (int i = 0; i < 20'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done();
  }
  [[nodiscard]] std::uint64_t Calls() const {
    const Result<lineage::Scan> scan =
        lineage::ScanFolder(lineage::FolderOf(state_, "job"), [](const lineage::TaskRecord&) { return false; });
    return scan.ok() ? scan.value().totals.calls : 0;
  }

  std::string state_;
  shm::NodeArea area_;
  std::unique_ptr<LineageKeeper> keeper_;
  std::unique_ptr<shm::Arena> arena_;
  std::unique_ptr<lineage::Encoder> encoder_;
};

TEST_F(LineageKeeperTest, WhatIsCommittedIsInTheFile) {
  Begin(false);
  for (std::uint64_t i = 0; i < 1000; ++i) Call(i);
  ASSERT_TRUE(Commit());
  EXPECT_EQ(Calls(), 1000U);
}

TEST_F(LineageKeeperTest, WhatIsWrittenWhileNobodyCommitsIsTakenAllTheSame) {
  Begin(false);
  for (std::uint64_t i = 0; i < 20; ++i) {
    Call(i);
    ASSERT_TRUE(Soon([&] { return memory()->head.load() == memory()->tail.load(); })) << i;
    if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));  // it falls asleep meanwhile
  }
  EXPECT_EQ(Calls(), 20U);
}

TEST_F(LineageKeeperTest, WhatADeadOwnerWroteIsThere) {
  Begin(false);
  for (std::uint64_t i = 0; i < 100; ++i) encoder_->Task({kJob, 0, i}, shm::SpecHeader{}, "", {}, {});
  encoder_->Settle();
  keeper_->OwnerGone(kOwner);
  EXPECT_EQ(Calls(), 100U);
  keeper_->EndJob(kJob, false);
  keeper_->AwaitEnd(lineage::FolderOf(state_, "job"));
  EXPECT_EQ(Calls(), 100U);
}

TEST_F(LineageKeeperTest, TheFolderGoesIfTheJobEndsWellAndNobodyWantsIt) {
  Begin(false);
  Call(0);
  keeper_->EndJob(kJob, true);
  EXPECT_FALSE(std::filesystem::exists(lineage::FolderOf(state_, "job")));
  Begin(true);
  Call(0);
  keeper_->EndJob(kJob, true);
  EXPECT_EQ(Calls(), 1U);
  keeper_->AwaitEnd(lineage::FolderOf(state_, "job"));
  Begin(false);
  encoder_->Failed(encoder_->Task({kJob, 0, 0}, shm::SpecHeader{}, "", {}, {}), 0,
                   Failure{Code::kTaskFailed, "bad", {}, {}});
  keeper_->EndJob(kJob, true);
  EXPECT_EQ(Calls(), 1U);
}

TEST_F(LineageKeeperTest, AnIdleKeeperSleeps) {
  Begin(false);
  Call(0);
  ASSERT_TRUE(Commit());
  // It says that it sleeps, and nobody has to ring for it to find what comes.
  ASSERT_TRUE(Soon([&] { return area_.bell(kNoProcess).sleeping.load() != 0; }));
}

}  // namespace
}  // namespace manta::node
