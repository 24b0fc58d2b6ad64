// Where tasks run, as their options say: labels, affinity, spreading and placement groups, on a private node and in a
// cluster of real processes.
#include <algorithm>
#include <map>
#include <set>

#include "cluster_fixture.h"
#include "manta/internal/embed.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

std::string WhereAmI(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return CurrentContext().node;
}

int Linger(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
}

// Runs until there is a file of that name.
std::string Until(const std::string& path) {
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(1ms);
  return CurrentContext().node;
}

// The same, and says that it has begun.
std::string BeginUntil(const std::string& path, int number) {
  std::ofstream(path + std::to_string(number)) << "begun";
  return Until(path);
}

std::vector<std::uint32_t> MyGpus() { return CurrentContext().gpus; }

class Box {
 public:
  std::string Where() { return CurrentContext().node; }
};

void Touch(const std::string& path) { std::ofstream(path) << "now"; }

// What Get throws, if it is this; empty if it does not throw.
template <typename E, typename T>
std::string WhatOf(const Ref<T>& ref) {
  try {
    ref.Get(20s);
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "another error: " << error.what();
  }
  return {};
}

// Makes and removes groups while tasks run beside them and inside them. What ran in a group that is removed fails with
// NotFoundError or has a value; what did not has one; and no group is in the way of another.
void MakeAndRemoveGroups(int rounds) {
  std::vector<Ref<int>> beside;
  for (int i = 0; i < rounds; ++i) {
    for (int j = 0; j < 4; ++j) beside.push_back(Task(Linger).Remote(1));
    const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 0.5}}});
    std::vector<Ref<std::string>> inside;
    for (int j = 0; j < 3; ++j) inside.push_back(Task(WhereAmI).InBundle(group).SetCpus(0.5).Remote(i % 3));
    auto box = Actor<Box>().InBundle(group, 0).SetCpus(0.5).Remote();
    const Ref<std::string> called = box.Task(&Box::Where).Remote();
    if (i % 4 == 0) {
      EXPECT_TRUE(group.Wait(30s)) << "round " << i << ": " << DescribePlacementGroup(group).why;
    }
    if (i % 4 == 1) inside.front().Get(30s);
    RemovePlacementGroup(group);
    for (const Ref<std::string>& ref : inside) {
      try {
        ref.Get(30s);
      } catch (const NotFoundError&) {
      } catch (const std::exception& error) {
        ADD_FAILURE() << "round " << i << ", a task: " << error.what();
      }
    }
    try {
      called.Get(30s);
    } catch (const ActorDiedError&) {
    } catch (const std::exception& error) {
      ADD_FAILURE() << "round " << i << ", an actor: " << error.what();
    }
    if (::testing::Test::HasFailure()) return;
  }
  for (const Ref<int>& ref : beside) EXPECT_EQ(ref.Get(30s), 1);
  EXPECT_TRUE(ListPlacementGroups().empty());
}

// ---- a node of its own ----

class PlacementTest : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.gpus = 2;
    config.labels = {{"zone", "a"}, {"disk", "ssd"}};
    return config;
  }
};

TEST_F(PlacementTest, WishesThatTheOnlyNodeFulfilsAreFulfilled) {
  const std::vector<NodeInfo> nodes = Nodes();
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(nodes[0].labels.at("zone"), "a");
  EXPECT_TRUE(nodes[0].here);
  const std::string name = nodes[0].name;
  EXPECT_EQ(Task(WhereAmI).OnNode(name).Remote(0).Get(), name);
  EXPECT_EQ(Task(WhereAmI).OnNode("moon", true).Remote(0).Get(), name);
  EXPECT_EQ(Task(WhereAmI).Spread().Remote(0).Get(), name);
  EXPECT_EQ(Task(WhereAmI).Labels({LabelRule::Equals("zone", "a"), LabelRule::Exists("disk")}).Remote(0).Get(), name);
  EXPECT_EQ(Task(WhereAmI).PreferLabels({LabelRule::Equals("zone", "moon")}).Remote(0).Get(), name);
}

