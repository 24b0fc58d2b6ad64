// Actors whose process is killed: every call counted once, answered once, in order and as before.
#include <atomic>
#include <random>
#include <set>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ActorRecovery : public ClusterTest {};

int g_runs = 0;  // calls that this process has run, or repeated

// What it says depends on all that it was told. No way to look inside: it is repeated from its constructor.
class Ledger {
 public:
  explicit Ledger(int start) : sum_(start) {}
  int Add(int by) {
    ++g_runs;
    ++count_;
    return sum_ += by;
  }
  int Fail(int by) {
    ++g_runs;
    sum_ += by;
    throw std::runtime_error("after it has acted");
  }
  [[nodiscard]] int Sum() const { return sum_; }
  [[nodiscard]] int Count() const { return count_; }
  [[nodiscard]] int Runs() const { return g_runs; }
  [[nodiscard]] int Pid() const { return getpid(); }
  // Dies the first time, having acted.
  int AddAndDieOnce(int by, const std::string& path) {
    sum_ += by;
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGKILL);
    }
    return sum_;
  }
  int Die() { return raise(SIGKILL); }
  int Random() { return getpid(); }
  double Large(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value;
    sum_ += static_cast<int>(sum);
    return sum;
  }
  std::vector<double> Fill(int count) {
    ++sum_;
    return std::vector<double>(static_cast<std::size_t>(count), sum_);
  }
  int Through(const Ref<int>& ref) { return sum_ += ref.Get(); }

 private:
  int sum_;
  int count_ = 0;
};

// The same with fields that can be sent.
struct Account {
  int sum = 0;
  std::vector<int> history;

  int Add(int by) {
    ++g_runs;
    history.push_back(by);
    sum = static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(by));  // wraps
    return sum;
  }
  [[nodiscard]] int Sum() const { return sum; }
  [[nodiscard]] int Runs() const { return g_runs; }
  [[nodiscard]] std::vector<int> History() const { return history; }
  [[nodiscard]] int Pid() const { return getpid(); }
};

// The same, saved by itself; what is not saved its constructor makes.
class Keeper {
 public:
  explicit Keeper(std::string greeting) : greeting_(std::move(greeting)) {}
  int Add(int by) {
    ++g_runs;
    return sum_ += by;
  }
  [[nodiscard]] std::string Greet() const { return greeting_ + " " + std::to_string(sum_); }
  [[nodiscard]] int Runs() const { return g_runs; }
  [[nodiscard]] int Pid() const { return getpid(); }

  [[nodiscard]] int Save() const { return sum_; }
  void Load(int sum) { sum_ = sum; }

 private:
  std::string greeting_;
  int sum_ = 0;
};

template <typename C>
void KillProcessOf(const ActorHandle<C>& actor) {
  const int pid = actor.Task(&C::Pid).Remote().Get(20s);
  kill(pid, SIGKILL);
  EXPECT_TRUE(Eventually([&] { return !Alive(pid); }));
}

TEST_F(ActorRecovery, WithoutBeingAskedAnActorComesBackWithItsState) {
  auto ledger = Actor<Ledger>().Remote(100);
  for (int i = 1; i <= 50; ++i) EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 100 + i);
  KillProcessOf(ledger);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 151);
  EXPECT_EQ(ledger.Task(&Ledger::Runs).Remote().Get(20s), 51) << "each call of before once, and the new one";
  KillProcessOf(ledger);
  KillProcessOf(ledger);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 151);
}

TEST_F(ActorRecovery, ACallInWhichItDiesIsRunAgainFromTheStateBefore) {
  const Sign died;
  auto ledger = Actor<Ledger>().Remote(0);
  Ref<int> first = ledger.Task(&Ledger::Add).Remote(1);
  Ref<int> second = ledger.Task(&Ledger::AddAndDieOnce).Remote(10, died.path());
  Ref<int> third = ledger.Task(&Ledger::Add).Remote(100);
  EXPECT_EQ(first.Get(20s), 1);
  EXPECT_EQ(second.Get(20s), 11) << "what it did before it died is not there any more";
  EXPECT_EQ(third.Get(20s), 111);
}

