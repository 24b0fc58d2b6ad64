// Several jobs in one cluster, each with its quota; and several global schedulers. Through the public API.
#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

// Says that it runs, until it may end; then where it ran.
std::string Hold(const std::string& folder, int index) {
  Sign::Give(folder + "/began" + std::to_string(index));
  return Sign::Await(folder + "/go") ? CurrentContext().node : std::string();
}

// The same, and says where.
std::string HoldHere(const std::string& folder, int index) {
  Sign::Give(folder + "/" + CurrentContext().node + "." + std::to_string(index));
  return Hold(folder, index);
}

struct Span {
  std::int64_t from = 0;
  std::int64_t to = 0;
  std::string node;
};
Span Work(int milliseconds) {
  const std::int64_t from = Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return {from, Now(), CurrentContext().node};
}

int Add(int a, int b) { return a + b; }
int Nested(int depth) { return depth == 0 ? 1 : 1 + Task(Nested).Remote(depth - 1).Get(); }
std::string Letters(std::size_t count) { return std::string(count, 'x'); }
std::string Where() { return CurrentContext().node; }

// How many ran at the same time.
int MostAtOnce(const std::vector<Span>& spans) {
  std::vector<std::pair<std::int64_t, int>> steps;
  for (const Span& span : spans) {
    steps.emplace_back(span.from, 1);
    steps.emplace_back(span.to, -1);
  }
  std::sort(steps.begin(), steps.end());
  int now = 0;
  int most = 0;
  for (const auto& [when, step] : steps) most = std::max(most, now += step);
  return most;
}

class ClusterJobs : public ClusterFixture {
 protected:
  void StartTwo(const std::vector<std::string>& of_head = {}) {
    std::vector<std::string> words{"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"};
    words.insert(words.end(), of_head.begin(), of_head.end());
    Start(words);
    Start({"--join", Head(), "--cpus", "2", "--name", "n2", "--resource", "gold=9"});
  }
  static void InitWith(const std::map<std::string, double>& quota) {
    Config config;
    config.quota = quota;
    Init(config);
  }
  [[nodiscard]] std::size_t Began() const {
    const std::vector<std::string> files = signs_.Files();
    return static_cast<std::size_t>(
        std::count_if(files.begin(), files.end(), [](const std::string& file) { return file.starts_with("began"); }));
  }
  // Lines of `manta nodes` that name a further scheduler: their processes.
  std::vector<pid_t> Schedulers() {
    std::vector<pid_t> pids;
    for (const std::string& line : Lines(Manta({"nodes"}))) {
      const std::size_t at = line.find("pid ");
      if (line.starts_with("scheduler ") && at != std::string::npos) pids.push_back(std::atoi(line.c_str() + at + 4));
    }
    return pids;
  }

  Folder signs_;
};

TEST_F(ClusterJobs, AJobHasNoMoreAtATimeThanItsQuotaOnAllNodesTogether) {
  StartTwo();
  InitWith({{"CPU", 3}});
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 6; ++i) refs.push_back(Task(Hold).Remote(signs_.path(), i));
  ASSERT_TRUE(Eventually([&] { return Began() == 3; }, 20s)) << Began();
  EXPECT_TRUE(Eventually([&] { return Manta({"status"}).find("CPU 3 of 3 in use") != std::string::npos; }))
      << Manta({"status"});
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(Began(), 3U);
  Sign::Give(signs_.path() + "/go");
  std::set<std::string> nodes;
  for (const Ref<std::string>& ref : refs) nodes.insert(ref.Get(20s));
  EXPECT_EQ(nodes, (std::set<std::string>{"n1", "n2"}));
}

