// A cluster of several nodes, started by the command line as a user would, for tests of what spans nodes. Ends with the
// test and leaves nothing: no process, no file.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "fixture.h"

namespace manta::testing {

class ClusterFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    static int counter = 0;
    const std::string value = std::to_string(getpid()) + ".c" + std::to_string(++counter);
    setenv("MANTA_TEST_MARK", value.c_str(), 1);
    mark_ = "MANTA_TEST_MARK=" + value;
    secrets_ = folder_.path() + "/secrets";
    unsetenv("MANTA_ADDRESS");
    setenv("MANTA_INFEASIBLE_SECONDS", "0", 1);  // of daemons: fails at once what no node can hold
    setenv("MANTA_SECRETS", secrets_.c_str(), 1);
  }
  void TearDown() override {
    Shutdown();
    Manta({"stop"});
    EXPECT_TRUE(Eventually([&] { return Marked(mark_).empty(); }, 3s)) << "left behind: " << Describe(Marked(mark_));
    std::filesystem::remove_all(secrets_);
    unsetenv("MANTA_SECRETS");
    unsetenv("MANTA_INFEASIBLE_SECONDS");
    unsetenv("MANTA_TEST_MARK");
  }

  // What the command says; empty if it fails, which is a failure of the test unless it wants the errors.
  std::string Manta(std::vector<std::string> words, std::string* errors = nullptr) {
    words.insert(words.begin(), {"--secrets", secrets_});
    Child child("manta", words);
    const int status = child.Finish();
    if (errors != nullptr) *errors = child.Err();
    if (status != 0 && errors == nullptr && words[2] != "stop") ADD_FAILURE() << words[2] << ": " << child.Err();
    return status == 0 ? child.Out() : std::string();
  }
  // A node with a small store; `words` say the rest.
  void Start(std::vector<std::string> words, const std::string& store_bytes = "67108864") {
    words.insert(words.begin(), "start");
    words.insert(words.end(), {"--store-bytes", store_bytes});
    ASSERT_NE(Manta(words), "");
  }
  [[nodiscard]] std::string State() const { return ReadFile(secrets_ + "/cluster"); }
  [[nodiscard]] std::string Head() const {
    std::istringstream words(State());
    std::string word;
    words >> word >> word;
    return word;
  }
  // `what`: "node" or "control". 0: it was not started here.
  [[nodiscard]] pid_t PidOf(const std::string& what, const std::string& name) const {
    for (const std::string& line : Lines(State())) {
      if (line.starts_with(what) && line.ends_with(name)) return std::atoi(line.substr(what.size() + 1).c_str());
    }
    return 0;
  }
  void KillHead() const {
    const pid_t head = PidOf("control", "");
    kill(head, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !Alive(head); }));
  }

  Folder folder_;
  std::string secrets_;
  std::string mark_;
};

}  // namespace manta::testing
