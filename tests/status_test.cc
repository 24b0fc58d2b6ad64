// `manta status` shows a live cluster: nodes, resources in use, tasks queued and running, store use.
#include <regex>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

class Status : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.cpus = 2;
    config.gpus = 1;
    config.resources["license"] = 3;
    return config;
  }
  // What the tool prints about this cluster.
  std::string Print() {
    Child tool("manta", {"status"}, {"MANTA_ADDRESS=" + Address()});
    EXPECT_EQ(tool.Finish(), 0) << tool.Err();
    return tool.Out();
  }
};

// The line that contains `word`, in lower case.
std::string LineWith(const std::string& text, const std::string& word) {
  for (std::string line : Lines(text)) {
    std::transform(line.begin(), line.end(), line.begin(), [](unsigned char c) { return std::tolower(c); });
    if (line.find(word) != std::string::npos) return line;
  }
  ADD_FAILURE() << "no line with '" << word << "' in:\n" << text;
  return {};
}

TEST_F(Status, ShowsNodeResourcesAndStoreOfAnIdleCluster) {
  const std::string text = Print();
  EXPECT_THAT(LineWith(text, "cpu"), ::testing::ContainsRegex("0.*2"));
  EXPECT_THAT(LineWith(text, "gpu"), ::testing::ContainsRegex("0.*1"));
  EXPECT_THAT(LineWith(text, "license"), ::testing::ContainsRegex("0.*3"));
  EXPECT_THAT(LineWith(text, "store"), HasSubstr("256"));
  EXPECT_THAT(text, HasSubstr(std::to_string(Processes().daemon)));
}

TEST_F(Status, ShowsWhatIsRunningAndQueued) {
  const Sign go;
  auto hold = [](const std::string& path) { Sign::Await(path); };
  std::vector<Ref<void>> refs;
  for (int i = 0; i < 12; ++i) refs.push_back(Task(hold).Remote(go.path()));
  std::string text;
  EXPECT_TRUE(Eventually([&] {
    text = Print();
    return std::regex_search(LineWith(text, "running"), std::regex("\\b2\\b"));
  })) << text;
  EXPECT_THAT(LineWith(text, "cpu"), ::testing::ContainsRegex("2.*2"));
  EXPECT_THAT(LineWith(text, "queued"), ::testing::ContainsRegex("10"));
  go.Give();
  Get(refs);
  EXPECT_TRUE(Eventually([&] { return std::regex_search(LineWith(Print(), "queued"), std::regex("\\b0\\b")); }));
}

struct Thing {
  int One() { return 1; }
};

TEST_F(Status, ShowsActorsAndWhatTheyHold) {
  auto thing = Actor<Thing>().SetResource("license", 2).Remote();
  thing.Task(&Thing::One).Remote().Get();
  const std::string text = Print();
  EXPECT_THAT(LineWith(text, "actors"), HasSubstr("1"));
  EXPECT_THAT(LineWith(text, "license"), ::testing::ContainsRegex("2.*3"));
}

TEST_F(Status, ShowsStoreUse) {
  Ref<std::string> big = Put(std::string(100 << 20, 'x'));
  EXPECT_THAT(LineWith(Print(), "store"), ::testing::ContainsRegex("10[0-9].*256"));
}

TEST(StatusTool, SaysWhatToDoWhenThereIsNoCluster) {
  Child tool("manta", {"status"}, {"MANTA_ADDRESS=@manta-" + std::to_string(getuid()) + "-4194304"});
  const int status = tool.Finish();
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) != 0);
  EXPECT_THAT(tool.Err(), HasSubstr("4194304"));
}

TEST(StatusTool, ExplainsItself) {
  Child help("manta", {"--help"});
  EXPECT_EQ(help.Finish(), 0);
  EXPECT_THAT(help.Out(), HasSubstr("status"));
  Child wrong("manta", {"nonsense"});
  EXPECT_NE(wrong.Finish(), 0);
  EXPECT_THAT(wrong.Err(), HasSubstr("nonsense"));
}

}  // namespace
}  // namespace manta::testing
