// Many of something at once: a million queued tasks, ten thousand arguments, thousands of results.
#include <manta/manta.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

constexpr std::size_t kQueued = 1'000'000;
constexpr std::size_t kArguments = 10'000;
constexpr std::size_t kReturns = 3'000;
constexpr std::size_t kWaits = 1'000;

Reply Work(std::uint64_t index) { return Answer(index); }

// Holds its CPU until it is cancelled.
bool Hold() {
  while (!manta::CancelRequested()) SleepMs(1);
  return true;
}

std::uint64_t SumAll(const std::vector<std::uint64_t>& values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

std::vector<std::uint64_t> Numbers(std::uint64_t count) {
  std::vector<std::uint64_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), std::uint64_t{0});
  return numbers;
}

std::vector<manta::Ref<std::uint64_t>> PutNumbers(std::uint64_t count) {
  std::vector<manta::Ref<std::uint64_t>> refs;
  refs.reserve(count);
  for (std::uint64_t i = 0; i < count; ++i) refs.push_back(manta::Put(i));
  return refs;
}

// Anonymous, file and shared memory that this process has touched, in bytes.
double ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long long total = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%llu %llu", &total, &resident) != 2) Fail("cannot read /proc/self/statm");
  std::fclose(file);
  return static_cast<double>(resident) * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// p50 of `once` in ms, until the time is up.
template <typename Once>
double Median(double seconds, Once once) {
  std::vector<double> samples;
  const double end = Now() + seconds;
  while (samples.size() < 3 || Now() < end) samples.push_back(once());
  return Percentile(samples, 0.5) * 1e3;
}

// Memory that an earlier run gave back would hide what this one takes: each runs in a new process.
std::vector<double> QueuedInOwnProcess() {
  int ends[2];
  if (::pipe2(ends, 0) != 0) Fail(std::string("cannot make a pipe: ") + std::strerror(errno));
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addclose(&actions, ends[0]);
  ::posix_spawn_file_actions_addclose(&actions, ends[1]);
  char self[] = "/proc/self/exe", option[] = "--probe-queued";
  char* arguments[] = {self, option, nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, self, &actions, nullptr, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) Fail(std::string("cannot start myself again: ") + std::strerror(error));
  std::FILE* output = ::fdopen(ends[0], "r");
  double seconds = 0, bytes = 0;
  const int read = std::fscanf(output, "%lf %lf", &seconds, &bytes);
  std::fclose(output);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (read != 2 || status != 0) Fail("the process that queues a million tasks failed (see above)");
  return {seconds, bytes};
}

// Put all, pass all, get the sum.
double Arguments() {
  const double begin = Now();
  const std::uint64_t sum = manta::Task(SumAll).Remote(PutNumbers(kArguments)).Get();
  const double elapsed = Now() - begin;
  if (sum != kArguments * (kArguments - 1) / 2) Fail("the sum of 10,000 arguments is wrong");
  return elapsed;
}

double Returns() {
  const double begin = Now();
  const std::vector<std::uint64_t> values = manta::Get(manta::Task(Numbers).RemoteEach(kReturns, kReturns));
  const double elapsed = Now() - begin;
  for (std::size_t i = 0; i < kReturns; ++i) {
    if (values[i] != i) Fail("return value " + std::to_string(i) + " is wrong");
  }
  return elapsed;
}

// 10,000 results of tasks, submitted and read at once.
double GetMany() {
  auto work = manta::Task(Work);
  Tally tally;
  std::vector<manta::Ref<Reply>> refs;
  refs.reserve(kArguments);
  const double begin = Now();
  for (std::size_t i = 0; i < kArguments; ++i) refs.push_back(work.Remote(i));
  const std::vector<Reply> replies = manta::Get(refs);
  for (std::size_t i = 0; i < kArguments; ++i) tally.Add(replies[i], i);
  const double elapsed = Now() - begin;
  tally.Finish(kArguments);
  return elapsed;
}

