#include "tune/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tune/journal/crc32c.h"
#include "tune/journal/run_log.h"

namespace manta::tune::journal {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JournalTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tune_journal.XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/journal";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::vector<std::string>& records) {
    auto journal = Journal::Create(path_);
    for (const std::string& record : records) {
      journal->Append(record);
      ASSERT_TRUE(journal->Commit());
      journal->Sync();
    }
  }
  std::vector<std::string> Read() {
    std::vector<std::string> records;
    (void)Journal::Open(path_, [&](std::uint64_t, std::string_view record) { records.emplace_back(record); });
    return records;
  }
  void Flip(std::size_t offset) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get() ^ 1);
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(byte);
  }
  std::string folder_;
  std::string path_;
};

TEST(Crc32c, EqualsThePublishedValues) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(Crc32c("6789", Crc32c("12345")), 0xE3069283U);
}

TEST_F(JournalTest, RecordsComeBackInOrderAndTheFileIsContinued) {
  Write({"one", "", "three"});
  {
    auto journal = Journal::Open(path_, [](std::uint64_t, std::string_view) {});
    EXPECT_EQ(journal->records(), 3U);
    EXPECT_EQ(journal->Append("four"), 3U);
    EXPECT_TRUE(journal->Commit());
  }
  EXPECT_THAT(Read(), ElementsAre("one", "", "three", "four"));
}

TEST_F(JournalTest, ATailTornAtAnyByteIsCutSilently) {
  Write({"first", "second"});
  const auto whole = std::filesystem::file_size(path_);
  const auto first = 16 + 28 + 5;
  std::string bytes(whole, '\0');
  std::ifstream(path_, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(whole));
  for (std::uintmax_t size = first; size < whole; ++size) {
    std::ofstream(path_, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(size));
    EXPECT_THAT(Read(), ElementsAre("first")) << size;
    EXPECT_EQ(std::filesystem::file_size(path_), static_cast<std::uintmax_t>(first));
  }
}

TEST_F(JournalTest, DamageInTheMiddleIsRefusedWithFileAndOffset) {
  Write({"first", "second", "third"});
  Flip(16 + 28 + 5 + 28 + 2);  // in "second"
  try {
    (void)Read();
    FAIL() << "accepted";
  } catch (const JournalError& error) {
    EXPECT_THAT(error.what(), HasSubstr(path_ + " is damaged at offset 49"));
  }
}

TEST_F(JournalTest, DamageThatWasNeverOnDiskIsCutWithWhatFollowsIt) {
  auto journal = Journal::Create(path_);
  for (const char* record : {"first", "second", "third"}) journal->Append(record);  // no Sync between them
  ASSERT_TRUE(journal->Commit());
  journal.reset();
  Flip(16 + 28 + 5 + 28 + 2);
  EXPECT_THAT(Read(), ElementsAre("first"));
}

TEST_F(JournalTest, ASecondWriterIsRefused) {
  Write({"one"});
  auto journal = Journal::Open(path_, [](std::uint64_t, std::string_view) {});
  EXPECT_THROW((void)Read(), JournalError);
  std::size_t records = 0;
  Journal::Read(path_, [&](std::uint64_t, std::string_view) { ++records; });
  EXPECT_EQ(records, 1U);
}

TEST_F(JournalTest, AFullDiskKeepsTheRecordsUntilThereIsRoom) {
  auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  auto journal = Journal::Create(path_);
  const std::string record(1000, 'x');
  rlimit small = before;
  small.rlim_cur = 2500;
  setrlimit(RLIMIT_FSIZE, &small);
  for (int i = 0; i < 5; ++i) journal->Append(record);
  EXPECT_FALSE(journal->Commit());
  EXPECT_FALSE(journal->Commit());
  const std::string why = journal->why();
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_TRUE(journal->Commit());
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(why, HasSubstr("the disk of " + path_ + " takes no more"));
  journal.reset();
  EXPECT_EQ(Read().size(), 5U);
}

std::unique_ptr<trials::Controller> MakeController(std::uint64_t seed = 1) {
  trials::RunRules rules;
  rules.objectives = {{"loss", Mode::kMin}};
  rules.num_samples = 4;
  return std::make_unique<trials::Controller>(
      std::move(rules), MakeSearcher(Space({{"x", Uniform(0, 1)}}), Random{.seed = seed}), MakeScheduler(Fifo{}));
}

void Step(RunLog& log, trials::Controller& controller, Event event) {
  log.Record(event);
  (void)controller.Step(event);
  log.RecordMade(controller.made());
  ASSERT_TRUE(log.Commit());
}

TEST_F(JournalTest, ARunComesBackFromItsLog) {
  auto controller = MakeController();
  {
    auto log = RunLog::Create(path_, {{"space", "x"}});
    Step(*log, *controller, {0, ResourcesChanged{{{"CPU", 2}}}});
    Step(*log, *controller, {1, TrialStarted{0}});
    TrialResult result{.trial = 0, .iteration = 1, .time_total = 0.5, .metrics = {{"loss", 0.25}, {"act", "relu"}}};
    result.checkpoint = Checkpoint{"a/b", 0, 1, 0.5};
    Step(*log, *controller, {2.5, result});
  }
  auto restored = MakeController();
  auto log = RunLog::Restore(path_, {{"space", "x"}}, *restored);
  EXPECT_EQ(log->last_time(), 2.5);
  ASSERT_EQ(restored->trials().size(), controller->trials().size());
  EXPECT_EQ(restored->trial(0).config, controller->trial(0).config);
  EXPECT_EQ(restored->trial(0).last, controller->trial(0).last);
  EXPECT_EQ(restored->trial(0).latest()->path, "a/b");
  EXPECT_EQ(restored->best(), 0);
}

TEST_F(JournalTest, AnotherSpaceOrAnotherSearcherIsRefusedWithBothValues) {
  {
    auto controller = MakeController();
    auto log = RunLog::Create(path_, {{"space", "x"}});
    Step(*log, *controller, {0, ResourcesChanged{{{"CPU", 2}}}});
  }
  auto other = MakeController(2);
  try {
    (void)RunLog::Restore(path_, {{"space", "y"}}, *other);
    FAIL() << "accepted";
  } catch (const JournalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("space was \"x\" and is now \"y\""));
  }
  EXPECT_THROW((void)RunLog::Restore(path_, {{"space", "x"}}, *other), trials::ReplayError);
}

}  // namespace
}  // namespace manta::tune::journal
