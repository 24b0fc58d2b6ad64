// Actors in clusters of several nodes: where they run, who calls them, how they end, and their names.
#include <sys/socket.h>

#include <condition_variable>
#include <map>
#include <mutex>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

class Counter {
 public:
  explicit Counter(int start = 0) : value_(start) {}
  int Add(int by) { return value_ += by; }
  [[nodiscard]] int Value() const { return value_; }
  [[nodiscard]] int Pid() const { return getpid(); }
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }
  void Throw(const std::string& text) { throw std::invalid_argument(text); }
  void Die() { raise(SIGKILL); }
  int DieOnce(const std::string& path) {
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGKILL);
    }
    return value_;
  }
  int Wait(const std::string& path) {
    Sign::Await(path);
    return value_;
  }

 private:
  int value_;
};

class Diary {
 public:
  void Write(int line) { lines_.push_back(line); }
  std::vector<int> Read() { return lines_; }
  std::string Node() { return CurrentContext().node; }

 private:
  std::vector<int> lines_;
};

class Store {
 public:
  std::vector<std::uint64_t> Make(std::size_t size) {
    std::vector<std::uint64_t> out(size);
    for (std::size_t i = 0; i < size; ++i) out[i] = i;
    return out;
  }
  std::uint64_t Sum(const std::vector<std::uint64_t>& numbers) {
    std::uint64_t sum = 0;
    for (const std::uint64_t number : numbers) sum += number;
    return sum;
  }
  Ref<std::string> PutHere(const std::string& text) { return Put(text + " from " + CurrentContext().node); }
};

// More state than a connection between nodes may hold back (wire::Connection::kMaxOutgoing).
class Heavy {
 public:
  static constexpr std::size_t kWords = (80U << 20) / sizeof(std::uint64_t);

  Heavy() : words_(kWords, 1) {}
  std::uint64_t Add(std::size_t at) { return ++words_[at]; }
  std::uint64_t DieOnce(const std::string& path) {
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGKILL);
    }
    return ++words_.back();
  }
  [[nodiscard]] std::string Node() const { return CurrentContext().node; }
  MANTA_FIELDS(words_)

 private:
  std::vector<std::uint64_t> words_;
};

// Keeps a handle, or makes a counter.
class Keeper {
 public:
  void Keep(ActorHandle<Counter> counter) { counter_ = std::move(counter); }
  void Drop() { counter_ = {}; }
  int Add(int by) { return counter_.Task(&Counter::Add).Remote(by).Get(); }
  ActorHandle<Counter> Give() { return counter_; }
  ActorHandle<Counter> Make(int start) { return Actor<Counter>().Remote(start); }
  std::string Node() { return CurrentContext().node; }

 private:
  ActorHandle<Counter> counter_;
};

std::string NodeThrough(ActorHandle<Counter> counter) { return counter.Task(&Counter::Node).Remote().Get(); }
int AddThrough(ActorHandle<Counter> counter, int by) { return counter.Task(&Counter::Add).Remote(by).Get(); }
void KillThrough(ActorHandle<Counter> counter) { Kill(counter); }
int AddByName(const std::string& name, int by) { return GetActor<Counter>(name).Task(&Counter::Add).Remote(by).Get(); }

struct Team {
  std::string name;
  std::vector<ActorHandle<Counter>> members;
};
int AddToTeam(const Team& team) {
  int sum = 0;
  for (const ActorHandle<Counter>& member : team.members) sum = AddThrough(member, 1);
  return sum;
}

// Calls until it is told to stop. How often that was.
int AddUntil(ActorHandle<Counter> counter, const std::string& stop) {
  int calls = 0;
  for (; !Sign::Given(stop); ++calls) counter.Task(&Counter::Add).Remote(1).Get();
  return calls;
}

class ClusterActors : public ClusterFixture {
 protected:
  void StartHead() { Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "1", "--name", "n1"}); }
  void StartNode(const std::string& name, const std::string& resource = "gold=10") {
    Start({"--join", Head(), "--cpus", "1", "--name", name, "--resource", resource});
  }
  // One CPU here and one there, where gold is.
  void StartTwo() {
    StartHead();
    StartNode("n2");
    Init();
  }
  // The local address of a node.
  [[nodiscard]] std::string AddressOf(const std::string& name) const {
    return "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", name));
  }
  // A second driver of this cluster, on that node: one of the disabled tests below.
  [[nodiscard]] std::unique_ptr<Child> Driver(const std::string& test, const std::string& node,
                                              const std::vector<std::string>& more = {}) const {
    std::vector<std::string> environment{"MANTA_TEST_ADDRESS=" + AddressOf(node)};
    environment.insert(environment.end(), more.begin(), more.end());
    return std::make_unique<Child>(
        "/proc/self/exe",
        std::vector<std::string>{"--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_OtherDriver." + test},
        environment);
  }
};

