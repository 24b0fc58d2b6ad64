// Errors: every class of the family, with a text that says what failed, the numbers and the remedy.
#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class Errors : public ClusterTest {};

namespace bank {
struct Overdrawn : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace bank

__attribute__((noinline)) void Withdraw(int amount) {
  throw bank::Overdrawn("balance is 30, asked for " + std::to_string(amount));
}
int Pay(int amount) {
  Withdraw(amount);
  return amount;
}
MANTA_REMOTE(Pay)

TEST_F(Errors, AUserExceptionCrossesWithItsTypeMessageAndTask) {
  try {
    Task(Pay).Remote(50).Get();
    FAIL() << "did not throw";
  } catch (const TaskError& error) {
    EXPECT_EQ(error.code(), Code::kTaskFailed);
    EXPECT_THAT(error.type(), HasSubstr("bank::Overdrawn"));
    EXPECT_EQ(error.cause(), "balance is 30, asked for 50");
    EXPECT_THAT(error.what(), AllOf(HasSubstr("Pay"), HasSubstr("bank::Overdrawn"), HasSubstr("asked for 50")));
  }
}

TEST_F(Errors, AUserExceptionShowsWhereItWasThrown) {
  const std::string text = MessageOf<TaskError>([] { Task(Pay).Remote(50).Get(); });
  // Names need symbols; without them the frames are the binary and an offset for addr2line.
  EXPECT_THAT(text, AnyOf(HasSubstr("Withdraw"), HasSubstr("errors_test")));
}

TEST_F(Errors, SomethingThrownThatIsNoExceptionIsReportedToo) {
  const std::string text = MessageOf<TaskError>([] { Task([]() -> int { throw 42; }).Remote().Get(); });
  EXPECT_THAT(text, HasSubstr("int"));
}

TEST_F(Errors, EveryGetOfAFailedTaskThrowsTheSame) {
  Ref<int> ref = Task(Pay).Remote(50);
  const std::string first = MessageOf<TaskError>([&] { ref.Get(); });
  EXPECT_EQ(MessageOf<TaskError>([&] { ref.Get(); }), first);
  EXPECT_EQ(MessageOf<TaskError>([&] { Get(std::vector<Ref<int>>{Put(1), ref}); }), first);
}

TEST_F(Errors, AFailedArgumentFailsTheTasksThatWaitForItWithTheOriginalError) {
  Ref<int> bad = Task(Pay).Remote(50);
  const Sign ran;
  Ref<int> next = Task([](int value, const std::string& path) {
                    Sign::Give(path);
                    return value;
                  }).Remote(bad, ran.path());
  try {
    next.Get();
    FAIL() << "did not throw";
  } catch (const TaskError& error) {
    EXPECT_THAT(error.type(), HasSubstr("bank::Overdrawn"));
    EXPECT_THAT(error.what(), HasSubstr("asked for 50"));
  }
  EXPECT_FALSE(Sign::Given(ran.path()));
}

TEST_F(Errors, ANestedErrorKeepsItsOrigin) {
  const std::string text =
      MessageOf<TaskError>([] { Task([] { return Task(Pay).Remote(50).Get(); }).SetName("outer").Remote().Get(); });
  EXPECT_THAT(text, AllOf(HasSubstr("outer"), HasSubstr("bank::Overdrawn"), HasSubstr("asked for 50")));
}

TEST_F(Errors, AllResultsOfAFailedTaskFail) {
  auto [a, b] = Task([]() -> std::tuple<int, int> { throw std::runtime_error("half done"); }).Remote();
  EXPECT_THROW(a.Get(), TaskError);
  EXPECT_THROW(b.Get(), TaskError);
}

// ---- crashes ----

__attribute__((noinline)) void Weak() { throw std::runtime_error("through noexcept"); }
void Firm() noexcept { Weak(); }

int Crash(const std::string& how) {
  std::fprintf(stderr, "about to %s\n", how.c_str());
  if (how == "segfault") {
    volatile int* nowhere = reinterpret_cast<int*>(0x1234);
    *nowhere = 1;
  }
  if (how == "abort") std::abort();
  if (how == "exit") std::exit(3);
  if (how == "_exit") _exit(4);
  if (how == "terminate") Firm();
  raise(SIGKILL);
  return 0;
}

std::string CrashText(const std::string& how) {
  return MessageOf<WorkerCrashedError>([&] { Task(Crash).SetName("crasher").SetRetries(0).Remote(how).Get(20s); });
}

class Crashes : public ClusterTest {
 protected:
  void SetUp() override {
    CrashesAreIntended();
    ClusterTest::SetUp();
  }
};

TEST_F(Crashes, ASegmentationFaultSaysWhichSignalAndShowsTheLastLines) {
  EXPECT_THAT(CrashText("segfault"), AllOf(HasSubstr("crasher"), HasSubstr("SIGSEGV"), HasSubstr("about to segfault"),
                                           HasSubstr("at errors_test.cc:")));
}

TEST_F(Crashes, AnAbortSaysSo) {
  EXPECT_THAT(CrashText("abort"), AllOf(HasSubstr("crasher"), HasSubstr("SIGABRT"), HasSubstr("about to abort")));
}

TEST_F(Crashes, AnExceptionThroughNoexceptIsACrashWhoseTextIsShown) {
  EXPECT_THAT(CrashText("terminate"), AllOf(HasSubstr("SIGABRT"), HasSubstr("through noexcept")));
}

TEST_F(Crashes, AKillFromOutsideSaysSo) {
  EXPECT_THAT(CrashText("kill"), AllOf(HasSubstr("crasher"), HasSubstr("SIGKILL")));
}

TEST_F(Crashes, ATaskThatExitsSaysWithWhichCode) {
  EXPECT_THAT(CrashText("exit"),
              AllOf(HasSubstr("crasher"), HasSubstr("exit"), HasSubstr("3"), HasSubstr("about to exit")));
  EXPECT_THAT(CrashText("_exit"), AllOf(HasSubstr("exit"), HasSubstr("4")));
}

TEST_F(Errors, ACrashIsNotTheEndOfTheProgram) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 200; ++i) {
    refs.push_back(Task([](int n) {
                     if (n % 50 == 7) raise(SIGKILL);
                     return n;
                   })
                       .SetRetries(0)
                       .Remote(i));
  }
  int good = 0;
  int crashed = 0;
  for (int i = 0; i < 200; ++i) {
    auto result = TryGet(refs[static_cast<std::size_t>(i)]);
    if (result) {
      EXPECT_EQ(*result, i);
      ++good;
    } else {
      EXPECT_EQ(result.code(), Code::kWorkerCrashed) << result.message();
      EXPECT_EQ(i % 50, 7) << "a bystander was lost";
      ++crashed;
    }
  }
  EXPECT_EQ(good, 196);
  EXPECT_EQ(crashed, 4);
}