TEST_F(ActorRecovery, ACallThatKillsItsActorEveryTimeFailsAndTheActorGoesOn) {
  auto ledger = Actor<Ledger>().Remote(5);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 6);
  Ref<int> die = ledger.Task(&Ledger::Die).Remote();
  Ref<int> behind = ledger.Task(&Ledger::Add).Remote(1);
  EXPECT_THAT(MessageOf<WorkerCrashedError>([&] { die.Get(60s); }),
              AllOf(HasSubstr("SIGKILL"), HasSubstr("started 4 times")));
  EXPECT_EQ(behind.Get(20s), 7);
}

TEST_F(ActorRecovery, ACallThatMayNotBeBegunTwiceFailsAndTheOthersDoNot) {
  auto ledger = Actor<Ledger>().SetMaxCallRetries(0).Remote(5);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 6);
  Ref<int> die = ledger.Task(&Ledger::Die).Remote();
  Ref<int> behind = ledger.Task(&Ledger::Add).Remote(1);
  EXPECT_THAT(MessageOf<WorkerCrashedError>([&] { die.Get(20s); }), HasSubstr("SIGKILL"));
  EXPECT_EQ(behind.Get(20s), 7);
}

TEST_F(ActorRecovery, AnExceptionIsRepeatedAsWell) {
  auto ledger = Actor<Ledger>().Remote(0);
  EXPECT_THROW(ledger.Task(&Ledger::Fail).Remote(3).Get(20s), TaskError);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 4);
  KillProcessOf(ledger);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 4);
}

