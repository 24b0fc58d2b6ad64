// How deaths are noticed, and what time has to do with it. Limits are those of a busy machine; what it took at best is
// printed, and measured by manta-bench (notice_*, control_restart).
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <thread>

#include "cluster_fixture.h"

namespace manta::testing {
namespace {

// Says when, where and as whom it begins, then waits for the sign.
int Begin(const std::string& path, const std::string& stop) {
  std::ostringstream line;
  line << getpid() << ' ' << CurrentContext().node << ' ' << Now() << '\n';
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (write(file, line.str().data(), line.str().size()) < 0) std::abort();
  close(file);
  Sign::Await(stop);
  return 1;
}

struct Begun {
  pid_t pid = 0;
  std::string node;
  std::int64_t at = 0;
};

std::vector<Begun> Read(const std::string& path) {
  std::vector<Begun> all;
  for (const std::string& line : Lines(ReadFile(path))) {
    std::istringstream words(line);
    Begun one;
    if (words >> one.pid >> one.node >> one.at) all.push_back(one);
  }
  return all;
}

std::string WhereAmI() { return CurrentContext().node; }

std::vector<pid_t> FamilyOf(pid_t parent, const std::string& mark) {
  std::vector<pid_t> family{parent};
  const std::vector<Process> all = Marked(mark);
  for (std::size_t i = 0; i < family.size(); ++i) {
    for (const Process& process : all) {
      if (process.parent == family[i]) family.push_back(process.pid);
    }
  }
  return family;
}

double Milliseconds(std::int64_t from, std::int64_t to) {
  return std::chrono::duration<double, std::milli>(Clock::duration(to - from)).count();
}

class Notice : public ClusterFixture {
 protected:
  void StartThree() {
    Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"});
    for (const char* name : {"n2", "n3"}) {
      Start({"--join", Head(), "--cpus", "1", "--name", name, "--resource", "far=1"});
    }
    Init();
  }
  // A task that runs there, and begins again when `breaks` has done its work. How long that took, in milliseconds.
  double BeginAgain(int attempt, const std::string& resource, const std::function<void(const Begun&)>& breaks) {
    const std::string path = folder_.path() + "/begun-" + std::to_string(attempt);
    const std::string stop = path + ".stop";
    auto task = Task(Begin);
    if (!resource.empty()) task.SetResource(resource, 1);
    const Ref<int> ref = task.Remote(path, stop);
    EXPECT_TRUE(Eventually([&] { return Read(path).size() == 1; }, 60s));
    const Begun first = Read(path).at(0);
    const std::int64_t begin = Now();
    breaks(first);
    EXPECT_TRUE(Eventually([&] { return Read(path).size() == 2; }, 60s));
    Sign::Give(stop);
    EXPECT_EQ(ref.Get(60s), 1);
    const std::vector<Begun> all = Read(path);
    EXPECT_EQ(all.size(), 2U);
    return all.size() < 2 ? 1e9 : Milliseconds(begin, all[1].at);
  }
};

TEST_F(Notice, TheDeathOfAWorkerIsNoticedAtOnce) {
  StartThree();
  double best = 1e9;
  for (int i = 0; i < 10; ++i) {
    best = std::min(best, BeginAgain(i, "", [](const Begun& first) { kill(first.pid, SIGKILL); }));
  }
  std::printf("a task whose worker was killed began again after %.1f ms at best\n", best);
  EXPECT_LT(best, 1000 * kSlow);
}

TEST_F(Notice, TheDeathOfADaemonIsNoticedAtOnce) {
  StartThree();
  const double took = BeginAgain(0, "far", [&](const Begun& first) { kill(PidOf("node", first.node), SIGKILL); });
  std::printf("a task whose node's daemon was killed began again after %.1f ms\n", took);
  EXPECT_LT(took, 2500 * kSlow) << "that is silence, not a closed connection";
}

TEST_F(Notice, ASilentNodeIsNoticedWithinThreeSecondsAndEndsWhenItIsBack) {
  StartThree();
  std::vector<pid_t> stopped;
  const double took = BeginAgain(0, "far", [&](const Begun& first) {
    stopped = FamilyOf(PidOf("node", first.node), mark_);
    for (const pid_t pid : stopped) kill(pid, SIGSTOP);
  });
  std::printf("a task whose node fell silent began again after %.1f ms\n", took);
  EXPECT_GT(took, 2500) << "before it could have ended itself";
  EXPECT_LT(took, 10'000 * kSlow);
  for (const pid_t pid : stopped) kill(pid, SIGCONT);
  EXPECT_TRUE(Eventually([&] { return std::none_of(stopped.begin(), stopped.end(), Alive); }, 30s));
}

TEST_F(Notice, AHeadThatIsKilledAndStartedAgainDisturbsNoTaskAndTakesNewOnes) {
  StartThree();
  const std::string path = folder_.path() + "/begun";
  const std::string stop = path + ".stop";
  const Ref<int> running = Task(Begin).SetResource("far", 1).Remote(path, stop);
  ASSERT_TRUE(Eventually([&] { return Read(path).size() == 1; }, 60s));
  double best = 1e9;
  for (int i = 1; i <= 3; ++i) {
    KillHead();
    const std::int64_t begin = Now();
    ASSERT_NE(Manta({"start", "--head"}), "");
    // Of a kind that nobody there serves yet: only the head knows where there is room.
    EXPECT_NE(Task(WhereAmI).SetCpus(0.1 * i).SetResource("far", 0.1).Remote().Get(60s), "n1");
    best = std::min(best, Milliseconds(begin, Now()));
  }
  std::printf("a head that was killed was started again, and placed a task, within %.1f ms at best\n", best);
  EXPECT_LT(best, 10'000 * kSlow);
  Sign::Give(stop);
  EXPECT_EQ(running.Get(60s), 1);
  EXPECT_EQ(Read(path).size(), 1U) << "it ran twice";
}

// Longer than the lease of its nodes: they stand still, and go on when it does, because it has given nobody up.
TEST_F(Notice, AHeadThatStallsForSecondsFindsItsNodesAsTheyWere) {
  StartThree();
  const std::string path = folder_.path() + "/begun";
  const std::string stop = path + ".stop";
  const Ref<int> running = Task(Begin).SetResource("far", 1).Remote(path, stop);
  ASSERT_TRUE(Eventually([&] { return Read(path).size() == 1; }, 60s));
  const pid_t worker = Read(path).at(0).pid;
  const auto worker_stands = [&] { return LookAt(worker).state == 'T'; };
  kill(PidOf("control", ""), SIGSTOP);
  EXPECT_TRUE(Eventually(worker_stands, 30s)) << "its node's lease is over";
  std::this_thread::sleep_for(1s);  // in all longer than a silent node has before it is given up
  kill(PidOf("control", ""), SIGCONT);
  EXPECT_TRUE(Eventually([&] { return !worker_stands(); }, 30s));
  Sign::Give(stop);
  EXPECT_EQ(running.Get(60s), 1);
  EXPECT_EQ(Read(path).size(), 1U) << "it ran twice";
  for (const char* name : {"n1", "n2", "n3"}) EXPECT_TRUE(Alive(PidOf("node", name))) << name;
}

// ---- clocks ----

class Adder {
 public:
  int Add(int by) { return sum_ += by; }
  MANTA_FIELDS(sum_)

 private:
  int sum_ = 0;
};

int Sleep(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  return milliseconds;
}

// A driver whose clock, as that of all the cluster, jumps all the time.
TEST(DISABLED_Driver, WorksWhileClocksJump) {
  Config config;
  config.address = std::getenv("MANTA_TEST_ADDRESS");
  Init(config);
  const auto begin = std::chrono::steady_clock::now();
  const auto wall = std::chrono::system_clock::now();
  bool jumped = false;
  auto adder = Actor<Adder>().CheckpointEvery(50ms).SetResource("far", 0.1).Remote();
  int sum = 0;
  while (std::chrono::steady_clock::now() - begin < 6s) {
    std::vector<Ref<int>> refs;
    for (int i = 0; i < 8; ++i) refs.push_back(Task(Sleep).SetTimeout(20s).Remote(10));
    refs.push_back(Task(Sleep).SetResource("far", 0.1).SetTimeout(20s).Remote(10));
    for (const Ref<int>& ref : refs) EXPECT_EQ(ref.Get(30s), 10);
    EXPECT_EQ(adder.Task(&Adder::Add).Remote(1).Get(30s), ++sum);
    const auto apart = (std::chrono::system_clock::now() - wall) - (std::chrono::steady_clock::now() - begin);
    jumped = jumped || std::chrono::abs(apart) > 1h;
  }
  EXPECT_TRUE(jumped) << "the clock of this process does not jump";
  // A time limit is neither over at once nor never.
  EXPECT_THROW(Task(Sleep).SetRetries(0).SetTimeout(300ms).Remote(20'000).Get(30s), TimeoutError);
  Shutdown();
}

TEST_F(Notice, ClocksThatJumpChangeNothing) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer wants to be preloaded first";
  const std::string path = folder_.path() + "/clock";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(ftruncate(file, sizeof(std::int64_t)), 0);
  auto* offset = static_cast<std::atomic<std::int64_t>*>(
      mmap(nullptr, sizeof(std::int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  close(file);
  ASSERT_NE(static_cast<void*>(offset), MAP_FAILED);
  const std::string library = ProgramFolder() + "/" + MANTA_JUMPING_CLOCK;
  setenv("MANTA_TEST_CLOCK", path.c_str(), 1);
  setenv("LD_PRELOAD", library.c_str(), 1);
  Start({"--head", "--listen", "127.0.0.1:0", "--cpus", "2", "--name", "n1"});
  Start({"--join", Head(), "--cpus", "1", "--name", "n2", "--resource", "far=1"});
  const std::string address = "@manta-" + std::to_string(getuid()) + "-" + std::to_string(PidOf("node", "n1"));
  Child driver("/proc/self/exe",
               {"--gtest_also_run_disabled_tests", "--gtest_filter=DISABLED_Driver.WorksWhileClocksJump"},
               {"MANTA_TEST_ADDRESS=" + address});
  unsetenv("LD_PRELOAD");
  const std::array<pid_t, 3> processes{PidOf("control", ""), PidOf("node", "n1"), PidOf("node", "n2")};
  // An hour, a day, a year, ahead and back.
  for (std::int64_t i = 0; !driver.Ended(); ++i) {
    constexpr std::int64_t kJumps[] = {3600, -3600, 86'400, -86'400, 31'536'000, -31'536'000, 0};
    offset->store(kJumps[i % 7]);
    std::this_thread::sleep_for(50ms);
  }
  offset->store(0);
  EXPECT_EQ(driver.Finish(), 0) << driver.Out() << driver.Err();
  for (const pid_t process : processes) EXPECT_TRUE(Alive(process));
  munmap(offset, sizeof(std::int64_t));
  unsetenv("MANTA_TEST_CLOCK");
}

}  // namespace
}  // namespace manta::testing
