// The work that must survive: chains of tasks whose values lie in nodes' stores, trees of tasks that start tasks,
// actors that count, and accounts between which tasks and other actors transfer money. Actors are on the driver's own
// node, on others, and anywhere; half of them have checkpoints; some are detached, and at home on another node than the
// driver. What each should give is known outside of the engine: chains and trees are recomputed, a counter's answers
// are 1, 2, 3, … once each, and the ledger is added up from the plan of transfers.
//
// Each kind has a thread of its own in the driver. Used by one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace chaos {

// Of every node but the driver's own there is plenty.
inline constexpr char kAway[] = "away";
inline constexpr std::uint64_t kCheckpointEvery = 10;
// What one death may cost at most in tasks that run again: all that are under way.
extern const std::uint64_t kTasksUnderWay;

struct Tally {
  std::uint64_t tasks = 0;  // that should have been executed, each once if nothing had failed
  std::uint64_t calls = 0;
  std::uint64_t saved_calls = 0;  // of these, of actors that have checkpoints
  std::uint64_t lost = 0;         // answers and effects that are missing
  std::uint64_t duplicated = 0;   // and those that are there twice
  std::uint64_t wrong = 0;        // answers that nothing explains
  double longest_pause = 0;       // seconds in which one kind of work got no answer
  std::string pause_of;           // which
  std::vector<std::string> said;  // the first few of all that went wrong
};

class Load {
 public:
  // `file`: the Board's; `home`: the driver's node.
  Load(std::string file, std::uint64_t seed, const std::string& home);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Ends what is under way, then compares. Once.
  Tally Finish();
  // The process of each counter now; 0: it is on its way somewhere else.
  [[nodiscard]] std::vector<int> ActorPids();
  // Is that one of ActorPids detached? And how many actors are, in all?
  [[nodiscard]] static bool Detached(std::size_t counter);
  [[nodiscard]] static std::size_t AllDetached();
  [[nodiscard]] bool failed() const { return failed_; }

 private:
  struct Actors;
  void Start(const std::string& name, std::function<void()> round);
  void Chains();
  void Trees();
  void Count(std::size_t caller);
  void Transfer();
  void Tell();
  void Note(std::uint64_t Tally::* kind, std::uint64_t count, const std::string& text);
  void Made(std::uint64_t Tally::* kind, std::uint64_t count);
  void Answered();
  void CheckCounters();
  void CheckLedger();

  const std::string file_;
  const std::uint64_t seed_;
  std::atomic<bool> stop_{false};
  std::atomic<bool> failed_{false};
  std::unique_ptr<Actors> actors_;
  std::mutex mutex_;  // guards what follows
  Tally tally_;
  std::vector<std::thread> threads_;
};

}  // namespace chaos