TEST_F(ActorRecovery, LargeArgumentsAndAnswersAndRefsAreRepeated) {
  auto ledger = Actor<Ledger>().Remote(0);
  EXPECT_EQ(ledger.Task(&Ledger::Large).Remote(std::vector<double>(20'000, 1.0)).Get(20s), 20'000);
  EXPECT_EQ(ledger.Task(&Ledger::Fill).Remote(5'000).Get(20s).size(), 5'000U);
  {
    Ref<int> made = Task([] { return 7; }).Remote();
    EXPECT_EQ(ledger.Task(&Ledger::Through).Remote(made).Get(20s), 20'008);
    EXPECT_EQ(ledger.Task(&Ledger::Through).Remote(Put(5)).Get(20s), 20'013);
  }  // nobody but the actor's journal has the Refs now
  KillProcessOf(ledger);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 20'013);
}

TEST_F(ActorRecovery, WithCheckpointsOnlyTheCallsSinceTheLastAreRepeated) {
  auto account = Actor<Account>().CheckpointEvery(10).Remote();
  for (int i = 1; i <= 27; ++i) EXPECT_EQ(account.Task(&Account::Add).Remote(1).Get(20s), i);
  KillProcessOf(account);
  EXPECT_EQ(account.Task(&Account::Runs).Remote().Get(20s), 7);
  EXPECT_EQ(account.Task(&Account::Add).Remote(1).Get(20s), 28);
  EXPECT_EQ(account.Task(&Account::History).Remote().Get(20s), std::vector<int>(28, 1));
  for (int i = 0; i < 2; ++i) EXPECT_EQ(account.Task(&Account::Add).Remote(1).Get(20s), 29 + i);
  KillProcessOf(account);
  EXPECT_EQ(account.Task(&Account::Runs).Remote().Get(20s), 0) << "the tenth call since the checkpoint made another";
  EXPECT_EQ(account.Task(&Account::Sum).Remote().Get(20s), 30);
}

TEST_F(ActorRecovery, AClassMaySaveItselfAndTheRestIsItsConstructors) {
  auto keeper = Actor<Keeper>().CheckpointEvery(4).Remote("hello");
  for (int i = 1; i <= 6; ++i) EXPECT_EQ(keeper.Task(&Keeper::Add).Remote(1).Get(20s), i);
  KillProcessOf(keeper);
  EXPECT_EQ(keeper.Task(&Keeper::Runs).Remote().Get(20s), 2);
  EXPECT_EQ(keeper.Task(&Keeper::Greet).Remote().Get(20s), "hello 6");
}

TEST_F(ActorRecovery, ACheckpointCanBeDueByTime) {
  auto keeper = Actor<Keeper>().CheckpointEvery(1us).Remote("hello");
  for (int i = 1; i <= 6; ++i) {
    EXPECT_EQ(keeper.Task(&Keeper::Add).Remote(1).Get(20s), i);
    std::this_thread::sleep_for(1ms);
  }
  KillProcessOf(keeper);
  EXPECT_EQ(keeper.Task(&Keeper::Runs).Remote().Get(20s), 0);
  EXPECT_EQ(keeper.Task(&Keeper::Greet).Remote().Get(20s), "hello 6");
}

TEST_F(ActorRecovery, AnActorThatCanBeSavedIsNotRepeatedFromItsBeginning) {
  auto keeper = Actor<Keeper>().Remote("hello");
  std::vector<Ref<int>> sums;
  for (int i = 0; i < 50'000; ++i) sums.push_back(keeper.Task(&Keeper::Add).Remote(1));
  EXPECT_EQ(Get(sums, 60s).back(), 50'000);
  KillProcessOf(keeper);
  EXPECT_EQ(keeper.Task(&Keeper::Greet).Remote().Get(20s), "hello 50000");
  EXPECT_LT(keeper.Task(&Keeper::Runs).Remote().Get(20s), 20'000);
}

TEST_F(ActorRecovery, OneThatRunsSeveralCallsAtATimeComesBackFromItsCheckpointAndCallsUnderWayFail) {
  class Shared {
   public:
    int Add(int by) { return sum_ += by; }
    [[nodiscard]] int Sum() const { return sum_; }
    [[nodiscard]] int Pid() const { return getpid(); }
    int Stay(const std::string& started) {
      Sign::Give(started);
      std::this_thread::sleep_for(60s);
      return 0;
    }
    [[nodiscard]] int Save() const { return sum_; }
    void Load(int sum) { sum_ = sum; }

   private:
    std::atomic<int> sum_ = 0;
  };
  const Sign started;
  auto shared = Actor<Shared>().SetMaxConcurrency(4).CheckpointEvery(1).Remote();
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(shared.Task(&Shared::Add).Remote(1).Get(20s), i);
  EXPECT_EQ(shared.Task(&Shared::Sum).Remote().Get(20s), 5);
  const int pid = shared.Task(&Shared::Pid).Remote().Get(20s);
  Ref<int> stays = shared.Task(&Shared::Stay).Remote(started.path());
  ASSERT_TRUE(started.Await());
  kill(pid, SIGKILL);
  EXPECT_THAT(MessageOf<WorkerCrashedError>([&] { stays.Get(20s); }), HasSubstr("SIGKILL"));
  EXPECT_EQ(shared.Task(&Shared::Sum).Remote().Get(20s), 5);
}

TEST_F(ActorRecovery, AReadOnlyCallIsNotRepeated) {
  auto account = Actor<Account>().Remote();
  EXPECT_EQ(account.Task(&Account::Add).Remote(1).Get(20s), 1);
  // Said to be read-only, which it is not.
  EXPECT_EQ(account.Task(&Account::Add).ReadOnly().Remote(10).Get(20s), 11);
  KillProcessOf(account);
  EXPECT_EQ(account.Task(&Account::Sum).Remote().Get(20s), 1);
  EXPECT_EQ(account.Task(&Account::Runs).Remote().Get(20s), 1);
}

TEST_F(ActorRecovery, AnActorThatAnswersDifferentlyWhenRepeatedEndsAndSaysWhere) {
  auto ledger = Actor<Ledger>().Remote(0);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 1);
  EXPECT_GT(ledger.Task(&Ledger::Random).Remote().Get(20s), 0);
  KillProcessOf(ledger);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { ledger.Task(&Ledger::Sum).Remote().Get(20s); }),
              AllOf(HasSubstr("Ledger"), HasSubstr("Random"), HasSubstr("differently"), HasSubstr("2. that was")));
}

TEST_F(ActorRecovery, WithoutReplayItDiesUnlessRestartsAreAskedFor) {
  auto ledger = Actor<Ledger>().SetReplay(false).Remote(10);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 11);
  EXPECT_THROW(ledger.Task(&Ledger::Die).Remote().Get(20s), ActorDiedError);
  auto fresh = Actor<Ledger>().SetReplay(false).SetMaxRestarts(1).Remote(10);
  EXPECT_EQ(fresh.Task(&Ledger::Add).Remote(1).Get(20s), 11);
  EXPECT_THROW(fresh.Task(&Ledger::Die).Remote().Get(20s), WorkerCrashedError);
  EXPECT_EQ(fresh.Task(&Ledger::Sum).Remote().Get(20s), 10);
}

TEST_F(ActorRecovery, ALimitOfRestartsIsHonoured) {
  auto ledger = Actor<Ledger>().SetMaxRestarts(1).Remote(10);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 11);
  KillProcessOf(ledger);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 11);
  KillProcessOf(ledger);
  EXPECT_THAT(MessageOf<ActorDiedError>([&] { ledger.Task(&Ledger::Sum).Remote().Get(20s); }),
              HasSubstr("restarts used 1 of 1"));
  auto none = Actor<Ledger>().SetMaxRestarts(0).Remote(10);
  EXPECT_THROW(none.Task(&Ledger::Die).Remote().Get(20s), ActorDiedError);
}

TEST_F(ActorRecovery, KillIsForGood) {
  auto ledger = Actor<Ledger>().Remote(10);
  EXPECT_EQ(ledger.Task(&Ledger::Add).Remote(1).Get(20s), 11);
  Kill(ledger);
  EXPECT_THROW(ledger.Task(&Ledger::Sum).Remote().Get(20s), ActorDiedError);
  auto again = Actor<Ledger>().Remote(10);
  EXPECT_EQ(again.Task(&Ledger::Add).Remote(1).Get(20s), 11);
  Kill(again, true);
  EXPECT_EQ(again.Task(&Ledger::Add).Remote(1).Get(20s), 12) << "killed to be restarted";
}

// Calls another actor in its methods.
class Clerk {
 public:
  explicit Clerk(ActorHandle<Ledger> ledger) : ledger_(std::move(ledger)) {}
  int Book(int by) { return booked_ += ledger_.Task(&Ledger::Add).Remote(by).Get(); }
  int BookAndDieOnce(int by, const std::string& path) {
    const int sum = ledger_.Task(&Ledger::Add).Remote(by).Get();
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGKILL);
    }
    return booked_ += sum;
  }
  int Square(int x) {
    return booked_ += Task([](int y) { return y * y; }).Remote(x).Get();
  }
  [[nodiscard]] int Booked() const { return booked_; }
  [[nodiscard]] int Pid() const { return getpid(); }

 private:
  ActorHandle<Ledger> ledger_;
  int booked_ = 0;
};

