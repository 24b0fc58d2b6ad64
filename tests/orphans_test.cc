// A worker in the middle dies: one whose tasks had started others, or put values, and had given their Refs away. What
// it owned is there all the same, because the task that it ran runs again and makes it under the same names. How often
// each task ran is counted outside the engine, in a file.
#include <fcntl.h>

#include <map>
#include <utility>

#include "fixture.h"

namespace manta::testing {
namespace {

constexpr std::size_t kLarge = 20'000;  // words: in the store

void Note(const std::string& log, const std::string& what) {
  const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = what + "\n";
  if (write(fd, line.data(), line.size()) < 0) abort();
  close(fd);
}

bool Await(const std::string& sign) {
  return Eventually([&] { return Sign::Given(sign); }, 60s);
}

// Ends when the file is there.
int SmallChild(const std::string& log, const std::string& sign, int value) {
  Note(log, "child");
  return Await(sign) ? value : -1;
}
std::vector<int> LargeChild(const std::string& log, const std::string& sign, int value) {
  Note(log, "child");
  return std::vector<int>(kLarge, Await(sign) ? value : -1);
}

using Made = std::pair<int, Ref<int>>;  // pid of the worker in the middle, and what its task started

Made Parent(const std::string& log, const std::string& sign, int value) {
  Note(log + ".pids", std::to_string(getpid()));
  Note(log, "parent");
  return {getpid(), Task(SmallChild).Remote(log, sign, value)};
}
std::pair<int, Ref<std::vector<int>>> LargeParent(const std::string& log, const std::string& sign,
                                                  const Ref<int>& value) {
  Note(log, "parent");
  return {getpid(), Task(LargeChild).Remote(log, sign, value.Get())};
}
// Its own result is large.
std::pair<std::vector<int>, Ref<int>> WideParent(const std::string& log, const std::string& sign, int value) {
  Note(log + ".pids", std::to_string(getpid()));
  Note(log, "parent");
  return {std::vector<int>(kLarge, value), Task(SmallChild).Remote(log, sign, value)};
}
// Starts something else the second time.
Made Fickle(const std::string& log, const std::string& sign) {
  Note(log, "parent");
  if (Lines(ReadFile(log)).size() > 2) Task([] { return 0; }).Remote().Get();
  return {getpid(), Task(SmallChild).Remote(log, sign, 1)};
}
std::pair<int, std::pair<Ref<int>, Ref<std::vector<int>>>> Putter(const std::string& log) {
  Note(log, "parent");
  return {getpid(), {Put(5), Put(std::vector<int>(kLarge, 6))}};
}
int Borrower(const std::string& begun, const std::vector<Ref<int>>& refs) {
  Sign::Give(begun);
  return refs.at(0).Get() + 1;
}

class Keeper {
 public:
  void Take(const std::vector<Ref<int>>& refs) { ref_ = refs.at(0); }
  int Read() { return ref_.Get(); }

 private:
  Ref<int> ref_;
};
// Gives its child's Ref to an actor, then dies, once.
int Giver(const std::string& log, const std::string& sign, const ActorHandle<Keeper>& keeper) {
  Note(log, "parent");
  const Ref<int> child = Task(SmallChild).Remote(log, sign, 9);
  keeper.Task(&Keeper::Take).Remote(std::vector<Ref<int>>{child}).Get();
  if (!Sign::Given(sign)) {
    Sign::Give(sign);
    kill(getpid(), SIGKILL);
  }
  return child.Get();
}

class OrphansTest : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.cpus = 4;
    return config;
  }
  void SetUp() override {
    ClusterTest::SetUp();
    log_ = signs_.path() + "/log";
    sign_ = signs_.path() + "/sign";
  }
  void Kill(int pid) const {
    // It has told the daemon of what it started when the child runs.
    ASSERT_TRUE(Eventually([&] { return Counts()["child"] > 0; }, 20s));
    ASSERT_NE(pid, getpid());
    kill(pid, SIGKILL);
    ASSERT_TRUE(Eventually([&] { return !Alive(pid); }, 20s));
  }
  [[nodiscard]] std::map<std::string, int> Counts() const {
    std::map<std::string, int> counts;
    for (const std::string& line : Lines(ReadFile(log_))) ++counts[line];
    return counts;
  }

  Folder signs_;
  std::string log_;
  std::string sign_;
};

TEST_F(OrphansTest, AChildWhoseOwnerDiesIsMadeAgainByItsParent) {
  const Ref<Made> made = Task(Parent).Remote(log_, sign_, 7);
  const auto [pid, child] = made.Get();
  Kill(pid);
  ASSERT_TRUE(Eventually([&] { return Counts()["child"] == 2; }, 20s));
  Sign::Give(sign_);
  EXPECT_EQ(child.Get(), 7);
  EXPECT_EQ(Counts()["parent"], 2);
  EXPECT_EQ(made.Get().first, pid);  // what was seen stays true
}

TEST_F(OrphansTest, TheParentRunsAgainAlsoWhenOnlyTheChildIsHeld) {
  Ref<int> child;
  int pid = 0;
  {
    const Made made = Task(Parent).Remote(log_, sign_, 8).Get();
    pid = made.first;
    child = made.second;
  }
  Kill(pid);
  Sign::Give(sign_);
  EXPECT_EQ(child.Get(), 8);
  EXPECT_EQ(Counts()["parent"], 2);
}

