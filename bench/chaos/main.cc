// manta-chaos: a real cluster, real work (load.h), and every now and then a fault (faults.h), as the seed says. At the
// end it counts: how much was done, what hit work in flight, what was lost, what was done twice, what was executed
// again. Neither of the first two may ever be more than zero.
//
//   manta-chaos --seed 7 --seconds 60
#include <manta/manta.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include "board.h"
#include "faults.h"
#include "harness.h"
#include "heads.h"
#include "load.h"
#include "nodes.h"

namespace chaos {
namespace {

using bench::Board;

constexpr int kNodes = 4;  // the last is the driver's own, and stays: older ones are homes of detached actors first

struct Options {
  std::uint64_t seed = 1;
  double seconds = 30;
  double every = 1;
  bool two_heads = false;
  bool verbose = false;
  bool expect_duplicates = false;
};

class Verdict {
 public:
  void Fails(const std::string& why) {
    std::printf("%s\n", why.c_str());
    good_ = false;
  }
  void FailsIf(bool condition, const std::string& why) {
    if (condition) Fails(why);
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  bool good_ = true;
};

std::uint64_t Extra(std::uint64_t executed, std::uint64_t wanted) { return executed > wanted ? executed - wanted : 0; }

void ShowFaults(const Faults& faults, Verdict* verdict) {
  std::printf("%-28s %6s %10s\n", "fault", "count", "hit work");
  int all = 0;
  int hits = 0;
  for (const Fault& fault : faults.all()) {
    std::printf("%-28s %6d %10d\n", fault.name, fault.done, fault.hit);
    all += fault.done;
    hits += fault.hit;
    verdict->FailsIf(fault.done >= 4 && fault.hit == 0, std::string("never hit work in flight: ") + fault.name);
  }
  verdict->FailsIf(hits * 3 < all, "only " + std::to_string(hits) + " of " + std::to_string(all) +
                                       " faults hit work in flight: this proves too little");
}

// Restarting the world is no recovery: what is executed again is what was under way in processes that died, or not yet
// in a checkpoint.
void ShowRepeated(const Board& board, const Tally& tally, std::size_t killed, Verdict* verdict) {
  const std::uint64_t tasks = Extra(board.tasks, tally.tasks);
  const std::uint64_t calls = Extra(board.calls, tally.calls);
  const std::uint64_t saved = Extra(board.saved_calls, tally.saved_calls);
  std::printf("tasks %llu (%llu executed again), calls of actors %llu (%llu again)\n",
              static_cast<unsigned long long>(tally.tasks), static_cast<unsigned long long>(tasks),
              static_cast<unsigned long long>(tally.calls), static_cast<unsigned long long>(calls));
  std::printf("of these, of actors with checkpoints %llu (%llu again); processes with work killed %zu\n",
              static_cast<unsigned long long>(tally.saved_calls), static_cast<unsigned long long>(saved), killed);
  verdict->FailsIf(tasks > killed * kTasksUnderWay, "more tasks were executed again than the deaths explain");
  verdict->FailsIf(saved > killed * (kCheckpointEvery + 2),
                   "more calls of actors with checkpoints were executed again than the deaths explain");
}

int Run(const Options& asked) {
  bench::NodesOptions options;
  options.count = kNodes;
  options.cpus = 4;
  options.words.assign(10'000, {"--resource", std::string(kAway) + "=1000"});
  options.words[kNodes - 1].clear();
  std::unique_ptr<Heads> heads;
  if (asked.two_heads) {
    heads = std::make_unique<Heads>();
    options.join = heads->addresses();
    options.secrets = heads->secrets();
  }
  bench::Nodes nodes(options);
  const bench::TemporaryFolder folder;
  const std::string file = folder.path() + "/board";
  Board& board = Board::Create(file);
  const bench::Nodes::Driver driver(nodes, kNodes);
  std::printf("manta-chaos --seed %llu: %d nodes, %.0f s, a fault every %.1f s\n",
              static_cast<unsigned long long>(asked.seed), kNodes, asked.seconds, asked.every);
  std::fflush(stdout);
  Load load(file, asked.seed, bench::Nodes::Name(kNodes));
  Faults faults(asked.seed, nodes, kNodes, heads.get(), board, load);
  faults.SetVerbose(asked.verbose);
  const double end = bench::Now() + asked.seconds;
  bench::SleepMs(500);
  while (bench::Now() < end && !load.failed()) {
    faults.One();
    bench::SleepMs(asked.every * 1e3);
  }
  const Tally tally = load.Finish();
  faults.CheckSurvivors();

  Verdict verdict;
  ShowFaults(faults, &verdict);
  ShowRepeated(board, tally, faults.killed(), &verdict);
  std::printf("longest pause %.2f s (%s)\n", tally.longest_pause, tally.pause_of.c_str());
  std::printf("lost %llu, duplicated %llu, wrong %llu\n", static_cast<unsigned long long>(tally.lost),
              static_cast<unsigned long long>(tally.duplicated), static_cast<unsigned long long>(tally.wrong));
  for (const std::string& text : tally.said) verdict.Fails("  " + text);
  for (const std::string& text : faults.said()) verdict.Fails("  " + text);
  verdict.FailsIf(tally.lost + tally.duplicated + tally.wrong > 0, "something was lost or came twice");
  if (asked.expect_duplicates) {
    std::printf("%s\n", tally.duplicated > 0 ? "duplicates, as expected" : "FAILED: no duplicate was found");
    return tally.duplicated > 0 ? 0 : 1;
  }
  std::printf("%s\n", verdict.good() ? "nothing lost, nothing twice" : "FAILED");
  if (!verdict.good()) std::printf("%s\n", nodes.Logs().c_str());
  return verdict.good() ? 0 : 1;
}

}  // namespace
}  // namespace chaos

int main(int argc, char** argv) {
  chaos::Options options;
  CLI::App app("A real cluster under random faults; nothing may be lost and nothing happen twice.");
  app.add_option("--seed", options.seed, "of the faults and of the work");
  app.add_option("--seconds", options.seconds, "how long")->check(CLI::Range(1.0, 1e6));
  app.add_option("--every", options.every, "seconds between faults")->check(CLI::Range(0.05, 1e3));
  app.add_flag("--two-heads", options.two_heads,
               "another head takes over from one that is killed or silent; needs etcd");
  app.add_flag("--verbose", options.verbose, "say each fault, and when it was");
  app.add_flag("--expect-duplicates", options.expect_duplicates,
               "succeed if something came twice: for a library without de-duplication");
  CLI11_PARSE(app, argc, argv);
  try {
    return chaos::Run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "manta-chaos: %s\n", error.what());
    return 1;
  }
}