TEST_F(ActorRecovery, WhatARepeatedCallDoesToOtherActorsCountsOnce) {
  const Sign died;
  auto ledger = Actor<Ledger>().Remote(0);
  auto clerk = Actor<Clerk>().Remote(ledger);
  int booked = 0;
  for (int i = 1; i <= 20; ++i) {
    booked += i;
    EXPECT_EQ(clerk.Task(&Clerk::Book).Remote(1).Get(20s), booked);
  }
  EXPECT_EQ(clerk.Task(&Clerk::Square).Remote(3).Get(20s), booked += 9);
  KillProcessOf(clerk);
  EXPECT_EQ(clerk.Task(&Clerk::Booked).Remote().Get(20s), booked);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 20);
  EXPECT_EQ(clerk.Task(&Clerk::BookAndDieOnce).Remote(1, died.path()).Get(20s), booked += 21)
      << "the ledger was told before it died, and again after";
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 21);
  KillProcessOf(ledger);
  KillProcessOf(clerk);
  EXPECT_EQ(clerk.Task(&Clerk::Booked).Remote().Get(20s), booked);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 21);
}

// A task that calls, and whose worker dies once in between.
int AddTwice(ActorHandle<Ledger> ledger, const std::string& path) {
  const int first = ledger.Task(&Ledger::Add).Remote(1).Get();
  if (!Sign::Given(path)) {
    Sign::Give(path);
    raise(SIGKILL);
  }
  return first * 1000 + ledger.Task(&Ledger::Add).Remote(1).Get();
}

