// RunLog is the journal of a run in its own terms: what was asked for at the beginning, then each event with the
// choices that the searcher and the scheduler made.
//
// The order in a step: Record (the event), Controller::Step, RecordMade (its choices), Commit, and only then the
// actions. An event that is in the file without its choices is a step whose actions never began: the replay makes the
// choices anew. With a user-written searcher or scheduler, Commit is also called before Step: user code must not see an
// event that a restored run has not seen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "manta/tune/events.h"
#include "tune/journal/journal.h"
#include "tune/trials/controller.h"

namespace manta::tune::journal {

// The first record: facts of the run by name (space, searcher, scheduler and their options as text). A restored run
// whose description differs is refused with both values.
using Description = std::map<std::string, std::string>;

class RunLog {
 public:
  using OnStep = std::function<void(const Event&, const std::vector<Action>&)>;
  using OnEvent = std::function<void(const Event&, const std::vector<Made>&)>;

  static std::unique_ptr<RunLog> Create(const std::string& path, const Description& description);
  // Opens and replays into the controller, which must be new. `on_step` (may be empty) sees each replayed step.
  // Throws JournalError, also when a value of `description` differs from the recorded one, and trials::ReplayError.
  static std::unique_ptr<RunLog> Restore(const std::string& path, const Description& description,
                                         trials::Controller& controller, const OnStep& on_step = {});
  static Description ReadDescription(const std::string& path);
  // Reads without replaying, for tools, also while the run goes on.
  static void Read(const std::string& path, const OnEvent& on_event);

  void Record(const Event& event);
  void RecordMade(const std::vector<Made>& made);  // none: no record
  bool Commit() { return journal_->Commit(); }
  Journal& journal() { return *journal_; }
  double last_time() const { return last_time_; }  // Event::now of the last event

 private:
  RunLog() = default;
  std::unique_ptr<Journal> journal_;
  double last_time_ = 0;
};

}  // namespace manta::tune::journal
