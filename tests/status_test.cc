// `manta status` shows a live cluster: nodes, resources in use, tasks queued and running, store use.
#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

TEST(Manta, SaysItsVersionWithoutACommand) {
  Child tool("manta", {"--version"});
  EXPECT_EQ(tool.Finish(), 0) << tool.Err();
  EXPECT_EQ(tool.Out(), "manta " MANTA_VERSION "\n");
}

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
  std::string Print(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"status", "--address", Address()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    Child tool("manta", arguments);
    EXPECT_EQ(tool.Finish(), 0) << tool.Err();
    return tool.Out();
  }
};

TEST_F(Status, ShowsNodeResourcesAndStoreOfAnIdleCluster) {
  const std::string text = Print();
  EXPECT_THAT(text, HasSubstr("CPU 0 of 2 in use"));
  EXPECT_THAT(text, HasSubstr("GPU 0 of 1 in use"));
  EXPECT_THAT(text, HasSubstr("license 0 of 3 in use"));
  EXPECT_THAT(text, HasSubstr("of 256.0 MiB"));
  EXPECT_THAT(text, HasSubstr("1 drivers"));
  EXPECT_THAT(text, HasSubstr("pid " + std::to_string(Processes().daemon)));
}

TEST_F(Status, ShowsWhatIsRunningAndQueued) {
  const Sign go;
  auto hold = [](const std::string& path) { Sign::Await(path); };
  std::vector<Ref<void>> refs;
  for (int i = 0; i < 12; ++i) refs.push_back(Task(hold).Remote(go.path()));
  std::string text;
  EXPECT_TRUE(Eventually([&] { return (text = Print()).find("10 queued, 2 running") != std::string::npos; })) << text;
  EXPECT_THAT(text, HasSubstr("CPU 2 of 2 in use"));
  EXPECT_THAT(text, HasSubstr("(2 busy)"));
  go.Give();
  Get(refs);
  EXPECT_TRUE(Eventually([&] { return (text = Print()).find("0 queued, 0 running") != std::string::npos; })) << text;
  EXPECT_THAT(text, HasSubstr("12 finished"));
  EXPECT_THAT(text, HasSubstr("CPU 0 of 2 in use"));
}

TEST_F(Status, ADriverThatHasNothingToDoDoesNotSitOnWhatItLetGoOf) {
  const auto objects = [&] {
    Child tool("manta", {"memory", "--address", Address()});
    EXPECT_EQ(tool.Finish(), 0) << tool.Err();
    return tool.Out();
  };
  Ref<std::vector<int>> made = Task([] { return std::vector<int>(1 << 20, 7); }).Remote();
  ASSERT_EQ(Wait(std::vector<Ref<std::vector<int>>>{made}, 1).ready.size(), 1U);
  EXPECT_THAT(objects(), HasSubstr("in 1 objects"));
  std::this_thread::sleep_for(200ms);  // by now nothing of it looks around any more
  made = {};
  EXPECT_TRUE(Eventually([&] { return objects().find("in 0 objects") != std::string::npos; }, 20s)) << objects();
}

TEST_F(Status, MemoryShowsEveryLargeObjectWithItsOwnerAndReaders) {
  const auto print = [&] {
    Child tool("manta", {"memory", "--address", Address()});
    EXPECT_EQ(tool.Finish(), 0) << tool.Err();
    return tool.Out();
  };
  EXPECT_THAT(print(), HasSubstr("in 0 objects"));
  const std::string self = "pid " + std::to_string(getpid());
  const Ref<Array<std::uint64_t>> large = Put(Array<std::uint64_t>(1U << 17, 1));
  std::vector<std::string> lines = Lines(print());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_THAT(lines[2], HasSubstr(" MiB"));
  EXPECT_THAT(lines[2], HasSubstr("memory"));
  EXPECT_EQ(lines[2].find(self), lines[2].rfind(self)) << "nobody reads it: " << lines[2];
  const Array<std::uint64_t> view = large.Get();
  lines = Lines(print());
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[2].find(self), lines[2].rfind(self)) << "owned and read by this process: " << lines[2];
}

struct Thing {
  int One() { return 1; }
};

TEST_F(Status, ShowsActorsAndWhatTheyHold) {
  auto thing = Actor<Thing>().SetResource("license", 2).Remote();
  thing.Task(&Thing::One).Remote().Get();
  const std::string text = Print();
  EXPECT_THAT(text, HasSubstr("1 actors"));
  EXPECT_THAT(text, HasSubstr("license 2 of 3 in use"));
}

TEST_F(Status, ShowsStoreUse) {
  Ref<std::string> big = Put(std::string(100 << 20, 'x'));
  EXPECT_THAT(Print(), HasSubstr("100.0 MiB of 256.0 MiB in 1 objects"));
  EXPECT_THAT(Print({"--json"}), ::testing::ContainsRegex("\"store_used\": 1048[0-9]+"));
}

TEST(StatusTool, SaysWhatToDoWhenThereIsNoCluster) {
  Child tool("manta", {"status", "--address", "@manta-" + std::to_string(getuid()) + "-4194304"});
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
  EXPECT_THAT(wrong.Err(), HasSubstr("--help"));
}

}  // namespace
}  // namespace manta::testing