TEST_F(ActorRecovery, ATaskThatRunsAgainHasCalledOnce) {
  const Sign died;
  auto ledger = Actor<Ledger>().Remote(0);
  EXPECT_EQ(Task(AddTwice).Remote(ledger, died.path()).Get(20s), 1002);
  EXPECT_EQ(ledger.Task(&Ledger::Sum).Remote().Get(20s), 2);
}

TEST_F(ActorRecovery, ATaskThatIsRetriedForItsExceptionCallsAgain) {
  auto ledger = Actor<Ledger>().Remote(0);
  const auto task = [](const ActorHandle<Ledger>& to) {
    const int sum = to.Task(&Ledger::Add).Remote(1).Get();
    if (sum < 3) throw std::runtime_error("not enough yet");
    return sum;
  };
  EXPECT_EQ(Task(task).SetRetries(5).RetryOn<std::runtime_error>().Remote(ledger).Get(20s), 3);
}

// Adds numbers that tell who added them, in batches, so that there are always some under way.
std::vector<int> AddMany(const ActorHandle<Account>& to, int number, int from, int calls) {
  std::vector<int> sums;
  std::vector<Ref<int>> pending;
  for (int i = from; i < from + calls; ++i) {
    pending.push_back(to.Task(&Account::Add).Remote(number * 1'000'000 + i));
    if (pending.size() < 20 && i + 1 < from + calls) continue;
    for (const int sum : Get(pending)) sums.push_back(sum);
    pending.clear();
  }
  return sums;
}

// Several callers, and the actor's process is killed again and again while they call.
void Hammer(const ActorHandle<Account>& actor, unsigned seed) {
  constexpr int kCalls = 400;
  constexpr int kKills = 5;
  std::vector<Ref<std::vector<int>>> callers;
  for (int i = 0; i < 2; ++i) callers.push_back(Task(AddMany).Remote(actor, i, 0, kCalls));
  std::atomic<int> kills{0};
  std::thread killer([&] {
    std::minstd_rand random(seed);
    while (kills.load() < kKills) {
      try {
        const int pid = actor.Task(&Account::Pid).Remote().Get(60s);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 3'000));
        kill(pid, SIGKILL);
        ++kills;
      } catch (const Error& error) {
        ADD_FAILURE() << error.what();
        kills.store(kKills);
      }
    }
  });
  std::vector<std::vector<int>> sums(3);
  do {
    const std::vector<int> more = AddMany(actor, 2, static_cast<int>(sums[2].size()), 20);
    sums[2].insert(sums[2].end(), more.begin(), more.end());
  } while (kills.load() < kKills);
  killer.join();
  for (std::size_t i = 0; i < 2; ++i) sums[i] = callers[i].Get(120s);
  const std::vector<int> history = actor.Task(&Account::History).Remote().Get(60s);
  ASSERT_EQ(history.size(), 2 * kCalls + sums[2].size()) << "each once";
  EXPECT_EQ(std::set<int>(history.begin(), history.end()).size(), history.size());
  // The answers are those of this one order, and each caller's calls stand in it in theirs.
  std::vector<int> next(3, 0);
  unsigned sum = 0;
  for (const int by : history) {
    sum += static_cast<unsigned>(by);
    const auto number = static_cast<std::size_t>(by / 1'000'000);
    ASSERT_EQ(by % 1'000'000, next[number]) << "of caller " << number;
    ASSERT_EQ(sums[number][static_cast<std::size_t>(next[number]++)], static_cast<int>(sum));
  }
}

TEST_F(ActorRecovery, KilledAgainAndAgainUnderLoadEveryCallCountsOnce) { Hammer(Actor<Account>().Remote(), 1); }

TEST_F(ActorRecovery, TheSameWithCheckpoints) { Hammer(Actor<Account>().CheckpointEvery(10).Remote(), 2); }

}  // namespace
}  // namespace manta::testing