TEST_F(PlacementTest, WishesThatItDoesNotFulfilFailAtOnceAndSayWhatThereIs) {
  EXPECT_THAT(WhatOf<InfeasibleError>(Task(WhereAmI).OnNode("moon").Remote(0)), HasSubstr("moon"));
  const std::string what =
      WhatOf<InfeasibleError>(Task(WhereAmI).Labels({LabelRule::In("zone", {"b", "c"})}).Remote(0));
  EXPECT_THAT(what, HasSubstr("zone in {b, c}"));
  EXPECT_THAT(what, HasSubstr("zone=a"));
  EXPECT_THROW(Task(WhereAmI).Labels({LabelRule::In("zone", {})}).Remote(0), InvalidError);
}

TEST_F(PlacementTest, ManyTasksThatAreSpreadAllRun) {
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 50; ++i) refs.push_back(Task(WhereAmI).Spread().Remote(0));
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(20s).empty());
}

TEST_F(PlacementTest, ABundleKeepsItsResourcesForTheTasksOfItsGroup) {
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}});
  ASSERT_TRUE(group.Wait(10s));
  group.Ready().Get(10s);
  EXPECT_EQ(AvailableResources().count("CPU"), 0U);
  EXPECT_EQ(ClusterResources().at("CPU"), 2);
  const Ref<std::string> outside = Task(WhereAmI).Remote(0);
  EXPECT_THROW(outside.Get(100ms), TimeoutError);
  EXPECT_FALSE(Task(WhereAmI).InBundle(group, 0).Remote(0).Get(10s).empty());
  EXPECT_FALSE(Task(WhereAmI).InBundle(group, 1).Remote(0).Get(10s).empty());
  EXPECT_FALSE(Task(WhereAmI).InBundle(group).Remote(0).Get(10s).empty());
  EXPECT_THAT(WhatOf<InfeasibleError>(Task(WhereAmI).InBundle(group).SetCpus(2).Remote(0)), HasSubstr("CPU 2"));
  EXPECT_THAT(WhatOf<InvalidError>(Task(WhereAmI).InBundle(group, 2).Remote(0)), HasSubstr("2 bundles"));
  RemovePlacementGroup(group);
  EXPECT_FALSE(outside.Get(10s).empty());
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 2; }));
}

TEST_F(PlacementTest, GroupsAreMadeAndRemovedUnderLoad) {
  MakeAndRemoveGroups(40);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 2; }));
}

TEST_F(PlacementTest, NoMoreTasksRunInABundleThanItHolds) {
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}});
  const std::string go = folder().path() + "/go";
  const Ref<std::string> first = Task(Until).InBundle(group, 0).Remote(go);
  const Ref<std::string> second = Task(Until).InBundle(group).SetName("second").Remote(go);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 1; }));
  EXPECT_FALSE(Task(WhereAmI).Remote(0).Get(10s).empty());  // what is outside is free
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(internal::ResourcesInUse().at("CPU"), 1);
  Touch(go);
  first.Get(10s);
  second.Get(10s);
  unlink(go.c_str());
}

TEST_F(PlacementTest, AGroupThatTheOnlyNodeCannotHoldIsRefusedWithTheNumbers) {
  try {
    CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 8}}});
    ADD_FAILURE() << "there are only two CPUs";
  } catch (const InfeasibleError& error) {
    EXPECT_THAT(error.what(), HasSubstr("CPU 8"));
    EXPECT_THAT(error.what(), HasSubstr("CPU 2"));
  }
  EXPECT_THROW(CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}}, GroupStrategy::kStrictSpread), InfeasibleError);
  EXPECT_THROW(CreatePlacementGroup({}), InvalidError);
  EXPECT_THROW(CreatePlacementGroup({{}}), InvalidError);
  EXPECT_TRUE(ListPlacementGroups().empty());
}

