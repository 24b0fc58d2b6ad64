// Tasks: rates with many in flight, latencies one at a time, and the variants that must not be slower.
#include <manta/manta.h>
#include <signal.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "clients.h"
#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

Reply Work(std::uint64_t index) { return Answer(index); }
Reply OtherWork(std::uint64_t index) { return Answer(index); }

Reply WorkOnText(const std::string& text) {
  std::uint64_t index = 0;
  if (text.size() == 100) std::memcpy(&index, text.data(), sizeof index);
  return Answer(index);
}

// One call in a hundred, the same ones in every run.
bool IsUnlucky(std::uint64_t index) { return (index * 0x9e3779b97f4a7c15ULL >> 32) % 100 == 0; }

Reply WorkOrThrow(std::uint64_t index) {
  if (IsUnlucky(index)) throw std::runtime_error("unlucky " + std::to_string(index));
  return Answer(index);
}
Reply WorkOrDie(std::uint64_t index) {
  if (IsUnlucky(index)) ::raise(SIGKILL);
  return Answer(index);
}

std::uint64_t Fib(std::uint64_t n) {
  if (n < 2) return n;
  const manta::Ref<std::uint64_t> a = manta::Task(Fib).Remote(n - 1);
  const manta::Ref<std::uint64_t> b = manta::Task(Fib).Remote(n - 2);
  return a.Get() + b.Get();
}

// Submits batches and gets each result, until the time is up: calls per second. `submit(i)` starts call i.
template <typename Submit>
double Batches(double seconds, std::size_t batch, Submit submit) {
  Tally tally;
  std::vector<manta::Ref<Reply>> refs(batch);
  std::uint64_t next = 0;
  const double begin = Now();
  double now = begin;
  while (now - begin < seconds) {
    for (std::size_t i = 0; i < batch; ++i) refs[i] = submit(next + i);
    for (std::size_t i = 0; i < batch; ++i) tally.Add(refs[i].Get(), next + i);
    next += batch;
    now = Now();
  }
  tally.Finish(next);
  return static_cast<double>(next) / (now - begin);
}

double Async(double seconds) {
  auto work = manta::Task(Work);
  return Batches(seconds, kBatch, [&](std::uint64_t i) { return work.Remote(i); });
}

double AsyncDeep(double seconds) {
  auto work = manta::Task(Work);
  return Batches(seconds, 100'000, [&](std::uint64_t i) { return work.Remote(i); });
}

double AsyncText(double seconds) {
  auto work = manta::Task(WorkOnText);
  std::string text(100, 'x');
  return Batches(seconds, kBatch, [&](std::uint64_t i) {
    std::memcpy(text.data(), &i, sizeof i);
    return work.Remote(text);
  });
}

// Each call gets a Ref to a value of its own that is there already, as Put gives it.
double AsyncRef(double seconds) {
  auto work = manta::Task(Work);
  std::vector<manta::Ref<std::uint64_t>> values;
  for (std::uint64_t i = 0; i < kBatch; ++i) values.push_back(manta::Put(i));
  Tally tally;
  std::vector<manta::Ref<Reply>> refs(kBatch);
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    for (std::size_t i = 0; i < kBatch; ++i) refs[i] = work.Remote(values[i]);
    for (std::size_t i = 0; i < kBatch; ++i) tally.Add(refs[i].Get(), i);
    count += kBatch;
  }
  tally.Finish(count);
  return static_cast<double>(count) / (now - begin);
}

double AsyncAlternating(double seconds) {
  auto work = manta::Task(Work);
  auto other = manta::Task(OtherWork);
  return Batches(seconds, kBatch, [&](std::uint64_t i) { return i % 2 == 0 ? work.Remote(i) : other.Remote(i); });
}

double AsyncTwoThreads(double seconds) {
  struct Submitter {
    Tally tally;
    std::uint64_t count = 0;
    std::exception_ptr error;
  };
  Submitter clients[2];
  const double begin = Now();
  const auto submit = [&](Submitter& client) {
    try {
      auto work = manta::Task(Work);
      std::vector<manta::Ref<Reply>> refs(kBatch);
      while (Now() - begin < seconds) {
        for (std::size_t i = 0; i < kBatch; ++i) refs[i] = work.Remote(client.count + i);
        for (std::size_t i = 0; i < kBatch; ++i) client.tally.Add(refs[i].Get(), client.count + i);
        client.count += kBatch;
      }
    } catch (...) {
      client.error = std::current_exception();
    }
  };
  std::thread second([&] { submit(clients[1]); });
  submit(clients[0]);
  second.join();
  const double elapsed = Now() - begin;
  for (const Submitter& client : clients) {
    if (client.error) std::rethrow_exception(client.error);
  }
  clients[0].tally.Merge(clients[1].tally);
  clients[0].tally.Finish(clients[0].count + clients[1].count);
  return static_cast<double>(clients[0].count + clients[1].count) / elapsed;
}

