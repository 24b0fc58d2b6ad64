// Processes that die between two steps (base/failpoint.h), each at its place: what comes out is what would have come
// out without. Every test looks whether its place was reached.
#include <map>
#include <optional>
#include <set>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

class Tally {
 public:
  int Add(int by) {
    history_.push_back(by);
    return sum_ += by;
  }
  [[nodiscard]] int Sum() const { return sum_; }
  [[nodiscard]] std::vector<int> History() const { return history_; }
  MANTA_FIELDS(sum_, history_)

 private:
  int sum_ = 0;
  std::vector<int> history_;
};

int AddThrough(const ActorHandle<Tally>& tally, int by) { return tally.Task(&Tally::Add).Remote(by).Get(); }
int Square(int value) { return value * value; }

// Calls of the driver and of tasks, and tasks alone. Each call counts once, whoever made it. `expected`: those before.
void WorkOn(const ActorHandle<Tally>& tally, const std::map<std::string, double>& resources = {},
            std::vector<int> expected = {}) {
  constexpr int kRounds = 15;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<Ref<int>> calls;
    std::vector<Ref<int>> squares;
    for (int i = 0; i < 4; ++i) {
      const int number = round * 10 + i;
      calls.push_back(tally.Task(&Tally::Add).Remote(number));
      calls.push_back(Task(AddThrough).SetResources(resources).Remote(tally, number + 1'000));
      squares.push_back(Task(Square).SetResources(resources).Remote(number));
      expected.push_back(number);
      expected.push_back(number + 1'000);
    }
    for (const Ref<int>& call : calls) EXPECT_GE(call.Get(60s), 0);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(squares[static_cast<std::size_t>(i)].Get(60s), Square(round * 10 + i));
  }
  const std::vector<int> history = tally.Task(&Tally::History).Remote().Get(60s);
  EXPECT_EQ(std::multiset<int>(history.begin(), history.end()), std::multiset<int>(expected.begin(), expected.end()));
}

// Sets a place, for processes that are started while this lives, and sees whether one came there.
class Place {
 public:
  Place(const std::string& rules, const std::string& name) : path_(folder_.path() + "/" + name) {
    setenv("MANTA_FAILPOINTS", rules.c_str(), 1);
    setenv("MANTA_FAILPOINTS_ONCE", folder_.path().c_str(), 1);
  }
  ~Place() { Unset(); }
  static void Unset() {
    unsetenv("MANTA_FAILPOINTS");
    unsetenv("MANTA_FAILPOINTS_ONCE");
  }
  [[nodiscard]] bool Reached() const { return Sign::Given(path_); }

 private:
  Folder folder_;
  std::string path_;
};

// ---- workers ----

struct WorkerPlace {
  const char* name;
  const char* rules;
};
std::ostream& operator<<(std::ostream& out, const WorkerPlace& place) { return out << place.name; }

class WorkerFailpoints : public ClusterTest, public ::testing::WithParamInterface<WorkerPlace> {
 protected:
  void SetUp() override {
    place_.emplace(GetParam().rules, GetParam().name);
    ClusterTest::SetUp();
  }
  void TearDown() override {
    ClusterTest::TearDown();
    place_.reset();
  }
  std::optional<Place> place_;
};

TEST_P(WorkerFailpoints, EveryCallCountsOnce) {
  WorkOn(Actor<Tally>().CheckpointEvery(7).Remote());
  EXPECT_TRUE(place_->Reached());
}

// The same, and the actor is repeated from its constructor.
class FailpointsWithoutCheckpoints : public WorkerFailpoints {};

TEST_P(FailpointsWithoutCheckpoints, EveryCallCountsOnce) {
  WorkOn(Actor<Tally>().Remote());
  EXPECT_TRUE(place_->Reached());
}

const auto kAnywhere = ::testing::Values(
    WorkerPlace{"task.ran", "task.ran=kill@5"}, WorkerPlace{"actor.recorded", "actor.recorded=kill@6"},
    WorkerPlace{"actor.kept", "actor.kept=kill@6"},
    WorkerPlace{"actor.repeating", "actor.recorded=kill@6,actor.repeating=kill@2"});

INSTANTIATE_TEST_SUITE_P(Places, WorkerFailpoints, kAnywhere);
INSTANTIATE_TEST_SUITE_P(Places, FailpointsWithoutCheckpoints, kAnywhere);
INSTANTIATE_TEST_SUITE_P(Saving, WorkerFailpoints,
                         ::testing::Values(WorkerPlace{"actor.saving", "actor.saving=kill@2"},
                                           WorkerPlace{"actor.saved", "actor.saved=kill@2"}));

// ---- nodes ----

class NodeFailpoints : public ClusterFixture, public ::testing::WithParamInterface<WorkerPlace> {};

TEST_P(NodeFailpoints, EveryCallCountsOnce) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
  const Place place(GetParam().rules, GetParam().name);
  Start({"--join", Head(), "--cpus", "1", "--name", "n2", "--resource", "gold=10"});
  Place::Unset();
  Init();
  const auto start_third = [&] { Start({"--join", Head(), "--cpus", "1", "--name", "n3", "--resource", "gold=10"}); };
  const bool at_once = std::string(GetParam().name) == "node.starting";  // there must be somewhere to go
  if (at_once) start_third();
  auto tally = Actor<Tally>().SetResource("gold", 1).OnNode("n2", true).Remote();
  EXPECT_EQ(tally.Task(&Tally::Sum).Remote().Get(60s), 0);
  if (!at_once) start_third();
  WorkOn(tally, {{"gold", 1}});
  EXPECT_TRUE(place.Reached());
}

INSTANTIATE_TEST_SUITE_P(Places, NodeFailpoints,
                         ::testing::Values(WorkerPlace{"node.lease", "node.lease=kill@1"},
                                           WorkerPlace{"node.starting", "node.starting=kill@1"},
                                           WorkerPlace{"node.copied", "node.copied=kill@9"}));

// The home of a detached actor dies, and the one that is to be its next.
class HomeFailpoints : public ClusterFixture, public ::testing::WithParamInterface<WorkerPlace> {};

TEST_P(HomeFailpoints, EveryCallOfADetachedActorCountsOnce) {
  const std::set<std::string> of_the_next{"node.adopting", "node.receiving"};
  const bool next = of_the_next.contains(GetParam().name);
  std::optional<Place> place;
  if (!next) place.emplace(GetParam().rules, GetParam().name);
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
  if (next) place.emplace(GetParam().rules, GetParam().name);
  if (!next) Place::Unset();
  Start({"--join", Head(), "--cpus", "1", "--name", "n2"});
  Place::Unset();
  Start({"--join", Head(), "--cpus", "1", "--name", "n3", "--resource", "gold=10"});
  Config config;
  config.address = "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n3"));
  Init(config);
  auto tally = Actor<Tally>().SetDetached().SetResource("gold", 1).CheckpointEvery(7).Remote();
  EXPECT_EQ(tally.Task(&Tally::Add).Remote(7).Get(60s), 7);
  if (next) kill(PidOf("node", "n1"), SIGKILL);
  WorkOn(tally, {{"gold", 1}}, {7});
  EXPECT_TRUE(place->Reached());
}

