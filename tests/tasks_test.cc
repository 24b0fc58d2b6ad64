// Tasks: what can be called, with which arguments, what comes back, and how tasks start tasks.
#include <numeric>

#include "fixture.h"

namespace manta::testing {
namespace {

class Tasks : public ClusterTest {};

class TasksOnOneCpu : public ClusterTest {
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.cpus = 1;
    return config;
  }
};

int Square(int x) { return x * x; }
int Add(int a, int b) { return a + b; }
int Pid() { return getpid(); }
int Sum(const std::vector<int>& values) { return std::accumulate(values.begin(), values.end(), 0); }
std::string Join(const std::string& a, const std::string& b) { return a + b; }

TEST_F(Tasks, AFunctionRunsInAnotherProcess) {
  EXPECT_EQ(Task(Square).Remote(7).Get(), 49);
  EXPECT_NE(Task(Pid).Remote().Get(), getpid());
}

TEST_F(Tasks, AFunctionOfASharedLibraryCanBeCalledToo) { EXPECT_NE(Task(getpid).Remote().Get(), getpid()); }

TEST_F(Tasks, ALambdaWithoutCapturesIsAFunctionToo) {
  Ref<std::string> text = Task([](const std::string& name, int count) {
                            std::string out;
                            for (int i = 0; i < count; ++i) out += name;
                            return out;
                          }).Remote("ab", 3);
  EXPECT_EQ(text.Get(), "ababab");
}

TEST_F(Tasks, TwoLambdasOfOneSignatureAreKeptApart) {
  Ref<int> plus = Task([](int x) { return x + 1; }).Remote(10);
  Ref<int> minus = Task([](int x) { return x - 1; }).Remote(10);
  EXPECT_EQ(plus.Get(), 11);
  EXPECT_EQ(minus.Get(), 9);
}

TEST_F(Tasks, ATaskWithoutAResultCanBeWaitedFor) {
  const Sign sign;
  Ref<void> done = Task([](const std::string& path) { Sign::Give(path); }).Remote(sign.path());
  done.Get();
  EXPECT_TRUE(Sign::Given(sign.path()));
}

TEST_F(Tasks, ARefIsPassedAsItsValueWhereTheFunctionTakesAValue) {
  Ref<int> nine = Task(Square).Remote(3);
  EXPECT_EQ(Task(Add).Remote(nine, 1).Get(), 10);
  EXPECT_EQ(Task(Add).Remote(nine, nine).Get(), 18);
  EXPECT_EQ(Task(Add).Remote(Put(20), nine).Get(), 29);
}

TEST_F(Tasks, ARefIsPassedAsItselfWhereTheFunctionTakesARef) {
  const Sign go;
  Ref<int> slow = Task([](const std::string& path) {
                    Sign::Await(path);
                    return 5;
                  }).Remote(go.path());
  // Starts although `slow` is not ready, and is the one that lets it go on.
  Ref<int> taker = Task([](Ref<int> ref, const std::string& path) {
                     Sign::Give(path);
                     return ref.Get() + 1;
                   }).Remote(slow, go.path());
  EXPECT_EQ(taker.Get(20s), 6);
}

TEST_F(Tasks, AVectorOfRefsBecomesAVectorOfValues) {
  std::vector<Ref<int>> parts;
  for (int i = 0; i < 100; ++i) parts.push_back(Task(Square).Remote(i));
  EXPECT_EQ(Task(Sum).Remote(parts).Get(), 328350);
  EXPECT_EQ(Task(Sum).Remote(std::vector<Ref<int>>{}).Get(), 0);
}

TEST_F(Tasks, AVectorOfRefsStaysOneWhereTheFunctionTakesRefs) {
  std::vector<Ref<int>> parts{Put(1), Task(Square).Remote(2), Put(3)};
  Ref<int> sum = Task([](const std::vector<Ref<int>>& refs) {
                   int total = 0;
                   for (int value : Get(refs)) total += value;
                   return total;
                 }).Remote(parts);
  EXPECT_EQ(sum.Get(), 8);
}

TEST_F(Tasks, ATupleGivesOneRefForEachElement) {
  auto [quotient, rest, text] =
      Task([](int a, int b) { return std::tuple(a / b, a % b, std::string("done")); }).Remote(17, 5);
  EXPECT_EQ(quotient.Get(), 3);
  EXPECT_EQ(rest.Get(), 2);
  EXPECT_EQ(text.Get(), "done");
}

TEST_F(Tasks, RemoteEachGivesOneRefForEachElementOfAVector) {
  std::vector<Ref<int>> refs = Task([](int n) {
                                 std::vector<int> values(static_cast<std::size_t>(n));
                                 std::iota(values.begin(), values.end(), 100);
                                 return values;
                               }).RemoteEach(1000, 1000);
  ASSERT_EQ(refs.size(), 1000U);
  EXPECT_EQ(refs[0].Get(), 100);
  EXPECT_EQ(refs[999].Get(), 1099);
  EXPECT_EQ(Task(Add).Remote(refs[1], refs[2]).Get(), 203);
}

TEST_F(Tasks, RemoteEachFailsWhenTheFunctionReturnsAnotherNumber) {
  std::vector<Ref<int>> refs = Task([] { return std::vector<int>{1, 2}; }).RemoteEach(3);
  const std::string text = MessageOf<Error>([&] { refs[2].Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr("2 values"));
  EXPECT_THAT(text, ::testing::HasSubstr("asked for 3"));
}

TEST_F(Tasks, ThousandsOfTasksGiveEachItsOwnResult) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 20'000; ++i) refs.push_back(Task(Add).Remote(i, 1));
  const std::vector<int> values = Get(refs);
  for (int i = 0; i < 20'000; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i + 1);
}

TEST_F(Tasks, ManyThreadsMaySubmitAtOnce) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t, &wrong] {
      std::vector<Ref<int>> refs;
      for (int i = 0; i < 2'000; ++i) refs.push_back(Task(Add).Remote(t * 10'000, i));
      for (int i = 0; i < 2'000; ++i) wrong += refs[static_cast<std::size_t>(i)].Get() != t * 10'000 + i;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(Tasks, ALargeArgumentAndALargeResultTravelWhole) {
  std::string big(3 << 20, 'x');
  big[1'000'000] = 'y';
  const std::string out = Task(Join).Remote(big, "end").Get();
  ASSERT_EQ(out.size(), big.size() + 3);
  EXPECT_EQ(out[1'000'000], 'y');
  EXPECT_EQ(out.substr(out.size() - 3), "end");
}

int Fib(int n) {
  if (n < 2) return n;
  Ref<int> a = Task(Fib).Remote(n - 1);
  Ref<int> b = Task(Fib).Remote(n - 2);
  return a.Get() + b.Get();
}

int Depth(int n) { return n == 0 ? 0 : 1 + Task(Depth).Remote(n - 1).Get(); }

// Each level is of another class than the one above it, so that no level can be run in place.
int Alternate(int n) { return n == 0 ? 0 : 1 + Task(Alternate).SetCpus(n % 2 == 0 ? 1 : 0.5).Remote(n - 1).Get(); }

TEST_F(Tasks, FibonacciByNestedTasks) { EXPECT_EQ(Task(Fib).Remote(13).Get(), 233); }

TEST_F(TasksOnOneCpu, FibonacciByNestedTasks) { EXPECT_EQ(Task(Fib).Remote(12).Get(), 144); }

TEST_F(TasksOnOneCpu, TwoHundredLevelsOfTasksDoNotDeadlock) { EXPECT_EQ(Task(Depth).Remote(200).Get(60s), 200); }

TEST_F(TasksOnOneCpu, LevelsOfDifferentClassesDoNotDeadlock) { EXPECT_EQ(Task(Alternate).Remote(20).Get(60s), 20); }

TEST_F(TasksOnOneCpu, ATaskThatWaitsForASiblingLetsItRun) {
  // The parent starts a consumer that waits for a producer submitted after it.
  Ref<int> result = Task([] {
                      std::vector<Ref<int>> squares;
                      for (int i = 0; i < 50; ++i) squares.push_back(Task(Square).Remote(i));
                      Ref<int> sum = Task(Sum).Remote(squares);
                      return Wait(squares, 50).ready.size() == 50 ? sum.Get() : -1;
                    }).Remote();
  EXPECT_EQ(result.Get(60s), 40425);
}

int SleepFor(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
}

// How long, in ms, a task waits for a child that takes two seconds, with a timeout of 50 ms. (Other workers take it,
// and on one CPU they need the parent's.)
std::int64_t WaitWithTimeout(bool get) {
  Ref<int> child = Task(SleepFor).Remote(2'000);
  const std::int64_t begin = Now();
  if (get) {
    try {
      child.Get(50ms);
      return -1;
    } catch (const TimeoutError&) {
    }
  } else if (!Wait(std::vector{child}, 1, 50ms).ready.empty()) {
    return -1;
  }
  return (Now() - begin) / 1'000'000;
}

TEST_F(Tasks, ATimeoutInATaskComesThoughItsChildTakesLong) {
  for (const bool get : {false, true}) {
    const std::int64_t waited = Task(WaitWithTimeout).Remote(get).Get(60s);
    EXPECT_GE(waited, 45);
    EXPECT_LT(waited, 1'500);
  }
}

TEST_F(TasksOnOneCpu, ATimeoutInATaskComesThoughItsChildHasTheOnlyCpu) {
  for (const bool get : {false, true}) {
    const std::int64_t waited = Task(WaitWithTimeout).Remote(get).Get(60s);
    EXPECT_GE(waited, 45);
    EXPECT_LT(waited, 1'500);
  }
}

TEST_F(TasksOnOneCpu, ATaskThatAsksAgainAndAgainForItsChildLetsItRun) {
  for (const Micros timeout : {Micros(0), Micros(100), Micros(20'000)}) {
    Ref<int> result = Task([](std::int64_t us) {
                        const std::vector<Ref<int>> child = {Task(SleepFor).Remote(5)};
                        while (Wait(child, 1, Micros(us)).ready.empty()) {
                        }
                        return child[0].Get();
                      }).Remote(timeout.count());
    EXPECT_EQ(result.Get(60s), 5);
  }
}

int DepthInTime(int n) { return n == 0 ? 0 : 1 + Task(DepthInTime).Remote(n - 1).Get(60s); }

TEST_F(TasksOnOneCpu, LevelsThatWaitWithTimeoutsDoNotDeadlock) { EXPECT_EQ(Task(DepthInTime).Remote(10).Get(60s), 10); }

struct Crowd {
  int Ask(int timeout_ms) { return Task(SleepFor).Remote(1).Get(std::chrono::milliseconds(timeout_ms)); }
};

// None of its threads can give up the actor's CPU, so the children are run in place in the end.
TEST_F(TasksOnOneCpu, ThreadsOfAnActorThatHasTheOnlyCpuGetTheirChildrenDone) {
  auto crowd = Actor<Crowd>().SetCpus(1).SetMaxConcurrency(3).Remote();
  std::vector<Ref<int>> answers;
  for (int i = 0; i < 6; ++i) answers.push_back(crowd.Task(&Crowd::Ask).Remote(20'000));
  for (const Ref<int>& answer : answers) EXPECT_EQ(answer.Get(60s), 1);
}

std::string WhoAmI() {
  const Context context = CurrentContext();
  return context.task + (context.in_worker ? " in worker" : " in driver");
}
MANTA_REMOTE(WhoAmI)

TEST_F(Tasks, MantaRemoteGivesAFunctionAStableName) { EXPECT_EQ(Task(WhoAmI).Remote().Get(), "WhoAmI in worker"); }

TEST_F(Tasks, ATaskKnowsItsNameNodeAndPid) {
  const auto [name, pid] =
      Task([] { return std::tuple(CurrentContext().task, CurrentContext().worker_pid == std::uint32_t(getpid())); })
          .SetName("self-aware")
          .Remote();
  EXPECT_EQ(name.Get(), "self-aware");
  EXPECT_TRUE(pid.Get());
  EXPECT_FALSE(CurrentContext().in_worker);
  EXPECT_EQ(CurrentContext().task, "");
}

TEST_F(Tasks, ACallerCanBeKeptAndUsedAgain) {
  auto square = Task(Square);
  Ref<int> a = square.Remote(2);
  Ref<int> b = square.Remote(3);
  EXPECT_EQ(a.Get() + b.Get(), 13);
}

}  // namespace
}  // namespace manta::testing
