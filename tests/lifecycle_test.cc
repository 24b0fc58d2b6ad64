// The life of a cluster: starting, ending in every way a program can end, and what happens when one of
// its processes is killed. Within a second nothing may be left.
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "fixture.h"

namespace manta::testing {
namespace {

using ::testing::HasSubstr;

class Lifecycle : public ClusterTest {};

int Square(int x) { return x * x; }
int Pid() { return getpid(); }

TEST_F(Lifecycle, InitTwiceIsAnErrorThatChangesNothing) {
  EXPECT_TRUE(IsInitialized());
  EXPECT_THROW(Init(), InvalidError);
  EXPECT_EQ(Task(Square).Remote(3).Get(), 9);
}

TEST_F(Lifecycle, AfterShutdownAProgramMayInitAgain) {
  EXPECT_EQ(Task(Square).Remote(3).Get(), 9);
  for (int i = 0; i < 3; ++i) {
    Shutdown();
    EXPECT_FALSE(IsInitialized());
    EXPECT_THROW(Task(Square).Remote(1), InvalidError);
    Init(MakeConfig());
    EXPECT_EQ(Task(Square).Remote(i).Get(), i * i);
  }
}

TEST_F(Lifecycle, ShutdownTwiceIsHarmless) {
  Shutdown();
  Shutdown();
  EXPECT_FALSE(IsInitialized());
}

TEST_F(Lifecycle, ALargeValueIsGoneWithItsClusterAndSaysSo) {
  Ref<int> small = Put(1);
  Ref<std::string> large = Put(std::string(1 << 20, 'x'));
  Ref<int> task = Task(Square).Remote(2);
  task.Get();
  Shutdown();
  EXPECT_THAT(MessageOf<UnavailableError>([&] { large.Get(1s); }), HasSubstr("shut down"));
  EXPECT_EQ(small.Get(1s), 1) << "a small value needs no cluster";
  EXPECT_EQ(task.Get(1s), 4);
  Init(MakeConfig());
  EXPECT_THROW(large.Get(1s), UnavailableError) << "another cluster does not know it";
}

TEST_F(Lifecycle, ATaskUnfinishedAtShutdownIsUnavailableAfterwards) {
  const Sign go;
  Ref<bool> ref = Task([](const std::string& path) { return Sign::Await(path); }).Remote(go.path());
  Shutdown();
  EXPECT_THROW(ref.Get(1s), UnavailableError);
}

TEST_F(Lifecycle, ShutdownEndsTasksThatStillRun) {
  const Sign started;
  Ref<int> busy = RunForEver(started);
  ASSERT_TRUE(started.Await());
  const auto begin = Clock::now();
  Shutdown();
  EXPECT_LT(Clock::now() - begin, 3s * kSlow);
}

TEST_F(Lifecycle, NothingRunsUntilItIsNeededAndMainIsNotRunAgain) {
  EXPECT_EQ(Task(Square).Remote(3).Get(), 9);
  const Cast cast = Processes();
  EXPECT_NE(cast.daemon, 0);
  EXPECT_NE(cast.fork_server, 0);
  EXPECT_GE(cast.workers.size(), 1U);
  EXPECT_LE(cast.workers.size(), 4U);
}

// ---- Shutdown while other threads are inside ----

TEST_F(Lifecycle, ShutdownMakesThreadsThatWaitComeBackWithAnError) {
  for (int round = 0; round < 3; ++round) {
    const Sign started;
    Ref<int> never = Task([](const std::string& path) -> int {
                       Sign::Give(path);
                       for (;;) std::this_thread::sleep_for(1s);
                     }).Remote(started.path());
    ASSERT_TRUE(started.Await());
    std::atomic<int> came_back{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        EXPECT_THROW(never.Get(), UnavailableError);
        ++came_back;
      });
    }
    threads.emplace_back([&] {
      EXPECT_EQ(Wait(std::vector<Ref<int>>{never}, 1).ready.size(), 1U) << "a failure is an outcome";
      ++came_back;
    });
    std::this_thread::sleep_for(50ms);
    Shutdown();
    EXPECT_TRUE(Eventually([&] { return came_back == 3; }));
    for (std::thread& thread : threads) thread.join();
    Init(MakeConfig());
  }
}

TEST_F(Lifecycle, ShutdownMayComeWhileOtherThreadsSubmitPutAndGet) {
  for (int round = 0; round < 5; ++round) {
    std::atomic<int> calls{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        try {
          for (;; ++calls) {
            if (i == 0) {
              EXPECT_EQ(Task(Square).Remote(4).Get(), 16);
            } else if (i == 1) {
              EXPECT_EQ(Put(std::string(100'000, 'x')).Get().size(), 100'000U);
            } else {
              EXPECT_EQ(Task(Square).SetName("named").Remote(Put(3)).Get(), 9);
            }
          }
        } catch (const InvalidError&) {      // not initialised (any more)
        } catch (const UnavailableError&) {  // shut down meanwhile
        }
      });
    }
    EXPECT_TRUE(Eventually([&] { return calls > 30; }));
    Shutdown();
    for (std::thread& thread : threads) thread.join();
    Init(MakeConfig());
  }
}

