// RunLog is the journal of a run in its own terms: what was asked for at the beginning, then each event with the choices
// that the searcher and the scheduler made.
//
// The order in a step: RunLog::Record (the event), Controller::Step, RunLog::RecordMade (its choices), RunLog::Commit,
// and only then the actions. An event that is in the file without its choices is a step whose actions never began: the
// replay makes the choices anew.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "manta/tune/events.h"
#include "tune/journal/journal.h"
#include "tune/trials/controller.h"

namespace manta::tune::journal {

// The first record: facts of the run by name (space, searcher, scheduler and their options as text). A restored run whose
// description differs is refused with both values.
using Description = std::map<std::string, std::string>;

class RunLog {
 public:
  static RunLog Create(const std::string& path, const Description& description);
  // Opens and replays into the controller. `on_action` (may be empty) sees the actions of each replayed step.
  // Throws JournalError, trials::ReplayError, and JournalError when the description differs.
  static RunLog Restore(const std::string& path, const Description& description, trials::Controller& controller,
                        const std::function<void(const Event&, const std::vector<Action>&)>& on_actions = {});
  static Description Describe(const std::string& path);
  // Reads without replaying, for tools. Stops at a torn tail.
  static void Read(const std::string& path,
                   const std::function<void(const Event&, const std::vector<Made>&)>& on_event);

  void Record(const Event& event);
  void RecordMade(const std::vector<Made>& made);
  bool Commit() { return journal_.Commit(); }
  Journal& journal() { return journal_; }
  double last_time() const { return last_time_; }  // Event::now of the last record

 private:
  explicit RunLog(Journal journal) : journal_(std::move(journal)) {}
  Journal journal_;
  double last_time_ = 0;
};

}  // namespace manta::tune::journal
