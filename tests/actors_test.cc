// Actors: calls in order, concurrency on request, names, handles that travel, death and restart.
#include <atomic>
#include <condition_variable>
#include <mutex>

#include "fixture.h"

namespace manta::testing {
namespace {

class Actors : public ClusterTest {};

class Counter {
 public:
  explicit Counter(int start = 0) : value_(start) {}
  int Add(int by) { return value_ += by; }
  [[nodiscard]] int Value() const { return value_; }
  int Pid() noexcept { return getpid(); }
  void Throw(const std::string& text) { throw std::invalid_argument(text); }
  void Die() { raise(SIGKILL); }
  // Dies once; the file tells a restarted actor that it has done so.
  int DieOnce(const std::string& path) {
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGKILL);
    }
    return value_;
  }
  std::tuple<int, std::string> Both() { return {value_, "value"}; }

 private:
  int value_;
};

TEST_F(Actors, AnActorKeepsItsStateInAProcessOfItsOwn) {
  auto counter = Actor<Counter>().Remote(10);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(5).Get(), 15);
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(), 15);
  auto other = Actor<Counter>().Remote();
  EXPECT_EQ(other.Task(&Counter::Value).Remote().Get(), 0);
  const int pid = counter.Task(&Counter::Pid).Remote().Get();
  EXPECT_NE(pid, getpid());
  EXPECT_NE(pid, other.Task(&Counter::Pid).Remote().Get());
  EXPECT_EQ(pid, counter.Task(&Counter::Pid).Remote().Get());
}

class Diary {
 public:
  void Write(int line) { lines_.push_back(line); }
  std::vector<int> Read() { return lines_; }

 private:
  std::vector<int> lines_;
};