TEST_F(PlacementTest, OfTwoGroupsThatDoNotFitTogetherTheSecondWaitsForTheFirst) {
  const PlacementGroup first = CreatePlacementGroup({{{"CPU", 2}}}, GroupStrategy::kPack, {"first", "", false});
  const PlacementGroup second = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}});
  ASSERT_TRUE(first.Wait(10s));
  EXPECT_FALSE(second.Wait(100ms));
  const Ref<std::string> waits = Task(WhereAmI).InBundle(second, 1).Remote(0);
  EXPECT_EQ(GetPlacementGroup("first"), first);
  EXPECT_EQ(ListPlacementGroups().size(), 2U);
  EXPECT_THROW(CreatePlacementGroup({{{"CPU", 1}}}, GroupStrategy::kPack, {"first", "", false}), InvalidError);
  RemovePlacementGroup(first);
  RemovePlacementGroup(first);
  EXPECT_THROW(static_cast<void>(GetPlacementGroup("first")), NotFoundError);
  EXPECT_TRUE(second.Wait(10s));
  EXPECT_FALSE(waits.Get(10s).empty());
  EXPECT_THROW(first.Wait(1s), NotFoundError);
}

TEST_F(PlacementTest, RemovalEndsWhatRunsAndWhatWaitsInIt) {
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}}, GroupStrategy::kPack, {"short-lived", "", false});
  const std::string go = folder().path() + "/never";
  const Ref<std::string> runs = Task(Until).InBundle(group, 0).Remote(go);
  const Ref<std::string> once = Task(Until).InBundle(group, 0).SetRetries(0).Remote(go);
  const Ref<std::string> waits = Task(Until).InBundle(group).Remote(go);
  const auto actor = Actor<Box>().InBundle(group).Remote();
  const auto restarted = Actor<Box>().InBundle(group, 0).SetMaxRestarts(-1).Remote();
  EXPECT_FALSE(actor.Task(&Box::Where).Remote().Get(10s).empty());
  EXPECT_FALSE(restarted.Task(&Box::Where).Remote().Get(10s).empty());
  RemovePlacementGroup(group);
  for (const Ref<std::string>& ref : {runs, once, waits}) {
    EXPECT_THAT(WhatOf<NotFoundError>(ref), HasSubstr("placement group"));
  }
  EXPECT_THAT(WhatOf<ActorDiedError>(actor.Task(&Box::Where).Remote()), HasSubstr("placement group"));
  EXPECT_TRUE(Eventually([&] {
    try {
      restarted.Task(&Box::Where).Remote().Get(1s);
    } catch (const ActorDiedError&) {
      return true;
    } catch (const Error&) {
    }
    return false;
  }));
  EXPECT_THAT(WhatOf<NotFoundError>(Task(WhereAmI).InBundle(group).Remote(0)), HasSubstr("removed"));
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 2; }));
}

TEST_F(PlacementTest, ActorsInABundleTakeItsResources) {
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}, {"GPU", 1}}});
  auto actor = Actor<Box>().SetCpus(1).InBundle(group, 0).Remote();
  EXPECT_FALSE(actor.Task(&Box::Where).Remote().Get(10s).empty());
  const Ref<std::string> task = Task(WhereAmI).InBundle(group).Remote(0);
  EXPECT_THROW(task.Get(100ms), TimeoutError);
  Kill(actor);
  EXPECT_FALSE(task.Get(10s).empty());
}

TEST_F(PlacementTest, TheGpusOfABundleAreAlwaysTheSame) {
  const PlacementGroup group = CreatePlacementGroup({{{"GPU", 1}}, {{"GPU", 1}}});
  const std::vector<std::uint32_t> zero = Task(MyGpus).InBundle(group, 0).SetCpus(0).SetGpus(1).Remote().Get(10s);
  const std::vector<std::uint32_t> one = Task(MyGpus).InBundle(group, 1).SetCpus(0).SetGpus(1).Remote().Get(10s);
  ASSERT_EQ(zero.size(), 1U);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_NE(zero, one);
  EXPECT_EQ(Task(MyGpus).InBundle(group, 0).SetCpus(0).SetGpus(0.5).Remote().Get(10s), zero);
}