// ---- where ----

TEST_F(ClusterActors, AnActorRunsWhereItsResourceIs) {
  StartTwo();
  auto there = Actor<Counter>().SetResource("gold", 1).Remote(10);
  EXPECT_EQ(there.Task(&Counter::Node).Remote().Get(20s), "n2");
  EXPECT_EQ(there.Task(&Counter::Add).Remote(5).Get(), 15);
  auto here = Actor<Counter>().Remote(1);
  EXPECT_EQ(here.Task(&Counter::Node).Remote().Get(), "n1");
  EXPECT_EQ(here.Task(&Counter::Add).Remote(5).Get(), 6);
  EXPECT_THAT(MessageOf<TaskError>([&] { there.Task(&Counter::Throw).Remote("not today").Get(); }),
              ::testing::AllOf(HasSubstr("not today"), HasSubstr("invalid_argument")));
}

TEST_F(ClusterActors, AnActorGoesToAnotherNodeWhenItsOwnIsFullAndWaitsWhenAllAre) {
  StartTwo();
  auto first = Actor<Counter>().SetCpus(1).Remote();
  EXPECT_EQ(first.Task(&Counter::Node).Remote().Get(20s), "n1");
  auto second = Actor<Counter>().SetCpus(1).Remote();
  EXPECT_EQ(second.Task(&Counter::Node).Remote().Get(20s), "n2");
  auto third = Actor<Counter>().SetCpus(1).Remote();
  Ref<std::string> node = third.Task(&Counter::Node).Remote();
  EXPECT_THROW(node.Get(300ms), TimeoutError) << "there is no CPU left";
  Kill(second);
  EXPECT_FALSE(node.Get(20s).empty());
}

TEST_F(ClusterActors, AnActorThatNoNodeCanHoldIsRefusedAtOnceWithTheNumbers) {
  StartTwo();
  const std::string text = MessageOf<InfeasibleError>([] { Actor<Counter>().SetResource("gold", 11).Remote(); });
  EXPECT_THAT(text,
              ::testing::AllOf(HasSubstr("Counter"), HasSubstr("11"), HasSubstr("gold"), HasSubstr("1 node has")));
  EXPECT_THROW(Actor<Counter>().SetResource("silver", 1).SetName("s").Remote(), InfeasibleError);
  EXPECT_THROW(GetActor<Counter>("s"), NotFoundError);
}

TEST_F(ClusterActors, AnActorRunsOnTheNodeAndInTheBundleThatItWasAskedFor) {
  StartTwo();
  auto there = Actor<Counter>().OnNode("n2").Remote();
  EXPECT_EQ(there.Task(&Counter::Node).Remote().Get(20s), "n2");
  EXPECT_THAT(MessageOf<InfeasibleError>([] { Actor<Counter>().OnNode("n7").Remote(); }), HasSubstr("n7"));
  const PlacementGroup group = CreatePlacementGroup({{{"CPU", 1}}, {{"CPU", 1}}}, GroupStrategy::kStrictSpread);
  auto first = Actor<Counter>().SetCpus(1).InBundle(group, 0).Remote();
  auto second = Actor<Counter>().SetCpus(1).InBundle(group, 1).Remote();
  const std::string node = first.Task(&Counter::Node).Remote().Get(20s);
  EXPECT_EQ(second.Task(&Counter::Node).Remote().Get(20s), node == "n1" ? "n2" : "n1");
  RemovePlacementGroup(group);
  for (const ActorHandle<Counter>& actor : {first, second}) {
    EXPECT_THAT(MessageOf<ActorDiedError>([&] {
                  for (int i = 0; i < 1000; ++i) actor.Task(&Counter::Node).Remote().Get(20s);
                }),
                HasSubstr("placement group"));
  }
}

TEST_F(ClusterActors, AConstructorThatThrowsOnAnotherNodeFailsEveryCall) {
  StartTwo();
  class Broken {
   public:
    explicit Broken(const std::string& why) { throw std::runtime_error(why); }
    int Use() { return 1; }
  };
  auto broken = Actor<Broken>().SetResource("gold", 1).Remote("no such device");
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { broken.Task(&Broken::Use).Remote().Get(20s); }),
              HasSubstr("no such device"));
}

// ---- calls ----