// ---- the rest of the family ----

TEST_F(Errors, EveryErrorIsAStdException) {
  try {
    Task(Pay).Remote(1).Get();
    FAIL() << "did not throw";
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("Pay"));
  }
}

TEST_F(Errors, AnEmptyRefAndAnEmptyHandleSaySo) {
  Ref<int> ref;
  EXPECT_THROW(ref.Get(), InvalidError);
  EXPECT_THROW(Wait(std::vector<Ref<int>>{ref}, 1), InvalidError);
  EXPECT_THROW(Task(Pay).Remote(ref), InvalidError);
  struct Nothing {
    void Do() {}
  };
  ActorHandle<Nothing> handle;
  EXPECT_THROW(handle.Task(&Nothing::Do).Remote(), InvalidError);
  EXPECT_THROW(Kill(handle), InvalidError);
}

TEST_F(Errors, TimeoutsNameWhatWasWaitedForAndHowLong) {
  const Sign go;
  Ref<int> slow = Task([](const std::string& path) {
                    Sign::Await(path);
                    return 1;
                  })
                      .SetName("slowpoke")
                      .Remote(go.path());
  const std::string text = MessageOf<TimeoutError>([&] { slow.Get(30ms); });
  EXPECT_THAT(text, HasSubstr("30 ms"));
  EXPECT_THAT(text, AnyOf(HasSubstr("slowpoke"), HasSubstr(slow.id().substr(0, 8))));
  go.Give();
}

TEST_F(Errors, ARefWhoseOwnerDiedIsLostByName) {
  // The value lives in the memory of the actor that put it, which dies before anybody read it.
  struct Maker {
    std::vector<Ref<int>> Promise(const std::string& path) {
      kept = Task([](const std::string& p) {
               Sign::Await(p);
               return 1;
             }).Remote(path);
      return {kept};
    }
    Ref<int> kept;
  };
  const Sign go;
  auto maker = Actor<Maker>().Remote();
  const std::vector<Ref<int>> promised = maker.Task(&Maker::Promise).Remote(go.path()).Get();
  Kill(maker);
  const std::string text = MessageOf<Error>([&] { promised[0].Get(20s); });
  EXPECT_THAT(text, HasSubstr(promised[0].id().substr(0, 8)));
  EXPECT_EQ(TryGet(promised[0]).code(), Code::kLost) << text;
  go.Give();
}

TEST(ErrorsWithoutInit, UsingMantaBeforeInitSaysWhatToDo) {
  const std::string text = MessageOf<InvalidError>([] { Task(Pay).Remote(1); });
  EXPECT_THAT(text, HasSubstr("Init"));
  EXPECT_THROW(Put(1), InvalidError);
  struct Thing {};
  EXPECT_THROW(Actor<Thing>().Remote(), InvalidError);
  EXPECT_THROW(GetActor<Thing>("x"), InvalidError);
}

}  // namespace
}  // namespace manta::testing
