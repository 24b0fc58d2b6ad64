// manta-bench-chain: how long a client of the control store waits when a member of its chain is killed.
//
// Three members and a front, each a process of manta-control; one client, one request under way, keys of 25 bytes and
// values of 512. Again and again the head, the tail or the one between them is killed with SIGKILL, the longest time
// between two answers is taken, and the member is started anew and filled. At the end every acknowledged key is read.
// Beside it: the same client with a single embedded store, for what a write costs without a chain.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/loop.h"
#include "control/chain_config.h"
#include "server_process.h"
#include "wire/control_client.h"

namespace {

using bench::ServerProcess;
using manta::Result;
using manta::base::Loop;
using manta::base::NowMicros;
using manta::wire::Table;

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "manta-bench-chain: %s\n", what.c_str());
  std::exit(1);
}

class Writer {
 public:
  Writer(Loop& loop, const std::string& address) : client_(loop, manta::wire::ConnectLocally(address)) { Go(); }
  void Stop() { stop_ = true; }
  std::int64_t TakeLongest() { return std::exchange(longest_us_, 0); }
  [[nodiscard]] const std::vector<std::string>& keys() const { return keys_; }
  [[nodiscard]] bool idle() const { return idle_; }
  manta::wire::ControlClient& client() { return client_; }

 private:
  void Go() {
    std::string key = "key:" + std::to_string(next_++) + ":";
    key.resize(25, '.');
    client_.Put(Table::kKeyValue, key, std::string(512, 'v'), [this, key](Result<manta::wire::ControlWritten> result) {
      if (!result.ok() || !result->applied) Fail(result.ok() ? "a write was refused" : result.status().message());
      const std::int64_t now = NowMicros();
      if (last_us_ != 0) longest_us_ = std::max(longest_us_, now - last_us_);
      last_us_ = now;
      keys_.push_back(key);
      idle_ = stop_;
      if (!stop_) Go();
    });
  }
  manta::wire::ControlClient client_;
  std::uint64_t next_ = 1;
  std::vector<std::string> keys_;
  std::int64_t last_us_ = 0;
  std::int64_t longest_us_ = 0;
  bool stop_ = false;
  bool idle_ = false;
};

