// Figure 10a: a chain of two, one client with one request under way, a member killed at 4.2 s, another one that joins.
// The latency of reads and writes over ten seconds, and whether an acknowledged key is missing at the end.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/loop.h"
#include "control/chain_config.h"
#include "figure.h"
#include "harness.h"
#include "server_process.h"
#include "wire/control_client.h"

namespace {

using bench::ServerProcess;
using manta::Result;
using manta::base::Loop;
using manta::base::NowMicros;
using manta::wire::Table;
using paper::Figure;
using paper::Number;

constexpr std::size_t kMembers = 3;  // the last one comes later
constexpr std::size_t kKeyBytes = 25;
constexpr std::size_t kValueBytes = 512;

struct Sample {
  double at = 0;  // seconds
  double us = 0;
};
struct Timeline {
  std::vector<Sample> reads;
  std::vector<Sample> writes;
  double joined_at = 0;  // seconds; when the chain had two members again
  std::size_t missing = 0;
};

std::string KeyOf(std::size_t number) {
  std::string key = "key:" + std::to_string(number) + ":";
  key.resize(kKeyBytes, '.');
  return key;
}

void RunUntil(Loop& loop, const char* what, const std::function<bool()>& so) {
  const std::int64_t end = NowMicros() + 60'000'000;
  while (!so()) {
    if (NowMicros() > end) throw std::runtime_error(std::string("waited a minute for ") + what);
    loop.RunOnce(1'000);
  }
}

// Puts a new key, then gets one that was put before, and so on; one request under way.
class Client {
 public:
  Client(Loop& loop, const std::string& address) : client_(loop, manta::wire::ConnectLocally(address)) {}
  void Begin() {
    begin_us_ = NowMicros();
    Write();
  }
  void Stop() { stop_ = true; }
  [[nodiscard]] bool idle() const { return idle_; }
  [[nodiscard]] double Seconds() const { return static_cast<double>(NowMicros() - begin_us_) / 1e6; }
  [[nodiscard]] std::size_t written() const { return written_; }
  manta::wire::ControlClient& client() { return client_; }
  Timeline timeline;

 private:
  void Write() {
    const std::int64_t asked = NowMicros();
    client_.Put(Table::kKeyValue, KeyOf(written_), std::string(kValueBytes, 'v'),
                [this, asked](const Result<manta::wire::ControlWritten>& result) {
                  if (!result.ok()) throw std::runtime_error(result.status().message());
                  Note(&timeline.writes, asked);
                  ++written_;
                  if (!Ended()) Read();
                });
  }
  void Read() {
    const std::int64_t asked = NowMicros();
    client_.Get(Table::kKeyValue, KeyOf(written_ * 7919 % written_),
                [this, asked](const Result<manta::wire::ControlValue>& result) {
                  if (!result.ok()) throw std::runtime_error(result.status().message());
                  if (result.value().value.size() != kValueBytes) ++timeline.missing;
                  Note(&timeline.reads, asked);
                  if (!Ended()) Write();
                });
  }
  void Note(std::vector<Sample>* samples, std::int64_t asked) const {
    const std::int64_t now = NowMicros();
    samples->push_back({static_cast<double>(now - begin_us_) / 1e6, static_cast<double>(now - asked)});
  }
  bool Ended() { return idle_ = stop_; }

  manta::wire::ControlClient client_;
  std::int64_t begin_us_ = 0;
  std::size_t written_ = 0;
  bool stop_ = false;
  bool idle_ = false;
};

Timeline Run(const std::string& folder, bool redis, double seconds, double kill_at) {
  Result<std::unique_ptr<Loop>> made = Loop::Create();
  if (!made.ok()) throw std::runtime_error(made.status().message());
  Loop& loop = **made;
  std::filesystem::create_directory(folder);
  const std::string name = "@manta-fig10a-" + std::to_string(getpid()) + (redis ? "-r" : "-e");
  ServerProcess servers[kMembers];
  ServerProcess members[kMembers];
  ServerProcess front;
  std::string addresses;
  const auto start = [&](std::size_t i, bool wait) {
    const std::string own = folder + "/member-" + std::to_string(i);
    std::vector<std::string> words{"--member", "--folder", own, "--address", name + std::to_string(i)};
    if (redis) words.insert(words.end(), {"--redis", "unix:" + folder + "/redis-" + std::to_string(i) + ".sock"});
    members[i].StartControl(words, wait);
  };
  for (std::size_t i = 0; i < kMembers; ++i) {
    addresses += (i == 0 ? "" : ",") + name + std::to_string(i);
    if (!redis) continue;
    const std::string own = folder + "/redis-" + std::to_string(i);
    std::filesystem::create_directory(own);
    servers[i].Start({"redis-server", "--dir", own, "--save", "", "--logfile", "/dev/null", "--port", "0",
                      "--unixsocket", own + ".sock", "--unixsocketperm", "700", "--appendonly", "yes"});
  }
  for (std::size_t i = 0; i + 1 < kMembers; ++i) start(i, true);
  front.StartControl({"--chain", addresses, "--folder", folder + "/front", "--address", name});
  const auto config = [&] {
    const Result<manta::control::SavedChain> saved = manta::control::LoadChain(folder + "/front/chain-0/chain");
    return saved.ok() ? saved.value().config : manta::rules::ChainConfig{};
  };
  RunUntil(loop, "the chain", [&] { return config().members.size() == 2 && config().joiner == 0; });

  Client client(loop, name);
  client.Begin();
  RunUntil(loop, "the first seconds", [&] { return client.Seconds() >= kill_at; });
  const std::size_t victim = config().tail() - 1;
  members[victim].Kill();
  start(kMembers - 1, false);
  double looked = 0;
  RunUntil(loop, "the rest", [&] {
    // Now and then: the file is read between two requests.
    if (client.timeline.joined_at == 0 && client.Seconds() > looked) {
      looked = client.Seconds() + 0.01;
      const manta::rules::ChainConfig now = config();
      if (now.members.size() == 2 && now.joiner == 0 && now.members.back() == kMembers) {
        client.timeline.joined_at = client.Seconds();
      }
    }
    return client.Seconds() >= seconds && (client.timeline.joined_at > 0 || client.Seconds() > seconds + 20);
  });
  client.Stop();
  RunUntil(loop, "the last request", [&] { return client.idle(); });

  // Every acknowledged key.
  bool done = false;
  std::size_t found = 0;
  client.client().ScanAll(Table::kKeyValue, "key:", [&](const Result<std::vector<manta::wire::ControlEntry>>& all) {
    if (!all.ok()) throw std::runtime_error(all.status().message());
    found = all.value().size();
    done = true;
  });
  RunUntil(loop, "the keys", [&] { return done; });
  client.timeline.missing += client.written() - std::min(found, client.written());
  return client.timeline;
}

std::vector<double> Latencies(const std::vector<Sample>& samples, double from, double to) {
  std::vector<double> out;
  for (const Sample& one : samples) {
    if (one.at >= from && one.at < to) out.push_back(one.us / 1000);
  }
  return out;
}

// The slowest in each part of the time, so that no pause is hidden by the number of points.
std::vector<std::pair<double, double>> Slowest(const std::vector<Sample>& samples, double part) {
  std::vector<std::pair<double, double>> out;
  for (const Sample& one : samples) {
    const double at = part * static_cast<double>(static_cast<std::int64_t>(one.at / part));
    if (out.empty() || out.back().first != at) out.emplace_back(at, 0);
    out.back().second = std::max(out.back().second, one.us / 1000);
  }
  return out;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig10a", "Figure 10a: latency of a chain of two, whose tail is killed at 4.2 s");
  const double seconds = figure.Pick(10.0, 1.5);
  const double kill_at = figure.Pick(4.2, 0.5);
  std::string folder = std::filesystem::temp_directory_path().string() + "/manta-fig10a-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("cannot make a folder");
  std::vector<std::vector<std::string>> rows{{"copies in", "requests", "read p50 ms", "write p50 ms", "write p99 ms",
                                              "longest read ms", "longest write ms", "longest around the kill ms",
                                              "joined after s", "keys missing", "the paper"}};
  const bool has_redis = std::system("redis-server --version >/dev/null 2>&1") == 0;
  std::size_t missing = 0;
  for (const bool redis : {false, true}) {
    if (redis && !has_redis) {
      figure.Say("redis-server is not installed: only with embedded storage.");
      continue;
    }
    const Timeline timeline = Run(folder + (redis ? "/redis" : "/embedded"), redis, seconds, kill_at);
    std::vector<double> reads = Latencies(timeline.reads, 0, 1e9);
    std::vector<double> writes = Latencies(timeline.writes, 0, 1e9);
    std::vector<double> around = Latencies(timeline.reads, kill_at - 0.01, kill_at + 0.5);
    const std::vector<double> more = Latencies(timeline.writes, kill_at - 0.01, kill_at + 0.5);
    around.insert(around.end(), more.begin(), more.end());
    rows.push_back({redis ? "Redis" : "log and SQLite", std::to_string(reads.size() + writes.size()),
                    Number(bench::Percentile(reads, 0.5)), Number(bench::Percentile(writes, 0.5)),
                    Number(bench::Percentile(writes, 0.99)), Number(bench::Percentile(reads, 1)),
                    Number(bench::Percentile(writes, 1)), Number(around.empty() ? 0 : bench::Percentile(around, 1)),
                    timeline.joined_at > 0 ? Number(timeline.joined_at - kill_at) : "never",
                    std::to_string(timeline.missing), "under 30 ms"});
    missing += timeline.missing;
    figure.Draw({.title = redis ? "Chain of two over Redis" : "Chain of two over embedded storage",
                 .note = {},
                 .x = {"seconds; the tail is killed at " + Number(kill_at), false, ""},
                 .y = {"ms, slowest in 20 ms", true, ""},
                 .series = {{"write", paper::Mark::kMeasured, Slowest(timeline.writes, 0.02)},
                            {"read", paper::Mark::kMeasured, Slowest(timeline.reads, 0.02)},
                            {"the paper: under 30 ms", paper::Mark::kPaper, {{0, 30}, {seconds, 30}}}}},
                redis ? "redis" : "");
  }
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  figure.Table(rows);
  figure.Say(
      "One client, one request under way: a put of a new key (25 bytes, 512 of value), then a get of an earlier one. "
      "All "
      "processes on this machine, over Unix sockets. A write of the embedded storage is synced by each member, one "
      "after the "
      "other; Redis syncs every second (appendfsync everysec).");
  if (missing > 0) throw std::runtime_error(std::to_string(missing) + " acknowledged keys are missing");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    Measure(argc, argv);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}