TEST_F(ClusterJobs, SharesOfAQuotaGoWhereTheTasksAreAndAreNeverExceeded) {
  StartTwo();
  InitWith({{"CPU", 2}});
  std::vector<Span> spans;
  // First all here, then all there, then both.
  for (const char* node : {"n1", "n2", ""}) {
    std::vector<Ref<Span>> refs;
    for (int i = 0; i < 8; ++i) {
      auto task = Task(Work);
      if (*node != '\0') task.OnNode(node);
      refs.push_back(task.Remote(10));
    }
    for (const Ref<Span>& ref : refs) spans.push_back(ref.Get(20s));
  }
  // Both ask for all of it at the same time.
  std::vector<Ref<Span>> refs;
  for (int i = 0; i < 20; ++i) refs.push_back(Task(Work).OnNode(i % 2 == 0 ? "n1" : "n2").Remote(10));
  for (const Ref<Span>& ref : refs) spans.push_back(ref.Get(20s));
  EXPECT_LE(MostAtOnce(spans), 2);
}

TEST_F(ClusterJobs, WhatCanNeverFitTheQuotaFailsAtOnceWithTheNumbers) {
  StartTwo();
  InitWith({{"CPU", 1.5}, {"gold", 2}});
  const std::string text = MessageOf<InfeasibleError>([] { Task(Add).SetCpus(2).Remote(1, 2).Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr("CPU 2"));
  EXPECT_THAT(text, ::testing::HasSubstr("CPU 1.5"));
  EXPECT_THAT(text, ::testing::HasSubstr("Config::quota"));
  EXPECT_THROW(Task(Add).SetResource("gold", 3).Remote(1, 2).Get(), InfeasibleError);
  EXPECT_EQ(Task(Add).SetResource("gold", 2).Remote(1, 2).Get(20s), 3);
  EXPECT_THROW(CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}}), InfeasibleError);
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}});
  EXPECT_TRUE(group.Wait(20s));
  RemovePlacementGroup(group);
}

TEST_F(ClusterJobs, TasksThatWaitForTasksOfTheirOwnJobDoNotLockItsQuota) {
  StartTwo();
  InitWith({{"CPU", 1}});
  EXPECT_EQ(Task(Nested).Remote(4).Get(30s), 5);
  EXPECT_EQ(Task(Nested).OnNode("n2").Remote(3).Get(30s), 4);
}

TEST(DISABLED_OtherDriver, AddsAFew) {
  Config config;
  config.address = std::getenv("MANTA_TEST_ADDRESS");
  Init(config);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Task(Add).Remote(i, 1).Get(20s), i + 1);
  Shutdown();
}

TEST_F(ClusterJobs, AJobThatFloodsTheClusterLeavesRoomForOthers) {
  StartTwo({"--job-quota", "CPU=3"});
  Init();
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 200; ++i) refs.push_back(Task(Hold).Remote(signs_.path(), i));
  ASSERT_TRUE(Eventually([&] { return Began() == 3; }, 20s)) << Began();
  // Its tasks never end, and its quota is what the operator allows.
  Child other("/proc/self/exe", {"--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_OtherDriver.AddsAFew"},
              {"MANTA_TEST_ADDRESS=@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n2"))});
  EXPECT_EQ(other.Finish(60s), 0) << other.Out() << other.Err();
  EXPECT_EQ(Began(), 3U);
  EXPECT_THAT(Manta({"nodes"}), ::testing::HasSubstr("a job may have CPU 3 at a time"));
  Sign::Give(signs_.path() + "/go");
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(30s).empty());
}

// As a driver in a chroot, or in a container that shares the network: its file has another name there.
TEST_F(ClusterJobs, ADriverInAnotherMountNamespaceFindsItsLibraries) {
  const std::string unshare = "/usr/bin/unshare";
  if (Child(unshare, {"--mount", "true"}).Finish(20s) != 0) GTEST_SKIP() << "needs the right to make namespaces";
  StartTwo();
  // Nothing of these mounts is seen outside.
  Child driver(unshare,
               {"--mount", "--propagation", "private", "sh", "-ec", "mount --rbind / /mnt; exec chroot /mnt \"$@\"",
                "sh", ProgramFolder() + "/cluster_jobs_test", "--gtest_also_run_disabled_tests",
                "--gtest_filter=DISABLED_OtherDriver.AddsAFew"},
               {"MANTA_TEST_ADDRESS=@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n2"))});
  EXPECT_EQ(driver.Finish(60s), 0) << driver.Out() << driver.Err();
}

