#include "between.h"

#include <memory>
#include <random>
#include <span>

#include "harness.h"
#include "work.h"

namespace bench {
namespace {

using Words = manta::Array<std::uint64_t>;

Reply Work(std::uint64_t index) { return Answer(index); }
std::string WhoReads(const Words& words, std::uint64_t mark) {
  return words.front() == mark && words.back() == mark ? manta::CurrentContext().node : "";
}
Words Make(std::size_t bytes, std::uint64_t mark) { return Words(bytes / 8, mark); }

auto WorkOn(std::size_t node) { return manta::Task(Work).SetResource(Nodes::Name(node), 1); }
auto ReadOn(std::size_t node) { return manta::Task(WhoReads).SetResource(Nodes::Name(node), 1); }

class Clerk {
 public:
  double Time() { return Now(); }
  void Rest(double ms) { SleepMs(ms); }
};

// Memory that is there already; the caller's puts copy out of it.
manta::Ref<Words> PutWords(std::size_t bytes, std::uint64_t mark) {
  static std::vector<std::uint64_t> source;
  if (source.size() < bytes / 8) source.resize(bytes / 8);
  source[0] = source[bytes / 8 - 1] = mark;
  return manta::Put(std::span<const std::uint64_t>(source).first(bytes / 8));
}

void Expect(const std::string& said, const std::string& node) {
  if (said != node) Fail("a task for " + node + " ran on '" + said + "', or its argument was wrong");
}

}  // namespace

double FarSyncUs(double seconds, std::size_t node) {
  auto work = WorkOn(node);
  Tally tally;
  std::vector<double> samples;
  tally.Add(work.Remote(std::uint64_t{0}).Get(), 0);  // the lease, the connection
  for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
    const std::uint64_t index = samples.size();
    const double begin = Now();
    tally.Add(work.Remote(index).Get(), index);
    samples.push_back(Now() - begin);
  }
  tally.Finish(samples.size() + 1);
  return Percentile(samples, 0.5) * 1e6;
}

double FarAsync(double seconds, std::size_t node) {
  auto work = WorkOn(node);
  Tally tally;
  constexpr std::size_t kDeep = 10'000;
  std::vector<manta::Ref<Reply>> refs(kDeep);
  std::uint64_t next = 0;
  const auto batch = [&](std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) refs[i] = work.Remote(next + i);
    for (std::size_t i = 0; i < count; ++i) tally.Add(refs[i].Get(), next + i);
    next += count;
  };
  batch(kBatch);  // the lease, the connection, how fast it is
  const std::uint64_t before = next;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds; now = Now()) batch(kDeep);
  tally.Finish(next);
  return static_cast<double>(next - before) / (now - begin);
}

double FarReplyUs(double seconds, std::size_t node) {
  auto clerk = manta::Actor<Clerk>().SetResource(Nodes::Name(node), 1).Remote();
  clerk.Task(&Clerk::Rest).Remote(0.0).Get();
  std::vector<double> samples;
  for (const double end = Now() + seconds; samples.size() < 5 || Now() < end;) {
    const manta::Ref<void> before = clerk.Task(&Clerk::Rest).Remote(5.0);  // until the other two are there
    const manta::Ref<double> quick = clerk.Task(&Clerk::Time).Remote();
    const manta::Ref<void> slow = clerk.Task(&Clerk::Rest).Remote(20.0);
    const double ran = quick.Get();
    samples.push_back(Now() - ran);
    slow.Get();
  }
  return Percentile(samples, 0.5) * 1e6;
}

double Transfer(std::size_t bytes, std::size_t node) {
  auto read = ReadOn(node);
  std::vector<double> samples;
  for (std::uint64_t i = 0; i < 20; ++i) {
    const manta::Ref<Words> small = PutWords(64, i);
    const double begin = Now();
    Expect(read.Remote(small, i).Get(), Nodes::Name(node));
    samples.push_back(Now() - begin);
  }
  const manta::Ref<Words> large = PutWords(bytes, 7);
  const double begin = Now();
  Expect(read.Remote(large, std::uint64_t{7}).Get(), Nodes::Name(node));
  return static_cast<double>(bytes) / 1e9 / (Now() - begin - Percentile(samples, 0.5));
}

BroadcastRun Broadcast(const Nodes& nodes, std::size_t bytes) {
  std::vector<manta::Ref<std::string>> refs(nodes.count() + 1);
  const auto all = [&](const manta::Ref<Words>& object, std::uint64_t mark) {
    for (std::size_t node = 2; node <= nodes.count(); ++node) refs[node] = ReadOn(node).Remote(object, mark);
    for (std::size_t node = 2; node <= nodes.count(); ++node) Expect(refs[node].Get(), Nodes::Name(node));
  };
  all(PutWords(64, 1), 1);  // leases and connections
  const manta::Ref<Words> object = PutWords(bytes, 2);
  const double before = nodes.Status(1, "bytes_sent");
  const double begin = Now();
  all(object, 2);
  const double seconds = Now() - begin;
  return {seconds, (nodes.Status(1, "bytes_sent") - before) / static_cast<double>(bytes)};
}

LocalityRun Locality(std::size_t bytes, std::size_t tasks, bool aware, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> samples;
  double sum = 0;
  double beside = 0;
  // The first few pay for leases and connections.
  const std::size_t warm = 4;
  for (std::uint64_t i = 0; i < tasks + warm; ++i) {
    const std::size_t holder = 1 + (random() >> 40) % 2;
    const std::size_t other = 1 + (random() >> 40) % 2;
    const manta::Ref<Words> object = manta::Task(Make).SetResource(Nodes::Name(holder), 1).Remote(bytes, i);
    if (manta::Wait(std::vector{object}, 1).ready.empty()) Fail("an argument was not made");
    const double begin = Now();
    const std::string where =
        aware ? manta::Task(WhoReads).Remote(object, i).Get() : ReadOn(other).Remote(object, i).Get();
    const double took = Now() - begin;
    if (where.empty()) Fail("a task got a wrong argument");
    if (i < warm) continue;
    samples.push_back(took);
    sum += took;
    if (where == Nodes::Name(holder)) ++beside;
  }
  const auto count = static_cast<double>(samples.size());
  return {sum / count * 1e6, Percentile(samples, 0.5) * 1e6, beside / count};
}

}  // namespace bench
