// Options of tasks: resources are never over-committed, requests that cannot fit say so at once,
// retries, timeouts and priorities do what they say.
#include "fixture.h"

namespace manta::testing {
namespace {

class Options : public ClusterTest {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = ClusterTest::MakeConfig();
    config.gpus = 2;
    config.resources["license"] = 3;
    return config;
  }
};

// When a task ran.
struct Span {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

Span Work(int milliseconds) {
  Span span;
  span.begin = Now();
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
  span.end = Now();
  return span;
}

// The most that ran at any one time.
int MostAtOnce(const std::vector<Span>& spans) {
  std::vector<std::pair<std::int64_t, int>> events;
  for (const Span& span : spans) {
    events.emplace_back(span.begin, 1);
    events.emplace_back(span.end, -1);
  }
  std::sort(events.begin(), events.end());
  int now = 0;
  int most = 0;
  for (const auto& [time, change] : events) most = std::max(most, now += change);
  return most;
}

template <typename Caller>
int MostAtOnce(Caller caller, int tasks, int milliseconds = 20 * kSlow) {
  std::vector<Ref<Span>> refs;
  for (int i = 0; i < tasks; ++i) refs.push_back(caller.Remote(milliseconds));
  return MostAtOnce(Get(refs));
}

TEST_F(Options, NoMoreTasksRunAtOnceThanThereAreCpus) { EXPECT_EQ(MostAtOnce(Task(Work), 12), 2); }

TEST_F(Options, ATaskOfTwoCpusRunsAlone) { EXPECT_EQ(MostAtOnce(Task(Work).SetCpus(2), 5), 1); }

TEST_F(Options, HalvesAndQuartersOfACpuAddUp) { EXPECT_EQ(MostAtOnce(Task(Work).SetCpus(0.5), 16), 4); }

TEST_F(Options, FractionsCountToTheTenThousandth) {
  // Two CPUs hold one 1.0001 and not two, although two of them exceed the total by only 0.0002.
  EXPECT_EQ(MostAtOnce(Task(Work).SetCpus(1.0001), 4), 1);
}

TEST_F(Options, AFractionFinerThanATenThousandthIsRefused) {
  const std::string text = MessageOf<InvalidError>([] { Task(Work).SetCpus(0.00001).Remote(1).Get(); });
  EXPECT_THAT(text, ::testing::HasSubstr("0.0001"));
}

TEST_F(Options, ANegativeAmountIsRefused) {
  EXPECT_THAT(MessageOf<InvalidError>([] { Task(Work).SetCpus(-1).Remote(1).Get(); }), ::testing::HasSubstr("-1"));
  EXPECT_THAT(MessageOf<InvalidError>([] { Task(Work).SetResource("license", -2).Remote(1).Get(); }),
              ::testing::HasSubstr("license"));
}

TEST_F(Options, ANamedResourceIsNeverOvercommitted) {
  EXPECT_LE(MostAtOnce(Task(Work).SetCpus(0.1).SetResource("license", 1), 12), 3);
  EXPECT_LE(MostAtOnce(Task(Work).SetCpus(0.1).SetResource("license", 2), 6), 1);
}

TEST_F(Options, TasksThatNeedDifferentThingsShareTheCpus) {
  std::vector<Ref<Span>> refs;
  for (int i = 0; i < 6; ++i) {
    refs.push_back(Task(Work).Remote(10));
    refs.push_back(Task(Work).SetResource("license", 1).Remote(10));
    refs.push_back(Task(Work).SetGpus(1).Remote(10));
  }
  EXPECT_LE(MostAtOnce(Get(refs)), 2);
}

TEST_F(Options, AnActorsCpusAreItsOwn) {
  struct Holder {
    int Ping() { return 1; }
  };
  auto holder = Actor<Holder>().SetCpus(1).Remote();
  ASSERT_EQ(holder.Task(&Holder::Ping).Remote().Get(), 1);
  EXPECT_EQ(MostAtOnce(Task(Work), 6), 1);
}

TEST_F(Options, ATaskSeesTheGpusItWasGiven) {
  auto see = [] {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return std::tuple(std::string(visible == nullptr ? "unset" : visible), CurrentContext().gpus);
  };
  auto [both, ids] = Task(see).SetGpus(2).Remote();
  EXPECT_EQ(both.Get(), "0,1");
  EXPECT_THAT(ids.Get(), ::testing::ElementsAre(0, 1));
  auto [none, no_ids] = Task(see).Remote();
  EXPECT_EQ(none.Get(), "");
  EXPECT_TRUE(no_ids.Get().empty());
}

class OptionsOnOneCpu : public Options {
 protected:
  [[nodiscard]] Config MakeConfig() const override {
    Config config = Options::MakeConfig();
    config.cpus = 1;
    return config;
  }
};

TEST_F(OptionsOnOneCpu, AWorkerForgetsTheGpusOfItsLastTask) {
  auto see = [] {
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    return std::string(visible == nullptr ? "unset" : visible);
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Task(see).SetGpus(2).Remote().Get(), "0,1");
    EXPECT_EQ(Task(see).Remote().Get(), "");
  }
}

TEST_F(Options, TwoTasksAtOnceNeverHaveTheSameGpu) {
  struct Use {
    Span span;
    std::string gpu;
  };
  auto use = [] {
    Use result;
    result.gpu = std::getenv("CUDA_VISIBLE_DEVICES");
    result.span = Work(10);
    return result;
  };
  std::vector<Ref<Use>> refs;
  for (int i = 0; i < 12; ++i) refs.push_back(Task(use).SetCpus(0.1).SetGpus(1).Remote());
  std::map<std::string, std::vector<Span>> by_gpu;
  for (const Use& one : Get(refs)) by_gpu[one.gpu].push_back(one.span);
  for (const auto& [gpu, spans] : by_gpu) {
    EXPECT_THAT(gpu, ::testing::AnyOf("0", "1"));
    EXPECT_EQ(MostAtOnce(spans), 1) << "GPU " << gpu;
  }
}

TEST_F(Options, HalvesOfAGpuShareOneDevice) {
  EXPECT_LE(MostAtOnce(Task(Work).SetCpus(0.1).SetGpus(0.5), 12), 4);
  auto see = [] { return std::string(std::getenv("CUDA_VISIBLE_DEVICES")); };
  EXPECT_THAT(Task(see).SetGpus(0.5).Remote().Get(), ::testing::AnyOf("0", "1"));
}

TEST_F(Options, ARequestThatCanNeverFitFailsAtOnceAndSaysWhatThereIs) {
  const std::string text = MessageOf<InfeasibleError>([] { Task(Work).SetCpus(64).Remote(1).Get(5s); });
  EXPECT_THAT(text, ::testing::HasSubstr("64"));
  EXPECT_THAT(text, ::testing::HasSubstr("CPU"));
  EXPECT_THAT(text, ::testing::HasSubstr("2"));
  const std::string named = MessageOf<InfeasibleError>([] { Task(Work).SetResource("tape", 1).Remote(1).Get(5s); });
  EXPECT_THAT(named, ::testing::HasSubstr("tape"));
  EXPECT_EQ(MostAtOnce(Task(Work), 2), 2) << "the cluster goes on";
}

TEST_F(Options, ClusterResourcesListsWhatThereIs) {
  const std::map<std::string, double> resources = ClusterResources();
  EXPECT_EQ(resources.at("CPU"), 2);
  EXPECT_EQ(resources.at("GPU"), 2);
  EXPECT_EQ(resources.at("license"), 3);
}

// Counts its runs in a file, one byte each.
int Attempt(const std::string& path) {
  std::ofstream(path, std::ios::app) << 'x';
  return static_cast<int>(ReadFile(path).size());
}

int DieUntil(const std::string& path, int run) {
  const int attempt = Attempt(path);
  if (attempt < run) raise(SIGKILL);
  return attempt;
}

int ThrowUntil(const std::string& path, int run) {
  const int attempt = Attempt(path);
  if (attempt < run) throw std::out_of_range("attempt " + std::to_string(attempt));
  return attempt;
}

TEST_F(Options, ATaskWhoseWorkerDiesIsRunAgainUpToThreeTimes) {
  const Sign runs;
  EXPECT_EQ(Task(DieUntil).Remote(runs.path(), 4).Get(), 4);
}

TEST_F(Options, WhenRetriesAreUsedUpTheCrashIsReported) {
  const Sign runs;
  Ref<int> ref = Task(DieUntil).SetRetries(1).Remote(runs.path(), 9);
  EXPECT_THROW(ref.Get(), WorkerCrashedError);
  EXPECT_EQ(ReadFile(runs.path()), "xx");
}

TEST_F(Options, WithoutRetriesATaskRunsOnce) {
  const Sign runs;
  EXPECT_THROW(Task(DieUntil).SetRetries(0).Remote(runs.path(), 2).Get(), WorkerCrashedError);
  EXPECT_EQ(ReadFile(runs.path()), "x");
}

TEST_F(Options, AnExceptionIsNotRetriedUnlessAsked) {
  const Sign runs;
  EXPECT_THROW(Task(ThrowUntil).Remote(runs.path(), 2).Get(), TaskError);
  EXPECT_EQ(ReadFile(runs.path()), "x");
}

TEST_F(Options, RetryOnRunsAgainAfterTheNamedExceptionsAndThoseDerivedFromThem) {
  const Sign derived;
  EXPECT_EQ(Task(ThrowUntil).RetryOn<std::logic_error>().Remote(derived.path(), 3).Get(), 3);
  const Sign other;
  EXPECT_THROW(Task(ThrowUntil).RetryOn<std::bad_alloc>().Remote(other.path(), 3).Get(), TaskError);
  EXPECT_EQ(ReadFile(other.path()), "x");
  const Sign limit;
  EXPECT_THROW(Task(ThrowUntil).RetryOn<std::out_of_range>().SetRetries(2).Remote(limit.path(), 9).Get(), TaskError);
  EXPECT_EQ(ReadFile(limit.path()), "xxx");
}

TEST_F(Options, ATaskThatOverrunsItsTimeoutIsKilledAndSaysSo) {
  Ref<Span> ref = Task(Work).SetName("sleeper").SetTimeout(50ms).SetRetries(0).Remote(60'000);
  const auto begin = Clock::now();
  const std::string text = MessageOf<TimeoutError>([&] { ref.Get(); });
  EXPECT_LT(Clock::now() - begin, 5s * kSlow);
  EXPECT_THAT(text, ::testing::HasSubstr("sleeper"));
  EXPECT_THAT(text, ::testing::HasSubstr("50 ms"));
}

TEST_F(Options, ATaskWhoseProcessIsStoppedRunsAgainAfterItsTimeout) {
  const Sign stopped;
  const auto task = [](const std::string& path) {
    if (!Sign::Given(path)) {
      Sign::Give(path);
      raise(SIGSTOP);
    }
    return 7;
  };
  EXPECT_EQ(Task(task).SetTimeout(500ms * kSlow).SetRetries(3).Remote(stopped.path()).Get(60s), 7);
  EXPECT_TRUE(Sign::Given(stopped.path()));
}

TEST_F(Options, ATimeoutIsKeptByATaskThatCannotBeStoppedAtOnce) {
  auto deaf = [] {
    // The parent waits in the kernel, deaf to all signals but SIGKILL, until the child of vfork() ends.
    if (vfork() == 0) {
      usleep(500'000);
      _exit(0);
    }
    for (;;) std::this_thread::sleep_for(1s);
  };
  Ref<void> ref = Task(deaf).SetName("deaf").SetTimeout(50ms).SetRetries(0).Remote();
  EXPECT_THAT(MessageOf<TimeoutError>([&] { ref.Get(40s); }), ::testing::HasSubstr("its timeout of 50 ms"));
}

TEST_F(Options, ATaskWithinItsTimeoutIsLeftAlone) { EXPECT_GT(Task(Work).SetTimeout(30s).Remote(1).Get().end, 0); }

TEST_F(Options, AmongWaitingTasksTheHigherPriorityGoesFirst) {
  // Both CPUs are kept busy while the others are lined up.
  const Sign go;
  auto hold = [](const std::string& path) { Sign::Await(path); };
  std::vector<Ref<void>> holders{Task(hold).SetCpus(2).Remote(go.path())};
  std::vector<Ref<Span>> low;
  for (int i = 0; i < 8; ++i) low.push_back(Task(Work).SetCpus(2).SetPriority(-1).Remote(2));
  Ref<Span> high = Task(Work).SetCpus(2).SetPriority(10).Remote(2);
  go.Give();
  const std::int64_t begin = high.Get().begin;
  int before = 0;
  for (const Span& span : Get(low)) before += span.begin < begin;
  EXPECT_LE(before, 1) << "one may have been claimed already";
}

TEST_F(Options, ATasksNameIsInItsErrors) {
  auto fail = [] { throw std::runtime_error("no luck"); };
  EXPECT_THAT(MessageOf<TaskError>([&] { Task(fail).SetName("lottery").Remote().Get(); }),
              ::testing::HasSubstr("lottery"));
}

}  // namespace
}  // namespace manta::testing