TEST_F(ClusterJobs, TheShareOfANodeThatIsKilledComesBack) {
  StartTwo();
  InitWith({{"CPU", 2}});
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 2; ++i) refs.push_back(Task(HoldHere).OnNode("n2", true).Remote(signs_.path(), i));
  const auto ran = [&](const std::string& node) {
    return (Sign::Given(signs_.path() + "/" + node + ".0") ? 1 : 0) +
           (Sign::Given(signs_.path() + "/" + node + ".1") ? 1 : 0);
  };
  // One of them may be on n1, when it was asked for before n2 had said that it has room.
  ASSERT_TRUE(Eventually([&] { return Began() == 2 && ran("n2") > 0; }, 20s));
  kill(PidOf("node", "n2"), SIGKILL);
  ASSERT_TRUE(Eventually([&] { return ran("n1") == 2; }, 20s)) << "they run again, on the node that is left";
  Sign::Give(signs_.path() + "/go");
  for (const Ref<std::string>& ref : refs) EXPECT_EQ(ref.Get(30s), "n1");
}

TEST_F(ClusterJobs, SchedulersBesideTheHeadMayBeKilledWhileTasksAreBeingPlaced) {
  StartTwo({"--schedulers", "3"});
  const std::vector<pid_t> schedulers = Schedulers();
  ASSERT_EQ(schedulers.size(), 2U);
  Init();
  // Each of these is placed by a question of its own.
  const auto run = [](int count) {
    std::vector<Ref<std::string>> refs;
    for (int i = 0; i < count; ++i) refs.push_back(Task(Where).Spread().Remote());
    return refs;
  };
  const auto check = [](const std::vector<Ref<std::string>>& refs) {
    std::set<std::string> nodes;
    for (const Ref<std::string>& ref : refs) nodes.insert(ref.Get(60s));
    EXPECT_EQ(nodes, (std::set<std::string>{"n1", "n2"}));
  };
  check(run(40));
  for (const pid_t pid : schedulers) {
    const std::vector<Ref<std::string>> refs = run(100);
    kill(pid, SIGKILL);
    check(refs);
  }
  EXPECT_TRUE(Eventually([&] { return Schedulers().empty(); }));
  check(run(40));
}

TEST_F(ClusterJobs, ASchedulerThatDoesNotAnswerIsPassedOver) {
  StartTwo({"--schedulers", "2"});
  const std::vector<pid_t> schedulers = Schedulers();
  ASSERT_EQ(schedulers.size(), 1U);
  Init();
  EXPECT_FALSE(Task(Where).Spread().Remote().Get(20s).empty());
  kill(schedulers[0], SIGSTOP);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Task(Where).Spread().Remote().Get(20s).empty());
  kill(schedulers[0], SIGCONT);
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(Task(Where).Spread().Remote().Get(20s).empty());
}

TEST_F(ClusterJobs, SchedulersGoOnWhileTheHeadIsKilledAndComeBackToIt) {
  StartTwo({"--schedulers", "2"});
  Init();
  EXPECT_FALSE(Task(Where).Spread().Remote().Get(20s).empty());
  kill(PidOf("control", ""), SIGKILL);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Task(Where).Spread().Remote().Get(20s).empty());
}

TEST_F(ClusterJobs, ANodeThatJoinsUnderLoadTakesItsPart) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"});
  Init();
  // More than the node can hold, for as long as it takes the other one to come.
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 4; ++i) refs.push_back(Task(Hold).Remote(signs_.path(), i));
  ASSERT_TRUE(Eventually([&] { return Began() == 2; }, 20s));
  Start({"--join", Head(), "--cpus", "2", "--name", "n2"});
  EXPECT_TRUE(Eventually([&] { return Began() == 4; }, 20s)) << Began();
  Sign::Give(signs_.path() + "/go");
  std::map<std::string, int> nodes;
  for (const Ref<std::string>& ref : refs) ++nodes[ref.Get(20s)];
  EXPECT_EQ(nodes, (std::map<std::string, int>{{"n1", 2}, {"n2", 2}}));
}

class Sum {
 public:
  int Add(int by) { return value_ += by; }
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }

 private:
  int value_ = 0;
};

