// Choices records what the searcher and the scheduler decide in a step, and in a replay compares it with what was
// recorded. User-written ones are not asked in a replay: the recorded choice is used.
#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "manta/tune/events.h"

namespace manta::tune::trials {

// A recorded choice that the replay did not make.
struct ReplayError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Choices {
 public:
  void Begin(const std::vector<Made>* recorded) {
    made_.clear();
    recorded_ = recorded;
  }
  // Throws ReplayError when the record has more choices than the replay made.
  void End();
  bool replaying() const { return recorded_ != nullptr; }
  // The recorded choice that comes next; nothing: this is no replay, or none is left.
  const Made* Next() const;
  // Adds a choice. Throws ReplayError if the recorded one differs.
  void Add(Made made);
  const std::vector<Made>& made() const { return made_; }

 private:
  std::vector<Made> made_;
  const std::vector<Made>* recorded_ = nullptr;
};

}  // namespace manta::tune::trials