INSTANTIATE_TEST_SUITE_P(Places, HomeFailpoints,
                         ::testing::Values(WorkerPlace{"node.taking", "node.taking=kill@9"},
                                           WorkerPlace{"node.kept", "node.kept=kill@9"},
                                           WorkerPlace{"node.receiving", "node.receiving=kill@1"},
                                           WorkerPlace{"node.adopting", "node.adopting=kill@1"}));

// The same while the home is being drained: it dies at any step of its leaving, or the one that is to be the next does.
class DrainFailpoints : public ClusterFixture, public ::testing::WithParamInterface<WorkerPlace> {};

TEST_P(DrainFailpoints, EveryCallOfADetachedActorCountsOnce) {
  const std::set<std::string> of_the_next{"node.adopting", "node.receiving"};
  const bool next = of_the_next.contains(GetParam().name);
  std::optional<Place> place;
  if (!next) place.emplace(GetParam().rules, GetParam().name);
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
  if (next) place.emplace(GetParam().rules, GetParam().name);
  Start({"--join", Head(), "--cpus", "1", "--name", "n2"});
  Place::Unset();
  Start({"--join", Head(), "--cpus", "1", "--name", "n3", "--resource", "gold=10"});
  Config config;
  config.address = "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n3"));
  Init(config);
  auto tally = Actor<Tally>().SetDetached().SetResource("gold", 1).CheckpointEvery(7).Remote();
  EXPECT_EQ(tally.Task(&Tally::Add).Remote(0).Get(60s), 0);
  Child drain("manta", {"--secrets", secrets_, "drain", "n1", "--timeout", "60"});
  std::vector<Ref<int>> calls;
  for (int i = 1; i <= 300; ++i) calls.push_back(tally.Task(&Tally::Add).Remote(1));
  for (int i = 1; i <= 300; ++i) EXPECT_EQ(calls[static_cast<std::size_t>(i - 1)].Get(60s), i);
  EXPECT_EQ(drain.Finish(), 0) << drain.Err();
  EXPECT_EQ(tally.Task(&Tally::Add).Remote(1).Get(60s), 301);
  EXPECT_TRUE(place->Reached());
}

