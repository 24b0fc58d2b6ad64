// TrialTable holds the trials of a run and lists of them by status, so that no step visits all trials.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "manta/tune/schedule.h"
#include "tune/trials/trial.h"

namespace manta::tune::trials {

struct Counts {
  std::int64_t pending = 0, running = 0, paused = 0, terminated = 0, error = 0;
  std::int64_t results = 0, retries = 0;
};

// Invariant: a trial is in exactly one list: ready (PENDING), delayed (PENDING, waits for a retry), running, paused, or
// none (ended).
class TrialTable {
 public:
  Trial& Add(Config config, TrialResources resources);
  Trial& at(TrialNumber number);  // throws std::invalid_argument
  const Trial& at(TrialNumber number) const;
  void SetStatus(Trial& trial, Status status);
  // A PENDING trial that must not start before `when`.
  void Delay(Trial& trial, double when);
  // Trials whose delay is over become ready.
  void Wake(double now);

  const std::deque<Trial>& all() const { return trials_; }
  const std::set<TrialNumber>& ready() const { return ready_; }
  const std::set<TrialNumber>& running() const { return running_; }
  const std::set<TrialNumber>& paused() const { return paused_; }
  const std::set<std::pair<double, TrialNumber>>& delayed() const { return delayed_; }
  std::int64_t live() const { return counts_.pending + counts_.running + counts_.paused; }
  const Counts& counts() const { return counts_; }
  Counts& counts() { return counts_; }

 private:
  std::int64_t& CountOf(Status status);

  std::deque<Trial> trials_;
  std::set<TrialNumber> ready_, running_, paused_;
  std::set<std::pair<double, TrialNumber>> delayed_;
  Counts counts_;
};

// Ledger keeps the books of resources. Invariant: 0 <= used <= capacity when capacity does not shrink.
class Ledger {
 public:
  void SetCapacity(Amounts capacity);
  bool known() const { return known_; }
  bool Fits(const TrialResources& resources) const;      // now
  bool Possible(const TrialResources& resources) const;  // with nothing else running
  void Take(const TrialResources& resources);
  void Give(const TrialResources& resources);
  const Amounts& capacity() const { return capacity_; }
  const Amounts& used() const { return used_; }

 private:
  bool known_ = false;
  Amounts capacity_, used_;
};

}  // namespace manta::tune::trials
