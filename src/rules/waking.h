// Waking: whether one more worker pays for a queue of tasks that others are at already. A pure function of what its
// owner knows of the queue.
//
// To wake one takes 42 µs, and when all cores are taken, by the owner and those awake, it takes its time from them:
// with tasks of a fraction of a microsecond, two workers and their owner on two cores get a third less done than one
// worker does. So tasks that those awake will have run soon are left to them. How soon is soon depends on whether a
// core is free. A guess that turns out wrong costs little: owners look again while they wait, and wake somebody as soon
// as nothing moves (Owner::Balance).
#pragma once

#include <cstdint>

#include "rules/cluster.h"

namespace manta::rules {

struct QueueLook {
  std::uint64_t waiting = 0;  // tasks
  std::uint32_t awake = 0;    // workers that are at them
  std::uint32_t cores = 0;    // of the node
  bool owner_runs = true;     // not: it is about to sleep, and leaves its core to others
};

inline constexpr std::uint64_t kComfort = 4;  // tasks for each: handed over before anybody else is awake
inline constexpr double kHandOverUs = 0.2;    // what a task costs its worker beside its own time
inline constexpr double kSoonUs = 84;         // two wakes
inline constexpr double kSoonOnFullCores = 2000;

// `call_us`: how long its tasks ran lately.
[[nodiscard]] inline bool OneMorePays(const QueueLook& look, const Average& call_us) {
  if (look.waiting == 0) return false;
  if (look.awake == 0) return true;
  if (look.waiting <= kComfort * look.awake) return false;
  if (!call_us.known()) return true;
  const bool full = look.awake + (look.owner_runs ? 1 : 0) >= look.cores;
  const double left_us = static_cast<double>(look.waiting) * (call_us.Or(0) + kHandOverUs) / look.awake;
  return left_us > (full ? kSoonOnFullCores : kSoonUs);
}

}  // namespace manta::rules