TEST_F(PlacementTest, AHandleWorksInTasks) {
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}});
  const auto inside = [](const PlacementGroup& passed) {
    return passed.Wait(10s) && !Task(WhereAmI).InBundle(passed, 0).Remote(0).Get(10s).empty();
  };
  EXPECT_TRUE(Task(inside).Remote(group).Get(20s));
}

// ---- a cluster ----

class ClusterPlacementTest : public ClusterFixture {
 protected:
  void Join(const std::string& name, const std::string& labels, const std::string& cpus = "2") {
    Start({"--join", Head(), "--cpus", cpus, "--name", name, "--labels", labels});
  }
  // Two CPUs each: n1 in zone a, n2 (with disk) and n3 in zone b.
  void StartThree() {
    Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1", "--labels", "zone=a"});
    Join("n2", "zone=b,disk=ssd");
    Join("n3", "zone=b");
    Init();
  }
  static std::set<std::string> Different(const std::vector<std::string>& names) { return {names.begin(), names.end()}; }
  // Of a group that is ready: each bundle's task runs on the bundle's node.
  static std::vector<std::string> NodesOf(const PlacementGroup& group) {
    EXPECT_TRUE(group.Wait(10s)) << DescribePlacementGroup(group).why;
    // It may have lost a node just now, and be on its way to another.
    GroupInfo info;
    EXPECT_TRUE(Eventually([&] {
      info = DescribePlacementGroup(group);
      return std::count(info.nodes.begin(), info.nodes.end(), "") == 0;
    }));
    std::vector<Ref<std::string>> refs;
    for (std::size_t i = 0; i < info.bundles.size(); ++i) {
      refs.push_back(Task(WhereAmI).InBundle(group, static_cast<int>(i)).Remote(0));
    }
    for (std::size_t i = 0; i < refs.size(); ++i) EXPECT_EQ(refs[i].Get(20s), info.nodes[i]) << "bundle " << i;
    return info.nodes;
  }
};

TEST_F(ClusterPlacementTest, LabelsChooseTheNode) {
  StartThree();
  EXPECT_THAT(Manta({"nodes"}), HasSubstr("disk=ssd"));
  const auto run = [](std::vector<LabelRule> rules) {
    std::set<std::string> nodes;
    for (int i = 0; i < 4; ++i) nodes.insert(Task(WhereAmI).Labels(rules).Remote(5).Get(20s));
    return nodes;
  };
  EXPECT_EQ(run({LabelRule::Exists("disk")}), (std::set<std::string>{"n2"}));
  EXPECT_EQ(run({LabelRule::Equals("zone", "b"), LabelRule::Absent("disk")}), (std::set<std::string>{"n3"}));
  EXPECT_EQ(run({LabelRule::NotIn("zone", {"b", "c"})}), (std::set<std::string>{"n1"}));
  EXPECT_EQ(run({LabelRule::In("zone", {"b", "c"})}).count("n1"), 0U);
  const std::string what =
      WhatOf<InfeasibleError>(Task(WhereAmI).Labels({LabelRule::Equals("zone", "moon")}).Remote(0));
  EXPECT_THAT(what, HasSubstr("zone=moon"));
  EXPECT_THAT(what, HasSubstr("disk=ssd"));
  EXPECT_EQ(Task(WhereAmI).PreferLabels({LabelRule::Exists("disk")}).Remote(5).Get(20s), "n2");
  EXPECT_FALSE(Task(WhereAmI).PreferLabels({LabelRule::Exists("moon")}).Remote(5).Get(20s).empty());
}

