// Lineage on disk: what a job with a name leaves when it is killed, what `manta lineage` and `manta replay` make of it,
// and that a job that ends well leaves nothing.
#include <sys/mount.h>

#include <filesystem>
#include <regex>
#include <thread>

#include "fixture.h"

namespace manta::testing {
namespace {

class LineageTest : public ::testing::Test {
 protected:
  void SetUp() override {
    state_ = folder_.path() + "/state";
    unsetenv("MANTA_ADDRESS");
    setenv("MANTA_SECRETS", state_.c_str(), 1);
  }
  void TearDown() override {
    std::error_code error;
    std::filesystem::remove_all(state_, error);
  }

  struct Answer {
    int status = 0;
    std::string out;
    std::string err;
  };
  Answer Manta(std::vector<std::string> words) {
    words.insert(words.begin(), {"--secrets", state_});
    Child child("manta", words);
    Answer answer;
    answer.status = child.Finish(60s);
    answer.out = child.Out();
    answer.err = child.Err();
    return answer;
  }
  static void Kill(Child& child) {
    kill(child.pid(), SIGKILL);
    child.Finish();
    EXPECT_TRUE(child.LeavesNothing(20s)) << Describe(Marked(child.mark()));
  }
  [[nodiscard]] std::vector<std::string> Logs(const std::string& job) const {
    std::vector<std::string> paths;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(state_ + "/jobs/" + job, error)) {
      if (entry.path().extension() == ".log") paths.push_back(entry.path());
    }
    return paths;
  }
  [[nodiscard]] bool JobIsThere(const std::string& job) const {
    return std::filesystem::exists(state_ + "/jobs/" + job);
  }
  // The number before " calls".
  static std::uint64_t CallsIn(const std::string& text) {
    std::smatch match;
    return std::regex_search(text, match, std::regex("(\\d+) calls")) ? std::stoull(match[1]) : 0;
  }
  static std::string After(const std::string& text, const std::string& word) {
    const std::size_t at = text.find("\n" + word + " ");
    if (at == std::string::npos) return {};
    const std::size_t from = at + word.size() + 2;
    return text.substr(from, text.find_first_of(" \n", from) - from);
  }

