// What the benchmark's tasks do and how their results are checked: every result says which process
// made it, the how-manieth call of that process it was, and which call it answers.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "harness.h"

namespace bench {

inline constexpr std::size_t kBatch = 1000;  // as in Ray's microbenchmark

struct Reply {
  std::uint64_t serial = 0;  // counts the calls of this process, from 1
  std::uint64_t index = 0;   // what the caller passed
  std::uint32_t pid = 0;
};

// Made in the worker at first use: the fork server that it came from never calls this.
inline std::uint32_t MyPid() {
  static const auto pid = static_cast<std::uint32_t>(::getpid());
  return pid;
}

// Workers of the benchmark run one task at a time.
inline Reply Answer(std::uint64_t index) {
  static std::uint64_t serial = 0;
  return Reply{++serial, index, MyPid()};
}

inline std::size_t ClientCount() { return std::max<std::size_t>(2, std::thread::hardware_concurrency()); }

// The calls of one process, as seen in their replies.
struct Calls {
  std::uint32_t pid = 0;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  std::uint64_t count = 0;
  std::uint64_t sum = 0;  // wraps
};

// Checks replies. Finish: every process's serials are each there once, so no call was answered twice,
// none was run twice, and none was made up. A plain aggregate: clients send theirs to the driver.
struct Tally {
  std::vector<Calls> processes;

  void Add(const Reply& reply, std::uint64_t index) {
    if (reply.index != index) {
      Fail("wrong result: call " + std::to_string(index) + " got the answer of " + std::to_string(reply.index));
    }
    if (reply.pid == 0 || reply.pid == MyPid()) Fail("a call was not run in another process");
    Calls& calls = Find(reply.pid);
    if (calls.count == 0) calls.low = calls.high = reply.serial;
    calls.low = std::min(calls.low, reply.serial);
    calls.high = std::max(calls.high, reply.serial);
    ++calls.count;
    calls.sum += reply.serial;
  }

  void Merge(const Tally& other) {
    for (const Calls& theirs : other.processes) {
      Calls& calls = Find(theirs.pid);
      if (calls.count == 0) calls.low = theirs.low;
      calls.low = std::min(calls.low, theirs.low);
      calls.high = std::max(calls.high, theirs.high);
      calls.count += theirs.count;
      calls.sum += theirs.sum;
    }
  }

  [[nodiscard]] std::uint64_t count() const {
    std::uint64_t total = 0;
    for (const Calls& calls : processes) total += calls.count;
    return total;
  }

  // `retried`: workers died, so a call may have been started twice and its first serial never seen.
  void Finish(std::uint64_t expected, bool retried = false) const {
    if (count() != expected) {
      Fail("expected " + std::to_string(expected) + " results, got " + std::to_string(count()));
    }
    for (const Calls& calls : processes) {
      const std::uint64_t span = calls.high - calls.low + 1;
      const std::uint64_t ends = calls.low + calls.high;
      const std::uint64_t sum = calls.count % 2 == 0 ? ends * (calls.count / 2) : ends / 2 * calls.count;
      if (span < calls.count || (!retried && (span != calls.count || sum != calls.sum))) {
        Fail("process " + std::to_string(calls.pid) + " answered " + std::to_string(calls.count) +
             " calls with serials " + std::to_string(calls.low) + " to " + std::to_string(calls.high));
      }
    }
  }

 private:
  Calls& Find(std::uint32_t pid) {
    for (Calls& calls : processes) {
      if (calls.pid == pid) return calls;
    }
    processes.push_back(Calls{pid, 0, 0, 0, 0});
    return processes.back();
  }
};

}  // namespace bench