INSTANTIATE_TEST_SUITE_P(Places, DrainFailpoints,
                         ::testing::Values(WorkerPlace{"node.leaving", "node.leaving=kill@1"},
                                           WorkerPlace{"node.left", "node.left=kill@1"},
                                           WorkerPlace{"node.receiving", "node.receiving=kill@1"},
                                           WorkerPlace{"node.adopting", "node.adopting=kill@1"}));

// ---- transfers ----

using Block = std::vector<std::uint64_t>;
constexpr std::size_t kObject = (34U << 20) / sizeof(std::uint64_t);  // of two streams, each of several parts
constexpr std::size_t kMost = (48U << 20) / sizeof(std::uint64_t);    // beside which none of those fits into a store

Block Numbers(std::size_t words, std::uint64_t seed) {
  Block block(words);
  for (std::size_t i = 0; i < words; ++i) block[i] = seed * 1'000'003 + i;
  return block;
}
bool AreNumbers(const Block& block, std::size_t words, std::uint64_t seed) { return block == Numbers(words, seed); }

// The node n2 dies while an object comes from it, or goes to it; n3 is there.
class TransferFailpoints : public ClusterFixture, public ::testing::WithParamInterface<WorkerPlace> {
 protected:
  void SetUp() override {
    ClusterFixture::SetUp();
    StartNode({"--head", "--listen", "127.0.0.1:0", "--name", "n1"});
    place_.emplace(GetParam().rules, GetParam().name);
    StartNode({"--join", Head(), "--name", "n2", "--resource", "gold=1"});
    Place::Unset();
    StartNode({"--join", Head(), "--name", "n3", "--resource", "gold=1"});
    Init();
  }
  void StartNode(std::vector<std::string> words) {
    words.insert(words.end(), {"--cpus", "1", "--spill", "none"});
    Start(std::move(words), std::to_string(64U << 20));
  }
  // No object, and no memory: neither what was sent nor what had come when the node died.
  void ExpectEmptyStores() {
    for (const char* name : {"n1", "n3"}) {
      const std::string address = "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", name));
      std::string said;
      EXPECT_TRUE(Eventually(
          [&] {
            said = Manta({"memory", "--address", address});
            return said.find(" in 0 objects") != std::string::npos;
          },
          30s))
          << said;
    }
    EXPECT_TRUE(Task(AreNumbers).SetResource("gold", 1).Remote(Put(Numbers(kMost, 8)), kMost, 8).Get(60s));
    EXPECT_TRUE(AreNumbers(Task(Numbers).SetResource("gold", 1).Remote(kMost, 9).Get(60s), kMost, 9));
  }
  std::optional<Place> place_;
};

