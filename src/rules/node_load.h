// NodeLoad is a node's own estimate of how much work waits on it: per task class how many tasks wait and how long one
// runs, and from that how long a further task would wait. The node's loop feeds it, SpillOver reads it, and heartbeats
// carry its figures to the global scheduler. Pure bookkeeping: no clock, no locks.
//
// What waits is counted in tasks, not in lease requests: the tasks that owners still hold back for want of a lease
// belong to the queue (`Queued`), otherwise a node with one owner and a million tasks looks idle.
//
// The wait for a need, where the node has not enough free of some resource, is the largest over those resources of
//     (sum over classes of queued x mean run time x what one takes of it + its own turn) / what the node has of it,
// that is, "queue length x mean run time" divided by how many run side by side.
//
// Invariants: queued is never negative; Backlog is zero for every resource when nothing is queued.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "rules/cluster.h"
#include "types/resources.h"

namespace manta::rules {

// One class in a heartbeat.
struct ClassLoad {
  ClassId id = 0;
  std::int64_t queued = 0;
  double mean_run_us = 0;  // 0: none has run here yet

  MANTA_FIELDS(id, queued, mean_run_us)
};

class NodeLoad {
 public:
  // What a task of a class nobody has run yet is taken to last. Short on purpose: too short a guess keeps tasks here
  // until the first of them has run, too long a one sends all short ones up.
  static constexpr double kGuessUs = 1'000;

  explicit NodeLoad(const Resources& total) : total_(total) {}

  // The class's place in this book, for the calls below. The first call for a class says what its tasks need.
  std::size_t Index(ClassId id, const Resources& need);

  // Tasks that began (+) or ended (-) to wait here, in a queue or held back by their owner.
  void Queued(std::size_t index, std::int64_t delta);
  void Ran(std::size_t index, double run_us) { classes_[index].mean.Add(run_us); }
  // What others measured, as long as no task of the class has run here.
  void Hint(std::size_t index, double run_us) { classes_[index].hint_us = run_us; }
  void SetTotal(const Resources& total) { total_ = total; }

  [[nodiscard]] std::int64_t queued(std::size_t index) const { return classes_[index].queued; }
  [[nodiscard]] double MeanRunUs(std::size_t index) const;
  [[nodiscard]] const Resources& need(std::size_t index) const { return classes_[index].need; }
  [[nodiscard]] const Resources& total() const { return total_; }

  // Of `resource`: what the queued tasks will take, in its units times microseconds.
  [[nodiscard]] double Backlog(const std::string& resource) const;
  // Every resource that waits for something.
  [[nodiscard]] std::map<std::string, double> Backlogs() const;
  // How long one more task of the class would wait, while `free` is free. 0 if it fits.
  [[nodiscard]] double WaitUs(std::size_t index, const Resources& free) const;
  // For a heartbeat: classes of which something waits or has run here.
  [[nodiscard]] std::vector<ClassLoad> Classes() const;

 private:
  struct Class {
    ClassId id = 0;
    Resources need;
    std::int64_t queued = 0;
    Average mean;
    double hint_us = kGuessUs;
  };
  Resources total_;
  std::vector<Class> classes_;
  std::unordered_map<ClassId, std::size_t> by_id_;
};

}  // namespace manta::rules
