#include "manta/tune/schedule.h"

namespace manta::tune {

std::optional<TrialNumber> Scheduler::Choose(const TrialStates& states) {
  auto pending = states.FirstPending();
  return pending ? pending : states.FirstPaused();
}

namespace {

class FifoScheduler : public Scheduler {
 public:
  Decision OnResult(TrialNumber, double, double, const TrialStates&) override { return {}; }
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(Fifo) { return std::make_unique<FifoScheduler>(); }

}  // namespace manta::tune
