// Values: small puts and gets, values of 1 KB to 1 MB, and gigabytes into the store and out of it.
#include <manta/manta.h>

#include <algorithm>
#include <string>
#include <vector>

#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

using Words = std::vector<std::uint64_t>;
using WordArray = manta::Array<std::uint64_t>;

Reply Work(std::uint64_t index) { return Answer(index); }

Words MakeWords(std::uint64_t bytes, std::uint64_t stamp) { return Words(bytes / sizeof(std::uint64_t), stamp); }

std::uint64_t SumWords(const WordArray& words) { return Sum(words.span()); }

// All of it would measure the reader's memory, not the store: ends and a sample of the middle.
void CheckWords(const WordArray& words, std::span<const std::uint64_t> expected) {
  if (words.size() != expected.size()) Fail("a value came back with another size");
  const std::size_t step = std::max<std::size_t>(1, expected.size() / 64);
  for (std::size_t i = 0; i < expected.size(); i += step) {
    if (words[i] != expected[i]) Fail("a value came back wrong at word " + std::to_string(i));
  }
  if (words.back() != expected.back()) Fail("a value came back wrong at its end");
}

// Time of the Puts (and of the values that they replace going away); each is read back outside of it.
double PutCalls(double seconds) {
  std::vector<manta::Ref<std::uint64_t>> refs(kBatch);
  std::uint64_t next = 0;
  double timed = 0;
  while (timed < seconds) {
    const double begin = Now();
    for (std::size_t i = 0; i < kBatch; ++i) refs[i] = manta::Put(next + i);
    timed += Now() - begin;
    for (std::size_t i = 0; i < kBatch; ++i) {
      if (refs[i].Get() != next + i) Fail("put " + std::to_string(next + i) + " came back as another value");
    }
    next += kBatch;
  }
  return static_cast<double>(next) / timed;
}

// Values that tasks in other processes made and that nobody has read yet; only the Gets are timed.
double GetCalls(double seconds) {
  constexpr std::size_t kValues = 10'000;
  auto work = manta::Task(Work);
  Tally tally;
  std::vector<manta::Ref<Reply>> refs(kValues);
  std::uint64_t count = 0;
  double timed = 0;
  const double start = Now();
  // Making the values takes longer than reading them: bounded by that, too.
  while (timed < seconds && (count == 0 || Now() - start < 4 * seconds)) {
    for (std::size_t i = 0; i < kValues; ++i) refs[i] = work.Remote(i);
    if (manta::Wait(refs, kValues).ready.size() != kValues) Fail("Wait without a limit came back early");
    const double begin = Now();
    for (std::size_t i = 0; i < kValues; ++i) tally.Add(refs[i].Get(), i);
    timed += Now() - begin;
    count += kValues;
  }
  tally.Finish(count);
  return static_cast<double>(count) / timed;
}

// Put, then Get, in this process; read in place.
double PutGet(double seconds, std::size_t bytes) {
  Words value = MakeWords(bytes, 7);
  std::vector<manta::Ref<WordArray>> refs(ValuesAtOnce(bytes));
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    for (std::size_t i = 0; i < refs.size(); ++i) {
      value.front() = value.back() = count + i;
      refs[i] = manta::Put(value);
    }
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const WordArray got = refs[i].Get();
      if (got.size() != value.size() || got.front() != count + i || got.back() != count + i) {
        Fail("a value of " + std::to_string(bytes) + " bytes came back wrong");
      }
    }
    count += refs.size();
  }
  return static_cast<double>(count) / (now - begin);
}

// Made by tasks in other processes, read here in place: the whole way.
double TaskReturns(double seconds, std::size_t bytes) {
  auto make = manta::Task(MakeWords);
  std::vector<manta::Ref<WordArray>> refs(ValuesAtOnce(bytes));
  std::uint64_t count = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    for (std::size_t i = 0; i < refs.size(); ++i) refs[i] = make.Remote(bytes, count + i);
    for (std::size_t i = 0; i < refs.size(); ++i) {
      const WordArray got = refs[i].Get();
      if (got.size() != bytes / 8 || got.front() != count + i || got.back() != count + i) {
        Fail("a result of " + std::to_string(bytes) + " bytes came back wrong");
      }
    }
    count += refs.size();
  }
  return static_cast<double>(count) / (now - begin);
}

// The memory of the value before is used again: what a program that puts often sees.
double PutGigabytes(double seconds, std::span<std::uint64_t> source) {
  manta::Ref<WordArray> ref;
  double timed = 0;
  int puts = 0;
  for (int round = 0; round < 4 || timed < seconds; ++round) {
    source.front() = source.back() = static_cast<std::uint64_t>(round);
    const double begin = Now();
    ref = {};
    ref = manta::Put(std::span<const std::uint64_t>(source));
    const double elapsed = Now() - begin;
    CheckWords(ref.Get(), source);
    if (round < 2) continue;  // the first ones touch new memory
    timed += elapsed;
    ++puts;
  }
  return static_cast<double>(source.size_bytes()) * puts / timed / 1e9;
}