TEST_F(ClusterPlacementTest, AffinityNamesTheNodeHardOrSoft) {
  StartThree();
  std::map<std::string, std::string> numbers;
  for (const NodeInfo& node : Nodes()) numbers[node.name] = std::to_string(node.number);
  ASSERT_EQ(numbers.size(), 3U);
  for (const char* name : {"n1", "n2", "n3"}) {
    EXPECT_EQ(Task(WhereAmI).OnNode(name).Remote(0).Get(20s), name);
    EXPECT_EQ(Task(WhereAmI).OnNode(numbers[name]).Remote(0).Get(20s), name);
    EXPECT_EQ(Task(WhereAmI).OnNode(name, true).Remote(0).Get(20s), name);
  }
  // More than fit there wait for it, and go nowhere else.
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 8; ++i) refs.push_back(Task(WhereAmI).OnNode("n3").Remote(50));
  for (const Ref<std::string>& ref : refs) EXPECT_EQ(ref.Get(20s), "n3");
  const std::string what = WhatOf<InfeasibleError>(Task(WhereAmI).OnNode("n7").Remote(0));
  EXPECT_THAT(what, HasSubstr("n7"));
  EXPECT_FALSE(Task(WhereAmI).OnNode("n7", true).Remote(0).Get(20s).empty());
  kill(PidOf("node", "n3"), SIGKILL);
  EXPECT_TRUE(Eventually([] { return Nodes().size() == 2; }, 10s));
  EXPECT_THAT(WhatOf<InfeasibleError>(Task(WhereAmI).OnNode("n3").Remote(1)), HasSubstr("n3"));
  EXPECT_NE(Task(WhereAmI).OnNode("n3", true).Remote(1).Get(20s), "n3");
}

TEST_F(ClusterPlacementTest, GroupsAreMadeAndRemovedUnderLoad) {
  StartThree();
  MakeAndRemoveGroups(40);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 6; }));
}

TEST_F(ClusterPlacementTest, SpreadTasksRunOnAllNodes) {
  StartThree();
  std::map<std::string, int> one_by_one;
  // In turns, but a node that has no room just then is passed over: of a few it may get one less than its share.
  for (int i = 0; i < 30; ++i) ++one_by_one[Task(WhereAmI).Spread().Remote(0).Get(20s)];
  EXPECT_EQ(one_by_one.size(), 3U);
  for (const auto& [node, count] : one_by_one) EXPECT_GE(count, 5) << node;
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 6; ++i) refs.push_back(Task(WhereAmI).Spread().Remote(300));
  std::map<std::string, int> together;
  for (const Ref<std::string>& ref : refs) ++together[ref.Get(20s)];
  EXPECT_EQ(together.size(), 3U);
  // Without the wish the first ones stay at home.
  EXPECT_EQ(Task(WhereAmI).Remote(0).Get(20s), "n1");
}

TEST_F(ClusterPlacementTest, ActorsThatAskForNothingAreSpreadOverAllNodes) {
  StartThree();
  std::vector<ActorHandle<Box>> boxes;
  for (int i = 0; i < 12; ++i) boxes.push_back(Actor<Box>().Remote());
  std::map<std::string, int> where;
  std::vector<Ref<std::string>> refs;
  for (ActorHandle<Box>& box : boxes) refs.push_back(box.Task(&Box::Where).Remote());
  EXPECT_EQ(refs.front().Get(20s), "n1") << "a single actor stays with its creator";
  for (const Ref<std::string>& ref : refs) ++where[ref.Get(20s)];
  EXPECT_EQ(where, (std::map<std::string, int>{{"n1", 4}, {"n2", 4}, {"n3", 4}}));
}