TEST_F(ClusterJobs, AnActorOfADrainedNodeGoesOnElsewhereWithItsState) {
  StartTwo();
  Init();
  auto sum = Actor<Sum>().OnNode("n2", true).Remote();
  ASSERT_EQ(sum.Task(&Sum::Node).Remote().Get(20s), "n2");
  std::vector<Ref<int>> sums;
  for (int i = 1; i <= 100; ++i) sums.push_back(sum.Task(&Sum::Add).Remote(1));
  EXPECT_THAT(Manta({"drain", "n2"}), ::testing::HasSubstr("has left"));
  for (int i = 101; i <= 200; ++i) sums.push_back(sum.Task(&Sum::Add).Remote(1));
  for (int i = 1; i <= 200; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i - 1)].Get(20s), i);
  EXPECT_EQ(sum.Task(&Sum::Node).Remote().Get(20s), "n1");
}

// What leaves one must not be sent to the other.
TEST_F(ClusterJobs, TwoNodesAreDrainedAtOnce) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"});
  for (const char* name : {"n2", "n3"}) Start({"--join", Head(), "--cpus", "2", "--name", name});
  Init();
  auto second = Actor<Sum>().OnNode("n2", true).SetCpus(0).Remote();
  auto third = Actor<Sum>().OnNode("n3", true).SetCpus(0).Remote();
  std::vector<Ref<int>> sums;
  for (int i = 1; i <= 50; ++i) {
    for (auto* actor : {&second, &third}) sums.push_back(actor->Task(&Sum::Add).Remote(1));
  }
  std::vector<Ref<std::string>> tasks;
  for (int i = 0; i < 60; ++i) tasks.push_back(Task(Where).Spread().Remote());
  ASSERT_EQ(third.Task(&Sum::Node).Remote().Get(20s), "n3");
  Child one("manta", {"--secrets", secrets_, "drain", "n2"});
  Child two("manta", {"--secrets", secrets_, "drain", "n3"});
  for (int i = 51; i <= 100; ++i) {
    for (auto* actor : {&second, &third}) sums.push_back(actor->Task(&Sum::Add).Remote(1));
  }
  EXPECT_EQ(one.Finish(40s), 0) << one.Err();
  EXPECT_EQ(two.Finish(40s), 0) << two.Err();
  for (std::size_t i = 0; i < sums.size(); ++i) EXPECT_EQ(sums[i].Get(20s), static_cast<int>(i / 2 + 1));
  for (const Ref<std::string>& task : tasks) EXPECT_FALSE(task.Get(20s).empty());
  EXPECT_EQ(second.Task(&Sum::Node).Remote().Get(20s), "n1");
  EXPECT_EQ(third.Task(&Sum::Node).Remote().Get(20s), "n1");
}

TEST_F(ClusterJobs, ADrainThatWaitsForAnActorSaysSo) {
  StartTwo();
  Init();
  auto sum = Actor<Sum>().OnNode("n2", true).SetReplay(false).Remote();
  ASSERT_EQ(sum.Task(&Sum::Node).Remote().Get(20s), "n2");
  std::string errors;
  EXPECT_EQ(Manta({"drain", "n2", "--timeout", "0.3"}, &errors), "");
  EXPECT_THAT(errors, ::testing::HasSubstr("node n2 has not left within 300 ms"));
  EXPECT_EQ(sum.Task(&Sum::Add).Remote(1).Get(20s), 1) << "it is where it was";
}

TEST_F(ClusterJobs, WhatADrainedNodeHasInItsStoreGoesToItsOwner) {
  StartTwo();
  Init();
  // Not to be made again.
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 4; ++i) {
    refs.push_back(Task(Letters).SetResource("gold", 1).SetRetries(0).Remote(std::size_t{2} << 20));
  }
  static_cast<void>(Wait(refs, refs.size()));
  EXPECT_THAT(Manta({"drain", "n2"}), ::testing::HasSubstr("has left"));
  for (const Ref<std::string>& ref : refs) EXPECT_EQ(ref.Get(20s).size(), std::size_t{2} << 20);
}

}  // namespace
}  // namespace manta::testing