// A cluster's first put, and the first look at it from another process.
std::vector<double> FirstPut(std::span<const std::uint64_t> source) {
  const std::uint64_t expected = Sum(source);
  manta::Init();
  const Words small(10, 1);
  if (manta::Task(SumWords).Remote(WordArray(std::span<const std::uint64_t>(small))).Get() != 10)
    Fail("wrong sum of 10 words");
  std::vector<double> results;
  {
    const double begin = Now();
    const manta::Ref<WordArray> ref = manta::Put(source);
    const double put = Now();
    const std::uint64_t sum = manta::Task(SumWords).Remote(ref).Get();
    const double read = Now();
    if (sum != expected) Fail("1 GB put here was read as something else in another process");
    CheckWords(ref.Get(), source);
    const auto gigabytes = static_cast<double>(source.size_bytes()) / 1e9;
    results = {gigabytes / (put - begin), gigabytes / (read - put)};
  }
  manta::Shutdown();
  return results;
}

// Puts in a process of its own.
class PutClient {
 public:
  std::uint64_t PutSmall(std::uint64_t count) {
    std::vector<manta::Ref<std::uint64_t>> refs(kBatch);
    for (std::uint64_t next = 0; next < count; next += kBatch) {
      for (std::size_t i = 0; i < kBatch; ++i) refs[i] = manta::Put(next + i);
      if (refs.back().Get() != next + kBatch - 1) Fail("a put came back as another value");
    }
    return count;
  }

  // In bytes.
  std::uint64_t PutLarge(std::uint64_t count, std::uint64_t bytes) {
    if (source_.empty()) source_ = MakeWords(bytes, 3);
    for (std::uint64_t i = 0; i < count; ++i) {
      source_.front() = source_.back() = i;
      large_ = {};
      large_ = manta::Put(std::span<const std::uint64_t>(source_));
      CheckWords(large_.Get(), source_);
    }
    return count * source_.size() * sizeof(std::uint64_t);
  }

 private:
  Words source_;
  manta::Ref<WordArray> large_;
};

// `call(client)` starts some work of that client; the sum of what they answer, per second.
template <typename Call>
double Clients(double seconds, Call call) {
  std::vector<manta::ActorHandle<PutClient>> clients;
  std::vector<manta::Ref<std::uint64_t>> refs;
  for (std::size_t i = 0; i < ClientCount(); ++i) {
    clients.push_back(manta::Actor<PutClient>().Remote());
    refs.push_back(call(clients.back()));
  }
  for (const auto& ref : refs) ref.Get();
  double total = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) {
    for (std::size_t i = 0; i < clients.size(); ++i) refs[i] = call(clients[i]);
    for (const auto& ref : refs) total += static_cast<double>(ref.Get());
  }
  return total / (now - begin);
}

}  // namespace

void AddObjects(Suite& suite, Baselines& baselines) {
  const auto row = [&](const std::string& name, const std::string& unit, Baseline baseline,
                       std::function<double(double)> run, bool warm_up = true) {
    suite.Add({.metrics = {{name, unit, std::move(baseline)}}, .warm_up = warm_up, .run = [run](double seconds) {
                 return std::vector<double>{run(seconds)};
               }});
  };
  row("single_client_put_calls", "puts/s", baselines.MallocPerSecond(8), PutCalls);
  row("single_client_get_calls", "gets/s", baselines.MallocPerSecond(sizeof(Reply), true), GetCalls);
  row("multi_client_put_calls", "puts/s", baselines.MallocPerSecond(8), [](double seconds) {
    return Clients(seconds, [](auto& client) { return client.Task(&PutClient::PutSmall).Remote(10 * kBatch); });
  });
  const struct {
    const char* name;
    std::size_t bytes;
  } sizes[] = {{"1kb", 1024}, {"10kb", 10 * 1024}, {"100kb", 100 * 1024}, {"1mb", 1024 * 1024}};
  for (const auto& [name, bytes] : sizes) {
    const std::size_t size = bytes;
    row(std::string("put_get_") + name, "values/s", baselines.MallocPerSecond(size, true),
        [size](double seconds) { return PutGet(seconds, size); });
    row(std::string("task_returns_") + name, "values/s", baselines.MallocPerSecond(size, true),
        [size](double seconds) { return TaskReturns(seconds, size); });
  }
  row(
      "single_client_put_gigabytes", "GB/s", baselines.CopyGBs(1),
      [&baselines](double seconds) { return PutGigabytes(seconds, baselines.Source()); }, false);
  row("multi_client_put_gigabytes", "GB/s", baselines.CopyGBs(2), [](double seconds) {
    return Clients(seconds,
                   [](auto& client) { return client.Task(&PutClient::PutLarge).Remote(4, 100 * 1024 * 1024); }) /
           1e9;
  });
  suite.Add({.metrics = {{"first_put_1gb", "GB/s", baselines.CopyGBs(1)},
                         {"first_read_1gb_other_process", "GB/s", baselines.ReadGBs()},
                         {"limit_copy_1gb_into_fresh_memory", "GB/s", baselines.CopyGBs(1)}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [&baselines](double) {
               // Memory that has been free for two seconds may be the host's again, which gives it back at 0.1 to 2
               // GB/s (doc/benchmarks.md). That is not what is asked here: so use some, and free it.
               static_cast<void>(baselines.FreshCopy());
               std::vector<double> results = FirstPut(baselines.Source());
               results.push_back(baselines.FreshCopy());
               return results;
             }});
}

}  // namespace bench