// By the length of the queues alone it would go where twenty wait, and not where hundreds do.
TEST_F(ClusterPlacementTest, ATaskGoesWhereTheWaitIsShortestByTheRunTimesThatOwnersSaw) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"});
  for (const char* name : {"slow", "quick"}) {
    Start({"--join", Head(), "--cpus", "1", "--name", name, "--resource", "slot=1"});
  }
  Init();
  const auto slow = [] { return Task(Linger).SetResource("slot", 1).OnNode("slow").Remote(1'000); };
  const auto quick = [] { return Task(WhereAmI).SetResource("slot", 1).OnNode("quick").Remote(5); };
  slow().Get(20s);
  for (int i = 0; i < 20; ++i) quick().Get(20s);
  std::vector<Ref<int>> few;
  std::vector<Ref<std::string>> many;
  for (int i = 0; i < 20; ++i) few.push_back(slow());
  for (int i = 0; i < 800; ++i) many.push_back(quick());
  // The head learns of the queues with the nodes' next beats. What went to the slow one before is called off.
  std::string where;
  while (where != "quick" && Wait(many, many.size(), 0s).rest.size() > 400) {
    const Ref<std::string> probe = Task(WhereAmI).SetResource("slot", 1).Remote(0);
    try {
      where = probe.Get(400ms);
    } catch (const TimeoutError&) {
      Cancel(probe);
    }
  }
  EXPECT_EQ(where, "quick");
  for (const Ref<int>& ref : few) Cancel(ref, true);
}

TEST_F(ClusterPlacementTest, ResourcesAreThoseOfAllNodes) {
  StartThree();
  EXPECT_EQ(ClusterResources().at("CPU"), 6);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 6; }));
  const std::string go = folder_.path() + "/go";
  const Ref<std::string> far = Task(Until).OnNode("n2").Remote(go);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 5; }));
  Touch(go);
  far.Get(20s);
  unlink(go.c_str());
}

TEST_F(ClusterPlacementTest, EachStrategyIsKept) {
  StartThree();
  const std::vector<Bundle> two{{{"CPU", 1}}, {{"CPU", 1}}};
  const std::vector<Bundle> three{{{"CPU", 1}}, {{"CPU", 1}}, {{"CPU", 1}}};
  const auto spans = [](const std::vector<Bundle>& bundles, GroupStrategy strategy) {
    const PlacementGroup group = CreatePlacementGroup(bundles, strategy);
    const std::size_t nodes = Different(NodesOf(group)).size();
    RemovePlacementGroup(group);
    return nodes;
  };
  // The soft ones take what there is, and a group that was removed just now may not be off its nodes yet.
  const auto comes_to_span = [&](const std::vector<Bundle>& bundles, GroupStrategy strategy, std::size_t nodes) {
    return Eventually([&] { return spans(bundles, strategy) == nodes; });
  };
  EXPECT_EQ(spans(two, GroupStrategy::kStrictPack), 1U);
  EXPECT_EQ(spans(three, GroupStrategy::kStrictSpread), 3U);
  EXPECT_TRUE(comes_to_span(two, GroupStrategy::kPack, 1));
  EXPECT_TRUE(comes_to_span(three, GroupStrategy::kSpread, 3));
  EXPECT_TRUE(comes_to_span(three, GroupStrategy::kPack, 2)) << "as few as can be";
  std::vector<Bundle> six(6, Bundle{{"CPU", 1}});
  const PlacementGroup spread = CreatePlacementGroup(six, GroupStrategy::kSpread);
  EXPECT_EQ(Different(NodesOf(spread)).size(), 3U);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 0; }));
  RemovePlacementGroup(spread);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 6; }));
}

TEST_F(ClusterPlacementTest, TasksOfAnyBundleUseThemAll) {
  StartThree();
  const PlacementGroup group =
      CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}, {{"CPU", 1}}}, GroupStrategy::kStrictSpread);
  const std::string go = folder_.path() + "/go";
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 3; ++i) refs.push_back(Task(BeginUntil).InBundle(group).Remote(go, i));
  const auto began = [&] {
    int count = 0;
    for (int i = 0; i < 3; ++i) count += std::filesystem::exists(go + std::to_string(i)) ? 1 : 0;
    return count;
  };
  EXPECT_TRUE(Eventually([&] { return began() == 3; }, 30s)) << "all three at a time, but there are " << began();
  Touch(go);
  std::set<std::string> nodes;
  for (const Ref<std::string>& ref : refs) nodes.insert(ref.Get(20s));
  EXPECT_EQ(nodes.size(), 3U);
  for (const char* name : {"", "0", "1", "2"}) unlink((go + name).c_str());
}

