// What is measured between the nodes of a bench::Nodes: by the rows of manta-bench and by the paper's figures. Each
// needs a Nodes::Driver on the first node. Wrong results Fail.
#pragma once

#include <manta/manta.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "nodes.h"

namespace bench {

// A task of no work that runs on another node: p50 in µs of one at a time.
[[nodiscard]] double FarSyncUs(double seconds, std::size_t node = 2);
// The same with many in flight: tasks a second.
[[nodiscard]] double FarAsync(double seconds, std::size_t node = 2);

// The answer of a call of no work to an actor on another node, where a call of 20 ms is queued behind it: p50 in µs
// from the call's run there to its answer here. The nodes share one machine and so one clock.
[[nodiscard]] double FarReplyUs(double seconds, std::size_t node = 2);

// GB/s from the first node's store into another's: an object of this size made here, and a task there that gets it. The
// time of a task without one is taken off.
[[nodiscard]] double Transfer(std::size_t bytes, std::size_t node = 2);

// One object to all other nodes at once: seconds, and how many copies the first node sent.
struct BroadcastRun {
  double seconds = 0;
  double copies = 0;
};
[[nodiscard]] BroadcastRun Broadcast(const Nodes& nodes, std::size_t bytes);

// The paper's Figure 8a: tasks one after another, each with one argument of this size that lies on either of two nodes.
// Placed by the engine (`aware`), or on either node at random. Every argument is used once, so that no copy of an
// earlier one helps.
struct LocalityRun {
  double mean_us = 0;
  double p50_us = 0;
  double beside = 0;  // the part of the tasks that ran where their argument was
};
[[nodiscard]] LocalityRun Locality(std::size_t bytes, std::size_t tasks, bool aware, std::uint64_t seed);

}  // namespace bench