TEST_F(Actors, CallsOfOneCallerRunInOrder) {
  auto diary = Actor<Diary>().Remote();
  for (int i = 0; i < 5'000; ++i) (void)diary.Task(&Diary::Write).Remote(i);
  const std::vector<int> lines = diary.Task(&Diary::Read).Remote().Get();
  ASSERT_EQ(lines.size(), 5'000U);
  for (int i = 0; i < 5'000; ++i) ASSERT_EQ(lines[static_cast<std::size_t>(i)], i);
}

int After(const std::string& path, int value) {
  Sign::Await(path);
  return value;
}

TEST_F(Actors, ACallThatWaitsForItsArgumentHoldsUpTheOnesBehindIt) {
  const Sign go;
  auto diary = Actor<Diary>().Remote();
  (void)diary.Task(&Diary::Write).Remote(Task(After).Remote(go.path(), 1));
  (void)diary.Task(&Diary::Write).Remote(2);
  go.Give();
  EXPECT_THAT(diary.Task(&Diary::Read).Remote().Get(), ::testing::ElementsAre(1, 2));
}

TEST_F(Actors, InAsyncOrderACallWithItsArgumentsReadyMayOvertake) {
  const Sign go;
  auto diary = Actor<Diary>().SetAsyncOrder().Remote();
  Ref<void> slow = diary.Task(&Diary::Write).Remote(Task(After).Remote(go.path(), 1));
  diary.Task(&Diary::Write).Remote(2).Get(10s);
  EXPECT_THAT(diary.Task(&Diary::Read).Remote().Get(10s), ::testing::ElementsAre(2));
  go.Give();
  slow.Get();
  EXPECT_THAT(diary.Task(&Diary::Read).Remote().Get(), ::testing::ElementsAre(2, 1));
}

// Each call waits until `people` of them are inside.
class Meeting {
 public:
  int Join(int people) {
    std::unique_lock lock(mutex_);
    const int mine = ++inside_;
    most_ = std::max(most_, mine);
    changed_.notify_all();
    changed_.wait_for(lock, 10s, [&] { return most_ >= people; });
    --inside_;
    return most_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  int most_ = 0;
};

TEST_F(Actors, WithConcurrencyCallsRunAtTheSameTimeAndNoMoreThanAskedFor) {
  auto meeting = Actor<Meeting>().SetMaxConcurrency(4).Remote();
  std::vector<Ref<int>> joins;
  for (int i = 0; i < 12; ++i) joins.push_back(meeting.Task(&Meeting::Join).Remote(4));
  for (int most : Get(joins, 30s)) EXPECT_EQ(most, 4);
}

TEST_F(Actors, AMethodMayReturnSeveralValues) {
  auto counter = Actor<Counter>().Remote(3);
  auto [value, text] = counter.Task(&Counter::Both).Remote();
  EXPECT_EQ(value.Get(), 3);
  EXPECT_EQ(text.Get(), "value");
}

TEST_F(Actors, AMethodThatThrowsFailsItsCallAndNotTheActor) {
  auto counter = Actor<Counter>().Remote(1);
  const std::string text = MessageOf<TaskError>([&] { counter.Task(&Counter::Throw).Remote("not today").Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr("not today"));
  EXPECT_THAT(text, ::testing::HasSubstr("invalid_argument"));
  EXPECT_THAT(text, ::testing::HasSubstr("Counter"));
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(1).Get(), 2);
}

class Broken {
 public:
  explicit Broken(const std::string& why) { throw std::runtime_error(why); }
  int Use() { return 1; }
};

TEST_F(Actors, AConstructorThatThrowsFailsEveryCall) {
  auto broken = Actor<Broken>().Remote("no such device");
  for (int i = 0; i < 2; ++i) {
    const std::string text = MessageOf<Error>([&] { broken.Task(&Broken::Use).Remote().Get(10s); });
    EXPECT_THAT(text, ::testing::HasSubstr("no such device"));
    EXPECT_THAT(text, ::testing::HasSubstr("Broken"));
  }
}

Counter ByValue(int start) { return Counter(start); }
Counter* ByPointer(int start) { return new Counter(start); }
std::unique_ptr<Counter> ByUniquePointer(int start) { return std::make_unique<Counter>(start); }

TEST_F(Actors, AFactoryMayReturnAValueAPointerOrAUniquePointer) {
  EXPECT_EQ(Actor(ByValue).Remote(1).Task(&Counter::Value).Remote().Get(), 1);
  EXPECT_EQ(Actor(ByPointer).Remote(2).Task(&Counter::Value).Remote().Get(), 2);
  EXPECT_EQ(Actor(ByUniquePointer).Remote(3).Task(&Counter::Value).Remote().Get(), 3);
  EXPECT_EQ(Actor([](int a, int b) { return Counter(a * b); }).Remote(2, 2).Task(&Counter::Value).Remote().Get(), 4);
}

TEST_F(Actors, AConstructorArgumentMayBeARef) {
  Ref<int> start = Task([] { return 41; }).Remote();
  EXPECT_EQ(Actor<Counter>().Remote(start).Task(&Counter::Add).Remote(1).Get(), 42);
  EXPECT_EQ(Actor(ByValue).Remote(start).Task(&Counter::Value).Remote().Get(), 41);
}

class Shape {
 public:
  virtual ~Shape() = default;
  [[nodiscard]] virtual double Area() const = 0;
  [[nodiscard]] std::string Name() const { return name_; }
  void Rename(const std::string& name) { name_ = name; }

 private:
  std::string name_ = "shape";
};
class Colored {
 public:
  virtual ~Colored() = default;
  virtual std::string Color() { return color_; }

 private:
  std::string color_ = "blue";
};
class Box : public Shape, public Colored {
 public:
  explicit Box(double side) : side_(side) {}
  [[nodiscard]] double Area() const override { return side_ * side_; }

 private:
  double side_;
};

TEST_F(Actors, VirtualMethodsAndMethodsOfBaseClassesCanBeCalled) {
  auto box = Actor<Box>().Remote(3.0);
  EXPECT_EQ(box.Task(&Box::Area).Remote().Get(), 9.0);
  EXPECT_EQ(box.Task(&Shape::Area).Remote().Get(), 9.0);
  box.Task(&Shape::Rename).Remote("box").Get();
  EXPECT_EQ(box.Task(&Box::Name).Remote().Get(), "box");
  EXPECT_EQ(box.Task(&Colored::Color).Remote().Get(), "blue") << "a second base needs its this adjusted";
}

// ---- handles ----

int AddThrough(ActorHandle<Counter> counter, int by) { return counter.Task(&Counter::Add).Remote(by).Get(); }

struct Team {
  std::string name;
  std::vector<ActorHandle<Counter>> members;
};

TEST_F(Actors, AHandleCanBePassedStoredAndPut) {
  auto counter = Actor<Counter>().Remote();
  EXPECT_EQ(Task(AddThrough).Remote(counter, 2).Get(), 2);
  Ref<ActorHandle<Counter>> put = Put(counter);
  EXPECT_EQ(Task(AddThrough).Remote(put, 3).Get(), 5);
  Ref<Team> team = Put(Team{"t", {counter, counter}});
  EXPECT_EQ(Task([](const Team& t) { return AddThrough(t.members[1], 1); }).Remote(team).Get(), 6);
  EXPECT_EQ(put.Get().Task(&Counter::Value).Remote().Get(), 6);
}

TEST_F(Actors, ATaskMayMakeAnActorAndReturnIt) {
  ActorHandle<Counter> counter = Task([](int start) {
                                   auto made = Actor<Counter>().Remote(start);
                                   made.Task(&Counter::Add).Remote(1).Get();
                                   return made;
                                 })
                                     .Remote(7)
                                     .Get();
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(), 8);
}

TEST_F(Actors, AnActorEndsWhenItsLastHandleGoes) {
  int pid = 0;
  {
    auto counter = Actor<Counter>().Remote();
    pid = counter.Task(&Counter::Pid).Remote().Get();
    EXPECT_TRUE(Alive(pid));
  }
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
}

TEST_F(Actors, CallsAlreadyMadeAreAnsweredAlthoughTheHandleIsGone) {
  std::vector<Ref<int>> sums;
  {
    auto counter = Actor<Counter>().Remote();
    for (int i = 0; i < 100; ++i) sums.push_back(counter.Task(&Counter::Add).Remote(1));
  }
  EXPECT_EQ(Get(sums).back(), 100);
}

// ---- names ----

TEST_F(Actors, ANamedActorIsFoundByItsName) {
  auto counter = Actor<Counter>().SetName("global").Remote(5);
  EXPECT_EQ(GetActor<Counter>("global").Task(&Counter::Add).Remote(1).Get(), 6);
  EXPECT_EQ(Task([] { return GetActor<Counter>("global").Task(&Counter::Value).Remote().Get(); }).Remote().Get(), 6);
  EXPECT_THAT(MessageOf<NotFoundError>([] { GetActor<Counter>("nobody"); }), ::testing::HasSubstr("nobody"));
  EXPECT_THROW(GetActor<Counter>("global", "elsewhere"), NotFoundError);
}

TEST_F(Actors, ANameIsTakenOnceAndFreedByDeath) {
  auto first = Actor<Counter>().SetName("one").Remote(1);
  EXPECT_THAT(MessageOf<InvalidError>([] { Actor<Counter>().SetName("one").Remote(2); }), ::testing::HasSubstr("one"));
  Kill(first);
  ActorHandle<Counter> second;
  EXPECT_TRUE(Eventually([&] {
    try {
      second = Actor<Counter>().SetName("one").Remote(2);
      return true;
    } catch (const InvalidError&) {
      return false;
    }
  }));
  EXPECT_EQ(second.Task(&Counter::Value).Remote().Get(), 2);
}

TEST_F(Actors, GetIfExistsGivesTheOneThereIs) {
  auto get = [](int start) { return Actor<Counter>().SetName("shared").GetIfExists().Remote(start); };
  auto first = get(1);
  auto second = get(100);
  EXPECT_EQ(second.Task(&Counter::Add).Remote(1).Get(), 2);
  EXPECT_EQ(first.id(), second.id());
}

TEST_F(Actors, OneNameMayBeUsedOnceInEachNamespace) {
  auto a = Actor<Counter>().SetName("n").SetNamespace("a").Remote(1);
  auto b = Actor<Counter>().SetName("n").SetNamespace("b").Remote(2);
  EXPECT_EQ(GetActor<Counter>("n", "b").Task(&Counter::Value).Remote().Get(), 2);
  EXPECT_EQ(GetActor<Counter>("n", "a").Task(&Counter::Value).Remote().Get(), 1);
}

// Run by the test below as a second driver of its cluster.
TEST(DISABLED_SecondDriver, MakesActors) {
  Config config;
  config.address = std::getenv("MANTA_TEST_ADDRESS");
  Init(config);
  auto detached = Actor<Counter>().SetName("stays").SetDetached().Remote(70);
  auto bound = Actor<Counter>().SetName("goes").Remote(1);
  EXPECT_EQ(detached.Task(&Counter::Add).Remote(7).Get(), 77);
  EXPECT_EQ(bound.Task(&Counter::Add).Remote(1).Get(), 2);
  EXPECT_EQ(GetActor<Counter>("first").Task(&Counter::Add).Remote(1).Get(), 6) << "made by the first driver";
  Shutdown();
}

TEST_F(Actors, ADetachedActorOutlivesTheDriverThatMadeIt) {
  auto first = Actor<Counter>().SetName("first").Remote(5);
  ASSERT_FALSE(Address().empty());
  Child second("/proc/self/exe",
               {"--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_SecondDriver.MakesActors"},
               {"MANTA_TEST_ADDRESS=" + Address()});
  ASSERT_EQ(second.Finish(), 0) << second.Out() << second.Err();
  EXPECT_EQ(GetActor<Counter>("stays").Task(&Counter::Value).Remote().Get(), 77);
  EXPECT_EQ(first.Task(&Counter::Value).Remote().Get(), 6);
  EXPECT_TRUE(Eventually([] {
    try {
      GetActor<Counter>("goes");
      return false;
    } catch (const NotFoundError&) {
      return true;
    }
  })) << "the other actor of that driver ends with it";
  Kill(GetActor<Counter>("stays"));
}

// ---- death ----

TEST_F(Actors, KillEndsAnActorAndSaysSoToItsCallers) {
  auto counter = Actor<Counter>().SetName("victim").Remote();
  const int pid = counter.Task(&Counter::Pid).Remote().Get();
  Kill(counter);
  const std::string text = MessageOf<ActorDiedError>([&] { counter.Task(&Counter::Add).Remote(1).Get(10s); });
  EXPECT_THAT(text, ::testing::HasSubstr("Counter"));
  EXPECT_THAT(text, ::testing::HasSubstr("kill"));
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
}

TEST_F(Actors, AnActorThatCrashesFailsItsCallsWithTheSignal) {
  auto counter = Actor<Counter>().Remote();
  Ref<void> die = counter.Task(&Counter::Die).Remote();
  Ref<int> behind = counter.Task(&Counter::Add).Remote(1);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { die.Get(10s); }), ::testing::HasSubstr("SIGKILL"));
  EXPECT_THROW(behind.Get(10s), ActorDiedError);
}

TEST_F(Actors, AnActorWithRestartsComesBackWithFreshState) {
  auto counter = Actor<Counter>().SetMaxRestarts(1).Remote(10);
  EXPECT_EQ(counter.Task(&Counter::Add).Remote(5).Get(), 15);
  const std::string text = MessageOf<WorkerCrashedError>([&] { counter.Task(&Counter::Die).Remote().Get(10s); });
  EXPECT_THAT(text, ::testing::AllOf(::testing::HasSubstr("SIGKILL"), ::testing::HasSubstr("restarts used 1 of 1")));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("started 4 times"))) << "a call is not retried as a task is";
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("_GLOBAL__N_1"))) << "names are shown as they are written";
  EXPECT_EQ(counter.Task(&Counter::Value).Remote().Get(10s), 10);
  EXPECT_THROW(counter.Task(&Counter::Die).Remote().Get(10s), ActorDiedError);
  EXPECT_THROW(counter.Task(&Counter::Value).Remote().Get(10s), ActorDiedError) << "one restart, not two";
}