TEST_F(ClusterActors, TenThousandCallsToAnotherNodeRunInOrder) {
  StartTwo();
  auto diary = Actor<Diary>().SetResource("gold", 1).Remote();
  for (int i = 0; i < 10'000; ++i) (void)diary.Task(&Diary::Write).Remote(i);
  const std::vector<int> lines = diary.Task(&Diary::Read).Remote().Get(60s);
  ASSERT_EQ(lines.size(), 10'000U);
  for (int i = 0; i < 10'000; ++i) ASSERT_EQ(lines[static_cast<std::size_t>(i)], i);
}

int After(const std::string& path, int value) {
  Sign::Await(path);
  return value;
}

TEST_F(ClusterActors, OrderAndAsyncOrderHoldAcrossNodes) {
  StartTwo();
  const Sign go;
  auto diary = Actor<Diary>().SetResource("gold", 1).Remote();
  auto loose = Actor<Diary>().SetResource("gold", 1).SetAsyncOrder().Remote();
  const Ref<int> slow = Task(After).Remote(go.path(), 1);
  (void)diary.Task(&Diary::Write).Remote(slow);
  (void)diary.Task(&Diary::Write).Remote(2);
  Ref<void> late = loose.Task(&Diary::Write).Remote(slow);
  loose.Task(&Diary::Write).Remote(2).Get(20s);
  EXPECT_THAT(loose.Task(&Diary::Read).Remote().Get(20s), ::testing::ElementsAre(2));
  go.Give();
  EXPECT_THAT(diary.Task(&Diary::Read).Remote().Get(20s), ::testing::ElementsAre(1, 2));
  late.Get(20s);
  EXPECT_THAT(loose.Task(&Diary::Read).Remote().Get(20s), ::testing::ElementsAre(2, 1));
}

TEST_F(ClusterActors, AnAnswerFromAnotherNodeDoesNotWaitForTheCallBehindIt) {
  StartTwo();
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(7);
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(20s), 7);
  const Sign first;
  const Sign slow;
  const Ref<int> holds = counter.Task(&Counter::Wait).Remote(first.path());  // until the other two are queued there
  const Ref<int> quick = counter.Task(&Counter::Add).Remote(1);
  const Ref<int> behind = counter.Task(&Counter::Wait).Remote(slow.path());
  first.Give();
  EXPECT_EQ(holds.Get(5s), 7);
  EXPECT_EQ(quick.Get(5s), 8);
  slow.Give();
  EXPECT_EQ(behind.Get(20s), 8);
}

TEST_F(ClusterActors, AnAnswerOfATaskOnAnotherNodeDoesNotWaitForTheTaskBehindIt) {
  StartTwo();
  const auto there = [](const std::string& path, int value) {
    return Task(After).SetCpus(0).SetResource("gold", 10).Remote(path, value);  // one at a time
  };
  const Sign first;
  const Sign slow;
  const Sign given;
  given.Give();
  EXPECT_EQ(there(given.path(), 0).Get(20s), 0);
  const Ref<int> holds = there(first.path(), 1);
  const Ref<int> quick = there(given.path(), 2);
  const Ref<int> behind = there(slow.path(), 3);
  first.Give();
  EXPECT_EQ(holds.Get(5s), 1);
  EXPECT_EQ(quick.Get(5s), 2);
  slow.Give();
  EXPECT_EQ(behind.Get(20s), 3);
}

class Meeting {
 public:
  int Join(int people) {
    std::unique_lock lock(mutex_);
    most_ = std::max(most_, ++inside_);
    changed_.notify_all();
    changed_.wait_for(lock, 20s, [&] { return most_ >= people; });
    --inside_;
    return most_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int most_ = 0;
};

TEST_F(ClusterActors, CallsFromAnotherNodeRunAtTheSameTimeIfAskedFor) {
  StartTwo();
  auto meeting = Actor<Meeting>().SetResource("gold", 1).SetMaxConcurrency(4).Remote();
  std::vector<Ref<int>> joins;
  joins.reserve(12);
  for (int i = 0; i < 12; ++i) joins.push_back(meeting.Task(&Meeting::Join).Remote(4));
  for (const int most : Get(joins, 60s)) EXPECT_EQ(most, 4);
}

TEST_F(ClusterActors, LargeValuesAndRefsTravelBothWays) {
  StartTwo();
  auto store = Actor<Store>().SetResource("gold", 1).Remote();
  constexpr std::size_t kMany = 500'000;
  const std::uint64_t sum = kMany * (kMany - 1) / 2;
  Ref<std::vector<std::uint64_t>> made = store.Task(&Store::Make).Remote(kMany);
  EXPECT_EQ(store.Task(&Store::Sum).Remote(made).Get(20s), sum) << "made there, used there";
  EXPECT_EQ(made.Get(20s).size(), kMany) << "made there, read here";
  const Ref<std::vector<std::uint64_t>> put = Put(Store().Make(kMany));
  EXPECT_EQ(store.Task(&Store::Sum).Remote(put).Get(20s), sum) << "made here, read there";
  EXPECT_EQ(store.Task(&Store::Sum).Remote(std::vector<std::uint64_t>{1, 2, 3}).Get(20s), 6U);
  EXPECT_EQ(store.Task(&Store::PutHere).Remote("a word").Get(20s).Get(20s), "a word from n2");
}

// ---- handles ----

TEST_F(ClusterActors, HandlesWorkOnAnyNodeInCallsAndInsideValues) {
  StartTwo();
  StartNode("n3", "iron=10");
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote();
  EXPECT_EQ(Task(NodeThrough).SetResource("gold", 1).Remote(counter).Get(20s), "n2") << "called from its own node";
  EXPECT_EQ(Task(AddThrough).SetResource("iron", 1).Remote(counter, 2).Get(20s), 2) << "from a third";
  const Ref<Team> team = Put(Team{"t", {counter, counter}});
  EXPECT_EQ(Task(AddToTeam).SetResource("iron", 1).Remote(team).Get(20s), 4);
  EXPECT_EQ(Task(AddToTeam).SetResource("gold", 1).Remote(team).Get(20s), 6);
  auto keeper = Actor<Keeper>().SetResource("iron", 1).Remote();
  keeper.Task(&Keeper::Keep).Remote(counter).Get(20s);
  EXPECT_EQ(keeper.Task(&Keeper::Add).Remote(4).Get(20s), 10);
  ActorHandle<Counter> back = keeper.Task(&Keeper::Give).Remote().Get(20s);
  EXPECT_EQ(back.Task(&Counter::Value).Remote().Get(20s), 10);
  // An actor that an actor made, far from the driver.
  ActorHandle<Counter> made = keeper.Task(&Keeper::Make).Remote(70).Get(20s);
  EXPECT_EQ(made.Task(&Counter::Add).Remote(7).Get(20s), 77);
  EXPECT_EQ(made.Task(&Counter::Node).Remote().Get(20s), "n3") << "it is wanted where its creator is";
  EXPECT_EQ(Task(AddThrough).SetResource("gold", 1).Remote(made, 1).Get(20s), 78);
}

TEST_F(ClusterActors, AnActorEndsWhenItsLastHandleAnywhereGoes) {
  StartTwo();
  auto keeper = Actor<Keeper>().SetResource("gold", 1).Remote();
  int pid = 0;
  {
    auto counter = Actor<Counter>().Remote();
    pid = counter.Task(&Counter::Pid).Remote().Get();
    keeper.Task(&Keeper::Keep).Remote(counter).Get(20s);
  }
  EXPECT_EQ(keeper.Task(&Keeper::Add).Remote(1).Get(20s), 1);
  std::this_thread::sleep_for(100ms);
  EXPECT_TRUE(Alive(pid)) << "it is kept from another node";
  keeper.Task(&Keeper::Drop).Remote().Get(20s);
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  int far = 0;
  std::vector<Ref<int>> sums;
  {
    auto counter = Actor<Counter>().SetResource("gold", 1).Remote();
    far = counter.Task(&Counter::Pid).Remote().Get(20s);
    for (int i = 0; i < 100; ++i) sums.push_back(counter.Task(&Counter::Add).Remote(1));
  }
  EXPECT_EQ(Get(sums, 20s).back(), 100) << "calls already made are answered";
  EXPECT_TRUE(Eventually([&] { return !Alive(far); }));
}

TEST_F(ClusterActors, ActorsOfADriverEndWithIt) {
  StartTwo();
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote();
  const int pid = counter.Task(&Counter::Pid).Remote().Get(20s);
  EXPECT_TRUE(Alive(pid));
  Shutdown();
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
}

// ---- death ----

TEST_F(ClusterActors, KillWorksFromAnyNodeAndTellsAllCallers) {
  StartTwo();
  auto counter = Actor<Counter>().SetResource("gold", 1).SetName("victim").Remote();
  const int pid = counter.Task(&Counter::Pid).Remote().Get(20s);
  Task(KillThrough).SetResource("gold", 1).Remote(counter).Get(20s);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] {
                for (int i = 0; i < 1000; ++i) counter.Task(&Counter::Add).Remote(1).Get(20s);
              }),
              ::testing::AllOf(HasSubstr("Counter"), HasSubstr("kill")));
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  auto other = Actor<Counter>().SetResource("gold", 1).Remote();
  other.Task(&Counter::Pid).Remote().Get(20s);
  Kill(other);
  EXPECT_THROW(other.Task(&Counter::Pid).Remote().Get(20s), ActorDiedError);
}