// Encodes itself only when it is told to.
struct Patient {
  static inline std::atomic<int> passes{0};
  static inline std::atomic<bool> go{false};
  std::string text;
  template <typename Archive>
  void Serialize(Archive& archive) {
    if (++passes == 2) {  // the first one asks for the size
      while (!go) std::this_thread::sleep_for(1ms);
    }
    archive(text);
  }
};

TEST_F(Lifecycle, APutThatHasBegunFailsButDoesNotCrashWhenTheClusterGoes) {
  for (const std::size_t size : {10U, 1000U, 10'000'000U}) {
    Patient::passes = 0;
    Patient::go = false;
    std::thread writer([&] { EXPECT_THROW(Put(Patient{std::string(size, 'x')}), UnavailableError); });
    EXPECT_TRUE(Eventually([] { return Patient::passes == 2; }));
    Shutdown();
    Patient::go = true;
    writer.join();
    Init(MakeConfig());
  }
}

TEST_F(Lifecycle, ACallerKeptPastShutdownWorksInTheNextCluster) {
  auto caller = Task(Square);
  caller.SetName("kept").SetCpus(0.5);
  EXPECT_EQ(caller.Remote(2).Get(), 4);
  Shutdown();
  EXPECT_THROW(caller.Remote(3), InvalidError);
  Init(MakeConfig());
  EXPECT_EQ(caller.Remote(4).Get(20s), 16);
}

TEST_F(Lifecycle, ALargeValueOfAnotherClusterIsNoArgument) {
  Ref<std::string> large = Put(std::string(1 << 20, 'x'));
  Shutdown();
  Init(MakeConfig());
  Ref<std::size_t> size = Task([](const std::string& text) { return text.size(); }).Remote(large);
  EXPECT_THAT(MessageOf<UnavailableError>([&] { size.Get(20s); }), HasSubstr("shut down"));
}

// ---- ends of the driver ----

struct End {
  std::string how;
  int code = -1;   // expected exit code, or
  int signal = 0;  // expected signal
};

class EndOfTheDriver : public ::testing::TestWithParam<End> {};

TEST_P(EndOfTheDriver, LeavesNoProcessNoSocketAndNoFile) {
  const Folder folder;
  if (GetParam().signal != 0) CrashesAreIntended();
  Child driver("victim", {GetParam().how}, {"TMPDIR=" + folder.path()});
  ASSERT_TRUE(driver.Says("ready")) << driver.Err();
  std::set<pid_t> pids{driver.pid()};
  for (const Process& process : Marked(driver.mark())) pids.insert(process.pid);
  const int status = driver.Finish();
  if (GetParam().signal != 0) {
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == GetParam().signal) << status << driver.Err();
  } else {
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == GetParam().code) << status << driver.Err();
  }
  EXPECT_TRUE(driver.LeavesNothing()) << Describe(Marked(driver.mark()));
  EXPECT_THAT(SocketsOf(pids), ::testing::IsEmpty());
  EXPECT_THAT(folder.Files(), ::testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(ByEvery, EndOfTheDriver,
                         ::testing::Values(End{"return", 0, 0}, End{"shutdown", 0, 0}, End{"exit", 5, 0},
                                           End{"static", 0, 0}, End{"waiting_thread", 3, 0}, End{"_exit", 6, 0},
                                           End{"quick_exit", 7, 0}, End{"throw", -1, SIGABRT},
                                           End{"abort", -1, SIGABRT}, End{"int", -1, SIGINT}, End{"kill", -1, SIGKILL}),
                         [](const auto& way) {
                           std::string name = way.param.how;
                           std::replace(name.begin(), name.end(), '_', 'U');
                           return "Way" + name;
                         });

TEST(EndOfTheDriver, ByAKillFromOutside) {
  Child driver("victim", {"wait"});
  ASSERT_TRUE(driver.Says("ready")) << driver.Err();
  kill(driver.pid(), SIGKILL);
  driver.Finish();
  EXPECT_TRUE(driver.LeavesNothing()) << Describe(Marked(driver.mark()));
}

// ---- ends of the others ----

TEST_F(Lifecycle, AKilledDaemonIsAClearErrorAndNotAHang) {
  const Sign started;
  Ref<int> busy = RunForEver(started);
  ASSERT_TRUE(started.Await());
  const Cast cast = Processes();
  ASSERT_NE(cast.daemon, 0);
  kill(cast.daemon, SIGKILL);
  const std::string text = MessageOf<Error>([&] { busy.Get(20s); });
  EXPECT_THAT(text, HasSubstr("mantad"));
  EXPECT_THROW(Task(Square).Remote(2).Get(20s), Error);
  EXPECT_THROW(Get(Put(std::string(64 << 20, 'x')), 20s), Error);
  struct Thing {
    int One() { return 1; }
  };
  EXPECT_THROW(Actor<Thing>().Remote().Task(&Thing::One).Remote().Get(20s), Error);
  EXPECT_TRUE(Eventually([&] { return Marked(mark()).empty(); }, 1s)) << Describe(Marked(mark()));
  Shutdown();
  Init(MakeConfig());
  EXPECT_EQ(Task(Square).Remote(5).Get(), 25) << "and one can start again";
}

TEST_F(Lifecycle, AWorkerKilledFromOutsideIsReplaced) {
  for (int round = 0; round < 3; ++round) {
    const pid_t worker = Task(Pid).Remote().Get();
    kill(worker, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !Alive(worker); }));
    EXPECT_NE(Task(Pid).Remote().Get(20s), worker);
  }
}