TEST_F(Actors, CallsCaughtByARestartAreMadeAgainIfAsked) {
  const Sign died;
  auto counter = Actor<Counter>().SetMaxRestarts(1).SetMaxCallRetries(1).Remote(10);
  Ref<int> first = counter.Task(&Counter::DieOnce).Remote(died.path());
  Ref<int> second = counter.Task(&Counter::Add).Remote(1);
  EXPECT_EQ(first.Get(10s), 10);
  EXPECT_EQ(second.Get(10s), 11);
}

TEST_F(Actors, ACallMayBeMadeAgainMoreOrLessOftenThanItsActorSays) {
  const Sign once;
  auto plain = Actor<Counter>().SetMaxRestarts(1).Remote(10);
  EXPECT_EQ(plain.Task(&Counter::DieOnce).SetMaxRetries(1).Remote(once.path()).Get(10s), 10);
  const Sign again;
  auto patient = Actor<Counter>().SetMaxRestarts(1).SetMaxCallRetries(-1).Remote(20);
  EXPECT_THROW(patient.Task(&Counter::DieOnce).SetMaxRetries(0).Remote(again.path()).Get(10s), WorkerCrashedError);
  EXPECT_EQ(patient.Task(&Counter::Value).Remote().Get(10s), 20);
  EXPECT_THROW(patient.Task(&Counter::Value).SetMaxRetries(-2).Remote(), InvalidError);
}