void RunUntil(Loop& loop, const std::string& what, const std::function<bool()>& so) {
  const std::int64_t end = NowMicros() + 60'000'000;
  while (!so()) {
    if (NowMicros() > end) Fail("waited a minute for " + what);
    loop.RunOnce(1'000);
  }
}

std::string Row(std::vector<std::int64_t> pauses) {
  if (pauses.empty()) return "-";
  std::sort(pauses.begin(), pauses.end());
  const auto at = [&](double part) {
    return static_cast<double>(pauses[std::min(pauses.size() - 1,
                                               static_cast<std::size_t>(part * static_cast<double>(pauses.size())))]) /
           1000;
  };
  char text[160];
  std::snprintf(text, sizeof text, "| %zu | %.1f | %.1f | %.1f | %.1f |", pauses.size(), at(0.5), at(0.9), at(0.99),
                static_cast<double>(pauses.back()) / 1000);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  int failovers = 30;
  std::string parent = "/tmp";
  CLI::App app("How long a client waits when a member of a chain is killed.");
  app.add_option("--failovers", failovers, "how many")->capture_default_str();
  app.add_option("--folder", parent, "where to keep the stores")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  std::string folder = parent + "/manta-bench-chain-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) Fail("cannot make a folder in " + parent);
  Result<std::unique_ptr<Loop>> made = Loop::Create();
  if (!made.ok()) Fail(made.status().message());
  Loop& loop = **made;
  const std::string name = "@manta-bench-chain-" + std::to_string(getpid()) + "-";

  {
    ServerProcess alone;
    alone.StartControl({"--folder", folder + "/alone", "--address", name + "alone"});
    Writer writer(loop, name + "alone");
    RunUntil(loop, "the first write", [&] { return !writer.keys().empty(); });
    const std::int64_t start = NowMicros();
    RunUntil(loop, "writes", [&] { return NowMicros() - start > 1'000'000; });
    std::printf("one store: %zu writes/s, one at a time\n", writer.keys().size());
    writer.Stop();
    RunUntil(loop, "the last write", [&] { return writer.idle(); });
  }

  ServerProcess members[3];
  ServerProcess front;
  std::string addresses;
  const auto start_member = [&](std::size_t i) {
    const std::string number = std::to_string(i + 1);
    members[i].StartControl({"--member", "--folder", folder + "/member-" + number, "--address", name + number});
  };
  for (std::size_t i = 0; i < 3; ++i) {
    start_member(i);
    addresses += (i == 0 ? "" : ",") + name + std::to_string(i + 1);
  }
  front.StartControl({"--chain", addresses, "--folder", folder + "/front", "--address", name + "front"});
  const auto config = [&] {
    const Result<manta::control::SavedChain> saved = manta::control::LoadChain(folder + "/front/chain-0/chain");
    if (!saved.ok()) Fail(saved.status().message());
    return saved.value().config;
  };
  const auto whole = [&] { return config().members.size() == 3 && config().joiner == 0; };

  Writer writer(loop, name + "front");
  RunUntil(loop, "the chain", whole);
  const std::size_t before = writer.keys().size();
  const std::int64_t start = NowMicros();
  RunUntil(loop, "writes", [&] { return NowMicros() - start > 1'000'000; });
  std::printf("chain of three: %zu writes/s, one at a time; longest pause without faults %.1f ms\n",
              writer.keys().size() - before, static_cast<double>(writer.TakeLongest()) / 1000);

  std::mt19937 random(1);
  std::map<std::string, std::vector<std::int64_t>> pauses;
  for (int i = 0; i < failovers; ++i) {
    RunUntil(loop, "the chain", whole);
    const std::int64_t at = NowMicros() + static_cast<std::int64_t>(random() % 20'000);
    RunUntil(loop, "a moment", [&] { return NowMicros() >= at; });
    const manta::rules::ChainConfig now = config();
    const std::string role = i % 3 == 0 ? "head" : i % 3 == 1 ? "middle" : "tail";
    const std::size_t victim = now.members[static_cast<std::size_t>(i % 3)] - 1;
    writer.TakeLongest();
    members[victim].Kill();
    const std::size_t had = writer.keys().size();
    RunUntil(loop, "writes after a kill", [&] { return writer.keys().size() >= had + 20; });
    const std::int64_t pause = writer.TakeLongest();
    pauses[role].push_back(pause);
    pauses["any"].push_back(pause);
    start_member(victim);
  }
  writer.Stop();
  RunUntil(loop, "the last write", [&] { return writer.idle(); });

  std::printf("\n| killed | failovers | median ms | p90 | p99 | longest |\n|---|---|---|---|---|---|\n");
  for (const char* role : {"head", "middle", "tail", "any"}) std::printf("| %s %s\n", role, Row(pauses[role]).c_str());

  std::map<std::string, bool> found;
  bool done = false;
  writer.client().ScanAll(Table::kKeyValue, "key:", [&](Result<std::vector<manta::wire::ControlEntry>> entries) {
    if (!entries.ok()) Fail(entries.status().message());
    for (const auto& entry : *entries) found[entry.key] = entry.value.size() == 512;
    done = true;
  });
  RunUntil(loop, "the scan", [&] { return done; });
  const auto missing =
      std::count_if(writer.keys().begin(), writer.keys().end(), [&](const std::string& key) { return !found[key]; });
  std::printf("\n%zu keys acknowledged, %ld of them missing\n", writer.keys().size(), static_cast<long>(missing));
  front.Kill();
  for (ServerProcess& member : members) member.Kill();
  std::filesystem::remove_all(folder);
  return missing == 0 ? 0 : 1;
}