TEST_F(ClusterActors, AnActorOnAnotherNodeThatCrashesFailsItsCallsWithTheSignal) {
  StartTwo();
  auto counter = Actor<Counter>().SetMaxRestarts(0).SetResource("gold", 1).Remote();
  Ref<void> die = counter.Task(&Counter::Die).Remote();
  Ref<int> behind = counter.Task(&Counter::Add).Remote(1);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { die.Get(20s); }), HasSubstr("SIGKILL"));
  EXPECT_THROW(behind.Get(20s), ActorDiedError);
}

TEST_F(ClusterActors, AnActorOnAnotherNodeRestartsAndOnlyTheCallThatItDiedInIsLost) {
  StartTwo();
  auto counter = Actor<Counter>().SetReplay(false).SetResource("gold", 1).SetMaxRestarts(1).Remote(10);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(5).Get(20s), 15);
  Ref<int> before = counter.Task(&Counter::Add).Remote(1);
  Ref<void> die = counter.Task(&Counter::Die).Remote();
  Ref<int> behind = counter.Task(&Counter::Add).Remote(1);
  EXPECT_EQ(before.Get(20s), 16);
  EXPECT_THAT(MessageOf<WorkerCrashedError>([&] { die.Get(20s); }),
              ::testing::AllOf(HasSubstr("SIGKILL"), HasSubstr("restarts used 1 of 1")));
  EXPECT_EQ(behind.Get(20s), 11) << "it had not begun";
  EXPECT_THROW(counter.Task(&Counter::Die).Remote().Get(20s), ActorDiedError);
}

