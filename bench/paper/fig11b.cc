// Figure 11b: 200 actors on ten nodes, two of which are killed when each actor has done half of its calls: how many
// calls are repeated, and how long it takes until all are back, with checkpoints and without. Every execution is
// counted outside of the engine (board.h).
#include <manta/manta.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "board.h"
#include "figure.h"
#include "harness.h"
#include "nodes.h"

namespace {

using paper::Figure;
using paper::Number;

constexpr int kNodes = 10;
constexpr int kLost = 2;

class Simulator {
 public:
  Simulator() = default;
  explicit Simulator(std::string file) : file_(std::move(file)) {}
  std::int64_t Step(int by) {
    const bench::Execution execution(file_, bench::Execution::kCall);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return sum_ += by;
  }
  MANTA_FIELDS(file_, sum_)

 private:
  std::string file_;
  std::int64_t sum_ = 0;
};

struct Result {
  std::uint64_t repeated = 0;
  double back_s = 0;  // until every actor answered a call that it had not answered at the kill
  double all_s = 0;
  paper::Series progress;
};

Result Run(int actors, int calls, std::uint64_t checkpoint_every) {
  bench::NodesOptions options;
  options.count = 1 + kNodes;
  options.store_bytes = 64ULL << 20;
  // As many as fit when two nodes are gone.
  const int each = (actors + kNodes - kLost - 1) / (kNodes - kLost);
  options.words.assign(1 + kNodes, {"--resource", "work=" + std::to_string(each)});
  options.words[0].clear();
  bench::Nodes nodes(options);
  const bench::TemporaryFolder folder;
  const std::string file = folder.path() + "/board";
  bench::Board& board = bench::Board::Create(file);
  const bench::Nodes::Driver driver(nodes);

  auto creator = manta::Actor<Simulator>();
  creator.SetResource("work", 1).Spread();
  if (checkpoint_every > 0) creator.CheckpointEvery(checkpoint_every);
  std::vector<manta::ActorHandle<Simulator>> handles;
  for (int i = 0; i < actors; ++i) handles.push_back(creator.Remote(file));
  std::vector<std::vector<manta::Ref<std::int64_t>>> refs(handles.size());
  const double begin = bench::Now();
  for (int call = 0; call < calls; ++call) {
    for (std::size_t i = 0; i < handles.size(); ++i) {
      refs[i].push_back(handles[i].Task(&Simulator::Step).Remote(call));
    }
  }
  const auto total = static_cast<std::uint64_t>(actors) * static_cast<std::uint64_t>(calls);
  Result result;
  result.progress = {
      checkpoint_every > 0 ? "a checkpoint every " + std::to_string(checkpoint_every) + " calls" : "none",
      paper::Mark::kMeasured,
      {}};
  std::uint64_t before = 0;
  const auto sample = [&](double every) {
    const std::uint64_t now = board.calls;
    result.progress.points.emplace_back(bench::Now() - begin, static_cast<double>(now - before) / every);
    before = now;
  };
  while (board.calls < total / 2) {
    bench::SleepMs(100);
    sample(0.1);
  }
  for (int i = 0; i < kLost; ++i) nodes.Kill(static_cast<std::size_t>(3 + i));
  const double killed = bench::Now();
  std::vector<manta::Ref<std::int64_t>> next;
  for (const auto& own : refs) {
    const auto first = std::partition_point(own.begin(), own.end(), [](const manta::Ref<std::int64_t>& ref) {
      return !manta::Wait(std::vector{ref}, 1, std::chrono::milliseconds(0)).ready.empty();
    });
    if (first != own.end()) next.push_back(*first);
  }
  while (!next.empty() && manta::Wait(next, next.size(), std::chrono::milliseconds(100)).ready.size() < next.size()) {
    sample(0.1);
    if (bench::Now() > killed + 300) bench::Fail("some actors are not back after five minutes");
  }
  result.back_s = bench::Now() - killed;
  for (const auto& own : refs) {
    std::int64_t sum = 0;
    for (std::size_t call = 0; call < own.size(); ++call) {
      sum += static_cast<std::int64_t>(call);
      if (own[call].Get() != sum) bench::Fail("an actor answered otherwise than it would have without a failure");
    }
  }
  result.all_s = bench::Now() - begin;
  result.repeated = board.calls - total;
  return result;
}

void Measure(int argc, char** argv) {
  Figure figure(argc, argv, "fig11b", "Figure 11b: actors brought back, with checkpoints and without");
  const int actors = figure.Pick(200, 20);
  const int calls = figure.Pick(500, 60);
  std::vector<std::vector<std::string>> rows{{"checkpoints", "calls", "repeated", "all back after s",
                                              "all done after s", "the paper repeated (2,000 actors)"}};
  std::vector<paper::Series> series;
  for (const std::uint64_t every : {0U, 10U}) {
    Result result = Run(actors, calls, every);
    rows.push_back({every == 0 ? "none" : "every 10 calls", Number(static_cast<double>(actors) * calls),
                    std::to_string(result.repeated), Number(result.back_s), Number(result.all_s),
                    every == 0 ? "10,000" : "500"});
    series.push_back(std::move(result.progress));
  }
  figure.Table(rows);
  figure.Say(std::to_string(actors) + " actors on " + std::to_string(kNodes) + " nodes, " + std::to_string(calls) +
             " calls of 1 ms each; two nodes are killed when half of the calls are done. Every answer is as it would "
             "have been without failures; \"repeated\" counts executions beyond one for each call.");
  figure.Draw({.title = "Calls executed while a fifth of the actors is lost",
               .note = {},
               .x = {"seconds", false, ""},
               .y = {"calls/s, repeated ones included", false, ""},
               .series = series});
}

}  // namespace

int main(int argc, char** argv) { return paper::Main(argc, argv, Measure); }
