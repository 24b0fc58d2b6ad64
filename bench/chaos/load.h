// The work that must survive: chains of tasks whose values lie in nodes' stores, trees of tasks that start tasks,
// actors that count, and accounts between which tasks transfer money. What each should give is known outside of the
// engine: chains and trees are recomputed, a counter's answers are 1, 2, 3, … once each, and the ledger is added up
// from the plan of transfers.
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

struct Tally {
  std::uint64_t tasks = 0;  // that should have been executed, each once if nothing had failed
  std::uint64_t calls = 0;
  std::uint64_t lost = 0;         // answers and effects that are missing
  std::uint64_t duplicated = 0;   // and those that are there twice
  std::uint64_t wrong = 0;        // answers that nothing explains
  double longest_pause = 0;       // seconds without any progress of one kind of work
  std::vector<std::string> said;  // the first few of all that went wrong
};

class Load {
 public:
  // `file`: the Board's.
  Load(std::string file, std::uint64_t seed);
  ~Load();
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  // Ends what is under way, then compares. Once.
  Tally Finish();
  // Processes that host a counter now.
  [[nodiscard]] std::vector<int> ActorPids();

 private:
  struct Actors;
  void Start(const std::string& name, std::function<void()> round);
  void Chains();
  void Trees();
  void Count(std::size_t caller);
  void Transfer();
  void Note(std::uint64_t Tally::* kind, std::uint64_t count, const std::string& text);
  void CheckCounters();
  void CheckLedger();

  const std::string file_;
  const std::uint64_t seed_;
  std::atomic<bool> stop_{false};
  std::unique_ptr<Actors> actors_;
  std::mutex mutex_;  // guards what follows
  Tally tally_;
  std::vector<std::thread> threads_;
};

}  // namespace chaos