TEST_F(Actors, KillWithRestartBringsItBack) {
  auto counter = Actor<Counter>().SetMaxRestarts(-1).Remote(1);
  const int pid = counter.Task(&Counter::Pid).Remote().Get();
  Kill(counter, true);
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
  EXPECT_NE(counter.Task(&Counter::Pid).Remote().Get(10s), pid);
}

TEST_F(Actors, AnActorThatCanNeverFitFailsItsCallsWithTheNumbers) {
  const std::string text = MessageOf<InfeasibleError>([] {
    auto counter = Actor<Counter>().SetCpus(100).Remote();
    counter.Task(&Counter::Value).Remote().Get(10s);
  });
  EXPECT_THAT(text, ::testing::HasSubstr("100"));
}

TEST_F(Actors, ManyActorsLiveAtOnce) {
  std::vector<ActorHandle<Counter>> actors;
  for (int i = 0; i < 30; ++i) actors.push_back(Actor<Counter>().Remote(i));
  std::vector<Ref<int>> values;
  for (const auto& actor : actors) values.push_back(actor.Task(&Counter::Add).Remote(1));
  const std::vector<int> got = Get(values, 30s);
  for (int i = 0; i < 30; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], i + 1);
}

class Relay {
 public:
  void Connect(ActorHandle<Relay> next) { next_ = std::move(next); }
  int Pass(int hops) { return hops == 0 ? 0 : 1 + next_.Task(&Relay::Pass).Remote(hops - 1).Get(); }