TEST_F(ClusterActors, CallsCaughtByARestartOnAnotherNodeAreMadeAgainIfAsked) {
  StartTwo();
  const Sign died;
  auto counter =
      Actor<Counter>().SetReplay(false).SetResource("gold", 1).SetMaxRestarts(1).SetMaxCallRetries(1).Remote(10);
  Ref<int> first = counter.Task(&Counter::DieOnce).Remote(died.path());
  Ref<int> second = counter.Task(&Counter::Add).Remote(1);
  EXPECT_EQ(first.Get(20s), 10);
  EXPECT_EQ(second.Get(20s), 11);
}

TEST_F(ClusterActors, AnActorOfAKilledNodeRestartsOnAnother) {
  StartTwo();
  StartNode("n3");
  auto counter =
      Actor<Counter>().SetReplay(false).SetResource("gold", 1).SetMaxRestarts(1).SetMaxCallRetries(-1).Remote(10);
  const std::string before = counter.Task(&Counter::Node).Remote().Get(20s);
  const int process = counter.Task(&Counter::Pid).Remote().Get(20s);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 11);
  const Sign go;
  Ref<int> pending = counter.Task(&Counter::Wait).Remote(go.path());
  EXPECT_THROW(pending.Get(100ms), TimeoutError);
  kill(PidOf("node", before), SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Alive(process); })) << "its worker goes with it";
  go.Give();
  EXPECT_EQ(pending.Get(30s), 10) << "begun again, with fresh state";
  const std::string after = counter.Task(&Counter::Node).Remote().Get(20s);
  EXPECT_NE(after, before);
  EXPECT_NE(after, "n1");
}

// Breaks this process's connections to workers of other nodes; its own daemon is reached by a Unix socket.
int BreakConnections() {
  int broken = 0;
  for (const auto& item : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::atoi(item.path().filename().c_str());
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 || peer.ss_family != AF_INET) continue;
    if (shutdown(fd, SHUT_RDWR) == 0) ++broken;
  }
  return broken;
}

TEST_F(ClusterActors, AnActorOnAnotherNodeThatCrashesComesBackWithItsState) {
  StartTwo();
  const Sign died;
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(10);
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 10 + i);
  Ref<int> first = counter.Task(&Counter::DieOnce).Remote(died.path());
  std::vector<Ref<int>> behind;
  for (int i = 0; i < 50; ++i) behind.push_back(counter.Task(&Counter::Add).Remote(1));
  EXPECT_EQ(first.Get(20s), 30);
  const std::vector<int> sums = Get(behind, 20s);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)], 31 + i);
}