// The value that holds the Refs is ready; its first Get is timed, the values behind them are checked after.
double GetContaining() {
  const manta::Ref<std::vector<manta::Ref<std::uint64_t>>> outer = manta::Task(PutNumbers).Remote(kArguments);
  manta::Wait(std::vector{outer}, 1);
  const double begin = Now();
  const std::vector<manta::Ref<std::uint64_t>> refs = outer.Get();
  const double elapsed = Now() - begin;
  if (refs.size() != kArguments) Fail("the list of Refs has another length");
  const std::vector<std::uint64_t> values = manta::Get(refs);
  for (std::size_t i = 0; i < kArguments; ++i) {
    if (values[i] != i) Fail("the value behind Ref " + std::to_string(i) + " is wrong");
  }
  return elapsed;
}

// As in Ray: 1,000 tasks, then Wait for one at a time until none is left.
double WaitOneByOne() {
  auto work = manta::Task(Work);
  Tally tally;
  std::vector<manta::Ref<Reply>> rest;
  const double begin = Now();
  for (std::size_t i = 0; i < kWaits; ++i) rest.push_back(work.Remote(i));
  while (!rest.empty()) {
    manta::WaitResult<Reply> result = manta::Wait(rest, 1);
    if (result.ready.size() != 1) Fail("Wait for one gave " + std::to_string(result.ready.size()));
    const Reply reply = result.ready[0].Get();
    tally.Add(reply, reply.index);
    rest = std::move(result.rest);
  }
  const double elapsed = Now() - begin;
  tally.Finish(kWaits);
  return elapsed;
}

}  // namespace

int QueuedProbe() {
  ::alarm(170);  // ends before the one who waits for it gives up
  manta::Init();
  auto work = manta::Task(Work);
  for (std::uint64_t i = 0; i < kBatch; ++i) work.Remote(i).Get();
  // Every CPU is held, so that the million really queues up.
  std::vector<manta::Ref<bool>> holders;
  const auto cpus = static_cast<std::size_t>(manta::ClusterResources()["CPU"]);
  for (std::size_t i = 0; i < cpus; ++i) holders.push_back(manta::Task(Hold).SetRetries(0).Remote());
  SleepMs(100);
  std::vector<manta::Ref<Reply>> refs;
  refs.reserve(kQueued);
  Tally tally;
  const double before = ResidentBytes();
  const double begin = Now();
  for (std::size_t i = 0; i < kQueued; ++i) refs.push_back(work.Remote(i));
  const double submitted = Now() - begin;
  const double bytes = (ResidentBytes() - before) / kQueued;
  if (!manta::Wait(std::vector{refs.front()}, 1, manta::Micros(0)).ready.empty()) {
    Fail("the tasks were to queue up behind ones that hold every CPU, but ran");
  }
  const double resumed = Now();
  for (const auto& holder : holders) manta::Cancel(holder);
  for (std::size_t i = 0; i < kQueued; ++i) tally.Add(refs[i].Get(), i);
  const double seconds = submitted + (Now() - resumed);
  tally.Finish(kQueued);
  for (const auto& holder : holders) static_cast<void>(manta::TryGet(holder));
  refs.clear();
  manta::Shutdown();
  std::printf("%.6f %.3f\n", seconds, bytes);
  return 0;
}

void AddLimits(Suite& suite, Baselines& baselines) {
  const auto row = [&](const std::string& name, Baseline baseline, double (*once)()) {
    suite.Add({.metrics = {{name, "ms", std::move(baseline)}},
               .run = [once](double seconds) { return std::vector<double>{Median(seconds, once)}; }});
  };
  suite.Add(
      {.metrics = {{"queued_1m_tasks",
                    "s",
                    {"raw ring, window 1000", [ring = baselines.RingMs(kQueued)] { return ring.measure() / 1e3; }}},
                   {"queued_1m_tasks_bytes_per_task", "bytes", baselines.RingSlotBytes()}},
       .cluster = Cluster::kDown,
       .warm_up = false,
       .run = [](double) { return QueuedInOwnProcess(); }});
  row("args_10k", baselines.RingMs(kArguments), Arguments);
  row("returns_3k", baselines.RingMs(kReturns), Returns);
  row("get_10k", baselines.RingMs(kArguments), GetMany);
  row("get_containing_10k_refs", baselines.MallocMs(64, kArguments), GetContaining);
  row("wait_1k_refs", baselines.RingMs(kWaits), WaitOneByOne);
}

}  // namespace bench