 private:
  ActorHandle<Relay> next_;
};

TEST_F(Actors, ActorsCallEachOther) {
  auto a = Actor<Relay>().Remote();
  auto b = Actor<Relay>().Remote();
  auto c = Actor<Relay>().Remote();
  a.Task(&Relay::Connect).Remote(b).Get();
  b.Task(&Relay::Connect).Remote(c).Get();
  EXPECT_EQ(a.Task(&Relay::Pass).Remote(2).Get(10s), 2);
}

TEST_F(Actors, AKilledActorNeverAnswersForTheNext) {
  class Sum {
   public:
    explicit Sum(int start) : sum_(start) {}
    int Add(int x) { return sum_ += x; }

   private:
    int sum_;
  };
  // Some die by Kill in the middle of their calls, others with their last handle; meanwhile others get their first
  // calls, into memory that was the dying ones'.
  for (int round = 0; round < 20; ++round) {
    std::vector<ActorHandle<Sum>> sums;
    for (int i = 0; i < 8; ++i) sums.push_back(Actor<Sum>().Remote(1000 * i));
    std::vector<std::vector<Ref<int>>> calls(8);
    for (std::size_t i = 0; i < 8; ++i) {
      for (int call = 0; call < 20; ++call) calls[i].push_back(sums[i].Task(&Sum::Add).Remote(1));
      if ((round + i) % 2 == 0) {
        Kill(sums[i]);
      } else {
        sums[i] = sums[7];  // its own handle goes
      }
      for (int call = 0; call < 20; ++call) {
        auto result = TryGet(calls[i][static_cast<std::size_t>(call)], 60s);
        const int right = 1000 * static_cast<int>(i) + call + 1;
        ASSERT_EQ(result.ok() ? *result : right, right);
      }
    }
  }
}

}  // namespace
}  // namespace manta::testing