TEST_F(ClusterActors, AnActorOfAKilledNodeComesBackOnAnotherWithAllThatWasAnswered) {
  StartTwo();
  StartNode("n3");
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(10);
  const std::string before = counter.Task(&Counter::Node).Remote().Get(20s);
  for (int i = 1; i <= 20; ++i) EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 10 + i);
  std::vector<Ref<int>> pending;
  for (int i = 0; i < 500; ++i) pending.push_back(counter.Task(&Counter::Add).Remote(1));
  EXPECT_EQ(pending[100].Get(20s), 131);
  kill(PidOf("node", before), SIGKILL);
  const std::vector<int> sums = Get(pending, 60s);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(sums[static_cast<std::size_t>(i)], 31 + i);
  const std::string after = counter.Task(&Counter::Node).Remote().Get(20s);
  EXPECT_NE(after, before);
  EXPECT_NE(after, "n1");
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(20s), 530);
}

TEST_F(ClusterActors, ALargeStateIsCopiedWithEveryCallAndComesBackAfterACrashAndAfterTheLossOfItsNode) {
  StartTwo();
  const Sign died;
  auto heavy = Actor<Heavy>().SetResource("gold", 1).CheckpointEvery(1).Remote();
  EXPECT_EQ(heavy.Task(&Heavy::Add).Remote(7).Get(60s), 2U);
  EXPECT_EQ(heavy.Task(&Heavy::DieOnce).Remote(died.path()).Get(60s), 2U);
  EXPECT_EQ(heavy.Task(&Heavy::Add).Remote(7).Get(60s), 3U);
  EXPECT_EQ(heavy.Task(&Heavy::Node).Remote().Get(60s), "n2") << "the connection to its home has not broken";
  StartNode("n3");
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_EQ(heavy.Task(&Heavy::Add).Remote(7).Get(60s), 4U);
  EXPECT_EQ(heavy.Task(&Heavy::Add).Remote(Heavy::kWords - 1).Get(60s), 3U);
  EXPECT_EQ(heavy.Task(&Heavy::Node).Remote().Get(60s), "n3");
  EXPECT_EQ(Nodes().size(), 2U);
}

TEST_F(ClusterActors, WhatATaskOfTheSameNodeToldAnActorIsThereWhenThatNodeIsKilled) {
  StartTwo();
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(10);
  // Nobody on another node ever calls it, but the tasks' answers come here.
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(Task(AddThrough).SetResource("gold", 1).Remote(counter, 1).Get(20s), 10 + i);
  }
  StartNode("n3");
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(60s), 30);
}

TEST_F(ClusterActors, CallersOnOtherNodesWaitUntilTheHomeSaysWhatBecameOfAnActor) {
  StartTwo();
  StartNode("n3", "silver=10");
  const Sign stop;
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(0);
  std::vector<Ref<int>> callers;
  for (int i = 0; i < 3; ++i) {
    callers.push_back(Task(AddUntil).SetCpus(0).SetResource("silver", 1).Remote(counter, stop.path()));
  }
  ASSERT_TRUE(Eventually([&] { return counter.Task(&Counter::Value).Remote().Get(20s) > 100; }, 20s));
  StartNode("n4");
  // The home cannot say anything for a while.
  kill(PidOf("node", "n1"), SIGSTOP);
  kill(PidOf("node", "n2"), SIGKILL);
  std::this_thread::sleep_for(1s);
  kill(PidOf("node", "n1"), SIGCONT);
  const int before = counter.Task(&Counter::Value).Remote().Get(60s);
  EXPECT_TRUE(Eventually([&] { return counter.Task(&Counter::Value).Remote().Get(20s) > before + 100; }, 30s));
  stop.Give();
  int calls = 0;
  for (const Ref<int>& caller : callers) calls += caller.Get(60s);
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(20s), calls);
}

TEST_F(ClusterActors, ALostConnectionToAnActorCostsNoCallAndCountsNoneTwice) {
  StartTwo();
  const Sign go;
  auto counter = Actor<Counter>().SetResource("gold", 1).Remote(10);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 11);
  Ref<int> slow = counter.Task(&Counter::Wait).Remote(go.path());
  std::vector<Ref<int>> behind;
  for (int i = 0; i < 50; ++i) behind.push_back(counter.Task(&Counter::Add).Remote(1));
  EXPECT_THROW(slow.Get(100ms), TimeoutError);
  EXPECT_EQ(BreakConnections(), 1);
  go.Give();
  EXPECT_EQ(slow.Get(20s), 11);
  const std::vector<int> sums = Get(behind, 20s);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)], 12 + i);
}

