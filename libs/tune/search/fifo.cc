#include "manta/tune/schedule.h"
#include "tune/search/archive.h"

namespace manta::tune {

std::optional<TrialNumber> Scheduler::Choose(const TrialStates& states, Orders&) {
  auto pending = states.FirstPending();
  return pending ? pending : states.FirstPaused();
}

namespace {

class FifoScheduler : public Scheduler {
 public:
  Decision OnResult(TrialNumber, const Report&, const TrialStates&) override { return {}; }
  std::string Save() const override { return SaveFields(*this, "FIFO"); }
  void Load(std::string_view bytes) override { LoadFields(*this, bytes, "FIFO"); }
  template <class Self, class Archive>
  static void Fields(Self&, Archive&) {}
};

}  // namespace

std::unique_ptr<Scheduler> MakeScheduler(Fifo) { return std::make_unique<FifoScheduler>(); }

}  // namespace manta::tune
