// Clusters of several nodes, started by the command line, used through the public API.
#include <map>
#include <set>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

int Square(int x) { return x * x; }

std::string Print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  return CurrentContext().node;
}

std::string Letters(std::size_t count) { return std::string(count, 'x'); }
std::string WhereFor(const std::string& input) { return input.empty() ? "" : CurrentContext().node; }

// Until the sign is given; then its argument's size.
std::size_t Await(const std::string& path, const std::string& input) { return Sign::Await(path) ? input.size() : 0; }

struct Waiter {
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }
};

class ClustersTest : public ClusterFixture {
 protected:
  // One CPU here and one there, where gold is.
  void StartTwo() {
    Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
    Start({"--join", Head(), "--cpus", "1", "--name", "n2", "--resource", "gold=1"});
  }
  // Of `manta status`; 0 if it says nothing.
  std::uint64_t StatusOf(const std::string& name, const std::string& field) {
    for (const std::string& line : Lines(State())) {
      if (!line.starts_with("node ") || !line.ends_with(" " + name)) continue;
      const std::size_t at = line.find('@');
      const std::string text =
          Manta({"status", "--json", "--address", line.substr(at, line.size() - at - name.size() - 1)});
      const std::size_t value = text.find("\"" + field + "\": ");
      return value == std::string::npos ? 0 : std::strtoull(text.c_str() + value + field.size() + 4, nullptr, 10);
    }
    return 0;
  }
  // Where `count` tasks of 20 ms ran.
  static std::map<std::string, int> RunTasks(int count) {
    std::vector<Ref<std::string>> refs;
    refs.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) refs.push_back(Task(WhereAmI).Remote(20));
    std::map<std::string, int> nodes;
    for (const Ref<std::string>& ref : refs) ++nodes[ref.Get()];
    return nodes;
  }
};

TEST_F(ClustersTest, AProgramFindsTheLocalClusterAndItsTasksRunOnAllNodes) {
  StartTwo();
  Init();
  EXPECT_EQ(CurrentContext().node, "n1");
  const std::map<std::string, int> nodes = RunTasks(60);
  EXPECT_GT(nodes.at("n1"), 10);
  EXPECT_GT(nodes.at("n2"), 10);
}

TEST_F(ClustersTest, AProgramThatNamedNoClusterIsToldInOneLineThatItJoinedOne) {
  StartTwo();
  ::testing::internal::CaptureStderr();
  Init();
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "manta: joined the running cluster at its node n1 (address \"private\" starts one of your own)\n");
  Shutdown();
  Config config;
  config.address = Head();
  ::testing::internal::CaptureStderr();
  Init(config);
  Shutdown();
  config.address = "private";
  Init(config);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(ClustersTest, TheHeadsAddressMeansItsNodeOnThisMachine) {
  StartTwo();
  Config config;
  config.address = Head();
  Init(config);
  EXPECT_EQ(Task(Square).Remote(7).Get(), 49);
  Shutdown();
  config.address = "127.0.0.1:1";
  try {
    Init(config);
    ADD_FAILURE() << "there is no such cluster";
  } catch (const UnavailableError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("manta start --join 127.0.0.1:1"));
  }
}

TEST_F(ClustersTest, ATaskRunsWhereItsResourceIsAndItsOutputComesHome) {
  StartTwo();
  Init();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(Task(Print).SetResource("gold", 1).Remote("greetings from afar").Get(), "n2");
  Shutdown();
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), ::testing::HasSubstr("greetings from afar"));
}

// The first may be given to a node with both calls in hand, and the second be sent to wait behind it: it does not stay
// there when there is room elsewhere.
TEST_F(ClustersTest, ATaskBehindALongOneOfAnotherNodeGoesWhereThereIsRoom) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
  for (const char* name : {"n2", "n3"}) Start({"--join", Head(), "--cpus", "1", "--name", name, "--resource", "far=1"});
  Init();
  for (int round = 0; round < 5; ++round) {
    const Sign go;
    const auto meet = [](const std::string& mine, const std::string& other) {
      Sign::Give(mine);
      return Sign::Await(other);  // each waits for the other
    };
    const std::string one = go.path() + "1";
    const std::string two = go.path() + "2";
    const Ref<bool> first = Task(meet).SetResource("far", 1).Remote(one, two);
    const Ref<bool> second = Task(meet).SetResource("far", 1).Remote(two, one);
    EXPECT_TRUE(first.Get(60s)) << "round " << round;
    EXPECT_TRUE(second.Get(60s)) << "round " << round;
  }
}