class SenderFailpoints : public TransferFailpoints {};

TEST_P(SenderFailpoints, TheResultsAreTheSameAndNothingIsLeft) {
  Ref<Block> made = Task(Numbers).SetResource("gold", 1).OnNode("n2", true).Remote(kObject, 5);
  ASSERT_EQ(Wait(std::vector<Ref<Block>>{made}, 1).ready.size(), 1U);
  EXPECT_TRUE(AreNumbers(made.Get(60s), kObject, 5));
  EXPECT_TRUE(place_->Reached());
  made = {};
  ExpectEmptyStores();
}

INSTANTIATE_TEST_SUITE_P(Places, SenderFailpoints,
                         ::testing::Values(WorkerPlace{"transfer.sending", "transfer.sending=kill@25"}));

class ReceiverFailpoints : public TransferFailpoints {};

TEST_P(ReceiverFailpoints, TheResultsAreTheSameAndNothingIsLeft) {
  Ref<Block> put = Put(Numbers(kObject, 6));
  std::vector<Ref<bool>> seen;
  for (const char* name : {"n2", "n3"}) {  // of which one may have it from the other
    seen.push_back(Task(AreNumbers).SetResource("gold", 1).OnNode(name, true).Remote(put, kObject, 6));
  }
  for (const Ref<bool>& one : seen) EXPECT_TRUE(one.Get(60s));
  EXPECT_TRUE(place_->Reached());
  put = {};
  seen.clear();
  ExpectEmptyStores();
}

INSTANTIATE_TEST_SUITE_P(Places, ReceiverFailpoints,
                         ::testing::Values(WorkerPlace{"transfer.receiving", "transfer.receiving=kill@50"},
                                           WorkerPlace{"transfer.fetched", "transfer.fetched=kill@1"}));

// ---- the head ----

class HeadFailpoints : public ClusterFixture {};

TEST_F(HeadFailpoints, ANameWhoseBearerTheHeadDiedOverIsGivenOnceAndNoOtherIsForgotten) {
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"});
  Init();
  KillHead();
  const Place place("control.logged=kill@25", "control.logged");
  ASSERT_NE(Manta({"start", "--head"}), "");
  Place::Unset();
  std::map<std::string, ActorHandle<Tally>> named;
  int next = 0;
  while (!place.Reached() && next < 60) {
    const std::string name = "tally" + std::to_string(next);
    try {
      named[name] = Actor<Tally>().SetCpus(0).SetName(name).Remote();
      EXPECT_EQ(named[name].Task(&Tally::Add).Remote(next).Get(60s), next);
      ++next;
    } catch (const Error&) {
      // Just now, or before it is back from its restart. It is asked for again.
      std::this_thread::sleep_for(20ms);
    }
  }
  ASSERT_TRUE(place.Reached());
  ASSERT_NE(Manta({"start", "--head"}), "");
  // The one in whose creation it died, if it was not created.
  const std::string last = "tally" + std::to_string(next);
  EXPECT_TRUE(Eventually(
      [&] {
        try {
          named[last] = Actor<Tally>().SetCpus(0).SetName(last).GetIfExists().Remote();
          return named[last].Task(&Tally::Add).Remote(next).Get(60s) == next;
        } catch (const Error&) {
          return false;
        }
      },
      30s));
  for (const auto& [name, handle] : named) {
    const int number = std::atoi(name.c_str() + 5);
    EXPECT_EQ(GetActor<Tally>(name).Task(&Tally::Sum).Remote().Get(60s), number) << name;
  }
}

}  // namespace
}  // namespace manta::testing
