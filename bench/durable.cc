// What lineage on disk costs (doc/lineage.md): tasks of a job with a name beside those of one without, and how long
// until all that was seen is on disk, beside a bare sync of the same disk.
#include <fcntl.h>
#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "lineage.h"
#include "nodes.h"
#include "rooms.h"
#include "work.h"

namespace bench {
namespace {

constexpr std::size_t kSynced = 64 << 10;

Reply Work(std::uint64_t index) { return Answer(index); }

// A private cluster whose job has this name; empty: none.
class Job {
 public:
  explicit Job(const std::string& name) {
    const char* before = std::getenv("MANTA_SECRETS");
    if (before != nullptr) before_ = before;
    had_ = before != nullptr;
    setenv("MANTA_SECRETS", folder_.path().c_str(), 1);
    manta::Config config;
    config.address = "private";
    config.job = name;
    manta::Init(config);
  }
  ~Job() {
    manta::Shutdown();
    if (had_) {
      setenv("MANTA_SECRETS", before_.c_str(), 1);
    } else {
      unsetenv("MANTA_SECRETS");
    }
  }
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

 private:
  TemporaryFolder folder_;
  std::string before_;
  bool had_ = false;
};

// Calls per second, until the time is up or `stop`.
double Async(double seconds, const std::atomic<bool>* stop = nullptr) {
  auto work = manta::Task(Work);
  Tally tally;
  std::vector<manta::Ref<Reply>> refs(kBatch);
  std::uint64_t next = 0;
  const double begin = Now();
  double now = begin;
  for (; now - begin < seconds && (stop == nullptr || !stop->load(std::memory_order_relaxed)); now = Now()) {
    for (std::size_t i = 0; i < kBatch; ++i) refs[i] = work.Remote(next + i);
    for (std::size_t i = 0; i < kBatch; ++i) tally.Add(refs[i].Get(), next + i);
    next += kBatch;
  }
  tally.Finish(next);
  return static_cast<double>(next) / (now - begin);
}

double AsyncOf(const std::string& job, double seconds) {
  const Job started(job);
  Async(seconds / 5);  // workers are there, and the disk has been woken
  return Async(seconds);
}

// From Commit to its return while another thread submits as fast as it can: median and 99th of a hundred, ms.
std::vector<double> Commits(double seconds) {
  const Job started("bench");
  std::atomic<bool> stop{false};
  std::exception_ptr error;
  std::thread submitter([&] {
    try {
      Async(3600, &stop);
    } catch (...) {
      error = std::current_exception();
    }
  });
  std::vector<double> samples;
  try {
    for (const double end = Now() + seconds; samples.size() < 20 || Now() < end;) {
      const double begin = Now();
      manta::Commit();
      samples.push_back((Now() - begin) * 1e3);
    }
  } catch (...) {
    error = std::current_exception();
  }
  stop = true;
  submitter.join();
  if (error) std::rethrow_exception(error);
  return {Percentile(samples, 0.5), Percentile(samples, 0.99)};
}

// Appends as much as a commit does, and syncs: the median, ms.
double BareSyncMs(double share) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/file";
  const int fd = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) Fail("cannot write " + path);
  const std::string bytes(kSynced, 'x');
  std::vector<double> samples;
  bool ok = true;
  for (int i = 0; ok && i < 100; ++i) {
    const double begin = Now();
    ok = write(fd, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) && fdatasync(fd) == 0;
    samples.push_back((Now() - begin) * 1e3);
  }
  close(fd);
  if (!ok) Fail("cannot write " + path);
  return Percentile(samples, share);
}

}  // namespace

void AddDurable(Suite& suite) {
  suite.Add({.metrics = {{"single_client_tasks_async_durable",
                          "tasks/s",
                          {"the same tasks of a job without a name", [] { return AsyncOf("", 0.5); }}}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = [](double seconds) { return std::vector<double>{AsyncOf("bench", std::max(seconds, 0.5))}; }});
  for (const bool plain : {true, false}) {
    suite.Add({.metrics = {{plain ? "lineage_records" : "lineage_records_random_bytes",
                            "/s",
                            {"tasks of a job without a name", [] { return AsyncOf("", 0.5); }}}},
               .cluster = Cluster::kDown,
               .run = [plain](double seconds) {
                 return std::vector<double>{LineagePerSecond(std::max(seconds, 0.5), plain)};
               }});
  }
  suite.Add({.metrics = {{"commit_under_load", "ms", {"64 KB and fdatasync", [] { return BareSyncMs(0.5); }}},
                         {"commit_under_load_p99", "ms", {"64 KB and fdatasync", [] { return BareSyncMs(0.99); }}}},
             .cluster = Cluster::kDown,
             .warm_up = false,
             .run = Commits});
}

}  // namespace bench