TEST_F(ClustersTest, ATaskThatNoNodeCanHoldIsRefused) {
  StartTwo();
  Init();
  EXPECT_THROW(Task(Square).SetResource("silver", 1).Remote(1).Get(), InfeasibleError);
}

TEST_F(ClustersTest, ATaskAndAnActorThatNoNodeCanHoldWaitForANodeThatCan) {
  setenv("MANTA_INFEASIBLE_SECONDS", "600", 1);
  StartTwo();
  Init();
  const Ref<int> task = Task(Square).SetResource("silver", 1).Remote(7);
  const Ref<int> labelled = Task(Square).Labels({LabelRule::Equals("zone", "moon")}).Remote(8);
  const auto actor = Actor<Waiter>().SetResource("silver", 1).Remote();
  const Ref<std::string> node = actor.Task(&Waiter::Node).Remote();
  EXPECT_THROW(task.Get(300ms), TimeoutError);
  EXPECT_THROW(node.Get(300ms), TimeoutError);
  Start({"--join", Head(), "--name", "n3", "--cpus", "2", "--resource", "silver=2", "--label", "zone=moon"});
  EXPECT_EQ(task.Get(60s), 49);
  EXPECT_EQ(labelled.Get(60s), 64);
  EXPECT_EQ(node.Get(60s), "n3");
}

TEST_F(ClustersTest, ATaskThatWaitsForANodeFailsWhenItsTimeIsUp) {
  setenv("MANTA_INFEASIBLE_SECONDS", "0.5", 1);
  StartTwo();
  Init();
  const Ref<int> task = Task(Square).SetResource("silver", 1).Remote(7);
  EXPECT_THROW(task.Get(60s), InfeasibleError);
  const auto actor = Actor<Waiter>().SetResource("silver", 1).Remote();
  EXPECT_THROW(actor.Task(&Waiter::Node).Remote().Get(60s), Error);
}

TEST_F(ClustersTest, AnActorWithUnlimitedRestartsWaitsForANodeThatHasItsResource) {
  StartTwo();  // where a request that is infeasible fails at once
  Start({"--join", Head(), "--name", "n3", "--cpus", "1", "--resource", "silver=1"});
  Init();
  const auto actor = Actor<Waiter>().SetResource("silver", 1).SetMaxRestarts(-1).Remote();
  EXPECT_EQ(actor.Task(&Waiter::Node).Remote().Get(60s), "n3");
  const pid_t node = PidOf("node", "n3");
  kill(node, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Alive(node); }));
  const Ref<std::string> after = actor.Task(&Waiter::Node).SetMaxRetries(-1).Remote();
  EXPECT_THROW(after.Get(5s), TimeoutError) << "the node's death is noticed, and nothing has what the actor needs";
  Start({"--join", Head(), "--name", "n4", "--cpus", "1", "--resource", "silver=1"});
  EXPECT_EQ(after.Get(60s), "n4");
}

TEST_F(ClustersTest, TasksOfANodeThatIsKilledRunElsewhere) {
  StartTwo();
  Init();
  std::vector<Ref<std::string>> refs;
  refs.reserve(60);
  for (int i = 0; i < 60; ++i) refs.push_back(Task(WhereAmI).Remote(20));
  std::this_thread::sleep_for(200ms);
  kill(PidOf("node", "n2"), SIGKILL);
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get().empty());
  EXPECT_THAT(Manta({"nodes", "--all"}), ::testing::HasSubstr("dead"));
}

TEST_F(ClustersTest, TasksGoOnWhileTheHeadIsKilledAndStartedAgain) {
  StartTwo();
  Init();
  RunTasks(10);
  KillHead();
  EXPECT_EQ(RunTasks(10).size() > 0, true);
  EXPECT_NE(Manta({"start", "--head"}), "");
  EXPECT_TRUE(Eventually([&] { return RunTasks(40).size() == 2; }));
}

TEST_F(ClustersTest, ADrainedNodeLeavesWhileTasksRun) {
  StartTwo();
  Init();
  std::vector<Ref<std::string>> refs;
  refs.reserve(60);
  for (int i = 0; i < 60; ++i) refs.push_back(Task(WhereAmI).Remote(20));
  std::this_thread::sleep_for(100ms);
  EXPECT_THAT(Manta({"drain", "n2"}), ::testing::HasSubstr("has left"));
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get().empty());
  EXPECT_EQ(RunTasks(10).size(), 1U);
  std::string errors;
  Manta({"drain", "n7"}, &errors);
  EXPECT_THAT(errors, ::testing::HasSubstr("n7"));
}

