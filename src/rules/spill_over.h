// SpillOver is the local half of bottom-up scheduling: of the tasks that wait on a node, which stay and which go up to
// the global scheduler; and of those that the global scheduler sends here, which are taken and which bounce. Pure
// functions of a NodeLoad; no state, no clock.
//
// A task stays unless
//   - the node lacks something it needs (resources in all, a label, another node was asked for) or is draining; or
//   - inputs would have to be fetched, and that takes longer than asking: the global scheduler may know a node that has
//     them; or
//   - the node is overloaded: the task would wait longer than the threshold. Of a class with a backlog the tasks beyond
//     the threshold go up, the others stay; so a burst of n tasks costs one message upward, not n.
// The question may be asked again at any time about tasks that have not started: their owner still holds them.
//
// A task that comes down is taken if it waits here not much longer than the global scheduler expected when it chose,
// or if it was said to be final (it has bounced often enough, or everywhere is full). Comparing with the expected wait
// and not with the threshold keeps a full cluster from throwing its tasks from node to node. A task that came
// down never goes up again for overload, only when the node can no longer hold it: no ping-pong.
#pragma once

#include <cstddef>
#include <cstdint>

#include "rules/node_load.h"
#include "types/resources.h"

namespace manta::rules {

class SpillOver {
 public:
  struct Options {
    // Chosen with manta-sim (doc/simulator.md): lower ones ask the global scheduler about queues that empty by
    // themselves within a message's time, higher ones leave tasks waiting beside idle nodes.
    double threshold_us = 10'000;
    // How much longer than expected a task from above may wait and still be taken.
    double tolerance_us = 10'000;
    // A fetch that takes longer is worth the question: some round trips to the global scheduler.
    double fetch_threshold_us = 500;
  };

  enum class Why : std::uint8_t { kRoom, kShortWait, kOverload, kMissing, kElsewhere, kDraining };
  struct Verdict {
    std::int64_t keep = 0;
    std::int64_t up = 0;
    Why why = Why::kRoom;  // of those that go up, if any do
  };
  // About the tasks, beyond their class.
  struct Asked {
    std::int64_t waiting = 0;          // tasks of the class that may still go up; counted in the load already
    bool elsewhere = false;            // labels or affinity exclude this node, or they are to be spread
    double fetch_us = 0;               // missing input bytes / bandwidth, for one of them
    bool draining = false;             // this node takes no more
    const Resources* total = nullptr;  // what the node has, unless the load's total (a bundle's share, say)
  };

  SpillOver() = default;
  explicit SpillOver(const Options& options) : options_(options) {}

  // `free`: of the node, now. keep + up == waiting.
  [[nodiscard]] Verdict Decide(const NodeLoad& load, std::size_t index, const Resources& free,
                               const Asked& asked) const;

  // Whether to take one that was sent here by the global scheduler. The load does not count it yet.
  [[nodiscard]] bool Take(const NodeLoad& load, std::size_t index, const Resources& free, double expected_wait_us,
                          bool final, bool draining) const;

  [[nodiscard]] const Options& options() const { return options_; }

 private:
  Options options_;
};

}  // namespace manta::rules