TEST_F(Lifecycle, AWorkerKilledInTheMiddleOfATaskHasItRunAgain) {
  const Sign started;
  Ref<int> ref = Task([](const std::string& path) {
                   if (!Sign::Given(path)) {
                     Sign::Give(path);
                     for (;;) std::this_thread::sleep_for(1s);
                   }
                   return 1;
                 }).Remote(started.path());
  ASSERT_TRUE(started.Await());
  ASSERT_TRUE(Eventually([&] { return !ReadFile(started.path()).empty(); }));
  kill(std::atoi(ReadFile(started.path()).c_str()), SIGKILL);
  EXPECT_EQ(ref.Get(20s), 1);
}

TEST_F(Lifecycle, AKilledForkServerIsReplaced) {
  // New actors need new workers.
  struct Thing {
    int One() { return 1; }
  };
  for (int round = 0; round < 5; ++round) {
    EXPECT_EQ(Task(Square).Remote(2).Get(20s), 4);
    const Cast cast = Processes();
    ASSERT_NE(cast.fork_server, 0);
    kill(cast.fork_server, SIGKILL);
    EXPECT_TRUE(Eventually([&] { return !Alive(cast.fork_server); }));
    // Until the daemon hears of it, one may still be given to a worker that dies with its fork server: it is given to
    // another one then.
    for (int i = 0; i < 3; ++i) EXPECT_EQ(Actor<Thing>().Remote().Task(&Thing::One).Remote().Get(20s), 1);
    EXPECT_EQ(Task(Square).Remote(3).Get(20s), 9);
  }
}

TEST_F(Lifecycle, AnIdleClusterUsesNoCpu) {
  if (kSanitized) GTEST_SKIP() << "measures time";
  EXPECT_EQ(Task(Square).Remote(3).Get(), 9);
  std::this_thread::sleep_for(100ms);
  auto ticks = [&] {
    long sum = 0;
    std::vector<Process> processes = Marked(mark());
    processes.push_back(LookAt(getpid()));
    for (const Process& process : processes) {
      const std::string stat = ReadFile("/proc/" + std::to_string(process.pid) + "/schedstat");
      sum += std::atol(stat.c_str()) / 1'000'000;  // ns -> ms
    }
    return sum;
  };
  const long before = ticks();
  std::this_thread::sleep_for(1s);
  EXPECT_LT(ticks() - before, 50) << "ms of CPU in a second of idleness";
}

// ---- workers that are killed while they start ----

bool is_driver = false;  // never set in a fork server, which does not come to main

// In a child of the fork server: kills it, as somebody from outside would, for as long as the file is short.
void DieWhileStarting() {
  const char* path = std::getenv("MANTA_TEST_KILLED_STARTS");
  if (path == nullptr || is_driver) return;
  const int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  constexpr off_t kKills = 6;  // twice as many as a program that fails by itself gets
  if (fd < 0 || lseek(fd, 0, SEEK_END) >= kKills) return;
  if (write(fd, "x", 1) == 1) kill(getpid(), SIGKILL);
}
const int at_fork = pthread_atfork(nullptr, nullptr, DieWhileStarting);

class StartsAreKilled : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    is_driver = at_fork == 0;
    std::ofstream(file_.path() + "/kills").close();
    setenv("MANTA_TEST_KILLED_STARTS", (file_.path() + "/kills").c_str(), 1);
    Config config;
    config.cpus = 1;
    return config;
  }
  void TearDown() override {
    unsetenv("MANTA_TEST_KILLED_STARTS");
    ClusterTest::TearDown();
  }
  Folder file_;
};

TEST_F(StartsAreKilled, AWorkerThatIsKilledWhileItStartsIsStartedAgainUntilItLives) {
  std::vector<Ref<int>> refs;
  for (int i = 0; i < 100; ++i) refs.push_back(Task(+[](int value) { return 2 * value; }).Remote(i));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(refs[static_cast<std::size_t>(i)].Get(60s), 2 * i);
  EXPECT_EQ(std::filesystem::file_size(file_.path() + "/kills"), 6U);
}

}  // namespace
}  // namespace manta::testing