// The lucky calls must give what they always give; the others exactly the error `code`.
template <typename F>
double AsyncUnlucky(double seconds, F f, manta::Code code) {
  auto work = manta::Task(f);
  Tally tally;
  std::vector<manta::Ref<Reply>> refs(kBatch);
  std::uint64_t next = 0, lucky = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    for (std::size_t i = 0; i < kBatch; ++i) refs[i] = work.Remote(next + i);
    for (std::size_t i = 0; i < kBatch; ++i) {
      auto result = manta::TryGet(refs[i]);
      if (IsUnlucky(next + i)) {
        if (result.ok() || result.code() != code) Fail("call " + std::to_string(next + i) + " should have failed");
      } else if (!result.ok()) {
        Fail("call " + std::to_string(next + i) + " failed with the unlucky ones: " + result.message());
      } else {
        tally.Add(*result, next + i);
        ++lucky;
      }
    }
    next += kBatch;
  }
  tally.Finish(lucky, code == manta::Code::kWorkerCrashed);
  return static_cast<double>(next) / (now - begin);
}

// Get of the whole vector at once, as in Ray; counted in batches.
double GetBatch(double seconds) {
  auto work = manta::Task(Work);
  Tally tally;
  std::uint64_t batches = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now(), ++batches) {
    std::vector<manta::Ref<Reply>> refs;
    refs.reserve(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) refs.push_back(work.Remote(batches * kBatch + i));
    const std::vector<Reply> replies = manta::Get(refs);
    for (std::size_t i = 0; i < kBatch; ++i) tally.Add(replies[i], batches * kBatch + i);
  }
  tally.Finish(batches * kBatch);
  return static_cast<double>(batches) / (now - begin);
}

// One call at a time, after `idle_ms` of nothing: p50 and p99 in µs.
std::vector<double> Sync(double seconds, double idle_ms) {
  auto work = manta::Task(Work);
  Tally tally;
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    if (idle_ms > 0) SleepMs(idle_ms);
    const std::uint64_t index = samples.size();
    const double begin = Now();
    tally.Add(work.Remote(index).Get(), index);
    samples.push_back(Now() - begin);
  }
  tally.Finish(samples.size());
  return {Percentile(samples, 0.5) * 1e6, Percentile(samples, 0.99) * 1e6};
}

constexpr std::uint64_t kFib = 20, kFibValue = 6765, kFibTasks = 21891;

double NestedFib(double seconds) {
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.empty() || Now() < end;) {
    const double begin = Now();
    const std::uint64_t value = manta::Task(Fib).Remote(kFib).Get();
    samples.push_back(Now() - begin);
    if (value != kFibValue) Fail("fib(20) is 6765, not " + std::to_string(value));
  }
  return Percentile(samples, 0.5) * 1e3;
}

// A client in a process of its own, which submits tasks to workers.
class TaskClient {
 public:
  Tally Submit(std::uint64_t count) {
    auto work = manta::Task(Work);
    Tally tally;
    std::vector<manta::Ref<Reply>> refs(kBatch);
    for (std::uint64_t next = 0; next < count; next += kBatch) {
      for (std::size_t i = 0; i < kBatch; ++i) refs[i] = work.Remote(next + i);
      for (std::size_t i = 0; i < kBatch; ++i) tally.Add(refs[i].Get(), next + i);
    }
    return tally;
  }
};

double MultiClient(double seconds) {
  std::vector<manta::ActorHandle<TaskClient>> clients;
  for (std::size_t i = 0; i < ClientCount(); ++i) clients.push_back(manta::Actor<TaskClient>().Remote());
  return CallsPerSecond(seconds, clients, &TaskClient::Submit);
}

}  // namespace

void AddTasks(Suite& suite, Baselines& baselines) {
  const auto rate = [&](const std::string& name, double (*run)(double)) {
    suite.Add({.metrics = {{name, "tasks/s", baselines.RingPerSecond()}},
               .run = [run](double seconds) { return std::vector<double>{run(seconds)}; }});
  };
  suite.Add({.metrics = {{"single_client_tasks_sync", "us", baselines.RingTripUs()},
                         {"single_client_tasks_sync_p99", "us", baselines.RingTripUs()}},
             .run = [](double seconds) { return Sync(seconds, 0); }});
  suite.Add({.metrics = {{"single_client_tasks_sync_after_1ms_idle", "us", baselines.FutexTripUs()}},
             .run = [](double seconds) { return std::vector<double>{Sync(seconds, 1).front()}; }});
  rate("single_client_tasks_async", Async);
  rate("single_client_tasks_async_100k_deep", AsyncDeep);
  rate("single_client_tasks_async_100_byte_string", AsyncText);
  rate("single_client_tasks_async_ref_argument", AsyncRef);
  rate("single_client_tasks_async_two_functions", AsyncAlternating);
  rate("single_client_tasks_async_two_threads", AsyncTwoThreads);
  rate("single_client_tasks_async_1pct_throw",
       [](double seconds) { return AsyncUnlucky(seconds, WorkOrThrow, manta::Code::kTaskFailed); });
  rate("single_client_tasks_async_1pct_kill",
       [](double seconds) { return AsyncUnlucky(seconds, WorkOrDie, manta::Code::kWorkerCrashed); });
  suite.Add({.metrics = {{"tasks_and_get_batch", "batches/s", baselines.RingPerSecond(kBatch)}},
             .run = [](double seconds) { return std::vector<double>{GetBatch(seconds)}; }});
  rate("multi_client_tasks_async", MultiClient);
  suite.Add({.metrics = {{"nested_fib_20", "ms", baselines.RingMs(kFibTasks)}},
             .run = [](double seconds) { return std::vector<double>{NestedFib(seconds)}; }});
}

}  // namespace bench