TEST_F(ClusterActors, AnActorOfAKilledNodeWithoutRestartsIsDeadAndTheReasonIsTold) {
  StartTwo();
  const Sign never;
  auto counter = Actor<Counter>().SetMaxRestarts(0).SetResource("gold", 1).Remote(10);
  auto restarts = Actor<Counter>().SetReplay(false).SetResource("gold", 1).SetMaxRestarts(5).Remote(10);
  EXPECT_EQ(counter.Task(&Counter::Node).Remote().Get(20s), "n2");
  EXPECT_EQ(restarts.Task(&Counter::Node).Remote().Get(20s), "n2");
  Ref<int> pending = counter.Task(&Counter::Wait).Remote(never.path());
  EXPECT_THROW(pending.Get(100ms), TimeoutError);
  kill(PidOf("node", "n2"), SIGKILL);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { pending.Get(20s); }), HasSubstr("node"));
  EXPECT_THROW(counter.Task(&Counter::Value).Remote().Get(20s), ActorDiedError);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] {
                for (int i = 0; i < 1000; ++i) {
                  auto result = TryGet(restarts.Task(&Counter::Value).Remote(), 20s);
                  if (!result.ok()) restarts.Task(&Counter::Value).Remote().Get(20s);
                }
              }),
              HasSubstr("gold"))
      << "it would restart, but no node is left that could hold it";
  never.Give();
}

TEST_F(ClusterActors, ALostConnectionLosesWhatWasSentAndTheActorKeepsItsState) {
  StartTwo();
  const Sign go;
  const Sign second;
  auto counter = Actor<Counter>().SetReplay(false).SetResource("gold", 1).Remote(10);
  auto patient = Actor<Counter>().SetReplay(false).SetResource("gold", 1).SetMaxCallRetries(1).Remote(20);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 11);
  EXPECT_EQ(patient.Task(&Counter::Add).Remote(1).Get(20s), 21);
  Ref<int> lost = counter.Task(&Counter::Wait).Remote(go.path());
  Ref<int> again = patient.Task(&Counter::Wait).Remote(second.path());
  EXPECT_THROW(lost.Get(100ms), TimeoutError);
  EXPECT_EQ(BreakConnections(), 2);
  go.Give();
  second.Give();
  EXPECT_THAT(MessageOf<WorkerCrashedError>([&] { lost.Get(20s); }), HasSubstr("connection"));
  EXPECT_EQ(again.Get(20s), 21) << "made again";
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 12);
  EXPECT_EQ(patient.Task(&Counter::Add).Remote(1).Get(20s), 22);
}

// ---- names, namespaces, drivers ----

TEST_F(ClusterActors, ANamedActorIsFoundFromEveryNodeAndItsNameIsTakenOnce) {
  StartTwo();
  auto counter = Actor<Counter>().SetName("global").SetResource("gold", 1).Remote(5);
  EXPECT_EQ(GetActor<Counter>("global").Task(&Counter::Add).Remote(1).Get(20s), 6);
  EXPECT_EQ(Task(AddByName).SetResource("gold", 1).Remote("global", 1).Get(20s), 7);
  EXPECT_THAT(MessageOf<NotFoundError>([] { GetActor<Counter>("nobody"); }), HasSubstr("nobody"));
  EXPECT_THROW(GetActor<Counter>("global", "elsewhere"), NotFoundError);
  EXPECT_THAT(MessageOf<InvalidError>([] { Actor<Counter>().SetName("global").Remote(2); }), HasSubstr("global"));
  auto same = Actor<Counter>().SetName("global").GetIfExists().Remote(100);
  EXPECT_EQ(same.id(), counter.id());
  Kill(counter);
  auto next = Actor<Counter>().SetName("global").Remote(1);
  EXPECT_EQ(next.Task(&Counter::Value).Remote().Get(20s), 1) << "a dead actor's name is free";
}

// Drivers of their own, started by the tests below.
void InitOther(const std::string& space = "default") {
  Config config;
  config.address = std::getenv("MANTA_TEST_ADDRESS");
  config.space = space;
  Init(config);
}

TEST(DISABLED_OtherDriver, MakesActors) {
  InitOther();
  auto detached = Actor<Counter>().SetName("stays").SetDetached().SetResource("gold", 1).Remote(70);
  auto local = Actor<Counter>().SetName("stays too").SetDetached().Remote(170);
  auto bound = Actor<Counter>().SetName("goes").Remote(1);
  EXPECT_EQ(detached.Task(&Counter::Add).Remote(7).Get(20s), 77);
  EXPECT_EQ(local.Task(&Counter::Add).Remote(7).Get(20s), 177);
  EXPECT_EQ(bound.Task(&Counter::Add).Remote(1).Get(20s), 2);
  EXPECT_EQ(GetActor<Counter>("first").Task(&Counter::Add).Remote(1).Get(20s), 6) << "made by the first driver";
  Shutdown();
}