TEST_F(OrphansTest, ALargeChildOfAParentWithInputsIsMadeAgain) {
  const auto [pid, child] = Task(LargeParent).Remote(log_, sign_, Task([] { return 11; }).Remote()).Get();
  Kill(pid);
  Sign::Give(sign_);
  EXPECT_EQ(child.Get(), std::vector<int>(kLarge, 11));
  EXPECT_EQ(Counts()["parent"], 2);
}

TEST_F(OrphansTest, TheSameMayHappenSeveralTimes) {
  const Ref<Made> made = Task(Parent).Remote(log_, sign_, 7);
  const Ref<int> child = made.Get().second;
  for (int i = 1; i <= 3; ++i) {
    ASSERT_TRUE(Eventually([&] { return Counts()["child"] == i; }, 20s)) << i;
    const std::vector<std::string> pids = Lines(ReadFile(log_ + ".pids"));
    ASSERT_EQ(pids.size(), static_cast<std::size_t>(i));
    kill(std::stoi(pids.back()), SIGKILL);
  }
  ASSERT_TRUE(Eventually([&] { return Counts()["parent"] == 4; }, 20s));
  Sign::Give(sign_);
  EXPECT_EQ(child.Get(), 7);
}

TEST_F(OrphansTest, AParentWithALargeResultMayRunAgainAsOftenAsAnyOther) {
  const Ref<std::pair<std::vector<int>, Ref<int>>> made = Task(WideParent).Remote(log_, sign_, 7);
  const Ref<int> child = made.Get().second;
  for (int i = 1; i <= 10; ++i) {
    ASSERT_TRUE(Eventually([&] { return Counts()["child"] == i; }, 20s)) << i;
    const std::vector<std::string> pids = Lines(ReadFile(log_ + ".pids"));
    ASSERT_EQ(pids.size(), static_cast<std::size_t>(i));
    kill(std::stoi(pids.back()), SIGKILL);
  }
  ASSERT_TRUE(Eventually([&] { return Counts()["parent"] == 11; }, 20s));
  Sign::Give(sign_);
  EXPECT_EQ(child.Get(), 7);
}

TEST_F(OrphansTest, WhoBorrowedTheChildIsToldWhenItIsThere) {
  const std::string begun = signs_.path() + "/begun";
  const Ref<Made> made = Task(Parent).Remote(log_, sign_, 20);
  const auto [pid, child] = made.Get();
  const Ref<int> borrower = Task(Borrower).Remote(begun, std::vector<Ref<int>>{child});
  ASSERT_TRUE(Await(begun));
  Kill(pid);
  ASSERT_TRUE(Eventually([&] { return Counts()["child"] == 2; }, 20s));
  Sign::Give(sign_);
  EXPECT_EQ(borrower.Get(), 21);
  EXPECT_EQ(child.Get(), 20);
  EXPECT_EQ(Counts()["parent"], 2);
}

TEST_F(OrphansTest, AChildThatWasGivenAwayIsThereWhenItsParentDiedInTheMiddle) {
  const ActorHandle<Keeper> keeper = Actor<Keeper>().Remote();
  const Ref<int> parent = Task(Giver).Remote(log_, sign_, keeper);
  EXPECT_EQ(parent.Get(), 9);
  EXPECT_EQ(keeper.Task(&Keeper::Read).Remote().Get(), 9);
  EXPECT_EQ(Counts()["parent"], 2);
}

TEST_F(OrphansTest, WhatADeadWorkerPutIsStillThere) {
  const auto [pid, refs] = Task(Putter).Remote(log_).Get();
  kill(pid, SIGKILL);
  ASSERT_TRUE(Eventually([&, dead = pid] { return !Alive(dead); }, 20s));
  EXPECT_EQ(refs.first.Get(), 5);
  EXPECT_EQ(refs.second.Get(), std::vector<int>(kLarge, 6));
  EXPECT_EQ(Counts()["parent"], 1);
}

TEST_F(OrphansTest, AParentThatDoesSomethingElseTheSecondTimeIsTold) {
  const Ref<Made> made = Task(Fickle).Remote(log_, sign_);
  const auto [pid, child] = made.Get();
  Kill(pid);
  ASSERT_TRUE(Eventually([&] { return Counts()["child"] == 2; }, 20s));
  Sign::Give(sign_);
  const std::string text = MessageOf<LostError>([&, lost = child] { lost.Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr(child.id().substr(0, 8)));
  EXPECT_THAT(text, ::testing::HasSubstr("was run again and did not make it"));
}

TEST_F(OrphansTest, AParentThatMayRunOnceIsNotRunAgain) {
  const Ref<Made> made = Task(Parent).SetRetries(0).Remote(log_, sign_, 1);
  const auto [pid, child] = made.Get();
  Kill(pid);
  Sign::Give(sign_);
  const std::string text = MessageOf<LostError>([&, lost = child] { lost.Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr(child.id().substr(0, 8)));
  EXPECT_THAT(text, ::testing::HasSubstr("died before it was ready"));
  EXPECT_EQ(Counts()["parent"], 1);
}

}  // namespace
}  // namespace manta::testing