  Folder folder_;
  std::string state_;
};

TEST_F(LineageTest, AfterTheDriverIsKilledEveryIdIsDerivedAndTasksGiveTheSameResult) {
  Child driver("durable", {"work", "demo"});
  ASSERT_TRUE(driver.Says("committed", 60s)) << driver.Out() << driver.Err();
  Kill(driver);
  const Answer lineage = Manta({"lineage", "demo"});
  EXPECT_EQ(lineage.status, 0) << lineage.err;
  // 3000 squares, who, 20 texts, the chain of 6, last, 1 and its ref, a tree of 31
  EXPECT_EQ(CallsIn(lineage.out), 3061U) << lineage.out;
  EXPECT_NE(lineage.out.find("3061 finished, of which 0 failed"), std::string::npos) << lineage.out;

  const std::string out = driver.Out();
  for (const char* word : {"id", "last", "ref"}) {
    const std::string id = After(out, word);
    ASSERT_EQ(id.size(), 32U) << out;
    const Answer replay = Manta({"replay", id});
    EXPECT_EQ(replay.status, 0) << replay.out << replay.err;
    EXPECT_NE(replay.out.find("the same as recorded"), std::string::npos) << word << replay.out << replay.err;
    EXPECT_NE(replay.out.find(id), std::string::npos) << replay.out;
    EXPECT_EQ(replay.out.find("main runs"), std::string::npos);
  }
  const Answer gdb = Manta({"replay", After(out, "id"), "--gdb"});
  EXPECT_NE(gdb.out.find("Breakpoint 1, manta_replay_begin"), std::string::npos) << gdb.out << gdb.err;
  const Answer sample = Manta({"replay", "--job", "demo", "--sample", "1000"});
  EXPECT_EQ(sample.status, 0) << sample.out << sample.err;
  EXPECT_NE(sample.out.find("1000 of 1000 tasks gave the recorded result"), std::string::npos)
      << sample.out << sample.err;
  const Answer listed = Manta({"lineage"});
  EXPECT_EQ(listed.out, "demo\n");
}

TEST_F(LineageTest, ATaskIsReplayedWithADurablePutAndNotWithAnother) {
  Child driver("durable", {"put", "puts"});
  ASSERT_TRUE(driver.Says("committed", 60s)) << driver.Out() << driver.Err();
  Kill(driver);
  const Answer lineage = Manta({"lineage", "puts", "--tasks"});
  const std::vector<std::string> tasks = Lines(lineage.out);
  ASSERT_GE(tasks.size(), 2U) << lineage.out << lineage.err;
  const Answer kept = Manta({"replay", tasks[0].substr(0, 32)});
  EXPECT_EQ(kept.status, 0) << kept.out << kept.err;
  EXPECT_NE(kept.out.find("the same as recorded"), std::string::npos) << kept.out << kept.err;
  const Answer lost = Manta({"replay", tasks[1].substr(0, 32)});
  EXPECT_NE(lost.status, 0);
  EXPECT_NE(lost.err.find("was put (and not as durable)"), std::string::npos) << lost.err;
}

TEST_F(LineageTest, WhatWasCommittedIsThereWhenWhatCameLaterIsCutOff) {
  Child driver("durable", {"commit", "cut"});
  ASSERT_TRUE(driver.Says("more", 60s)) << driver.Out() << driver.Err();
  const std::uint64_t committed = std::stoull(After(driver.Out(), "committed"));
  // Both at once: nobody has time to write anything down.
  const Cast cast = CastOf(driver.mark());
  kill(cast.daemon, SIGKILL);
  Kill(driver);
  const std::vector<std::string> logs = Logs("cut");
  ASSERT_EQ(logs.size(), 1U);
  const std::uint64_t whole = std::filesystem::file_size(logs[0]);
  ASSERT_GE(whole, committed);
  // As if the power had failed: of what was not synced, any part is there.
  for (const std::uint64_t size : {whole, whole - (whole - committed) / 2, committed + 3, committed}) {
    std::filesystem::resize_file(logs[0], size);
    const Answer lineage = Manta({"lineage", "cut"});
    EXPECT_EQ(lineage.status, 0) << lineage.err;
    EXPECT_GE(CallsIn(lineage.out), 1000U) << size << lineage.out;
  }
}

TEST_F(LineageTest, ACommitBesideAThreadThatSubmitsHasAllThatAnybodyHadSeen) {
  Child driver("durable", {"crowd", "crowd"});
  ASSERT_TRUE(driver.Says("more", 60s)) << driver.Out() << driver.Err();
  Kill(driver);
  const std::vector<std::string> logs = Logs("crowd");
  ASSERT_EQ(logs.size(), 1U);
  const std::vector<std::string> said = Lines(driver.Out());
  for (std::size_t i = said.size(); i-- > 0;) {  // from the longest on
    std::istringstream line(said[i]);
    std::string word;
    std::uint64_t seen = 0;
    std::uint64_t bytes = 0;
    if (!(line >> word >> seen >> bytes) || word != "committed") continue;
    std::filesystem::resize_file(logs[0], bytes);
    const Answer lineage = Manta({"lineage", "crowd"});
    EXPECT_EQ(lineage.status, 0) << lineage.err;
    EXPECT_GE(CallsIn(lineage.out), seen) << lineage.out;
  }
}

TEST_F(LineageTest, CallsThatAreAllAlikeAreOnDiskThoughNobodyCommits) {
  Child driver("durable", {"alike", "alike"});
  ASSERT_TRUE(driver.Says("done", 60s)) << driver.Out() << driver.Err();
  Answer lineage;
  for (int i = 0; i < 100 && lineage.out.find("1000 finished") == std::string::npos; ++i) {
    std::this_thread::sleep_for(10ms);
    lineage = Manta({"lineage", "alike"});
  }
  EXPECT_NE(lineage.out.find("1000 finished, of which 0 failed"), std::string::npos) << lineage.out << lineage.err;
  EXPECT_EQ(CallsIn(lineage.out), 1000U) << lineage.out;
  Kill(driver);
}

TEST_F(LineageTest, DamageIsToldWithItsOffset) {
  Child driver("durable", {"commit", "harmed"});
  ASSERT_TRUE(driver.Says("more", 60s)) << driver.Out() << driver.Err();
  Kill(driver);
  const std::vector<std::string> logs = Logs("harmed");
  ASSERT_EQ(logs.size(), 1U);
  std::fstream file(logs[0], std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(84);  // in the first block, however short it is: behind both headers
  file.write("damaged", 7);
  file.close();
  const Answer lineage = Manta({"lineage", "harmed"});
  EXPECT_NE(lineage.status, 0);
  EXPECT_NE(lineage.err.find("is damaged at offset 40"), std::string::npos) << lineage.err;
}

TEST_F(LineageTest, AJobThatEndsWellLeavesNothing) {
  Child driver("durable", {"end", "brief"});
  EXPECT_EQ(driver.Finish(), 0) << driver.Err();
  EXPECT_FALSE(JobIsThere("brief"));
}

TEST_F(LineageTest, LineageStaysIfOneAsksForIt) {
  Child driver("durable", {"keep", "kept"});
  EXPECT_EQ(driver.Finish(), 0) << driver.Err();
  EXPECT_EQ(CallsIn(Manta({"lineage", "kept"}).out), 100U);
  EXPECT_EQ(Manta({"lineage", "kept", "--remove"}).status, 0);
  EXPECT_FALSE(JobIsThere("kept"));
}

TEST_F(LineageTest, AFailedTaskStaysAndFailsAgainWhenReplayed) {
  Child driver("durable", {"fail", "bad"});
  EXPECT_EQ(driver.Finish(), 0) << driver.Err();
  const Answer lineage = Manta({"lineage", "bad", "--tasks"});
  EXPECT_NE(lineage.out.find("1 finished, of which 1 failed"), std::string::npos) << lineage.out;
  const Answer replay = Manta({"replay", lineage.out.substr(0, 12)});
  EXPECT_EQ(replay.status, 0) << replay.out << replay.err;
  EXPECT_NE(replay.out.find("unlucky 13; as recorded"), std::string::npos) << replay.out << replay.err;
}

TEST_F(LineageTest, AJobWithoutANameLeavesNoFileAndHasNothingToCommit) {
  Child driver("durable", {"uncommitted", ""});
  EXPECT_EQ(driver.Finish(), 0) << driver.Err();
  EXPECT_NE(driver.Out().find("invalid: Commit"), std::string::npos) << driver.Out();
  EXPECT_NE(driver.Out().find("invalid: Put: there is no place for a durable value"), std::string::npos)
      << driver.Out();
  EXPECT_FALSE(std::filesystem::exists(state_));
}

TEST_F(LineageTest, AJobThatIsResumedRunsOnlyWhatHadNotEnded) {
  const std::string effects = folder_.path() + "/effects";
  Child first("durable", {"effects", "on", effects, "10", "6"});
  ASSERT_TRUE(first.Says("half", 60s)) << first.Out() << first.Err();
  Kill(first);
  EXPECT_EQ(Lines(ReadFile(effects)).size(), 6U);
  Child second("durable", {"resume", "on", effects, "10", "8"});
  ASSERT_TRUE(second.Says("half", 60s)) << second.Out() << second.Err();
  Kill(second);
  EXPECT_EQ(Lines(ReadFile(effects)).size(), 8U);
  Child third("durable", {"resume", "on", effects, "10", "-1"});
  EXPECT_EQ(third.Finish(), 0) << third.Err();
  EXPECT_NE(third.Out().find("sum 450"), std::string::npos) << third.Out();
  EXPECT_THAT(Lines(ReadFile(effects)), ::testing::ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  EXPECT_FALSE(JobIsThere("on"));
}

TEST_F(LineageTest, AJobThatCrashesAgainBeforeItGotAnyFurtherIsResumedAllTheSame) {
  const std::string effects = folder_.path() + "/effects";
  Child first("durable", {"effects", "again", effects, "10", "6"});
  ASSERT_TRUE(first.Says("half", 60s)) << first.Out() << first.Err();
  Kill(first);
  // Once where the first was killed, once before its first call, once as soon as its main runs.
  for (const char* stop : {"6", "0"}) {
    Child next("durable", {"resume", "again", effects, "10", stop});
    ASSERT_TRUE(next.Says("half", 60s)) << next.Out() << next.Err();
    Kill(next);
  }
  Child hasty("durable", {"resume", "again", effects, "10", "0"});
  ASSERT_TRUE(hasty.Says("main runs", 60s)) << hasty.Err();
  Kill(hasty);
  EXPECT_EQ(Lines(ReadFile(effects)).size(), 6U);
  Child last("durable", {"resume", "again", effects, "10", "-1"});
  EXPECT_EQ(last.Finish(), 0) << last.Err();
  EXPECT_NE(last.Out().find("sum 450"), std::string::npos) << last.Out();
  EXPECT_THAT(Lines(ReadFile(effects)), ::testing::ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
  EXPECT_FALSE(JobIsThere("again"));
}

TEST_F(LineageTest, ADurablePutThatIsTooLargeForTheStoreIsRefusedAndLeavesNothing) {
  Child driver("durable", {"oversized", "large"});
  EXPECT_EQ(driver.Finish(), 0) << driver.Out() << driver.Err();
  EXPECT_NE(driver.Out().find("refused 0 files"), std::string::npos) << driver.Out();
  EXPECT_NE(driver.Out().find("kept 1 files"), std::string::npos) << driver.Out();
}

// The state on a file system of 4 MiB, if we may mount one.
class FullState : public LineageTest {
 protected:
  void SetUp() override {
    LineageTest::SetUp();
    std::filesystem::create_directory(state_);
    mounted_ = mount("tmpfs", state_.c_str(), "tmpfs", 0, "size=4m,mode=0700") == 0;
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(umount(state_.c_str()), 0) << "somebody still holds a file there";
    }
    LineageTest::TearDown();
  }
  bool mounted_ = false;
};

TEST_F(FullState, CommitAndADurablePutSayThatTheDiskIsFullAndGoOnWhenThereIsRoom) {
  if (!mounted_) GTEST_SKIP() << "needs the right to mount a tmpfs";
  Child driver("durable", {"full", "crowded"});
  EXPECT_EQ(driver.Finish(60s), 0) << driver.Out() << driver.Err();
  const std::string out = driver.Out();
  EXPECT_NE(out.find("no room to commit: Commit: lineage cannot be written to " + state_), std::string::npos) << out;
  EXPECT_NE(out.find("no room to put: Put: the value (1.0 MiB) is not durable: cannot write"), std::string::npos)
      << out;
  EXPECT_NE(out.find("there is room: kept 1 files"), std::string::npos) << out;
  EXPECT_NE(out.find("ended"), std::string::npos) << out;
  EXPECT_FALSE(JobIsThere("crowded"));
}

TEST_F(LineageTest, AJobThatIsResumedAndCallsSomethingElseIsTold) {
  const std::string effects = folder_.path() + "/effects";
  Child first("durable", {"effects", "other", effects, "10", "6"});
  ASSERT_TRUE(first.Says("half", 60s)) << first.Out() << first.Err();
  Kill(first);
  Child second("durable", {"resume", "other", effects + "2", "10", "-1"});
  EXPECT_NE(second.Finish(), 0);
  EXPECT_NE(second.Err().find("was another one when it was recorded (with other arguments)"), std::string::npos)
      << second.Err();
}

TEST_F(LineageTest, AJobThatWasNeverThereIsResumedFromItsBeginning) {
  const std::string effects = folder_.path() + "/effects";
  Child only("durable", {"resume", "new", effects, "3", "-1"});
  EXPECT_EQ(only.Finish(), 0) << only.Err();
  EXPECT_NE(only.Out().find("sum 30"), std::string::npos) << only.Out();
}

TEST_F(LineageTest, AJobIsResumedThoughNobodyHasNoticedItsCrashYet) {
  const std::string effects = folder_.path() + "/effects";
  Child first("durable", {"effects", "crashed", effects, "10", "6"});
  ASSERT_TRUE(first.Says("half", 60s)) << first.Out() << first.Err();
  const pid_t daemon = CastOf(first.mark()).daemon;
  ASSERT_GT(daemon, 0);
  kill(daemon, SIGSTOP);
  kill(first.pid(), SIGKILL);
  first.Finish();
  Child second("durable", {"resume", "crashed", effects, "10", "-1"});
  std::this_thread::sleep_for(500ms);  // of the ten seconds that it would wait
  EXPECT_FALSE(second.Ended()) << second.Out() << second.Err();
  kill(daemon, SIGCONT);
  EXPECT_EQ(second.Finish(60s), 0) << second.Out() << second.Err();
  EXPECT_NE(second.Out().find("sum 450"), std::string::npos) << second.Out();
  EXPECT_EQ(Lines(ReadFile(effects)).size(), 10U) << "each ran once";
  EXPECT_TRUE(first.LeavesNothing(20s)) << Describe(Marked(first.mark()));
}

TEST_F(LineageTest, TwoJobsOfOneNameDoNotRunAtATime) {
  Child first("durable", {"commit", "one"});
  ASSERT_TRUE(first.Says("more", 60s)) << first.Err();
  Child second("durable", {"commit", "one"});
  EXPECT_TRUE(second.Says("refused: ", 20s));
  EXPECT_NE(second.Out().find("the job 'one' runs already"), std::string::npos) << second.Out();
  second.Finish();
  EXPECT_NE(Manta({"lineage", "one", "--remove"}).status, 0);
  EXPECT_TRUE(JobIsThere("one"));
  Kill(first);
  Child third("durable", {"end", "one"});
  EXPECT_EQ(third.Finish(), 0) << third.Out() << third.Err();
}

}  // namespace
}  // namespace manta::testing