TEST_F(ClusterPlacementTest, AGroupThatCannotFitWaitsAndSaysWhyUntilANodeComes) {
  StartThree();
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 3}}});
  EXPECT_FALSE(group.Wait(200ms));
  EXPECT_TRUE(Eventually([&] { return !DescribePlacementGroup(group).why.empty(); }));
  const std::string why = DescribePlacementGroup(group).why;
  EXPECT_THAT(why, HasSubstr("CPU 3"));
  EXPECT_THAT(why, HasSubstr("CPU 2"));
  const Ref<std::string> waits = Task(WhereAmI).InBundle(group, 1).SetCpus(3).Remote(0);
  Join("n4", "zone=c", "4");
  EXPECT_TRUE(group.Wait(10s));
  EXPECT_EQ(waits.Get(20s), "n4");
  EXPECT_EQ(DescribePlacementGroup(group).why, "");
}

TEST_F(ClusterPlacementTest, GroupsThatCompeteNeverHoldHalfOfWhatTheyNeed) {
  StartThree();
  const std::vector<Bundle> all{{{"CPU", 2}}, {{"CPU", 2}}, {{"CPU", 2}}};
  std::vector<PlacementGroup> groups;
  for (int i = 0; i < 4; ++i) groups.push_back(CreatePlacementGroup(all, GroupStrategy::kStrictSpread));
  // One at a time has everything; the others get their turns.
  for (const PlacementGroup& group : groups) {
    EXPECT_TRUE(group.Wait(20s)) << DescribePlacementGroup(group).why;
    int ready = 0;
    for (const GroupInfo& info : ListPlacementGroups()) ready += info.ready ? 1 : 0;
    EXPECT_EQ(ready, 1);
    EXPECT_FALSE(Task(WhereAmI).InBundle(group, 2).SetCpus(2).Remote(0).Get(20s).empty());
    RemovePlacementGroup(group);
  }
  EXPECT_TRUE(ListPlacementGroups().empty());
}

TEST_F(ClusterPlacementTest, AGroupGetsTheCpusOfTasksThatEndMeanwhile) {
  StartThree();
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 60; ++i) refs.push_back(Task(WhereAmI).Remote(20));
  const PlacementGroup group =
      CreatePlacementGroup({{{"CPU", 2}}, {{"CPU", 2}}, {{"CPU", 2}}}, GroupStrategy::kStrictSpread);
  EXPECT_TRUE(group.Wait(20s));
  RemovePlacementGroup(group);
  for (const Ref<std::string>& ref : refs) EXPECT_FALSE(ref.Get(20s).empty());
}

TEST_F(ClusterPlacementTest, RemovalEndsWhatRunsInItOnEveryNode) {
  StartThree();
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}, {{"CPU", 1}}},
                                                    GroupStrategy::kStrictSpread, {"short-lived", "", false});
  const std::string never = folder_.path() + "/never";
  std::vector<Ref<std::string>> refs;
  for (int i = 0; i < 3; ++i) refs.push_back(Task(Until).InBundle(group, i).Remote(never));
  for (int i = 0; i < 3; ++i) refs.push_back(Task(Until).InBundle(group, i).Remote(never));  // these wait
  ASSERT_TRUE(group.Wait(10s));
  std::this_thread::sleep_for(300ms);
  RemovePlacementGroup(group);
  for (const Ref<std::string>& ref : refs) EXPECT_THAT(WhatOf<NotFoundError>(ref), HasSubstr("placement group"));
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 6; }));
  EXPECT_THROW(group.Wait(1s), NotFoundError);
}

