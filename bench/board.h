// Board is a file that the driver and all workers map: who is in the middle of something, and how much was done. It is
// outside of the engine on purpose: what a killed process was doing stays written there, and nothing that Manta
// forgets or repeats can hide. Lock-free; any process, any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace bench {

struct Board {
  static constexpr std::size_t kSlots = 8192;
  struct Slot {
    std::atomic<std::int32_t> pid;
    std::atomic<std::int32_t> busy;  // tasks and calls that it is in
  };
  std::atomic<std::uint64_t> tasks;        // executions of task functions
  std::atomic<std::uint64_t> calls;        // and of actors' methods
  std::atomic<std::uint64_t> saved_calls;  // of these, by actors that have checkpoints
  Slot slots[kSlots];

  // Made by the driver; opened once in each process. Throws std::runtime_error.
  static Board& Create(const std::string& file);
  static Board& Open(const std::string& file);

  Slot& Of(pid_t pid);
  // What that process was in the middle of when it died, or is in now.
  [[nodiscard]] int Busy(pid_t pid) { return Of(pid).busy.load(); }
};

// One execution, from its first line to its last.
class Execution {
 public:
  enum Kind { kTask, kCall, kSavedCall };
  Execution(const std::string& file, Kind kind);
  ~Execution() { slot_.busy.fetch_sub(1); }
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

 private:
  Board::Slot& slot_;
};

}  // namespace bench
