#include "base/log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>

namespace manta::base {
namespace {

std::string TextOf(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

class Log : public testing::Test {
 protected:
  Log() {
    char name[] = "/tmp/manta-log-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/x.log";
  }
  ~Log() override { std::filesystem::remove_all(folder_); }

  // In a process of its own, whose standard error and output are the file.
  void Run(const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
      const int fd = open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, STDERR_FILENO);
      dup2(fd, STDOUT_FILENO);
      body();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }

  std::string folder_;
  std::string file_;
};

TEST_F(Log, ALineHasTheTimeTheLevelAndTheProgram) {
  Run([] {
    SetUpLog({.program = "mantad"});
    LogWarning("node %s has %d workers", "n1", 4);
  });
  const std::regex form(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} W mantad: node n1 has 4 workers\n)");
  EXPECT_TRUE(std::regex_match(TextOf(file_), form)) << TextOf(file_);
}

TEST_F(Log, MessagesBelowTheLeastLevelAreDropped) {
  Run([] {
    SetUpLog({.program = "mantad", .least = LogLevel::kWarning});
    LogInfo("a detail");
    LogError("a failure");
  });
  EXPECT_EQ(TextOf(file_).find("a detail"), std::string::npos);
  EXPECT_NE(TextOf(file_).find(" E mantad: a failure"), std::string::npos);
}

TEST_F(Log, TheEnvironmentSaysTheLeastLevel) {
  Run([] {
    setenv("MANTA_LOG_LEVEL", "error", 1);
    SetUpLog({.program = "mantad"});
    LogWarning("a warning");
    LogError("a failure");
  });
  EXPECT_EQ(TextOf(file_).find("a warning"), std::string::npos);
  EXPECT_NE(TextOf(file_).find("a failure"), std::string::npos);
}

TEST_F(Log, AFileThatIsFullIsRotatedAndOldOnesGo) {
  Run([] {
    SetUpLog({.program = "mantad", .most_bytes = 1000, .old_files = 2});
    for (int i = 0; i < 100; ++i) LogInfo("message %d", i);
  });
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    ++files;
    EXPECT_LT(entry.file_size(), 1100U) << entry.path();
  }
  EXPECT_EQ(files, 3U);
  const std::string kept = TextOf(file_ + ".2") + TextOf(file_ + ".1") + TextOf(file_);
  EXPECT_NE(kept.find("message 99\n"), std::string::npos);
  EXPECT_EQ(kept.find("message 1\n"), std::string::npos);
  // None is lost between two files.
  EXPECT_LT(kept.find("message 98\n"), kept.find("message 99\n"));
}

TEST_F(Log, WhatIsPrintedBesideItGoesIntoTheNewFile) {
  Run([] {
    SetUpLog({.program = "mantad", .most_bytes = 100, .old_files = 1});
    LogInfo("%s", std::string(200, 'x').c_str());
    if (write(STDOUT_FILENO, "printed\n", 8) != 8) _exit(1);
  });
  EXPECT_EQ(TextOf(file_), "printed\n");
}

}  // namespace
}  // namespace manta::base