TEST_F(ClusterPlacementTest, BundlesOfANodeThatDiesComeBackOnAnother) {
  StartThree();
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 2}}, {{"CPU", 2}}}, GroupStrategy::kStrictSpread);
  std::vector<std::string> nodes = NodesOf(group);
  // The one that is not this program's.
  const std::size_t lost = nodes[0] == "n1" ? 1 : 0;
  const std::string kept = nodes[1 - lost];
  const std::string go = folder_.path() + "/go";
  const Ref<std::string> task = Task(Until).InBundle(group, static_cast<int>(lost)).Remote(go);
  std::this_thread::sleep_for(300ms);
  kill(PidOf("node", nodes[lost]), SIGKILL);
  Touch(go);
  const std::string now = task.Get(30s);
  EXPECT_NE(now, nodes[lost] == now ? std::string() : nodes[lost]);
  EXPECT_TRUE(Eventually(
      [&] {
        const GroupInfo info = DescribePlacementGroup(group);
        return info.ready && info.nodes[lost] != nodes[lost] && info.nodes[1 - lost] == kept;
      },
      10s));
  EXPECT_EQ(NodesOf(group)[1 - lost], kept);
  unlink(go.c_str());
}

TEST_F(ClusterPlacementTest, GroupsEndWithTheirProgramUnlessDetached) {
  StartThree();
  static_cast<void>(CreatePlacementGroup({{{"CPU", 1}}}, GroupStrategy::kPack, {"mine", "", false}));
  const PlacementGroup kept = CreatePlacementGroup({{{"CPU", 1}}}, GroupStrategy::kPack, {"kept", "", true});
  ASSERT_TRUE(kept.Wait(10s));
  Shutdown();
  Init();
  EXPECT_TRUE(Eventually([] { return ListPlacementGroups().size() == 1; }));
  EXPECT_THROW(static_cast<void>(GetPlacementGroup("mine")), NotFoundError);
  const PlacementGroup again = GetPlacementGroup("kept");
  EXPECT_EQ(again, kept);
  EXPECT_FALSE(Task(WhereAmI).InBundle(again, 0).Remote(0).Get(20s).empty());
  RemovePlacementGroup(again);
}

TEST_F(ClusterPlacementTest, GroupsSurviveTheHead) {
  StartThree();
  const PlacementGroup group =
      CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}, {{"CPU", 1}}}, GroupStrategy::kStrictSpread);
  const std::vector<std::string> before = NodesOf(group);
  KillHead();
  EXPECT_EQ(Task(WhereAmI).InBundle(group, 0).SetName("meanwhile").Remote(0).Get(20s), before[0]);
  EXPECT_NE(Manta({"start", "--head"}), "");
  EXPECT_TRUE(Eventually(
      [&] {
        try {
          return DescribePlacementGroup(group).ready;
        } catch (const UnavailableError&) {
          return false;
        }
      },
      10s));
  EXPECT_EQ(NodesOf(group), before);
  RemovePlacementGroup(group);
  EXPECT_TRUE(Eventually([] { return AvailableResources()["CPU"] == 6; }));
}

TEST_F(ClusterPlacementTest, ADrainedNodesBundlesMove) {
  StartThree();
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}}, GroupStrategy::kStrictSpread);
  const std::vector<std::string> nodes = NodesOf(group);
  const std::string leaves = nodes[0] == "n1" ? nodes[1] : nodes[0];
  EXPECT_THAT(Manta({"drain", leaves}), HasSubstr("has left"));
  EXPECT_TRUE(Eventually(
      [&] {
        const GroupInfo info = DescribePlacementGroup(group);
        return info.ready && !Different(info.nodes).contains(leaves);
      },
      10s));
  EXPECT_FALSE(Different(NodesOf(group)).contains(leaves));
}

}  // namespace
}  // namespace manta::testing