TEST_F(ClustersTest, ATaskRunsWhereItsLargeArgumentIs) {
  StartTwo();
  Init();
  const Ref<std::string> there = Task(Letters).SetResource("gold", 1).Remote(std::size_t{32} << 20);
  const Ref<std::string> here = Put(Letters(std::size_t{8} << 20));
  const Ref<std::string> little = Task(Letters).SetResource("gold", 1).Remote(std::size_t{10'000});
  static_cast<void>(Wait(std::vector{there}, 1));
  // Not at once for certain: the head may still believe that a node is busy.
  const auto comes_to = [](const Ref<std::string>& argument, const std::string& node) {
    return Eventually([&] { return Task(WhereFor).Remote(argument).Get() == node; });
  };
  EXPECT_TRUE(comes_to(there, "n2"));
  EXPECT_TRUE(comes_to(here, "n1"));
  EXPECT_TRUE(comes_to(little, "n1"));
}

TEST_F(ClustersTest, ArgumentsOfTasksThatWaitElsewhereAreFetchedMeanwhile) {
  StartTwo();
  Init();
  Sign go;
  auto await = Task(Await).SetResource("gold", 1);
  const std::string input = Letters(std::size_t{16} << 20);
  const Ref<std::size_t> first = await.Remote(go.path(), std::string("x"));
  const Ref<std::size_t> second = await.Remote(go.path(), Put(input));
  EXPECT_TRUE(Eventually([&] { return StatusOf("n2", "bytes_fetched") >= input.size(); }, 10s));
  go.Give();
  EXPECT_EQ(first.Get(), 1U);
  EXPECT_EQ(second.Get(), input.size());
}

TEST_F(ClustersTest, AChangedBuildIsAnotherProgram) {
  StartTwo();
  // Beside the library that it needs.
  const std::string path = ProgramFolder() + "/build." + std::to_string(getpid());
  const Sign go;
  std::filesystem::copy_file(ProgramFolder() + "/build", path);
  Child first(path);
  EXPECT_EQ(first.Finish(), 0) << first.Err();
  EXPECT_EQ(first.Out(), "build 1\n");
  Child runs(path, {go.path()});
  ASSERT_TRUE(runs.Says("ready")) << runs.Err();

  // As a linker does it: a new file of the same name.
  std::string text = ReadFile(path);
  const std::size_t at = text.find("build 1");
  ASSERT_NE(at, std::string::npos);
  text[at + 6] = '2';
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << text;
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  Child changed(path);
  EXPECT_EQ(changed.Finish(), 0) << changed.Err();
  EXPECT_EQ(changed.Out(), "build 2\n");
  // Who was started before is what it was, though its file is gone.
  go.Give();
  EXPECT_EQ(runs.Finish(), 0) << runs.Err();
  EXPECT_EQ(runs.Out(), "ready\nbuild 1\n");
  std::filesystem::remove(path);
}

TEST_F(ClustersTest, ManyNodesOnOneMachineEndWithTheirCommand) {
  Child cluster("manta", {"--secrets", secrets_, "cluster", "--nodes", "4", "--store-bytes", "67108864"});
  ASSERT_TRUE(cluster.Says("Ctrl-C stops it")) << cluster.Err();
  Init();
  EXPECT_GE(RunTasks(80).size(), 3U);
  Shutdown();
  EXPECT_EQ(Lines(Manta({"nodes"})).size(), 5U);
  kill(cluster.pid(), SIGINT);
  EXPECT_EQ(cluster.Finish(), 0);
  EXPECT_TRUE(cluster.LeavesNothing());
}

TEST_F(ClustersTest, SecondHeadAndUnknownClusterSayWhatToDo) {
  std::string errors;
  Manta({"nodes"}, &errors);
  EXPECT_THAT(errors, ::testing::HasSubstr("manta start --head"));
  StartTwo();
  Manta({"start", "--head"}, &errors);
  EXPECT_THAT(errors, ::testing::HasSubstr("manta stop"));
  Manta({"token"}, &errors);
  EXPECT_THAT(errors, ::testing::HasSubstr("--listen"));
}

}  // namespace
}  // namespace manta::testing