TEST_F(ClusterActors, ADetachedActorOutlivesItsDriverAndIsFoundByAnotherOnAnotherNode) {
  StartTwo();
  auto first = Actor<Counter>().SetName("first").Remote(5);
  const auto second = Driver("MakesActors", "n2");
  ASSERT_EQ(second->Finish(60s), 0) << second->Out() << second->Err();
  EXPECT_EQ(GetActor<Counter>("stays").Task(&Counter::Value).Remote().Get(20s), 77);
  EXPECT_EQ(GetActor<Counter>("stays").Task(&Counter::Node).Remote().Get(20s), "n2");
  EXPECT_EQ(GetActor<Counter>("stays too").Task(&Counter::Value).Remote().Get(20s), 177);
  EXPECT_EQ(first.Task(&Counter::Value).Remote().Get(20s), 6);
  EXPECT_TRUE(Eventually([] {
    try {
      GetActor<Counter>("goes");
      return false;
    } catch (const NotFoundError&) {
      return true;
    }
  })) << "the other actor of that driver ends with it";
  // It outlives this driver, too.
  Shutdown();
  Init();
  auto stays = GetActor<Counter>("stays");
  const int pid = stays.Task(&Counter::Pid).Remote().Get(20s);
  EXPECT_EQ(stays.Task(&Counter::Value).Remote().Get(20s), 77);
  Kill(stays);
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  EXPECT_THROW(GetActor<Counter>("stays"), NotFoundError);
}

TEST_F(ClusterActors, ADetachedActorSurvivesTheDeathOfItsDriversNode) {
  StartTwo();
  StartNode("n3", "iron=1");
  auto first = Actor<Counter>().SetName("first").Remote(5);
  const auto second = Driver("MakesActors", "n3");
  ASSERT_EQ(second->Finish(60s), 0) << second->Out() << second->Err();
  kill(PidOf("node", "n3"), SIGKILL);
  EXPECT_EQ(GetActor<Counter>("stays").Task(&Counter::Value).Remote().Get(20s), 77);
}

TEST(DISABLED_OtherDriver, CountsInItsNamespace) {
  const std::string space = std::getenv("MANTA_TEST_SPACE");
  InitOther(space);
  auto counter = Actor<Counter>().SetName("shared").GetIfExists().SetDetached().Remote(0);
  for (int i = 0; i < 100; ++i) counter.Task(&Counter::Add).Remote(1).Get(20s);
  // A task looks where its driver does.
  EXPECT_GE(Task(AddByName).Remote("shared", 0).Get(20s), 100);
  EXPECT_GE(Task(AddByName).SetResource("gold", 1).Remote("shared", 0).Get(20s), 100);
  Shutdown();
}

TEST_F(ClusterActors, DriversOfOneNamespaceShareNamesAndThoseOfAnotherDoNot) {
  StartTwo();
  std::vector<std::unique_ptr<Child>> drivers;
  drivers.push_back(Driver("CountsInItsNamespace", "n1", {"MANTA_TEST_SPACE=a"}));
  drivers.push_back(Driver("CountsInItsNamespace", "n2", {"MANTA_TEST_SPACE=a"}));
  drivers.push_back(Driver("CountsInItsNamespace", "n2", {"MANTA_TEST_SPACE=b"}));
  for (const auto& driver : drivers) ASSERT_EQ(driver->Finish(60s), 0) << driver->Out() << driver->Err();
  EXPECT_EQ(GetActor<Counter>("shared", "a").Task(&Counter::Value).Remote().Get(20s), 200);
  EXPECT_EQ(GetActor<Counter>("shared", "b").Task(&Counter::Value).Remote().Get(20s), 100);
  EXPECT_THROW(GetActor<Counter>("shared"), NotFoundError);
  Kill(GetActor<Counter>("shared", "a"));
  Kill(GetActor<Counter>("shared", "b"));
}

TEST_F(ClusterActors, NamesAreKnownAfterTheHeadWasKilledAndStartedAgain) {
  StartTwo();
  auto counter = Actor<Counter>().SetName("global").SetResource("gold", 1).Remote(5);
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(20s), 5);
  KillHead();
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(20s), 6) << "calls need no head";
  EXPECT_NE(Manta({"start", "--head"}), "");
  EXPECT_TRUE(Eventually(
      [] {
        try {
          return Task(AddByName).SetResource("gold", 1).Remote("global", 1).Get(20s) >= 7;
        } catch (const Error&) {
          return false;
        }
      },
      20s));
}

}  // namespace
}  // namespace manta::testing
