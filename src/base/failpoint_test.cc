#include "base/failpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace manta::base {
namespace {

class FailpointTest : public testing::Test {
 protected:
  void SetUp() override {
    char folder[] = "/tmp/manta-failpoint-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    folder_ = folder;
  }
  void TearDown() override {
    SetFailpoints(nullptr, nullptr);
    std::filesystem::remove_all(folder_);
  }
  // Comes by so often in a process of its own. The signal that ended it.
  static int ComeBy(const char* name, int times) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0; i < times; ++i) Failpoint(name);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  }
  std::string folder_;
};

TEST_F(FailpointTest, KillsTheProcessThatComesByTheNthTime) {
  SetFailpoints("other=kill@1,here=kill@3", nullptr);
  EXPECT_EQ(ComeBy("here", 2), 0);
  EXPECT_EQ(ComeBy("here", 3), SIGKILL);
  EXPECT_EQ(ComeBy("here", 3), SIGKILL) << "every process that comes so far";
  EXPECT_EQ(ComeBy("elsewhere", 9), 0);
}

TEST_F(FailpointTest, WithAFolderItHappensOnceAndCanBeSeen) {
  SetFailpoints("here=kill@2", folder_.c_str());
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/here"));
  EXPECT_EQ(ComeBy("here", 5), SIGKILL);
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/here"));
  EXPECT_EQ(ComeBy("here", 5), 0);
}

TEST_F(FailpointTest, WhatMakesNoSenseIsLeftOut) {
  for (const char* text : {"", ",", "here", "here=", "here=dance", "=kill", "here=kill@", "here=kill@x", "kill@3"}) {
    SetFailpoints(text, nullptr);
    EXPECT_EQ(ComeBy("here", 3), 0) << text;
  }
}

}  // namespace
}  // namespace manta::base
